//! Tests of the panes, and that a selection in one shows in the others.

use super::*;
use crate::export::{Export, text};
use crate::panes::kernel::Form;
use crate::panes::time::{Part, rows};
use compiler::name::Name;
use compiler::remark::{Remark, RemarkKind};

#[test]
fn a_search_finds_boxes_and_goes_to_them() {
    let mut h = window([1600.0, 900.0]);
    h.key_press_modifiers(Modifiers::COMMAND, Key::F);
    h.run_steps(3);
    h.event(egui::Event::Text("kind:contraction fused:yes".into()));
    h.run_steps(3);
    assert!(has(&h, "1 found"), "{:#?}", texts(&h));
    h.key_press(Key::Enter);
    settle(&mut h);
    let node = h.state_mut().focus_node().expect("the box that was found");
    assert_eq!(node.op, "conv 3x3 + relu");
    h.state_mut().search.text = "colour:red".into();
    h.run_steps(3);
    assert!(has(&h, "there is no field `colour`"), "{:#?}", texts(&h));
}

#[test]
fn a_box_in_a_closed_layer_is_selected_with_its_kernel() {
    let mut h = window_of(compiled_of(&layers(6), "layers", FuseMode::Full), [1200.0, 800.0]);
    let drawn = h.state_mut().after().unwrap().unwrap();
    let inside = drawn.layered.picture.walk().into_iter().find(|n| n.origins == ["net.4.b"]).unwrap().key.clone();
    assert!(!drawn.by_key.contains_key(&inside), "its layer is closed");
    h.state_mut().focus_key(&inside);
    // At once, not only when the opened layer is laid out.
    assert!(h.state().selected().iter().eq(["net.4.b"]));
    let group = h.state().document().groups_of_source("net.4.b")[0];
    assert!(h.state().trace().kernels_of(group).contains(&h.state().kernel()));
    settle(&mut h);
    assert!(h.state_mut().after().unwrap().unwrap().by_key.contains_key(&inside), "and it is in sight");
}

/// A chain of pairs of nodes, each pair in a layer of its own inside of the layer `net`.
fn layers(pairs: usize) -> String {
    let mut model = "graph @main(%x: f32[4,8192]) -> (y: f32[4,8192]) {\n".to_string();
    for b in 0..pairs {
        let x = if b == 0 { "x".to_string() } else { (2 * b - 1).to_string() };
        let (n, m) = (2 * b, 2 * b + 1);
        model +=
            &format!("  %{n} = softmax %{x} {{axes=[1]}} : f32[4,8192] !name(\"net.{b}.a\") !from(\"net.{b}.a\")\n");
        model +=
            &format!("  %{m} = softmax %{n} {{axes=[0]}} : f32[4,8192] !name(\"net.{b}.b\") !from(\"net.{b}.b\")\n");
    }
    model + &format!("  return %{}\n}}\n", 2 * pairs - 1)
}

#[test]
fn what_the_pane_says_of_a_box_is_computed_once() {
    let mut h = window_of(compiled_of(&layers(40), "layers", FuseMode::Full), [1200.0, 800.0]);
    h.state_mut().show_tab(0);
    let drawn = h.state_mut().after().unwrap().unwrap();
    let boxes = drawn.layered.picture.walk();
    let all = boxes.iter().max_by_key(|n| n.origins.len()).expect("a layer").key.clone();
    h.state_mut().focus_key(&all);
    settle(&mut h);
    let details = h.state_mut().details().expect("the layer");
    h.run_steps(5);
    assert!(std::sync::Arc::ptr_eq(&details, &h.state_mut().details().expect("the layer")), "frames only read it");
    // A large layer has as many rows as can be read.
    assert_eq!((details.node.origins.len(), details.groups.shown.len(), details.groups.more), (80, 40, 40));
    assert!(has(&h, "and 40 more: see Groups"), "{:#?}", texts(&h));
    h.state_mut().select(["net.4.b".to_string()]);
    settle(&mut h);
    assert_eq!(h.state_mut().details().expect("the node").node.origins, ["net.4.b"]);
}

