//! The modules of a network: for each node of the model as it came, the way from the whole network to it.
//!
//! Names tell modules where exporters put them in: they are split at `/` and `.`. Within a module, and where names say
//! nothing (`Conv_37`), repeated stretches of equal nodes are blocks, and modules that follow each other and are equal
//! stand in one box. What still has too many boxes is divided where few values pass. Graphs behind passes take over
//! the modules of the source nodes, so that a layer stays the same from pass to pass.

use super::order::{Boxed, closable};
use super::repeats::{Border, Chain, Run, divide};
use crate::picture::{Category, Node, Picture};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

/// A level with more boxes is divided.
const MOST: usize = 25;
/// A level with fewer items is plain enough: repeated nodes in it are no blocks.
const PLENTY: usize = 12;
/// Blocks have as many nodes.
const SMALLEST_BLOCK: usize = 3;

/// A step of the way to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Step {
    /// Unique beside its siblings.
    pub(super) name: String,
    /// Equal layers in it; 1 if it is none of those.
    pub(super) times: usize,
    /// It was made for equal layers, and is not part of their names.
    pub(super) run: bool,
    /// Its name says nothing of what it does.
    pub(super) block: bool,
}

impl Step {
    fn named(name: &str) -> Step {
        Step { name: name.into(), times: 1, run: false, block: false }
    }
    fn block(number: usize) -> Step {
        Step { block: true, ..Step::named(&format!("block {number}")) }
    }
}

/// The name of a layer: its way, and how many equal layers it has.
pub(super) fn title(path: &[Step]) -> String {
    let last = path.len().saturating_sub(1);
    let names = path.iter().enumerate().filter(|(i, s)| *i == last || !s.run).map(|(_, s)| s.name.as_str());
    let name = names.collect::<Vec<_>>().join(".");
    match path.last() {
        Some(s) if s.times > 1 => format!("{name} x{}", s.times),
        _ => name,
    }
}

/// The boxes around a node, outer ones first. Nodes of a module share it.
pub(super) type Path = Arc<[Step]>;

/// The beginning that two paths share.
fn common(a: &Path, b: &Path) -> Path {
    if Arc::ptr_eq(a, b) {
        return a.clone();
    }
    let same = a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count();
    if same == a.len() { a.clone() } else { a[..same].into() }
}

/// The modules of a network.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Modules {
    /// Of each source node.
    paths: FxHashMap<String, Path>,
}

impl Modules {
    /// Finds the modules of a model from its graph before all passes.
    pub fn of(source: &Picture) -> Modules {
        let mut out = Modules::default();
        out.find(source);
        out
    }
    fn find(&mut self, picture: &Picture) {
        let mut finder = Finder::new(picture);
        let own = |i: &usize| picture.nodes[*i].category != Category::Terminal;
        finder.level(&(0..picture.nodes.len()).filter(own).collect::<Vec<_>>(), 0, &[]);
        for (n, path) in picture.nodes.iter().zip(finder.paths) {
            for o in &n.origins {
                // What the import made of one node may be in several blocks.
                let known = self.paths.get(o).map_or_else(|| path.clone(), |k| common(k, &path));
                self.paths.insert(o.clone(), known);
            }
        }
        let control = picture.nodes.iter().filter(|n| n.category == Category::Control);
        control.flat_map(|n| &n.inside).for_each(|p| self.find(p));
    }
    /// The modules of a node: those that all of its source nodes have in common.
    pub(super) fn path_of(&self, n: &Node) -> Path {
        let of = |o: &String| self.paths.get(o).cloned().unwrap_or_else(|| place(o).map(Step::named).collect());
        n.origins.iter().map(of).reduce(|a, b| common(&a, &b)).unwrap_or_default()
    }
}

/// The parts of a name but for the last: `/layer1/layer1.0/conv1/Conv` stands in `layer1`, `0`, `conv1`.
fn place(name: &str) -> impl Iterator<Item = &str> {
    let mut parts = split(name);
    parts.pop();
    parts.into_iter()
}

fn split(name: &str) -> Vec<&str> {
    let (mut out, mut before) = (Vec::new(), "");
    for part in name.split('/').filter(|p| !p.is_empty()) {
        let own = part.strip_prefix(before).and_then(|p| p.strip_prefix('.')).filter(|_| !before.is_empty());
        out.extend(own.unwrap_or(part).split('.').filter(|p| !p.is_empty()));
        before = part;
    }
    out
}

