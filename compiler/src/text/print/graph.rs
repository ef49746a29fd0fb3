//! Graph functions.

use super::options::PrintOptions;
use crate::attr::Attr;
use crate::bare;
use crate::graph::{BlockId, Function, Node, NodeId, ValueId};
use crate::name::Name;
use rustc_hash::{FxHashMap, FxHashSet};
use tensor_ir::text::{print_attrs, print_type};

/// Text of a graph function.
pub fn print_function(f: &Function) -> String {
    print_function_with(f, PrintOptions::default())
}

pub(super) fn print_function_with(f: &Function, options: PrintOptions) -> String {
    let mut p = Printer {
        f,
        options,
        names: FxHashMap::default(),
        taken: FxHashSet::default(),
        unnamed: 0,
        nodes: 0,
        out: String::new(),
    };
    let params = p.args(f.body);
    let results: Vec<String> = f
        .result_types
        .iter()
        .enumerate()
        .map(|(i, t)| match f.result_names.get(i).map(|n| n.as_str()) {
            None | Some("") => print_type(t),
            Some(name) => format!("{}: {}", bare::name(name), print_type(t)),
        })
        .collect();
    let named = f.result_names.iter().any(|n| !n.as_str().is_empty());
    let results = if results.len() == 1 && !named { results[0].clone() } else { format!("({})", results.join(", ")) };
    let flags = if f.primitive { " primitive" } else { "" };
    p.out.push_str(&format!("graph @{}{params} -> {results}{flags} {{\n", bare::after_sigil(f.name.as_str())));
    p.block(f.body, "return", 1);
    p.out.push_str("}\n");
    p.out
}

/// The attribute that is written as `@name` right after the op: what a constant or a call refers to.
pub(in crate::text) fn symbol_attr(op: &str) -> Option<&'static str> {
    match op {
        "const" => Some("name"),
        "call" | "call_tensor" | "call_host" | "function" => Some("callee"),
        _ => None,
    }
}

/// The name a node has when the text gives none: its only source node's, or the op's with the node's place in the text.
pub(in crate::text) fn default_node_name(op: &str, origins: &[Name], place: usize) -> Name {
    match origins {
        [one] => *one,
        _ => Name::new(&format!("{op}_{place}")),
    }
}

struct Printer<'f> {
    f: &'f Function,
    options: PrintOptions,
    names: FxHashMap<ValueId, String>,
    taken: FxHashSet<Name>,
    unnamed: usize,
    nodes: usize,
    out: String,
}

impl Printer<'_> {
    /// How a value is written where it is defined; its uses are written as `%...` without the name in parentheses.
    fn define(&mut self, v: ValueId) -> String {
        let name = self.f.values.get(v).and_then(|v| v.name);
        if let Some(name) = name
            && self.taken.insert(name)
        {
            let text = format!("%{}", bare::after_sigil(name.as_str()));
            self.names.insert(v, text.clone());
            return text;
        }
        let number = format!("%{}", self.unnamed);
        self.unnamed += 1;
        self.names.insert(v, number.clone());
        match name {
            Some(n) => format!("{number}({})", bare::quote(n.as_str())),
            None => number,
        }
    }
    fn use_of(&self, v: Option<ValueId>) -> String {
        match v {
            None => "_".to_string(),
            Some(v) => {
                self.names.get(&v).cloned().unwrap_or_else(|| format!("%undefined_{}", crate::arena::Id::index(v)))
            }
        }
    }
    fn types(&self, list: &[ValueId]) -> String {
        let unknown = |v: &ValueId| self.f.values.get(*v).map_or_else(|| "?".to_string(), |v| print_type(&v.ty));
        list.iter().map(unknown).collect::<Vec<_>>().join(", ")
    }
    fn args(&mut self, b: BlockId) -> String {
        let args = self.f.blocks[b].args.clone();
        let list: Vec<String> = args.iter().map(|&v| format!("{}: {}", self.define(v), self.types(&[v]))).collect();
        format!("({})", list.join(", "))
    }
    fn block(&mut self, b: BlockId, terminator: &str, indent: usize) {
        let f = self.f;
        let pad = "  ".repeat(indent);
        for &n in &f.blocks[b].nodes {
            self.out.push_str(&pad);
            self.node(n, indent);
            self.out.push('\n');
        }
        let results: Vec<String> = f.blocks[b].results.iter().map(|&v| self.use_of(Some(v))).collect();
        self.out.push_str(&pad);
        self.out.push_str(format!("{terminator} {}", results.join(", ")).trim_end());
        self.out.push('\n');
    }
    fn node(&mut self, id: NodeId, indent: usize) {
        let f = self.f;
        let node = &f.nodes[id];
        let place = self.nodes;
        self.nodes += 1;
        let operands: Vec<String> = node.inputs.iter().map(|&v| self.use_of(v)).collect();
        let outputs: Vec<String> = node.outputs.iter().map(|&v| self.define(v)).collect();
        if !outputs.is_empty() {
            self.out.push_str(&format!("{} = ", outputs.join(", ")));
        }
        let name = node.op.name();
        self.out.push_str(name);
        let mut attrs = node.op.attrs();
        if let Some(key) = symbol_attr(name)
            && let Some(Attr::Str(symbol)) = attrs.shift_remove(key)
        {
            self.out.push_str(&format!(" @{}", bare::after_sigil(&symbol)));
        }
        if !operands.is_empty() {
            self.out.push_str(&format!(" {}", operands.join(", ")));
        }
        self.out.push_str(&print_attrs(&attrs));
        let types = if outputs.is_empty() { "()".to_string() } else { self.types(&node.outputs) };
        self.out.push_str(&format!(" : {types}"));
        self.metadata(node, place);
        for &r in &node.regions {
            if !f.blocks[r].args.is_empty() {
                let args = self.args(r);
                self.out.push_str(&format!(" {args}"));
            }
            self.out.push_str(" {\n");
            self.block(r, "yield", indent + 1);
            self.out.push_str(&"  ".repeat(indent));
            self.out.push('}');
        }
    }
    fn metadata(&mut self, node: &Node, place: usize) {
        if !self.options.origins {
            return;
        }
        let origins = node.origins.names();
        if node.name != default_node_name(node.op.name(), origins, place) {
            self.out.push_str(&format!(" !name({})", bare::quote(node.name.as_str())));
        }
        if !origins.is_empty() {
            let list: Vec<String> = origins.iter().map(|n| bare::quote(n.as_str())).collect();
            let word = if node.origins.are_served() { "for" } else { "from" };
            self.out.push_str(&format!(" !{word}({})", list.join(", ")));
        }
    }
}
