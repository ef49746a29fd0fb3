//! Nodes that are built in a module of their own, for importers that cannot hold the function under construction: those
//! of other languages.

use super::ImportContext;
use crate::fault::Fault;
use crate::graph::{FunctionBuilder, Module, ValueId};
use crate::name::Name;
use crate::ops::control::{CallTensor, Const};
use crate::ops::{OpRef, OpResult};
use rustc_hash::FxHashMap;

impl ImportContext<'_, '_> {
    /// Adds the nodes that `build` makes of the operands. It gets a module whose entry function has them: as constants
    /// where they are, else as parameters; `None` for one that is absent. It returns the module with further nodes in
    /// the entry function, tensor functions and constants, and the values that become the results.
    ///
    /// # Errors
    /// Those of `build`; graph functions and nodes with regions, which are not taken over; an error of inference.
    pub fn build_apart(
        &mut self,
        build: impl FnOnce(Module, Vec<Option<ValueId>>) -> OpResult<(Module, Vec<ValueId>)>,
    ) -> OpResult<Vec<ValueId>> {
        let mut module = Module::new("node");
        module.dims = self.b.module.dims.clone();
        let mut here: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let mut b = FunctionBuilder::new(&mut module, "node");
        let mut operands = vec![];
        for (i, operand) in self.inputs.iter().enumerate() {
            operands.push(operand.map(|v| {
                let read = self.b.function.def_op::<Const>(v).map(|(_, read)| read.name);
                let there = match read.and_then(|name| Some((name, self.b.module.constants.get(&name)?))) {
                    Some((name, constant)) => {
                        b.module.constants.insert(name, constant.clone());
                        b.const_ref(name)
                    }
                    None => b.param(format!("x{i}").as_str(), self.b.ty(v).clone()),
                };
                here.insert(there, v);
                there
            }));
        }
        b.finish(&[]);
        let (made, results) = build(module, operands)?;
        self.take_over(&made, &mut here)?;
        let result = |v: &ValueId| here.get(v).copied().ok_or_else(|| "a result is no value of the module".into());
        results.iter().map(result).collect()
    }

    /// Adds the nodes of a module's entry function, but those whose values `here` has.
    fn take_over(&mut self, from: &Module, here: &mut FxHashMap<ValueId, ValueId>) -> OpResult<()> {
        if from.functions.len() != 1 {
            return Err(Fault::unsupported("an importer of another language adds no graph functions"));
        }
        let mut called: FxHashMap<Name, Name> = FxHashMap::default();
        for (&name, f) in &from.tensor_functions {
            called.insert(name, self.b.module.add_tensor_function(f));
        }
        let f = from.main();
        for &n in &f.blocks[f.body].nodes {
            let node = &f.nodes[n];
            if node.outputs.iter().any(|v| here.contains_key(v)) {
                continue;
            }
            if !node.regions.is_empty() {
                return Err(Fault::unsupported("an importer of another language adds no nodes with regions"));
            }
            let made = match node.op.downcast::<Const>() {
                Some(read) => {
                    let constant = from.constants.get(&read.name).ok_or("a constant is missing")?;
                    let name = self.b.module.fresh_name(read.name.as_str());
                    self.b.module.constants.insert(name, constant.clone());
                    vec![self.b.const_ref(name)]
                }
                None => {
                    let operand = |v: &Option<ValueId>| match v {
                        None => Ok(None),
                        Some(v) => here.get(v).copied().map(Some).ok_or("an operand is no value of the module"),
                    };
                    let operands = node.inputs.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
                    self.add_multi(with_callee(&node.op, &called), operands)?
                }
            };
            here.extend(node.outputs.iter().copied().zip(made));
        }
        Ok(())
    }
}

/// The op with the new name of what it calls.
fn with_callee(op: &OpRef, names: &FxHashMap<Name, Name>) -> OpRef {
    match op.downcast::<CallTensor>() {
        Some(call) => {
            OpRef::new(CallTensor { callee: names.get(&call.callee).copied().unwrap_or(call.callee), ..call.clone() })
        }
        None => op.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::graph::TensorType;
    use crate::ops::binary::Mul;
    use crate::ops::onnx::OnnxAttrs;
    use crate::ops::unary::Relu;
    use crate::tensor::Tensor;
    use crate::text::{parse_module, print_module};

    const DOUBLE: &str = "tensor @double(%a: f32[2], out %b: f32[2]) {
  for i in 0..2 {
    block b { %b[i] <- (%a[i] + %a[i]) }
  }
}
";

    /// `relu(double(x * w))`, made apart twice: the second call finds the tensor function of the first.
    #[test]
    fn nodes_that_are_made_apart_are_taken_over() {
        let mut m = Module::new("main");
        let mut b = FunctionBuilder::new(&mut m, "main");
        let x = b.param("x", TensorType::fixed(DType::F32, &[2]));
        let w = b.constant("w", &Tensor::from_vec(vec![2], vec![1f32, 2.0]));
        let make = |mut module: Module, operands: Vec<Option<ValueId>>| {
            let [Some(x), None, Some(w)] = operands[..] else { panic!("{operands:?}") };
            assert!(module.main().def_op::<Const>(w).is_some() && module.main().def_op::<Const>(x).is_none());
            let double = parse_module(DOUBLE).unwrap().tensor_functions[0].clone();
            let callee = module.add_tensor_function(&double);
            let f = module.main().clone();
            let mut b = FunctionBuilder::resume(&mut module, f);
            let product = b.add(Mul {}, &[x, w]).unwrap();
            let twice = b.add(CallTensor { callee, ..CallTensor::default() }, &[product]).unwrap();
            let result = b.add(Relu {}, &[twice]).unwrap();
            b.finish(&[]);
            Ok((module, vec![result]))
        };
        let mut y = x;
        for _ in 0..2 {
            let mut cx = ImportContext::new(&mut b, 1, vec![Some(y), None, Some(w)], OnnxAttrs::default(), 1);
            y = cx.build_apart(make).unwrap()[0];
        }
        b.finish(&[(Name::new("y"), y)]);
        let (functions, constants) = (m.tensor_functions.len(), m.constants.len());
        assert_eq!((functions, constants), (1, 1), "{}", print_module(&m));
        let x = [Tensor::from_vec(vec![2], vec![3f32, -1.0])];
        let y = crate::interpreter::run_function(&m, m.entry, &x).unwrap();
        assert_eq!(y[0].to_f32_vec(), [12.0, 0.0]);
    }

    #[test]
    fn results_and_functions_from_elsewhere_are_refused() {
        let mut m = Module::new("main");
        let mut b = FunctionBuilder::new(&mut m, "main");
        let x = b.param("x", TensorType::fixed(DType::F32, &[2]));
        let mut cx = ImportContext::new(&mut b, 1, vec![Some(x)], OnnxAttrs::default(), 1);
        let stray = <ValueId as crate::arena::Id>::from_index(77);
        let why = cx.build_apart(|m, _| Ok((m, vec![stray]))).unwrap_err().message;
        assert_eq!(why, "a result is no value of the module");
        let other = |mut m: Module, v: Vec<Option<ValueId>>| {
            let f = m.main().clone();
            m.functions.insert(Name::new("other"), f);
            Ok((m, v.into_iter().flatten().collect()))
        };
        let why = cx.build_apart(other).unwrap_err().message;
        assert!(why.contains("adds no graph functions"), "{why}");
    }
}
