//! Numbers for what stands in a report many times: source nodes, and boxes and levels with equal content.

use compiler::trace::CompileTrace;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// Source nodes by number.
pub(super) struct Sources {
    list: Vec<(String, String)>,
    number: FxHashMap<String, usize>,
}

impl Sources {
    pub(super) fn new(t: &CompileTrace) -> Sources {
        let list: Vec<(String, String)> = t.sources.iter().map(|s| (s.name.clone(), s.op.clone())).collect();
        let number = list.iter().enumerate().map(|(i, s)| (s.0.clone(), i)).collect();
        Sources { list, number }
    }
    /// The numbers of names. A name that is no source node gets a number too, without an op.
    pub(super) fn numbers<S: AsRef<str>>(&mut self, names: &[S]) -> Vec<usize> {
        names.iter().map(|n| self.one(n.as_ref())).collect()
    }
    pub(super) fn one(&mut self, name: &str) -> usize {
        if let Some(&i) = self.number.get(name) {
            return i;
        }
        self.list.push((name.to_string(), String::new()));
        self.number.insert(name.to_string(), self.list.len() - 1);
        self.list.len() - 1
    }
    pub(super) fn to_json(&self) -> Vec<Value> {
        self.list.iter().map(|(name, op)| json!({ "name": name, "op": op })).collect()
    }
}

/// Values of which equal ones share a number.
#[derive(Default)]
pub(super) struct Pool {
    pub(super) list: Vec<Value>,
    number: FxHashMap<String, usize>,
}

impl Pool {
    pub(super) fn put(&mut self, value: Value) -> usize {
        let next = self.list.len();
        let number = *self.number.entry(value.to_string()).or_insert(next);
        if number == next {
            self.list.push(value);
        }
        number
    }
}
