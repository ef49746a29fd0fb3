//! Frames of a network of 10,000 nodes: what they look at grows with what is in sight, not with the network.

use super::*;
use crate::canvas::colour::ColourBy;
use crate::once::take_looked_at;
use crate::panes::kernel::Form;
use crate::panes::pages::{Page, open};
use crate::panes::time::Part;
use compiler::trace::{Errors, NodeError};
use std::fmt::Write;

const NODES: usize = 10_000;
/// Nodes, kernels and lines that a frame may look at for each box, edge or row in sight.
const EACH: usize = 20;
/// And for what a window always has: the passes, the forms, the facts of one box.
const ALWAYS: usize = 200;

/// Blocks of convolution, ReLU, convolution and sum in 25 layers.
fn network() -> String {
    let mut out = String::from(
        "const @w : f32[8,8,1,1] = splat(0.1)\ngraph @main(%x: f32[1,8,4,4]) -> (y: f32[1,8,4,4]) {\n  %w = const @w\n",
    );
    let mut last = "%x".to_string();
    for block in 0..NODES / 4 {
        let (n, path) = (4 * block, format!("stage{}.block{block}", block / 100));
        let named = |op: &str| format!("!name(\"{path}.{op}\") !from(\"{path}.{op}\")");
        let skip = if block % 10 == 9 { format!("%{}", n - 21) } else { last.clone() };
        let _ = writeln!(out, "  %{n} = conv {last}, %w {}", named("conv1"));
        let _ = writeln!(out, "  %{} = relu %{n} {}", n + 1, named("relu"));
        let _ = writeln!(out, "  %{} = conv %{}, %w {}", n + 2, n + 1, named("conv2"));
        let _ = writeln!(out, "  %{} = add %{}, {skip} {}", n + 3, n + 2, named("add"));
        last = format!("%{}", n + 3);
    }
    let _ = writeln!(out, "  return {last}\n}}");
    out
}

/// Its trace with times and errors.
fn large() -> CompileTrace {
    let mut t = compiled_of(&network(), "large", FuseMode::Full);
    let one = |i: usize| {
        let us = 10.0 + (i % 37) as f64;
        DispatchTime { us, min_us: us, max_us: us }
    };
    let dispatches: Vec<DispatchTime> = (0..t.calls().count()).map(one).collect();
    let device_ms = dispatches.iter().map(|d| d.us / 1e3).sum();
    t.times = Some(Times { dispatches, latency_ms: device_ms, device_ms, ..Times::default() });
    let error = |(i, name): (usize, String)| {
        let rel_l2 = 1e-5 * (1 + i % 97) as f64;
        NodeError { name, rel_l2, accumulated: Some(2.0 * rel_l2), pass: true, ..NodeError::default() }
    };
    let names = t.sources.iter().map(|s| s.name.clone()).enumerate();
    let nodes: Vec<NodeError> = names.map(error).collect();
    t.errors = Some(Errors { tolerance: 1e-3, nodes, ..Errors::default() });
    t
}

/// Frames at rest, and with the pointer on the graph and on the pane.
fn hold(h: &mut TestWindow, what: &str) {
    settle(h);
    for at in [[1590.0, 5.0], [600.0, 420.0], [1300.0, 480.0]] {
        h.hover_at(egui::pos2(at[0], at[1]));
        h.run_steps(3);
        take_looked_at();
        h.step();
        let [looked_at, seen] = take_looked_at();
        assert!(seen > 0, "{what}: nothing was counted");
        assert!(looked_at <= EACH * seen + ALWAYS, "{what}: a frame looks at {looked_at} for {seen} in sight");
    }
}

#[test]
fn a_frame_of_ten_thousand_nodes_looks_at_what_is_in_sight() {
    let mut h = window_of(large(), [1600.0, 900.0]);
    assert_eq!(h.state().trace().sources.len(), NODES);
    let layer: Vec<String> = (300..400).map(|b| format!("stage3.block{b}.conv1")).collect();
    let all: Vec<String> = h.state().trace().sources.iter().map(|s| s.name.clone()).collect();
    let selections = [("nothing", vec![]), ("a node", vec![layer[5].clone()]), ("a layer", layer), ("all", all)];
    for (chosen, nodes) in selections {
        h.state_mut().select(nodes);
        for (tab, title) in Tab::ALL.into_iter().filter(|t| t.0 != Tab::Difference) {
            h.state_mut().tab = tab;
            for own in [false, true] {
                h.state_mut().only_selected = own;
                hold(&mut h, &format!("{title}, {chosen} selected, only what is selected: {own}"));
            }
        }
        h.state_mut().only_selected = false;
        for part in [Part::Table, Part::Timeline, Part::Roofline] {
            (h.state_mut().tab, h.state_mut().time_pane.part) = (Tab::Time, part);
            hold(&mut h, &format!("{part:?}, {chosen} selected"));
        }
        for form in Form::ALL.map(|f| f.0) {
            (h.state_mut().tab, h.state_mut().kernel_pane.form) = (Tab::Kernel, form);
            hold(&mut h, &format!("{form:?}, {chosen} selected"));
        }
        for (page, title, _) in Page::ALL {
            open(h.state_mut(), page);
            hold(&mut h, &format!("page {title}, {chosen} selected"));
        }
        h.state_mut().pages.shown = None;
    }
}

#[test]
fn a_frame_of_two_compilations_looks_at_what_is_in_sight() {
    let mut h = window_of(large(), [1600.0, 900.0]);
    let other = large();
    h.state_mut().compare_with(other).unwrap();
    let all: Vec<String> = h.state().trace().sources.iter().map(|s| s.name.clone()).collect();
    for (chosen, nodes) in [("nothing", vec![]), ("a node", vec![all[5].clone()]), ("all", all)] {
        h.state_mut().select(nodes);
        h.state_mut().tab = Tab::Difference;
        hold(&mut h, &format!("difference, {chosen} selected"));
    }
}

#[test]
fn the_graph_of_ten_thousand_nodes_is_drawn_where_it_is_in_sight() {
    let mut h = window_of(large(), [1600.0, 900.0]);
    h.state_mut().dock = false;
    for (by, word, _) in ColourBy::ALL.into_iter().filter(|c| c.0 != ColourBy::Difference) {
        h.state_mut().colour = by;
        hold(&mut h, &format!("layers by {word}"));
    }
    let before = h.state().stages_before_fusion();
    for (stage, flat, compare) in [(None, true, false), (Some(before), true, false), (None, false, true)] {
        let last = h.state().document().last_graph();
        h.state_mut().show_stage(stage.unwrap_or(last));
        (h.state_mut().colour, h.state_mut().compare) = (ColourBy::Group, compare);
        if h.state().flat != flat {
            h.state_mut().turn_flat();
        }
        hold(&mut h, &format!("stage {stage:?}, every node by itself: {flat}, both sides: {compare}"));
        h.state_mut().search.text = "op:relu".into();
        hold(&mut h, "a search");
        h.state_mut().search.text.clear();
    }
}
