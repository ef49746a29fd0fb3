//! The whole window: header, passes, graph and panes.

use crate::canvas::colour::ColourBy;
use crate::canvas::legend::Legend;
use crate::canvas::paint::Ink;
use crate::canvas::{Action, Canvas, Shown};
use crate::document::Document;
use crate::drawing::{Drawing, Drawn, Widths};
use crate::export::{self, Export};
use crate::panes::pages;
use crate::state::{Ends, Tab, Viewer};
use crate::{keys, opening, panes};
use egui::{
    CentralPanel, ComboBox, FontId, Frame, Key, LayerId, Panel, Rect, TextEdit, TextStyle, Theme, Ui, UiBuilder, vec2,
};
use graphview::changes::Marks;
use graphview::layout::Direction;
use graphview::picture::Category;
use std::sync::Arc;

/// Height of the line above a graph.
const HEAD: f32 = 26.0;
/// Below this width the passes and what stands beside the graph make room for it.
const NARROW: f32 = 900.0;

/// Draws everything into `ui`.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    // The default is too small to be read for long.
    ui.style_mut().text_styles.insert(TextStyle::Small, FontId::proportional(11.0));
    let ground = ui.visuals().panel_fill;
    ui.ctx().layer_painter(LayerId::background()).rect_filled(ui.ctx().content_rect(), 0.0, ground);
    opening::dropped(ui, v);
    start_drawing(ui, v);
    keys::act(ui, v);
    let narrow = ui.available_width() < NARROW;
    Panel::top("header").show(ui, |ui| header(ui, v));
    if v.passes {
        let width = if narrow { 170.0 } else { 250.0 };
        Panel::left("passes").default_size(width).show(ui, |ui| panes::passes::show(ui, v));
    }
    if v.kernel_pane.wide || v.pages.shown.is_some() {
        in_its_place(ui, v);
        panes::help::show(ui, v);
        panes::again::show(ui, v);
        return;
    }
    if v.dock {
        let width = ui.available_width() * if narrow { 0.45 } else { 0.38 };
        Panel::right("dock").default_size(width).show(ui, |ui| dock(ui, v));
    }
    CentralPanel::default().frame(Frame::NONE).show(ui, |ui| graph(ui, v));
    panes::help::show(ui, v);
    panes::again::show(ui, v);
}

/// A kernel in several forms or a page, with the graph in a corner.
fn in_its_place(ui: &mut Ui, v: &mut Viewer) {
    let compare = std::mem::take(&mut v.compare);
    Panel::right("graph").default_size(250.0).show(ui, |ui| {
        ui.set_width(ui.available_width());
        if ui.button("Back to the graph").on_hover_text("Esc").clicked() {
            (v.kernel_pane.wide, v.pages.shown) = (false, None);
        }
        let area = ui.available_rect_before_wrap();
        let drawn = v.after().and_then(Result::ok);
        canvases(ui, v, area, [drawn.as_ref(), None]);
    });
    v.compare = compare;
    CentralPanel::default().show(ui, |ui| match v.pages.shown {
        Some(page) if !v.kernel_pane.wide => pages::show(ui, v, page),
        _ => panes::kernel::columns(ui, v),
    });
}

/// Starts the threads that lay graphs out, at the first frame: only then there are fonts to measure with.
fn start_drawing(ui: &Ui, v: &mut Viewer) {
    let start = |document: &Arc<Document>| {
        let font = FontId::proportional(12.0);
        let widths = ui.ctx().fonts_mut(|f| Widths::new(|c| f.glyph_width(&font, c)));
        let ctx = ui.ctx().clone();
        Drawing::start(document.clone(), widths, move || ctx.request_repaint())
    };
    if v.drawing.is_none() {
        v.drawing = Some(start(v.document()));
    }
    if let Some(other) = &mut v.other
        && other.drawing.is_none()
    {
        other.drawing = Some(start(&other.document));
    }
}

fn header(ui: &mut Ui, v: &mut Viewer) {
    ui.horizontal_wrapped(|ui| {
        let t = v.trace();
        let name = std::path::Path::new(&t.model).file_name().map_or(t.model.as_str().into(), |n| n.to_string_lossy());
        ui.strong(name).on_hover_text(&t.model);
        ui.label(v.document().about());
        let o = &t.options;
        ui.weak(format!("amp {}, layout {}, fuse {}, -O{}; Weft {}", o.amp, o.layout, o.fuse, o.opt_level, t.weft));
    });
    ui.horizontal_wrapped(|ui| {
        view_tools(ui, v);
        search(ui, v);
        window_tools(ui, v);
    });
}

