//! Every op with cases, and its classes: how mixed precision, layouts and fusion treat it. A class is a promise about
//! all of its members, so each member runs among others in every mode that makes use of the promise: with operands of
//! f16 and f32, with one channel, with axes of size 1.

mod cases;
mod comparing;
mod planted;

use cases::{CASES, SHAPES, module_of};
use compiler::agreement::{Tolerance, agree_in_slices};
use compiler::dtype::DType;
use compiler::graph::{Module, NodeId};
use compiler::interpreter::run_function;
use compiler::ops::{OPS, Precision};
use compiler::passes::fusion_kind::describe_block;
use compiler::passes::{AmpMode, FuseMode, LayoutMode, PipelineOptions};
use compiler::tensor::Tensor;
use compiler::text::{print_module, random_tensor};
use std::collections::BTreeMap;
use weft::{Device, Model, Options};

/// A way of compiling, and what it is called.
struct Mode {
    name: &'static str,
    pipeline: PipelineOptions,
}

fn modes() -> Vec<Mode> {
    let plain = PipelineOptions::default;
    let mode = |name, pipeline| Mode { name, pipeline };
    vec![
        mode("--amp fp16", PipelineOptions { amp: AmpMode::Fp16, ..plain() }),
        mode("--layout nhwc", PipelineOptions { layout: LayoutMode::Nhwc, ..plain() }),
        mode("--layout nchw4c", PipelineOptions { layout: LayoutMode::Nchw4c, ..plain() }),
        mode("--fuse full", plain()),
        mode("--fuse classic", PipelineOptions { fuse: FuseMode::Classic, ..plain() }),
    ]
}

fn inputs_of(m: &Module) -> Vec<Tensor> {
    let f = m.main();
    let input = |(i, &p): (usize, &compiler::graph::ValueId)| {
        random_tensor(f.ty(p).dtype, &f.ty(p).const_shape().expect("sizes are known"), 3 + i as u64)
    };
    f.params().iter().enumerate().map(input).collect()
}

/// Runs a module on a device in a mode.
fn run(m: &Module, device: &Device, pipeline: &PipelineOptions, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let options = Options { pipeline: pipeline.clone(), ..Options::for_device(device) };
    let compiled = Model::from_module(m.clone()).compile(&options).map_err(|e| e.to_string())?;
    let session = compiled.session(device).map_err(|e| e.to_string())?;
    session.run_in_order(inputs).map_err(|e| e.to_string())
}

/// What a case does wrong in a mode; positions and flags in mixed precision may be those of rounded numbers.
fn fault(m: &Module, device: &Device, mode: &Mode) -> Option<String> {
    let inputs = inputs_of(m);
    let said = |e: String| Some(format!("{} on {}: {e}\n{}", mode.name, device.label(), print_module(m)));
    let want = match run_function(m, m.entry, &inputs) {
        Ok(want) => want,
        Err(e) => return said(format!("the interpreter: {e}")),
    };
    let got = match run(m, device, &mode.pipeline, &inputs) {
        Ok(got) => got,
        Err(e) => return said(e),
    };
    let half = mode.pipeline.amp != AmpMode::Off;
    let tolerance = Tolerance::new(if half { DType::F16 } else { DType::F32 }, None, None);
    got.iter().zip(&want).filter(|(_, w)| !half || w.dtype().is_float()).find_map(|(g, w)| {
        let d = agree_in_slices(g, w, &tolerance);
        if d.pass { None } else { said(d.why) }
    })
}

