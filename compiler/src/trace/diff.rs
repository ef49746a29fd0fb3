//! Differences between two traces of one model that was compiled with different options or by different versions of
//! Weft.
//!
//! Passes are paired by name and occurrence, groups by their source nodes, kernels through the groups that run them
//! (their names may change), remarks by their content.

use super::delta::TextDelta;
use super::{CompileTrace, Group, Kernel, TraceError};
use crate::passes::PassStats;
use crate::remark::Remark;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::BTreeSet;
use std::hash::Hash;

/// The differences, each from the first trace to the second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, schemars::JsonSchema)]
pub struct TraceDiff {
    /// Facts that differ: model, device, options, memory, transposes, counts.
    pub facts: Vec<Fact>,
    /// Passes that are on one side only, or left another number of nodes, or said otherwise whether they changed
    /// anything.
    pub passes: Vec<PassDiff>,
    /// Stages whose text differs.
    pub stages: Vec<StageDiff>,
    /// Groups that only the first trace has, by their source nodes.
    pub groups_removed: Vec<GroupLine>,
    /// Groups that only the second trace has.
    pub groups_added: Vec<GroupLine>,
    /// Groups of the same source nodes that are made or run otherwise.
    pub groups_changed: Vec<GroupDiff>,
    /// Kernels that differ in groups both traces have.
    pub kernels: Vec<KernelDiff>,
    /// Remarks of the first trace alone.
    pub remarks_removed: Vec<Remark>,
    /// Remarks of the second trace alone.
    pub remarks_added: Vec<Remark>,
    /// Milliseconds of the compilation and its parts: never a difference by themselves.
    pub timings: Vec<Timing>,
}

/// Something with two values.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct Fact {
    /// What.
    pub what: String,
    /// In the first trace.
    pub a: String,
    /// In the second.
    pub b: String,
}

/// A pass of either side.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct PassDiff {
    /// The pass.
    pub name: String,
    /// Its how-manieth run, from 1.
    pub run: usize,
    /// Its statistics in the first trace.
    pub a: Option<PassStats>,
    /// Its statistics in the second trace.
    pub b: Option<PassStats>,
}

/// A stage whose text differs.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct StageDiff {
    /// Label.
    pub label: String,
    /// Its how-manieth occurrence, from 1.
    pub run: usize,
    /// Lines of the first text that the second has not.
    pub removed: usize,
    /// Lines that the second text has besides.
    pub added: usize,
}

/// A group in a line.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct GroupLine {
    /// Index in its trace.
    pub id: usize,
    /// Op names.
    pub ops: Vec<String>,
    /// Source nodes.
    pub origins: Vec<String>,
    /// Schedule rule.
    pub rule: String,
}

/// A group of the same source nodes on both sides.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct GroupDiff {
    /// Index in the first trace.
    pub a: usize,
    /// Index in the second.
    pub b: usize,
    /// Source nodes.
    pub origins: Vec<String>,
    /// The differences.
    pub facts: Vec<Fact>,
}

/// A kernel that differs.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct KernelDiff {
    /// Its name in the first trace.
    pub a: Option<String>,
    /// Its name in the second.
    pub b: Option<String>,
    /// Groups of the first trace (or of the second, for a kernel that the first has not) that run it.
    pub groups: Vec<usize>,
    /// The differences.
    pub facts: Vec<Fact>,
    /// The schedules line by line: ` ` for common lines, `-` and `+` for lines of one side; empty if they are equal.
    pub schedule: Vec<String>,
}
impl KernelDiff {
    /// The differences of two kernels that do the same work.
    pub fn of(a: &Kernel, b: &Kernel) -> KernelDiff {
        KernelDiff {
            a: Some(a.name.clone()),
            b: Some(b.name.clone()),
            groups: vec![],
            facts: kernel_facts(a, b),
            schedule: schedule_lines(a, b),
        }
    }
}

/// A time on both sides.
#[derive(Clone, PartialEq, Debug, Serialize, schemars::JsonSchema)]
pub struct Timing {
    /// A part of the compilation, or `pass NAME`.
    pub what: String,
    /// Milliseconds in the first trace; none where it does not occur.
    pub a_ms: Option<f64>,
    /// Milliseconds in the second trace.
    pub b_ms: Option<f64>,
}

