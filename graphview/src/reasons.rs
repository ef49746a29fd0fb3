//! Two questions about a run: why a result in mixed precision is wrong, and why a kernel is slow.
//!
//! Everything here comes from a trace. What the cost model says is computed elsewhere (`CompileTrace::estimates`,
//! `alternatives`, `stored`), since it takes its time.

use compiler::schedule::rules::is_general;
use compiler::trace::{Call, Ceilings, CompileTrace, Errors, NodeError, Stored};
use rustc_hash::FxHashMap;
use serde_json::Value;

/// The largest number in f16.
pub const LARGEST_F16: f64 = 65504.0;
/// The largest relative error of rounding a number to f16.
pub const ROUNDING: f64 = 1.0 / 2048.0;

/// The rates that no kernel exceeds. Arithmetic is f32 in f16 networks, too, so both have one roof outside of matrix
/// units.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Roofs {
    /// They were measured on the device; else they are what its profile says.
    pub measured: bool,
    /// 10^9 operations a second outside of matrix units.
    pub f32_gflops: Option<f64>,
    /// The same by matrix units.
    pub matrix_gflops: Option<f64>,
    /// 10^9 bytes a second of device memory.
    pub gb_s: Option<f64>,
}

impl Roofs {
    /// The roofs of the device that a trace was timed on, else of that which it is for.
    pub fn of(t: &CompileTrace) -> Roofs {
        if let Some(c) = ceilings_of(t) {
            let matrix_gflops = c.matrix_gflops;
            return Roofs { measured: true, f32_gflops: Some(c.fma_gflops), matrix_gflops, gb_s: Some(c.copy_gb_s) };
        }
        let profile: Value = serde_json::from_str(&t.profile).unwrap_or_default();
        let rate = |name: &str| profile[name].as_f64().filter(|r| *r > 0.0);
        let matrix_gflops = rate("matrix_gflops");
        Roofs { measured: false, f32_gflops: rate("gflops"), matrix_gflops, gb_s: rate("gb_s") }
    }
}

/// The measured peak rates of the device that a trace was timed on.
pub fn ceilings_of(t: &CompileTrace) -> Option<Ceilings> {
    t.times.as_ref()?.ceilings
}

/// A sentence about the kernel that is furthest above its measured roof, if one is.
pub fn doubt(t: &CompileTrace) -> Option<String> {
    let rates = |k: usize| Speed::of(t, k).map(|s| (t.kernels[k].name.as_str(), s.gflops, s.gb_s));
    ceilings_of(t)?.furthest_above((0..t.kernels.len()).filter_map(rates))
}

/// A kernel by a rule that takes any unit is named from this share of the run on, where it is so many times slower than
/// the nearest roof allows.
const LARGE: f64 = 0.2;
/// Reasons that are said in its sentence.
const SAID: usize = 2;
const SLOW: f64 = 3.0;

/// A kernel that takes much of a run by a general rule ([`compiler::schedule::rules::is_general`]).
#[derive(Clone, PartialEq, Debug, serde::Serialize, schemars::JsonSchema)]
pub struct General {
    /// The layer, or the kernel.
    pub name: String,
    /// Its rule.
    pub rule: String,
    /// Its part of the run, from 0 to 1.
    pub share: f64,
    /// Its time over the one that the nearest roof allows; null where no roof is known.
    pub loss: Option<f64>,
    /// Why other rules declined; empty where none takes such a kernel.
    pub declined: Vec<String>,
}

impl General {
    /// What is to be named: `None` of other rules, small shares, and of what is near its roof.
    pub fn of(name: &str, rule: &str, share: f64, loss: Option<f64>, declined: &[&str]) -> Option<General> {
        let slow = is_general(rule) && share >= LARGE && loss.is_none_or(|l| l >= SLOW);
        let mut reasons: Vec<String> = vec![];
        for d in declined {
            if !reasons.iter().any(|r| r == d) {
                reasons.push(d.to_string());
            }
        }
        let declined = reasons;
        slow.then(|| General { name: name.into(), rule: rule.into(), share, loss, declined })
    }
    /// In a sentence.
    pub fn words(&self) -> String {
        let General { name, rule, share, loss, declined } = self;
        let loss = loss.map_or(String::new(), |l| format!(", {l:.1} times what its roof allows"));
        let why = match declined.is_empty() {
            true => "no other rule takes such a kernel".to_string(),
            false => declined[..declined.len().min(SAID)].join("; "),
        };
        format!("{name} takes {:.0} % of the run{loss}, by the general rule `{rule}`: {why}", 100.0 * share)
    }
}

