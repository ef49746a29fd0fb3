//! A picture of the viewer without a window, for documents and bug reports.

use crate::export;
use crate::picture::{Piece, device};
use crate::start::{Fault, Shot, prepare, select};
use crate::{Viewer, show};
use compiler::trace::CompileTrace;
use egui_kittest::Harness;
use image::RgbaImage;
use std::time::{Duration, Instant};

/// How long laying out, compiling and measuring may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Draws the viewer on a trace.
///
/// # Errors
/// A damaged trace, a pass, a node or a view that is not there, no device to draw with.
pub fn screenshot(trace: CompileTrace, shot: &Shot) -> Result<RgbaImage, Fault> {
    drawn(trace, shot)?.render().map_err(Fault::Window)
}

/// The graph as SVG, as the viewer shows it; of a selected box that box alone.
///
/// # Errors
/// As for [`screenshot`].
pub fn graph_svg(trace: CompileTrace, shot: &Shot) -> Result<String, Fault> {
    Ok(piece(trace, shot)?.svg())
}

/// The same in pixels.
///
/// # Errors
/// As for [`screenshot`].
pub fn graph_png(trace: CompileTrace, shot: &Shot) -> Result<RgbaImage, Fault> {
    piece(trace, shot)?.png(shot.scale).map_err(Fault::Window)
}

/// The graph, or the selected box, open unless it was asked for as it is.
fn piece(trace: CompileTrace, shot: &Shot) -> Result<Piece, Fault> {
    let view = shot.view.clone().or(Some("graph".into()));
    let mut h = drawn(trace, &Shot { view, ..shot.clone() })?;
    let chosen = shot.select.as_ref().and_then(|_| h.state_mut().focus_node());
    if let Some(node) = &chosen {
        let closed = |v: &mut Viewer| match v.after() {
            Some(Ok(d)) => d.by_key.get(&node.key).is_some_and(|&i| {
                let b = &d.scene.boxes[i];
                b.can_open() && !b.open
            }),
            _ => false,
        };
        if !shot.closed && closed(h.state_mut()) {
            h.state_mut().toggle(&node.key);
            settle(&mut h)?;
        }
    }
    export::piece(h.state_mut(), chosen.as_ref().map(|n| n.key.as_str()), shot.dark).map_err(Fault::Asked)
}

/// The window with what is asked for, laid out.
pub(crate) fn drawn(trace: CompileTrace, shot: &Shot) -> Result<Harness<'static, Viewer>, Fault> {
    let mut viewer = Viewer::new(trace).map_err(|e| Fault::Asked(e.to_string()))?;
    prepare(&mut viewer, shot)?;
    let theme = if shot.dark { egui::Theme::Dark } else { egui::Theme::Light };
    let mut h = Harness::builder()
        .with_size(shot.size)
        .with_pixels_per_point(shot.scale)
        .with_theme(theme)
        .allow_missing_glyphs()
        .with_accessibility_check(false)
        .wgpu_setup(device())
        .build_ui_state(|ui, v: &mut Viewer| show(ui, v), viewer);
    settle(&mut h)?;
    if let Some(name) = &shot.select {
        select(h.state_mut(), name)?;
        settle(&mut h)?;
    }
    // Fitting needs the place that the canvas got.
    if shot.view.as_ref().is_some_and(|v| v.split(',').any(|word| word.trim() == "whole")) {
        h.state_mut().show_all();
        settle(&mut h)?;
    }
    Ok(h)
}

/// Runs frames until nothing is being laid out and nothing moves.
pub(crate) fn settle(h: &mut Harness<'_, Viewer>) -> Result<(), Fault> {
    let start = Instant::now();
    let mut quiet = 0;
    while quiet < 4 {
        h.step();
        quiet = if h.state_mut().busy() { 0 } else { quiet + 1 };
        if start.elapsed() > PATIENCE {
            return Err(Fault::Window("the window was still busy after ten minutes".into()));
        }
        if quiet == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Movements take less than a second of frames.
    h.run_steps(90);
    Ok(())
}