impl TraceDiff {
    /// Compares two traces.
    ///
    /// # Errors
    /// [`TraceError::Damaged`] when the stages of one cannot be restored.
    pub fn between(a: &CompileTrace, b: &CompileTrace) -> Result<TraceDiff, TraceError> {
        let mut d =
            TraceDiff { facts: facts(a, b), stages: stages(a, b)?, timings: timings(a, b), ..Default::default() };
        for (name, run, x, y) in pair(&a.passes, &b.passes, |p| p.name.clone()) {
            if x.map(without_time) != y.map(without_time) {
                d.passes.push(PassDiff { name, run, a: x.cloned(), b: y.cloned() });
            }
        }
        d.groups_and_kernels(a, b);
        for (_, _, x, y) in pair(&a.remarks, &b.remarks, Remark::clone) {
            match (x, y) {
                (Some(r), None) => d.remarks_removed.push(r.clone()),
                (None, Some(r)) => d.remarks_added.push(r.clone()),
                _ => {}
            }
        }
        Ok(d)
    }
    /// True when nothing but times differs.
    pub fn is_empty(&self) -> bool {
        TraceDiff { timings: vec![], ..self.clone() } == TraceDiff::default()
    }

    fn groups_and_kernels(&mut self, a: &CompileTrace, b: &CompileTrace) {
        let indexed = |t: &CompileTrace| (0..t.groups.len()).collect::<Vec<_>>();
        // Groups without source nodes (made by the compiler) are distinguished by their contents.
        let key = |t: &CompileTrace, i: &usize| {
            let g = &t.groups[*i];
            if g.origins.is_empty() { (vec![], g.ops.clone()) } else { (g.origins.clone(), vec![]) }
        };
        let (left, right) = (indexed(a), indexed(b));
        let mut seen = FxHashMap::default();
        for (_, _, x, y) in pair_by(&left, &right, |i| key(a, i), |i| key(b, i)) {
            match (x, y) {
                (Some(&i), None) => self.groups_removed.push(line(a, i)),
                (None, Some(&j)) => self.groups_added.push(line(b, j)),
                (Some(&i), Some(&j)) => {
                    let facts = group_facts(&a.groups[i], &b.groups[j]);
                    if !facts.is_empty() {
                        self.groups_changed.push(GroupDiff { a: i, b: j, origins: a.groups[i].origins.clone(), facts });
                    }
                    self.kernels_of(a, b, (i, j), &mut seen);
                }
                (None, None) => {}
            }
        }
    }

    /// Kernels of a pair of groups, in order; a pair of kernels is described once.
    fn kernels_of(
        &mut self,
        a: &CompileTrace,
        b: &CompileTrace,
        (i, j): (usize, usize),
        seen: &mut FxHashMap<(Option<usize>, Option<usize>), Option<usize>>,
    ) {
        let (left, right) = (a.kernels_of(i), b.kernels_of(j));
        for at in 0..left.len().max(right.len()) {
            let pair = (left.get(at).copied(), right.get(at).copied());
            if let Some(known) = seen.get(&pair) {
                if let Some(known) = *known {
                    self.kernels[known].groups.push(i);
                }
                continue;
            }
            let (x, y) = (pair.0.map(|k| &a.kernels[k]), pair.1.map(|k| &b.kernels[k]));
            let name = |k: Option<&Kernel>| k.map(|k| k.name.clone());
            let alone = || KernelDiff { a: name(x), b: name(y), groups: vec![], facts: vec![], schedule: vec![] };
            let diff = x.zip(y).map_or_else(alone, |(x, y)| KernelDiff::of(x, y));
            let differs = x.is_none() || y.is_none() || !diff.facts.is_empty() || !diff.schedule.is_empty();
            seen.insert(pair, differs.then_some(self.kernels.len()));
            if differs {
                self.kernels.push(KernelDiff { groups: vec![if x.is_some() { i } else { j }], ..diff });
            }
        }
    }
}

