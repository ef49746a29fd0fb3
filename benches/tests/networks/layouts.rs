//! Layouts of the zoo networks: few transposes, and a choice that never costs more than either layout.

use benches::zoo;
use compiler::compile::count_transposes;
use compiler::graph::Module;
use compiler::passes::{LayoutMode, PassContext, PipelineOptions, Sequential, default_pipeline};
use compiler::profile::DeviceProfile;

/// The module before or after the layout pass and all others but fusion, and the cost that the pass names.
fn optimise(module: &Module, mode: LayoutMode, before: bool) -> (Module, Option<f64>) {
    let options = PipelineOptions { layout: mode, ..PipelineOptions::default() };
    let list = default_pipeline(&options);
    let at = list.iter().position(|p| p == "auto-layout").expect("the pass runs");
    let part = if before { &list[..at] } else { &list[at..list.len() - 1] };
    let mut cx = PassContext::new(DeviceProfile::lavapipe());
    options.configure(&mut cx);
    cx.verify = false;
    let mut m = module.clone();
    Sequential::new(part).run(&mut m, &mut cx).expect("the passes run");
    let costs = cx.remarks.iter().filter(|r| r.pass.as_str() == "auto-layout");
    let cost = costs.filter_map(|r| nanoseconds(r.message.rsplit_once(", estimated at ")?.1)).next_back();
    (m, cost)
}

/// `13.3 us` in nanoseconds.
fn nanoseconds(time: &str) -> Option<f64> {
    let (number, unit) = time.split_once(' ')?;
    let size = [("us", 1e3), ("ms", 1e6), ("s", 1e9)].into_iter().find(|u| u.0 == unit)?.1;
    Some(number.parse::<f64>().ok()? * size)
}

#[test]
fn zoo_networks_keep_few_transposes_and_auto_is_cheapest() {
    for name in
        ["resnet50", "efficientnet_b0", "mobilenet_v3_small", "densenet121", "unet", "squeezenet1_1", "vit_b_16"]
    {
        let module = zoo::build(name, 1, 0).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (module, _) = optimise(&module, LayoutMode::Auto, true);
        let own = count_transposes(&module).activation;
        let cost = |mode| {
            let (m, cost) = optimise(&module, mode, false);
            let t = count_transposes(&m);
            assert_eq!(t.weight_runtime, 0, "{name} {mode}");
            assert!(t.activation <= own.max(2), "{name} {mode}: {t:?}");
            cost.unwrap_or_else(|| panic!("{name} {mode}: no cost"))
        };
        let [auto, nchw, nhwc] = [LayoutMode::Auto, LayoutMode::Nchw, LayoutMode::Nhwc].map(cost);
        assert!(auto <= nchw.min(nhwc), "{name}: {auto} {nchw} {nhwc}");
    }
}
