//! `weft view`: a compilation in a window.

#[cfg(feature = "view")]
mod live;

use crate::args::ViewArgs;
use crate::error::{CliError, CliResult, Code};
#[cfg(feature = "view")]
use crate::output::log;
use compiler::trace::CompileTrace;

/// Opens the viewer on a trace, or on that of a model compiled now.
pub fn execute(a: &ViewArgs) -> CliResult<()> {
    if let Some(path) = a.screenshot.as_ref().or(a.output.as_ref()) {
        crate::output::verify_writable(path)?;
    }
    let trace = crate::shown::trace(&a.model, &a.input, &a.common)?;
    let beside = a.beside.as_deref().map(crate::trace::read).transpose()?;
    show(trace, beside, a)
}

#[cfg(feature = "view")]
fn show(trace: CompileTrace, beside: Option<CompileTrace>, a: &ViewArgs) -> CliResult<()> {
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
            crate::output::write_file(path, svg.as_bytes())?;
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
    let given: Vec<String> = std::env::args().skip_while(|a| a != "view").skip(1).collect();
    std::sync::Arc::new(live::Machine::new(&given, &a.model, trace, &a.common))
}

/// Drives the window with the steps of a file.
#[cfg(feature = "view")]
fn walk(path: &std::path::Path, trace: CompileTrace, shot: &viewer::Shot, a: &ViewArgs) -> CliResult<()> {
    let steps =
        weft::plain_files::read_text(path).map_err(|e| CliError::input(format!("--steps {}: {e}", path.display())))?;
    let machine = machine(&trace, a);
    let mut told = Ok(());
    let mut tell = |line: &str| {
        if told.is_ok() {
            told = crate::output::print_text(line);
        }
    };
    viewer::steps::walk(trace, shot, machine, &steps, &mut tell).map_err(|why| match why {
        viewer::Fault::Asked(why) => CliError::new(Code::Check, format!("{}: {why}", path.display())),
        other => fault(other),
    })?;
    told
}

/// Opens the window.
#[cfg(feature = "view")]
fn open(trace: CompileTrace, shot: &viewer::Shot, a: &ViewArgs) -> CliResult<()> {
    let machine = machine(&trace, a);
    viewer::open(trace, shot, machine).map_err(|why| match why {
        viewer::Fault::Asked(why) => CliError::usage(why),
        viewer::Fault::Window(why) => CliError::new(Code::Device, format!("the window does not open: {why}"))
            .help("it needs a display; `--screenshot F.png`, `-o F.svg` and `weft report` need none"),
    })
}

#[cfg(feature = "view")]
fn fault(why: viewer::Fault) -> CliError {
    match why {
        viewer::Fault::Asked(why) => CliError::usage(why),
        viewer::Fault::Window(why) => CliError::new(Code::Device, format!("the picture cannot be drawn: {why}")),
    }
}

/// Writes a picture of pixels.
#[cfg(feature = "view")]
fn draw(
    path: &std::path::Path,
    a: &ViewArgs,
    picture: impl FnOnce() -> Result<image::RgbaImage, viewer::Fault>,
) -> CliResult<()> {
    if runtime_gpu::list_adapters().is_empty() {
        return Err(CliError::new(Code::Device, "there is no device to draw with").help(
            "a Vulkan driver gives one, in software too: the package mesa-vulkan-drivers; `-o F.svg` and `weft report` need none",
        ));
    }
    let picture = picture().map_err(fault)?;
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).map_err(|e| CliError::new(Code::Bug, e.to_string()))?;
    crate::output::write_file(path, bytes.get_ref())?;
    let [w, h] = [picture.width(), picture.height()];
    log(&a.common, format!("wrote {w}x{h} pixels to {}", path.display()));
    Ok(())
}

#[cfg(not(feature = "view"))]
fn show(_: CompileTrace, _: Option<CompileTrace>, _: &ViewArgs) -> CliResult<()> {
    Err(CliError::new(Code::Usage, "this build has no viewer").help(
        "build with `cargo build --release --package weft-command --features view`; `weft inspect` and `weft explain` show traces as text",
    ))
}
