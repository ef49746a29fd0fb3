//! Names in a written model.

use crate::graph::Module;
use rustc_hash::{FxHashMap, FxHashSet};

/// Names taken in one graph, branches included, or in one function.
pub(super) struct Names {
    values: FxHashSet<String>,
    nodes: FxHashSet<String>,
    next: FxHashMap<String, usize>,
}

impl Names {
    pub(super) fn new() -> Names {
        Names { values: FxHashSet::default(), nodes: FxHashSet::default(), next: FxHashMap::default() }
    }
    /// `base` where it is free, else `base_1`, `base_2` ...; `fallback` stands in for an empty base.
    pub(super) fn unique(&mut self, base: &str, fallback: &str) -> String {
        pick(&mut self.values, &mut self.next, if base.is_empty() { fallback } else { base })
    }
    /// The same for names of nodes, which may equal names of values.
    pub(super) fn node(&mut self, base: &str) -> String {
        pick(&mut self.nodes, &mut self.next, base)
    }
}

fn pick(taken: &mut FxHashSet<String>, next: &mut FxHashMap<String, usize>, base: &str) -> String {
    if taken.insert(base.to_string()) {
        return base.to_string();
    }
    let n = next.entry(base.to_string()).or_insert(0);
    loop {
        *n += 1;
        let name = format!("{base}_{n}");
        if taken.insert(name.clone()) {
            return name;
        }
    }
}

/// A prefix that no name of the module begins with.
pub(super) fn fresh_prefix(module: &Module) -> String {
    let values = module.functions.values().flat_map(|f| f.values.iter().filter_map(|(_, v)| v.name));
    let results = module.functions.values().flat_map(|f| f.result_names.iter().copied());
    let all: Vec<&str> = values.chain(results).chain(module.constants.keys().copied()).map(|n| n.as_str()).collect();
    let mut prefix = "weft_".to_string();
    while all.iter().any(|n| n.starts_with(&prefix)) {
        prefix.push('_');
    }
    prefix
}