#[test]
fn a_line_of_wgsl_leads_to_its_nodes_and_instruction() {
    let mut h = window([1600.0, 900.0]);
    h.state_mut().select(["relu_1".to_string()]);
    h.get_by_label("Kernel").click();
    settle(&mut h);
    // The pane starts at the lines that came from what is selected.
    let k = h.state().kernel();
    let kernel = h.state().trace().kernels[k].clone();
    let lines: Vec<&str> = kernel.wgsl.lines().collect();
    let shown = texts(&h);
    let once = |l: &str| lines.iter().filter(|x| **x == l).count() == 1 && shown.iter().any(|t| t == l);
    let of_block = |i: usize| kernel.lines_at(i).is_some_and(|l| l.block.is_some());
    let nodes_of = |i: usize| h.state().trace().nodes_of_line(k, i).iter().map(|n| n.to_string()).collect::<Vec<_>>();
    let of_relu = |i: &usize| of_block(*i) && once(lines[*i]) && nodes_of(*i).contains(&"relu_1".to_string());
    let line = (0..lines.len()).find(of_relu).expect("a line of what is selected is shown");
    let nodes = nodes_of(line);
    h.state_mut().select([]);
    h.step();
    h.query_all_by_label(lines[line]).next().expect("the line is shown").click();
    settle(&mut h);
    assert_eq!(h.state().selected().iter().cloned().collect::<Vec<_>>(), nodes);
    // The same place is marked in the schedule and in the tensor function.
    let block = &kernel.blocks[kernel.lines_at(line).unwrap().block.unwrap() as usize];
    assert!(has(&h, &format!("block {}", block.name)), "{:#?}", texts(&h));
}

#[test]
fn every_form_of_a_kernel_is_there() {
    let mut h = window([1600.0, 900.0]);
    h.state_mut().select_kernel(0);
    // With nothing selected each form starts at its top.
    h.state_mut().select([]);
    h.state_mut().tab = Tab::Kernel;
    let signs = [
        (Form::Tensor, "block "),
        (Form::Schedule, "cut-kernel"),
        (Form::Wgsl, "@group(0) @binding(0)"),
        (Form::Spirv, "OpCapability Shader"),
        (Form::Msl, "metal_stdlib"),
        (Form::Isa, "Not in the trace"),
    ];
    for (form, sign) in signs {
        h.state_mut().kernel_pane.form = form;
        settle(&mut h);
        assert!(has(&h, sign), "{form:?}: {:#?}", texts(&h));
    }
}

#[test]
fn forms_side_by_side_go_to_the_chosen_place() {
    let mut h = window([1600.0, 900.0]);
    h.state_mut().select_kernel(0);
    h.state_mut().select([]);
    h.key_press_modifiers(Modifiers::COMMAND, Key::J);
    settle(&mut h);
    // The tensor function and WGSL at first; the one before the schedule besides.
    h.get_by_label("Unscheduled").click();
    settle(&mut h);
    assert_eq!(h.state().kernel_pane.columns, [Form::Lowered, Form::Tensor, Form::Wgsl]);
    assert!(has(&h, "@compute @workgroup_size(") && has(&h, "local_x for "), "{:#?}", texts(&h));
    // Unrolled lines are one row, which opens.
    let folded = |h: &TestWindow| texts(h).iter().filter(|t| t.starts_with("... ")).count();
    let before = folded(&h);
    assert!(before > 0, "{:#?}", texts(&h));
    // Its middle may be behind another column.
    let run = h.query_all_by_label_contains("more like this").next().expect("a run of unrolled lines").rect();
    click_at(&mut h, run.left_center() + egui::vec2(100.0, 0.0));
    settle(&mut h);
    assert!(folded(&h) < before, "{:#?}", texts(&h));
    // A block that is clicked in the tensor function is brought into sight in WGSL.
    let k = h.state().trace().kernels[0].clone();
    let last = k.blocks.last().expect("a block").name.clone();
    let line = texts(&h).into_iter().find(|t| t.contains(&format!("block {last} "))).expect("its line");
    let place = h.query_all_by_label(&line).last().expect("the line is shown").rect().left_center();
    click_at(&mut h, place + egui::vec2(100.0, 0.0));
    settle(&mut h);
    let block = k.blocks.len() - 1;
    let wgsl: Vec<&str> = k.wgsl.lines().collect();
    let own = (0..wgsl.len()).filter(|&i| k.lines_at(i).is_some_and(|l| l.block == Some(block as u32)));
    let shown = texts(&h);
    assert!(own.map(|i| wgsl[i]).any(|l| shown.iter().any(|t| t == l)), "{shown:#?}");
    h.get_by_label("Back to the graph").click();
    settle(&mut h);
    assert!(!has(&h, "Back to the graph") && !has(&h, "@compute @workgroup_size("), "{:#?}", texts(&h));
}

