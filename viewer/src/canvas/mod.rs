//! The canvas: a scene that can be moved and zoomed, painted by one painter.

pub mod camera;
pub mod change;
pub mod colour;
pub mod dress;
mod edges;
pub(crate) mod legend;
mod minimap;
pub mod paint;
mod palette;
pub mod scale;
mod tip;
mod values;

use crate::delta::Delta;
use crate::document::Document;
use crate::drawing::Drawn;
use crate::once::{Memo, visit};
use camera::{Camera, View};
use change::{Change, anchor, middle};
use colour::ColourBy;
use dress::Dress;
use egui::epaint::Mesh;
use egui::{PointerButton, Pos2, Rect, Response, Sense, Ui, Vec2, pos2, vec2};
use graphview::changes::Marks;
use legend::Legend;
use minimap::Minimap;
use paint::{Ink, Sight, paint};
use std::collections::BTreeSet;
use std::sync::Arc;
use tip::BoxTip;

/// An action of the user on a canvas.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Chose a box, by its place in the scene; `None` for the ground.
    Select(Option<usize>),
    /// Opened or closed a box.
    Toggle(usize),
    /// Chose an edge, by its place in the scene.
    Edge(usize),
}

/// How far from an edge the pointer may be, in points.
const REACH: f32 = 5.0;

/// The content to show.
pub struct Shown<'a> {
    /// The trace.
    pub document: &'a Document,
    /// The meaning of colours.
    pub by: ColourBy,
    /// The difference of times from another compilation.
    pub delta: Option<&'a Arc<Delta>>,
    /// Source nodes that are selected, and the number of the selection.
    pub selected: (&'a BTreeSet<String>, u64),
    /// Key of the box that the inspector shows.
    pub focus: Option<&'a str>,
    /// The changes of a pass.
    pub marks: Option<&'a Marks>,
    /// Boxes that a query finds.
    pub found: Option<&'a BTreeSet<usize>>,
    /// Draw marks around boxes instead of in a corner.
    pub strong_marks: bool,
}

/// A canvas.
#[derive(Default)]
pub struct Canvas {
    /// The camera.
    pub camera: Camera,
    dress: Option<Dress>,
    /// Of the dress: which boxes are selected by the number of the selection, the boxes of the minimap by its place, and
    /// the description of the box under the pointer.
    selected: Memo<u64, Vec<bool>>,
    map: Memo<[u32; 4], Arc<Mesh>>,
    tip: Memo<usize, BoxTip>,
    change: Option<Change>,
    hover: Option<usize>,
    hover_edge: Option<usize>,
    screen: Option<Rect>,
    /// A box to look at as soon as there is a scene and a place for it.
    wanted: Option<String>,
    /// Show all once there is a scene.
    fit: Option<bool>,
    /// Whether to fit the whole next scene or its start.
    fit_next: Option<bool>,
    /// The view that showed all of the scene, of which it may have moved away since.
    whole: Option<View>,
    dragged: bool,
    /// The wheel magnifies, and moves only with Shift.
    pub wheel_zooms: bool,
}

impl Canvas {
    /// The scene that it shows.
    pub fn drawn(&self) -> Option<&Arc<Drawn>> {
        self.dress.as_ref().map(|d| &d.drawn)
    }
    /// Whether something moves.
    pub fn moving(&self) -> bool {
        self.change.is_some() || self.fit.is_some()
    }
    /// Looks at the box with this key when it is there.
    pub fn look_at(&mut self, key: &str) {
        self.wanted = Some(key.to_string());
    }
    /// Shows everything, or the top if the whole would be too small to read.
    pub fn fit(&mut self, whole: bool) {
        self.fit = Some(whole);
    }
    /// Whether all of the scene is shown, as it was asked for.
    pub fn is_whole(&self) -> bool {
        self.fit == Some(true) || self.whole == Some(self.camera.resting())
    }
    /// Shows everything of the scene that comes next, which has another arrangement.
    pub fn fit_next(&mut self) {
        self.fit_next = Some(true);
    }
    /// Shows where the scene that comes next starts.
    pub fn start_next(&mut self) {
        self.fit_next = Some(false);
    }
    /// Where it lies on the screen.
    pub fn screen(&self) -> Option<Rect> {
        self.screen
    }

