//! A scene: a picture with positions, ready to be painted on a canvas.
//!
//! Open boxes (regions of control flow, expanded fused groups) become frames around the boxes inside them. Inner
//! pictures are laid out first and give the size of the frame. Everything is in one list, frames before their contents,
//! so that a painter goes through it once.

use crate::layers::{path_of, relative};
use crate::layout::{Direction, Graph, Options, Route, layout};
use crate::picture::{Category, Node, Picture};

/// Space between a frame's border and what is inside.
const PAD: f32 = 14.0;
/// Height of a frame's title.
const HEADER: f32 = 22.0;
/// Height of a line of text in a box.
pub const LINE: f32 = 15.0;
/// Space between a box's border and its text.
pub const INSET: f32 = 8.0;

/// How wide a text is when painted, in the units of the scene.
pub type Measure<'a> = &'a dyn Fn(&str) -> f32;

/// The width of a text in a plain sans-serif of 12 units, for painters without fonts of their own.
pub fn plain_width(text: &str) -> f32 {
    text.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' | '(' | ')' | '[' | ']' | 'f' | 't' | 'r' => 4.2,
            'm' | 'w' | 'M' | 'W' | '@' | '%' => 10.2,
            c if c.is_ascii_uppercase() => 8.2,
            c if c.is_ascii() => 6.9,
            _ => 12.0,
        })
        .sum()
}

/// A box or a frame.
#[derive(Clone, PartialEq, Debug)]
pub struct SceneBox {
    /// The node it is.
    pub node: Node,
    /// Left, top, width, height.
    pub rect: [f32; 4],
    /// Frames around it.
    pub depth: usize,
    /// It shows what is inside it.
    pub open: bool,
    /// Lines of text, the op first.
    pub lines: Vec<String>,
}
impl SceneBox {
    /// Whether it has something inside to show.
    pub fn can_open(&self) -> bool {
        !self.node.inside.is_empty()
    }
}

/// An edge.
#[derive(Clone, PartialEq, Debug)]
pub struct SceneEdge {
    /// Index of the box it leaves.
    pub from: usize,
    /// Index of the box it enters.
    pub to: usize,
    /// How it runs.
    pub route: Route,
    /// The type of the value, with its data layout.
    pub label: String,
    /// The data layout of the value, where it has one.
    pub layout: Option<&'static str>,
}

/// The name of an inner picture, above it.
#[derive(Clone, PartialEq, Debug)]
pub struct Caption {
    /// Left and top.
    pub at: [f32; 2],
    /// The name.
    pub text: String,
}

/// A picture with places.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scene {
    /// Boxes and frames, frames first.
    pub boxes: Vec<SceneBox>,
    /// Edges; they go over frames and under boxes.
    pub edges: Vec<SceneEdge>,
    /// Names of inner pictures.
    pub captions: Vec<Caption>,
    /// Width and height.
    pub size: [f32; 2],
    /// Where edges go.
    pub direction: Direction,
}

/// Which boxes are open, and the text of boxes.
pub struct Arrangement<'a> {
    /// Whether a box with something inside is shown open.
    pub is_open: &'a dyn Fn(&Node) -> bool,
    /// Lines of text in a box; the second argument is the path of the layer that the picture is inside of, empty
    /// outside of layers.
    pub lines: &'a dyn Fn(&Node, &str) -> Vec<String>,
    /// The path of the layer that the picture is inside of.
    pub within: &'a str,
    /// The label on the edges that leave a box. The box is made wide enough for it.
    pub label: &'a dyn Fn(&Node) -> Option<String>,
    /// The position across of a box in a previous picture that this one should resemble.
    pub before: &'a dyn Fn(&Node) -> Option<f32>,
    /// The width of a text.
    pub measure: Measure<'a>,
    /// Distances.
    pub options: Options,
}

/// The default lines of a box: its op, and the shape of its result.
pub fn plain_lines(node: &Node, within: &str) -> Vec<String> {
    let title = match node.category {
        Category::Terminal => relative(&node.name, within),
        _ => node.op.clone(),
    };
    let mut lines = vec![title];
    lines.extend(node.weights.iter().take(2).map(|w| format!("{} {}", short(&w.name), w.ty)));
    lines.extend(node.outputs.first().map(|ty| short_type(ty)));
    lines
}

/// Characters of a name in a box.
pub const SHORT: usize = 26;

/// The end of a long name, which tells more than its beginning.
pub fn short(name: &str) -> String {
    let count = name.chars().count();
    if count <= SHORT {
        name.to_string()
    } else {
        format!("…{}", name.chars().skip(count - SHORT).collect::<String>())
    }
}

/// A type as text in which long sizes are cut: names to their ends, sums and products to `…`. Of `f32[images.height,3]`
/// that is `f32[…height,3]`.
pub fn short_type(ty: &str) -> String {
    const MOST: usize = 12;
    const END: usize = 6;
    let Some((start, rest)) = ty.split_once('[') else { return ty.to_string() };
    let Some((sizes, end)) = rest.rsplit_once(']') else { return ty.to_string() };
    if sizes.len() <= MOST {
        return ty.to_string();
    }
    let (mut depth, mut out) = (0, vec![String::new()]);
    for c in sizes.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(size) = out.last_mut() {
            size.push(c);
        }
    }
    let cut = |size: &String| {
        let count = size.chars().count();
        let plain = size.chars().all(|c| c.is_alphanumeric() || "._/:".contains(c));
        match (count <= MOST, plain) {
            (true, _) => size.clone(),
            (false, true) => format!("…{}", size.chars().skip(count - END).collect::<String>()),
            (false, false) => "…".to_string(),
        }
    };
    format!("{start}[{}]{end}", out.iter().map(cut).collect::<Vec<_>>().join(","))
}