/// Pairs items with the same key, the n-th of one side with the n-th of the other, in the first side's order; items of
/// the second side only come last.
fn pair_by<'a, A, B, K: Hash + Eq + Clone>(
    a: &'a [A],
    b: &'a [B],
    key_a: impl Fn(&A) -> K,
    key_b: impl Fn(&B) -> K,
) -> Vec<(K, usize, Option<&'a A>, Option<&'a B>)> {
    let mut waiting: FxHashMap<(K, usize), usize> = FxHashMap::default();
    let mut runs: FxHashMap<K, usize> = FxHashMap::default();
    let mut number = |k: K| {
        let n = runs.entry(k.clone()).or_default();
        *n += 1;
        (k, *n)
    };
    let right: Vec<(K, usize)> = b.iter().map(|y| number(key_b(y))).collect();
    for (j, k) in right.iter().enumerate() {
        waiting.insert(k.clone(), j);
    }
    runs.clear();
    let mut number = |k: K| {
        let n = runs.entry(k.clone()).or_default();
        *n += 1;
        (k, *n)
    };
    let mut out = Vec::new();
    for x in a {
        let k = number(key_a(x));
        let found = waiting.remove(&k).map(|j| &b[j]);
        out.push((k.0, k.1, Some(x), found));
    }
    for (j, k) in right.into_iter().enumerate() {
        if waiting.contains_key(&k) {
            out.push((k.0, k.1, None, Some(&b[j])));
        }
    }
    out
}

fn pair<'a, T, K: Hash + Eq + Clone>(
    a: &'a [T],
    b: &'a [T],
    key: impl Fn(&T) -> K,
) -> Vec<(K, usize, Option<&'a T>, Option<&'a T>)> {
    pair_by(a, b, &key, &key)
}

fn without_time(p: &PassStats) -> PassStats {
    PassStats { ms: 0.0, ..p.clone() }
}

fn add(list: &mut Vec<Fact>, what: &str, a: impl ToString, b: impl ToString) {
    let (a, b) = (a.to_string(), b.to_string());
    if a != b {
        list.push(Fact { what: what.into(), a, b });
    }
}

pub(super) fn facts(a: &CompileTrace, b: &CompileTrace) -> Vec<Fact> {
    let mut l = Vec::new();
    let (o, p) = (&a.options, &b.options);
    add(&mut l, "model", &a.model, &b.model);
    add(&mut l, "Weft", &a.weft, &b.weft);
    add(&mut l, "device", &a.profile_name, &b.profile_name);
    if a.profile_name == b.profile_name {
        add(&mut l, "device profile", &a.profile, &b.profile);
    }
    let asked = [o, p].map(|o| (o.scheduling.rules.join(","), o.scheduling.versions.name()));
    add(&mut l, "--rules", &asked[0].0, &asked[1].0);
    add(&mut l, "--versions", asked[0].1, asked[1].1);
    add(&mut l, "--amp", &o.amp, &p.amp);
    add(&mut l, "--layout", &o.layout, &p.layout);
    add(&mut l, "--fuse", &o.fuse, &p.fuse);
    add(&mut l, "-O", o.opt_level, p.opt_level);
    add(&mut l, "disabled passes", o.disabled.join(","), p.disabled.join(","));
    add(&mut l, "pipeline", o.pipeline.join(","), p.pipeline.join(","));
    for name in o.asked.iter().chain(&p.asked).map(|a| a.0.as_str()).collect::<BTreeSet<_>>() {
        let given = |list: &[(String, String)]| {
            let own = list.iter().filter(|a| a.0 == name).map(|a| a.1.clone());
            own.collect::<Vec<_>>().join(" ")
        };
        // Those above are known of every trace.
        let (what, own) = (format!("--{}", name.replace('_', "-")), given(&o.asked));
        if !l.iter().any(|fact| fact.what == what) {
            add(&mut l, &what, own, given(&p.asked));
        }
    }
    add(&mut l, "nodes of the model", a.sources.len(), b.sources.len());
    add(&mut l, "groups", a.groups.len(), b.groups.len());
    add(&mut l, "kernels", a.kernels.len(), b.kernels.len());
    add(&mut l, "dispatches", a.calls().count(), b.calls().count());
    add(&mut l, "weight bytes", a.memory.weights, b.memory.weights);
    add(&mut l, "activation bytes at the peak", a.memory.activations_peak, b.memory.activations_peak);
    add(&mut l, "activation bytes without reuse", a.memory.activations_naive, b.memory.activations_naive);
    add(&mut l, "transposes of activations", a.transposes.activation, b.transposes.activation);
    add(&mut l, "transposes of weights, folded", a.transposes.weight_folded, b.transposes.weight_folded);
    add(&mut l, "transposes of weights in a run", a.transposes.weight_runtime, b.transposes.weight_runtime);
    let differ = pair(&a.weights, &b.weights, |w| w.name.clone()).into_iter().filter(|(_, _, x, y)| x != y).count();
    add(&mut l, "weights that differ", 0, differ);
    l
}

