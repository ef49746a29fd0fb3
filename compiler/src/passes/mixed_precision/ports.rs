//! Inputs and results of a model in f16.

use crate::dtype::DType;
use crate::graph::{Function, Module, Node, NodeId, Origins, TensorType, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::cast::Cast;

/// Makes inputs and results of the entry function that are f32 f16, with casts between them and the rest. The pass
/// reads through these casts: a layer that is in f16 takes an input as it is.
pub fn halve_ports(module: &mut Module) {
    let f = module.main_mut();
    let mut front = vec![];
    for (i, p) in singles(f, f.params()) {
        let (ty, name) = (f.ty(p).clone(), f.values[p].name.take());
        let half = f.fresh_value(TensorType::new(DType::F16, ty.shape), ValueDef::Arg(f.body, i), name);
        f.blocks[f.body].args[i] = half;
        let n = add_cast(f, half, name, DType::F32, p);
        f.values[p].def = ValueDef::Result(n, 0);
        front.push(n);
    }
    f.blocks[f.body].nodes.splice(0..0, front);
    for (i, v) in singles(f, f.results()) {
        let (ty, name) = (f.ty(v).clone(), f.values[v].name);
        // The name of the model goes with its result.
        f.values[v].name = name.map(|n| Name::new(&format!("{n}@f32")));
        let half = f.fresh_value(TensorType::new(DType::F16, ty.shape), ValueDef::Arg(f.body, 0), name);
        let n = add_cast(f, v, name, DType::F16, half);
        f.values[half].def = ValueDef::Result(n, 0);
        f.blocks[f.body].nodes.push(n);
        f.blocks[f.body].results[i] = half;
    }
    f.result_types = f.results().iter().map(|&v| f.ty(v).clone()).collect();
}

/// The f32 ones among `values`, with their places.
fn singles(f: &Function, values: &[ValueId]) -> Vec<(usize, ValueId)> {
    values.iter().copied().enumerate().filter(|v| f.ty(v.1).dtype == DType::F32).collect()
}

fn add_cast(f: &mut Function, from: ValueId, name: Option<Name>, to: DType, out: ValueId) -> NodeId {
    f.nodes.push(Node {
        op: OpRef::new(Cast::of_storage(to)),
        inputs: vec![Some(from)],
        outputs: vec![out],
        regions: vec![],
        name: Name::new(&format!("{}.{to}", name.map_or("value", |n| n.as_str()))),
        origins: Origins::none(),
        block: Some(f.body),
    })
}
