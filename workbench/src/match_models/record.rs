//! The records of matched models.

use schemars::JsonSchema;
use serde::Serialize;

/// How a pair was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// No other node has these values.
    Values,
    /// Several have: these two alone are of one op.
    Op,
    /// Several have: these two have the same op and matched operands.
    Operands,
    /// Several have: these two are read at the same operand of a matched pair.
    Users,
}

/// Two nodes that compute the same.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodePair {
    /// In the first model.
    pub a: String,
    /// In the second.
    pub b: String,
    /// The op in the first model.
    pub op: String,
    /// How it was found.
    pub by: How,
    /// `norm(a-b) / norm(b)` of the first result.
    pub rel_l2: f64,
}

/// Nodes with equal values that nothing tells apart.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Ambiguous {
    /// In the first model.
    pub a: Vec<String>,
    /// In the second.
    pub b: Vec<String>,
}

/// Why two nodes with matched operands differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// They are of different ops.
    Op,
    /// Operands that are constants differ.
    Constants,
    /// Their attributes differ.
    Attributes,
    /// They have graphs within them, which are not compared.
    Inner,
    /// Nothing else does: operands agree within the tolerance.
    Tolerance,
}

/// Two nodes whose data operands are matched, and whose results differ.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Parting {
    /// In the first model.
    pub a: String,
    /// In the second.
    pub b: String,
    /// The op in the first model.
    pub op: String,
    /// The op in the second. Another one only where no node of the same op fits.
    pub op_b: String,
    /// `norm(a-b) / norm(b)` of the first result; null if shapes differ.
    pub rel_l2: Option<f64>,
    /// Operands that are constants and differ, by their places.
    pub constants: Vec<usize>,
    /// Why they differ.
    pub why: Vec<Why>,
}

impl Parting {
    /// What differs, and by how much, in one line; `rtol` is what was let pass.
    pub fn sentence(&self, rtol: f64) -> String {
        let error = self.rel_l2.map_or("other shapes".into(), |e| format!("rel l2 {e:.2e}"));
        let op = if self.op == self.op_b { self.op.clone() } else { format!("{} | {}", self.op, self.op_b) };
        let why: Vec<String> = self.why.iter().map(|w| self.reason(*w, rtol)).collect();
        format!("{} | {} ({op}): {error}; {}", self.a, self.b, why.join("; "))
    }
    fn reason(&self, why: Why, rtol: f64) -> String {
        let list: Vec<String> = self.constants.iter().map(usize::to_string).collect();
        match why {
            Why::Op => "the operators differ".into(),
            Why::Constants if list.len() == 1 => format!("constant operand {} differs", list[0]),
            Why::Constants => format!("constant operands {} differ", list.join(", ")),
            Why::Attributes => "attributes differ".into(),
            Why::Inner => "graphs within them may differ".into(),
            Why::Tolerance => format!("operands agree within --rtol {rtol}, attributes are equal"),
        }
    }
}

/// The nodes of two models.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ModelDiff {
    /// The first model.
    pub a: String,
    /// The second model.
    pub b: String,
    /// Nodes that compute, of each.
    pub nodes: [usize; 2],
    /// Results that are equal up to this share of their norm are one.
    pub rtol: f64,
    /// Matched ones, in the first model's order.
    pub pairs: Vec<NodePair>,
    /// Groups of nodes with equal values.
    pub ambiguous: Vec<Ambiguous>,
    /// Nodes without a counterpart in the second model.
    pub only_a: Vec<String>,
    /// Nodes without a counterpart in the first model.
    pub only_b: Vec<String>,
    /// Where they part: pairs whose operands are matched and whose results differ.
    pub partings: Vec<Parting>,
    /// Those of `only_a` that compute from a node at which the models part.
    pub behind_a: Vec<String>,
    /// Those of `only_b` that do.
    pub behind_b: Vec<String>,
}

impl ModelDiff {
    /// The pairs that differ most, so many at most.
    pub fn farthest(&self, most: usize) -> Vec<&NodePair> {
        let mut pairs: Vec<&NodePair> = self.pairs.iter().collect();
        pairs.sort_by(|p, q| q.rel_l2.total_cmp(&p.rel_l2));
        pairs.truncate(most);
        pairs
    }
    /// Of the nodes of one model that have no counterpart those that are not `behind` a parting, and are none; nodes of
    /// one name, which an import has made of one node, are one row with their number.
    pub fn rest(&self, only: &[String], behind: &[String]) -> Vec<(String, usize)> {
        let parted = |n: &String| self.partings.iter().any(|p| p.a == *n || p.b == *n);
        let mut rows: Vec<(String, usize)> = vec![];
        for name in only.iter().filter(|n| !behind.contains(n) && !parted(n)) {
            match rows.last_mut().filter(|r| r.0 == *name) {
                Some(last) => last.1 += 1,
                None => rows.push((name.clone(), 1)),
            }
        }
        rows
    }
}
