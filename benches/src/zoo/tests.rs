//! Compares sizes with torchvision, and checks that networks are complete.

use super::weights::{Fill, Generated};
use super::{build, list};
use compiler::graph::{Function, NodeId, set_input_shape};
use compiler::inspect::{count_macs, count_parameters};
use compiler::interpreter::Interpreter;
use compiler::name::Name;
use compiler::onnx::{NoExternalData, export_onnx, import_onnx};
use compiler::tensor::Tensor;
use rustc_hash::FxHashSet;

#[test]
fn sizes_are_those_of_torchvision() {
    let mut wrong = Vec::new();
    for entry in list() {
        let module = build(entry.name, 1, 0).unwrap();
        let found = (count_parameters(&module), count_macs(&module));
        if found != (entry.parameters, Some(entry.macs)) {
            wrong.push((entry.name, found));
        }
        let f = module.main();
        let want = match entry.name {
            "unet" => Some(vec![1, 2, 256, 256]),
            "encoder" => Some(vec![1, 128, 256]),
            // As many boxes as a run finds.
            "ssdlite" => None,
            _ => Some(vec![1, 1000]),
        };
        assert_eq!(f.result_types[0].const_shape(), want, "{}", entry.name);
        assert_eq!(f.result_names[0].as_str(), entry.output);
    }
    assert_eq!(wrong, [], "parameters and multiply-accumulates");
}

#[test]
fn names_are_unique_and_batches_are_honoured() {
    for entry in list() {
        let module = build(entry.name, 3, 0).unwrap();
        let f = module.main();
        let decides = f.result_types[0].const_shape().is_none();
        let batch = if decides { f.params()[0] } else { f.results()[0] };
        assert_eq!(f.ty(batch).shape[0].as_const(), Some(3), "{}", entry.name);
        let mut seen = FxHashSet::default();
        for n in f.walk() {
            assert!(seen.insert(f.nodes[n].name), "{}: two nodes are called {}", entry.name, f.nodes[n].name);
        }
    }
    let resnet = build("resnet50", 1, 0).unwrap();
    let names: Vec<&str> = resnet.main().walk().iter().map(|&n| resnet.main().nodes[n].name.as_str()).collect();
    for name in ["/conv1/Conv", "/layer2/layer2.0/downsample/downsample.0/Conv", "/layer1/layer1.0/relu/Relu_2"] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn unknown_models_and_empty_batches_are_refused() {
    assert!(build("resnet19", 1, 0).unwrap_err().to_string().contains("resnet18"));
    assert!(build("resnet18", 0, 0).is_err());
}

#[test]
fn small_models_survive_onnx() {
    for name in ["squeezenet1_1", "mobilenet_v3_small"] {
        let module = build(name, 1, 0).unwrap();
        let again = import_onnx(export_onnx(&module).unwrap().into(), &NoExternalData).unwrap();
        assert_eq!(again.main().result_types, module.main().result_types);
        assert_eq!(count_parameters(&again), count_parameters(&module));
        assert_eq!(count_macs(&again), count_macs(&module));
    }
}

/// Side of the test image: small, for speed.
const SIDE: usize = 32;

/// Runs a model on a seeded image of unit variance, holding every activation against the range that f16 has to spare.
fn run_small(name: &str) {
    let mut module = build(name, 1, 0).unwrap();
    let shape = vec![1, 3, SIDE, SIDE];
    set_input_shape(&mut module, Name::new("input"), &shape).unwrap();
    let pixels = Generated { stream: 1, len: shape.iter().product(), fill: Fill::Normal { std: 1.0 } };
    let image = Tensor::from_vec(shape, pixels.values().unwrap());
    let mut largest = 0f32;
    let logits = {
        let observe = |_: &Function, _: NodeId, results: &[Tensor]| {
            let values = results.iter().flat_map(|t| t.to_f32_vec());
            largest = values.fold(largest, |a, v| if v.abs() > a || v.is_nan() { v.abs() } else { a });
        };
        let mut interpreter = Interpreter::new(&module).observe(observe);
        interpreter.run(module.entry, &[image]).unwrap().remove(0).to_f64_vec()
    };
    assert!(largest < 1e3, "{name}: an activation of {largest}");
    let mean = logits.iter().sum::<f64>() / logits.len() as f64;
    let std = (logits.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / logits.len() as f64).sqrt();
    assert!((0.3..10.0).contains(&std), "{name}: logits of spread {std}");
}

#[test]
fn mobilenet_v3_stays_in_range() {
    run_small("mobilenet_v3_small");
}
