//! Lays out scenes on a separate thread. Until a requested scene is ready, the window paints the previous one.

use crate::document::Document;
use crate::once::visit;
use crate::units::{cut_apart, ending};
use crate::worker::Worker;
use graphview::layers::{Layered, Modules, fold, path_of, relative};
use graphview::layout::{Direction, Options};
use graphview::near::Near;
use graphview::picture::{Category, Node, Picture, Weight, with_layout};
use graphview::scene::{Arrangement, SHORT, Scene, short, short_type};
use rustc_hash::{FxHashMap, FxHashSet};
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
    /// Every node is shown by itself, in no layers.
    pub flat: bool,
}

impl Want {
    /// Whether a box with something inside is open: at first control flow is, and the largest layers of few.
    fn is_open(&self, n: &Node, layered: &Layered) -> bool {
        (n.category == Category::Control || layered.open.contains(&n.key)) != self.toggled.contains(&n.key)
    }
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
    /// The picture, without layers.
    pub picture: Arc<Picture>,
    /// The picture in layers.
    pub layered: Arc<Layered>,
    /// Boxes and edges with places.
    pub scene: Scene,
    /// Which boxes and edges are near a place.
    pub near: Near,
    /// Boxes by key.
    pub by_key: FxHashMap<String, usize>,
    /// Boxes by source node, as they stand in the scene.
    pub by_origin: FxHashMap<String, Vec<usize>>,
}
impl Drawn {
    fn new(want: Want, picture: Arc<Picture>, layered: Arc<Layered>, scene: Scene) -> Drawn {
        let by_key = scene.boxes.iter().enumerate().map(|(i, b)| (b.node.key.clone(), i)).collect();
        let mut by_origin: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        for (i, b) in scene.boxes.iter().enumerate() {
            b.node.origins.iter().for_each(|o| by_origin.entry(o.clone()).or_default().push(i));
        }
        Drawn { near: Near::of(&scene), want, picture, layered, scene, by_key, by_origin }
    }
    /// Keys of the closed layers that a box is in, outer ones first.
    pub fn closed_above(&self, key: &str) -> Vec<String> {
        fn path<'a>(p: &'a Picture, key: &str, out: &mut Vec<&'a Node>) -> bool {
            p.nodes.iter().any(|n| {
                out.push(n);
                let found = n.key == key || n.inside.iter().any(|p| path(p, key, out));
                if !found {
                    out.pop();
                }
                found
            })
        }
        let mut above = vec![];
        path(&self.layered.picture, key, &mut above);
        let closed = |n: &&&Node| n.category == Category::Layer && n.key != key && !self.want.is_open(n, &self.layered);
        above.iter().filter(closed).map(|n| n.key.clone()).collect()
    }
    /// The box that corresponds to a box of another scene: the same one, or the innermost one with most of its source
    /// nodes.
    pub fn counterpart(&self, node: &Node) -> Option<usize> {
        if let Some(&i) = self.by_key.get(&node.key) {
            return Some(i);
        }
        let mut shared: FxHashMap<usize, usize> = FxHashMap::default();
        visit(node.origins.len());
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
            let mut studio = Studio {
                document,
                widths,
                pictures: FxHashMap::default(),
                layered: FxHashMap::default(),
                modules: None,
                constants: FxHashSet::default(),
                places: None,
            };
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
    let mut studio = Studio {
        document: Arc::new(document),
        widths: Widths::new(|_| 6.0),
        pictures: FxHashMap::default(),
        layered: FxHashMap::default(),
        modules: None,
        constants: FxHashSet::default(),
        places: None,
    };
    [0, last].map(|stage| {
        let layered = studio.layered(stage, false).expect("it parses");
        let start = std::time::Instant::now();
        studio.arrange(&layered, &Want::default());
        start.elapsed()
    })
}

/// The state of the thread.
struct Studio {
    document: Arc<Document>,
    widths: Widths,
    pictures: FxHashMap<usize, Arc<Picture>>,
    /// In layers, and flat.
    layered: FxHashMap<(usize, bool), Arc<Layered>>,
    /// Of the model as it came.
    modules: Option<Arc<Modules>>,
    /// Constants of the model.
    constants: FxHashSet<String>,
    /// The positions across of nodes and source nodes in the first graph that was laid out. The others start from them,
    /// so that a node keeps its position while stepping through the passes.
    places: Option<((Direction, bool), FxHashMap<String, f32>)>,
}

