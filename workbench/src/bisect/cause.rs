//! The cause that a bisection finds, in plain words and as JSON.

use super::record::{CauseRecord, OverflowRecord};
use compiler::name::Name;
use compiler::passes::mixed_precision::escape_pattern;

/// The cause of a wrong result.
#[allow(missing_docs)]
pub enum Cause {
    /// The model itself: the interpreter is as far from the reference.
    Model { node: Option<(Name, String)> },
    /// Something is stored in f16 that f16 does not hold well enough.
    Precision { name: Name, op: String, overflow: Option<Overflow>, remedy: Option<Name> },
    /// The graph behind the pass computes something else.
    Pass { node: Option<(Name, String)>, name: String, position: usize, of: usize, agrees_without: bool },
    /// The schedule of a tensor function computes something else.
    Rule { name: String, function: String, nodes: Vec<Name> },
    /// Passes and rules are right: a kernel of the simplest form is wrong, or the driver.
    Node { found: Option<(Name, String)>, remedy: Option<&'static str> },
}

/// A value that f16 does not hold.
pub struct Overflow {
    /// Its name.
    pub value: Name,
    /// Its largest magnitude.
    pub largest: f64,
}

impl Cause {
    /// The nodes that it names.
    pub fn nodes(&self) -> Vec<Name> {
        match self {
            Cause::Model { node } | Cause::Pass { node, .. } | Cause::Node { found: node, .. } => {
                node.iter().map(|n| n.0).collect()
            }
            Cause::Precision { name, .. } => vec![*name],
            Cause::Rule { nodes, .. } => nodes.clone(),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        match self {
            Cause::Model { node } => {
                let at = node.as_ref().map_or(String::new(), |(n, op)| {
                    format!(" The first tensor that differs is the result of `{n}` ({op}).")
                });
                format!(
                    "not the compilation: the interpreter, which runs the model as it came, differs from the reference as well.{at}"
                )
            }
            Cause::Precision { name, op, overflow, remedy } => {
                let why = match overflow {
                    Some(o) => format!(
                        "f16 overflows at `{name}` ({op}): `{}` reaches {:.3e}, and f16 holds at most 65504",
                        o.value, o.largest
                    ),
                    None => format!("f16 is not exact enough from `{name}` ({op}) on"),
                };
                let remedy = match remedy {
                    Some(n) => format!("with --keep-f32 '{}' the results agree", escape_pattern(n.as_str())),
                    None => {
                        "more than this node has to stay in f32: `weft compare --write-keep F` finds the list".into()
                    }
                };
                format!("{why}; {remedy}")
            }
            Cause::Pass { node, name, position, of, agrees_without } => {
                let at = node.as_ref().map_or(String::new(), |(n, op)| format!(", first at `{n}` ({op})"));
                let remedy = match agrees_without {
                    true => format!("with --disable-pass {name} the results agree"),
                    false => "leaving it out alone does not help".into(),
                };
                format!("the pass {name}, number {position} of {of}, changes what the network computes{at}; {remedy}")
            }
            Cause::Rule { name, function, nodes } => {
                let of = nodes.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ");
                format!(
                    "the schedule rule {name} makes a wrong kernel of @{function} (layers: {of}); with the rule direct in its place the results agree"
                )
            }
            Cause::Node { found, remedy } => {
                let at = match found {
                    Some((n, op)) => {
                        format!("the kernel of `{n}` ({op}) is wrong, although passes and schedules are right")
                    }
                    None => "passes and schedules are right, and each tensor is right when it is a result of its own"
                        .to_string(),
                };
                let remedy = remedy.map_or("the driver or the shader's translation is to blame".to_string(), |r| {
                    format!("with {r} the results agree")
                });
                format!("{at}; {remedy}")
            }
        }
    }

    /// As `--json` has it.
    pub fn record(&self) -> CauseRecord {
        let nodes = self.nodes().iter().map(Name::to_string).collect();
        let text = self.text();
        let mut out = CauseRecord { kind: "", text, nodes, pass: None, rule: None, function: None, overflow: None };
        out.kind = match self {
            Cause::Model { .. } => "model",
            Cause::Node { .. } => "node",
            Cause::Pass { name, .. } => {
                out.pass = Some(name.clone());
                "pass"
            }
            Cause::Rule { name, function, .. } => {
                (out.rule, out.function) = (Some(name.clone()), Some(function.clone()));
                "rule"
            }
            Cause::Precision { overflow, .. } => {
                let record = |o: &Overflow| OverflowRecord { tensor: o.value.to_string(), largest: o.largest };
                out.overflow = overflow.as_ref().map(record);
                "precision"
            }
        };
        out
    }
}
