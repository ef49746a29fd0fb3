//! Layers: boxes for the modules that a network was built from, as a tree.
//!
//! [`Modules`] finds the tree in the model as it came. Nodes of one module become one box with a picture inside, in
//! several levels. A box of which paths leave and come back stays open: closed, it would stand before and behind
//! another box. A value from outside enters the inner picture through a box with the maker's name.

mod modules;
mod order;
mod repeats;

pub use modules::{Modules, relative};

use crate::picture::{Category, Edge, Node, Picture};
use modules::{Path, Step, title};
use order::{Boxed, closable};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Fewer boxes than these say too little: the largest layers are shown open at first.
const FEW: usize = 5;
/// A layer that holds most of a network is open, if there are no more boxes than these then.
const MANY: usize = 25;
/// A block names so many of its ops.
const MOST_OPS: usize = 3;

/// A picture with its nodes in layers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Layered {
    /// The picture.
    pub picture: Picture,
    /// Keys of layers that are shown open at first.
    pub open: FxHashSet<String>,
}

/// The path of a layer: its name without the number of its equal layers.
pub fn path_of(layer: &Node) -> &str {
    let times = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    layer.op.rsplit_once(" x").filter(|(_, t)| times(t)).map_or(&layer.op, |(path, _)| path)
}

/// Folds a picture into layers. A picture in which there are no modules stays as it is.
pub fn fold(picture: &Picture, modules: &Modules) -> Layered {
    fold_within(picture, modules, "layer ")
}

/// `scope` keeps keys of two parts apart in which layers have the same names.
fn fold_within(picture: &Picture, modules: &Modules, scope: &str) -> Layered {
    let mut out = Layered { picture: picture.clone(), ..Layered::default() };
    for n in out.picture.nodes.iter_mut().filter(|n| n.category == Category::Control) {
        for (i, inside) in n.inside.iter_mut().enumerate() {
            let inner = fold_within(inside, modules, &format!("{scope}{}/{i}:", n.key));
            *inside = Arc::new(inner.picture);
            out.open.extend(inner.open);
        }
    }
    let paths: Vec<Path> = out.picture.nodes.iter().map(|n| modules.path_of(n)).collect();
    out.picture = Tree { scope, paths: paths.iter().collect() }.level(out.picture, &[]);
    open_some(&mut out);
    out
}

struct Tree<'a> {
    scope: &'a str,
    /// Of each node of the whole picture.
    paths: Vec<&'a Path>,
}

/// Nodes of a level that are one layer.
struct Family {
    step: Step,
    members: Vec<usize>,
}

impl Tree<'_> {
    /// The boxes of a level, below `prefix`. The nodes of `picture` are those that `self.paths` describes.
    fn level(&self, picture: Picture, prefix: &[Step]) -> Picture {
        let mut families: Vec<Family> = Vec::new();
        let mut number: FxHashMap<&str, usize> = FxHashMap::default();
        for (i, path) in self.paths.iter().enumerate() {
            let Some(step) = path.get(prefix.len()).filter(|_| path.starts_with(prefix)) else { continue };
            let at = *number.entry(&step.name).or_insert_with(|| {
                families.push(Family { step: step.clone(), members: vec![] });
                families.len() - 1
            });
            families[at].members.push(i);
        }
        families.retain(|f| f.members.len() > 1);
        if let [only] = families.as_slice()
            && only.step.times == 1
            && only.members.len() + count_terminals(&picture) >= picture.nodes.len()
        {
            // The only layer of a level says nothing.
            let prefix = [prefix, std::slice::from_ref(&only.step)].concat();
            return self.level(picture, &prefix);
        }
        let edges: Vec<(usize, usize)> = picture.edges.iter().map(|e| (e.from, e.to)).collect();
        let members: Vec<Vec<usize>> = families.iter().map(|f| f.members.clone()).collect();
        let mut keep = closable(picture.nodes.len(), &edges, &members).into_iter();
        families.retain(|_| keep.next() == Some(true));
        self.contract(picture, prefix, &families)
    }

    /// Puts each family into a box.
    fn contract(&self, mut picture: Picture, prefix: &[Step], families: &[Family]) -> Picture {
        let mut family: Vec<Option<usize>> = vec![None; picture.nodes.len()];
        families.iter().enumerate().for_each(|(k, f)| f.members.iter().for_each(|&i| family[i] = Some(k)));
        // Of each family: the edges between its members, and those that come from outside.
        let mut edges: Vec<(Vec<Edge>, Vec<Entry>)> = vec![Default::default(); families.len()];
        for e in &picture.edges {
            match family[e.to] {
                Some(k) if family[e.from] == Some(k) => edges[k].0.push(e.clone()),
                Some(k) => edges[k].1.push(Entry::new(&picture, e)),
                None => {}
            }
        }
        let boxes: Vec<Node> = families
            .iter()
            .zip(edges)
            .map(|(f, (inner, outer))| {
                let mut path = [prefix, std::slice::from_ref(&f.step)].concat();
                let names: Vec<&str> = path.iter().map(|s| s.name.as_str()).collect();
                let key = format!("{}{}", self.scope, names.join("."));
                let paths: Vec<&Path> = f.members.iter().map(|&i| self.paths[i]).collect();
                // A layer of nothing but equal layers is the box of these.
                while let Some(step) = all_in(&paths, path.len()).filter(|s| s.times > 1) {
                    path.push(step.clone());
                }
                let tree = Tree { scope: self.scope, paths };
                let inside = tree.level(part(&mut picture, &f.members, inner), &path);
                let inside = with_ends(inside, outer, &key);
                layer(key, &path, inside)
            })
            .collect();
        quotient(picture, &family, boxes)
    }
}

