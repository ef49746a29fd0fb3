//! Colours of boxes and their meanings.

pub use super::palette::{Palette, pastel};
use super::palette::{tuned, unknown};
pub use super::scale::heat;
use super::scale::{ErrorScale, diverging, parse};
use super::values::{by_overlay, by_range};
use crate::delta::{Delta, Pair};
use crate::document::Document;
use crate::drawing::Drawn;
pub use crate::units::{milliseconds, si};
use egui::Color32;
use graphview::maps::{LayoutChange, layout_changes, shares};
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
    /// The error against a reference, of each node alone.
    Error,
    /// The error with the errors of the nodes before.
    Accumulated,
    /// The largest magnitude beside the ends of f16.
    Range,
    /// The values of a file.
    Overlay,
    /// The difference of time from another compilation.
    Difference,
}
impl ColourBy {
    /// Every choice with its word on the command line and its title.
    pub const ALL: [(ColourBy, &'static str, &'static str); 10] = [
        (ColourBy::Work, "work", "kind of work"),
        (ColourBy::Group, "group", "fused group"),
        (ColourBy::Dtype, "dtype", "element type"),
        (ColourBy::Layout, "layout", "data layout"),
        (ColourBy::Time, "time", "time"),
        (ColourBy::Error, "error", "error"),
        (ColourBy::Accumulated, "accumulated", "accumulated error"),
        (ColourBy::Range, "range", "range of f16"),
        (ColourBy::Overlay, "overlay", "values of a file"),
        (ColourBy::Difference, "difference", "difference of time"),
    ];
    /// Its title.
    pub fn title(self) -> &'static str {
        ColourBy::ALL.iter().find(|c| c.0 == self).map_or("", |c| c.2)
    }
}

/// Colours that a closed layer shows side by side.
const STRIPES: usize = 16;

impl Palette {
    /// Of a scene; `delta` is the difference of its compilation from another one.
    pub fn new(document: &Document, drawn: &Drawn, by: ColourBy, delta: Option<&Delta>, dark: bool) -> Palette {
        let nodes: Vec<&Node> = drawn.scene.boxes.iter().map(|b| &b.node).collect();
        match by {
            ColourBy::Work => by_work(&nodes, dark),
            ColourBy::Group => by_group(document, &nodes, dark),
            ColourBy::Dtype => by_dtype(document, drawn, &nodes, dark),
            ColourBy::Layout => by_layout(drawn, &nodes, dark),
            ColourBy::Time => by_time(document, drawn, &nodes, dark),
            ColourBy::Error => by_error(document, &nodes, dark, false),
            ColourBy::Accumulated => by_error(document, &nodes, dark, true),
            ColourBy::Range => by_range(document, &nodes, dark),
            ColourBy::Overlay => by_overlay(document, &nodes, dark),
            ColourBy::Difference => by_difference(document, drawn, delta, dark),
        }
    }
}

fn by_work(nodes: &[&Node], dark: bool) -> Palette {
    let colour = |c: Category| tuned(parse(fill(c)), dark);
    let used: Vec<Category> = Category::ALL.into_iter().filter(|c| nodes.iter().any(|n| n.work == *c)).collect();
    Palette {
        fills: nodes.iter().map(|n| colour(n.work)).collect(),
        legend: used.into_iter().map(|c| (colour(c), c.title().to_string())).collect(),
        heading: "kind of work".into(),
        ..Palette::default()
    }
}

