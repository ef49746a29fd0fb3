//! A tensor function as a module of its own: what searches and live edits compile and time.

use crate::graph::{FunctionBuilder, Module, TensorType, ValueId};
use crate::name::Name;
use crate::ops::control::{CallTensor, Const};
use crate::text::random_tensor;
use crate::tir::{BufferId, TensorFunction};

/// Positions of the operands of the tensor function `name` that are constants wherever the module calls it.
pub fn constant_operands(module: &Module, name: Name) -> Vec<usize> {
    let Some(f) = module.tensor_functions.get(&name) else { return vec![] };
    let mut constant = vec![true; f.inputs().count()];
    for g in module.functions.values() {
        for n in g.walk() {
            let node = &g.nodes[n];
            if node.op.downcast::<CallTensor>().is_none_or(|c| c.callee != name) {
                continue;
            }
            for (i, v) in node.inputs.iter().enumerate().take(constant.len()) {
                constant[i] &= v.is_some_and(|v| g.def_op::<Const>(v).is_some());
            }
        }
    }
    (0..constant.len()).filter(|&i| constant[i]).collect()
}

/// The buffers of operands at these positions.
pub fn operand_buffers(f: &TensorFunction, positions: &[usize]) -> Vec<BufferId> {
    f.inputs().enumerate().filter(|(i, _)| positions.contains(i)).map(|(_, b)| b).collect()
}

/// A module that calls `f` once. Operands at `constants` are random constants, the others are its parameters.
///
/// # Errors
/// Sizes that only a run knows, and a function that cannot be called.
pub fn function_alone(f: &TensorFunction, constants: &[usize]) -> Result<Module, String> {
    let mut module = Module::new("main");
    module.tensor_functions.insert(f.name, f.clone());
    let mut b = FunctionBuilder::new(&mut module, "main");
    let mut operands: Vec<Option<ValueId>> = Vec::new();
    for (i, buffer) in f.inputs().enumerate() {
        let ty = TensorType::new(f.buffers[buffer].dtype, f.buffers[buffer].shape.clone());
        let shape = ty.const_shape().ok_or("its operands have sizes that only a run knows")?;
        operands.push(Some(match constants.contains(&i) {
            true => b.constant(&format!("c{i}"), &random_tensor(ty.dtype, &shape, i as u64 + 1)),
            false => b.param(format!("x{i}").as_str(), ty),
        }));
    }
    let call = CallTensor { callee: f.name, ..CallTensor::default() };
    let results = b.add_multi(call, operands, vec![]).map_err(|e| e.to_string())?;
    let named = |(i, v): (usize, ValueId)| (Name::new(&format!("y{i}")), v);
    let results: Vec<(Name, ValueId)> = results.into_iter().enumerate().map(named).collect();
    b.finish(&results);
    Ok(module)
}