/// The step at a depth that all paths share.
fn all_in<'a>(paths: &[&'a Path], depth: usize) -> Option<&'a Step> {
    let step = paths.first()?.get(depth)?;
    paths.iter().all(|p| p.get(depth) == Some(step)).then_some(step)
}

fn count_terminals(p: &Picture) -> usize {
    p.nodes.iter().filter(|n| n.category == Category::Terminal).count()
}

/// Takes the nodes `members` out, with the edges between them. What stays in their places says nothing.
fn part(p: &mut Picture, members: &[usize], inner: Vec<Edge>) -> Picture {
    let at: FxHashMap<usize, usize> = members.iter().enumerate().map(|(k, &i)| (i, k)).collect();
    let edge = |e: Edge| Some(Edge { from: *at.get(&e.from)?, to: *at.get(&e.to)?, ..e });
    let nodes = members.iter().map(|&i| std::mem::replace(&mut p.nodes[i], blank(Category::Other))).collect();
    Picture { title: String::new(), nodes, edges: inner.into_iter().filter_map(edge).collect() }
}

/// A value that enters a layer.
#[derive(Clone)]
struct Entry {
    edge: Edge,
    /// Key and name of the box that makes it.
    maker: [String; 2],
    /// Key of the box that reads it.
    reader: String,
}

impl Entry {
    fn new(p: &Picture, e: &Edge) -> Entry {
        let maker = &p.nodes[e.from];
        let name = if maker.name.is_empty() { &maker.op } else { &maker.name };
        Entry { edge: e.clone(), maker: [maker.key.clone(), name.clone()], reader: p.nodes[e.to].key.clone() }
    }
    /// Its box in the layer.
    fn node(&self, layer: &str) -> Node {
        Node {
            key: format!("{layer}<{}:{}", self.maker[0], self.edge.result),
            op: "input".into(),
            name: self.maker[1].clone(),
            outputs: vec![self.edge.ty.clone()],
            layout: self.edge.layout,
            ..blank(Category::Terminal)
        }
    }
}

/// Adds a box for each value that comes from outside, and edges to the boxes that read it.
fn with_ends(mut inside: Picture, outer: Vec<Entry>, key: &str) -> Picture {
    let readers: Vec<Option<usize>> = {
        let mut holders = FxHashMap::default();
        hold(&inside, None, &mut holders);
        outer.iter().map(|e| holders.get(e.reader.as_str()).copied()).collect()
    };
    let mut made: FxHashMap<(usize, usize), usize> = FxHashMap::default();
    for (e, to) in outer.into_iter().zip(readers) {
        let Some(to) = to else { continue };
        let from = *made.entry((e.edge.from, e.edge.result)).or_insert_with(|| {
            inside.nodes.push(e.node(key));
            inside.nodes.len() - 1
        });
        inside.edges.push(Edge { from, to, ..e.edge });
    }
    inside
}