/// How fast a kernel is, over all of its dispatches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Speed {
    /// Dispatches in a run, in all iterations of loops.
    pub dispatches: usize,
    /// Microseconds of one, the mean of their medians.
    pub us: f64,
    /// Its part of the run, from 0 to 1.
    pub share: f64,
    /// 10^9 operations a second.
    pub gflops: f64,
    /// 10^9 bytes a second.
    pub gb_s: f64,
    /// Operations for each byte.
    pub intensity: f64,
}

impl Speed {
    /// Of a kernel that was timed.
    pub fn of(t: &CompileTrace, kernel: usize) -> Option<Speed> {
        let own: Vec<&Call> = t.calls().filter(|c| c.kernel == kernel).collect();
        let us = t.time_of_kernel(kernel)?.us.max(1e-3);
        let all = t.run_ms() * 1e3;
        let sum = |of: fn(&Call) -> u64| own.iter().map(|c| of(c) as f64).sum::<f64>();
        let (flops, bytes) = (sum(|c| c.flops), sum(|c| c.bytes));
        let dispatches = t.dispatches_of_kernel(kernel).max(1) as usize;
        Some(Speed {
            dispatches,
            us: us / dispatches as f64,
            share: us / all.max(us),
            gflops: flops / us / 1e3,
            gb_s: bytes / us / 1e3,
            intensity: flops / bytes.max(1.0),
        })
    }
    /// The shares of the roofs that it reaches, `arithmetic` and `memory`, the larger first.
    pub fn shares(&self, roofs: &Roofs) -> Vec<(&'static str, f64)> {
        let part = |rate: f64, roof: Option<f64>| roof.map(|r| rate / r);
        let all = [("arithmetic", part(self.gflops, roofs.f32_gflops)), ("memory", part(self.gb_s, roofs.gb_s))];
        let mut known: Vec<(&str, f64)> = all.into_iter().filter_map(|(name, s)| Some((name, s?))).collect();
        known.sort_by(|a, b| b.1.total_cmp(&a.1));
        known
    }
}

/// A node that was compared with a reference.
#[derive(Clone, PartialEq, Debug)]
pub struct WrongNode {
    /// Its name.
    pub name: String,
    /// Its op in the model.
    pub op: String,
    /// The group that stores its result.
    pub group: Option<usize>,
    /// Relative error of it alone.
    pub alone: Option<f64>,
    /// The same with the errors of the nodes before.
    pub accumulated: Option<f64>,
    /// The accumulated error as a multiple of the largest among what it reads.
    pub growth: Option<f64>,
    /// Largest magnitude of the reference.
    pub magnitude: f64,
    /// Its kernels read or write f16.
    pub f16: bool,
    /// Element type of its result; empty where that is not known.
    pub stores: String,
    /// Estimated milliseconds that f32 would cost more.
    pub f32_ms: Option<f64>,
    /// Within the tolerance.
    pub pass: bool,
}

/// The accumulated errors that stand beside those of nodes alone. Their largest differences are not known.
pub(crate) fn accumulated(alone: &Errors) -> Option<Errors> {
    let one = |n: &NodeError| {
        let rel_l2 = n.accumulated?;
        Some(NodeError { rel_l2, max_abs: f64::NAN, pass: rel_l2 <= alone.tolerance, ..n.clone() })
    };
    let nodes: Vec<NodeError> = alone.nodes.iter().filter_map(one).collect();
    (!nodes.is_empty()).then(|| Errors { nodes, cumulative: true, ..alone.clone() })
}

/// How many nodes are beyond the tolerance, alone or with the errors before them.
pub fn beyond(e: &Errors) -> String {
    let with = if e.cumulative { "with the errors before it" } else { "by itself" };
    let (all, failing) = (e.nodes.len(), e.nodes.iter().filter(|n| !n.pass).count());
    match e.nodes.iter().find(|n| !n.pass) {
        None => format!("Each of {all} compared nodes is within the tolerance of {:.0e} {with}.", e.tolerance),
        Some(first) => {
            let are = if failing == 1 { "is" } else { "are" };
            let with = if e.cumulative { "with the errors before them" } else { "by themselves" };
            format!(
                "{failing} of {all} compared nodes {are} beyond the tolerance of {:.0e} {with}; the first is {}.",
                e.tolerance, first.name
            )
        }
    }
}

/// The errors of a trace alone and accumulated.
fn errors(e: &Errors, n: &NodeError) -> [Option<f64>; 2] {
    if e.cumulative { [None, Some(n.rel_l2)] } else { [Some(n.rel_l2), n.accumulated] }
}

