//! Files that the viewer writes: the graph as SVG, the window as PNG, the times for Perfetto.

use crate::canvas::colour::Palette;
use crate::state::Viewer;
use std::path::{Path, PathBuf};

/// The kinds of exports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Export {
    /// The shown graph.
    Svg,
    /// The inside of the chosen box: a layer, a fused group, a branch.
    Inside,
    /// The content of the window.
    Png,
    /// The dispatches with their times.
    Perfetto,
    /// The whole trace as a page.
    Html,
}
impl Export {
    /// Every kind with its title and the end of its file's name.
    pub const ALL: [(Export, &'static str, &'static str); 5] = [
        (Export::Svg, "Graph as SVG", "svg"),
        (Export::Inside, "Chosen box as SVG", "svg"),
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
        Export::Svg => format!("-{stage}"),
        Export::Inside => format!("-{stage}-inside"),
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

/// The colours of boxes as the canvas has them, for a light ground.
fn colours(v: &Viewer, drawn: &crate::drawing::Drawn) -> Vec<String> {
    let delta = v.other.as_ref().map(|o| o.deltas[1].clone());
    let palette = Palette::new(v.document(), drawn, v.colour, delta.as_deref(), false);
    palette.fills.iter().map(|c| format!("#{:02x}{:02x}{:02x}", c.r(), c.g(), c.b())).collect()
}

/// The text of an export that needs no window.
///
/// # Errors
/// The trace lacks the data.
pub fn text(v: &mut Viewer, what: Export) -> Result<String, String> {
    match what {
        Export::Svg => {
            let drawn = v.after().ok_or("the graph is not laid out yet")??;
            Ok(graphview::svg::document(&drawn.scene, &colours(v, &drawn)))
        }
        Export::Inside => {
            let drawn = v.after().ok_or("the graph is not laid out yet")??;
            let node = v.focus_node().ok_or("no box is chosen")?;
            let chosen = drawn.by_key.get(&node.key).copied().ok_or("the chosen box is not in this graph")?;
            let key = |b: &graphview::scene::SceneBox| b.node.key.clone();
            let within: std::collections::BTreeSet<String> =
                node.inside.iter().flat_map(graphview::picture::Picture::walk).map(|n| n.key.clone()).collect();
            if !drawn.scene.boxes[chosen].open {
                return Err(format!("`{}` is closed, or has nothing inside: open it first", node.op));
            }
            let (scene, kept) = drawn.scene.part(&|b| b.node.key == node.key || within.contains(&key(b)));
            let fills = colours(v, &drawn);
            Ok(graphview::svg::document(&scene, &kept.into_iter().map(|i| fills[i].clone()).collect::<Vec<_>>()))
        }
        Export::Perfetto => graphview::timeline::perfetto(v.trace())
            .map(|json| json.to_string())
            .ok_or_else(|| "this trace has no times: `weft bench MODEL -o F.trace` stores them".to_string()),
        Export::Html => graphview::report::report(v.trace()).map_err(|e| e.to_string()),
        Export::Png => Err("a picture needs a window".into()),
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
    match text(v, what).and_then(|text| std::fs::write(&path, text).map_err(|e| format!("cannot write {place}: {e}"))) {
        Ok(()) => format!("wrote {place}"),
        Err(why) => why,
    }
}
