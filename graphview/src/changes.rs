//! The changes of a pass to the boxes of a picture.

use crate::picture::{Category, Node, Picture};
use rustc_hash::{FxHashMap, FxHashSet};

/// The change of a box.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Only after the pass, and from no source node that a removed box came from.
    Added,
    /// Only before the pass, with nothing in its place.
    Removed,
    /// Before it: something else came in its place. After it: it came in the place of something else.
    Replaced,
    /// In both, but with other attributes, operands or results.
    Changed,
}
impl Mark {
    /// Every mark with the word for legends.
    pub const ALL: [(Mark, &'static str); 4] =
        [(Mark::Added, "added"), (Mark::Removed, "removed"), (Mark::Replaced, "replaced"), (Mark::Changed, "changed")];
}

/// The marks of one of two pictures, by the keys of boxes.
#[derive(Clone, Default, Debug)]
pub struct Marks {
    by_key: FxHashMap<String, Mark>,
    order: Vec<String>,
    /// Of layers in which something is marked: the mark that all of it has, else [`Mark::Changed`].
    layers: FxHashMap<String, Mark>,
}
impl Marks {
    /// The mark of a box; `None` for one that stayed as it was. A layer has that of what is in it.
    pub fn of(&self, key: &str) -> Option<Mark> {
        self.by_key.get(key).or(self.layers.get(key)).copied()
    }
    /// Marks the layers of a picture.
    pub fn cover(&mut self, picture: &Picture) {
        for n in picture.walk().into_iter().filter(|n| n.category == Category::Layer) {
            let inside = n.inside.iter().flat_map(|p| p.walk());
            let mut marks = inside.filter_map(|m| self.by_key.get(&m.key)).copied();
            let Some(first) = marks.next() else { continue };
            let mark = if marks.all(|m| m == first) { first } else { Mark::Changed };
            self.layers.insert(n.key.clone(), mark);
        }
    }
    /// Keys of marked boxes in the order of the picture.
    pub fn keys(&self) -> &[String] {
        &self.order
    }
    /// How many boxes have a mark.
    pub fn count(&self, mark: Mark) -> usize {
        self.by_key.values().filter(|m| **m == mark).count()
    }
    /// True where the pass made every box of a picture anew, as fusion does: then marks tell nothing apart.
    pub fn replace_all(&self, picture: &Picture) -> bool {
        let own = |n: &&Node| !matches!(n.category, Category::Terminal | Category::Layer | Category::Control);
        let mut boxes = picture.outer().into_iter().filter(own).peekable();
        boxes.peek().is_some() && boxes.all(|n| self.by_key.get(&n.key) == Some(&Mark::Replaced))
    }
    fn put(&mut self, key: &str, mark: Mark) {
        self.by_key.insert(key.to_string(), mark);
        self.order.push(key.to_string());
    }
}

/// The marks of the picture before a pass and of that after it.
pub fn changes(before: &Picture, after: &Picture) -> (Marks, Marks) {
    let (old, new) = (Boxes::of(before), Boxes::of(after));
    let gone = |n: &&Node| !new.by_key.contains_key(n.key.as_str());
    let came = |n: &&Node| !old.by_key.contains_key(n.key.as_str());
    let origins = |list: &mut dyn Iterator<Item = &Node>| -> FxHashSet<String> {
        list.flat_map(|n| n.origins.iter().cloned()).collect()
    };
    let lost = origins(&mut old.list.iter().copied().filter(|n| gone(n)));
    let found = origins(&mut new.list.iter().copied().filter(|n| came(n)));
    let heir = |n: &Node, of: &FxHashSet<String>| n.origins.iter().any(|o| of.contains(o));
    let (mut left, mut right) = (Marks::default(), Marks::default());
    for n in &old.list {
        match new.by_key.get(n.key.as_str()) {
            None => left.put(&n.key, if heir(n, &found) { Mark::Replaced } else { Mark::Removed }),
            Some(other) if old.differs(n, other, &new) => left.put(&n.key, Mark::Changed),
            Some(_) => {}
        }
    }
    for n in &new.list {
        match old.by_key.get(n.key.as_str()) {
            None => right.put(&n.key, if heir(n, &lost) { Mark::Replaced } else { Mark::Added }),
            Some(other) if old.differs(other, n, &new) => right.put(&n.key, Mark::Changed),
            Some(_) => {}
        }
    }
    (left, right)
}

/// The boxes of a picture with those inside control flow; what is inside a fused group is part of the group.
struct Boxes<'a> {
    list: Vec<&'a Node>,
    by_key: FxHashMap<&'a str, &'a Node>,
    /// Keys of the boxes that each box reads, by operand.
    reads: FxHashMap<&'a str, Vec<(usize, usize, &'a str)>>,
}
impl<'a> Boxes<'a> {
    fn of(picture: &'a Picture) -> Boxes<'a> {
        let mut b = Boxes { list: vec![], by_key: FxHashMap::default(), reads: FxHashMap::default() };
        b.take(picture);
        b
    }
    fn take(&mut self, picture: &'a Picture) {
        for n in &picture.nodes {
            self.list.push(n);
            self.by_key.insert(&n.key, n);
            if n.category == Category::Control {
                n.inside.iter().for_each(|p| self.take(p));
            }
        }
        for e in &picture.edges {
            let from = picture.nodes[e.from].key.as_str();
            self.reads.entry(&picture.nodes[e.to].key).or_default().push((e.operand, e.result, from));
        }
    }
    /// Whether a box is another one in `new`. Reading a box that came in the place of another is no change of the
    /// reader: one replaced node would mark all that follow it.
    fn differs(&self, a: &Node, b: &Node, new: &Boxes<'_>) -> bool {
        if (&a.op, &a.attrs, &a.outputs, &a.layout) != (&b.op, &b.attrs, &b.outputs, &b.layout) {
            return true;
        }
        let types = |n: &Node| n.weights.iter().map(|w| (w.operand, w.ty.clone())).collect::<Vec<_>>();
        if types(a) != types(b) {
            return true;
        }
        let none = Vec::new();
        let (left, right) = (self.reads.get(a.key.as_str()).unwrap_or(&none), new.reads.get(b.key.as_str()));
        let right = right.map_or(&[][..], Vec::as_slice);
        let stayed = |key: &str| self.by_key.contains_key(key) && new.by_key.contains_key(key);
        left.len() != right.len() || left.iter().zip(right).any(|(l, r)| l != r && stayed(l.2) && stayed(r.2))
    }
}
