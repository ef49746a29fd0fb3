//! Mixed precision on whole networks: no value goes from f16 through f32 back to f16, and convolutions and products are
//! in f16.

use benches::zoo;
use compiler::dtype::DType;
use compiler::graph::NodeId;
use compiler::name::Name;
use compiler::ops::Precision;
use compiler::ops::cast::Cast;
use compiler::ops::reshape::Reshape;
use compiler::ops::transpose::Transpose;
use compiler::passes::{AmpMode, FuseMode, PassContext, PipelineOptions, Sequential, default_pipeline};
use compiler::profile::DeviceProfile;

fn check(name: &str, fuse: FuseMode) {
    let mut m = zoo::build(name, 1, 0).unwrap_or_else(|e| panic!("{name}: {e}"));
    let options = PipelineOptions { amp: AmpMode::Fp16, fuse, ..PipelineOptions::default() };
    let mut cx = PassContext::new(DeviceProfile::lavapipe());
    options.configure(&mut cx);
    let list = default_pipeline(&options);
    Sequential::new(list.iter().filter(|p| *p != "fuse-ops")).run(&mut m, &mut cx).unwrap_or_else(|e| panic!("{e}"));
    let f = m.main();
    let (mut layers, mut singles) = (0, 0);
    let cast = |n: NodeId| f.nodes[n].op.downcast::<Cast>().map(|c| c.to);
    for n in f.walk() {
        let node = &f.nodes[n];
        if node.op.precision() == Precision::Always {
            layers += 1;
            singles += usize::from(f.ty(node.outputs[0]).dtype == DType::F32);
        }
        if cast(n) != Some(DType::F16) {
            continue;
        }
        // Only what moves data may stand between: an op that computes in f32 has a reason to.
        let mut below = node.inputs[0].and_then(|v| f.def_node(v));
        while let Some(d) = below {
            let from = f.nodes[d].inputs.first().copied().flatten();
            let half = from.is_some_and(|v| f.ty(v).dtype == DType::F16);
            let widens = cast(d) == Some(DType::F32) && half;
            assert!(!widens, "{name}: {} is cast to f16, and was f16 before {}", node.name, f.nodes[d].name);
            let op = &f.nodes[d].op;
            let moves = op.is::<Reshape>() || op.is::<Transpose>();
            below = from.filter(|_| moves).and_then(|v| f.def_node(v));
        }
    }
    // The layer that reads the image computes in f32, unless it has as many weights as a transformer's patches.
    let expected = usize::from(!["vit_b_16", "encoder"].contains(&name));
    assert_eq!(singles, expected, "{name}: of {layers} convolutions and products");
    for &v in f.params().iter().chain(f.results()) {
        let numbers = name == "encoder" && f.params().contains(&v) || name == "ssdlite" && f.ty(v).rank() == 1;
        let integers = numbers && f.values[v].name != Some(Name::new("scores"));
        let want = if integers { DType::I64 } else { DType::F32 };
        assert_eq!(f.ty(v).dtype, want, "{name}: inputs and results keep their types");
    }
}

#[test]
fn networks_have_no_chains_of_casts() {
    for model in zoo::list() {
        check(model.name, FuseMode::Full);
    }
}

#[test]
fn nor_with_classic_fusion() {
    for name in ["mobilenet_v3_small", "densenet121"] {
        check(name, FuseMode::Classic);
    }
}
