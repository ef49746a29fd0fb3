//! Pins: which nodes must run in which layout, by the mode and by the pass's options.

use super::choose::Choice;
use super::propagation::{Convertible, Propagation};
use super::scheme::Scheme;
use crate::graph::{Function, NodeId};
use crate::name::Name;
use crate::ops::DataLayout;
use crate::passes::LayoutMode;
use rustc_hash::FxHashMap;

/// Pins of one run, and which of them found a node.
pub struct Pins {
    mode: LayoutMode,
    scheme: Scheme,
    list: Vec<Pin>,
    /// Anchors whose groups have fewer channels, and those that are no products, have the cheapest layout, whatever the
    /// mode; 0: none.
    pub narrow: i64,
    /// The treatment of anchors without another pin.
    pub anchors: Anchors,
    /// Whether an anchor got NCHW.
    pub mixed: bool,
}

/// The treatment of anchors without a pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchors {
    /// The cheapest layout.
    Free,
    /// They keep their layout.
    Stay,
    /// They run in the target's other layout.
    Move,
}

/// What decides the layout of a node before costs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decider {
    /// A pin of the pass's options.
    Pin,
    /// A callback of the embedding program.
    Callback,
    /// The mode, for all anchors alike.
    Mode(LayoutMode),
    /// The cost of the module as a whole, for all anchors alike.
    Whole,
}

impl Decider {
    /// Why the node is there, in words.
    pub fn words(self) -> String {
        match self {
            Decider::Pin => "it is pinned there".into(),
            Decider::Callback => "a callback asks for it".into(),
            Decider::Mode(mode) => format!("layout {mode} asks for it"),
            Decider::Whole => "the module as a whole is cheaper so".into(),
        }
    }
}

struct Pin {
    pattern: Name,
    layout: DataLayout,
    used: bool,
}

impl Pins {
    /// The pins in a mode, with the nodes that stay in NCHW, run in NHWC and run in the packed layout.
    pub fn new([nchw, nhwc, packed_nodes]: [&[Name]; 3], mode: LayoutMode, scheme: Scheme) -> Pins {
        let packed = if scheme.is_packed() { scheme.other } else { DataLayout::Nchw16c };
        let of = |names: &[Name], layout| -> Vec<Pin> {
            names.iter().map(|&pattern| Pin { pattern, layout, used: false }).collect()
        };
        let mut list = of(nchw, DataLayout::Nchw);
        list.extend(of(nhwc, DataLayout::Nhwc));
        list.extend(of(packed_nodes, packed));
        Pins { mode, scheme, list, narrow: 0, anchors: Anchors::Free, mixed: false }
    }
    /// Those of the same run, for all anchors alike.
    pub fn uniform(&self, anchors: Anchors) -> Pins {
        let list = self.list.iter().map(|p| Pin { used: false, ..*p }).collect();
        Pins { mode: self.mode, scheme: self.scheme, list, narrow: self.narrow, anchors, mixed: false }
    }
    /// The layouts to choose between.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }
    /// Notes what was chosen for a block.
    pub fn note(&mut self, propagation: &Propagation, choice: &Choice) {
        let first =
            |(n, m): (&NodeId, &Convertible)| m.anchor && choice.converted.contains(n) == (m.source_layout == 1);
        self.mixed |= propagation.convertible.iter().any(first);
    }
    /// The colours of nodes that are decided before costs are weighed, and by what: the pass's options, `wishes` of
    /// callbacks, the mode.
    pub fn colours(
        &mut self,
        f: &Function,
        propagation: &Propagation,
        wishes: &FxHashMap<NodeId, u8>,
    ) -> FxHashMap<NodeId, (u8, Decider)> {
        let mut out = FxHashMap::default();
        for (&n, m) in &propagation.convertible {
            let name = f.nodes[n].name;
            let mut colour = None;
            for p in self.list.iter_mut().filter(|p| matches_pattern(p.pattern.as_str(), name.as_str())) {
                p.used |= self.scheme.colour(p.layout).is_some();
                colour = colour.or(self.scheme.colour(p.layout));
            }
            let counted = || {
                let (inputs, outputs) = f.node_types(n);
                f.nodes[n].op.macs(&inputs, &outputs) > 0
            };
            let free = || {
                let fixed = || f.node_types(n).1.iter().all(|t| t.const_shape().is_some());
                let channels = f.nodes[n].op.channels_of_group(&f.node_types(n).0);
                self.narrow > 0 && channels.map_or_else(|| !counted() && fixed(), |own| own < self.narrow)
            };
            let by_mode = match self.mode {
                _ if self.anchors == Anchors::Stay && m.anchor => Some((m.source_layout, Decider::Whole)),
                _ if self.anchors == Anchors::Move && m.anchor => Some((1, Decider::Whole)),
                _ if m.anchor && free() => None,
                LayoutMode::Nchw if m.anchor => Some((0, Decider::Mode(self.mode))),
                LayoutMode::Nhwc if m.anchor => Some((1, Decider::Mode(self.mode))),
                // As in TVM, convolutions are altered and the rest follows them.
                LayoutMode::Nchw4c | LayoutMode::Nchw8c | LayoutMode::Nchw16c if m.anchor && counted() => {
                    Some((1, Decider::Mode(self.mode)))
                }
                _ => None,
            };
            let wish = || wishes.get(&n).map(|&c| (c, Decider::Callback));
            let decided = colour.map(|c| (c, Decider::Pin)).or_else(wish).or(by_mode);
            out.extend(decided.map(|d| (n, d)));
        }
        out
    }
    /// Why pins had no effect.
    pub fn unused(&self) -> Vec<String> {
        let why = |p: &Pin| match self.scheme.colour(p.layout) {
            None => format!("the pin of {} is void: {} is not chosen from here", p.pattern, p.layout.title()),
            Some(_) => {
                format!(
                    "the pin of {} to {} is void: no node of that name can be converted",
                    p.pattern,
                    p.layout.title()
                )
            }
        };
        self.list.iter().filter(|p| !p.used).map(why).collect()
    }
}

/// True when `text` matches `pattern`, in which `*` stands for anything.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).filter(|&i| tail.is_char_boundary(i)).any(|i| matches_pattern(rest, &tail[i..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn patterns() {
        for (pattern, text, want) in [
            ("Conv_2", "Conv_2", true),
            ("Conv_2", "Conv_22", false),
            ("Conv_*", "Conv_22", true),
            ("*/conv*/x", "a/conv1/b/x", true),
            ("*", "", true),
            ("a*b", "ab", true),
            ("a*b", "abc", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), want, "{pattern} {text}");
        }
    }
}