/// Adds for each key of a picture, at any depth of layers, the box of the outermost picture that it is in: `around`, or
/// its own.
fn hold<'a>(p: &'a Picture, around: Option<usize>, out: &mut FxHashMap<&'a str, usize>) {
    for (i, n) in p.nodes.iter().enumerate() {
        let at = around.unwrap_or(i);
        out.insert(&n.key, at);
        if n.category == Category::Layer {
            n.inside.iter().for_each(|p| hold(p, Some(at), out));
        }
    }
}

fn blank(category: Category) -> Node {
    Node {
        key: String::new(),
        op: String::new(),
        name: String::new(),
        category,
        work: category,
        origins: vec![],
        attrs: String::new(),
        weights: vec![],
        outputs: vec![],
        dtype: String::new(),
        layout: None,
        callee: None,
        inside: vec![],
    }
}

/// The box of a layer.
fn layer(key: String, path: &[Step], inside: Picture) -> Node {
    let own = || inside.nodes.iter().filter(|n| n.category != Category::Terminal);
    let mut origins: Vec<String> = own().flat_map(|n| n.origins.iter().cloned()).collect();
    origins.sort();
    origins.dedup();
    let last = own().next_back();
    Node {
        key,
        op: title(path),
        name: about(&inside, path),
        work: own().map(|n| n.work).min().unwrap_or(Category::Layer),
        origins,
        outputs: last.map_or(vec![], |n| n.outputs.clone()),
        dtype: last.map_or(String::new(), |n| n.dtype.clone()),
        layout: last.and_then(|n| n.layout),
        inside: vec![Arc::new(inside)],
        ..blank(Category::Layer)
    }
}

/// The number of nodes, and the ops that say most where the name says nothing.
fn about(inside: &Picture, path: &[Step]) -> String {
    let nodes = format!("{} nodes", count(inside));
    if path.last().is_none_or(|s| !s.block) {
        return nodes;
    }
    let mut ops: Vec<(Category, &str, usize)> = vec![];
    count_ops(inside, &mut ops);
    // The heaviest kinds of work stand first.
    ops.sort_by_key(|o| (o.0, usize::MAX - o.2));
    let heavy = ops.iter().filter(|o| matches!(o.0, Category::Contraction | Category::Reduction));
    let shown: Vec<&(Category, &str, usize)> =
        if heavy.clone().next().is_some() { heavy.collect() } else { ops.iter().collect() };
    let word = |(_, op, n): &&(Category, &str, usize)| if *n > 1 { format!("{n} {op}") } else { op.to_string() };
    let words: Vec<String> = shown.iter().take(MOST_OPS).map(word).collect();
    format!("{nodes}: {}", words.join(", "))
}

/// Counts the ops of nodes in layers and groups.
fn count_ops<'a>(p: &'a Picture, ops: &mut Vec<(Category, &'a str, usize)>) {
    for n in p.nodes.iter().filter(|n| n.category != Category::Terminal) {
        if matches!(n.category, Category::Layer | Category::Group) {
            n.inside.iter().for_each(|p| count_ops(p, ops));
            continue;
        }
        match ops.iter_mut().find(|o| o.1 == n.op) {
            Some(o) => o.2 += 1,
            None => ops.push((n.category, &n.op, 1)),
        }
    }
}

/// Nodes in layers and outside of them; a group is one.
fn count(p: &Picture) -> usize {
    let of = |n: &Node| match n.category {
        Category::Terminal => 0,
        Category::Layer => n.inside.iter().map(|p| count(p)).sum(),
        _ => 1,
    };
    p.nodes.iter().map(of).sum()
}

