//! The colours of all boxes of a scene, with their legend, and how single colours are made.

use egui::Color32;
use egui::ecolor::Hsva;
use std::collections::BTreeMap;

/// Colours of a scene's boxes, with their legend.
#[derive(Clone, Default)]
pub struct Palette {
    /// One for each box.
    pub fills: Vec<Color32>,
    /// Several colours of a box, side by side; empty for one with one colour. Empty if no box has several.
    pub stripes: Vec<Vec<Color32>>,
    /// What the colours say, over the legend.
    pub heading: String,
    /// The legend of the colours; the two ends for a scale.
    pub legend: Vec<(Color32, String)>,
    /// The colours run from the first of the legend to the last.
    pub scale: bool,
    /// What the legend says below.
    pub remarks: Vec<(Color32, String)>,
    /// A message if the trace lacks the data for these colours.
    pub missing: Option<&'static str>,
    /// Boxes of one region lie on one ground, with the edges between them; empty if there are no regions.
    pub regions: Vec<Option<usize>>,
    /// Colours of edges by the data layout of their value; empty for other maps.
    pub edges: BTreeMap<&'static str, Color32>,
    /// What a tag at a box says; empty if none has one.
    pub notes: Vec<Option<String>>,
}

/// A box without data.
pub(super) fn unknown(dark: bool) -> Color32 {
    if dark { Color32::from_gray(58) } else { Color32::from_gray(236) }
}

/// The colour for dark backgrounds: less light, and more of its hue.
pub(super) fn tuned(c: Color32, dark: bool) -> Color32 {
    if !dark {
        return c;
    }
    let Hsva { h, s, v, a } = c.into();
    // Greys stay grey.
    Hsva { h, s: if s < 0.08 { s } else { (1.5 * s + 0.12).min(1.0) }, v: 0.38 * v, a }.into()
}

/// A pastel; neighbours in number are far apart in hue.
pub fn pastel(number: usize, dark: bool) -> Color32 {
    let hue = (number as f32 * 0.618_034 + 0.58).fract();
    tuned(Hsva::new(hue, 0.36, 0.93, 1.0).into(), dark)
}