/// Controls of the graph's appearance.
fn view_tools(ui: &mut Ui, v: &mut Viewer) {
    ui.toggle_value(&mut v.passes, "Passes");
    ui.separator();
    let label = ui.label("Colour");
    let choice = ComboBox::from_id_salt("colour").selected_text(v.colour.title()).show_ui(ui, |ui| {
        for (by, _, title) in ColourBy::ALL {
            ui.selectable_value(&mut v.colour, by, title);
        }
    });
    choice.response.labelled_by(label.id);
    ui.toggle_value(&mut v.compare, "Before | After").on_hover_text("Both sides of a pass, with linked views (B)");
    if ui.toggle_value(&mut v.columns, "Columns").on_hover_text("All of a long graph side by side (C)").clicked() {
        v.canvases.iter_mut().for_each(Canvas::fit_next);
    }
    let mut layers = !v.flat;
    if ui.toggle_value(&mut layers, "Layers").on_hover_text("Layers as boxes, or every node by itself (L)").clicked() {
        v.turn_flat();
    }
    let mut right = v.direction == Direction::Right;
    if ui
        .toggle_value(&mut right, "Across")
        .on_hover_text("From left to right rather than from top to bottom (Ctrl K)")
        .clicked()
    {
        v.turn();
    }
    if ui.button("Fit").on_hover_text("Show everything (F); T shows the top").clicked() {
        v.show_all();
    }
    if ui.button("«").on_hover_text("Where you were (Alt Left)").clicked() {
        v.canvases[0].camera.back();
    }
    if ui.button("»").on_hover_text("Where you went back from (Alt Right)").clicked() {
        v.canvases[0].camera.forward();
    }
    if ui.button("‹ change").on_hover_text("The box changed before (P)").clicked() {
        v.next_change(false);
    }
    if ui.button("change ›").on_hover_text("The next changed box (N)").clicked() {
        v.next_change(true);
    }
}

/// Controls of the whole window: compiling again, exports, light and dark, help.
fn window_tools(ui: &mut Ui, v: &mut Viewer) {
    if v.host.is_some() && ui.button("Compile again").on_hover_text("With other options, and run it").clicked() {
        v.again.open = !v.again.open;
    }
    pages::menu(ui, v);
    ui.menu_button("Export", |ui| {
        for (what, title, _) in Export::ALL {
            if ui.button(title).clicked() {
                v.message = Some(export::write(v, ui.ctx(), what));
                ui.close();
            }
        }
    });
    let dark = ui.visuals().dark_mode;
    if ui.button(if dark { "Light" } else { "Dark" }).clicked() {
        ui.ctx().set_theme(if dark { Theme::Light } else { Theme::Dark });
    }
    if ui.button("?").on_hover_text("Keys, and what one can search for").clicked() {
        v.help = !v.help;
    }
    ui.toggle_value(&mut v.dock, "Details").on_hover_text("Pane beside the graph");
    if let Some(said) = v.message.clone()
        && ui.add(egui::Label::new(egui::RichText::new(said).small()).sense(egui::Sense::click())).clicked()
    {
        v.message = None;
    }
}

/// The search field, and how much it finds.
fn search(ui: &mut Ui, v: &mut Viewer) {
    let hint = "Search (Ctrl F): op:conv time>0.1ms";
    let field = TextEdit::singleline(&mut v.search.text).hint_text(hint).desired_width(210.0);
    let response = ui.add(field);
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::SearchInput, true, "Search"));
    if std::mem::take(&mut v.search.grab) {
        response.request_focus();
    }
    if response.lost_focus() && ui.input(|i| i.key_pressed(Key::Enter)) {
        let back = ui.input(|i| i.modifiers.shift);
        v.next_found(!back);
        response.request_focus();
    }
    if v.search.text.trim().is_empty() {
        return;
    }
    match &v.search.fault {
        Some(why) => ui.colored_label(egui::Color32::from_rgb(210, 60, 60), why),
        None => ui.weak(format!("{} found", v.search.found().len())),
    };
}