fn stages(a: &CompileTrace, b: &CompileTrace) -> Result<Vec<StageDiff>, TraceError> {
    let texts = |t: &CompileTrace| -> Result<Vec<(String, String)>, TraceError> {
        Ok(t.stages.iter().map(|s| s.label.clone()).zip(t.stage_texts()?).collect())
    };
    let (left, right) = (texts(a)?, texts(b)?);
    let mut out = Vec::new();
    for (label, run, x, y) in pair(&left, &right, |s| s.0.clone()) {
        if let (Some(x), Some(y)) = (x, y)
            && x.1 != y.1
        {
            let (removed, added) = TextDelta::between(&x.1, &y.1).size();
            out.push(StageDiff { label, run, removed, added });
        }
    }
    Ok(out)
}

fn line(t: &CompileTrace, id: usize) -> GroupLine {
    let g = &t.groups[id];
    GroupLine { id, ops: g.ops.clone(), origins: g.origins.clone(), rule: g.rule.clone() }
}

fn group_facts(a: &Group, b: &Group) -> Vec<Fact> {
    let mut l = Vec::new();
    let or_none = |t: &Option<String>| t.clone().unwrap_or_else(|| "none".into());
    add(&mut l, "ops", a.ops.join("+"), b.ops.join("+"));
    add(&mut l, "rule", &a.rule, &b.rule);
    add(&mut l, "kind", format!("{:?}", a.kind), format!("{:?}", b.kind));
    add(&mut l, "anchor", or_none(&a.anchor), or_none(&b.anchor));
    add(&mut l, "layout", or_none(&a.layout), or_none(&b.layout));
    add(&mut l, "flops", a.flops, b.flops);
    add(&mut l, "bytes", a.bytes, b.bytes);
    l
}

fn kernel_facts(a: &Kernel, b: &Kernel) -> Vec<Fact> {
    let mut l = Vec::new();
    add(&mut l, "workgroup", format!("{:?}", a.workgroup), format!("{:?}", b.workgroup));
    add(&mut l, "grid", format!("{:?}", a.grid), format!("{:?}", b.grid));
    add(&mut l, "bindings", a.bindings.len(), b.bindings.len());
    add(&mut l, "shared bytes", a.shared_bytes, b.shared_bytes);
    add(&mut l, "dtype", &a.dtype, &b.dtype);
    add(&mut l, "bounds proved", a.bounds_proved, b.bounds_proved);
    if a.wgsl != b.wgsl {
        let (removed, added) = TextDelta::between(&a.wgsl, &b.wgsl).size();
        let lines = |t: &str| t.lines().count();
        l.push(Fact {
            what: "WGSL".into(),
            a: format!("{} lines, {removed} of them only here", lines(&a.wgsl)),
            b: format!("{} lines, {added} of them only here", lines(&b.wgsl)),
        });
    }
    l
}

fn schedule_lines(a: &Kernel, b: &Kernel) -> Vec<String> {
    if a.schedule == b.schedule {
        return vec![];
    }
    let text = |k: &Kernel| k.schedule.iter().map(|i| format!("{i}\n")).collect::<String>();
    let (old, delta) = (text(a), TextDelta::between(&text(a), &text(b)));
    let mut rest = old.lines();
    let mut out: Vec<String> = Vec::new();
    for h in &delta.hunks {
        out.extend(rest.by_ref().take(h.keep as usize).map(|l| format!("  {l}")));
        out.extend(rest.by_ref().take(h.drop as usize).map(|l| format!("- {l}")));
        out.extend(h.add.lines().map(|l| format!("+ {l}")));
    }
    out.extend(rest.map(|l| format!("  {l}")));
    out
}

fn timings(a: &CompileTrace, b: &CompileTrace) -> Vec<Timing> {
    let all = |t: &CompileTrace| {
        let mut l = vec![("the whole compilation".to_string(), t.compile_ms)];
        l.extend(t.timings.iter().cloned());
        l.extend(t.passes.iter().map(|p| (format!("pass {}", p.name), p.ms)));
        l
    };
    let (left, right) = (all(a), all(b));
    let paired = pair(&left, &right, |t| t.0.clone());
    paired.into_iter().map(|(what, _, x, y)| Timing { what, a_ms: x.map(|x| x.1), b_ms: y.map(|y| y.1) }).collect()
}
