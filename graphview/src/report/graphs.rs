//! The graphs of a report: each picture in layers, every level placed with all of its boxes closed.
//!
//! The page opens boxes itself: it stretches the places around an open box until its inside fits, which keeps the order
//! of boxes and never makes two overlap. So a level is placed once, whatever is open in it.

use super::sources::{Pool, Sources};
use crate::layers::{Modules, fold, path_of, relative};
use crate::layout::{Options, Route};
use crate::picture::{Category, Node, Picture};
use crate::scene::{Arrangement, Scene, SceneEdge, plain_lines, short, short_type};
use compiler::trace::{CompileTrace, Group};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

/// A level with more boxes is placed in columns.
const LONG: usize = 60;

/// The graphs of all stages.
pub(super) struct Graphs<'t> {
    t: &'t CompileTrace,
    sources: Sources,
    nodes: Pool,
    levels: Pool,
    by_function: FxHashMap<&'t str, usize>,
    by_node: FxHashMap<&'t str, Vec<usize>>,
    by_layer: FxHashMap<&'t str, Vec<usize>>,
    /// Of the picture at work: the groups of each box that is no layer, by key.
    groups: FxHashMap<String, Vec<usize>>,
    /// Of these boxes, the groups that they are counted for: a group counts in one layer.
    homes: FxHashMap<String, Vec<usize>>,
    /// Of the first picture, the model as it came.
    modules: Option<Modules>,
}