fn dock(ui: &mut Ui, v: &mut Viewer) {
    // Wide content is scrolled: it does not move the graph.
    ui.set_max_width(ui.available_width());
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0;
        for (tab, title) in Tab::ALL.into_iter().filter(|t| t.0 != Tab::Difference || v.other.is_some()) {
            ui.selectable_value(&mut v.tab, tab, title);
        }
    });
    ui.separator();
    match v.tab {
        Tab::Node => panes::node::show(ui, v),
        Tab::Kernel => panes::kernel::show(ui, v),
        Tab::Text => panes::text::show(ui, v),
        Tab::Groups => panes::groups::show(ui, v),
        Tab::Time => panes::time::show(ui, v),
        Tab::Memory => panes::memory::show(ui, v),
        Tab::Precision => panes::precision::show(ui, v),
        Tab::Remarks => panes::remarks::show(ui, v),
        Tab::Difference => panes::compare::show(ui, v),
    }
}

fn graph(ui: &mut Ui, v: &mut Viewer) {
    let drawn = v.after();
    if let Some(Err(why)) = &drawn {
        ui.centered_and_justified(|ui| ui.label(format!("{why}\nThe trace is damaged: compile the model once more.")));
        return;
    }
    let after = drawn.and_then(Result::ok);
    // It is asked for in any case: it says what the pass did.
    let before = v.before().and_then(Result::ok);
    if let Some(other) = &v.other {
        ui.add_space(4.0);
        ui.horizontal_wrapped(|ui| {
            ui.add_space(8.0);
            ui.strong(&other.headline);
        });
        ui.add_space(4.0);
    }
    let area = ui.available_rect_before_wrap();
    canvases(ui, v, area, [after.as_ref(), before.as_ref()]);
}

/// Draws one canvas or both, with the legend of their colours below.
fn canvases(ui: &mut Ui, v: &mut Viewer, area: Rect, [after, before]: [Option<&Arc<Drawn>>; 2]) {
    let dark = ui.visuals().dark_mode;
    for (which, drawn) in [after, before.filter(|_| v.compare)].into_iter().enumerate() {
        if let Some(drawn) = drawn {
            with_canvas(v, which, Some(drawn), |canvas, shown| canvas.take(drawn, shown, dark));
        }
    }
    let legend = legend(v);
    let (graph, strip) = area.split_top_bottom_at_y(area.max.y - legend.height(area.width()));
    legend.paint(&ui.painter().with_clip_rect(strip), strip, dark);
    if !v.compare {
        one(ui, v, 0, graph, after);
        return;
    }
    let (left, right) = graph.split_left_right_at_fraction(0.5);
    one(ui, v, 1, left.with_max_x(left.max.x - 1.0), before);
    one(ui, v, 0, right.with_min_x(right.min.x + 1.0), after);
    let at_left = ui.input(|i| i.pointer.hover_pos()).is_some_and(|p| left.contains(p));
    let [after, before] = &mut v.canvases;
    // Each shows all of its graph: the same place and zoom in both would cut one of them off.
    if after.is_whole() && before.is_whole() {
        return;
    }
    if at_left { after.follow(before) } else { before.follow(after) }
}

/// The legend of all graphs in sight.
fn legend(v: &mut Viewer) -> Arc<Legend> {
    let marks = v.compared().filter(|c| c.telling).map(|c| [c.after.clone(), c.before.clone()]);
    let [after, before] = marks.map_or([None, None], |m| m.map(Some));
    let address = |m: &Option<Arc<Marks>>| m.as_ref().map_or(0, |m| Arc::as_ptr(m) as usize);
    let left = v.canvases[1].dressed().filter(|_| v.compare);
    let key = [(v.canvases[0].dressed(), address(&after)), (left, address(&before))];
    v.once(key, |v| match left.and_then(|_| v.canvases[1].legend(before.as_deref(), after.as_deref())) {
        Some(mut both) => {
            // The left one counts the marks of both.
            both.join(&v.canvases[0].legend(None, None).unwrap_or_default());
            both
        }
        None => v.canvases[0].legend(after.as_deref(), None).unwrap_or_default(),
    })
}