/// The compared nodes in the order they run. `stored` is what [`CompileTrace::stored`] gives.
pub fn wrong_nodes(t: &CompileTrace, stored: &[Stored]) -> Vec<WrongNode> {
    let Some(e) = &t.errors else { return vec![] };
    let ops: FxHashMap<&str, &str> = t.sources.iter().map(|s| (s.name.as_str(), s.op.as_str())).collect();
    let mut homes: FxHashMap<&str, usize> = FxHashMap::default();
    for (i, g) in t.groups.iter().enumerate() {
        g.origins.iter().for_each(|o| {
            homes.insert(o, i);
        });
    }
    let home = |n: &NodeError| homes.get(n.name.as_str()).copied();
    let accumulated: FxHashMap<usize, f64> =
        e.nodes.iter().filter_map(|n| Some((home(n)?, errors(e, n)[1]?))).collect();
    let f16 = |g: usize| t.kernels_of(g).into_iter().any(|k| t.kernels[k].dtype == "f16");
    let one = |n: &NodeError| {
        let group = home(n);
        let [alone, sum] = errors(e, n);
        let own = group.and_then(|g| stored.get(g)).copied().unwrap_or_default();
        let read = group.map_or(&[][..], |g| &t.groups[g].reads);
        let before = read.iter().filter_map(|r| accumulated.get(r)).copied().fold(0.0, f64::max);
        WrongNode {
            name: n.name.clone(),
            op: ops.get(n.name.as_str()).map_or(String::new(), |o| o.to_string()),
            group,
            alone,
            accumulated: sum,
            growth: sum.filter(|_| before > 0.0).map(|s| s / before).filter(|g| g.is_finite()),
            magnitude: n.max_magnitude,
            f16: group.is_some_and(f16),
            stores: own.dtype.map_or(String::new(), |d| d.to_string()),
            f32_ms: own.f32_ns.map(|ns| ns / 1e6),
            pass: n.pass,
        }
    };
    e.nodes.iter().map(one).collect()
}

/// A node to keep in f32.
#[derive(Clone, PartialEq, Debug)]
pub struct Keep {
    /// Its place among the compared nodes.
    pub at: usize,
    /// The result's error without that of this node: errors of nodes that do not depend on each other add as squares.
    /// `None` where the result is not finite.
    pub left: Option<f64>,
}

/// Nodes to keep in f32.
#[derive(Clone, PartialEq, Debug)]
pub struct Proposal {
    /// Those behind which results are not finite, then those with the largest errors of their own, the largest first.
    pub first: Vec<Keep>,
    /// So many are to be kept first: those behind which results are not finite, or those that have more error of their
    /// own than two roundings of f16.
    pub far: usize,
    /// What that means, in a sentence.
    pub verdict: String,
}

/// The first node of a run whose result is not finite; everything behind it is lost. A node alone does not show it
/// where its result is stored in f32.
pub fn lost_at(nodes: &[WrongNode]) -> Option<usize> {
    nodes.iter().position(|n| n.accumulated.is_some_and(|e| !e.is_finite()))
}

