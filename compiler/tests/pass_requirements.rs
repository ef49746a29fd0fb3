//! What passes require is what they need: on every module of the filetests.

use compiler::graph::Module;
use compiler::passes::{AmpMode, LayoutMode, PASSES, Pass, PassContext, run_pass};
use compiler::profile::DeviceProfile;
use compiler::text::{parse_module, print_module};
use std::path::Path;

/// The input of each filetest of a pass or pipeline.
fn inputs() -> Vec<(String, Module)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests");
    let mut out = vec![];
    for area in std::fs::read_dir(folder).expect("the filetests are there").flatten() {
        for file in std::fs::read_dir(area.path()).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            let input = text.split("\n; ==== expect").next().unwrap_or_default();
            let of_pass = text.starts_with("; test pass ") || text.starts_with("; test pipeline ");
            if let Some(module) = of_pass.then(|| parse_module(input).ok()).flatten() {
                out.push((file.path().display().to_string(), module));
            }
        }
    }
    out
}

fn context() -> PassContext {
    let mut cx = PassContext::new(DeviceProfile::lavapipe());
    (cx.opt_level, cx.amp, cx.layout, cx.verify) = (3, AmpMode::Fp16, LayoutMode::Nhwc, false);
    cx
}

/// The module after a pass, behind `before`.
fn after(pass: &dyn Pass, before: &[&str], module: &Module) -> Option<Module> {
    let (mut m, mut cx) = (module.clone(), context());
    for name in before {
        let first = cx.build(name).ok()?;
        run_pass(&*first, &mut m, &mut cx).ok()?;
    }
    run_pass(pass, &mut m, &mut cx).ok()?;
    Some(m)
}

/// A pass that does not require types to be inferred anew does the same with and without, but for how types are
/// written.
#[test]
fn passes_require_types_where_they_need_them() {
    let inputs = inputs();
    assert!(inputs.len() > 100, "{} inputs", inputs.len());
    let infer = context().build("infer-types").expect("a pass of the table");
    let tidy =
        |pass: &dyn Pass, before: &[&str], m: &Module| after(pass, before, m).and_then(|m| after(&*infer, &[], &m));
    let mut wrong = vec![];
    for def in PASSES {
        let pass = context().build(def.name).expect("a pass of the table");
        if pass.required().contains(&"infer-types") {
            continue;
        }
        let differs = inputs.iter().find(|(_, m)| {
            let (with, without) = (tidy(&*pass, &["infer-types"], m), tidy(&*pass, &[], m));
            with.map(|m| print_module(&m)) != without.map(|m| print_module(&m))
        });
        wrong.extend(differs.map(|(file, _)| format!("{} needs infer-types for {file}", def.name)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
