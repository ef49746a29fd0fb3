//! Follows docs/tuning.md: its template parses, takes kernels of ResNet-50, schedules them legally, joins a search on a
//! layer of that network, and is credited.

use crate::command::{self, Ran};
use compiler::check::check_function;
use compiler::compile::{CompileOptions, compile, constant_operands, operand_buffers};
use compiler::profile::DeviceProfile;
use compiler::schedule::template::Template;
use compiler::text::parse_templates;
use compiler::tir::TensorFunction;
use std::path::{Path, PathBuf};

/// The max pool of ResNet-50.
const LAYER: &str = "graph @main(%x: f32[1,112,112,64]) -> (y: f32[1,56,56,64]) {
  %0 = max_pool %x {kernel=[3,3], strides=[2,2], pads=[1,1,1,1], layout=nhwc} : f32[1,56,56,64]
  return %0
}
";

/// The template on the page.
fn text() -> String {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tuning.md")).expect("the page");
    let (_, rest) = page.split_once("```weft\n").expect("a template");
    rest.split_once("```").expect("its end").0.to_string()
}

fn template() -> Template {
    parse_templates(&text()).unwrap_or_else(|e| panic!("{e}")).remove(0)
}

fn weft(folder: &Path, args: &[&str]) -> Ran {
    command::weft(args).at(folder).env("WEFT_CACHE", folder.join("cache")).run()
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("layer.weft"), LAYER).expect("the model is written");
    std::fs::write(folder.path().join("page.schedule"), text()).expect("the template is written");
    let path = folder.path().to_path_buf();
    (folder, path)
}

#[test]
fn the_template_schedules_kernels_of_resnet50() {
    let (template, profile) = (template(), DeviceProfile::lavapipe());
    let module = benches::zoo::build("resnet50", 1, 0).expect("a network of the zoo");
    let emitter = weft::emitter(&profile);
    let c = compile(module, &CompileOptions::default(), &profile, emitter, &mut |_, _, _| ()).expect("it compiles");
    let mut taken = 0;
    for (name, before) in &c.unscheduled {
        let f = TensorFunction { pending: vec![], ..before.clone() };
        let constants = operand_buffers(&f, &constant_operands(&c.module, *name));
        let Some(found) = template.matches(&f, &constants, (&profile).into()) else { continue };
        for at in template.instances(&found) {
            let done = template.schedule(&found, &at, &constants, (&profile).into());
            let done = done.unwrap_or_else(|e| panic!("{name} with {}: {e}", template.describe(&at)));
            check_function(&done.function).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_ne!(done.function.trace, before.pending, "{name}: the rules have this schedule");
        }
        taken += 1;
    }
    assert_eq!(taken, 1, "it takes the max pool");
}

#[test]
fn its_schedules_are_verified_raced_and_credited() {
    let (_keep, folder) = place();
    let device = ["--device", "0", "-q"];
    let tune = ["tune", "layer.weft", "--template", "page.schedule", "--kernel", "t_fused_max_pool_0"];
    let tune = [&tune[..], &["--budget", "90s", "--tuning", "t.jsonl", "--json"]].concat();
    let found = weft(&folder, &[&tune[..], &device].concat()).succeeded().json();
    let function = &found["functions"][0];
    assert!(function["by_templates"].as_u64() > Some(1), "{found}");
    assert_eq!(function["refused"], serde_json::json!([]), "{found}");

    // Whether it won depends on the machine; a line of its own makes the kernel in any case.
    let gpu = runtime_gpu::Gpu::open(&runtime_gpu::DeviceChoice::parse("0")).expect("a device");
    let (template, profile) = (template(), gpu.profile.clone());
    let compile = ["compile", "layer.weft", "--tuning", "off", "--emit", "weft"];
    let text = weft(&folder, &[&compile[..], &device].concat()).succeeded().stdout;
    let module = compiler::text::parse_module(&text).expect("it parses");
    let (name, before) = module.tensor_functions.first().expect("a function");
    let f = TensorFunction { pending: vec![], ..before.clone() };
    let constants = operand_buffers(&f, &constant_operands(&module, *name));
    let found = template.matches(&f, &constants, (&profile).into()).expect("it takes the layer");
    let at = template.instances(&found).next().expect("an instance");
    let done = template.schedule(&found, &at, &constants, (&profile).into()).unwrap_or_else(|e| panic!("{e}"));
    let workload = compiler::schedule::Workload::of(&f, &constants, &profile);
    let schedule: Vec<String> = done.function.trace.iter().map(|i| i.text()).collect();
    let line = serde_json::json!({ "kind": "choices", "device": workload.device, "function": workload.function,
        "constants": workload.constants, "name": name.as_str(), "choices": [], "schedule": schedule, "ratio": 0.5,
        "rounds": [15, 15], "us": [2.0, 1.0], "estimated_us": [2.0, 1.0], "seed": 0,
        "by": format!("template {}", template.name), "weft": "0.1.0" });
    std::fs::write(folder.join("own.jsonl"), format!("{line}\n")).expect("the database is written");
    let with = ["--device", "0", "--tuning", "own.jsonl"];
    let compiled = weft(&folder, &[&["compile", "layer.weft", "--emit", "weft"][..], &with].concat());
    let compiled = compiled.succeeded().stdout;
    assert!(schedule.iter().all(|i| compiled.contains(i)), "{compiled}");
    let explained = weft(&folder, &[&["explain", "layer.weft", "-v"][..], &with].concat());
    let explained = explained.succeeded().stdout;
    let credit = format!("scheduled by instructions of template {}", template.name);
    assert!(explained.contains(&credit), "{explained}");
    let compared = weft(&folder, &[&["compare", "layer.weft", "--json"][..], &with].concat());
    assert_eq!(compared.succeeded().json()["pass"], true);
}

#[test]
fn bad_templates_are_shown_with_their_place() {
    let (_keep, folder) = place();
    let tune = |text: &str| {
        std::fs::write(folder.join("bad.schedule"), text).expect("it is written");
        let tune = ["tune", "layer.weft", "--template", "bad.schedule", "--device", "0", "--budget", "3s"];
        weft(&folder, &[&tune[..], &["--tuning", "bad.jsonl"]].concat())
    };
    let ran = tune(&text().replace("fuse {", "fuze {"));
    let line = text().lines().position(|l| l.contains("fuse {")).expect("a line") + 1;
    ran.refused(3, &format!("bad.schedule: line {line}, column 5: there is no schedule instruction `fuze`"));
    // It parses, and does not apply.
    let said = tune(&text().replace("compute-at {block=$pool", "compute-at {block=$out")).succeeded().stderr;
    let line = text().lines().position(|l| l.contains("compute-at {")).expect("a line") + 1;
    assert!(
        said.contains("none of its schedules applies to max_pool_0")
            && said.contains(&format!("line {line}: compute-at")),
        "{said}"
    );
    weft(&folder, &["tune", "layer.weft", "--template", "none.schedule", "--device", "0"]).ended(3);
}
