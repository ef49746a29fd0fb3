//! Sizes against torchvision, and that what is built is whole.

use super::{build, list};
use compiler::inspect::{count_macs, count_parameters};
use compiler::onnx::{NoExternalData, export_onnx, import_onnx};
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
        let want = if entry.name == "unet" { vec![1, 2, 256, 256] } else { vec![1, 1000] };
        assert_eq!(f.result_types[0].const_shape(), Some(want), "{}", entry.name);
        assert_eq!(f.result_names[0].as_str(), entry.output);
    }
    assert_eq!(wrong, [], "parameters and multiply-accumulates");
}

#[test]
fn names_are_unique_and_batches_are_honoured() {
    for entry in list() {
        let module = build(entry.name, 3, 0).unwrap();
        let f = module.main();
        assert_eq!(f.result_types[0].shape[0].as_const(), Some(3), "{}", entry.name);
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