fn by_group(document: &Document, nodes: &[&Node], dark: bool) -> Palette {
    let groups: Vec<Vec<usize>> = nodes.iter().map(|n| document.groups_of(n)).collect();
    let several = |(n, own): (&&Node, &Vec<usize>)| match n.category {
        Category::Layer if own.len() > 1 => own.iter().take(STRIPES).map(|&g| pastel(g, dark)).collect(),
        _ => vec![],
    };
    let mut legend =
        vec![(pastel(0, dark), "one colour for each fused group".into()), (unknown(dark), "in none".into())];
    let stripes: Vec<Vec<Color32>> = nodes.iter().zip(&groups).map(several).collect();
    if stripes.iter().any(|s| !s.is_empty()) {
        let text = format!("a closed layer has a stripe for each of its groups, {STRIPES} at most");
        legend.push((Color32::TRANSPARENT, text));
    }
    Palette {
        fills: groups.iter().map(|own| own.first().map_or(unknown(dark), |&g| pastel(g, dark))).collect(),
        stripes,
        heading: "fused groups".into(),
        legend,
        ..Palette::default()
    }
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

/// Element types, each with what it has of the run.
fn by_dtype(document: &Document, drawn: &Drawn, nodes: &[&Node], dark: bool) -> Palette {
    let mut p = by_word(nodes, dark, |n| (!n.dtype.is_empty()).then(|| element_type(document, n)));
    let all = shares(document.trace(), &drawn.picture);
    let timed = document.trace().times.is_some();
    for (_, word) in &mut p.legend {
        let Some(s) = all.get(word.as_str()) else { continue };
        *word += &format!(": {:.0} % of bytes", 100.0 * s.bytes);
        if s.flops > 0.0 {
            *word += &format!(", {:.0} % of FLOPs", 100.0 * s.flops);
        }
        if timed && s.ms > 0.0 {
            *word += &format!(", {:.0} % of time", 100.0 * s.ms);
        }
    }
    p.heading = "element type of the result".into();
    p
}

/// `f32`, or `f32 of i4 block 32` for a box with a packed operand.
fn element_type(document: &Document, n: &Node) -> String {
    let packed = n.weights.iter().find_map(|w| document.packed(&w.name));
    let form = packed.map(|ty| ty.split_once(" [").map_or(ty, |t| t.0));
    form.map_or_else(|| n.dtype.clone(), |form| format!("{} of {form}", n.dtype))
}

/// Tensors that are no images (vectors, matrices, transformed tiles) have no data layout, which the legend says.
fn by_layout(drawn: &Drawn, nodes: &[&Node], dark: bool) -> Palette {
    let mut p = by_word(nodes, dark, |n| n.layout.map(str::to_string));
    let edges = drawn.scene.edges.iter().filter_map(|e| e.layout);
    let number = |l: &str| p.legend.iter().position(|(_, word)| word == l);
    p.regions = nodes.iter().map(|n| n.layout.and_then(number)).collect();
    p.edges = edges.filter_map(|l| Some((l, p.legend[number(l)?].0))).collect();
    let changes = layout_changes(&drawn.picture);
    p.notes = nodes.iter().map(|n| layout_note(n, &|key| changes.get(key).copied())).collect();
    p.heading = "data layout of the result; edges: of their value".into();
    match p.legend.is_empty() {
        true => p.missing = Some("no box here has a data layout"),
        false if nodes.iter().any(|n| n.layout.is_none()) => p.remarks.push((unknown(dark), "no layout".into())),
        false => {}
    }
    let bytes: u64 = changes.values().filter_map(|c| c.bytes).sum();
    let moving = changes.values().filter(|c| c.bytes.is_some()).count();
    let within = changes.len() - moving;
    let count = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    if moving > 0 {
        let text = format!("{} {}", count(moving, "transpose moves", "transposes move"), of_bytes(bytes));
        p.remarks.push((Color32::TRANSPARENT, text));
    }
    if within > 0 {
        let text = count(within, "change of layout is within a kernel", "changes of layout are within kernels");
        p.remarks.push((Color32::TRANSPARENT, text));
    }
    p
}

/// The tag of a box that changes the layout, and of a closed layer with such boxes in it.
fn layout_note(n: &Node, change: &dyn Fn(&str) -> Option<LayoutChange>) -> Option<String> {
    if let Some(c) = change(&n.key) {
        let bytes = c.bytes.map_or(String::new(), |b| format!(", {}", of_bytes(b)));
        return Some(format!("{} to {}{bytes}", c.from, c.to));
    }
    let inside = n.inside.iter().filter(|_| n.category == Category::Layer).flat_map(|p| p.walk());
    let moved: Vec<u64> = inside.filter_map(|m| change(&m.key)?.bytes).collect();
    let transposes = if moved.len() == 1 { "1 transpose".into() } else { format!("{} transposes", moved.len()) };
    (!moved.is_empty()).then(|| format!("{transposes}, {}", of_bytes(moved.iter().sum())))
}

/// `1.2 MB`
fn of_bytes(n: u64) -> String {
    let text = si(n as f64);
    let digits = text.trim_end_matches(char::is_alphabetic);
    format!("{digits} {}B", &text[digits.len()..])
}

fn by_time(document: &Document, drawn: &Drawn, nodes: &[&Node], dark: bool) -> Palette {
    let Some(times) = document.trace().times.as_ref() else {
        let fills = vec![unknown(dark); nodes.len()];
        let missing = Some("this trace has no times: `weft bench MODEL -o F.trace` stores them");
        return Palette { fills, missing, ..Palette::default() };
    };
    // The scale ends with the box that takes longest: a closed layer takes longer than its groups.
    let of: Vec<Option<f64>> = nodes.iter().map(|n| document.time_of(n)).collect();
    let closed = drawn.scene.boxes.iter().zip(&of).filter(|(b, _)| !b.open);
    let longest = closed.filter_map(|(_, ms)| *ms).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    // Among hundreds of kernels a few take most of the time: the root keeps the others apart.
    let share = |ms: f64| (ms / longest).sqrt() as f32;
    let one = |ms: &Option<f64>| ms.map_or(unknown(dark), |ms| heat(share(ms), dark));
    let at = |part: f64| (heat(share(longest * part), dark), milliseconds(longest * part));
    let legend = vec![(heat(0.0, dark), "0".to_string()), at(0.0625), at(0.25), at(0.5625), at(1.0)];
    let heading = format!("time, measured on {}", short_device(&times.device));
    Palette { fills: of.iter().map(one).collect(), heading, legend, scale: true, ..Palette::default() }
}

/// A device without its driver's version.
fn short_device(name: &str) -> &str {
    name.split([',', '(']).next().map_or(name, str::trim)
}

fn by_error(document: &Document, nodes: &[&Node], dark: bool, accumulated: bool) -> Palette {
    let none = |why: &'static str| Palette {
        fills: vec![unknown(dark); nodes.len()],
        missing: Some(why),
        ..Palette::default()
    };
    let Some(errors) = &document.trace().errors else {
        return none("this trace has no errors: `weft compare MODEL -o F.trace` stores them");
    };
    let Some(scale) = ErrorScale::of(errors, accumulated) else {
        return none(match accumulated {
            true => "this trace has no accumulated errors: `weft compare MODEL -o F.trace` stores them",
            false => "this trace has errors with those before alone: colour by the accumulated error",
        });
    };
    let of = |n: &Node| match accumulated {
        true => document.accumulated_error_of(n),
        false => document.error_of(n).map(|e| e.0),
    };
    let all: Vec<Option<f64>> = nodes.iter().map(|n| of(n)).collect();
    let how = if accumulated { "with the errors of the nodes before" } else { "of each group alone" };
    let against = format!("{} against {}", short_device(&errors.device), errors.against);
    let beyond = all.iter().flatten().filter(|e| **e > scale.tolerance).count();
    let outlying = all.iter().flatten().filter(|e| scale.outlier(**e).is_some()).count();
    let within = match beyond {
        0 => (Color32::TRANSPARENT, format!("all are within the tolerance {:.0e}", scale.tolerance)),
        n => (super::scale::beyond(0.5, dark), format!("{n} beyond the tolerance {:.0e}", scale.tolerance)),
    };
    let outliers =
        (outlying > 0).then(|| (Color32::TRANSPARENT, format!("{outlying} with a tag: far beyond the others")));
    let not = (unknown(dark), "not compared: inside a kernel, or folded away".to_string());
    Palette {
        fills: all.iter().map(|e| e.map_or(unknown(dark), |e| scale.colour(e, dark))).collect(),
        heading: format!("relative error {how}: {against}"),
        legend: scale.stops(dark),
        scale: true,
        remarks: [Some(within), Some(not), outliers].into_iter().flatten().collect(),
        notes: all.iter().map(|e| e.and_then(|e| scale.outlier(e))).collect(),
        ..Palette::default()
    }
}

