//! `weft view`: a compilation in a window.

#[cfg(feature = "view")]
mod live;

use crate::args::ViewArgs;
use compiler::trace::CompileTrace;
#[cfg(feature = "view")]
use workbench::progress::log;
use workbench::{Code, Error, Result};

/// Opens the viewer on a trace, or on that of a model compiled now.
pub fn execute(a: &ViewArgs) -> Result<()> {
    if let Some(path) = a.screenshot.as_ref().or(a.output.as_ref()) {
        workbench::written::verify_writable(path)?;
    }
    let mut trace = workbench::shown::trace(&a.model, &a.input, &a.common)?;
    trace.overlay = a.overlay.as_deref().map(|f| workbench::overlay::read(f, &trace, &a.common)).transpose()?;
    let beside = a.beside.as_deref().map(|b| workbench::shown::beside(&a.model, b, &a.input, &a.common)).transpose()?;
    show(trace, beside, a)
}

#[cfg(feature = "view")]
fn show(trace: CompileTrace, beside: Option<CompileTrace>, a: &ViewArgs) -> Result<()> {
    let shot = viewer::Shot {
        size: a.size,
        scale: a.pixels,
        dark: a.dark,
        pass: a.pass.clone(),
        select: a.select.clone(),
        closed: a.closed,
        view: a.view.clone(),
        colour: a.colour.clone(),
        search: a.search.clone(),
        names: a.beside.as_ref().map(|b| [a.model.clone(), b.display().to_string()]),
        beside: beside.map(Box::new),
    };
    if let Some(path) = &a.steps {
        return walk(path, trace, &shot, a);
    }
    match (&a.screenshot, &a.output) {
        (Some(path), _) => draw(path, a, || viewer::screenshot(trace, &shot)),
        (None, Some(path)) if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("svg")) => {
            let svg = viewer::graph_svg(trace, &shot).map_err(fault)?;
            workbench::written::write_file(path, svg.as_bytes())?;
            log(&a.common, format!("wrote the graph to {}", path.display()));
            Ok(())
        }
        (None, Some(path)) => draw(path, a, || viewer::graph_png(trace, &shot)),
        (None, None) => open(trace, &shot, a),
    }
}

/// The model and a device, for the window.
#[cfg(feature = "view")]
fn machine(trace: &CompileTrace, a: &ViewArgs) -> std::sync::Arc<live::Machine> {
    std::sync::Arc::new(live::Machine::new(&a.common, &a.input, trace))
}

/// Drives the window with the steps of a file.
#[cfg(feature = "view")]
fn walk(path: &std::path::Path, trace: CompileTrace, shot: &viewer::Shot, a: &ViewArgs) -> Result<()> {
    let steps =
        weft::plain_files::read_text(path).map_err(|e| Error::input(format!("--steps {}: {e}", path.display())))?;
    let machine = machine(&trace, a);
    let mut told = Ok(());
    let mut tell = |line: &str| {
        if told.is_ok() {
            told = crate::output::print_text(line);
        }
    };
    viewer::steps::walk(trace, shot, machine, &steps, &mut tell).map_err(|why| match why {
        viewer::Fault::Asked(why) => Error::new(Code::Check, format!("{}: {why}", path.display())),
        other => fault(other),
    })?;
    told
}

/// Opens the window.
#[cfg(feature = "view")]
fn open(trace: CompileTrace, shot: &viewer::Shot, a: &ViewArgs) -> Result<()> {
    let machine = machine(&trace, a);
    viewer::open(trace, shot, machine).map_err(|why| match why {
        viewer::Fault::Asked(why) => Error::usage(why),
        viewer::Fault::Window(why) => Error::new(Code::Device, format!("the window does not open: {why}"))
            .help("it needs a display; `--screenshot F.png`, `-o F.svg` and `weft report` need none"),
    })
}

#[cfg(feature = "view")]
fn fault(why: viewer::Fault) -> Error {
    match why {
        viewer::Fault::Asked(why) => Error::usage(why),
        viewer::Fault::Window(why) => Error::new(Code::Device, format!("the picture cannot be drawn: {why}")),
    }
}

/// Writes a picture of pixels.
#[cfg(feature = "view")]
fn draw(
    path: &std::path::Path,
    a: &ViewArgs,
    picture: impl FnOnce() -> Result<image::RgbaImage, viewer::Fault>,
) -> Result<()> {
    if runtime_gpu::list_adapters().is_empty() {
        return Err(Error::new(Code::Device, "there is no device to draw with").help(
            "a Vulkan driver gives one, in software too: the package mesa-vulkan-drivers; `-o F.svg` and `weft report` need none",
        ));
    }
    let picture = picture().map_err(fault)?;
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).map_err(|e| Error::new(Code::Bug, e.to_string()))?;
    workbench::written::write_file(path, bytes.get_ref())?;
    let [w, h] = [picture.width(), picture.height()];
    log(&a.common, format!("wrote {w}x{h} pixels to {}", path.display()));
    Ok(())
}

#[cfg(not(feature = "view"))]
fn show(_: CompileTrace, _: Option<CompileTrace>, _: &ViewArgs) -> Result<()> {
    Err(Error::new(Code::Usage, "this build has no viewer").help(
        "build with `cargo build --release --package weft-command --features view`; `weft inspect` and `weft explain` show traces as text",
    ))
}
