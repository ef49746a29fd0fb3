//! Layers: boxes for the modules that a network was built from, as a tree made of names.
//!
//! Exporters name nodes by their place: `/model.2/m.0/cv1/conv/Conv`, `layer1.0.conv1`. Names are split at `/` and `.`,
//! and nodes with a common beginning become one box with a picture inside, in several levels. A box of which paths
//! leave and come back stays open: closed, it would stand before and behind another box. A value from outside enters
//! the inner picture through a box with the maker's name.

use crate::picture::{Category, Edge, Node, Picture};
use rustc_hash::{FxHashMap, FxHashSet};

/// Fewer boxes than these say too little: the largest layers are shown open at first.
const FEW: usize = 5;

/// A picture with its nodes in layers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Layered {
    /// The picture.
    pub picture: Picture,
    /// Keys of layers that are shown open at first.
    pub open: FxHashSet<String>,
}

/// Folds a picture into layers. A picture whose names tell no layers stays as it is.
pub fn fold(picture: &Picture) -> Layered {
    fold_within(picture, "layer ")
}

/// `scope` keeps keys of two parts apart in which layers have the same names.
fn fold_within(picture: &Picture, scope: &str) -> Layered {
    let mut out = Layered { picture: picture.clone(), ..Layered::default() };
    for n in out.picture.nodes.iter_mut().filter(|n| n.category == Category::Control) {
        for (i, inside) in n.inside.iter_mut().enumerate() {
            let inner = fold_within(inside, &format!("{scope}{}/{i}:", n.key));
            *inside = inner.picture;
            out.open.extend(inner.open);
        }
    }
    let paths: Vec<Vec<String>> = out.picture.nodes.iter().map(path_of).collect();
    out.picture = Tree { scope, paths }.level(out.picture, &[]);
    open_some(&mut out);
    out
}

/// The place of a node in the tree: what all of its source nodes have in common, but for the last part of a name.
fn path_of(n: &Node) -> Vec<String> {
    let mut paths = n.origins.iter().map(|o| split(o));
    let Some(mut common) = paths.next() else { return vec![] };
    common.pop();
    for other in paths {
        let same = common.iter().zip(&other).take_while(|(a, b)| a == b).count();
        common.truncate(same);
    }
    common
}

/// The parts of a name: `/layer1/layer1.0/conv1/Conv` are `layer1`, `0`, `conv1`, `Conv`.
fn split(name: &str) -> Vec<String> {
    let (mut out, mut before) = (Vec::new(), "");
    for part in name.split('/').filter(|p| !p.is_empty()) {
        let own = part.strip_prefix(before).and_then(|p| p.strip_prefix('.')).filter(|_| !before.is_empty());
        out.extend(own.unwrap_or(part).split('.').filter(|p| !p.is_empty()).map(str::to_string));
        before = part;
    }
    out
}

struct Tree<'a> {
    scope: &'a str,
    /// Of each node of the whole picture.
    paths: Vec<Vec<String>>,
}

impl Tree<'_> {
    /// The boxes of a level, below `prefix`. The nodes of `picture` are those that `self.paths` describes.
    fn level(&self, picture: Picture, prefix: &[String]) -> Picture {
        let mut families: Vec<(String, Vec<usize>)> = Vec::new();
        let mut number: FxHashMap<&str, usize> = FxHashMap::default();
        for (i, path) in self.paths.iter().enumerate() {
            let Some(name) = path.get(prefix.len()).filter(|_| path.starts_with(prefix)) else { continue };
            let at = *number.entry(name).or_insert_with(|| {
                families.push((name.clone(), vec![]));
                families.len() - 1
            });
            families[at].1.push(i);
        }
        families.retain(|f| f.1.len() > 1);
        if let [(name, members)] = families.as_slice()
            && members.len() + count_terminals(&picture) >= picture.nodes.len()
        {
            // The only layer of a level says nothing.
            let prefix = [prefix, std::slice::from_ref(name)].concat();
            return self.level(picture, &prefix);
        }
        let mut home: Vec<usize> = (0..picture.nodes.len()).collect();
        let mut kept = vec![];
        for (name, members) in families {
            let before = home.clone();
            members.iter().for_each(|&i| home[i] = members[0]);
            if is_acyclic(&picture, &home) { kept.push((name, members)) } else { home = before }
        }
        self.contract(picture, prefix, kept)
    }

    /// Puts each family into a box.
    fn contract(&self, picture: Picture, prefix: &[String], families: Vec<(String, Vec<usize>)>) -> Picture {
        let mut family: Vec<Option<usize>> = vec![None; picture.nodes.len()];
        families.iter().enumerate().for_each(|(k, f)| f.1.iter().for_each(|&i| family[i] = Some(k)));
        let boxes: Vec<Node> = families
            .iter()
            .map(|(name, members)| {
                let path = [prefix, std::slice::from_ref(name)].concat();
                let tree = Tree { scope: self.scope, paths: members.iter().map(|&i| self.paths[i].clone()).collect() };
                let inside = tree.level(part(&picture, members), &path);
                let key = format!("{}{}", self.scope, path.join("."));
                let inside = with_ends(inside, &picture, members, &key);
                layer(key, &path, inside)
            })
            .collect();
        quotient(picture, &family, boxes)
    }
}