/// A name as it is said inside of the layer at `path`: `/model.2/cv1/conv/Conv` is `cv1/conv/Conv` in `model.2`. A name
/// that stands elsewhere stays whole, and the layer's own name too.
pub fn relative(name: &str, path: &str) -> String {
    // A layer in a layer.
    if let Some(rest) = name.strip_prefix(path).and_then(|rest| rest.strip_prefix('.')) {
        return rest.into();
    }
    // Blocks, and numbers of equal layers (`model.3..5`), are no parts of names.
    let path = path.split_once("..").map_or(path, |(first, _)| first.rsplit_once('.').map_or("", |(path, _)| path));
    let path = path.split_once("block ").map_or(path, |(path, _)| path);
    let (parts, around) = (split(name), split(path));
    let same = parts.iter().zip(&around).take_while(|(a, b)| a == b).count();
    if around.is_empty() || same < around.len() || same >= parts.len() {
        return name.into();
    }
    // The rest as it is written: only the end of a module's name is repeated in that of its part.
    let rest = parts[same..].join(if name.contains('/') { "/" } else { "." });
    let written = name.rfind(&rest).map(|at| &name[at..]);
    written.filter(|w| split(w) == parts[same..]).map_or(rest.clone(), String::from)
}

/// Nodes that stand together in a level: one, or a module.
struct Item {
    /// In the order of the picture.
    nodes: Vec<usize>,
    /// The name of the module.
    module: Option<String>,
    /// Equal for items that do the same.
    looks: u64,
}

/// A part of a level.
enum Piece {
    Item(usize),
    Run(Run),
    Block(Range<usize>),
}
impl Piece {
    fn range(&self) -> Range<usize> {
        match self {
            Piece::Item(i) => *i..*i + 1,
            Piece::Run(run) => run.start..run.end(),
            Piece::Block(range) => range.clone(),
        }
    }
}

/// Finds the paths of a picture's nodes.
struct Finder<'a> {
    /// Of each node: where its name puts it.
    names: Vec<Vec<&'a str>>,
    /// Of each node: equal for nodes that do the same.
    looks: Vec<u64>,
    /// The results of nodes that each node reads.
    reads: Vec<Vec<(usize, usize)>>,
    paths: Vec<Path>,
    /// Place of each node in the item at work, or among the items of the level at work.
    at: Vec<usize>,
}

/// What [`Finder::at`] says of other nodes.
const OUTSIDE: usize = usize::MAX;

fn hash(of: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish()
}