    /// Switches to a scene. Boxes of both scenes keep their positions on the screen if possible.
    pub(crate) fn take(&mut self, drawn: &Arc<Drawn>, s: &Shown<'_>, dark: bool) {
        if self.dress.as_ref().is_some_and(|d| d.fits(drawn, s.by, s.delta, dark)) {
            return;
        }
        let old = self.dress.take().map(|d| d.drawn);
        match old {
            None => self.fit = self.fit.or(Some(self.fit_next.take().unwrap_or(false))),
            Some(old) if !Arc::ptr_eq(&old, drawn) && self.fit_next.is_some() => self.fit = self.fit_next.take(),
            Some(old) if !Arc::ptr_eq(&old, drawn) => {
                let preferred = s.focus.and_then(|k| old.by_key.get(k)).copied();
                let center = self.camera.resting().center;
                let pair = anchor(&old, drawn, preferred, [center.x, center.y]);
                let shift = pair.map_or(Vec2::ZERO, |(i, j)| middle(drawn, j) - middle(&old, i));
                self.camera.shift(shift);
                self.change = Some(Change::new(&old, drawn, shift));
                (self.hover, self.hover_edge) = (None, None);
            }
            Some(_) => {}
        }
        self.dress = Some(Dress::new(s.document, drawn, s.by, s.delta, dark));
        (self.selected, self.map, self.tip) = Default::default();
    }
    /// The legend of its graph; `right` are the marks of the graph at its right, if there are two.
    pub(crate) fn legend(&self, marks: Option<&Marks>, right: Option<&Marks>) -> Option<Legend> {
        self.dress.as_ref().map(|d| Legend::of(d, [marks, right]))
    }
    /// The number of the scene's dress: it changes with all that a legend depends on but marks.
    pub(crate) fn dressed(&self) -> Option<(usize, ColourBy, bool, usize)> {
        let d = self.dress.as_ref()?;
        let delta = d.delta.as_ref().map_or(0, |d| Arc::as_ptr(d) as usize);
        Some((Arc::as_ptr(&d.drawn) as usize, d.by, d.dark, delta))
    }
    /// Which boxes came from what is selected.
    fn boxes_of(&mut self, dress: &Dress, (selected, number): (&BTreeSet<String>, u64)) -> Arc<Vec<bool>> {
        if let Some(known) = self.selected.of(&number) {
            return known;
        }
        visit(selected.len());
        let mut out = vec![false; if selected.is_empty() { 0 } else { dress.drawn.scene.boxes.len() }];
        let own = selected.iter().filter_map(|o| dress.drawn.by_origin.get(o)).flatten();
        own.for_each(|&i| out[i] = true);
        self.selected.keep(number, out)
    }

