//! Properties of each box besides its position: colour, how its group runs, whether it is the group's anchor.

use super::colour::{ColourBy, Palette};
use crate::delta::Delta;
use crate::document::Document;
use crate::drawing::Drawn;
use compiler::compile::GroupKind;
use compiler::remark::Remark;
use graphview::layout::Route;
use graphview::picture::{Category, Node};
use graphview::scene::SceneEdge;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// How a box runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    /// It is no fused group.
    Op,
    /// As one dispatch, or as several.
    Kernel(usize),
    /// Not at all: it is another view of the same data.
    View,
    /// On the host.
    Host,
}
impl Runs {
    /// The text of a box for it; `None` if it needs no text.
    pub fn badge(self) -> Option<String> {
        match self {
            Runs::Op | Runs::Kernel(1) => None,
            Runs::Kernel(n) => Some(format!("{n} dispatches")),
            Runs::View => Some("view, no work".into()),
            Runs::Host => Some("on the host".into()),
        }
    }
}

/// Of all boxes of a scene.
pub struct Dress {
    /// The scene.
    pub drawn: Arc<Drawn>,
    /// The meaning of the colours.
    pub by: ColourBy,
    /// For dark backgrounds.
    pub dark: bool,
    /// The difference of times from another compilation.
    pub delta: Option<Arc<Delta>>,
    /// Colours.
    pub palette: Palette,
    /// How each box runs.
    pub runs: Vec<Runs>,
    /// Boxes that anchor their group: its schedule is made for them.
    pub anchors: Vec<bool>,
    /// The group that each box is in, where it is in just one.
    pub groups: Vec<Option<usize>>,
    /// For each edge, whether the reason is known why its two groups were not fused.
    pub borders: Vec<bool>,
    /// Whether it is known for any edge.
    pub has_borders: bool,
    /// The hull that each box has a part of: of a group that will be, or of a region of one data layout.
    pub hulls: Vec<Option<usize>>,
    /// For each edge, whether it has the name of its value: several edges carry one value, which is named once.
    pub named: Vec<bool>,
    /// Edges that start at each box.
    pub leaving: Vec<Vec<usize>>,
    /// Edges that end at each box.
    pub entering: Vec<Vec<usize>>,
}

impl Dress {
    /// Of a scene.
    pub fn new(document: &Document, drawn: &Arc<Drawn>, by: ColourBy, delta: Option<&Arc<Delta>>, dark: bool) -> Dress {
        let boxes = &drawn.scene.boxes;
        let (mut leaving, mut entering) = (vec![vec![]; boxes.len()], vec![vec![]; boxes.len()]);
        for (i, e) in drawn.scene.edges.iter().enumerate() {
            leaving[e.from].push(i);
            entering[e.to].push(i);
        }
        let only = |n: &Node| match document.groups_of(n).as_slice() {
            &[g] if n.category != Category::Terminal => Some(g),
            _ => None,
        };
        let groups: Vec<Option<usize>> = boxes.iter().map(|b| only(&b.node)).collect();
        let border = |e: &SceneEdge| border(document, &groups, e).is_some_and(|why| !why.is_empty());
        let borders: Vec<bool> = drawn.scene.edges.iter().map(border).collect();
        let palette = Palette::new(document, drawn, by, delta.map(Arc::as_ref), dark);
        let runs: Vec<Runs> = boxes.iter().map(|b| runs(document, &b.node)).collect();
        Dress {
            has_borders: borders.contains(&true),
            borders,
            hulls: hulls(drawn, by, &palette, &groups, &runs),
            named: named(drawn),
            palette,
            delta: delta.cloned(),
            runs,
            anchors: boxes.iter().zip(&groups).map(|(b, g)| is_anchor(document, &b.node, *g)).collect(),
            groups,
            leaving,
            entering,
            drawn: drawn.clone(),
            by,
            dark,
        }
    }
    /// Why the groups at the two ends of an edge were not fused, in words; empty if not known or if they are one group.
    pub fn border(&self, document: &Document, edge: usize) -> Vec<String> {
        let why = border(document, &self.groups, &self.drawn.scene.edges[edge]);
        why.unwrap_or_default().into_iter().map(|r| r.message.clone()).collect()
    }
    /// Whether it is of this.
    pub fn fits(&self, drawn: &Arc<Drawn>, by: ColourBy, delta: Option<&Arc<Delta>>, dark: bool) -> bool {
        let same = self.delta.as_ref().map(Arc::as_ptr) == delta.map(Arc::as_ptr);
        Arc::ptr_eq(&self.drawn, drawn) && same && self.by == by && self.dark == dark
    }
}

/// The hulls of boxes that are joined by an edge to another box of the same one.
fn hulls(drawn: &Drawn, by: ColourBy, p: &Palette, groups: &[Option<usize>], runs: &[Runs]) -> Vec<Option<usize>> {
    let mut out = vec![None; groups.len()];
    let of = |i: usize| match by {
        ColourBy::Group => groups[i].filter(|_| runs[i] == Runs::Op),
        ColourBy::Layout => p.regions.get(i).copied().flatten(),
        _ => None,
    };
    let lines = drawn.scene.edges.iter().filter(|e| matches!(e.route, Route::Line(_)));
    for e in lines.filter(|e| of(e.from).is_some() && of(e.from) == of(e.to)) {
        (out[e.from], out[e.to]) = (of(e.from), of(e.from));
    }
    out
}

/// The first edge of each value that leaves a box.
fn named(drawn: &Drawn) -> Vec<bool> {
    let mut seen = FxHashSet::default();
    drawn.scene.edges.iter().map(|e| seen.insert((e.from, e.label.as_str()))).collect()
}

/// Why the groups at the two ends of an edge were not fused; `None` if the ends are not in two groups.
fn border<'d>(document: &'d Document, groups: &[Option<usize>], e: &SceneEdge) -> Option<Vec<&'d Remark>> {
    let (from, to) = (groups[e.from]?, groups[e.to]?);
    (from != to).then(|| document.border_between(from, to))
}

fn runs(document: &Document, node: &Node) -> Runs {
    let Some(g) = document.group_of(node) else { return Runs::Op };
    match document.trace().groups[g].kind {
        GroupKind::Kernel => Runs::Kernel(document.calls_of(g).len()),
        GroupKind::View => Runs::View,
        GroupKind::Host => Runs::Host,
        GroupKind::Control => Runs::Op,
    }
}

fn is_anchor(document: &Document, node: &Node, group: Option<usize>) -> bool {
    let Some(g) = group.map(|g| &document.trace().groups[g]) else { return false };
    // A group of one has no need of a mark.
    g.ops.len() > 1 && g.anchor.as_deref() == Some(node.op.as_str()) && node.origins.contains(&g.layer)
}
