use super::*;
use crate::dtype::DType;
use crate::graph::{FunctionBuilder, TensorType};
use crate::interpreter::HostFunctions;
use crate::ops::control::Let;
use crate::ops::generate::Full;
use crate::ops::matmul::MatMul;
use crate::ops::reshape::Reshape;
use crate::ops::search::NonZero;
use crate::tensor::TensorMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn matrix(values: [f32; 4]) -> Tensor {
    Tensor::from_vec(vec![2, 2], values.to_vec())
}

fn square() -> TensorType {
    TensorType::fixed(DType::F32, &[2, 2])
}

/// `main(x) = (x @ c) @ (x @ c)` with the product in a called function.
fn module() -> Module {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "square");
    let x = b.param("x", square());
    let y = b.add(MatMul {}, &[x, x]).unwrap();
    b.finish(&[(Name::new("y"), y)]);
    let mut b = FunctionBuilder::new(&mut m, "main");
    let x = b.param("x", square());
    let c = b.constant("c", &matrix([0., 1., 1., 0.]));
    let xc = b.add(MatMul {}, &[x, c]).unwrap();
    let y = b.add(Call { callee: Name::new("square") }, &[xc]).unwrap();
    b.finish(&[(Name::new("y"), y)]);
    m
}

#[test]
fn calls_and_constants_run() {
    let m = module();
    let out = run_function(&m, Name::new("main"), &[matrix([1., 2., 3., 4.])]).unwrap();
    assert_eq!(out[0].to_f32_vec(), [8., 5., 20., 13.]);
}

#[test]
fn the_observer_sees_every_node() {
    let m = module();
    let mut seen = Vec::new();
    let x = matrix([1., 0., 0., 1.]);
    Interpreter::new(&m)
        .observe(|f, n, out| seen.push((f.name.to_string(), f.nodes[n].op.name(), out.len())))
        .run(Name::new("main"), &[x])
        .unwrap();
    let want = [("main", "matmul"), ("square", "matmul"), ("main", "call")];
    assert_eq!(seen.iter().map(|s| (s.0.as_str(), s.1)).collect::<Vec<_>>(), want);
}

#[test]
fn operands_are_checked() {
    let m = module();
    let bad = Tensor::from_vec(vec![3, 2], vec![0f32; 6]);
    let message = run_function(&m, Name::new("main"), &[bad]).unwrap_err().to_string();
    assert_eq!(message, "@main: input `x` is f32[2, 2], got f32[3, 2]");
    assert!(run_function(&m, Name::new("main"), &[]).unwrap_err().to_string().contains("takes 1 inputs, got 0"));
    assert!(matches!(run_function(&m, Name::new("no"), &[]), Err(ExecError::UnknownFunction(_))));
}

#[test]
fn symbolic_parameters_agree() {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let ty = TensorType::new(DType::F32, vec![Dim::var("n"), Dim::var("n")]);
    let x = b.param("x", ty);
    let y = b.add(MatMul {}, &[x, x]).unwrap();
    b.finish(&[(Name::new("y"), y)]);
    let out = run_function(&m, Name::new("main"), &[matrix([1., 1., 0., 1.])]).unwrap();
    assert_eq!(out[0].to_f32_vec(), [1., 2., 0., 1.]);
    assert!(run_function(&m, Name::new("main"), &[Tensor::zeros(DType::F32, vec![2, 3])]).is_err());
}

#[test]
fn branches_and_scopes_run() {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let cond = b.param("cond", TensorType::fixed(DType::Bool, &[]));
    let x = b.param("x", square());
    let (then, other, scope) = (b.new_block(), b.new_block(), b.new_block());
    let xx = b.in_block(then, |b| b.add(MatMul {}, &[x, x]).unwrap());
    b.set_block_results(then, vec![xx]);
    b.set_block_results(other, vec![x]);
    let picked = b.add_multi(If::default(), vec![Some(cond)], vec![then, other]).unwrap()[0];
    let inner = b.in_block(scope, |b| b.add(MatMul {}, &[picked, x]).unwrap());
    b.set_block_results(scope, vec![inner]);
    let y = b.add_multi(Let {}, vec![], vec![scope]).unwrap()[0];
    b.finish(&[(Name::new("y"), y)]);
    let run = |c: bool| {
        let c = Tensor::from_f64(DType::Bool, vec![], [c as u8 as f64]);
        run_function(&m, Name::new("main"), &[c, matrix([1., 1., 0., 1.])]).unwrap().remove(0).to_f32_vec()
    };
    assert_eq!(run(true), [1., 3., 0., 1.]);
    assert_eq!(run(false), [1., 2., 0., 1.]);
}

