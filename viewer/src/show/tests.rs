//! Tests of the viewer without a window: its contents, and that an action in one pane shows in the others.

use super::*;
use compiler::compile::{CompileOptions, compile};
use compiler::passes::FuseMode;
use compiler::profile::DeviceProfile;
use compiler::trace::{CompileTrace, Contents, DispatchTime, Times};
use egui::Modifiers;
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use shaders_gen::Emitter;

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
    compiled("small", FuseMode::Full)
}

/// The same, fused as `fuse` says.
fn compiled(name: &str, fuse: FuseMode) -> CompileTrace {
    compiled_of(MODEL, name, fuse)
}

fn compiled_of(model: &str, name: &str, fuse: FuseMode) -> CompileTrace {
    let mut options = CompileOptions { record: true, ..CompileOptions::default() };
    options.pipeline.fuse = fuse;
    let m = compiler::text::parse_module(model).unwrap();
    let c = compile(m, &options, &DeviceProfile::lavapipe(), &Emitter, &mut |_, _, _| ()).unwrap();
    CompileTrace::new(name, &c, &options, &Emitter, Contents::Full).unwrap()
}

/// The trace with times.
fn timed() -> CompileTrace {
    let mut t = trace();
    let time = |i: usize| 40.0 * (i + 1) as f64;
    let one = |i| DispatchTime { us: time(i), min_us: time(i) * 0.9, max_us: time(i) * 1.2 };
    let dispatches: Vec<DispatchTime> = (0..t.calls().count()).map(one).collect();
    let device_ms = dispatches.iter().map(|d| d.us / 1000.0).sum();
    let (device, source) = ("a device".to_string(), "timestamps".to_string());
    t.times = Some(Times { device, source, dispatches, latency_ms: 2.0 * device_ms, device_ms, ..Times::default() });
    t
}

type TestWindow = Harness<'static, Viewer>;

/// The viewer on the small model's trace, its graph laid out.
fn window(size: [f32; 2]) -> TestWindow {
    window_of(trace(), size)
}

/// The viewer on a trace, its graph laid out.
fn window_of(trace: CompileTrace, size: [f32; 2]) -> TestWindow {
    let viewer = Viewer::new(trace).unwrap();
    let mut h = Harness::builder()
        .with_size(size)
        .with_theme(egui::Theme::Light)
        // Frames as a screen has them: two clicks in neighbouring ones are a double-click.
        .with_step_dt(1.0 / 60.0)
        .allow_missing_glyphs()
        .build_ui_state(|ui, v: &mut Viewer| show(ui, v), viewer);
    settle(&mut h);
    h
}

