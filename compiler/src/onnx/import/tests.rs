//! Models built in code, good and bad.

use super::super::proto::{
    AttributeProto, DimensionProto, DimensionValue, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetId,
    TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto, attribute_type as ty,
};
use super::super::tensor_data::write_tensor;
use super::super::{
    ImportError, ImportOptions, NoExternalData, export_onnx, import_onnx, import_onnx_with, inspect_onnx,
};
use crate::dtype::DType;
use crate::graph::Module;
use crate::name::Name;
use crate::ops::control::{Const, If};
use crate::ops::testing::assert_text_says_all;
use crate::ops::trap::Trap;
use crate::tensor::Tensor;
use bytes::Bytes;
use prost::Message;

fn input(name: &str, dims: Vec<Option<DimensionValue>>, elem_type: i32) -> ValueInfoProto {
    let dim = dims.into_iter().map(|value| DimensionProto { value }).collect();
    let tensor = TensorTypeProto { elem_type: Some(elem_type), shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: Some(name.into()), r#type: Some(TypeProto { value: Some(TypeValue::Tensor(tensor)) }) }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        op_type: Some(op.into()),
        attribute,
        ..NodeProto::default()
    }
}

fn int_attr(name: &str, value: i64) -> AttributeProto {
    AttributeProto { name: Some(name.into()), i: Some(value), r#type: Some(ty::INT), ..AttributeProto::default() }
}

fn graph_attr(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto { name: Some(name.into()), g: Some(g), r#type: Some(ty::GRAPH), ..AttributeProto::default() }
}

fn branch(nodes: Vec<NodeProto>, output: &str) -> GraphProto {
    GraphProto { node: nodes, output: vec![input(output, vec![], 7)], ..GraphProto::default() }
}

fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(8),
        graph: Some(graph),
        opset_import: vec![OperatorSetId { domain: None, version: Some(17) }],
        ..ModelProto::default()
    }
}

/// Imports a model, whose text must say all of it.
fn import(m: &ModelProto) -> Result<Module, ImportError> {
    let module = import_onnx(m.encode_to_vec().into(), &NoExternalData)?;
    assert_text_says_all(&module);
    Ok(module)
}

/// `r = if c { w } else { five() }` with an initializer `w` captured, a function of the model, and nodes out of order.
fn small_model() -> ModelProto {
    let call = NodeProto { domain: Some("local".into()), ..node("Five", &[], &["e"], vec![]) };
    let mut then = branch(vec![], "w");
    then.output[0].name = Some("w".into());
    let branches = vec![graph_attr("then_branch", then), graph_attr("else_branch", branch(vec![call], "e"))];
    let graph = GraphProto {
        node: vec![node("If", &["c"], &["r"], branches), node("Constant", &[], &["k"], vec![int_attr("value_int", 3)])],
        initializer: vec![write_tensor("w", &Tensor::scalar(7i64))],
        input: vec![input("c", vec![], 9), input("w", vec![], 7)],
        output: vec![input("r", vec![], 7), input("k", vec![], 7)],
        ..GraphProto::default()
    };
    let reference = AttributeProto {
        name: Some("value_int".into()),
        ref_attr_name: Some("v".into()),
        r#type: Some(ty::INT),
        ..AttributeProto::default()
    };
    let function = FunctionProto {
        name: Some("Five".into()),
        domain: Some("local".into()),
        output: vec!["y".into()],
        node: vec![node("Constant", &[], &["y"], vec![reference])],
        attribute_proto: vec![int_attr("v", 5)],
        opset_import: vec![OperatorSetId { domain: None, version: Some(17) }],
        ..FunctionProto::default()
    };
    ModelProto { functions: vec![function], ..model(graph) }
}

#[test]
fn a_small_model_comes_in() {
    let m = import(&small_model()).unwrap();
    let f = m.main();
    assert_eq!(f.params().len(), 1, "an initializer is no input");
    let n = f.def_node(f.results()[0]).unwrap();
    assert!(f.nodes[n].op.is::<If>());
    assert_eq!(f.nodes[n].name, Name::new("If_0"));
    assert_eq!(f.nodes[n].origins.names(), [Name::new("If_0")]);
    assert_eq!(f.result_names, [Name::new("r"), Name::new("k")]);
    let values: Vec<i64> = f.nodes[n]
        .regions
        .iter()
        .map(|&r| {
            let (_, c) = f.def_op::<Const>(f.blocks[r].results[0]).unwrap();
            m.constants[&c.name].load().unwrap().to_i64_vec()[0]
        })
        .collect();
    assert_eq!(values, [7, 5]);
}

