//! Lays out scenes on a separate thread. Until a requested scene is ready, the window paints the previous one.

use crate::document::Document;
use crate::worker::Worker;
use graphview::layout::{Direction, Options};
use graphview::picture::{Category, Node, Picture};
use graphview::scene::{Arrangement, Scene, short};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A scene to draw: the graph of a stage, and which boxes are not as they are at first (control flow is open, groups
/// are closed).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Want {
    /// The stage, one that [`Document::graph_of`] gives.
    pub stage: usize,
    /// Keys of boxes that were opened or closed.
    pub toggled: Arc<BTreeSet<String>>,
    /// The text of boxes.
    pub detail: Detail,
    /// In columns, so that all of it suits a window.
    pub columns: bool,
    /// Where edges go.
    pub direction: Direction,
}

/// The text of boxes besides their op.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Detail {
    /// Their names.
    pub names: bool,
    /// Their attributes.
    pub attributes: bool,
    /// The constants that they read.
    pub constants: bool,
}
impl Default for Detail {
    fn default() -> Self {
        Detail { names: true, attributes: false, constants: true }
    }
}

/// A scene that is ready.
pub struct Drawn {
    /// The request.
    pub want: Want,
    /// The picture.
    pub picture: Arc<Picture>,
    /// Boxes and edges with places.
    pub scene: Scene,
    /// Boxes by key.
    pub by_key: FxHashMap<String, usize>,
    /// Boxes by source node, as they stand in the scene.
    pub by_origin: FxHashMap<String, Vec<usize>>,
}
impl Drawn {
    fn new(want: Want, picture: Arc<Picture>, scene: Scene) -> Drawn {
        let by_key = scene.boxes.iter().enumerate().map(|(i, b)| (b.node.key.clone(), i)).collect();
        let mut by_origin: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        for (i, b) in scene.boxes.iter().enumerate() {
            b.node.origins.iter().for_each(|o| by_origin.entry(o.clone()).or_default().push(i));
        }
        Drawn { want, picture, scene, by_key, by_origin }
    }
    /// The box that corresponds to a box of another scene: the same one, or the innermost one with most of its source
    /// nodes.
    pub fn counterpart(&self, node: &Node) -> Option<usize> {
        if let Some(&i) = self.by_key.get(&node.key) {
            return Some(i);
        }
        let mut shared: FxHashMap<usize, usize> = FxHashMap::default();
        for i in node.origins.iter().flat_map(|o| self.by_origin.get(o).into_iter().flatten()) {
            *shared.entry(*i).or_default() += 1;
        }
        let rank = |&(i, count): &(usize, usize)| (count, self.scene.boxes[i].depth, usize::MAX - i);
        shared.into_iter().max_by_key(rank).map(|(i, _)| i)
    }
}

/// How wide characters are in the font that the canvas uses, at 12 units.
#[derive(Clone)]
pub struct Widths {
    ascii: [f32; 128],
    other: f32,
}
impl Widths {
    /// Looks at each character once.
    pub fn new(mut width: impl FnMut(char) -> f32) -> Widths {
        let mut ascii = [0.0; 128];
        (32u8..127).for_each(|c| ascii[usize::from(c)] = width(char::from(c)));
        Widths { ascii, other: width('…').max(width('m')) }
    }
    /// The width of a text.
    pub fn of(&self, text: &str) -> f32 {
        text.chars().map(|c| self.ascii.get(c as usize).copied().unwrap_or(self.other)).sum()
    }
}

/// Asks for scenes and keeps them.
pub type Drawing = Worker<Want, Result<Arc<Drawn>, String>>;

/// Boxes of all scenes that are kept; beyond them the scenes are forgotten.
const KEPT_BOXES: usize = 200_000;

impl Drawing {
    /// Starts the thread; `wake` is called when a scene is ready.
    pub fn start(document: Arc<Document>, widths: Widths, wake: impl Fn() + Send + 'static) -> Drawing {
        let studio = move || {
            let mut studio = Studio { document, widths, pictures: FxHashMap::default(), places: None };
            move |want: &Want| studio.draw(want)
        };
        let boxes = |drawn: &Result<Arc<Drawn>, String>| drawn.as_ref().map_or(0, |d| d.scene.boxes.len());
        Worker::new(studio, wake).keeping(KEPT_BOXES, boxes)
    }
}

/// How long laying out takes, for benchmarks: of the graph as it came, and of that after the passes.
///
/// # Panics
/// On a damaged trace.
#[doc(hidden)]
pub fn time_layouts(trace: &compiler::trace::CompileTrace) -> [std::time::Duration; 2] {
    let document = Document::new(trace.clone()).expect("a whole trace");
    let last = document.graph_of(document.last_graph());
    let studio = Studio {
        document: Arc::new(document),
        widths: Widths::new(|_| 6.0),
        pictures: FxHashMap::default(),
        places: None,
    };
    [0, last].map(|stage| {
        let picture = Picture::of(&studio.document.module(stage).expect("it parses"));
        let start = std::time::Instant::now();
        studio.arrange(&picture, &Want::default());
        start.elapsed()
    })
}

