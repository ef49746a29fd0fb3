//! Colours of values: those that a file gave nodes, and how near magnitudes come to the ends of f16.

use super::palette::{Palette, pastel, unknown};
use super::scale::{beyond, diverging, heat};
use crate::document::Document;
use crate::units::milliseconds;
use egui::Color32;
use graphview::figures::magnitude;
use graphview::picture::Node;

/// Words that the legend lists.
const WORDS: usize = 12;
/// The largest number of f16, and the least that has all of its digits.
const F16: [f64; 2] = [65504.0, 6.103_515_6e-5];
/// Nodes whose results reach this share of the largest number stay in f32 with `--amp auto`.
const NEAR: f64 = 0.25;
/// A share of elements that is worth a tag where f16 makes them subnormal or 0.
const MANY: f64 = 0.01;

/// A palette without data.
fn missing(nodes: &[&Node], dark: bool, why: &'static str) -> Palette {
    Palette { fills: vec![unknown(dark); nodes.len()], missing: Some(why), ..Palette::default() }
}

/// Values of a file: numbers on a scale from the least to the largest, words each in a colour.
pub(super) fn by_overlay(document: &Document, nodes: &[&Node], dark: bool) -> Palette {
    let Some(overlay) = &document.trace().overlay else {
        return missing(nodes, dark, "no file gives values: `weft view MODEL --overlay F.json` reads one");
    };
    let numbers: Vec<Option<f64>> = nodes.iter().map(|n| overlay.number(names(n))).collect();
    let words: Vec<Vec<&str>> = nodes.iter().map(|n| overlay.words(names(n))).collect();
    let mut all: Vec<&str> = words.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    let colour = |w: &str| pastel(all.iter().position(|x| *x == w).unwrap_or(0), dark);
    let finite = || numbers.iter().flatten().copied().filter(|x| x.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let low = if overlay.times { 0.0 } else { low };
    let share = |x: f64| {
        let linear = (x - low) / (high - low).max(f64::MIN_POSITIVE);
        // Among hundreds of nodes a few take most of the time: the root keeps the others apart.
        if overlay.times { linear.sqrt() as f32 } else { linear as f32 }
    };
    let say = |x: f64| if overlay.times { milliseconds(x) } else { magnitude(x) };
    let fill = |(x, w): (&Option<f64>, &Vec<&str>)| match (x, w.first()) {
        (Some(x), _) if x.is_finite() => heat(share(*x), dark),
        (Some(_), _) => beyond(0.8, dark),
        (None, Some(w)) => colour(w),
        (None, None) => unknown(dark),
    };
    let note = |(x, w): (&Option<f64>, &Vec<&str>)| x.map(say).or_else(|| (!w.is_empty()).then(|| w.join(", ")));
    let scale = low.is_finite() && high.is_finite();
    let part = |p: f64| low + (high - low) * if overlay.times { p * p } else { p };
    let legend = match scale {
        true => [0.0, 0.25, 0.5, 0.75, 1.0].map(|p| (heat(p as f32, dark), say(part(p)))).to_vec(),
        false => all.iter().take(WORDS).map(|w| (colour(w), w.to_string())).collect(),
    };
    let mut remarks = vec![(unknown(dark), "no value".to_string())];
    if overlay.strays > 0 {
        let text = format!("names of the file that are no nodes here: {}", overlay.strays);
        remarks.push((Color32::TRANSPARENT, text));
    }
    let several = |(x, w): (&Option<f64>, &Vec<&str>)| match (x, w.len()) {
        (None, 2..) => w.iter().map(|w| colour(w)).collect(),
        _ => vec![],
    };
    let each = || numbers.iter().zip(&words);
    Palette {
        fills: each().map(fill).collect(),
        stripes: each().map(several).collect(),
        notes: each().map(note).collect(),
        heading: overlay.title.clone(),
        legend,
        scale,
        remarks,
        ..Palette::default()
    }
}

/// The source nodes of a box.
pub(super) fn names(n: &Node) -> impl Iterator<Item = &str> {
    n.origins.iter().map(String::as_str)
}

/// The value that a file gives a box, in words.
pub(super) fn said(document: &Document, n: &Node) -> Option<String> {
    let overlay = document.trace().overlay.as_ref()?;
    let number = overlay.number(names(n)).map(|x| if overlay.times { milliseconds(x) } else { magnitude(x) });
    let words = overlay.words(names(n)).join(", ");
    let value = number.or((!words.is_empty()).then_some(words))?;
    Some(format!("{}: {value}", overlay.title))
}

/// The largest magnitudes beside both ends of f16, by powers of ten.
pub(super) fn by_range(document: &Document, nodes: &[&Node], dark: bool) -> Palette {
    let (errors, ranges) = (&document.trace().errors, &document.trace().ranges);
    if errors.is_none() && ranges.is_none() {
        return missing(nodes, dark, "this trace has no magnitudes: `weft compare MODEL -o F.trace` stores them");
    }
    let all: Vec<Option<f64>> = nodes.iter().map(|n| document.magnitude_of(n)).collect();
    let [largest, least] = F16;
    let share = |x: f64| ((x / least).log10() / (largest / least).log10()) as f32;
    let below = diverging(-0.7, dark);
    let fill = |x: f64| match x {
        0.0 => unknown(dark),
        x if x.is_nan() || x > largest => beyond(0.8, dark),
        x if x < least => below,
        x => heat(share(x), dark),
    };
    let over_inputs = ranges.as_ref().map_or(String::new(), |r| format!(" over {} inputs", r.inputs));
    let small = |n: &Node| document.ranges_of(n).map(|r| r.share(r.zeroed + r.subnormal)).fold(0.0, f64::max);
    let magnitudes = |x: f64| match x / largest {
        part if part.is_nan() || part > 1.0 => Some(format!("{}: beyond f16", magnitude(x))),
        part if part >= NEAR => Some(format!("{:.0} % of f16", 100.0 * part)),
        _ if x > 0.0 && x < least => Some(format!("{}: below f16", magnitude(x))),
        _ => None,
    };
    let note = |(n, x): (&&Node, &Option<f64>)| match (x.and_then(magnitudes), small(n)) {
        (None, part) if part >= MANY => Some(format!("{:.0} % too small", 100.0 * part)),
        (note, _) => note,
    };
    let count = |holds: &dyn Fn(f64) -> bool| all.iter().flatten().filter(|x| holds(**x)).count();
    let over = count(&|x| x.is_nan() || x > largest);
    let near = count(&|x| x <= largest && x >= NEAR * largest);
    let mut remarks = vec![(beyond(0.8, dark), format!("{over} beyond 65504, the end of f16"))];
    remarks.push((heat(0.95, dark), format!("{near} from a quarter of it on, which --amp auto keeps in f32")));
    remarks.push((below, "below 6.1e-5, where f16 loses digits".into()));
    if ranges.is_some() {
        let text = "a share \"too small\": elements that f16 makes subnormal or 0, from 1 % on".to_string();
        remarks.push((Color32::TRANSPARENT, text));
    }
    remarks.push((unknown(dark), "not looked at: inside a kernel, or folded away".into()));
    Palette {
        fills: all.iter().map(|x| x.map_or(unknown(dark), fill)).collect(),
        notes: nodes.iter().zip(&all).map(note).collect(),
        heading: format!("largest magnitude of the result{over_inputs}, beside f16"),
        legend: [least, 1e-2, 1.0, 256.0, largest].map(|x| (fill(x), magnitude(x))).to_vec(),
        scale: true,
        remarks,
        ..Palette::default()
    }
}