    /// Draws it over all the room there is.
    pub fn show(&mut self, ui: &mut Ui, drawn: Option<&Arc<Drawn>>, s: &Shown<'_>) -> Option<Action> {
        let (response, painter) = ui.allocate_painter(ui.available_size(), Sense::click_and_drag());
        let room = response.rect;
        let dark = ui.visuals().dark_mode;
        if let Some(drawn) = drawn {
            self.take(drawn, s, dark);
        }
        let dt = ui.input(|i| i.stable_dt).min(0.1);
        self.animate(ui, dt);
        let Some(dress) = self.dress.take() else {
            waiting(ui, room);
            return None;
        };
        let (map, screen) = self.divided(room, dress.drawn.scene.size);
        self.screen = Some(screen);
        self.go_where_wanted(&dress, screen);
        let action = self.input(ui, &response, screen, &dress, map.as_ref());
        let focus = s.focus.and_then(|k| dress.drawn.by_key.get(k)).copied();
        let selected = self.boxes_of(&dress, s.selected);
        let sight = Sight {
            dress: &dress,
            camera: &self.camera,
            change: self.change.as_ref(),
            selected: &selected,
            focus,
            hover: self.hover,
            hover_edge: self.hover_edge,
            marks: s.marks,
            strong_marks: s.strong_marks,
            found: s.found,
        };
        painter.rect_filled(room, 0.0, Ink::new(dark).ground);
        paint(&painter.with_clip_rect(screen.intersect(painter.clip_rect())), screen, &sight);
        if let Some(map) = &map {
            let key = [map.rect.min.x, map.rect.min.y, map.rect.max.x, map.rect.max.y].map(f32::to_bits);
            let boxes = self.map.of(&key).unwrap_or_else(|| self.map.keep(key, map.boxes(&dress)));
            map.paint(&painter, Arc::clone(&boxes), &dress, self.camera.seen(screen), focus);
        }
        if let Some(i) = self.hover.filter(|_| !self.dragged) {
            let tip = self.tip.of(&i).unwrap_or_else(|| self.tip.keep(i, BoxTip::of(s.document, &dress, i)));
            tip.show(&response, &dress, i);
        } else if let Some(i) = self.hover_edge.filter(|_| !self.dragged) {
            tip::edge(&response, s.document, &dress, i);
        }
        self.dress = Some(dress);
        action
    }

    /// The minimap, where the room beside it does not show the whole scene, and the room that is left.
    fn divided(&self, room: Rect, size: [f32; 2]) -> (Option<Minimap>, Rect) {
        let whole = Rect::from_min_size(Pos2::ZERO, vec2(size[0], size[1]));
        match Minimap::beside(room, size) {
            Some((map, rest)) if !self.camera.seen(rest).contains_rect(whole) => (Some(map), rest),
            _ => (None, room),
        }
    }

    fn animate(&mut self, ui: &Ui, dt: f32) {
        let gliding = self.camera.step(dt);
        if self.change.as_mut().is_some_and(|c| !c.step(dt)) {
            self.change = None;
        }
        if gliding || self.change.is_some() {
            ui.ctx().request_repaint();
        }
    }

    fn go_where_wanted(&mut self, dress: &Dress, screen: Rect) {
        if let Some(whole) = self.fit.take() {
            let scene = &dress.drawn.scene;
            let view = Camera::fitting(screen, scene.size, whole, scene.direction);
            if self.camera.view == Camera::default().view {
                self.camera.jump(view)
            } else {
                self.camera.glide(view)
            }
            self.whole = whole.then(|| self.camera.resting());
        }
        let Some(&i) = self.wanted.as_ref().and_then(|k| dress.drawn.by_key.get(k)) else { return };
        self.wanted = None;
        let at = middle(&dress.drawn, i).to_pos2();
        let inside = self.camera.seen(screen).shrink2(self.camera.seen(screen).size() * 0.15).contains(at);
        let readable = self.camera.resting().zoom >= 0.5;
        if !(inside && readable) {
            self.camera.glide(View { center: at, zoom: self.camera.resting().zoom.max(0.8) });
        }
    }

