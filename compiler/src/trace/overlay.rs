//! Values of nodes from outside of Weft: times of another runtime, or whatever a user has measured.

use std::collections::BTreeMap;

/// A value of a node.
#[derive(Clone, PartialEq, Debug)]
pub enum OverlayValue {
    /// A number; milliseconds in an overlay of times.
    Number(f64),
    /// A word.
    Text(String),
}

/// Values of source nodes, to be shown on the graph. The file of a trace does not hold them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Overlay {
    /// What the values are.
    pub title: String,
    /// Numbers are milliseconds, and those of several nodes add up. Of other numbers the largest counts.
    pub times: bool,
    /// By source node.
    pub values: BTreeMap<String, OverlayValue>,
    /// Names that no node of the compilation has.
    pub strays: usize,
}

impl Overlay {
    /// Gives a node one more value: times add up, of other numbers the larger stays, of texts the first.
    pub fn put(&mut self, node: &str, value: OverlayValue) {
        let old = self.values.remove(node);
        let value = match (old, value) {
            (Some(OverlayValue::Number(a)), OverlayValue::Number(b)) => {
                OverlayValue::Number(if self.times { a + b } else { a.max(b) })
            }
            (Some(first), _) => first,
            (None, value) => value,
        };
        self.values.insert(node.to_string(), value);
    }
    /// The number of a box that several nodes make; `None` if none of them has one.
    pub fn number<'n>(&self, nodes: impl Iterator<Item = &'n str>) -> Option<f64> {
        let numbers = nodes.filter_map(|n| match self.values.get(n) {
            Some(OverlayValue::Number(x)) => Some(*x),
            _ => None,
        });
        numbers.reduce(|a, b| if self.times { a + b } else { a.max(b) })
    }
    /// The different words of a box that several nodes make, in the order of the nodes.
    pub fn words<'a, 'n>(&'a self, nodes: impl Iterator<Item = &'n str>) -> Vec<&'a str> {
        let mut out: Vec<&str> = vec![];
        for n in nodes {
            if let Some(OverlayValue::Text(word)) = self.values.get(n)
                && !out.contains(&word.as_str())
            {
                out.push(word);
            }
        }
        out
    }
}
