//! Structural equality of modules, up to the numbering of values, nodes and buffers.

use crate::graph::{BlockId, Function, Module, ValueId};
use crate::name::Name;
use indexmap::IndexMap;
use rustc_hash::FxHashMap;

type Difference = Result<(), String>;

/// Compares everything that text keeps: all except ids, nodes in no block, and the data of constants if one side has
/// none.
///
/// # Errors
/// The first difference.
pub fn compare_modules(a: &Module, b: &Module) -> Difference {
    same("the entry", &a.entry, &b.entry)?;
    same_keys("constants", &a.constants, &b.constants)?;
    same_keys("functions", &a.functions, &b.functions)?;
    same_keys("tensor functions", &a.tensor_functions, &b.tensor_functions)?;
    for (name, c) in &a.constants {
        let d = &b.constants[name];
        same(&format!("the type of @{name}"), &c.ty(), &d.ty())?;
        // A text refers to large constants without their data: the other side's need not be read then.
        if let Ok(y) = d.load()
            && let Ok(x) = c.load()
            && x.bytes() != y.bytes()
        {
            return Err(format!("the data of @{name} differ"));
        }
    }
    for (name, f) in &a.functions {
        compare_functions(f, &b.functions[name]).map_err(|e| format!("@{name}: {e}"))?;
    }
    for (name, f) in &a.tensor_functions {
        let (x, y) = (f.canonical(), b.tensor_functions[name].canonical());
        if x != y {
            return Err(format!("@{name}: {x:?}\ndiffers from {y:?}"));
        }
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, a: &T, b: &T) -> Difference {
    if a == b { Ok(()) } else { Err(format!("{what} differ: {a:?} and {b:?}")) }
}

fn same_keys<T>(what: &str, a: &IndexMap<Name, T>, b: &IndexMap<Name, T>) -> Difference {
    same(what, &a.keys().collect::<Vec<_>>(), &b.keys().collect::<Vec<_>>())
}

fn compare_functions(a: &Function, b: &Function) -> Difference {
    same("names", &a.name, &b.name)?;
    same("flags", &a.primitive, &b.primitive)?;
    same("result names", &a.result_names, &b.result_names)?;
    same("result types", &a.result_types, &b.result_types)?;
    let mut c = Comparison { a, b, map: FxHashMap::default() };
    c.blocks(a.body, b.body)
}

struct Comparison<'f> {
    a: &'f Function,
    b: &'f Function,
    map: FxHashMap<ValueId, ValueId>,
}

impl Comparison<'_> {
    fn define(&mut self, x: &[ValueId], y: &[ValueId]) -> Difference {
        same("number of values", &x.len(), &y.len())?;
        for (&x, &y) in x.iter().zip(y) {
            let (v, w) = (&self.a.values[x], &self.b.values[y]);
            same("types of values", &v.ty, &w.ty)?;
            same("names of values", &v.name, &w.name)?;
            self.map.insert(x, y);
        }
        Ok(())
    }
    fn uses(&self, x: &[Option<ValueId>], y: &[Option<ValueId>]) -> Difference {
        let x: Vec<Option<ValueId>> = x.iter().map(|v| v.map(|v| self.map.get(&v).copied().unwrap_or(v))).collect();
        if x == y { Ok(()) } else { Err("operands differ".to_string()) }
    }
    fn blocks(&mut self, x: BlockId, y: BlockId) -> Difference {
        let (p, q) = (&self.a.blocks[x], &self.b.blocks[y]);
        self.define(&p.args, &q.args)?;
        same("number of nodes", &p.nodes.len(), &q.nodes.len())?;
        for (&m, &n) in p.nodes.iter().zip(&q.nodes) {
            let (m, n) = (&self.a.nodes[m], &self.b.nodes[n]);
            let at = |e: String| format!("node {}: {e}", m.name);
            same("node names", &m.name, &n.name)?;
            if m.op.name() != n.op.name() || format!("{:?}", m.op) != format!("{:?}", n.op) {
                return Err(at(format!("ops differ: {:?} and {:?}", m.op, n.op)));
            }
            same("origins", &m.origins, &n.origins).map_err(at)?;
            self.uses(&m.inputs, &n.inputs).map_err(at)?;
            same("number of regions", &m.regions.len(), &n.regions.len()).map_err(at)?;
            for (&r, &t) in m.regions.iter().zip(&n.regions) {
                self.blocks(r, t)?;
            }
            self.define(&m.outputs, &n.outputs).map_err(at)?;
        }
        let some = |list: &[ValueId]| list.iter().map(|&v| Some(v)).collect::<Vec<_>>();
        self.uses(&some(&p.results), &some(&q.results))
    }
}