#[test]
fn known_conditions_leave_one_branch() {
    let mut proto = small_model();
    let graph = proto.graph.as_mut().unwrap();
    graph.initializer.push(write_tensor("c", &Tensor::from_f64(DType::Bool, vec![], [0.0])));
    let m = import(&proto).unwrap();
    let f = m.main();
    let (_, c) = f.def_op::<Const>(f.results()[0]).unwrap();
    assert_eq!(m.constants[&c.name].load().unwrap().to_i64_vec(), [5]);
}

#[test]
fn export_and_import_again() {
    let first = import(&small_model()).unwrap();
    let bytes = export_onnx(&first).unwrap();
    let second = import_onnx(bytes.into(), &NoExternalData).unwrap();
    assert_eq!(second.main().result_names, first.main().result_names);
    assert_eq!(second.main().result_types, first.main().result_types);
    assert!(second.main().params().len() == 1);
}

#[test]
fn loops_are_exported_and_come_in_again() {
    let text = "graph @main(%x: f32[3], %n: i64[], %limit: f32[]) -> (y: f32[3], rows: f32[trips,3], z: f32[3], all: f32[9,3]) {
  %0, %1 = loop %n, _, %x {while=true, count=trips} : f32[3], f32[trips,3] (%i: i64[], %a: f32[3]) {
    %2 = add %a, %x
    %3 = reduce %2 {kind=max, axes=[0]}
    %4 = less %3, %limit
    yield %4, %2, %a
  }
  %5, %6 = loop _, _, %x {trips=9} : f32[3], f32[9,3] (%j: i64[], %b: f32[3]) {
    %7 = cast %j {to=f32}
    %8 = add %b, %7
    yield %8, %b
  }
  return %0, %1, %5, %6
}
";
    let first = crate::text::parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let second = import_onnx(export_onnx(&first).unwrap().into(), &NoExternalData).unwrap();
    crate::verify::verify_module(&second).unwrap_or_else(|e| panic!("{e:?}"));
    for (n, limit) in [(0i64, 10.0), (1, 10.0), (7, 100.0), (7, 5.0), (7, -1.0)] {
        let inputs =
            [Tensor::from_vec(vec![3], vec![1.0f32, -0.5, 0.25]), Tensor::scalar(n), Tensor::scalar(limit as f32)];
        let run = |m: &Module| crate::interpreter::run_function(m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(run(&second), run(&first));
    }
}

#[test]
fn branches_of_different_shapes_come_in_with_symbols() {
    let text = "graph @main(%x: f32[4,2], %c: bool[]) -> (y: f32[n,2], z: f32[n]) {
  %0 = if %c {shapes=[[`n`,2]], dims=[n]} : f32[n,2] {
    %1 = concat %x, %x {axis=0} : f32[8,2]
    yield %1
  } {
    %2 = relu %x
    yield %2
  }
  %3 = reduce %0 {kind=sum, axes=[1]} : f32[n]
  return %0, %3
}
";
    let first = crate::text::parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let second = import_onnx(export_onnx(&first).unwrap().into(), &NoExternalData).unwrap();
    crate::verify::verify_module(&second).unwrap_or_else(|e| panic!("{e:?}"));
    for (c, rows) in [(0.0, 4), (1.0, 8)] {
        let x = Tensor::from_f64(DType::F32, vec![4, 2], (0..8).map(f64::from));
        let inputs = [x, Tensor::from_f64(DType::Bool, vec![], [c])];
        let run = |m: &Module| crate::interpreter::run_function(m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(run(&second), run(&first));
        assert_eq!(run(&second)[0].shape(), [rows, 2]);
    }
}

#[test]
fn cut_off_models_are_refused() {
    let bytes = small_model().encode_to_vec();
    // Without the functions, which come last, it is a whole model with an operator that is not known.
    let without_functions = ModelProto { functions: vec![], ..small_model() }.encoded_len();
    for end in 0..bytes.len() {
        let e = import_onnx(Bytes::copy_from_slice(&bytes[..end]), &NoExternalData).unwrap_err();
        match e {
            ImportError::Unsupported(_) => assert_eq!(end, without_functions, "{e}"),
            e => assert!(matches!(e, ImportError::Malformed(_)) && end != without_functions, "{end}: {e}"),
        }
        let _ = inspect_onnx(Bytes::copy_from_slice(&bytes[..end]), &NoExternalData, &ImportOptions::default());
    }
}