/// A magnitude in few digits, with an exponent where it would be long without.
pub fn magnitude(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        size if !(0.01..1e5).contains(&size) => format!("{x:.1e}"),
        size if size >= 100.0 => format!("{x:.0}"),
        size if size >= 1.0 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

/// The node at which a run is lost and those that read its result in f16, with what that means.
fn lost(t: &CompileTrace, nodes: &[WrongNode]) -> Option<(Vec<usize>, String)> {
    let at = lost_at(nodes)?;
    let (n, home) = (&nodes[at], nodes[at].group?);
    let reads = |r: &WrongNode| r.f16 && r.group.is_some_and(|g| t.groups[g].reads.contains(&home));
    let readers: Vec<usize> = (0..nodes.len()).filter(|&i| i != at && reads(&nodes[i])).collect();
    let names: Vec<&str> = readers.iter().map(|&i| nodes[i].name.as_str()).collect();
    let and = if names.is_empty() { String::new() } else { format!(", and what reads it: {}", names.join(", ")) };
    let said = format!(
        "Behind {} nothing is finite: it reaches {}, and f16 ends at {LARGEST_F16}. Keep it first{and}.",
        n.name,
        magnitude(n.magnitude)
    );
    Some((std::iter::once(at).chain(readers).collect(), said))
}

/// The nodes to keep first, `most` of them. `None` where errors of nodes alone were not compared, or nothing is stored
/// in f16.
pub fn keep_first(t: &CompileTrace, nodes: &[WrongNode], most: usize) -> Option<Proposal> {
    let mut own: Vec<(usize, f64)> =
        nodes.iter().enumerate().filter_map(|(i, n)| Some((i, n.f32_ms.and(n.alone)?))).collect();
    own.retain(|o| o.1 > 0.0);
    own.sort_by(|a, b| b.1.total_cmp(&a.1));
    if own.is_empty() {
        return None;
    }
    let whole = t.errors.iter().flat_map(|e| &e.outputs).map(|o| o.rel_l2).fold(0.0, f64::max);
    let limit = 2.0 * ROUNDING;
    let far = own.iter().filter(|o| o.1 > limit).count();
    let verdict = match far {
        0 => {
            let many = own.iter().filter(|o| o.1 > ROUNDING / 4.0).count();
            format!(
                "No node has more error of its own than two roundings of f16 ({limit:.1e}): that of the result comes from \
                 {many} nodes together."
            )
        }
        1 => format!("One node has more error of its own than two roundings of f16 ({limit:.1e}): keep it first."),
        n => {
            format!("{n} nodes have more error of their own than two roundings of f16 ({limit:.1e}): keep these first.")
        }
    };
    let left = |alone: f64| whole.is_finite().then(|| (whole * whole - alone * alone).max(0.0).sqrt());
    let (lost, far, verdict) = match lost(t, nodes) {
        Some((lost, said)) => (lost.clone(), lost.len(), said),
        None => (vec![], far, verdict),
    };
    own.retain(|o| !lost.contains(&o.0));
    let lost = lost.into_iter().map(|at| Keep { at, left: None });
    let first =
        lost.chain(own.into_iter().map(|(at, alone)| Keep { at, left: left(alone) })).take(most.max(far)).collect();
    Some(Proposal { first, far, verdict })
}

/// What the errors say, in sentences: results, the first node beyond the tolerance, magnitudes.
pub fn findings(t: &CompileTrace, nodes: &[WrongNode]) -> Vec<String> {
    let Some(e) = &t.errors else { return vec![] };
    let result = |n: &NodeError| {
        let verdict = if n.pass { "within the tolerance" } else { "beyond the tolerance" };
        format!("Result {}: relative error {:.1e}, {:.1e} at most; {verdict}.", n.name, n.rel_l2, n.max_abs)
    };
    let mut out: Vec<String> = e.outputs.iter().map(result).collect();
    out.push(beyond(e));
    out.extend(accumulated(e).filter(|_| !e.cumulative).as_ref().map(beyond));
    if let Some(n) = lost_at(nodes).map(|i| &nodes[i]) {
        out.push(format!("In the run, {} is the first whose result is not finite.", n.name));
    }
    let jump =
        nodes.iter().filter(|n| n.accumulated.is_some_and(|a| a > ROUNDING)).filter_map(|n| Some((n, n.growth?)));
    if let Some((n, by)) = jump.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|j| j.1 > 2.0) {
        out.push(format!("The accumulated error grows most in {}: {by:.1} times what it reads.", n.name));
    }
    if let Some(n) = nodes.iter().max_by(|a, b| a.magnitude.total_cmp(&b.magnitude)) {
        let count = nodes.iter().filter(|n| n.magnitude > LARGEST_F16 / 4.0).count();
        let close = match count {
            0 => String::new(),
            n => format!(" {n} nodes are beyond a quarter of that."),
        };
        out.push(format!(
            "The largest magnitude is {}, in {}; f16 ends at {LARGEST_F16}.{close}",
            magnitude(n.magnitude),
            n.name
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::report::GroupKind;
    use compiler::trace::Group;

    fn node(name: &str, alone: f64, accumulated: f64, magnitude: f64, pass: bool) -> NodeError {
        NodeError {
            name: name.into(),
            max_abs: alone,
            rel_l2: alone,
            max_magnitude: magnitude,
            pass,
            accumulated: Some(accumulated),
        }
    }

    fn stored(ns: f64) -> Stored {
        Stored { dtype: None, f32_ns: Some(ns) }
    }

    /// Three groups in a chain; the second one has an error of its own.
    fn trace() -> CompileTrace {
        let group = |name: &str, reads: Vec<usize>| Group {
            label: name.into(),
            layer: name.into(),
            origins: vec![name.into()],
            reads,
            function: name.into(),
            inserted: false,
            stages: vec![],
            ops: vec![],
            nodes: vec![],
            anchor: None,
            layout: None,
            rule: String::new(),
            kind: GroupKind::Kernel,
            tensor_function: None,
            host_function: None,
            is_result: false,
            flops: 0,
            bytes: 0,
            open_bytes: None,
        };
        let nodes = vec![
            node("a", 1e-4, 1e-4, 10.0, true),
            node("b", 2e-2, 2e-2, 7e4, false),
            node("c", 1e-4, 2.1e-2, 3.0, false),
        ];
        let outputs = vec![node("y", 2.1e-2, 2.1e-2, 3.0, false)];
        let errors = Errors { nodes, outputs, tolerance: 1e-2, ..Errors::default() };
        CompileTrace {
            groups: vec![group("a", vec![]), group("b", vec![0]), group("c", vec![1])],
            errors: Some(errors),
            ..CompileTrace::default()
        }
    }

    #[test]
    fn the_node_with_an_error_of_its_own_is_kept_first() {
        let t = trace();
        let nodes = wrong_nodes(&t, &[1e3, 2e3, 3e3].map(stored));
        assert_eq!(nodes[1].growth.map(|g| g.round()), Some(200.0));
        let Proposal { first: keep, far, verdict } = keep_first(&t, &nodes, 2).expect("errors alone");
        assert_eq!(far, 1);
        assert_eq!((nodes[keep[0].at].name.as_str(), nodes[keep[0].at].f32_ms), ("b", Some(2e-3)));
        assert!(keep[0].left.zip(keep[1].left).is_some_and(|(a, b)| a < 0.5 * b), "{keep:?}");
        assert!(verdict.starts_with("One node has more error of its own"), "{verdict}");
        let said = findings(&t, &nodes).join("\n");
        assert!(
            said.contains("2 of 3 compared nodes are beyond the tolerance of 1e-2 by themselves; the first is b."),
            "{said}"
        );
        assert!(said.contains("grows most in b: 200.0 times"), "{said}");
        assert!(said.contains("The largest magnitude is 70000, in b; f16 ends at 65504. 1 nodes"), "{said}");
    }

    /// Alone, a node whose result is stored in f32 does not show that f16 ends before it.
    #[test]
    fn where_a_run_is_lost_the_node_and_its_readers_come_first() {
        let mut t = trace();
        let errors = t.errors.as_mut().expect("errors");
        errors.nodes[1] = node("b", 1e-8, f64::INFINITY, 7e6, true);
        errors.nodes[2] = node("c", 3e-4, f64::INFINITY, 3.0, true);
        errors.outputs[0].rel_l2 = f64::INFINITY;
        let mut nodes = wrong_nodes(&t, &[1e3; 3].map(stored));
        nodes.iter_mut().for_each(|n| n.f16 = true);
        assert!(nodes.iter().all(|n| n.growth.is_none_or(f64::is_finite)));
        let Proposal { first, far, verdict } = keep_first(&t, &nodes, 2).expect("errors alone");
        let names: Vec<&str> = first.iter().map(|k| nodes[k.at].name.as_str()).collect();
        assert_eq!((names, far), (vec!["b", "c"], 2));
        assert!(first.iter().all(|k| k.left.is_none()));
        assert!(verdict.contains("Behind b nothing is finite: it reaches 7.0e6") && verdict.ends_with("reads it: c."));
        let said = findings(&t, &nodes).join("\n");
        assert!(said.contains("Each of 3 compared nodes is within the tolerance of 1e-2 by itself."), "{said}");
        assert!(said.contains("In the run, b is the first whose result is not finite."), "{said}");
    }

    #[test]
    fn without_errors_of_nodes_alone_none_is_kept() {
        let mut t = trace();
        t.errors.as_mut().expect("errors").cumulative = true;
        assert_eq!(keep_first(&t, &wrong_nodes(&t, &[1e3; 3].map(stored)), 2), None);
    }

    #[test]
    fn roofs_come_from_the_profile_where_none_were_measured() {
        let profile = r#"{"gflops": 100.0, "gb_s": 20.0}"#.to_string();
        let roofs = Roofs::of(&CompileTrace { profile, ..CompileTrace::default() });
        assert_eq!(roofs, Roofs { measured: false, f32_gflops: Some(100.0), matrix_gflops: None, gb_s: Some(20.0) });
        let speed = Speed { dispatches: 1, us: 1.0, share: 1.0, gflops: 25.0, gb_s: 10.0, intensity: 2.5 };
        assert_eq!(speed.shares(&roofs), [("memory", 0.5), ("arithmetic", 0.25)]);
    }
}
