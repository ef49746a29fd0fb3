//! Colours of boxes and their meanings.

use crate::document::Document;
use crate::drawing::Drawn;
pub use crate::units::{milliseconds, si};
use egui::Color32;
use graphview::picture::{Category, Node};
use graphview::svg::fill;
use std::collections::BTreeMap;

/// The meaning of the colour of a box.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColourBy {
    /// The kind of work.
    Work,
    /// The fused group.
    Group,
    /// The element type of the result.
    Dtype,
    /// The data layout.
    Layout,
    /// The time on the device.
    Time,
    /// The error against a reference.
    Error,
}
impl ColourBy {
    /// Every choice with its title.
    pub const ALL: [(ColourBy, &'static str); 6] = [
        (ColourBy::Work, "kind of work"),
        (ColourBy::Group, "fused group"),
        (ColourBy::Dtype, "element type"),
        (ColourBy::Layout, "data layout"),
        (ColourBy::Time, "time"),
        (ColourBy::Error, "error"),
    ];
}

/// Colours of a scene's boxes, with their legend.
#[derive(Clone, Default)]
pub struct Palette {
    /// One for each box.
    pub fills: Vec<Color32>,
    /// The legend of the colours; the two ends for a scale.
    pub legend: Vec<(Color32, String)>,
    /// The colours run from the first of the legend to the last.
    pub scale: bool,
    /// A message if the trace lacks the data for these colours.
    pub missing: Option<&'static str>,
}

/// A box without data.
fn unknown(dark: bool) -> Color32 {
    if dark { Color32::from_gray(58) } else { Color32::from_gray(236) }
}

/// Less light for dark backgrounds.
fn tuned(c: Color32, dark: bool) -> Color32 {
    if dark { c.lerp_to_gamma(Color32::from_gray(24), 0.58) } else { c }
}

fn parse(hex: &str) -> Color32 {
    Color32::from_hex(hex).unwrap_or(Color32::GRAY)
}

/// A pastel; neighbours in number are far apart in hue.
pub fn pastel(number: usize, dark: bool) -> Color32 {
    let hue = (number as f32 * 0.618_034 + 0.58).fract();
    tuned(egui::ecolor::Hsva::new(hue, 0.36, 0.93, 1.0).into(), dark)
}

/// A colour of the heat scale, for 0 to 1.
pub fn heat(share: f32, dark: bool) -> Color32 {
    const LIGHT: [&str; 5] = ["#fff7ec", "#fdd49e", "#fc8d59", "#d7301f", "#7f0000"];
    const DARK: [&str; 5] = ["#2c2a33", "#5b2a4a", "#a8324a", "#e8663c", "#ffd27a"];
    let stops = if dark { DARK } else { LIGHT };
    let at = share.clamp(0.0, 1.0) * (stops.len() - 1) as f32;
    let i = (at as usize).min(stops.len() - 2);
    parse(stops[i]).lerp_to_gamma(parse(stops[i + 1]), at - i as f32)
}

impl Palette {
    /// Of a scene.
    pub fn new(document: &Document, drawn: &Drawn, by: ColourBy, dark: bool) -> Palette {
        let nodes: Vec<&Node> = drawn.scene.boxes.iter().map(|b| &b.node).collect();
        match by {
            ColourBy::Work => by_work(&nodes, dark),
            ColourBy::Group => by_group(document, &nodes, dark),
            ColourBy::Dtype => by_word(&nodes, dark, |n| (!n.dtype.is_empty()).then(|| n.dtype.clone())),
            ColourBy::Layout => by_layout(&nodes, dark),
            ColourBy::Time => by_time(document, &nodes, dark),
            ColourBy::Error => by_error(document, &nodes, dark),
        }
    }
}

fn by_work(nodes: &[&Node], dark: bool) -> Palette {
    let colour = |c: Category| tuned(parse(fill(c)), dark);
    let used: Vec<Category> = Category::ALL.into_iter().filter(|c| nodes.iter().any(|n| n.work == *c)).collect();
    Palette {
        fills: nodes.iter().map(|n| colour(n.work)).collect(),
        legend: used.into_iter().map(|c| (colour(c), c.title().to_string())).collect(),
        ..Palette::default()
    }
}

fn by_group(document: &Document, nodes: &[&Node], dark: bool) -> Palette {
    let one = |n: &&Node| match document.groups_of(n).as_slice() {
        [] => unknown(dark),
        [first, ..] => pastel(*first, dark),
    };
    let legend = vec![(pastel(0, dark), "one colour for each fused group".into()), (unknown(dark), "in none".into())];
    Palette { fills: nodes.iter().map(one).collect(), legend, ..Palette::default() }
}

fn by_word(nodes: &[&Node], dark: bool, word: impl Fn(&Node) -> Option<String>) -> Palette {
    let words: BTreeMap<String, usize> = nodes.iter().filter_map(|n| word(n)).map(|w| (w, 0)).collect();
    let words: Vec<String> = words.into_keys().collect();
    let number = |w: &String| words.iter().position(|x| x == w).unwrap_or(0);
    let one = |n: &&Node| word(n).map_or(unknown(dark), |w| pastel(number(&w), dark));
    Palette {
        fills: nodes.iter().map(one).collect(),
        legend: words.iter().map(|w| (pastel(number(w), dark), w.clone())).collect(),
        ..Palette::default()
    }
}

/// Tensors that are no images (vectors, matrices, transformed tiles) have no data layout, which the legend says.
fn by_layout(nodes: &[&Node], dark: bool) -> Palette {
    let mut p = by_word(nodes, dark, |n| n.layout.map(str::to_string));
    match p.legend.is_empty() {
        true => p.missing = Some("no box here has a data layout"),
        false if nodes.iter().any(|n| n.layout.is_none()) => p.legend.push((unknown(dark), "no layout".into())),
        false => {}
    }
    p
}

fn by_time(document: &Document, nodes: &[&Node], dark: bool) -> Palette {
    let Some(longest) = document.longest().filter(|t| *t > 0.0) else {
        let fills = vec![unknown(dark); nodes.len()];
        let missing = Some("this trace has no times: `weft bench MODEL -o F.trace` stores them");
        return Palette { fills, missing, ..Palette::default() };
    };
    // Among hundreds of kernels a few take most of the time: the root keeps the others apart.
    let share = |ms: f64| (ms / longest).sqrt() as f32;
    let one = |n: &&Node| document.time_of(n).map_or(unknown(dark), |ms| heat(share(ms), dark));
    let at = |part: f64| (heat(share(longest * part), dark), milliseconds(longest * part));
    let legend = vec![(heat(0.0, dark), "0".to_string()), at(0.0625), at(0.25), at(0.5625), at(1.0)];
    Palette { fills: nodes.iter().map(one).collect(), legend, scale: true, missing: None }
}

fn by_error(document: &Document, nodes: &[&Node], dark: bool) -> Palette {
    let missing = "this trace has no errors: `weft compare MODEL -o F.trace` stores them";
    if document.trace().errors.is_none() {
        return Palette { fills: vec![unknown(dark); nodes.len()], missing: Some(missing), ..Palette::default() };
    }
    // Decades from 1e-8, about f32's rounding, to 1.
    let share = |e: f64| ((e.max(1e-8).log10() + 8.0) / 8.0) as f32;
    let one = |n: &&Node| document.error_of(n).map_or(unknown(dark), |(e, _)| heat(share(e), dark));
    let legend = [1e-8, 1e-6, 1e-4, 1e-2, 1.0].map(|e| (heat(share(e), dark), format!("{e:.0e}"))).to_vec();
    Palette { fills: nodes.iter().map(one).collect(), legend, scale: true, missing: None }
}