fn count_terminals(p: &Picture) -> usize {
    p.nodes.iter().filter(|n| n.category == Category::Terminal).count()
}

/// True if the boxes at `home` can be put in an order (Kahn's algorithm).
fn is_acyclic(p: &Picture, home: &[usize]) -> bool {
    let edges = p.edges.iter().map(|e| (home[e.from], home[e.to])).filter(|(a, b)| a != b);
    let (mut waits, mut next) = (vec![0usize; home.len()], vec![vec![]; home.len()]);
    edges.for_each(|(a, b)| {
        waits[b] += 1;
        next[a].push(b);
    });
    let mut ready: Vec<usize> = (0..home.len()).filter(|&i| waits[i] == 0).collect();
    let mut done = 0;
    while let Some(i) = ready.pop() {
        done += 1;
        for &b in &next[i] {
            waits[b] -= 1;
            if waits[b] == 0 {
                ready.push(b);
            }
        }
    }
    done == home.len()
}

/// The nodes `members` with the edges between them.
fn part(p: &Picture, members: &[usize]) -> Picture {
    let at: FxHashMap<usize, usize> = members.iter().enumerate().map(|(k, &i)| (i, k)).collect();
    let edge = |e: &Edge| Some(Edge { from: *at.get(&e.from)?, to: *at.get(&e.to)?, ..e.clone() });
    let nodes = members.iter().map(|&i| p.nodes[i].clone()).collect();
    Picture { title: String::new(), nodes, edges: p.edges.iter().filter_map(edge).collect() }
}

/// Adds a box for each value that comes from outside, and edges to the boxes that read it.
fn with_ends(mut inside: Picture, p: &Picture, members: &[usize], key: &str) -> Picture {
    let own: FxHashSet<usize> = members.iter().copied().collect();
    let holders = holders(&inside);
    let mut made: FxHashMap<(usize, usize), usize> = FxHashMap::default();
    for e in p.edges.iter().filter(|e| own.contains(&e.to) && !own.contains(&e.from)) {
        let Some(&to) = holders.get(&p.nodes[e.to].key) else { continue };
        let from = *made.entry((e.from, e.result)).or_insert_with(|| {
            inside.nodes.push(entrance(&p.nodes[e.from], e, key));
            inside.nodes.len() - 1
        });
        inside.edges.push(Edge { from, to, ..e.clone() });
    }
    inside
}

/// For each key of a picture, at any depth of layers, the box of the picture itself that it is in.
fn holders(p: &Picture) -> FxHashMap<String, usize> {
    let mut out = FxHashMap::default();
    for (i, n) in p.nodes.iter().enumerate() {
        out.insert(n.key.clone(), i);
        if n.category == Category::Layer {
            out.extend(n.inside.iter().flat_map(Picture::walk).map(|m| (m.key.clone(), i)));
        }
    }
    out
}