#[test]
fn damaged_models_do_not_panic() {
    let bytes = small_model().encode_to_vec();
    for at in 0..bytes.len() {
        for flip in [0x01, 0x08, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let _ = import_onnx(damaged.into(), &NoExternalData);
        }
    }
}

#[test]
fn dims_become_symbols() {
    let param = |p: &str| Some(DimensionValue::Param(p.into()));
    let dims = vec![
        param("batch"),
        param("?"),
        None,
        Some(DimensionValue::Value(-1)),
        param("-1"),
        Some(DimensionValue::Value(3)),
        param("batch"),
        param(""),
    ];
    let graph = GraphProto {
        input: vec![input("x:0", dims, 1)],
        output: vec![input("x:0", vec![], 1)],
        ..GraphProto::default()
    };
    let m = import(&model(graph)).unwrap();
    let shape: Vec<String> = m.main().result_types[0].shape.iter().map(|d| d.to_string()).collect();
    assert_eq!(shape, ["batch", "x:0.dim1", "x:0.dim2", "x:0.dim3", "x:0.dim4", "3", "batch", "x:0.dim7"]);
}

#[test]
fn unsupported_operators_are_listed_at_once() {
    let nodes = vec![
        node("Nonsense", &["x"], &["a"], vec![]),
        NodeProto { name: Some("mine".into()), domain: Some("my".into()), ..node("Other", &["a"], &["b"], vec![]) },
        node("Nonsense", &["b"], &["c"], vec![]),
    ];
    let graph = GraphProto {
        node: nodes,
        input: vec![input("x", vec![], 1)],
        output: vec![input("c", vec![], 1)],
        ..GraphProto::default()
    };
    let Err(ImportError::Unsupported(list)) = import(&model(graph.clone())) else { panic!("an error") };
    let found: Vec<_> = list.iter().map(|u| (u.op.as_str(), u.domain.as_str(), u.nodes.clone())).collect();
    let names = |l: &[&str]| l.iter().map(|n| Name::new(n)).collect::<Vec<_>>();
    assert_eq!(found, [("Nonsense", "", names(&["Nonsense_0", "Nonsense_2"])), ("Other", "my", names(&["mine"]))]);
    let summary =
        inspect_onnx(model(graph).encode_to_vec().into(), &NoExternalData, &ImportOptions::default()).unwrap();
    assert_eq!(summary.unsupported, list);
    assert_eq!(summary.ops.iter().map(|(k, v)| (k.as_str(), *v)).collect::<Vec<_>>(), [("Nonsense", 2), ("Other", 1)]);
}

#[test]
fn cycles_name_their_nodes() {
    let if_node = |inputs: &[&str], out: &str, captured: &str| {
        let b = |n: &str| graph_attr(n, branch(vec![], captured));
        node("If", inputs, &[out], vec![b("then_branch"), b("else_branch")])
    };
    let graph = GraphProto {
        node: vec![if_node(&["c"], "a", "b"), if_node(&["c"], "b", "a")],
        input: vec![input("c", vec![], 9)],
        output: vec![input("a", vec![], 7)],
        ..GraphProto::default()
    };
    let e = import(&model(graph)).unwrap_err();
    let ImportError::Cycle(mut nodes) = e else { panic!("{e}") };
    nodes.sort();
    assert_eq!(nodes, [Name::new("If_0"), Name::new("If_1")]);
}

#[test]
fn names_must_be_defined_once() {
    let constant = |out: &str| node("Constant", &[], &[out], vec![int_attr("value_int", 1)]);
    let graph = |nodes| GraphProto { node: nodes, output: vec![input("a", vec![], 7)], ..GraphProto::default() };
    let twice = import(&model(graph(vec![constant("a"), constant("a")]))).unwrap_err();
    assert!(twice.to_string().contains("also the result of another node"), "{twice}");
    let missing = import(&model(graph(vec![constant("b")]))).unwrap_err();
    assert_eq!(missing.to_string(), "output `a`: it is defined nowhere");
}