#[test]
fn what_the_driver_said_is_shown() {
    use compiler::trace::driver_stats::{DriverStats, Executable, Statistic, StatisticValue};
    let mut t = trace();
    let statistic = |(name, value): (&str, u64)| Statistic {
        name: name.into(),
        meaning: String::new(),
        value: StatisticValue::Uint(value),
    };
    let executable = |i: usize| Executable {
        name: "compute".into(),
        subgroup_size: 64,
        statistics: [("VGPRs", 96), ("Spilled VGPRs", 3), ("Subgroups per SIMD", 16)].map(statistic).into(),
        isa: (i == 0).then(|| "s_endpgm".to_string()),
    };
    let kernels = (0..t.kernels.len()).map(|i| vec![executable(i)]).collect();
    t.driver_stats = Some(DriverStats { device: "some device".into(), kernels });
    let mut h = window_of(t, [1600.0, 900.0]);
    h.state_mut().tab = Tab::Kernel;
    h.state_mut().kernel_pane.form = Form::Isa;
    for (kernel, sign) in [(0, "s_endpgm"), (1, "the driver of some device gives no text")] {
        h.state_mut().select_kernel(kernel);
        settle(&mut h);
        assert!(has(&h, sign), "{:#?}", texts(&h));
        assert!(has(&h, "subgroups of 64, 96 registers, 3 spills, 16 subgroups a SIMD"), "{:#?}", texts(&h));
    }
}

#[test]
fn times_are_sorted_and_drawn() {
    let mut h = window_of(timed(), [1600.0, 900.0]);
    let dispatches = rows(h.state()).into_iter().filter(|r| r.at.is_some());
    let longest = dispatches.max_by(|a, b| a.ms.partial_cmp(&b.ms).unwrap()).unwrap();
    h.get_by_label("Time").click();
    settle(&mut h);
    // Of the dispatches that which takes longest stands first.
    let first = texts(&h).into_iter().find(|t| h.state().trace().groups.iter().any(|g| g.label == *t));
    assert_eq!(first, Some(longest.layer));
    for part in [Part::Timeline, Part::Roofline] {
        h.state_mut().time_pane.part = part;
        settle(&mut h);
    }
    let json = text(h.state_mut(), Export::Perfetto, false).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|e| e["cat"] == "kernel").count(), h.state().trace().calls().count());
}

#[test]
fn what_a_trace_lacks_is_said_with_what_to_do() {
    let mut h = window([1600.0, 900.0]);
    h.get_by_label("Time").click();
    settle(&mut h);
    assert!(has(&h, "`weft bench MODEL -o F.trace`"), "{:#?}", texts(&h));
    h.get_by_label("Precision").click();
    settle(&mut h);
    assert!(has(&h, "`weft compare MODEL -o F.trace`"), "{:#?}", texts(&h));
    let why = text(h.state_mut(), Export::Perfetto, false).unwrap_err();
    assert!(why.contains("no times"), "{why}");
    let svg = text(h.state_mut(), Export::Svg, false).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("conv 3x3 + relu"), "{svg}");
}