/// The picture with a box in place of each family, where its first node stood in an order of execution.
fn quotient(p: Picture, family: &[Option<usize>], boxes: Vec<Node>) -> Picture {
    let mut index: Vec<usize> = Vec::with_capacity(p.nodes.len());
    let (mut nodes, mut placed) = (Vec::new(), FxHashMap::default());
    let mut boxes: Vec<Option<Node>> = boxes.into_iter().map(Some).collect();
    for (n, f) in p.nodes.into_iter().zip(family) {
        let at = match f {
            None => {
                nodes.push(n);
                nodes.len() - 1
            }
            Some(k) => *placed.entry(*k).or_insert_with(|| {
                nodes.extend(boxes[*k].take());
                nodes.len() - 1
            }),
        };
        index.push(at);
    }
    let mut seen = FxHashSet::default();
    let moved = p.edges.into_iter().map(|e| Edge { from: index[e.from], to: index[e.to], ..e });
    let outer = moved.filter(|e| e.from != e.to);
    // Between two boxes a value is one edge.
    let edges = outer.filter(|e| seen.insert((e.from, e.to, e.result, e.ty.clone()))).collect();
    sorted(Picture { title: p.title, nodes, edges })
}

/// Boxes that make a value before those that read it.
fn sorted(p: Picture) -> Picture {
    let home: Vec<usize> = (0..p.nodes.len()).collect();
    let edges: Vec<(usize, usize)> = p.edges.iter().map(|e| (e.from, e.to)).collect();
    let order = Boxed { home: &home, edges: &edges }.order();
    if order.len() < p.nodes.len() {
        return p;
    }
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(k, &i)| place[i] = k);
    let mut nodes: Vec<Option<Node>> = p.nodes.into_iter().map(Some).collect();
    let nodes = order.iter().filter_map(|&i| nodes[i].take()).collect();
    let edges = p.edges.into_iter().map(|e| Edge { from: place[e.from], to: place[e.to], ..e }).collect();
    Picture { title: p.title, nodes, edges }
}