impl Studio {
    fn draw(&mut self, want: &Want) -> Result<Arc<Drawn>, String> {
        if self.constants.is_empty() {
            self.constants = constants_of(self.document.text(0));
        }
        let picture = self.picture(want.stage)?;
        let layered = self.layered(want.stage, want.flat)?;
        if self.places.as_ref().is_none_or(|p| p.0 != (want.direction, want.flat)) {
            self.places = None;
            let plain = Want { toggled: Arc::default(), columns: false, ..want.clone() };
            let scene = self.arrange(&layered, &plain);
            let mut places = FxHashMap::default();
            for b in &scene.boxes {
                let [x, _] = want.direction.turn([b.rect[0] + b.rect[2] / 2.0, b.rect[1] + b.rect[3] / 2.0]);
                places.insert(b.node.key.clone(), x);
                b.node.origins.iter().for_each(|o| {
                    places.insert(o.clone(), x);
                });
            }
            self.places = Some(((want.direction, want.flat), places));
            if plain == *want {
                return Ok(Arc::new(Drawn::new(plain, picture, layered, scene)));
            }
        }
        let scene = self.arrange(&layered, want);
        Ok(Arc::new(Drawn::new(want.clone(), picture, layered, scene)))
    }
    fn picture(&mut self, stage: usize) -> Result<Arc<Picture>, String> {
        if let Some(p) = self.pictures.get(&stage) {
            return Ok(p.clone());
        }
        let picture = Arc::new(self.document.picture(stage)?);
        self.pictures.insert(stage, picture.clone());
        Ok(picture)
    }
    fn layered(&mut self, stage: usize, flat: bool) -> Result<Arc<Layered>, String> {
        if let Some(l) = self.layered.get(&(stage, flat)) {
            return Ok(l.clone());
        }
        let picture = self.picture(stage)?;
        let layered = match flat {
            true => Layered { picture: Picture::clone(&picture), ..Layered::default() },
            false => fold(&picture, self.modules()?.as_ref()),
        };
        let layered = Arc::new(layered);
        self.layered.insert((stage, flat), layered.clone());
        Ok(layered)
    }
    fn modules(&mut self) -> Result<Arc<Modules>, String> {
        if let Some(modules) = &self.modules {
            return Ok(modules.clone());
        }
        let source = self.picture(0)?;
        let modules = Arc::new(Modules::of(&source));
        self.modules = Some(modules.clone());
        Ok(modules)
    }
    /// Short names of boxes whose usual ones would be equal, by their keys.
    fn cut(&self, picture: &Picture, within: &str, out: &mut FxHashMap<String, String>) {
        let name = |n: &Node| {
            let name = self.document.layer_of(n);
            relative(name.as_deref().unwrap_or(&n.name), within).to_string()
        };
        let names: Vec<String> = picture.nodes.iter().map(name).collect();
        let texts: Vec<&str> = names.iter().map(String::as_str).collect();
        for (n, (text, usual)) in
            picture.nodes.iter().zip(cut_apart(&texts, SHORT, |i, _| short(texts[i])).into_iter().zip(&texts))
        {
            if text != short(usual) {
                out.insert(n.key.clone(), text);
            }
            let within = if n.category == Category::Layer { path_of(n) } else { within };
            n.inside.iter().for_each(|p| self.cut(p, within, out));
        }
    }
    fn arrange(&self, layered: &Layered, want: &Want) -> Scene {
        let picture = &layered.picture;
        let mut cut = FxHashMap::default();
        self.cut(picture, "", &mut cut);
        let is_open = |n: &Node| want.is_open(n, layered);
        let before = |n: &Node| self.places.as_ref().and_then(|(_, places)| place_of(places, n));
        let measure = |text: &str| self.widths.of(text);
        let fold = want.columns.then_some(1.5);
        // The type on an edge needs room: below a box a line, beside it the length of the text.
        let layer_gap = if want.direction == Direction::Down { 44.0 } else { 150.0 };
        let options = Options { layer_gap, fold, direction: want.direction, ..Options::default() };
        let a = Arrangement {
            is_open: &is_open,
            lines: &|n, within| {
                if n.category == Category::Layer {
                    return self.document.layer_lines(n, within);
                }
                if let Some(title) = self.document.part_title(n) {
                    return vec![title];
                }
                let name = self.document.layer_of(n);
                let name = relative(name.as_deref().unwrap_or(&n.name), within);
                let name = cut.get(&n.key).unwrap_or(&name);
                lines(n, name, want.detail, &self.constants, &|w| self.document.packed(w))
            },
            within: "",
            label: &|n| label(n),
            before: &before,
            measure: &measure,
            options,
        };
        Scene::arrange(picture, &a)
    }
}

