//! Pictures of the graph without a window around it: all of it, or one box as it is shown, folded or open.

use crate::canvas::camera::{Camera, View};
use crate::canvas::colour::ColourBy;
use crate::canvas::dress::Dress;
use crate::canvas::legend::Legend;
use crate::canvas::paint::{Ink, Sight, paint};
use crate::delta::Delta;
use crate::document::Document;
use crate::drawing::Drawn;
use crate::svg;
use egui::{LayerId, Rect, Ui, Vec2, pos2, vec2};
use graphview::changes::Marks;
use graphview::layout::Direction;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Room around what is shown, in points: along edges, for the types on them, and across.
const MARGIN: f32 = 20.0;
const SIDE: f32 = 8.0;
/// The least width of a picture with a legend.
const LEGEND_ROOM: f32 = 300.0;
/// The longest side of a picture, in pixels: what every device can draw on.
#[cfg(feature = "screenshot")]
const LONGEST: f32 = 8192.0;

/// What a picture shows.
pub(crate) struct Piece {
    dress: Dress,
    marks: Option<Arc<Marks>>,
    strong_marks: bool,
    found: Option<Arc<BTreeSet<usize>>>,
    /// The part of the scene.
    area: Rect,
    /// Below it; nothing where a box stands alone.
    legend: Legend,
}

/// How a picture is dressed: as the canvas is.
pub(crate) struct Look {
    /// The meaning of colours.
    pub(crate) by: ColourBy,
    /// The difference of times from another compilation.
    pub(crate) delta: Option<Arc<Delta>>,
    /// The changes of a pass.
    pub(crate) marks: Option<Arc<Marks>>,
    /// Marks are drawn around boxes.
    pub(crate) strong_marks: bool,
    /// Boxes that a query finds.
    pub(crate) found: Option<Arc<BTreeSet<usize>>>,
    /// Light on dark.
    pub(crate) dark: bool,
}

impl Piece {
    /// The graph, or the box with this key alone.
    ///
    /// # Errors
    /// The graph has no such box in sight.
    pub(crate) fn new(document: &Document, drawn: &Arc<Drawn>, key: Option<&str>, look: Look) -> Result<Piece, String> {
        let Look { by, delta, marks, strong_marks, found, dark } = look;
        let dress = Dress::new(document, drawn, by, delta.as_ref(), dark);
        let chosen = match key {
            None => None,
            Some(key) => Some(*drawn.by_key.get(key).ok_or("the chosen box is not in sight in this graph")?),
        };
        let [x, y, w, h] = match chosen {
            Some(i) => drawn.scene.boxes[i].rect,
            None => [0.0, 0.0, drawn.scene.size[0], drawn.scene.size[1]],
        };
        // A single box says what it is.
        let alone = chosen.is_some_and(|i| !drawn.scene.boxes[i].open);
        let legend = if alone { Legend::default() } else { Legend::of(&dress, [marks.as_deref(), None]) };
        let room = match drawn.scene.direction {
            Direction::Down => vec2(SIDE, MARGIN),
            Direction::Right => vec2(MARGIN, SIDE),
        };
        let area = Rect::from_min_size(pos2(x, y), vec2(w, h)).expand2(room);
        Ok(Piece { dress, marks, strong_marks, found, area, legend })
    }

    /// Points of the picture, where a unit of the scene is `zoom` points.
    fn size(&self, zoom: f32) -> Vec2 {
        let Vec2 { x, y } = self.area.size() * zoom;
        let wide = x.max(LEGEND_ROOM);
        match self.legend.height(wide) {
            high if high > 0.0 => vec2(wide, y + high),
            _ => vec2(x, y),
        }
    }

    fn paint(&self, ui: &Ui, zoom: f32) {
        let screen = Rect::from_min_size(pos2(0.0, 0.0), self.size(zoom));
        let painter = ui.ctx().layer_painter(LayerId::background()).with_clip_rect(screen);
        painter.rect_filled(screen, 0.0, Ink::new(self.dress.dark).ground);
        // Where the legend needs more room, nothing else is drawn beside the box.
        let graph = Rect::from_min_size(screen.min, self.area.size() * zoom);
        let mut camera = Camera::default();
        camera.jump(View { center: self.area.center(), zoom });
        let sight = Sight {
            dress: &self.dress,
            camera: &camera,
            change: None,
            selected: &[],
            focus: None,
            hover: None,
            hover_edge: None,
            marks: self.marks.as_deref(),
            strong_marks: self.strong_marks,
            found: self.found.as_deref(),
        };
        paint(&painter.with_clip_rect(graph), graph, &sight);
        if screen.max.y > graph.max.y {
            self.legend.paint(&painter, screen.with_min_y(graph.max.y), self.dress.dark);
        }
    }

    /// The picture as SVG.
    pub(crate) fn svg(&self) -> String {
        let (ctx, size) = (egui::Context::default(), self.size(1.0));
        let input =
            egui::RawInput { screen_rect: Some(Rect::from_min_size(pos2(0.0, 0.0), size)), ..Default::default() };
        let mut out = ctx.run_ui(input, |ui| self.paint(ui, 1.0));
        // Nothing draws the letters: the reader's fonts do.
        out.textures_delta.clear();
        svg::document(&out.shapes, size)
    }

    /// The picture as pixels, `scale` of them a point, or less where it would be too large for a device.
    ///
    /// # Errors
    /// There is no device to draw with.
    #[cfg(feature = "screenshot")]
    pub(crate) fn png(self, scale: f32) -> Result<image::RgbaImage, String> {
        let whole = self.size(1.0);
        let zoom = (LONGEST / scale / whole.max_elem()).min(1.0);
        let mut h = egui_kittest::Harness::builder()
            .with_size(self.size(zoom))
            .with_pixels_per_point(scale)
            .allow_missing_glyphs()
            .with_accessibility_check(false)
            .wgpu_setup(device())
            .build_ui(move |ui| self.paint(ui, zoom));
        h.run_steps(2);
        h.render()
    }
    #[cfg(not(feature = "screenshot"))]
    pub(crate) fn png(self, _: f32) -> Result<image::RgbaImage, String> {
        Err("this build draws no pictures of pixels".into())
    }
}

/// The devices that kernels run on, too: those of OpenGL complain on stderr where there is no display.
#[cfg(feature = "screenshot")]
pub(crate) fn device() -> egui_wgpu::WgpuSetup {
    let mut setup = egui_kittest::wgpu::default_wgpu_setup();
    if let egui_wgpu::WgpuSetup::CreateNew(new) = &mut setup {
        new.instance_descriptor.backends.remove(egui_wgpu::wgpu::Backends::GL);
    }
    setup
}
