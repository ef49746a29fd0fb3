//! Whole networks as text, at every stage: as they are built, after each pass, lowered and scheduled; and their kernels
//! made again from that text.

use benches::zoo;
use compiler::compile::{Compiled, lower_module, split_network};
use compiler::graph::Module;
use compiler::passes::{
    PassContext, PassInfo, PassInstrument, PassStats, PipelineOptions, Sequential, default_pipeline,
};
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use compiler::schedule::apply_pending;
use compiler::text::{compare_modules, parse_module, print_module};
use compiler::verify::verify_module;
use shaders_gen::{Emitter, GeneratedModule, check_wgsl};

/// `parse(print(m)) == m`, and the text is canonical.
fn round_trip(m: &Module, stage: &str) {
    let text = print_module(m);
    let again = parse_module(&text).unwrap_or_else(|e| panic!("{stage}: {e}"));
    compare_modules(m, &again).unwrap_or_else(|e| panic!("{stage}: {e}"));
    assert!(print_module(&again) == text, "{stage}: printed again, the text differs");
}

/// Checks the text after each pass.
struct RoundTrip;
impl PassInstrument for RoundTrip {
    fn after_pass(&mut self, module: &Module, pass: PassInfo, stats: &PassStats, _: &mut PassContext) {
        if stats.changed {
            round_trip(module, pass.name);
        }
    }
}

/// The pipeline of `weft compile` for a device, every stage of it checked.
fn compiled(mut m: Module, profile: &DeviceProfile) -> Compiled {
    let options = PipelineOptions::default();
    let mut cx = PassContext::new(profile.clone());
    options.configure(&mut cx);
    cx.instruments.push(Box::new(RoundTrip));
    Sequential::new(default_pipeline(&options)).run(&mut m, &mut cx).unwrap_or_else(|e| panic!("{e}"));
    assert!(cx.stats.iter().any(|s| s.name == "fuse-ops" && s.changed), "nothing was fused");
    lower_module(m, profile, &Emitter, vec![], &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"))
}

/// The kernels that the unscheduled text gives must be the compiled ones, byte for byte.
fn replay(c: &Compiled) {
    let text = print_module(&c.unscheduled_module());
    let mut again = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
    for f in again.tensor_functions.values_mut() {
        apply_pending(f).unwrap_or_else(|e| panic!("@{}: {e}", f.name));
    }
    compare_modules(&c.module, &again).unwrap_or_else(|e| panic!("replayed: {e}"));
    let mut kernels = c.plan.kernels.iter();
    for f in again.tensor_functions.values() {
        for (kernel, _) in f.kernels() {
            let made = Emitter.emit(f, kernel, &c.profile).unwrap_or_else(|e| panic!("{kernel}: {e}"));
            let k = kernels.next().unwrap_or_else(|| panic!("{kernel} is one too many"));
            assert!(made.wgsl == k.emitted.wgsl, "{kernel} differs");
        }
    }
    assert!(kernels.next().is_none(), "kernels are missing");
}

/// Every kernel in every language.
fn languages(c: &Compiled) {
    for k in &c.plan.kernels {
        let name = &k.emitted.name;
        check_wgsl(&k.emitted.wgsl).unwrap_or_else(|e| panic!("{name}: {e}"));
        let g = k.emitted.module.downcast_ref::<GeneratedModule>().unwrap_or_else(|| panic!("{name} has no module"));
        assert!(g.emit_spirv().unwrap_or_else(|e| panic!("{name}: {e}")).len() > 5, "{name}");
        if g.uses_matrices() {
            assert!(g.emit_hlsl().is_err(), "{name}: HLSL has no matrices of subgroups");
            continue;
        }
        assert!(g.emit_msl().unwrap_or_else(|e| panic!("{name}: {e}")).contains("kernel void"), "{name}");
        assert!(g.emit_hlsl().unwrap_or_else(|e| panic!("{name}: {e}")).contains("[numthreads("), "{name}");
    }
}

fn check(name: &str) {
    let m = zoo::build(name, 1, 0).unwrap_or_else(|e| panic!("{e}"));
    verify_module(&m).unwrap_or_else(|e| panic!("{e:?}"));
    round_trip(&m, "as built");
    // Of a network that decides sizes, what comes before.
    let split = split_network(&m).unwrap_or_else(|e| panic!("{e}"));
    let c = compiled(split.map_or(m, |s| s.head), &DeviceProfile::lavapipe());
    round_trip(&c.unscheduled_module(), "lowered");
    round_trip(&c.module, "scheduled");
    replay(&c);
    languages(&c);
}

macro_rules! networks {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
        #[test]
        fn no_network_is_left_out() {
            let mut names: Vec<&str> = zoo::list().iter().map(|z| z.name).collect();
            names.retain(|n| ![$(stringify!($name)),*].contains(n));
            assert!(names.is_empty(), "{names:?}");
        }
    };
}
networks! {
    resnet18 resnet50 resnet101 mobilenet_v2 mobilenet_v3_small efficientnet_b0 squeezenet1_1 vgg16 densenet121 unet vit_b_16 encoder ssdlite
}