    fn input(
        &mut self,
        ui: &Ui,
        response: &Response,
        screen: Rect,
        dress: &Dress,
        map: Option<&Minimap>,
    ) -> Option<Action> {
        let pointer = response.hover_pos();
        self.wheel(ui, screen, pointer);
        let on_map = |p: Pos2| map.filter(|m| m.rect.expand(5.0).contains(p));
        if response.drag_started() {
            self.camera.remember();
        }
        if response.dragged_by(PointerButton::Primary) || response.dragged_by(PointerButton::Middle) {
            self.dragged = true;
            let start = ui.input(|i| i.pointer.press_origin());
            match start.and_then(on_map).zip(response.interact_pointer_pos()) {
                Some((m, p)) => self.camera.jump(View { center: m.to_scene(p), ..self.camera.view }),
                None => self.camera.pan(response.drag_delta()),
            }
        } else {
            self.dragged = false;
        }
        let drawn = &dress.drawn;
        let at = |p: Pos2| drawn.near.box_at(&drawn.scene, self.camera.to_scene(screen, p));
        let pointer = pointer.filter(|p| screen.contains(*p) && on_map(*p).is_none());
        self.hover = pointer.and_then(at);
        // Over an open frame there may be an edge between the boxes in it.
        let edges = self.hover.is_none_or(|i| dress.drawn.scene.boxes[i].open) && self.camera.view.zoom >= paint::PLAIN;
        let reach = REACH / self.camera.view.zoom;
        let edge_at = |p: Pos2| drawn.near.edge_at(&drawn.scene, self.camera.to_scene(screen, p), reach);
        self.hover_edge = pointer.filter(|_| edges).and_then(edge_at);
        let clicked = response.interact_pointer_pos().filter(|_| response.clicked())?;
        if let Some(m) = on_map(clicked) {
            let center = m.to_scene(clicked);
            self.camera.glide(View { center, ..self.camera.view });
            return None;
        }
        let hit = drawn.near.box_at(&drawn.scene, self.camera.to_scene(screen, clicked));
        let open = hit.is_none_or(|i| dress.drawn.scene.boxes[i].open);
        match hit {
            _ if open && self.hover_edge.is_some() => self.hover_edge.map(Action::Edge),
            Some(i) if response.double_clicked() && dress.drawn.scene.boxes[i].can_open() => Some(Action::Toggle(i)),
            hit => Some(Action::Select(hit)),
        }
    }

    /// The wheel moves, with Ctrl (or two fingers) it magnifies.
    fn wheel(&mut self, ui: &Ui, screen: Rect, pointer: Option<Pos2>) {
        let Some(at) = pointer else { return };
        let (scroll, zoom) = ui.input(|i| (i.smooth_scroll_delta(), i.zoom_delta()));
        if (zoom - 1.0).abs() > 1e-4 {
            self.camera.zoom(screen, at, zoom);
        } else if self.wheel_zooms && scroll.y != 0.0 {
            self.camera.zoom(screen, at, (scroll.y / 200.0).exp());
        } else if scroll != Vec2::ZERO {
            self.camera.pan(scroll);
        }
    }

    /// Magnifies; the middle stays.
    pub fn magnify(&mut self, factor: f32) {
        if let Some(screen) = self.screen {
            self.camera.zoom(screen, screen.center(), factor);
        }
    }
    /// A unit of the scene is a point.
    pub fn actual_size(&mut self) {
        self.camera.glide(View { zoom: 1.0, ..self.camera.resting() });
    }
    /// Moves what is seen by points of the screen.
    pub fn walk(&mut self, [x, y]: [f32; 2]) {
        self.camera.pan(vec2(x, y));
    }

    /// Moves so that its box `mine` lies where box `theirs` of the other canvas lies.
    pub fn follow(&mut self, other: &Canvas) {
        let (Some(mine), Some(theirs)) = (self.drawn().cloned(), other.drawn().cloned()) else { return };
        let at = other.camera.view.center;
        let Some((i, j)) = anchor(&theirs, &mine, None, [at.x, at.y]) else { return };
        let to = at + (middle(&mine, j) - middle(&theirs, i));
        // A box that has no counterpart makes the next one the anchor: the step between them is taken smoothly.
        let center = self.camera.view.center;
        let far = (to - center).length() * other.camera.view.zoom;
        let next = if far > 2.0 { center + (to - center) * 0.35 } else { to };
        self.camera.jump(View { center: pos2(next.x, next.y), zoom: other.camera.view.zoom });
    }
}

fn waiting(ui: &Ui, screen: Rect) {
    let colour = ui.visuals().weak_text_color();
    let font = egui::FontId::proportional(14.0);
    ui.painter().text(screen.center(), egui::Align2::CENTER_CENTER, "Laying out the graph ...", font, colour);
    ui.ctx().request_repaint_after(std::time::Duration::from_millis(50));
}