#[test]
fn a_box_is_exported_as_it_is_seen_folded_and_open() {
    let mut h = window([1200.0, 800.0]);
    let drawn = h.state_mut().after().unwrap().unwrap();
    let group = drawn.scene.boxes.iter().find(|b| b.node.op == "conv 3x3 + relu").unwrap().node.key.clone();
    let svg = |h: &mut TestWindow, what| text(h.state_mut(), what, false);
    assert_eq!(svg(&mut h, Export::BoxSvg).unwrap_err(), "no box is chosen");
    h.state_mut().focus_key(&group);
    h.state_mut().colour = ColourBy::Group;
    settle(&mut h);
    let folded = svg(&mut h, Export::BoxSvg).unwrap();
    assert!(folded.contains(">conv 3x3 + relu<") && !folded.contains(">relu<"), "{folded}");
    h.state_mut().toggle(&group);
    settle(&mut h);
    let [open, whole] = [Export::BoxSvg, Export::Svg].map(|what| svg(&mut h, what).unwrap());
    assert!(open.contains(">relu<") && !open.contains("softmax") && whole.contains("softmax"), "{open}");
    // The colours are those of the canvas, the legend stands below, and boxes lie within the picture.
    let colour = crate::canvas::colour::pastel(h.state().document().groups_of_source("relu_1")[0], false);
    let colour = format!("#{:02x}{:02x}{:02x}", colour.r(), colour.g(), colour.b());
    assert!(open.contains(&colour) && folded.contains(&colour), "{colour}: {open}");
    let number = |l: &str, name: &str| l.split(name).nth(1)?.split('"').next()?.parse::<f32>().ok();
    let size = |svg: &str| [" width=\"", " height=\""].map(|n| number(svg, n).expect("a size"));
    let [w, height] = size(&open);
    for text in open.lines().filter(|l| l.contains("<text")) {
        let [x, y] = [" x=\"", " y=\""].map(|n| number(text, n).expect("a place"));
        assert!((0.0..w).contains(&x) && (0.0..height).contains(&y), "{text} in {w} by {height}");
    }
    let [w, height] = size(&folded);
    assert!(w < 300.0 && height < 120.0, "{w} by {height}");
    // On a dark ground it is dark.
    let dark = text(h.state_mut(), Export::Svg, true).unwrap();
    assert!(dark.contains("fill=\"#161616\"") && !whole.contains("fill=\"#161616\""));
}

#[test]
fn a_run_is_drawn_in_lanes_and_a_range_of_it_is_summed_up() {
    use compiler::trace::{Lane, RunSpans, Span};
    let mut t = timed();
    let span = |lane, name: &str, dispatch, start_us, end_us| Span {
        lane,
        name: name.into(),
        dispatch,
        waits: name == "wait",
        start_us,
        end_us,
        ..Span::default()
    };
    let spans = vec![
        span(Lane::Upload, "upload", None, 0.0, 20.0),
        span(Lane::Host, "encode", None, 20.0, 30.0),
        span(Lane::Host, "wait", None, 30.0, 180.0),
        span(Lane::Device, "first", Some(0), 40.0, 80.0),
        span(Lane::Device, "second", Some(1), 90.0, 170.0),
        span(Lane::Readback, "readback", None, 180.0, 200.0),
    ];
    let run =
        RunSpans { spans, ms: 0.2, kernel_times: "gpu-timestamps".into(), uncertainty_us: 2.0, ..RunSpans::default() };
    t.times.as_mut().expect("times").run = Some(run);
    let mut h = window_of(t, [1600.0, 900.0]);
    (h.state_mut().tab, h.state_mut().time_pane.part) = (Tab::Time, Part::Timeline);
    settle(&mut h);
    let about = "One run of 0.20 ms; the median of the timed runs is 0.24 ms. The device's clock fits the host's within 2.0 µs.";
    assert!(has(&h, about), "{:#?}", texts(&h));
    let all = "all: 2 dispatches; host 10.0 µs, upload 20.0 µs, device 120.0 µs, readback 20.0 µs; no kernel runs for 80.0 µs";
    assert!(has(&h, all), "{:#?}", texts(&h));
    // Perfetto gets the same run.
    let json = text(h.state_mut(), Export::Perfetto, false).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    assert_eq!(events.iter().filter(|e| e["ph"] == "X").count(), 6);
    assert_eq!(json["otherData"]["device_clock_uncertainty_us"], 2.0);
    // A drag over the right half of the lanes; with Shift it is zoomed to.
    let dock = h.get_by_label("Roofline").rect();
    let [from, to] = [1300.0, 1590.0].map(|x| egui::pos2(x, dock.max.y + 120.0));
    h.hover_at(from);
    h.drag_at(from);
    h.run_steps(2);
    h.hover_at(to);
    h.run_steps(2);
    h.drop_at(to);
    settle(&mut h);
    let summed = texts(&h).into_iter().find(|t| t.contains(" to ") && t.contains("no kernel runs for"));
    let summed = summed.unwrap_or_else(|| panic!("{:#?}", texts(&h)));
    assert!(summed.contains("readback 20.0 µs") && !summed.contains("upload"), "{summed}");
    h.get_by_label("Zoom in").click();
    settle(&mut h);
    assert!(h.state().time_pane.zoomed() > 1.5);
    h.get_by_label("Clear").click();
    settle(&mut h);
    assert!(has(&h, all) && h.state().time_pane.zoomed() == 1.0);
}

