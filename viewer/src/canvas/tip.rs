//! Texts at the pointer: the description of a box or an edge.

use super::colour::milliseconds;
use super::dress::Dress;
use super::edges::border_colour;
use crate::document::Document;
use egui::Response;
use graphview::figures::magnitude;
use graphview::scene::short;

/// The tooltip of a box, made when the pointer comes upon it.
pub(super) struct BoxTip {
    /// Facts besides its op, name, types and attributes.
    facts: Vec<String>,
}

impl BoxTip {
    /// Of box `i`.
    pub(super) fn of(document: &Document, dress: &Dress, i: usize) -> BoxTip {
        let n = &dress.drawn.scene.boxes[i].node;
        let mut facts: Vec<String> = document.time_of(n).map(milliseconds).into_iter().collect();
        if let Some(pair) = dress.delta.as_ref().and_then(|d| d.of(document, n)) {
            let [a, b] = pair.ms.map(milliseconds);
            let words = if pair.changed { "" } else { ", within noise" };
            facts.push(format!("{a} at the left, {b} at the right{words}"));
        }
        if let Some((error, pass)) = document.error_of(n) {
            facts.push(format!("relative error {error:.1e}{}", if pass { "" } else { ", beyond the tolerance" }));
        }
        facts.extend(document.magnitude_of(n).map(|x| format!("largest magnitude {}", magnitude(x))));
        let percent = |part: f64| format!("{:.2} %", 100.0 * part);
        facts.extend(document.ranges_of(n).map(|r| {
            let [zeroed, subnormal] = [r.zeroed, r.subnormal].map(|n| percent(r.share(n)));
            let of = percent(r.of_f16);
            format!("in f16 ({}): {of} of its range, {zeroed} become 0, {subnormal} subnormal", r.op)
        }));
        facts.extend(super::values::said(document, n));
        BoxTip { facts }
    }
    /// Shows it at the pointer.
    pub(super) fn show(&self, response: &Response, dress: &Dress, i: usize) {
        let b = &dress.drawn.scene.boxes[i];
        let n = &b.node;
        response.clone().on_hover_ui_at_pointer(|ui| {
            ui.set_max_width(420.0);
            ui.strong(&n.op);
            if !n.name.is_empty() {
                ui.label(&n.name);
            }
            for ty in &n.outputs {
                ui.monospace(ty);
            }
            if !n.attrs.is_empty() {
                ui.weak(&n.attrs);
            }
            self.facts.iter().for_each(|f| {
                ui.label(f);
            });
            let words = match (b.can_open(), b.open) {
                (false, _) => "",
                (true, true) => "Double-click closes it.",
                (true, false) => "Double-click opens it in place.",
            };
            if !words.is_empty() {
                ui.weak(words);
            }
        });
    }
}

/// The tooltip of an edge: the value, and why fusion did not cross it.
pub(super) fn edge(response: &Response, document: &Document, dress: &Dress, i: usize) {
    let scene = &dress.drawn.scene;
    let e = &scene.edges[i];
    let name = |i: usize| {
        let n = &scene.boxes[i].node;
        let name = document.layer_of(n).unwrap_or_else(|| n.name.clone());
        if name.is_empty() { n.op.clone() } else { format!("{} {}", n.op, short(&name)) }
    };
    let why = dress.border(document, i);
    response.clone().on_hover_ui_at_pointer(|ui| {
        ui.set_max_width(460.0);
        ui.monospace(&e.label);
        ui.label(format!("from {} to {}", name(e.from), name(e.to)));
        if !why.is_empty() {
            ui.separator();
            ui.colored_label(border_colour(), "Why they are not one group");
            why.iter().take(6).for_each(|w| {
                ui.label(w);
            });
        }
    });
}
