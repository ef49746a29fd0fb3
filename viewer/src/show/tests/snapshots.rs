//! Compares pictures of the main views with `tests/snapshots`; `UPDATE_SNAPSHOTS=1` writes them again.

use super::*;
use crate::panes::kernel::Form;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Draws and compares, where there is a device to draw with.
fn hold(h: &mut TestWindow, name: &str) {
    // The renderer panics where there is no device at all.
    if catch_unwind(AssertUnwindSafe(|| h.render())).is_err() {
        eprintln!("!!! {name} is not drawn: there is no device");
        return;
    }
    h.snapshot(name);
}

#[test]
fn the_fused_graph_with_a_node() {
    let mut h = window_of(timed(), [1000.0, 640.0]);
    h.state_mut().select(["relu_1".to_string()]);
    settle(&mut h);
    hold(&mut h, "node");
}

#[test]
fn before_and_after_fusion() {
    let mut h = window_of(timed(), [1000.0, 640.0]);
    let stage = h.state().trace().stages.iter().position(|s| s.label == "fuse-ops").unwrap();
    h.state_mut().show_stage(stage);
    (h.state_mut().compare, h.state_mut().dock) = (true, false);
    settle(&mut h);
    hold(&mut h, "compare");
}

#[test]
fn a_kernel_in_the_dark() {
    let mut h = window_of(timed(), [1000.0, 640.0]);
    h.ctx.set_theme(egui::Theme::Dark);
    h.state_mut().select(["relu_1".to_string()]);
    h.state_mut().tab = Tab::Kernel;
    settle(&mut h);
    hold(&mut h, "kernel");
}

#[test]
fn forms_of_a_kernel_side_by_side() {
    let mut h = window_of(timed(), [1200.0, 640.0]);
    h.state_mut().select(["relu_1".to_string()]);
    h.state_mut().kernel_pane.wide = true;
    settle(&mut h);
    hold(&mut h, "kernels");
}

#[test]
fn all_values_of_a_choice_with_the_old_and_the_new_shader() {
    let mut h = changing::schedule();
    h.state_mut().kernel_pane.wide = true;
    h.state_mut().kernel_pane.columns = vec![Form::Schedule, Form::Wgsl];
    settle(&mut h);
    h.query_all_by_label_contains("all values of").last().expect("a choice of several values").click();
    settle(&mut h);
    let point = texts(&h).iter().find_map(|t| t.strip_prefix("All values of ").map(str::to_string)).unwrap();
    let rows: Vec<String> = texts(&h).into_iter().filter(|t| t.starts_with(&format!("{point} "))).collect();
    h.get_by_label(rows.first().expect("a value")).click();
    settle(&mut h);
    hold(&mut h, "values");
}

#[test]
fn two_compilations_with_a_verdict() {
    let mut h = window_of(timed(), [1200.0, 640.0]);
    h.state_mut().compare_with(compiled("small", FuseMode::Off)).unwrap();
    h.state_mut().tab = Tab::Difference;
    settle(&mut h);
    hold(&mut h, "difference");
}

#[test]
fn where_the_time_goes() {
    let mut h = window_of(timed(), [1000.0, 640.0]);
    (h.state_mut().tab, h.state_mut().colour) = (Tab::Time, ColourBy::Time);
    settle(&mut h);
    hold(&mut h, "time");
}