/// Opens the largest layers until there are enough boxes, and one that holds most of the network if its boxes are few.
fn open_some(l: &mut Layered) {
    let mut shown: Vec<&Node> = l.picture.nodes.iter().filter(|n| n.category != Category::Terminal).collect();
    let nodes_in = |n: &Node| n.inside.iter().map(|p| count(p)).sum::<usize>();
    let total = count(&l.picture);
    loop {
        let largest = (0..shown.len())
            .filter(|&i| shown[i].category == Category::Layer)
            .max_by_key(|&i| (nodes_in(shown[i]), usize::MAX - i));
        let Some(i) = largest else { return };
        let inside = || shown[i].inside.iter().flat_map(|p| &p.nodes).filter(|n| n.category != Category::Terminal);
        let most = path_of(shown[i]) == shown[i].op && 2 * nodes_in(shown[i]) > total;
        if shown.len() >= FEW && !(most && shown.len() + inside().count() <= MANY) {
            return;
        }
        let inside: Vec<&Node> = inside().collect();
        let node = shown.swap_remove(i);
        l.open.insert(node.key.clone());
        shown.extend(inside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    /// Blocks of two nodes; the block after next also reads each, so that values pass over blocks.
    fn network(blocks: usize) -> Picture {
        let mut text = "graph @main(%x: f32[4]) -> (y: f32[4]) {\n".to_string();
        for b in 0..blocks {
            let (first, before) = (2 * b, if b == 0 { "x".to_string() } else { (2 * b - 1).to_string() });
            let far = if b < 2 { "x".to_string() } else { (2 * b - 3).to_string() };
            text += &format!("  %{first} = exp %{before} : f32[4] !from(\"model.{b}.exp\")\n");
            text += &format!("  %{} = add %{first}, %{far} : f32[4] !from(\"model.{b}.add\")\n", first + 1);
        }
        text += &format!("  return %{}\n}}\n", 2 * blocks - 1);
        Picture::of(&parse_module(&text).expect("parses"))
    }

    fn titles(p: &Picture) -> Vec<&str> {
        p.nodes.iter().map(|n| n.op.as_str()).collect()
    }

    #[test]
    fn a_network_becomes_a_box_for_each_module() {
        let whole = network(6);
        let layered = fold(&whole, &Modules::of(&whole));
        let folded = layered.picture;
        assert_eq!(titles(&folded), ["input", "model x6", "output"]);
        assert!(layered.open.contains("layer model"), "three boxes alone say too little: {:?}", layered.open);
        let equal = &folded.nodes[1].inside[0];
        let blocks: Vec<String> = (0..6).map(|b| format!("model.{b}")).collect();
        assert_eq!(titles(equal), [blocks.iter().map(String::as_str).collect(), vec!["input"]].concat());
        assert!(equal.edges.iter().all(|e| e.from < e.to || e.from == 6), "makers stand before readers");
        let first = &equal.nodes[2];
        assert_eq!((first.category, first.name.as_str()), (Category::Layer, "2 nodes"));
        assert_eq!(first.origins, ["model.2.add", "model.2.exp"]);
        let inside = &first.inside[0];
        assert_eq!(inside.edges.len(), 3, "one inside, and two values from outside");
        // Every node is there once, in whichever layer.
        let keys = |p: &Picture| {
            let nodes = p.walk().into_iter().filter(|n| !n.key.starts_with("layer "));
            let mut keys: Vec<String> = nodes.map(|n| n.key.clone()).collect();
            keys.sort();
            keys
        };
        assert_eq!(keys(&folded), keys(&whole));
    }

    #[test]
    fn a_module_that_is_left_and_entered_again_is_not_closed() {
        let text = "graph @main(%x: f32[4]) -> (y: f32[4]) {
  %0 = exp %x : f32[4] !from(\"a.one\")
  %1 = neg %0 : f32[4] !from(\"b.one\")
  %2 = abs %1 : f32[4] !from(\"b.two\")
  %3 = add %0, %2 : f32[4] !from(\"a.two\")
  return %3
}
";
        let whole = Picture::of(&parse_module(text).expect("parses"));
        let folded = fold(&whole, &Modules::of(&whole));
        assert_eq!(titles(&folded.picture), ["input", "exp", "b", "add", "output"]);
        assert!(folded.open.contains("layer b"), "three boxes alone say too little: {:?}", folded.open);
    }

    /// A network of which names say nothing, before and after a pass that joins nodes of two blocks.
    #[test]
    fn blocks_of_the_source_are_the_layers_behind_passes() {
        let ty = ": f32[4]";
        let (mut source, mut fused) = (String::new(), String::new());
        for b in 0..6 {
            let (n, last) = (3 * b, if b == 0 { "x".into() } else { (3 * b - 1).to_string() });
            source += &format!(
                "  %{n} = exp %{last} {ty} !from(\"N_{n}\")\n  %{} = neg %{n} {ty} !from(\"N_{}\")\n",
                n + 1,
                n + 1
            );
            source += &format!("  %{} = add %{}, %{last} {ty} !from(\"N_{}\")\n", n + 2, n + 1, n + 2);
            let (n, last) = (2 * b, if b == 0 { "x".into() } else { (2 * b - 1).to_string() });
            fused += &format!("  %{n} = exp %{last} {ty} !from(\"N_{}\", \"N_{}\")\n", 3 * b, 3 * b + 1);
            fused += &format!("  %{} = add %{n}, %{last} {ty} !from(\"N_{}\")\n", n + 1, 3 * b + 2);
        }
        let whole = |body: &str, last: usize| {
            let text = format!("graph @main(%x: f32[4]) -> (y: f32[4]) {{\n{body}  return %{last}\n}}\n");
            Picture::of(&parse_module(&text).expect("parses"))
        };
        let (source, fused) = (whole(&source, 17), whole(&fused, 11));
        let modules = Modules::of(&source);
        for (picture, about) in [(&source, "18 nodes: 6 exp, 6 neg, 6 add"), (&fused, "12 nodes: 6 exp, 6 add")] {
            let folded = fold(picture, &modules);
            assert_eq!(titles(&folded.picture), ["input", "block 1..6 x6", "output"]);
            assert_eq!(folded.picture.nodes[1].name, about);
            let inside = titles(&folded.picture.nodes[1].inside[0]);
            assert_eq!(inside[..2], ["block 1", "block 2"]);
        }
    }

    #[test]
    fn names_without_places_fold_nothing() {
        let text =
            "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %0 = exp %x : f32[4] !from(\"Exp_0\")\n  return %0\n}\n";
        let p = Picture::of(&parse_module(text).expect("parses"));
        assert_eq!(fold(&p, &Modules::of(&p)).picture, p);
    }
}