#[test]
fn endless_recursion_is_an_error() {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let x = b.param("x", square());
    b.function.result_types = vec![square()];
    let y = b.add(Call { callee: Name::new("main") }, &[x]).unwrap();
    b.finish(&[(Name::new("y"), y)]);
    let e = run_function(&m, Name::new("main"), &[matrix([0.; 4])]).unwrap_err();
    assert!(matches!(e, ExecError::Depth(_)), "{e}");
}

#[test]
fn host_functions_are_looked_up() {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let x = b.param("x", square());
    let op = CallHost {
        callee: Name::new("twice"),
        dtypes: vec![DType::F32],
        shapes: vec![vec![Dim::new(2), Dim::new(2)]],
        ..CallHost::default()
    };
    let y = b.add(op, &[x]).unwrap();
    b.finish(&[(Name::new("y"), y)]);
    let x = [matrix([1., 2., 3., 4.])];
    let e = run_function(&m, Name::new("main"), &x).unwrap_err();
    assert!(e.to_string().contains("host function `twice`, which is not registered"), "{e}");
    let mut host = HostFunctions::new();
    host.register("twice", |t| {
        Ok(vec![Tensor::from_vec(t[0].shape().to_vec(), t[0].to_f32_vec().iter().map(|x| x * 2.0).collect())])
    });
    let out = Interpreter::new(&m).with_host(&host).run(Name::new("main"), &x).unwrap();
    assert_eq!(out[0].to_f32_vec(), [2., 4., 6., 8.]);
}

/// A function is prepared once for each call and list of sizes, with the data of constants; the last 16 lists are kept.
#[test]
fn functions_are_prepared_once_for_each_list_of_sizes() {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let ty = |n| TensorType::new(DType::F32, vec![n]);
    let x = b.param("x", ty(Dim::var("n")));
    let factor = b.constant("factor", &Tensor::from_vec(vec![1], vec![3f32]));
    let op = CallHost {
        callee: Name::new("scaled"),
        dtypes: vec![DType::F32],
        shapes: vec![vec![Dim::var("n")]],
        ..CallHost::default()
    };
    let y = b.add(op.clone(), &[x, factor]).unwrap();
    let z = b.add(op, &[y, factor]).unwrap();
    b.finish(&[(Name::new("z"), z)]);
    let prepared = Arc::new(AtomicUsize::new(0));
    let count = prepared.clone();
    let mut host = HostFunctions::new();
    host.register_prepared("scaled", move |site| {
        count.fetch_add(1, Ordering::Relaxed);
        let factor = site.operands[1].constant.ok_or("takes a constant factor")?.to_f32_vec()[0];
        assert!(site.operands[0].constant.is_none() && site.results[0].shape == Some(site.operands[0].shape));
        Ok(move |inputs: &[Tensor], outputs: &mut [TensorMut]| {
            let scaled: Vec<f32> = inputs[0].to_f32_vec().iter().map(|x| factor * x).collect();
            outputs[0].bytes_mut().copy_from_slice(bytemuck::cast_slice(&scaled));
            Ok(())
        })
    });
    let mut interpreter = Interpreter::new(&m).with_host(&host);
    let mut run = |n: usize| {
        let out = interpreter.run(Name::new("main"), &[Tensor::from_vec(vec![n], vec![2f32; n])]).unwrap();
        assert_eq!(out[0].to_f32_vec(), vec![18.0; n]);
        prepared.load(Ordering::Relaxed)
    };
    // Two calls, each for itself.
    assert_eq!([run(1), run(1), run(2), run(1)], [2, 2, 4, 4]);
    assert_eq!((3..=17).map(&mut run).last(), Some(34));
    // 1 was used after 2, which the 17th list put out.
    assert_eq!([run(1), run(2)], [34, 36]);
}

/// Symbols in attributes have the values of the run: those of the parameters, and those that a node defines.
#[test]
fn symbols_get_their_values() {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let n = Dim::var("n");
    let x = b.param("x", TensorType::new(DType::F32, vec![n.clone(), Dim::new(4)]));
    let half = b.add(Reshape::to(vec![n.clone() * 2, Dim::new(2)]), &[x]).unwrap();
    let found = b.add(NonZero { count: Name::new("found") }, &[x]).unwrap();
    let ones = Full { shape: vec![Dim::var("found"), n], value: 1.0, dtype: DType::F32, dims: vec![] };
    let ones = b.add(ones, &[]).unwrap();
    b.finish(&[(Name::new("half"), half), (Name::new("found"), found), (Name::new("ones"), ones)]);
    for rows in [1, 3] {
        let mut values = vec![0.0f32; rows * 4];
        values[rows] = 5.0;
        let out = run_function(&m, Name::new("main"), &[Tensor::from_vec(vec![rows, 4], values)]).unwrap();
        let shapes: Vec<&[usize]> = out.iter().map(Tensor::shape).collect();
        assert_eq!(shapes, [&[rows * 2, 2][..], &[2, 1], &[1, rows]]);
    }
}
