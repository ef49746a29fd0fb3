//! Tests of actions: opening, expanding, turning, editing decisions, compiling again, exporting.

use super::*;
use crate::live::{Host, Kept, Made, Ticket, Wanted};
use crate::panes::kernel::Form;
use compiler::compile::Compiled;
use graphview::layout::Direction;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Two groups, one of which reads the other.
const CHAIN: &str = "const @w : f32[8,4,3,3] = splat(0.25)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,8]) {
  %0 = const @w : f32[8,4,3,3]
  %1 = conv %x, %0 {pads=[1,1,1,1]} : f32[1,8,8,8] !from(\"conv_0\")
  %2 = relu %1 : f32[1,8,8,8] !from(\"relu_1\")
  %3 = softmax %2 {axes=[3]} : f32[1,8,8,8] !from(\"softmax_2\")
  return %3
}
";

#[test]
fn an_edge_between_groups_says_why_they_are_two() {
    let mut h = window_of(compiled_of(CHAIN, "chain", FuseMode::Full), [1200.0, 800.0]);
    let groups = ["conv_0", "softmax_2"].map(|o| h.state().document().groups_of_source(o)[0]);
    let why: Vec<String> =
        h.state().document().border_between(groups[0], groups[1]).iter().map(|r| r.message.clone()).collect();
    assert!(!why.is_empty(), "fusion said why it stopped: {:#?}", h.state().trace().remarks);
    let from = place_of(&mut h, "relu_1");
    let to = place_of(&mut h, "softmax_2");
    // Near the lower box: the label stands near the upper one.
    click_at(&mut h, from + (to - from) * 0.6);
    assert!(h.state().edge().is_some(), "the edge is chosen");
    assert!(has(&h, "Why they are not one group") && has(&h, &why[0]), "{:#?}", texts(&h));
    assert_eq!(h.state().selected().len(), 3);
    // The node pane of the group says it too.
    click_at(&mut h, from);
    assert!(has(&h, "Why the group ends here") && has(&h, &why[0]), "{:#?}", texts(&h));
}

#[test]
fn a_double_click_opens_a_group_and_edges_turn() {
    let mut h = window([1200.0, 800.0]);
    let at = place_of(&mut h, "relu_1");
    click_at(&mut h, at);
    press_at(&mut h, at, 2);
    let open = |h: &mut TestWindow| h.state_mut().after().unwrap().unwrap().scene.boxes.iter().any(|b| b.open);
    assert!(open(&mut h), "the group is open");
    h.key_press(Key::O);
    settle(&mut h);
    assert!(!open(&mut h), "and closed again");
    h.key_press_modifiers(Modifiers::COMMAND, Key::K);
    settle(&mut h);
    let drawn = h.state_mut().after().unwrap().unwrap();
    assert_eq!(drawn.scene.direction, Direction::Right);
    let left = |i: usize| drawn.scene.boxes[i].rect[0];
    assert!(drawn.scene.edges.iter().all(|e| left(e.from) < left(e.to)));
    h.key_press_modifiers(Modifiers::COMMAND, Key::K);
    settle(&mut h);
    assert_eq!(h.state_mut().after().unwrap().unwrap().scene.direction, Direction::Down);
}

#[test]
fn keys_show_what_they_say() {
    let mut h = window([1200.0, 800.0]);
    for (key, sign) in [(Key::Num3, "change ›"), (Key::Num5, "Roofline"), (Key::Num8, "fuse-ops applied: ")] {
        h.key_press(key);
        settle(&mut h);
        assert!(has(&h, sign), "{key:?}: {:#?}", texts(&h));
    }
    h.key_press_modifiers(Modifiers::SHIFT, Key::Questionmark);
    h.run_steps(3);
    assert!(has(&h, "Ctrl K") && has(&h, "edges from left to right"), "{:#?}", texts(&h));
    h.key_press(Key::Escape);
    h.run_steps(3);
    assert!(!has(&h, "edges from left to right"));
    let zoom = h.state().canvases[0].camera.view.zoom;
    h.key_press_modifiers(Modifiers::SHIFT, Key::ArrowUp);
    h.run_steps(3);
    assert!(h.state().canvases[0].camera.view.zoom > zoom);
    // While one writes, letters are letters.
    h.key_press_modifiers(Modifiers::COMMAND, Key::F);
    h.run_steps(3);
    let compare = h.state().compare;
    h.key_press(Key::B);
    h.run_steps(3);
    assert_eq!(h.state().compare, compare);
}

/// A host whose device counts workgroups, and whose model is the small one.
struct Counter;
impl Host for Counter {
    fn device(&self) -> Result<String, String> {
        Ok("a counter".into())
    }
    fn time(&self, modules: [&Compiled; 2]) -> Result<[f64; 2], String> {
        Ok(modules
            .map(|m| m.plan.kernels.iter().map(|k| 1e3 * f64::from(k.emitted.grid.iter().product::<u32>())).sum()))
    }
    fn compile(&self, wanted: &Wanted, _: &Ticket) -> Result<Made, String> {
        match wanted.fuse.as_str() {
            "off" => Ok(Made { trace: compiled("small", FuseMode::Off), keep_f32: vec![] }),
            _ => Err("the model is gone".into()),
        }
    }
    fn keep(&self, kept: &Kept, [before, after]: [f64; 2], _: Option<[f64; 2]>) -> Result<String, String> {
        assert!(after < before && kept.after != kept.before);
        Ok("a drawer".into())
    }
}

/// The schedule of the first kernel in which a rule chose something, with a device.
pub(super) fn schedule() -> TestWindow {
    let mut h = window([1600.0, 900.0]);
    h.state_mut().host = Some(Arc::new(Counter));
    let kernels = &h.state().trace().kernels;
    let at = kernels.iter().position(|k| k.schedule.iter().any(|l| l.starts_with("choose "))).expect("a choice");
    h.state_mut().select_kernel(at);
    h.state_mut().tab = Tab::Kernel;
    h.state_mut().kernel_pane.form = Form::Schedule;
    settle(&mut h);
    h
}

/// Takes another value of the first choice, the rule of the convolution; what the pane then shows.
fn with_rule(rule: &str) -> TestWindow {
    let mut h = schedule();
    // The first box with that label is the first such choice.
    let combo = |n: &egui_kittest::Node<'_>| n.accesskit_node().role() == egui::Role::ComboBox;
    h.query_all_by_label("rule").find(combo).expect("a box for the choice").click();
    h.run_steps(4);
    h.query_all_by_label(rule).last().expect("the other value").click();
    settle(&mut h);
    h
}

#[test]
fn a_decision_is_edited_and_what_comes_of_it_is_seen() {
    let mut h = with_rule("direct");
    assert!(has(&h, "Legal") && !has(&h, "Refused"), "{:#?}", texts(&h));
    assert!(has(&h, "times as long"), "{:#?}", texts(&h));
    h.get_by_label("Reset").click();
    settle(&mut h);
    assert!(!has(&h, "Legal") && !has(&h, "Refused"));
}

#[test]
fn a_decision_that_the_device_cannot_have_is_refused() {
    let mut h = with_rule("\"matmul-matrix\"");
    assert!(has(&h, "Refused") && !has(&h, "Legal"), "{:#?}", texts(&h));
    assert!(has(&h, "rule matmul-matrix takes nothing of this kind"), "{:#?}", texts(&h));
    assert!(!has(&h, "times as long"), "{:#?}", texts(&h));
    h.get_by_label("Reset").click();
    settle(&mut h);
    assert!(!has(&h, "Legal") && !has(&h, "Refused"));
}

#[test]
fn all_values_of_a_choice_are_tried_and_one_is_taken() {
    let mut h = schedule();
    h.query_all_by_label_contains("all values of").next().expect("a choice of several values").click();
    settle(&mut h);
    assert!(has(&h, "All values of "), "{:#?}", texts(&h));
    let point = texts(&h).iter().find_map(|t| t.strip_prefix("All values of ").map(str::to_string)).unwrap();
    let rows: Vec<String> = texts(&h).into_iter().filter(|t| t.starts_with(&format!("{point} "))).collect();
    assert!(rows.len() > 1, "{rows:?}");
    let before = h.state().kernel_pane.edit.text.clone();
    // Each value is a row that can be clicked. One that was measured as faster can be kept, and no other one.
    let mut verdict = |row: &str| {
        h.get_by_label(row).click();
        settle(&mut h);
        assert_eq!(has(&h, "Legal"), !has(&h, "Refused"), "{row}: {:#?}", texts(&h));
        ["Refused", "Keep", "It is no faster"].map(|sign| has(&h, sign))
    };
    let (refused, faster, slower) = ([true, false, false], [false, true, false], [false, false, true]);
    let seen: Vec<(&str, [bool; 3])> = rows.iter().map(|row| (row.as_str(), verdict(row))).collect();
    let want = [
        ("rule \"matmul-dot\"", refused),
        ("rule \"matmul-matrix\"", refused),
        // The present one.
        ("rule \"matmul-subgroup\"", [false; 3]),
        ("rule \"matmul-tiled\"", slower),
        ("rule \"matmul-vector\"", refused),
        ("rule \"reduction-threads\"", slower),
        ("rule direct", slower),
        ("rule windows", faster),
    ];
    assert_eq!(seen, want);
    assert_ne!(h.state().kernel_pane.edit.text, before, "a value was taken");
    // A legal one gives old and new WGSL side by side.
    h.state_mut().kernel_pane.wide = true;
    settle(&mut h);
    assert!(h.state().kernel_pane.columns.contains(&Form::Edited));
    let k = h.state().kernel();
    assert!(h.state_mut().edited_wgsl(k).is_some());
}

#[test]
fn an_illegal_edit_marks_the_loop_and_says_why() {
    let mut h = schedule();
    let text = h.state().kernel_pane.edit.text.clone();
    let bind = text.lines().find(|l| l.starts_with("bind ")).expect("a loop is bound").to_string();
    h.get_by_label("Edit").click();
    settle(&mut h);
    h.state_mut().kernel_pane.edit.text = text.replacen(&bind, &format!("{bind}\n{bind}"), 1);
    h.run_steps(3);
    h.get_by_label("Try").click();
    settle(&mut h);
    assert!(has(&h, "Refused"), "{:#?}", texts(&h));
    assert!(texts(&h).iter().any(|t| t.starts_with('>')), "the loop is marked: {:#?}", texts(&h));
}

/// A folder for files of a test.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weft-viewer-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

#[test]
fn the_menu_exports_and_writes_over_nothing() {
    let mut h = window_of(timed(), [1600.0, 900.0]);
    let place = folder("export");
    h.state_mut().folder = place.clone();
    for (item, name, sign) in [
        ("Graph as SVG", "small-fuse-ops.svg", "<svg"),
        ("Graph as SVG", "small-fuse-ops-1.svg", "<svg"),
        ("Times for Perfetto (JSON)", "small.perfetto.json", "traceEvents"),
        ("Report as HTML", "small.html", "<html"),
    ] {
        let stage = h.state().trace().stages.iter().position(|s| s.label == "fuse-ops").unwrap();
        h.state_mut().show_stage(stage);
        settle(&mut h);
        h.get_by_label("Export").click();
        h.run_steps(3);
        h.get_by_label(item).click();
        settle(&mut h);
        let text = std::fs::read_to_string(place.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(text.contains(sign), "{name}");
        assert!(has(&h, "wrote "), "{:#?}", texts(&h));
    }
    std::fs::remove_dir_all(place).expect("the folder was there");
}

#[test]
fn the_model_is_compiled_again_with_other_options() {
    let mut h = window([1600.0, 900.0]);
    h.state_mut().host = Some(Arc::new(Counter));
    h.run_steps(3);
    h.get_by_label("Compile again").click();
    h.run_steps(3);
    h.get_by_label("Compile").click();
    settle(&mut h);
    assert!(has(&h, "the model is gone"), "{:#?}", texts(&h));
    h.state_mut().again.wanted.fuse = "off".into();
    h.get_by_label("Compile").click();
    settle(&mut h);
    assert_eq!(h.state().trace().options.fuse, "off");
    assert!(h.state().compare && h.state_mut().compared().is_some(), "the old one stands beside it");
}

#[derive(Debug)]
struct Dropped(PathBuf);
impl egui::DroppedFile for Dropped {
    fn path(&self) -> &Path {
        &self.0
    }
    fn bytes(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.0).map_err(|e| e.to_string())
    }
}

#[test]
fn a_dropped_trace_is_opened_and_anything_else_refused() {
    let mut h = window([1200.0, 800.0]);
    let place = folder("drop");
    let (good, bad) = (place.join("good.trace"), place.join("bad.trace"));
    std::fs::write(&good, compiled("other", FuseMode::Off).to_bytes().unwrap()).unwrap();
    std::fs::write(&bad, b"no trace").unwrap();
    h.input_mut().dropped_files = vec![Arc::new(Dropped(bad))];
    settle(&mut h);
    assert_eq!(h.state().trace().model, "small");
    assert!(has(&h, "not a compile trace"), "{:#?}", texts(&h));
    h.input_mut().dropped_files = vec![Arc::new(Dropped(good))];
    settle(&mut h);
    assert_eq!(h.state().trace().model, "other");
    std::fs::remove_dir_all(place).expect("the folder was there");
}

#[test]
fn a_window_opens_at_fusion_with_both_sides_and_hulls() {
    use crate::start::{Shot, prepare};
    let opened = |shot: &Shot| {
        let mut v = Viewer::new(timed()).unwrap();
        prepare(&mut v, shot).unwrap();
        (v.compare, v.colour)
    };
    assert_eq!(opened(&Shot::default()), (true, ColourBy::Group));
    let asked = |view: Option<&str>, colour: Option<&str>, pass: Option<&str>| {
        let text = |t: Option<&str>| t.map(str::to_string);
        opened(&Shot { view: text(view), colour: text(colour), pass: text(pass), ..Shot::default() })
    };
    // What is asked for is what is shown.
    assert_eq!(asked(Some("graph"), None, None), (false, ColourBy::Work));
    assert_eq!(asked(None, Some("time"), None), (false, ColourBy::Time));
    assert_eq!(asked(None, None, Some("source")), (false, ColourBy::Work));
    assert_eq!(asked(None, None, Some("fuse-ops")), (true, ColourBy::Group));
}