impl<'a> Arrangement<'a> {
    /// With plain lines and widths, and distances that suit most.
    pub fn plain(is_open: &'a dyn Fn(&Node) -> bool) -> Arrangement<'a> {
        Arrangement {
            is_open,
            lines: &plain_lines,
            within: "",
            label: &|_| None,
            before: &|_| None,
            measure: &plain_width,
            options: Options::default(),
        }
    }
}

impl Scene {
    /// Arranges a picture.
    pub fn arrange(picture: &Picture, a: &Arrangement<'_>) -> Scene {
        let mut inner: Vec<Vec<Scene>> = Vec::with_capacity(picture.nodes.len());
        let mut sizes = Vec::with_capacity(picture.nodes.len());
        let mut texts = Vec::with_capacity(picture.nodes.len());
        for node in &picture.nodes {
            let lines = (a.lines)(node, a.within);
            let open = !node.inside.is_empty() && (a.is_open)(node);
            let within = if node.category == Category::Layer { path_of(node) } else { a.within };
            // The inside of a frame is not folded.
            let inner_options = Arrangement { options: Options { fold: None, ..a.options }, within, ..*a };
            let scenes: Vec<Scene> =
                if open { node.inside.iter().map(|p| Scene::arrange(p, &inner_options)).collect() } else { vec![] };
            sizes.push(size_of(node, &lines, &scenes, a));
            texts.push(lines);
            inner.push(scenes);
        }
        let edges = picture.edges.iter().map(|e| (e.from, e.to)).collect();
        let before = picture.nodes.iter().map(a.before).collect();
        let laid = layout(&Graph { sizes: sizes.clone(), edges, before }, &a.options);
        let mut scene = Scene { size: laid.size, direction: a.options.direction, ..Scene::default() };
        let mut index = vec![0; picture.nodes.len()];
        // Frames first, each with what is in it behind it.
        let framed = |i: &usize| !inner[*i].is_empty();
        let (frames, boxes): (Vec<usize>, Vec<usize>) = (0..picture.nodes.len()).partition(framed);
        for i in frames.into_iter().chain(boxes) {
            let [cx, cy] = laid.centers[i];
            let [w, h] = sizes[i];
            let rect = [cx - w / 2.0, cy - h / 2.0, w, h];
            index[i] = scene.boxes.len();
            let lines = std::mem::take(&mut texts[i]);
            scene.boxes.push(SceneBox {
                node: picture.nodes[i].clone(),
                rect,
                depth: 0,
                open: !inner[i].is_empty(),
                lines,
            });
            let mut left = rect[0] + PAD;
            for (k, part) in std::mem::take(&mut inner[i]).into_iter().enumerate() {
                let at = [left, rect[1] + HEADER + PAD + caption_height(&picture.nodes[i])];
                if caption_height(&picture.nodes[i]) > 0.0 {
                    let text = picture.nodes[i].inside[k].title.clone();
                    scene.captions.push(Caption { at: [left, rect[1] + HEADER + PAD / 2.0], text });
                }
                left += part.size[0] + PAD;
                scene.take_in(part, at);
            }
        }
        scene.edges.extend(picture.edges.iter().zip(laid.routes).map(|(e, route)| SceneEdge {
            from: index[e.from],
            to: index[e.to],
            route,
            label: e.label(),
            layout: e.layout,
        }));
        scene
    }

    /// Adds an inner scene at a place.
    fn take_in(&mut self, mut part: Scene, at: [f32; 2]) {
        let first = self.boxes.len();
        let moved = |p: [f32; 2]| [p[0] + at[0], p[1] + at[1]];
        for b in &mut part.boxes {
            b.rect = [b.rect[0] + at[0], b.rect[1] + at[1], b.rect[2], b.rect[3]];
            b.depth += 1;
        }
        for e in &mut part.edges {
            (e.from, e.to) = (e.from + first, e.to + first);
            e.route = match &e.route {
                Route::Line(points) => Route::Line(points.iter().map(|p| moved(*p)).collect()),
                Route::Portal(a, b) => Route::Portal(moved(*a), moved(*b)),
            };
        }
        part.captions.iter_mut().for_each(|c| c.at = moved(c.at));
        self.boxes.append(&mut part.boxes);
        self.edges.append(&mut part.edges);
        self.captions.append(&mut part.captions);
    }

    /// Index of the box with a key.
    pub fn find(&self, key: &str) -> Option<usize> {
        self.boxes.iter().position(|b| b.node.key == key)
    }
}

/// Regions are named where there are several.
fn caption_height(node: &Node) -> f32 {
    if node.inside.len() > 1 { LINE } else { 0.0 }
}

fn size_of(node: &Node, lines: &[String], inner: &[Scene], a: &Arrangement<'_>) -> [f32; 2] {
    // Below a box there is as much room as it is wide; to its right there is that between layers.
    let beneath = a.options.direction == Direction::Down;
    let label = (a.label)(node).filter(|_| beneath).map_or(0.0, |l| (a.measure)(&l));
    let text = lines.iter().map(|l| (a.measure)(l)).fold(label, f32::max) + 2.0 * INSET;
    if inner.is_empty() {
        return [text.max(48.0), lines.len().max(1) as f32 * LINE + INSET];
    }
    let title = lines.first().map_or(0.0, |l| (a.measure)(l)) + 2.0 * INSET;
    let width: f32 = inner.iter().map(|s| s.size[0] + PAD).sum::<f32>() + PAD;
    let height = inner.iter().map(|s| s.size[1]).fold(0.0, f32::max);
    let caption = if inner.len() > 1 { LINE } else { 0.0 };
    [width.max(title), height + HEADER + 2.0 * PAD + caption]
}
