//! Results of a network that are positions (`Op::positions`): an element that is none shows a fault of a kernel, which
//! did not find what is there.

use crate::graph::{Function, Module, ValueDef, ValueId};
use crate::int::Dim;
use crate::name::Name;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;

/// What is wrong with the results of the entry function of `module`, which had these inputs: a sentence for each result
/// with elements that are no positions.
pub fn lost_positions(module: &Module, inputs: &[Tensor], results: &[Tensor]) -> Vec<String> {
    let main = module.main();
    let bounds: Vec<Option<Dim>> = main.results().iter().map(|&v| positions_of(main, v)).collect();
    if bounds.iter().all(Option::is_none) {
        return vec![];
    }
    let mut sizes: FxHashMap<Name, i64> = FxHashMap::default();
    let values = main.params().iter().chain(main.results()).zip(inputs.iter().chain(results));
    for (dim, &size) in values.flat_map(|(&v, t)| main.ty(v).shape.iter().zip(t.shape())) {
        sizes.extend(dim.as_var().map(|name| (name, size as i64)));
    }
    let named = main.result_names.iter().zip(results).zip(bounds);
    let found = named.filter_map(|((name, t), bound)| {
        let bound = bound?.eval(&|name| sizes.get(&name).copied())?;
        let wrong: Vec<i64> = t.to_i64_vec().into_iter().filter(|p| !(0..bound).contains(p)).collect();
        let first = wrong.first()?;
        Some(format!("`{name}` has {} elements that are no positions below {bound}, such as {first}", wrong.len()))
    });
    found.collect()
}

/// How many positions there are for the elements of `v`, which may be moved; `None` if they are none.
fn positions_of(f: &Function, mut v: ValueId) -> Option<Dim> {
    loop {
        let ValueDef::Result(n, result) = f.values[v].def else { return None };
        let node = &f.nodes[n];
        let operands = f.node_types(n).0;
        if let Some(count) = node.op.positions(result, &operands) {
            return Some(count);
        }
        let moved = (*node.inputs.first()?)?;
        if !node.op.is_view() && node.op.moves_axes(&f.ty(moved).shape).is_none() {
            return None;
        }
        v = moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse_module;

    #[test]
    fn elements_that_are_no_positions_are_named() {
        let text = "graph @main(%x: f32[n,4,2]) -> (y: i64[2,n], z: f32[n,2]) {\n  %0 = arg_reduce %x {axis=1}\n  \
                    %1 = transpose %0 {perm=[1,0]}\n  %2 = reduce %x {kind=max, axes=[1]} : f32[n,2]\n  return %1, %2\n}\n";
        let m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
        let x = Tensor::from_vec(vec![3, 4, 2], vec![0f32; 24]);
        let found = |places: Vec<i64>| {
            let results = [Tensor::from_vec(vec![2, 3], places), Tensor::from_vec(vec![3, 2], vec![9f32; 6])];
            lost_positions(&m, std::slice::from_ref(&x), &results)
        };
        assert!(found(vec![0, 1, 2, 3, 0, 0]).is_empty());
        let said = found(vec![0, 1, 4, 3, -1, 0]);
        assert_eq!(said, ["`y` has 2 elements that are no positions below 4, such as 4"]);
    }
}