/// The names of a module's constants, without parsing the rest: a line `const @NAME : TYPE = ...` declares one.
fn constants_of(text: &str) -> FxHashSet<String> {
    let declared = text.lines().filter_map(|l| l.strip_prefix("const @")?.split_once(" : "));
    declared.map(|(name, _)| name.trim_matches('"').to_string()).collect()
}

fn place_of(places: &FxHashMap<String, f32>, n: &Node) -> Option<f32> {
    if let Some(&x) = places.get(&n.key) {
        return Some(x);
    }
    let known: Vec<f32> = n.origins.iter().filter_map(|o| places.get(o)).copied().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)
}

/// Characters of a packed constant's name: its type is said in full.
const LEAST_NAME: usize = 12;

/// The text of a box: its op, and on request its name, its attributes and the constants that it reads.
///
/// `of_model` are the constants of the model; `packed` gives the type of a constant whose elements share words, such as
/// `i4 block 32 [1024,1024]`.
pub fn lines<'a>(
    node: &Node,
    name: &str,
    detail: Detail,
    of_model: &FxHashSet<String>,
    packed: &dyn Fn(&str) -> Option<&'a str>,
) -> Vec<String> {
    if node.category == Category::Terminal {
        return vec![short(name)];
    }
    let mut out = vec![node.op.clone()];
    if detail.names && !name.is_empty() && !name.eq_ignore_ascii_case(&node.op) {
        out.push(short(name));
    }
    if detail.attributes && !node.attrs.is_empty() {
        out.extend(split_attributes(&node.attrs).into_iter().take(6).map(short));
    }
    if !detail.constants {
        return out;
    }
    let weight = |w: &Weight| {
        let name = parameter(node, w, of_model);
        match packed(&w.name) {
            Some(ty) => {
                let room = SHORT.saturating_sub(ty.chars().count() + 1).max(LEAST_NAME);
                format!("{} {ty}", ending(name.trim_end_matches("_words"), room))
            }
            None => short(&format!("{name} {}", w.ty)),
        }
    };
    out.extend(node.weights.iter().take(3).map(weight));
    if node.weights.len() > 3 {
        out.push(format!("{} more constants", node.weights.len() - 3));
    }
    out
}

/// The name of a constant in its box: the last part of its name in the model. A constant that passes made has the name
/// of its role, or of the constant that it was made from.
fn parameter<'a>(node: &'a Node, w: &'a Weight, of_model: &FxHashSet<String>) -> &'a str {
    // TensorFlow's names end with the number of a result, `dense/kernel:0`.
    let numbered = |(_, n): &(&str, &str)| n.bytes().all(|b| b.is_ascii_digit());
    let plain = |name: &'a str| name.rsplit_once(':').filter(numbered).map_or(name, |(name, _)| name);
    let last = |name: &'a str| plain(name).rsplit(['.', '/', ':']).next().unwrap_or(name);
    if of_model.contains(&w.name) {
        return last(&w.name);
    }
    let from = w.name.rmatch_indices('.').map(|(i, _)| &w.name[..i]).find(|n| of_model.contains(*n));
    role(node, w.operand).or(from.map(last)).unwrap_or_else(|| last(&w.name))
}

/// The role of an operand of a product: in a fused group, that of the node which reads it.
fn role(node: &Node, operand: usize) -> Option<&'static str> {
    if let Some(inside) = node.inside.first().filter(|_| node.category == Category::Group) {
        let read = inside.edges.iter().find(|e| e.from == operand)?;
        return role(&inside.nodes[read.to], read.operand);
    }
    let product = node.category == Category::Contraction;
    product.then_some(if operand < 2 { "weight" } else { "bias" })
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
    node.outputs.first().map(|ty| with_layout(&short_type(ty), node.layout))
}

#[cfg(test)]
mod tests {
    use super::{constants_of, split_attributes};

    #[test]
    fn constants_are_found_in_the_text_of_a_module() {
        let text =
            "const @conv1.weight : f32[4] = splat(0.5)\ngraph @main(%x: f32[4]) -> (y: f32[4]) {\n  return %x\n}\n";
        let module = compiler::text::parse_module(text).expect("it parses");
        let printed = compiler::text::print_module(&module);
        assert_eq!(constants_of(&printed).into_iter().collect::<Vec<_>>(), ["conv1.weight"]);
    }

    #[test]
    fn attributes_are_split_at_their_own_commas() {
        assert_eq!(split_attributes(r#"pads=[1,1], name="a,b", k=2"#), ["pads=[1,1]", r#"name="a,b""#, "k=2"]);
    }
}