fn entrance(maker: &Node, e: &Edge, layer: &str) -> Node {
    let name = if maker.name.is_empty() { &maker.op } else { &maker.name };
    Node {
        key: format!("{layer}<{}:{}", maker.key, e.result),
        op: "input".into(),
        name: name.clone(),
        outputs: vec![e.ty.clone()],
        layout: e.layout,
        ..blank(Category::Terminal)
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
fn layer(key: String, path: &[String], inside: Picture) -> Node {
    let own = || inside.nodes.iter().filter(|n| n.category != Category::Terminal);
    let mut origins: Vec<String> = own().flat_map(|n| n.origins.iter().cloned()).collect();
    origins.sort();
    origins.dedup();
    let last = own().next_back();
    Node {
        key,
        op: path.join("."),
        name: format!("{} nodes", count(&inside)),
        work: own().map(|n| n.work).min().unwrap_or(Category::Layer),
        origins,
        outputs: last.map_or(vec![], |n| n.outputs.clone()),
        dtype: last.map_or(String::new(), |n| n.dtype.clone()),
        layout: last.and_then(|n| n.layout),
        inside: vec![inside],
        ..blank(Category::Layer)
    }
}

/// Nodes in layers and outside of them; a group is one.
fn count(p: &Picture) -> usize {
    let of = |n: &Node| match n.category {
        Category::Terminal => 0,
        Category::Layer => n.inside.iter().map(count).sum(),
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
    let mut waits = vec![0usize; p.nodes.len()];
    let mut next = vec![vec![]; p.nodes.len()];
    for e in &p.edges {
        waits[e.to] += 1;
        next[e.from].push(e.to);
    }
    let mut ready: std::collections::BTreeSet<usize> = (0..p.nodes.len()).filter(|&i| waits[i] == 0).collect();
    let mut order = Vec::with_capacity(p.nodes.len());
    while let Some(i) = ready.pop_first() {
        order.push(i);
        for &b in &next[i] {
            waits[b] -= 1;
            if waits[b] == 0 {
                ready.insert(b);
            }
        }
    }
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

/// Opens the largest layers until there are enough boxes.
fn open_some(l: &mut Layered) {
    let mut shown: Vec<&Node> = l.picture.nodes.iter().filter(|n| n.category != Category::Terminal).collect();
    while shown.len() < FEW {
        let largest = (0..shown.len())
            .filter(|&i| shown[i].category == Category::Layer)
            .max_by_key(|&i| (shown[i].inside.iter().map(count).sum::<usize>(), usize::MAX - i));
        let Some(i) = largest else { return };
        let node = shown.swap_remove(i);
        l.open.insert(node.key.clone());
        shown.extend(node.inside.iter().flat_map(|p| &p.nodes).filter(|n| n.category != Category::Terminal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    #[test]
    fn names_are_split_at_slashes_and_dots() {
        assert_eq!(split("/layer1/layer1.0/conv1/Conv"), ["layer1", "0", "conv1", "Conv"]);
        assert_eq!(split("model.2.m.0.cv1"), ["model", "2", "m", "0", "cv1"]);
        assert_eq!(split("Conv_37"), ["Conv_37"]);
    }

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

    #[test]
    fn a_network_becomes_a_box_for_each_module() {
        let whole = network(6);
        let folded = fold(&whole).picture;
        let titles: Vec<&str> = folded.nodes.iter().map(|n| n.op.as_str()).collect();
        let blocks: Vec<String> = (0..6).map(|b| format!("model.{b}")).collect();
        let expected = [vec!["input"], blocks.iter().map(String::as_str).collect(), vec!["output"]].concat();
        assert_eq!(titles, expected);
        assert!(folded.edges.iter().all(|e| e.from < e.to), "makers stand before readers");
        let first = &folded.nodes[3];
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
        let folded = fold(&Picture::of(&parse_module(text).expect("parses")));
        let ops: Vec<&str> = folded.picture.nodes.iter().map(|n| n.op.as_str()).collect();
        assert_eq!(ops, ["input", "exp", "b", "add", "output"]);
        assert!(folded.open.contains("layer b"), "three boxes alone say too little: {:?}", folded.open);
    }

    #[test]
    fn names_without_places_fold_nothing() {
        let text =
            "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %0 = exp %x : f32[4] !from(\"Exp_0\")\n  return %0\n}\n";
        let p = Picture::of(&parse_module(text).expect("parses"));
        assert_eq!(fold(&p).picture, p);
    }
}