#[test]
fn old_opsets_and_self_calling_functions_are_refused() {
    let mut old = small_model();
    old.opset_import[0].version = Some(6);
    import(&old).expect("nothing in it has changed since");
    old.graph.as_mut().unwrap().node.push(node("Add", &["k", "k"], &["sum"], vec![]));
    assert!(matches!(import(&old).unwrap_err(), ImportError::OldOpset { version: 6 }));
    let mut recursive = small_model();
    let call = NodeProto { domain: Some("local".into()), ..node("Five", &[], &["y"], vec![]) };
    recursive.functions[0].node = vec![call];
    assert!(import(&recursive).unwrap_err().to_string().contains("calls itself"));
}

fn ints_attr(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        ints: values.to_vec(),
        r#type: Some(ty::INTS),
        ..AttributeProto::default()
    }
}

/// `y = reshape(x, concat(shape(x)[0:1], [-1]))` over `x: f32[n, 2, 3]`.
fn reshape_model() -> ModelProto {
    let param = |p: &str| Some(DimensionValue::Param(p.into()));
    let number = |v| Some(DimensionValue::Value(v));
    let graph = GraphProto {
        node: vec![
            node("Shape", &["x"], &["s"], vec![]),
            node("Gather", &["s", "zero"], &["n"], vec![int_attr("axis", 0)]),
            node("Constant", &[], &["rest"], vec![ints_attr("value_ints", &[-1])]),
            node("Concat", &["n", "rest"], &["shape"], vec![int_attr("axis", 0)]),
            node("Reshape", &["x", "shape"], &["y"], vec![]),
        ],
        initializer: vec![write_tensor("zero", &Tensor::ints(&[0]))],
        input: vec![input("x", vec![param("n"), number(2), number(3)], 1)],
        output: vec![input("y", vec![], 1)],
        ..GraphProto::default()
    };
    model(graph)
}

#[test]
fn shape_arithmetic_folds_where_it_is_known() {
    let bytes: Bytes = reshape_model().encode_to_vec().into();
    let open = import_onnx(bytes.clone(), &NoExternalData).unwrap();
    assert_eq!(format!("{:?}", open.main().result_types[0].shape), "[n, 6]");
    let chosen = ImportOptions { batch: Some(4), ..ImportOptions::default() };
    let fixed = import_onnx_with(bytes.clone(), &NoExternalData, &chosen).unwrap();
    assert_eq!(fixed.main().result_types[0].const_shape(), Some(vec![4, 6]));
    let ops: Vec<&str> = fixed.main().walk().iter().map(|&n| fixed.main().nodes[n].op.name()).collect();
    assert_eq!(ops, ["reshape"], "the chain of shapes is folded");
    let mut reshaped = reshape_model();
    let graph = reshaped.graph.as_mut().unwrap();
    graph.input.push(input("zero", vec![Some(DimensionValue::Value(1))], 7));
    graph.initializer.clear();
    let given = ImportOptions { values: vec![(Name::new("zero"), Tensor::ints(&[0]))], ..ImportOptions::default() };
    let m = import_onnx_with(reshaped.encode_to_vec().into(), &NoExternalData, &given).unwrap();
    assert_eq!(m.main().params().len(), 1, "an input with a value is a constant");
    let typo = ImportOptions { dims: vec![(Name::new("m"), 4)], ..ImportOptions::default() };
    assert!(matches!(import_onnx_with(bytes, &NoExternalData, &typo).unwrap_err(), ImportError::Shape(_)));
}

#[test]
fn symbolic_shapes_are_exported_as_shape_arithmetic() {
    let open = import(&reshape_model()).unwrap();
    let again = import_onnx(export_onnx(&open).unwrap().into(), &NoExternalData).unwrap();
    assert_eq!(again.main().result_types, open.main().result_types);
}

/// `r = if c { x @ x } else { x }` for a run-time `c`: only some shapes of `x` fit the first branch.
fn branches_by_shape(columns: i64) -> ModelProto {
    let product = branch(vec![node("MatMul", &["x", "x"], &["p"], vec![])], "p");
    let same = branch(vec![node("Identity", &["x"], &["s"], vec![])], "s");
    let attrs = vec![graph_attr("then_branch", product), graph_attr("else_branch", same)];
    let dims = [2, columns].map(|d| Some(DimensionValue::Value(d))).to_vec();
    model(GraphProto {
        node: vec![node("If", &["c"], &["r"], attrs)],
        input: vec![input("c", vec![], 9), input("x", dims, 1)],
        output: vec![input("r", vec![], 1)],
        ..GraphProto::default()
    })
}

