//! Files that the viewer writes: pictures of the graph, of a box and of the window, the times for Perfetto.

use crate::canvas::colour::ColourBy;
use crate::picture::{Look, Piece};
use crate::state::Viewer;
use std::path::{Path, PathBuf};

/// The kinds of exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Export {
    /// The shown graph.
    Svg,
    /// The same in pixels.
    GraphPng,
    /// The chosen box as it is shown, folded or open: a layer, a fused group, a branch.
    BoxSvg,
    /// The same in pixels.
    BoxPng,
    /// The content of the window.
    Png,
    /// The dispatches with their times.
    Perfetto,
    /// The whole trace as a page.
    Html,
}
impl Export {
    /// Every kind with its title and the end of its file's name.
    pub const ALL: [(Export, &'static str, &'static str); 7] = [
        (Export::Svg, "Graph as SVG", "svg"),
        (Export::GraphPng, "Graph as PNG", "png"),
        (Export::BoxSvg, "Chosen box as SVG", "svg"),
        (Export::BoxPng, "Chosen box as PNG", "png"),
        (Export::Png, "Window as PNG", "png"),
        (Export::Perfetto, "Times for Perfetto (JSON)", "perfetto.json"),
        (Export::Html, "Report as HTML", "html"),
    ];
    fn ending(self) -> &'static str {
        Export::ALL.iter().find(|e| e.0 == self).map_or("", |e| e.2)
    }
}

/// A name for a new file: nothing that is there is written over.
fn fresh(v: &Viewer, what: Export) -> PathBuf {
    let stage = v.trace().stages.get(v.stage()).map_or("", |s| s.label.as_str());
    let stage = match what {
        Export::Svg | Export::GraphPng => format!("-{stage}"),
        Export::BoxSvg | Export::BoxPng => format!("-{stage}-box"),
        _ => String::new(),
    };
    fresh_name(v, &stage, what.ending())
}

fn fresh_name(v: &Viewer, stage: &str, ending: &str) -> PathBuf {
    let stem: String = Path::new(&v.trace().model).file_stem().map_or("model".into(), |s| s.to_string_lossy().into());
    let name = |n: usize| match n {
        0 => PathBuf::from(format!("{stem}{stage}.{ending}")),
        n => PathBuf::from(format!("{stem}{stage}-{n}.{ending}")),
    };
    (0..).map(|n| v.folder.join(name(n))).find(|p| !p.exists()).unwrap_or_default()
}

/// The shown graph with its colours, or the box with this key alone.
///
/// # Errors
/// The graph is not laid out, or has no such box in sight.
pub(crate) fn piece(v: &mut Viewer, key: Option<&str>, dark: bool) -> Result<Piece, String> {
    let drawn = v.after().ok_or("the graph is not laid out yet")??;
    let document = v.document().clone();
    let look = Look {
        by: v.colour,
        delta: v.other.as_ref().map(|o| o.deltas[1].clone()),
        marks: v.compared().filter(|c| c.telling).map(|c| c.after.clone()),
        strong_marks: v.compare && v.colour != ColourBy::Difference,
        found: v.search.find(&document, &drawn),
        dark,
    };
    Piece::new(&document, &drawn, key, look)
}

/// What a picture of the graph shows, or of the chosen box.
fn asked(v: &mut Viewer, what: Export, dark: bool) -> Result<Piece, String> {
    let key = match what {
        Export::BoxSvg | Export::BoxPng => Some(v.focus_node().ok_or("no box is chosen")?.key),
        _ => None,
    };
    piece(v, key.as_deref(), dark)
}

/// The text of an export.
///
/// # Errors
/// The trace lacks the data, or it is a picture of pixels.
pub fn text(v: &mut Viewer, what: Export, dark: bool) -> Result<String, String> {
    match what {
        Export::Svg | Export::BoxSvg => Ok(asked(v, what, dark)?.svg()),
        Export::Perfetto => graphview::timeline::perfetto(v.trace())
            .map(|json| json.to_string())
            .ok_or_else(|| "this trace has no times: `weft bench MODEL -o F.trace` stores them".to_string()),
        Export::Html => graphview::report::report(v.trace()).map_err(|e| e.to_string()),
        Export::Png | Export::GraphPng | Export::BoxPng => Err("this is a picture of pixels".into()),
    }
}

/// Writes text into a new file that is called after the model, and says where it is.
pub fn save(v: &Viewer, ending: &str, text: &str) -> String {
    let path = fresh_name(v, "", ending);
    match std::fs::write(&path, text) {
        Ok(()) => format!("wrote {}", path.display()),
        Err(why) => format!("cannot write {}: {why}", path.display()),
    }
}

/// Writes a file, and says where it is.
pub fn write(v: &mut Viewer, ctx: &egui::Context, what: Export) -> String {
    let path = fresh(v, what);
    let place = path.display().to_string();
    if what == Export::Png {
        let asked = place.clone();
        ctx.request_screenshot(move |image| {
            let size = image.size.map(|n| n as u32);
            let bytes = image.pixels.iter().flat_map(|p| p.to_array()).collect();
            let saved = image::RgbaImage::from_raw(size[0], size[1], bytes).map(|i| i.save(&path));
            if let Some(Err(why)) = saved {
                eprintln!("cannot write {asked}: {why}");
            }
        });
        return format!("wrote {place}");
    }
    let dark = ctx.global_style().visuals.dark_mode;
    let done = match what {
        Export::GraphPng | Export::BoxPng => asked(v, what, dark)
            .and_then(|p| p.png(ctx.pixels_per_point())?.save(&path).map_err(|e| format!("cannot write {place}: {e}"))),
        _ => text(v, what, dark)
            .and_then(|text| std::fs::write(&path, text).map_err(|e| format!("cannot write {place}: {e}"))),
    };
    match done {
        Ok(()) => format!("wrote {place}"),
        Err(why) => why,
    }
}