#[test]
fn every_pane_shows_something_at_every_size() {
    for size in [[700.0, 500.0], [1600.0, 900.0]] {
        let mut h = window(size);
        for (tab, _) in Tab::ALL {
            h.state_mut().tab = tab;
            settle(&mut h);
            let canvas = h.state().canvases[0].screen().expect("a canvas");
            assert!(canvas.width() > 150.0 && canvas.height() > 250.0, "{tab:?} at {size:?}: {canvas:?}");
        }
    }
}

#[test]
fn another_compilation_stands_beside_this_one() {
    let mut h = window([1600.0, 900.0]);
    h.state_mut().compare_with(compiled("small", FuseMode::Off)).unwrap();
    settle(&mut h);
    let c = h.state_mut().compared().expect("they differ");
    assert!(c.after.count(graphview::changes::Mark::Replaced) >= 1, "one fused what the other did not");
    // The verdict stands over both, and the titles say what tells them apart.
    assert!(has(&h, "3 -> 2 dispatches, "), "{:#?}", texts(&h));
    assert_eq!(h.state().other.as_ref().map(|o| o.titles.clone()), Some(["fuse off".into(), "fuse full".into()]));
    // The colours are of the difference on both sides.
    assert_eq!(h.state().colour, ColourBy::Difference);
    h.state_mut().tab = Tab::Difference;
    h.run_steps(4);
    let row = h.state().other.as_ref().map(|o| o.comparison.rows[0].name.clone()).expect("a row");
    h.query_all_by_label(&row).last().expect("the row is shown").click();
    settle(&mut h);
    assert_eq!(h.state().selected().iter().collect::<Vec<_>>(), ["conv_0", "relu_1"]);
    assert!(has(&h, "fuse off: 2 dispatches: "), "{:#?}", texts(&h));
    h.state_mut().compare_with_none();
    settle(&mut h);
}

#[test]
fn two_whole_graphs_beside_each_other_are_not_cut_off() {
    let mut h = window_of(trace(), [900.0, 500.0]);
    let wide = "graph @main(%x: f32[4]) -> (y: f32[4]) {\n".to_string()
        + &(0..40)
            .map(|i| format!("  %{i} = exp {} : f32[4]\n", if i == 0 { "%x".into() } else { format!("%{}", i - 1) }))
            .collect::<String>()
        + "  return %39\n}\n";
    h.state_mut().compare_with(compiled_of(&wide, "long", FuseMode::Off)).unwrap();
    h.state_mut().dock = false;
    settle(&mut h);
    h.state_mut().show_all();
    settle(&mut h);
    for canvas in &h.state().canvases {
        let (screen, size) = (canvas.screen().unwrap(), canvas.drawn().unwrap().scene.size);
        let corners = [[0.0, 0.0], size].map(|p| canvas.camera.to_screen(screen, p));
        assert!(corners.iter().all(|c| screen.contains(*c)), "{corners:?} in {screen:?}");
    }
    // Moving one moves the other again.
    let before = h.state().canvases[1].camera.view;
    h.state_mut().canvases[0].magnify(2.0);
    h.run_steps(4);
    assert_ne!(h.state().canvases[1].camera.view, before);
}