#[test]
fn a_branch_that_the_shapes_forbid_may_stand_but_not_run() {
    let m = import(&branches_by_shape(3)).unwrap();
    let f = m.main();
    assert!(f.walk().iter().any(|&n| f.nodes[n].op.is::<Trap>()));
    let x = Tensor::from_vec(vec![2, 3], vec![1f32; 6]);
    let run = |c: f64| {
        let inputs = [Tensor::from_f64(DType::Bool, vec![], [c]), x.clone()];
        crate::interpreter::run_function(&m, m.entry, &inputs)
    };
    assert_eq!(run(0.0).unwrap(), std::slice::from_ref(&x));
    let e = run(1.0).unwrap_err().to_string();
    assert!(e.contains("impossible for these shapes") && e.contains("MatMul"), "{e}");
    let m = import(&branches_by_shape(2)).unwrap();
    assert!(!m.main().walk().iter().any(|&n| m.main().nodes[n].op.is::<Trap>()));
}

#[test]
fn branches_with_one_element_may_differ_in_rank() {
    let scalar = branch(vec![node("ReduceMax", &["x"], &["m"], vec![int_attr("keepdims", 0)])], "m");
    let list = branch(vec![node("Identity", &["x"], &["s"], vec![])], "s");
    let attrs = vec![graph_attr("then_branch", scalar), graph_attr("else_branch", list)];
    let m = import(&model(GraphProto {
        node: vec![node("If", &["c"], &["r"], attrs)],
        input: vec![input("c", vec![], 9), input("x", vec![Some(DimensionValue::Value(1))], 1)],
        output: vec![input("r", vec![], 1)],
        ..GraphProto::default()
    }))
    .unwrap();
    let x = Tensor::from_vec(vec![1], vec![3f32]);
    for c in [0.0, 1.0] {
        let inputs = [Tensor::from_f64(DType::Bool, vec![], [c]), x.clone()];
        assert_eq!(crate::interpreter::run_function(&m, m.entry, &inputs).unwrap(), std::slice::from_ref(&x));
    }
}

#[test]
fn sizes_are_bounded_before_anything_is_made() {
    let shape = write_tensor("s", &Tensor::ints(&[1 << 30, 1 << 30]));
    let zeros = GraphProto {
        node: vec![node("ConstantOfShape", &["s"], &["z"], vec![])],
        initializer: vec![shape],
        output: vec![input("z", vec![], 1)],
        ..GraphProto::default()
    };
    let e = import(&model(zeros)).unwrap_err();
    assert!(matches!(e, ImportError::TooLarge { .. }), "{e}");
}

/// A graph of `nodes` over an input `x` of `[4, 2]`, in f32, and the results named.
fn over_x(nodes: Vec<NodeProto>, constants: &[(&str, Tensor)], outputs: &[&str]) -> ModelProto {
    let size = |n| Some(DimensionValue::Value(n));
    model(GraphProto {
        node: nodes,
        initializer: constants.iter().map(|(name, t)| write_tensor(name, t)).collect(),
        input: vec![input("x", vec![size(4), size(2)], 1)],
        output: outputs.iter().map(|o| input(o, vec![], 1)).collect(),
        ..GraphProto::default()
    })
}

#[test]
fn sequences_are_lists_while_a_model_comes_in() {
    let nodes = vec![
        node("SplitToSequence", &["x"], &["rows"], vec![]),
        node("SequenceErase", &["rows", "at"], &["rest"], vec![]),
        node("SequenceLength", &["rest"], &["n"], vec![]),
    ];
    let m = import(&over_x(nodes, &[("at", Tensor::scalar(-1i64))], &["rest", "n"])).unwrap();
    let names: Vec<&str> = m.main().result_names.iter().map(|n| n.as_str()).collect();
    assert_eq!(names, ["rest.0", "rest.1", "rest.2", "n"], "a result for each element");
}

#[test]
fn what_is_not_known_of_sequences_is_refused_with_what_it_is() {
    let rows = || node("SplitToSequence", &["x"], &["rows"], vec![]);
    let why = |nodes: Vec<NodeProto>, constants: &[(&str, Tensor)]| {
        import(&over_x(nodes, constants, &["y"])).unwrap_err().to_string()
    };
    let places = node("ArgMax", &["x"], &["places"], vec![int_attr("keepdims", 0)]);
    let at = node("SequenceAt", &["rows", "places"], &["y"], vec![]);
    assert!(why(vec![rows(), places, at], &[]).contains("position"));
    let at = || node("SequenceAt", &["rows", "at"], &["y"], vec![]);
    assert!(why(vec![rows(), at()], &[("at", Tensor::scalar(4i64))]).contains("outside"));
    let relu = node("Relu", &["rows"], &["y"], vec![]);
    assert!(why(vec![rows(), relu], &[]).contains("is a sequence"));
    let concat = node("ConcatFromSequence", &["x"], &["y"], vec![int_attr("axis", 0)]);
    assert!(why(vec![concat], &[]).contains("not a sequence"));
}