/// Frames until nothing is being laid out and nothing moves.
fn settle(h: &mut TestWindow) {
    for _ in 0..2000 {
        h.step();
        if !h.state_mut().busy() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    h.run_steps(60);
    assert!(!h.state_mut().busy(), "the graph is not laid out");
}

/// All texts in the window, in order.
fn texts(h: &TestWindow) -> Vec<String> {
    let mut out = Vec::new();
    let mut open = vec![h.root().accesskit_node()];
    while let Some(n) = open.pop() {
        out.extend(n.label().or_else(|| n.value()));
        open.extend(n.children().collect::<Vec<_>>().into_iter().rev());
    }
    out
}

fn has(h: &TestWindow, part: &str) -> bool {
    texts(h).iter().any(|t| t.contains(part))
}

/// Where the box that came from a source node lies on the screen.
fn place_of(h: &mut TestWindow, origin: &str) -> egui::Pos2 {
    let drawn = h.state_mut().after().unwrap().unwrap();
    let i = drawn.by_origin[origin][0];
    let canvas = &h.state().canvases[0];
    let [x, y, w, height] = drawn.scene.boxes[i].rect;
    canvas.camera.to_screen(canvas.screen().unwrap(), [x + w / 2.0, y + height / 2.0])
}

fn click_at(h: &mut TestWindow, at: egui::Pos2) {
    press_at(h, at, 1);
}

/// Clicks so often, each time in a frame of its own.
fn press_at(h: &mut TestWindow, at: egui::Pos2, times: usize) {
    h.hover_at(at);
    h.step();
    for _ in 0..times {
        for pressed in [true, false] {
            let button = egui::PointerButton::Primary;
            h.event(egui::Event::PointerButton { pos: at, button, pressed, modifiers: Modifiers::NONE });
        }
        h.step();
    }
    settle(h);
}

#[test]
fn a_click_on_a_box_selects_what_it_came_from() {
    let mut h = window([1200.0, 800.0]);
    assert!(has(&h, "for lavapipe: 3 nodes, 2 groups"), "{:#?}", texts(&h));
    let at = place_of(&mut h, "relu_1");
    click_at(&mut h, at);
    let selected: Vec<String> = h.state().selected().iter().cloned().collect();
    assert_eq!(selected, ["conv_0", "relu_1"]);
    assert!(has(&h, "conv 3x3 + relu") && has(&h, "From 2 nodes of the model"), "{:#?}", texts(&h));
    // The kernel pane shows the kernel of the box.
    let kernel = h.state().kernel();
    let group = h.state().document().groups_of_source("relu_1")[0];
    assert_eq!(h.state().trace().kernels_of(group), [kernel]);
    // The ground selects nothing.
    let screen = h.state().canvases[0].screen().unwrap();
    click_at(&mut h, screen.center_top() + vec2(screen.width() * 0.3, 60.0));
    assert!(h.state().selected().is_empty());
}

#[test]
fn stepping_keeps_what_is_chosen_in_its_place() {
    let mut h = window([1200.0, 800.0]);
    let last = h.state().stage();
    let at = place_of(&mut h, "softmax_2");
    click_at(&mut h, at);
    let before = place_of(&mut h, "softmax_2");
    h.key_press(Key::ArrowLeft);
    settle(&mut h);
    assert!(h.state().stage() < last);
    let after = place_of(&mut h, "softmax_2");
    assert!((before - after).length() < 1.0, "{before:?} {after:?}");
    h.key_press(Key::ArrowRight);
    settle(&mut h);
    assert_eq!(h.state().document().graph_of(h.state().stage()), h.state().document().graph_of(last));
}

#[test]
fn a_group_opens_in_place() {
    let mut h = window([1200.0, 800.0]);
    let drawn = h.state_mut().after().unwrap().unwrap();
    let group = drawn.scene.boxes.iter().find(|b| b.node.op == "conv 3x3 + relu").unwrap().node.key.clone();
    h.state_mut().toggle(&group);
    settle(&mut h);
    let drawn = h.state_mut().after().unwrap().unwrap();
    let frame = &drawn.scene.boxes[drawn.by_key[&group]];
    assert!(frame.open);
    let inner: Vec<&str> = drawn.scene.boxes.iter().filter(|b| b.depth == 1).map(|b| b.node.op.as_str()).collect();
    assert!(inner.contains(&"conv") && inner.contains(&"relu"), "{inner:?}");
}

#[test]
fn marks_say_what_a_pass_did() {
    let mut h = window([1200.0, 800.0]);
    let fused = h.state().trace().passes.iter().position(|p| p.name == "fuse-ops").unwrap() + 1;
    h.state_mut().show_stage(fused);
    settle(&mut h);
    let c = h.state_mut().compared().expect("fusion changes the graph");
    assert!(c.after.count(graphview::changes::Mark::Replaced) >= 1);
    h.state_mut().next_change(true);
    assert!(h.state().focus().is_some());
}

#[test]
fn changes_are_looked_at_one_after_the_other() {
    let model = MODEL
        .replace("-> (", "-> (w: f32[1,4,8,8], ")
        .replace("return ", "%4 = softmax %x {axes=[1]} : f32[1,4,8,8] !from(\"softmax_3\")\n  return %4, ");
    let mut h = window_of(compiled_of(&model, "three", FuseMode::Full), [1200.0, 800.0]);
    let fused = h.state().trace().passes.iter().position(|p| p.name == "fuse-ops").unwrap() + 1;
    h.state_mut().show_stage(fused);
    settle(&mut h);
    let keys = h.state_mut().compared().expect("fusion changes the graph").after.keys().to_vec();
    assert_eq!(keys.len(), 3, "{keys:?}");
    let mut walk = |forward: bool| -> Vec<String> {
        let mut step = |_| {
            h.state_mut().next_change(forward);
            settle(&mut h);
            h.state().focus().expect("a change").to_string()
        };
        (0..4).map(&mut step).collect()
    };
    // Around the end in both directions.
    assert_eq!(walk(true), [0, 1, 2, 0].map(|i| keys[i].clone()));
    assert_eq!(walk(false), [2, 1, 0, 2].map(|i| keys[i].clone()));
}

#[test]
fn selecting_a_line_marks_its_group() {
    let mut h = window([1600.0, 900.0]);
    h.get_by_label("Text").click();
    h.get_by_label("source").click();
    h.run_steps(4);
    h.get_by_label("After").click();
    h.run_steps(4);
    h.get_by_label_contains("relu %1").click();
    settle(&mut h);
    assert_eq!(h.state().selected().iter().collect::<Vec<_>>(), ["relu_1"]);
    h.get_by_label("Groups").click();
    h.run_steps(4);
    assert!(has(&h, "from conv_0  relu_1"), "{:#?}", texts(&h));
    assert!(!has(&h, "from softmax_2"), "{:#?}", texts(&h));
}

#[test]
fn remarks_are_those_of_the_selection() {
    let mut h = window([1600.0, 900.0]);
    h.state_mut().select_kernel(1);
    settle(&mut h);
    assert!(!h.state().selected().is_empty());
    h.get_by_label("Remarks").click();
    h.run_steps(4);
    assert!(has(&h, "fuse-ops applied: "), "{:#?}", texts(&h));
    h.get_by_label("Only what is selected").click();
    h.run_steps(4);
    let marked = h.state().trace().remarks.iter().filter(|r| h.state().marks_remark(r)).count();
    let shown = texts(&h).iter().filter(|t| t.contains(" applied: ") || t.contains(" missed: ")).count();
    assert_eq!(shown, marked);
}

#[test]
fn changes_hold_both_texts() {
    use crate::panes::text::{LineMark, Mode, lines_of};
    let document = crate::Document::new(trace()).unwrap();
    for stage in 0..document.stages() {
        let texts = [Mode::Before, Mode::After]
            .map(|m| -> Vec<String> { lines_of(&document, stage, m).into_iter().map(|l| l.text).collect() });
        let both = lines_of(&document, stage, Mode::Changes);
        let side = |left_out: LineMark| -> Vec<String> {
            both.iter().filter(|l| l.mark != left_out).map(|l| l.text.clone()).collect()
        };
        assert_eq!(side(LineMark::Added), texts[0], "stage {stage}");
        assert_eq!(side(LineMark::Removed), texts[1], "stage {stage}");
    }
}

mod changing;
mod large;
mod maps;
mod panes;
mod snapshots;