/// Calls `act` with a canvas and what it is to show.
fn with_canvas<T>(
    v: &mut Viewer,
    which: usize,
    drawn: Option<&Arc<Drawn>>,
    act: impl FnOnce(&mut Canvas, &Shown<'_>) -> T,
) -> T {
    let mut canvas = std::mem::take(&mut v.canvases[which]);
    let document = if which == 0 { v.document() } else { v.left_document() }.clone();
    let selected = v.selected().clone();
    let focus = v.focus().map(str::to_string);
    let by = v.colour;
    let delta = v.other.as_ref().map(|o| o.deltas[1 - which].clone());
    let found = drawn.filter(|_| which == 0).and_then(|d| v.search.find(&document, d));
    let marks = v.compared().filter(|c| c.telling).map(|c| if which == 0 { c.after.clone() } else { c.before.clone() });
    let shown = Shown {
        document: &document,
        by,
        delta: delta.as_ref(),
        selected: (&selected, v.selection()),
        focus: focus.as_deref(),
        marks: marks.as_deref(),
        found: found.as_deref(),
        // They would hide the colours of the difference.
        strong_marks: v.compare && by != ColourBy::Difference,
    };
    let done = act(&mut canvas, &shown);
    v.canvases[which] = canvas;
    done
}

/// Draws one of the canvases into a part of the window.
fn one(ui: &mut Ui, v: &mut Viewer, which: usize, area: Rect, drawn: Option<&Arc<Drawn>>) {
    // The name of the stage stands above the graph and covers nothing of it.
    let (head, area) = area.split_top_bottom_at_y(area.min.y + HEAD);
    title(ui, v, which, head);
    let salt = ["after", "before"][which];
    let mut inner = ui.new_child(UiBuilder::new().id_salt(salt).max_rect(area));
    inner.set_clip_rect(area);
    let action = with_canvas(v, which, drawn, |canvas, shown| canvas.show(&mut inner, drawn, shown));
    let document = if which == 0 { v.document() } else { v.left_document() }.clone();
    let node = |i: usize| drawn.map(|d| d.scene.boxes[i].node.clone());
    match action {
        Some(Action::Select(i)) => v.choose(i.and_then(node).as_ref()),
        Some(Action::Toggle(i)) => {
            if let Some(n) = node(i) {
                v.toggle(&n.key);
            }
        }
        Some(Action::Edge(i)) => {
            let ends = drawn.map(|d| {
                let e = &d.scene.edges[i];
                let one = |i: usize| match document.groups_of(&d.scene.boxes[i].node).as_slice() {
                    &[g] if d.scene.boxes[i].node.category != Category::Terminal => Some(g),
                    _ => None,
                };
                let both = one(e.from).zip(one(e.to));
                let why = |(from, to)| {
                    let remarks = document.border_between(from, to);
                    (from, to, remarks.iter().map(|r| r.message.as_str()).collect::<Vec<_>>().join("\n"))
                };
                Ends {
                    why: both.map(why),
                    from: d.scene.boxes[e.from].node.clone(),
                    to: d.scene.boxes[e.to].node.clone(),
                    ty: e.label.clone(),
                }
            });
            v.choose_edge(ends);
        }
        None => {}
    }
}

/// The stage that a canvas shows, in its corner.
fn title(ui: &Ui, v: &Viewer, which: usize, area: Rect) {
    let label = |d: &Document, stage: usize| d.trace().stages.get(stage).map_or(String::new(), |s| s.label.clone());
    let here = label(v.document(), v.stage());
    let text = match (v.compare, which, &v.other) {
        (false, ..) => here,
        (true, 0, None) => format!("after {here}"),
        (true, _, None) => format!("before {here}"),
        (true, which, Some(o)) => {
            let there = label(&o.document, v.other_stage().unwrap_or(0));
            let stage = if here == there { String::new() } else { format!(", {}", [here, there][which]) };
            format!("{}{stage}", o.titles[1 - which])
        }
    };
    let weak = ui.visuals().weak_text_color();
    let galley = ui.painter().layout_no_wrap(text, FontId::proportional(13.0), weak);
    let painter = ui.painter().with_clip_rect(area);
    painter.rect_filled(area, 0.0, Ink::new(ui.visuals().dark_mode).ground);
    painter.galley(area.min + vec2(10.0, 6.0), galley, weak);
}

#[cfg(test)]
pub(crate) mod tests;