#[test]
fn narrow_types_are_moved_and_not_computed_with() {
    let to = |code| vec![int_attr("to", code)];
    let narrow = || node("Cast", &["x"], &["n"], to(22));
    let moved = vec![narrow(), node("Transpose", &["n"], &["t"], vec![]), node("Cast", &["t"], &["y"], to(1))];
    let m = import(&over_x(moved, &[], &["y"])).unwrap();
    assert_eq!(m.main().ty(m.main().results()[0]).dtype, DType::F32);
    let sum = vec![narrow(), node("Add", &["n", "n"], &["y"], vec![])];
    let why = import(&over_x(sum, &[], &["y"])).unwrap_err().to_string();
    assert!(why.contains("int4") && why.contains("not computed with"), "{why}");
    let shape = vec![narrow(), node("Shape", &["n"], &["y"], vec![])];
    assert!(import(&over_x(shape, &[], &["y"])).is_ok(), "the shape has no element of it");
}

/// A model whose function `i` calls function `i + 1` so many times, `functions` of them; the last one has as many
/// nodes.
fn nested_functions(functions: usize, calls: usize) -> ModelProto {
    let opset = |domain: &str, version| OperatorSetId { domain: Some(domain.into()), version: Some(version) };
    let own = |n: NodeProto| NodeProto { domain: Some("own".into()), ..n };
    let function = |i: usize| {
        let name = |k: usize| format!("v{k}");
        let step = |k: usize| match i + 1 < functions {
            true => own(node(&format!("f{}", i + 1), &[&name(k)], &[&name(k + 1)], vec![])),
            false => node("Relu", &[&name(k)], &[&name(k + 1)], vec![]),
        };
        FunctionProto {
            name: Some(format!("f{i}")),
            domain: Some("own".into()),
            input: vec![name(0)],
            output: vec![name(calls)],
            node: (0..calls).map(step).collect(),
            opset_import: vec![opset("", 17), opset("own", 1)],
            ..FunctionProto::default()
        }
    };
    let dims = vec![Some(DimensionValue::Value(2))];
    let graph = GraphProto {
        node: vec![own(node("f0", &["x"], &["y"], vec![]))],
        input: vec![input("x", dims.clone(), 1)],
        output: vec![input("y", dims, 1)],
        ..GraphProto::default()
    };
    let opset_import = vec![opset("", 17), opset("own", 1)];
    ModelProto { opset_import, functions: (0..functions).map(function).collect(), ..model(graph) }
}

#[test]
fn functions_expand_to_a_bounded_number_of_nodes() {
    for (functions, calls, why) in
        [(20, 2, "more than 100000"), (40, 2, "more than 100000"), (10_000, 1, "10000 deep, more than 64")]
    {
        let bytes = Bytes::from(nested_functions(functions, calls).encode_to_vec());
        let e = import_onnx(bytes.clone(), &NoExternalData).expect_err("an expansion");
        assert!(matches!(e, ImportError::Expansion(_)) && e.to_string().contains(why), "{e}");
        let e = inspect_onnx(bytes, &NoExternalData, &ImportOptions::default()).expect_err("an expansion");
        assert!(e.to_string().contains(why), "{e}");
    }
    let narrow = import(&nested_functions(10, 2)).expect("1024 nodes");
    assert_eq!(narrow.main().nodes.len(), 1024);
}

#[test]
fn files_of_wrong_ranks_and_sizes_are_refused() {
    let cases: [(&[u8], &str); 4] = [
        (include_bytes!("cases/linear_attention_decay_rank.onnx"), "not of rank 3"),
        (include_bytes!("cases/linear_attention_query_rank.onnx"), "not of rank 3"),
        (include_bytes!("cases/nll_target_outside.onnx"), "the target is"),
        (include_bytes!("cases/reshape_rank_4g.onnx"), "the result has 4294967295 dimensions"),
    ];
    for (bytes, why) in cases {
        let e = import_onnx(Bytes::from_static(bytes), &NoExternalData).expect_err(why);
        assert!(e.to_string().contains(why), "{e}");
    }
}
