//! The viewer without a window: what is in it, and that selecting marks.

use super::*;
use compiler::compile::{CompileOptions, compile};
use compiler::name::Name;
use compiler::plan::{Binding, EmitKernel, EmittedKernel};
use compiler::profile::DeviceProfile;
use compiler::tir::TensorFunction;
use compiler::trace::{CompileTrace, Contents};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use std::sync::Arc;

/// Stands for the shader generator, which the viewer does not know.
struct Fake;
impl EmitKernel for Fake {
    fn emit(&self, f: &TensorFunction, kernel: Name, _: &DeviceProfile) -> Result<EmittedKernel, String> {
        let bindings = f.params.iter().map(|p| Binding { buffer: p.buffer, bank: 0, access: p.access });
        Ok(EmittedKernel {
            name: kernel.to_string(),
            workgroup: [64, 1, 1],
            grid: [2, 1, 1],
            bindings: bindings.collect(),
            immediate_bytes: 0,
            shared_bytes: 0,
            bounds_proved: true,
            wgsl: format!("shader of {kernel}\n"),
            lines: vec![],
            module: Arc::new(()),
        })
    }
    fn spirv(&self, _: &EmittedKernel) -> Result<Vec<u32>, String> {
        Ok(vec![])
    }
}

const MODEL: &str = "const @w : f32[8,4,3,3] = splat(0.25)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,8], z: f32[1,4,8,8]) {
  %0 = const @w : f32[8,4,3,3]
  %1 = conv %x, %0 {pads=[1,1,1,1]} : f32[1,8,8,8] !from(\"conv_0\")
  %2 = relu %1 : f32[1,8,8,8] !from(\"relu_1\")
  %3 = softmax %x {axes=[3]} : f32[1,4,8,8] !from(\"softmax_2\")
  return %2, %3
}
";

/// The trace of a small model.
pub(crate) fn trace() -> CompileTrace {
    let options = CompileOptions { record: true, ..CompileOptions::default() };
    let m = compiler::text::parse_module(MODEL).unwrap();
    let c = compile(m, &options, &DeviceProfile::baseline(), &Fake, &mut |_, _, _| ()).unwrap();
    CompileTrace::new("small", &c, &options, &Fake, Contents::Full).unwrap()
}

fn harness() -> Harness<'static, Viewer> {
    let viewer = Viewer::new(trace()).unwrap();
    Harness::builder()
        .with_size([1200.0, 800.0])
        .allow_missing_glyphs()
        .build_ui_state(|ui, v: &mut Viewer| show(ui, v), viewer)
}

/// All texts in the window, in order.
fn texts(h: &Harness<'static, Viewer>) -> Vec<String> {
    let mut out = Vec::new();
    let mut open = vec![h.root().accesskit_node()];
    while let Some(n) = open.pop() {
        out.extend(n.label().or_else(|| n.value()));
        open.extend(n.children().collect::<Vec<_>>().into_iter().rev());
    }
    out
}

fn has(h: &Harness<'static, Viewer>, part: &str) -> bool {
    texts(h).iter().any(|t| t.contains(part))
}

#[test]
fn the_window_lists_passes_and_the_text() {
    let mut h = harness();
    h.run();
    assert!(has(&h, "small for baseline: 3 nodes, 2 groups"), "{:#?}", texts(&h));
    assert!(has(&h, "fuse-ops: ") && has(&h, "source") && has(&h, "scheduled"), "{:#?}", texts(&h));
    h.get_by_label("source").click();
    h.run();
    assert!(has(&h, "relu %1 : f32[1,8,8,8]"), "{:#?}", texts(&h));
    h.get_by_label("Changes").click();
    h.run();
    assert!(has(&h, "+ graph @main"), "{:#?}", texts(&h));
}

#[test]
fn selecting_a_line_marks_its_group() {
    let mut h = harness();
    h.run();
    h.get_by_label("source").click();
    h.run();
    h.get_by_label_contains("relu %1").click();
    h.run();
    assert!(has(&h, "Selected: relu_1"), "{:#?}", texts(&h));
    h.get_by_label("Groups").click();
    h.run();
    // The marked group is open: it says where it came from.
    assert!(has(&h, "from conv_0  relu_1"), "{:#?}", texts(&h));
    assert!(!has(&h, "from softmax_2"), "{:#?}", texts(&h));
    h.get_by_label("Clear").click();
    h.run();
    assert!(!has(&h, "from conv_0"), "{:#?}", texts(&h));
}

#[test]
fn kernels_show_schedule_and_shader_and_remarks_their_reasons() {
    let mut h = harness();
    h.get_by_label("Kernels").click();
    h.run();
    let name = h.state().trace().kernels[1].name.clone();
    h.get_by_label(&name).click();
    h.run();
    assert!(has(&h, &format!("shader of {name}")) && has(&h, "cut-kernel"), "{:#?}", texts(&h));
    assert!(!h.state().selected().is_empty());
    h.get_by_label("Remarks").click();
    h.run();
    assert!(has(&h, "fuse-ops applied: "), "{:#?}", texts(&h));
    h.get_by_label("Only what is selected").click();
    h.run();
    let marked = h.state().trace().remarks.iter().filter(|r| h.state().marks_remark(r)).count();
    let shown = texts(&h).iter().filter(|t| t.contains(" applied: ") || t.contains(" missed: ")).count();
    assert_eq!(shown, marked);
}

/// On a device where there is one: the picture must not be empty. Which pixels exactly depends on the driver.
#[test]
fn the_window_can_be_drawn() {
    let mut h = harness();
    h.run();
    // The renderer panics where there is no device at all.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| h.render())) {
        Err(_) => eprintln!("!!! not drawn: there is no device"),
        Ok(Err(why)) => panic!("{why}"),
        Ok(Ok(picture)) => {
            assert_eq!((picture.width(), picture.height()), (1200, 800));
            let colours: std::collections::BTreeSet<[u8; 4]> = picture.pixels().map(|p| p.0).collect();
            assert!(colours.len() > 20, "{} colours", colours.len());
        }
    }
}