impl<'t> Graphs<'t> {
    pub(super) fn new(t: &'t CompileTrace) -> Graphs<'t> {
        let (mut by_node, mut by_layer) =
            (FxHashMap::<_, Vec<usize>>::default(), FxHashMap::<_, Vec<usize>>::default());
        for (i, g) in t.groups.iter().enumerate() {
            by_layer.entry(g.layer.as_str()).or_default().push(i);
            for name in g.origins.iter().chain(&g.nodes) {
                let list = by_node.entry(name.as_str()).or_default();
                if list.last() != Some(&i) {
                    list.push(i);
                }
            }
        }
        Graphs {
            t,
            sources: Sources::new(t),
            nodes: Pool::default(),
            levels: Pool::default(),
            by_function: t.groups.iter().enumerate().map(|(i, g)| (g.function.as_str(), i)).collect(),
            by_node,
            by_layer,
            groups: FxHashMap::default(),
            homes: FxHashMap::default(),
            modules: None,
        }
    }

    /// The graph of a picture, of which the first is the model as it came: its outermost level, and the boxes that are
    /// open at first.
    pub(super) fn graph(&mut self, picture: &Picture) -> Value {
        self.relate(picture);
        let layered = fold(picture, self.modules.get_or_insert_with(|| Modules::of(picture)));
        let level = self.level(&layered.picture, !picture.nodes.is_empty(), "");
        let control = picture.outer().into_iter().filter(|n| n.category == Category::Control && !n.inside.is_empty());
        let mut open: Vec<&String> = layered.open.iter().chain(control.map(|n| &n.key)).collect();
        open.sort();
        json!({ "level": level, "open": open })
    }

    /// Finds the groups of every box of a picture.
    fn relate(&mut self, picture: &Picture) {
        let fused = picture.walk().iter().any(|n| n.category == Category::Group);
        self.groups.clear();
        self.homes.clear();
        self.relate_within(picture, fused, None);
    }
    /// `around` is the fused group that the picture is inside.
    fn relate_within(&mut self, picture: &Picture, fused: bool, around: Option<usize>) {
        for n in &picture.nodes {
            let own = around.or_else(|| self.by_function.get(n.callee.as_deref()?).copied());
            let groups = match (own, self.part_of(n)) {
                (Some(g), _) => vec![g],
                (None, Some(part)) => (0..self.t.groups.len()).filter(|&g| self.t.part_of_group(g) == part).collect(),
                (None, None) => self.listed(&self.by_node, n),
            };
            let home = match (own, fused) {
                (Some(g), _) => vec![g],
                // Control flow and what the host computes has no function of its own.
                (None, true) => self.by_node.get(n.name.as_str()).cloned().unwrap_or_default(),
                (None, false) => self.listed(&self.by_layer, n),
            };
            self.groups.insert(n.key.clone(), groups);
            self.homes.insert(n.key.clone(), home);
            let group = own.filter(|_| n.category == Category::Group);
            n.inside.iter().for_each(|p| self.relate_within(p, fused, around.or(group)));
        }
    }
    /// The part of the network that a box is the frame of.
    fn part_of(&self, n: &Node) -> Option<usize> {
        let name = n.key.strip_prefix("part ")?;
        self.t.parts.iter().position(|p| p.name == name)
    }
    /// The title of the frame of a part: its name, how often it runs, its time, and whether the host computes it.
    fn part_title(&self, n: &Node, part: usize) -> String {
        let own = self.groups_of(n).into_iter().filter_map(|g| Some(self.t.time_of_group(g)?.us / 1e3));
        let host = self.t.parts[part].host_ms;
        let place = if host.is_some() { " on the host" } else { "" };
        let time = own.chain(host).reduce(|a, b| a + b).map(|ms| format!(", {ms:.2} ms{place}"));
        format!("part: {}{}", self.t.part_title(part), time.unwrap_or_default())
    }
    fn listed(&self, by: &FxHashMap<&str, Vec<usize>>, n: &Node) -> Vec<usize> {
        let found = n.origins.iter().filter_map(|o| by.get(o.as_str())).flatten();
        let mut list: Vec<usize> = found.copied().collect();
        list.sort_unstable();
        list.dedup();
        list
    }
    /// The groups of a box; of a layer those that it counts, of a value from outside those of its maker.
    fn groups_of(&self, n: &Node) -> Vec<usize> {
        if n.category == Category::Layer {
            let homes = n.inside.iter().flat_map(|p| p.outer()).filter_map(|m| self.homes.get(&m.key));
            let set: FxHashSet<usize> = homes.flatten().copied().collect();
            let mut list: Vec<usize> = set.into_iter().collect();
            list.sort_unstable();
            return list;
        }
        let maker = || n.key.rsplit_once(':').and_then(|(k, _)| k.split_once('<')).map(|(_, maker)| maker);
        let own = self.groups.get(&n.key);
        own.or_else(|| self.groups.get(maker()?)).cloned().unwrap_or_default()
    }

    /// The number of a level. The outermost one of a long chain is folded into columns.
    fn level(&mut self, picture: &Picture, outermost: bool, within: &str) -> usize {
        let inside: Vec<Vec<usize>> = picture
            .nodes
            .iter()
            .map(|n| {
                let within = if n.category == Category::Layer { path_of(n) } else { within };
                n.inside.iter().map(|p| self.level(p, false, within)).collect()
            })
            .collect();
        let columns = outermost && picture.nodes.len() > LONG;
        let scene = {
            let lines = |n: &Node, within: &str| self.lines(n, within);
            let options = Options { fold: columns.then_some(1.4), ..Options::default() };
            // Room for the sign that opens a box, behind its first line.
            let label = |n: &Node| lines(n, within).first().filter(|_| !n.inside.is_empty()).map(|l| format!("{l}MM"));
            let arrangement =
                Arrangement { lines: &lines, within, label: &label, options, ..Arrangement::plain(&|_| false) };
            Scene::arrange(picture, &arrangement)
        };
        let mut boxes = Vec::with_capacity(scene.boxes.len());
        for (b, inside) in scene.boxes.iter().zip(inside) {
            let node = self.node(&b.node, &b.lines);
            boxes.push(json!({ "node": node, "rect": b.rect.map(tenth), "inside": inside }));
        }
        let edges: Vec<Value> = scene.edges.iter().map(edge).collect();
        self.levels
            .put(json!({ "title": picture.title, "size": scene.size.map(tenth), "boxes": boxes, "edges": edges }))
    }

    /// The text of a box.
    fn lines(&self, n: &Node, within: &str) -> Vec<String> {
        if let Some(part) = self.part_of(n) {
            return vec![self.part_title(n, part)];
        }
        let own = n.callee.as_deref().and_then(|c| self.by_function.get(c)).map(|&g| &self.t.groups[g]);
        let groups = || self.groups_of(n);
        let time = |groups: &[usize]| {
            let known = groups.iter().filter_map(|&g| self.t.time_of_group(g)).map(|t| t.us);
            known.reduce(|a, b| a + b).map(|us| format!("{:.2} ms", us / 1e3))
        };
        let mut lines = match (n.category, own) {
            (Category::Layer, _) => vec![short(&relative(&n.op, within)), n.name.clone()],
            (Category::Group, Some(g)) => [vec![layer_of(g, within), n.op.clone()], result(n)].concat(),
            // A value from outside of a layer bears the name of the layer that makes it.
            (Category::Terminal, _) if !self.groups.contains_key(&n.key) => match self.groups_of(n).as_slice() {
                [g] => [vec![layer_of(&self.t.groups[*g], within)], result(n)].concat(),
                _ => plain_lines(n, within),
            },
            _ => plain_lines(n, within),
        };
        if matches!(n.category, Category::Layer | Category::Group) {
            lines.extend(time(&groups()));
        }
        lines
    }

    fn node(&mut self, n: &Node, lines: &[String]) -> usize {
        let constants: Vec<Value> =
            n.weights.iter().map(|w| json!({ "operand": w.operand, "name": w.name, "type": w.ty })).collect();
        let node = json!({
            "key": n.key, "op": n.op, "name": n.name, "category": n.category, "work": n.work,
            "origins": self.sources.numbers(&n.origins), "groups": self.groups_of(n), "attributes": n.attrs,
            "constants": constants, "results": n.outputs, "dtype": n.dtype, "layout": n.layout, "lines": lines,
        });
        self.nodes.put(node)
    }

    /// The numbers of source nodes, the boxes and the levels.
    pub(super) fn into_parts(self) -> (Sources, Vec<Value>, Vec<Value>) {
        (self.sources, self.nodes.list, self.levels.list)
    }
}

/// The type of the first result of a box.
fn result(n: &Node) -> Vec<String> {
    n.outputs.first().map(|ty| short_type(ty)).into_iter().collect()
}

/// The layer of a group; behind it the label has what is fused with it.
fn layer_of(g: &Group, within: &str) -> String {
    short(&relative(g.label.split('+').next().unwrap_or(&g.label), within))
}

fn edge(e: &SceneEdge) -> Value {
    let (route, portal): (Vec<f64>, bool) = match &e.route {
        Route::Line(points) => (points.iter().flat_map(|p| p.map(tenth)).collect(), false),
        Route::Portal(a, b) => ([*a, *b].iter().flat_map(|p| p.map(tenth)).collect(), true),
    };
    json!({ "from": e.from, "to": e.to, "type": e.label, "path": route, "portal": portal })
}

fn tenth(x: f32) -> f64 {
    (f64::from(x) * 10.0).round() / 10.0
}