fn by_difference(document: &Document, drawn: &Drawn, delta: Option<&Delta>, dark: bool) -> Palette {
    let boxes = &drawn.scene.boxes;
    let Some(delta) = delta else {
        let fills = vec![unknown(dark); boxes.len()];
        let missing = Some("there is no other compilation: `weft view A.trace --beside B.trace` shows two");
        return Palette { fills, missing, ..Palette::default() };
    };
    let of: Vec<Option<Pair>> = boxes.iter().map(|b| delta.of(document, &b.node)).collect();
    let closed = boxes.iter().zip(&of).filter(|(b, p)| !b.open && p.is_some_and(|p| p.changed));
    let most = closed.filter_map(|(_, p)| Some(p.as_ref()?.difference().abs())).fold(0.0, f64::max);
    let any = most > 0.0;
    let most = most.max(f64::MIN_POSITIVE);
    let share = |ms: f64| (ms.abs() / most).sqrt().min(1.0).copysign(ms) as f32;
    let one = |p: &Option<Pair>| match p {
        None => unknown(dark),
        Some(p) if !p.changed => diverging(0.0, dark),
        Some(p) => diverging(share(p.difference()), dark),
    };
    let sign = |ms: f64| {
        if ms == 0.0 {
            "as fast".to_string()
        } else {
            format!("{}{}", if ms > 0.0 { "+" } else { "-" }, milliseconds(ms.abs()))
        }
    };
    let at = |part: f64| (diverging(share(part * most), dark), sign(part * most));
    Palette {
        fills: of.iter().map(one).collect(),
        heading: "time of the right less the left: red is slower, blue is faster".into(),
        legend: match any {
            true => vec![at(-1.0), at(-0.25), at(0.0), at(0.25), at(1.0)],
            false => vec![(diverging(0.0, dark), "nothing differs by more than noise".into())],
        },
        scale: any,
        remarks: vec![(unknown(dark), "not timed".into())],
        ..Palette::default()
    }
}