#[test]
fn folded_weights_are_called_by_their_role() {
    let model = "const @conv1.weight : f32[8,4,3,3] = splat(0.25)
const @bn1.scale : f32[8] = splat(0.5)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,8]) {
  %w = const @conv1.weight : f32[8,4,3,3]
  %s = const @bn1.scale : f32[8]
  %1 = conv %x, %w {pads=[1,1,1,1]} : f32[1,8,8,8] !from(\"conv_0\")
  %2 = batch_norm %1, %s, %s, %s, %s : f32[1,8,8,8] !from(\"bn_1\")
  return %2
}
";
    let mut h = window_of(compiled_of(model, "folded", FuseMode::Full), [1000.0, 600.0]);
    let drawn = h.state_mut().after().unwrap().unwrap();
    let conv = drawn.scene.boxes.iter().find(|b| b.node.op.contains("conv")).expect("a convolution");
    let names: Vec<&str> = conv.lines.iter().filter_map(|l| l.split(" f32").next()).collect();
    assert!(names.contains(&"weight") && names.contains(&"bias"), "{:?}", conv.lines);
}

#[test]
fn a_packed_operand_has_its_type_and_block() {
    let model = "const @w_words : u32[32,128] = splat(7)
const @s : f32[32,32] = splat(0.5)
graph @main(%x: f32[1,1024]) -> (y: f32[1,32]) {
  %w = const @w_words : u32[32,128]
  %s = const @s : f32[32,32]
  %0 = dequantize_blocks %w, %s {size=1024} : f32[32,1024] !from(\"MatMulNBits_0\")
  %1 = transpose %0 {perm=[1,0]} : f32[1024,32] !from(\"MatMulNBits_0\")
  %2 = matmul %x, %1 : f32[1,32] !from(\"MatMulNBits_0\")
  return %2
}
";
    let mut trace = compiled_of(model, "packed", FuseMode::Full);
    let said = |message: &str| Remark {
        pass: Name::new("import"),
        kind: RemarkKind::Applied,
        nodes: vec![Name::new("MatMulNBits_0")],
        message: message.into(),
        detail: "w_words".into(),
    };
    trace.remarks.insert(0, said("`w` is i4 block 32 [32,1024]"));
    let mut h = window_of(trace, [1400.0, 900.0]);
    h.state_mut().select(["MatMulNBits_0".to_string()]);
    h.state_mut().tab = Tab::Precision;
    settle(&mut h);
    assert!(has(&h, "i4 block 32: 1 operand, 32.8k elements"), "{:#?}", texts(&h));
    h.state_mut().show_stage(0);
    settle(&mut h);
    let drawn = h.state_mut().after().unwrap().unwrap();
    let decodes = drawn.scene.boxes.iter().find(|b| !b.node.weights.is_empty()).expect("a box with weights");
    let key = decodes.node.key.clone();
    h.state_mut().focus_key(&key);
    h.state_mut().tab = Tab::Node;
    settle(&mut h);
    assert!(has(&h, "i4 block 32 [32,1024]"), "{:#?}", texts(&h));
}

#[test]
fn a_page_says_why_a_kernel_is_slow() {
    let mut h = window_of(timed(), [1500.0, 1000.0]);
    h.get_by_label("Why?").click();
    h.run_steps(3);
    h.get_by_label("Why is this kernel slow?").click();
    settle(&mut h);
    // Nothing was selected, so it is the one that takes longest.
    let kernel = h.state().kernel();
    assert_eq!(kernel, h.state().trace().calls().last().expect("a dispatch").kernel);
    assert!(has(&h, "% of the run"), "{:#?}", texts(&h));
    assert!(has(&h, "The estimate is"), "{:#?}", texts(&h));
    // Each other choice of the schedule has its estimate.
    let others = h.state().trace().alternatives(kernel).expect("the trace has its schedule");
    let known = others.iter().find(|a| a.choice.is_some() && a.total().is_some()).expect("another choice");
    assert!(has(&h, &known.choice.as_ref().unwrap().to_string()), "{:#?}", texts(&h));
    h.get_by_label("Schedule").click();
    settle(&mut h);
    assert!(h.state().pages.shown.is_none() && h.state().kernel_pane.form == Form::Schedule);
}

#[test]
fn a_page_lists_what_fusion_left_with_its_reasons() {
    let model = "const @w : f32[16,16,3,3] = random(1)
graph @main(%x: f32[1,16,28,28]) -> (y: f32[1,16,28,28]) {
  %w = const @w
  %0 = conv %x, %w {pads=[1,1,1,1]} !from(\"one\")
  %1 = conv %0, %w {pads=[1,1,1,1]} !from(\"two\")
  %2 = conv %1, %w {pads=[1,1,1,1]} !from(\"three\")
  return %2
}
";
    let mut h = window_of(compiled_of(model, "left", FuseMode::Full), [1500.0, 1000.0]);
    let trips = h.state().trace().round_trips().expect("the trace has its stages");
    h.get_by_label("Why?").click();
    h.run_steps(3);
    h.get_by_label("What did fusion leave on the table?").click();
    settle(&mut h);
    let said = format!("{} results go from kernel to kernel through memory", trips.len());
    assert!(has(&h, &said), "{:#?}", texts(&h));
    let first = &trips[0];
    let why = first.why.first().expect("fusion says why");
    let label = h.state().trace().groups[first.from].label.clone();
    assert!(!texts(&h).contains(why), "the table has its beginning: {why}");
    h.get_all_by_label(&label).next().expect("its row").click();
    settle(&mut h);
    assert!(texts(&h).contains(why), "{why}: {:#?}", texts(&h));
    assert!(h.state().marks(&h.state().trace().groups[first.from].origins));
}

#[test]
fn a_page_says_why_a_result_is_wrong_and_which_node_to_keep() {
    use compiler::trace::{Errors, NodeError};
    let mut t = trace();
    let of = |name: &str, rel_l2: f64, pass: bool| NodeError {
        name: name.into(),
        rel_l2,
        max_abs: rel_l2,
        max_magnitude: 7e4,
        pass,
        accumulated: Some(rel_l2),
    };
    let nodes: Vec<NodeError> = t.sources.iter().map(|s| of(&s.name, 3e-2, false)).collect();
    let first = nodes[0].name.clone();
    t.errors = Some(Errors { tolerance: 1e-2, nodes, outputs: vec![of("y", 4e-2, false)], ..Errors::default() });
    let mut h = window_of(t, [1500.0, 1000.0]);
    h.state_mut().pages.shown = Some(crate::panes::pages::Page::Wrong);
    settle(&mut h);
    assert!(has(&h, "Result y: relative error 4.0e-2"), "{:#?}", texts(&h));
    assert!(has(&h, &format!("the first is {first}")), "{:#?}", texts(&h));
    assert!(has(&h, "f16 ends at 65504"), "{:#?}", texts(&h));
    h.key_press(Key::Escape);
    settle(&mut h);
    assert!(h.state().pages.shown.is_none(), "back to the graph");
}

#[test]
fn fusion_is_shown_with_both_sides_until_another_pass_is_chosen() {
    use crate::canvas::colour::ColourBy;
    let mut h = window([1400.0, 900.0]);
    let fused = h.state().stages_before_fusion() + 1;
    h.state_mut().go_to_stage(0);
    assert!(!h.state().compare);
    h.state_mut().go_to_stage(fused);
    assert!(h.state().compare && h.state().colour == ColourBy::Group);
    h.state_mut().go_to_stage(0);
    assert!(!h.state().compare && h.state().colour == ColourBy::Work);
    // What was chosen by hand stays.
    h.state_mut().go_to_stage(fused);
    h.state_mut().colour = ColourBy::Layout;
    h.state_mut().go_to_stage(0);
    assert!(h.state().compare && h.state().colour == ColourBy::Layout);
}