/// Holds every case of an op against the interpreter, at all shapes that it takes; how many ran.
fn check_member(name: &str, lines: &[&str], devices: &[Device], ran: &mut usize) -> Vec<String> {
    let mut faults = vec![];
    for line in lines {
        for (at, &shape) in SHAPES.iter().enumerate() {
            let m = match module_of(line, shape) {
                Ok(m) => m,
                Err(e) if at == 0 => {
                    faults.push(format!("`{name}`: {e}"));
                    continue;
                }
                // Not every op goes with axes of 1.
                Err(_) => continue,
            };
            for mode in modes() {
                // A device takes longer: one channel in mixed precision, and all sizes above 1 in another layout.
                let all = |d: &&Device| matches!(d, Device::Cpu(_)) || (at, mode.name) == (1, "--amp fp16");
                for device in devices.iter().filter(all) {
                    *ran += 1;
                    faults.extend(fault(&m, device, &mode).map(|e| format!("`{name}`: {e}")));
                }
            }
        }
    }
    faults
}

/// The classes of a case: of mixed precision, of layouts, of fusion.
fn classes(m: &Module) -> [String; 3] {
    let f = m.main();
    let n = case_node(m);
    let node = &f.nodes[n];
    let info = describe_block(m, f, f.body).remove(&n);
    let precision = match (node.op.precision(), node.op.widens()) {
        (Precision::Always, _) => "always",
        (Precision::Follow, _) => "follow",
        (Precision::Never, true) => "never, widens",
        (Precision::Never, false) => "never",
    };
    let rank = node.inputs.iter().flatten().map(|&v| f.ty(v).rank()).max().unwrap_or(0);
    let reversed: Vec<usize> = (0..rank).rev().collect();
    let cx = compiler::ops::InferContext::new(m, f, &node.inputs, &[]);
    let layout = match () {
        () if node.op.layout().is_some() => "own layouts",
        () if info.as_ref().is_some_and(|i| i.layout_agnostic) => "any layout",
        () if node.op.permuted(&reversed, &cx).is_some() => "axes in attributes",
        () => "one layout",
    };
    let kind = info.map_or("host".to_string(), |i| i.kind.to_string());
    [format!("precision {precision}"), format!("layout {layout}"), format!("fusion {kind}")]
}

/// The node of the case: the last but those behind it.
fn case_node(m: &Module) -> NodeId {
    let f = m.main();
    f.def_node(f.results()[0]).expect("a node gives the result")
}

/// Members of each class with their cases, as a table.
fn table() -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, lines) in CASES {
        let mut of: BTreeMap<String, usize> = BTreeMap::new();
        for line in *lines {
            let m = module_of(line, SHAPES[0]).unwrap_or_else(|e| panic!("`{name}`: {e}"));
            classes(&m).into_iter().for_each(|class| *of.entry(class).or_default() += 1);
        }
        of.into_iter().for_each(|(class, cases)| all.entry(class).or_default().push(format!("{name} {cases}")));
    }
    all
}

#[test]
fn every_op_has_cases_and_every_class_members() {
    let missing: Vec<&str> = OPS
        .iter()
        .filter(|d| d.family != "own" && !cases::WITHOUT.contains(&d.name) && !CASES.iter().any(|c| c.0 == d.name))
        .map(|d| d.name)
        .collect();
    assert!(missing.is_empty(), "ops without a case: {missing:?}");
    let table = table();
    for (class, members) in &table {
        println!("{class}: {}", members.join(", "));
    }
    for class in ["precision always", "precision never, widens", "layout own layouts", "layout any layout"] {
        assert!(table[class].len() > 2, "{class}: {:?}", table[class]);
    }
}

#[test]
fn every_member_fits_its_classes() {
    let devices = devices();
    let (mut ran, mut faults) = (0, vec![]);
    for (name, lines) in CASES {
        faults.extend(check_member(name, lines, &devices, &mut ran));
    }
    println!("{ran} runs of {} ops", CASES.len());
    assert!(faults.is_empty(), "{} faults, the first:\n{}", faults.len(), faults[..faults.len().min(6)].join("\n"));
}

/// The processor, and the device of the tests.
fn devices() -> Vec<Device> {
    let gpu = benches::test_device::test_device().unwrap_or_else(|e| panic!("{e}"));
    vec![Device::cpu(2).unwrap_or_else(|e| panic!("{e}")), Device::Gpu(gpu)]
}