impl<'a> Finder<'a> {
    fn new(picture: &'a Picture) -> Finder<'a> {
        let names = |n: &'a Node| n.origins.first().map_or_else(Vec::new, |o| place(o).collect());
        let looks = |n: &Node| {
            let constants: Vec<&str> = n.weights.iter().map(|w| w.ty.as_str()).collect();
            hash((&n.op, &n.attrs, &n.outputs, constants))
        };
        let mut reads = vec![vec![]; picture.nodes.len()];
        picture.edges.iter().for_each(|e| reads[e.to].push((e.from, e.result)));
        Finder {
            names: picture.nodes.iter().map(names).collect(),
            looks: picture.nodes.iter().map(looks).collect(),
            reads,
            paths: vec![Path::default(); picture.nodes.len()],
            at: vec![OUTSIDE; picture.nodes.len()],
        }
    }

    /// Finds the paths below `prefix`, which are `depth` parts of names deep.
    fn level(&mut self, members: &[usize], depth: usize, prefix: &[Step]) {
        let items = self.items(members, depth);
        let borders = self.borders(&items);
        let runs = self.runs(&items, &borders);
        let mut prefix = prefix.to_vec();
        if let ([run], Some(last)) = (runs.as_slice(), prefix.last_mut())
            && run.period * run.times == items.len()
            && run.period == 1
            && last.times == 1
        {
            last.times = run.times;
            let blocks: Vec<Range<usize>> = run.blocks().collect();
            return self.equal(&items, &blocks, (depth, 1), &prefix.into());
        }
        let pieces = divided(pieces_of(&runs, items.len()), &items, &borders);
        let prefix: Path = prefix.into();
        let mut number = 1;
        for piece in pieces {
            match piece {
                Piece::Item(i) => self.item(&items[i], depth, &prefix),
                Piece::Run(run) => {
                    let blocks: Vec<Range<usize>> = run.blocks().collect();
                    let step = run_of(&items, &blocks, number);
                    let inner = [&*prefix, &[step]].concat().into();
                    self.equal(&items, &blocks, (depth, number), &inner);
                    number += if run.period == 1 { 0 } else { run.times };
                }
                Piece::Block(range) => {
                    self.level(&nodes_of(&items[range]), depth, &[&*prefix, &[Step::block(number)]].concat());
                    number += 1;
                }
            }
        }
    }

    fn item(&mut self, item: &Item, depth: usize, prefix: &Path) {
        match &item.module {
            Some(name) => self.level(&item.nodes, depth + 1, &[&**prefix, &[Step::named(name)]].concat()),
            None => item.nodes.iter().for_each(|&i| self.paths[i] = prefix.clone()),
        }
    }

    /// Equal layers, the first of them with a number; many stand in boxes of some of them.
    fn equal(&mut self, items: &[Item], blocks: &[Range<usize>], (depth, number): (usize, usize), prefix: &Path) {
        if blocks.len() > MOST {
            let each = blocks.len().div_ceil(MOST);
            for (k, part) in blocks.chunks(each).enumerate() {
                let number = number + k * each;
                let inner = [&**prefix, &[run_of(items, part, number)]].concat().into();
                self.equal(items, part, (depth, number), if part.len() > 1 { &inner } else { prefix });
            }
            return;
        }
        for (k, range) in blocks.iter().enumerate() {
            match &items[range.clone()] {
                [module] => self.item(module, depth, prefix),
                block => self.level(&nodes_of(block), depth, &[&**prefix, &[Step::block(number + k)]].concat()),
            }
        }
    }

    /// The items of a level in an order of execution.
    fn items(&mut self, members: &[usize], depth: usize) -> Vec<Item> {
        let mut families: Vec<Vec<usize>> = vec![];
        let mut number: FxHashMap<&str, usize> = FxHashMap::default();
        for (k, &i) in members.iter().enumerate() {
            let Some(name) = self.names[i].get(depth) else { continue };
            let at = *number.entry(name).or_insert_with(|| {
                families.push(vec![]);
                families.len() - 1
            });
            families[at].push(k);
        }
        families.retain(|f| f.len() > 1);
        members.iter().enumerate().for_each(|(k, &i)| self.at[i] = k);
        let reads = |(k, &i): (usize, &usize)| self.reads[i].iter().map(move |r| (r.0, k)).collect::<Vec<_>>();
        let inner = |(from, k): (usize, usize)| (self.at[from] != OUTSIDE).then(|| (self.at[from], k));
        let edges: Vec<(usize, usize)> = members.iter().enumerate().flat_map(reads).filter_map(inner).collect();
        let keep = closable(members.len(), &edges, &families);
        members.iter().for_each(|&i| self.at[i] = OUTSIDE);
        let mut home: Vec<usize> = (0..members.len()).collect();
        let mut together: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (f, _) in families.into_iter().zip(keep).filter(|f| f.1) {
            f.iter().for_each(|&k| home[k] = f[0]);
            together.insert(f[0], f);
        }
        let order = Boxed { home: &home, edges: &edges }.order();
        let item = |k: usize| match together.remove(&k) {
            None => Item { nodes: vec![members[k]], module: None, looks: self.looks[members[k]] },
            Some(family) => {
                let nodes: Vec<usize> = family.into_iter().map(|k| members[k]).collect();
                let looks = self.wiring(&nodes);
                Item { module: Some(self.names[nodes[0]][depth].to_string()), nodes, looks }
            }
        };
        order.into_iter().map(item).collect()
    }

    /// Equal for nodes that do the same and read each other alike.
    fn wiring(&mut self, nodes: &[usize]) -> u64 {
        nodes.iter().enumerate().for_each(|(k, &i)| self.at[i] = k);
        let reads = |i: usize| self.reads[i].iter().map(|&(from, result)| (self.at[from], result)).collect::<Vec<_>>();
        let all: Vec<_> = nodes.iter().map(|&i| (self.looks[i], reads(i))).collect();
        let found = hash(all);
        nodes.iter().for_each(|&i| self.at[i] = OUTSIDE);
        found
    }

    /// Each border: before the first item, between two, and behind the last one.
    fn borders(&mut self, items: &[Item]) -> Vec<Border> {
        items.iter().enumerate().for_each(|(k, item)| item.nodes.iter().for_each(|&i| self.at[i] = k));
        let mut until: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        // The change of values and of their reads at each border.
        let mut steps = vec![[0isize; 2]; items.len() + 2];
        for (k, item) in items.iter().enumerate() {
            for &value in item.nodes.iter().flat_map(|&i| &self.reads[i]) {
                let from = self.at[value.0];
                if from != OUTSIDE && from < k {
                    until.insert(value, k);
                    steps[from + 1][1] += 1;
                    steps[k + 1][1] -= 1;
                }
            }
        }
        for (value, last) in until {
            steps[self.at[value.0] + 1][0] += 1;
            steps[last + 1][0] -= 1;
        }
        items.iter().flat_map(|item| &item.nodes).for_each(|&i| self.at[i] = OUTSIDE);
        let mut sums = [0; 2];
        let borders = steps.iter().take(items.len() + 1).map(|s| {
            sums = [sums[0] + s[0], sums[1] + s[1]];
            Border { values: sums[0] as usize, reads: sums[1] as usize }
        });
        let mut borders: Vec<Border> = borders.collect();
        for at in 1..items.len() {
            // A value that is soon one value again, as behind an activation of several nodes, begins no block.
            let mut nodes = 0;
            let near = (at + 1..items.len()).take_while(|&i| {
                nodes += items[i - 1].nodes.len();
                nodes < SMALLEST_BLOCK
            });
            if { near }.any(|i| borders[i].values <= borders[at].values) {
                borders[at].reads = borders[at].values;
            }
        }
        borders
    }

    /// Equal modules that follow each other, and in a large level repeated stretches of any items.
    fn runs(&self, items: &[Item], borders: &[Border]) -> Vec<Run> {
        let looks: Vec<u64> = items.iter().map(|i| i.looks).collect();
        let many = items.len() > PLENTY;
        let may = |range: Range<usize>| match &items[range] {
            [one] => one.module.is_some(),
            block => many && block.iter().map(|i| i.nodes.len()).sum::<usize>() >= SMALLEST_BLOCK,
        };
        let wiring = |range: Range<usize>| {
            let nodes = nodes_of(&items[range]);
            let at: FxHashMap<usize, usize> = nodes.iter().enumerate().map(|(k, &i)| (i, k)).collect();
            let of = |&(from, result): &(usize, usize)| (at.get(&from).copied(), result);
            let reads = |i: &usize| self.reads[*i].iter().map(of).collect::<Vec<_>>();
            hash(nodes.iter().map(reads).collect::<Vec<_>>())
        };
        Chain { looks: &looks, borders, may: &may, wiring: &wiring }.runs(0..items.len())
    }
}

fn nodes_of(items: &[Item]) -> Vec<usize> {
    let mut nodes: Vec<usize> = items.iter().flat_map(|i| i.nodes.iter().copied()).collect();
    nodes.sort_unstable();
    nodes
}

/// The step of equal layers; blocks among them begin with a number.
fn run_of(items: &[Item], blocks: &[Range<usize>], number: usize) -> Step {
    let block = blocks.first().is_some_and(|b| b.len() > 1);
    let name = |range: Option<&Range<usize>>, number: usize| {
        let module = range.filter(|r| r.len() == 1).and_then(|r| items[r.start].module.clone());
        module.unwrap_or_else(|| Step::block(number).name)
    };
    let first = name(blocks.first(), number);
    let last = name(blocks.last(), number + blocks.len().saturating_sub(1));
    Step { name: span(&first, &last), times: blocks.len(), run: true, block }
}

/// `layer_0` to `layer_11` are `layer_0..11`.
fn span(first: &str, last: &str) -> String {
    let stem = |name: &'_ str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let end = if first[..stem(first)] == last[..stem(last)] { &last[stem(last)..] } else { last };
    format!("{first}..{end}")
}

/// The runs, and the items around them one by one.
fn pieces_of(runs: &[Run], items: usize) -> Vec<Piece> {
    let (mut out, mut at) = (vec![], 0);
    for run in runs {
        out.extend((at..run.start).map(Piece::Item));
        out.push(Piece::Run(*run));
        at = run.end();
    }
    out.extend((at..items).map(Piece::Item));
    out
}

/// Joins pieces to blocks if there are too many.
fn divided(pieces: Vec<Piece>, items: &[Item], borders: &[Border]) -> Vec<Piece> {
    if pieces.len() <= MOST {
        return pieces;
    }
    let ranges: Vec<Range<usize>> = pieces.iter().map(Piece::range).collect();
    let weight = |r: &Range<usize>| items[r.clone()].iter().map(|i| i.nodes.len()).sum();
    let weights: Vec<usize> = ranges.iter().map(weight).collect();
    let runs: Vec<bool> = pieces.iter().map(|p| matches!(p, Piece::Run(_))).collect();
    let between = (1..ranges.len()).map(|i| {
        let border = borders[ranges[i].start];
        // Equal layers rather stay by themselves.
        let reads = border.reads + usize::from(runs[i - 1] || runs[i]);
        Border { reads, ..border }
    });
    let between: Vec<Border> = between.collect();
    let mut pieces = pieces.into_iter();
    let parts = divide(&weights, &between, MOST / 2);
    let joined = parts.into_iter().filter_map(|part| {
        let mut own: Vec<Piece> = pieces.by_ref().take(part.len()).collect();
        if own.len() > 1 {
            return Some(Piece::Block(ranges[part.start].start..ranges[part.end - 1].end));
        }
        own.pop()
    });
    joined.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    #[test]
    fn a_name_in_a_layer_is_relative_to_it() {
        let cases = [
            ("/model.2/cv1/conv/Conv", "model.2", "cv1/conv/Conv"),
            ("/layer1/layer1.0/conv1/Conv", "layer1", "0/conv1/Conv"),
            ("/layer1/layer1.0/conv1/Conv", "layer1.0", "conv1/Conv"),
            ("model.2.m.0.cv1:matmul", "model.2.m", "0.cv1:matmul"),
            ("encoder.layers x12", "encoder", "layers x12"),
            ("model.4", "model.3..5", "4"),
            ("p2o.block 1.block 3", "p2o.block 1", "block 3"),
            ("stage.conv1", "stage.block 2", "conv1"),
            ("Conv_37", "block 2", "Conv_37"),
            ("model.20.conv", "model.2", "model.20.conv"),
            ("model.2", "model.2", "model.2"),
            ("model.2.conv", "", "model.2.conv"),
        ];
        for (name, path, inside) in cases {
            assert_eq!(relative(name, path), inside, "{name} in {path}");
        }
    }

    #[test]
    fn names_are_split_at_slashes_and_dots() {
        assert_eq!(split("/layer1/layer1.0/conv1/Conv"), ["layer1", "0", "conv1", "Conv"]);
        assert_eq!(split("model.2.m.0.cv1"), ["model", "2", "m", "0", "cv1"]);
        assert_eq!(split("Conv_37"), ["Conv_37"]);
    }

    #[test]
    fn runs_are_named_by_their_first_and_last_layer() {
        assert_eq!(span("encoder_layer_0", "encoder_layer_11"), "encoder_layer_0..11");
        assert_eq!((span("1", "2"), span("head", "neck")), ("1..2".into(), "head..neck".into()));
    }

    /// A chain of these ops, named `Op_number`; every fourth op of `x` also reads the value three before.
    fn chain(ops: &[&str]) -> Picture {
        let mut text = "graph @main(%x: f32[4]) -> (y: f32[4]) {\n".to_string();
        for (i, op) in ops.iter().enumerate() {
            let before = if i == 0 { "%x".to_string() } else { format!("%{}", i - 1) };
            let skip = if *op == "add" { format!(", %{}", i - 3) } else { String::new() };
            text += &format!("  %{i} = {op} {before}{skip} : f32[4] !from(\"{op}_{i}\")\n");
        }
        text += &format!("  return %{}\n}}\n", ops.len() - 1);
        Picture::of(&parse_module(&text).expect("parses"))
    }

    fn titles(p: &Picture) -> Vec<String> {
        let modules = Modules::of(p);
        let own = p.nodes.iter().filter(|n| n.category != Category::Terminal);
        own.map(|n| title(&modules.path_of(n))).collect()
    }

    #[test]
    fn repeated_structure_makes_blocks_where_names_say_nothing() {
        let block = ["exp", "neg", "add"];
        let ops = [vec!["abs", "sqrt"], block.repeat(5), vec!["sign"]].concat();
        let found = titles(&chain(&ops));
        assert_eq!((found[0].as_str(), found[1].as_str()), ("", ""));
        let blocks: Vec<String> = (1..=5).flat_map(|b| vec![format!("block {b}"); 3]).collect();
        assert_eq!(found[2..17], blocks);
        let p = chain(&ops);
        let path = Modules::of(&p).path_of(&p.nodes[4]);
        assert_eq!(title(&path[..1]), "block 1..5 x5");
    }

    #[test]
    fn a_chain_without_repetitions_is_divided() {
        let names = ["exp", "neg", "abs", "sqrt", "sign", "floor", "ceil"];
        let random =
            |i: u32| (i.wrapping_mul(2_654_435_769).rotate_left(15).wrapping_mul(2_246_822_519) >> 16) as usize;
        let ops: Vec<&str> = (0..300).map(|i| names[random(i) % names.len()]).collect();
        let p = chain(&ops);
        let modules = Modules::of(&p);
        let mut first: Vec<String> =
            p.nodes.iter().map(|n| title(&modules.path_of(n)[..1.min(modules.path_of(n).len())])).collect();
        first.dedup();
        assert!((5..=MOST + 2).contains(&first.len()), "{first:?}");
    }
}