/// The state of the thread.
struct Studio {
    document: Arc<Document>,
    widths: Widths,
    pictures: FxHashMap<usize, Arc<Picture>>,
    /// The positions across of source nodes in the source graph. Graphs of later stages start from them, so that a node
    /// keeps its position while stepping through the passes.
    places: Option<(Direction, FxHashMap<String, f32>)>,
}

impl Studio {
    fn draw(&mut self, want: &Want) -> Result<Arc<Drawn>, String> {
        if self.places.as_ref().is_none_or(|p| p.0 != want.direction) {
            let first = self.picture(0)?;
            self.places = None;
            let plain = Want { toggled: Arc::default(), columns: false, ..want.clone() };
            let scene = self.arrange(&first, &plain);
            let mut places = FxHashMap::default();
            for b in &scene.boxes {
                let [x, _] = want.direction.turn([b.rect[0] + b.rect[2] / 2.0, b.rect[1] + b.rect[3] / 2.0]);
                places.insert(b.node.key.clone(), x);
                b.node.origins.iter().for_each(|o| {
                    places.insert(o.clone(), x);
                });
            }
            self.places = Some((want.direction, places));
        }
        let picture = self.picture(want.stage)?;
        let scene = self.arrange(&picture, want);
        Ok(Arc::new(Drawn::new(want.clone(), picture, scene)))
    }
    fn picture(&mut self, stage: usize) -> Result<Arc<Picture>, String> {
        if let Some(p) = self.pictures.get(&stage) {
            return Ok(p.clone());
        }
        let picture = Arc::new(Picture::of(&self.document.module(stage)?));
        self.pictures.insert(stage, picture.clone());
        Ok(picture)
    }
    fn arrange(&self, picture: &Picture, want: &Want) -> Scene {
        let is_open = |n: &Node| (n.category == Category::Control) != want.toggled.contains(&n.key);
        let before = |n: &Node| self.places.as_ref().and_then(|(_, places)| place_of(places, n));
        let measure = |text: &str| self.widths.of(text);
        let fold = want.columns.then_some(1.5);
        // The type on an edge needs room: below a box a line, beside it the length of the text.
        let layer_gap = if want.direction == Direction::Down { 44.0 } else { 150.0 };
        let options = Options { layer_gap, fold, direction: want.direction, ..Options::default() };
        let a = Arrangement {
            is_open: &is_open,
            lines: &|n| lines(n, self.document.layer_of(n).as_deref().unwrap_or(&n.name), want.detail),
            label: &|n| label(n),
            before: &before,
            measure: &measure,
            options,
        };
        Scene::arrange(picture, &a)
    }
}

fn place_of(places: &FxHashMap<String, f32>, n: &Node) -> Option<f32> {
    if let Some(&x) = places.get(&n.key) {
        return Some(x);
    }
    let known: Vec<f32> = n.origins.iter().filter_map(|o| places.get(o)).copied().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)
}

/// The text of a box: its op, and on request its name, its attributes and the constants that it reads.
pub fn lines(node: &Node, name: &str, detail: Detail) -> Vec<String> {
    if node.category == Category::Terminal {
        return vec![short(&node.name)];
    }
    let mut out = vec![node.op.clone()];
    if detail.names && !name.is_empty() && name != node.op {
        out.push(short(name));
    }
    if detail.attributes && !node.attrs.is_empty() {
        out.extend(split_attributes(&node.attrs).into_iter().take(6).map(short));
    }
    if !detail.constants {
        return out;
    }
    let last = |name: &str| name.rsplit(['.', '/', ':']).next().unwrap_or(name).to_string();
    out.extend(node.weights.iter().take(3).map(|w| short(&format!("{} {}", last(&w.name), w.ty))));
    if node.weights.len() > 3 {
        out.push(format!("{} more constants", node.weights.len() - 3));
    }
    out
}

/// The attributes of a node one by one: parts between commas that are in no brackets and no text.
pub fn split_attributes(attrs: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start, mut out) = (0, false, 0, Vec::new());
    for (i, c) in attrs.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' | '(' if !quoted => depth += 1,
            ']' | '}' | ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                out.push(attrs[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(attrs[start..].trim());
    out
}

/// The label of the edges that leave a box: the type of its first result, with its layout if it has one.
pub fn label(node: &Node) -> Option<String> {
    let ty = node.outputs.first()?;
    Some(match node.layout {
        Some(layout) => format!("{ty} {layout}"),
        None => ty.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::split_attributes;

    #[test]
    fn attributes_are_split_at_their_own_commas() {
        assert_eq!(split_attributes(r#"pads=[1,1], name="a,b", k=2"#), ["pads=[1,1]", r#"name="a,b""#, "k=2"]);
    }
}
