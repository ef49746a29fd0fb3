//! Networks that round to integers. A number in the middle of two steps goes to either, when the sums before it were
//! added in another order, and later layers amplify the difference: the results of two right runs may differ by any
//! amount. So where results differ, each part between roundings runs again on the reference's integers. Then
//!
//! - a rounded element may lie one step beside the reference's if the number before rounding, on the interpreter, is as
//!   near to the border between both as one part of a network is exact. Numbers of f16 are exact to 1e-2, more than a
//!   step of 127, but most of them much better: there as many elements may lie beside as cross a border if each number
//!   is off by f16's epsilon, two roundings of one sign;
//! - the results have to agree within the tolerance of any network.
//!
//! A wrong kernel is seen: it is off where no border is near. The whole run may be right if some number is near a
//! border at all, and if its results are finite where the reference's are and nearer to it than zeros.

use super::nodes::fed;
use super::request::Request;
use super::side::{Reference, differences, with_ties};
use super::steps::steps_of;
use crate::arrays::Named;
use crate::error::Result;
use crate::executor::{Device, INTERPRETER, execute_with, profile_on};
use crate::progress::log;
use crate::values_by_name::{exact_values, name_of, with_results};
use compiler::agreement::{Difference, F16_TOLERANCE, REORDERED};
use compiler::arena::Id;
use compiler::dtype::DType;
use compiler::graph::{Function, Module, NodeId, ValueId};
use compiler::name::Name;
use compiler::ops::binary::{Add, Max, Min, Sub};
use compiler::ops::cast::Cast;
use compiler::ops::clip::Clip;
use compiler::ops::unary::{Ceil, Floor, Round};
use compiler::passes::PipelineOptions;
use compiler::tensor::Tensor;
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::Serialize;
use weft::Session;

/// The distance from 1 to the next number of f16.
const F16_EPSILON: f64 = 1.0 / 1024.0;
/// How far from a border a number of f32 may be that goes to the other side, in steps.
const MOST_OF_A_STEP: f64 = 0.25;

/// The parts of a network on the reference's integers.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Rounded {
    /// All parts agree.
    pub pass: bool,
    /// Tensors that are rounded.
    pub tensors: usize,
    /// Their elements.
    pub elements: usize,
    /// Those that lie one step beside the reference's.
    pub beside: usize,
    /// How far from a border these are before they are rounded, in steps, at most.
    pub distance: f64,
    /// Those that are so near to a border that they may lie one step beside.
    pub near: usize,
    /// The largest `norm(a-b) / norm(b)` of the results.
    pub rel_l2: f64,
    /// The first disagreement, in words.
    pub why: Option<String>,
}

/// A tensor that is rounded, the one before, and whether borders are in the middle of two integers.
struct Rounding {
    to: ValueId,
    from: ValueId,
    halves: bool,
}

/// The roundings of the entry function: casts to integers with what rounds and limits before them, and others that no
/// such cast follows.
fn roundings_of(f: &Function) -> Vec<Rounding> {
    let (mut out, uses): (Vec<Rounding>, _) = (vec![], f.uses());
    for &n in &f.blocks[f.body].nodes {
        let node = &f.nodes[n];
        let (Some(&to), Some(from)) = (node.outputs.first(), node.inputs.first().copied().flatten()) else { continue };
        let float = f.ty(from).dtype.is_float();
        let to_int = node.op.is::<Cast>() && f.ty(to).dtype.is_int();
        if float && to_int {
            let source = rounded_by(f, from, &uses);
            out.retain(|r| source.as_ref().is_none_or(|s| !s.alone || r.to != s.rounding.to));
            out.push(source.map_or(Rounding { to, from, halves: false }, |s| Rounding { to, ..s.rounding }));
        } else if let Some(r) = own_rounding(f, to) {
            out.push(r);
        }
    }
    out
}

/// The rounding that gives a value.
fn own_rounding(f: &Function, to: ValueId) -> Option<Rounding> {
    let node = &f.nodes[f.def_node(to)?];
    let halves = node.op.is::<Round>();
    let rounds = halves || node.op.is::<Floor>() || node.op.is::<Ceil>();
    rounds.then_some(())?;
    Some(Rounding { to, from: node.inputs.first().copied().flatten()?, halves })
}

/// A rounding before a cast; `alone`: nothing but the cast reads its result.
struct Source {
    rounding: Rounding,
    alone: bool,
}

/// The rounding behind a value that a cast reads, which is limited and moved by integers; `uses` of every value.
fn rounded_by(f: &Function, mut v: ValueId, uses: &[Vec<(NodeId, usize)>]) -> Option<Source> {
    let results = &f.blocks[f.body].results;
    let mut alone = true;
    loop {
        alone &= uses[v.index()].len() == 1 && !results.contains(&v);
        if let Some(rounding) = own_rounding(f, v) {
            return Some(Source { rounding, alone });
        }
        let node = &f.nodes[f.def_node(v)?];
        let op = &node.op;
        let keeps = op.is::<Clip>() || op.is::<Max>() || op.is::<Min>() || op.is::<Add>() || op.is::<Sub>();
        v = node.inputs.first().copied().flatten().filter(|_| keeps)?;
    }
}

/// A network on a device, to be run part by part.
pub struct Parts<'r> {
    pub a: &'r Request,
    pub module: &'r Module,
    pub device: &'r Device,
    pub pipeline: &'r PipelineOptions,
    /// The parts, compiled when an input first needs them.
    pub compiled: Option<Compiled>,
}

/// The parts of a network, compiled.
pub struct Compiled {
    session: Session,
    /// The integers that they are fed with, of all roundings: none, numbers for all elements, or one for each.
    fed: Vec<Option<bool>>,
}

impl Parts<'_> {
    /// The results of a run against a reference. Where they differ and the network rounds, its parts are run on the
    /// reference's integers; if that reference is the interpreter, these decide. `mixed`: something is stored in f16;
    /// `rows`: data of products is rounded.
    ///
    /// # Errors
    /// A result that the reference lacks; an error of a run.
    pub fn judge(
        &mut self,
        reference: &Reference,
        inputs: &[Tensor],
        (names, got): (&[String], &[Tensor]),
        want: &Named,
        [mixed, rows]: [bool; 2],
    ) -> Result<(Vec<(String, Difference)>, Option<Rounded>)> {
        let of_interpreter = matches!(reference, Reference::Interpreter);
        let mut out = match of_interpreter {
            true => differences(self.a, names, got, want, mixed)?,
            false => with_ties(self.a, names, got, want, (mixed || rows, &steps_of(self.module)))?,
        };
        if out.iter().all(|r| r.1.pass) || matches!(reference, Reference::Model(..)) {
            return Ok((out, None));
        }
        let found = self.on_the_references_integers(inputs).unwrap_or_else(|e| {
            log(&self.a.settings, format!("note: the parts between roundings were not compared: {e}"));
            None
        });
        if of_interpreter && found.as_ref().is_some_and(|r| r.pass && r.near > 0) {
            out.iter_mut().filter(|r| may_be_of_ties(&r.1)).for_each(|r| (r.1.pass, r.1.why) = (true, String::new()));
        }
        Ok((out, found))
    }

    /// Runs the parts between roundings, each on the interpreter's integers; `None` for a network that does not round,
    /// and where the interpreter is the device.
    fn on_the_references_integers(&mut self, inputs: &[Tensor]) -> Result<Option<Rounded>> {
        let Parts { a, module, device, pipeline, .. } = *self;
        let f = module.main();
        let roundings = roundings_of(f);
        let wanted: FxHashSet<ValueId> = roundings.iter().flat_map(|r| [r.to, r.from]).collect();
        if roundings.is_empty() {
            return Ok(None);
        }
        let (exact, want) = exact_values(module, inputs, &a.settings, |v| wanted.contains(&v))?;
        let more: Vec<(Name, ValueId)> = roundings.iter().map(|r| (name_of(f, r.to), r.to)).collect();
        let (parts, inputs) = fed(with_results(module, &more), roundings.iter().map(|r| r.to), inputs, &exact);
        let known: Vec<_> = roundings.iter().map(|r| exact.get(&r.to).map(|t| t.shape().is_empty())).collect();
        if self.compiled.as_ref().is_none_or(|c| c.fed != known) {
            let profile = profile_on(&a.settings, device)?;
            let session = execute_with(parts, pipeline.clone(), &a.settings, device, &profile, false)?;
            self.compiled = Some(Compiled { session, fed: known });
        }
        let Some(Compiled { session, .. }) = &self.compiled else { return Ok(None) };
        let mixed = session.is_mixed();
        let (got, place) = session.run_unchecked(&inputs)?;
        if place == INTERPRETER {
            return Ok(None);
        }
        let names: Vec<String> = f.result_names.iter().map(Name::to_string).collect();
        let (results, integers) = got.split_at(names.len());
        let named = names.iter().cloned().zip(want).collect();
        let rows = differences(a, &names, results, &named, mixed)?;
        let mut out = Rounded { tensors: roundings.len(), ..Rounded::default() };
        for ((r, (name, _)), own) in roundings.iter().zip(&more).zip(integers) {
            let (Some(want), Some(from)) = (exact.get(&r.to), exact.get(&r.from)) else { continue };
            let near = if mixed || reads_f16(f, r.from) { F16_TOLERANCE } else { REORDERED };
            out.add(name, r.halves, [own, want, from], near);
        }
        let differs = |(name, d): &(String, Difference)| format!("{name}: {}", d.why);
        // Integers that are results themselves were judged above.
        let is_rounded = |v: &ValueId| roundings.iter().any(|r| r.to == *v && exact.contains_key(v));
        let others = || rows.iter().zip(&f.blocks[f.body].results).filter(|(_, v)| !is_rounded(v)).map(|r| r.0);
        out.why = out.why.or_else(|| others().find(|r| !r.1.pass).map(differs));
        out.rel_l2 = rows.iter().fold(0.0, |most, r| most.max(r.1.rel_l2));
        out.pass = out.why.is_none();
        Ok(Some(out))
    }
}

/// Other integers in a middle layer may explain the difference.
fn may_be_of_ties(d: &Difference) -> bool {
    d.nan + d.inf == 0 && d.rel_l2 < 1.0
}

/// The value is one of f16, or computed of such.
fn reads_f16(f: &Function, v: ValueId) -> bool {
    let (mut seen, mut next) = (FxHashSet::default(), vec![v]);
    while let Some(v) = next.pop().filter(|&v| f.ty(v).dtype != DType::F16) {
        let inputs = f.def_node(v).map(|n| f.nodes[n].inputs.iter().flatten().copied());
        next.extend(inputs.into_iter().flatten().filter(|&v| f.ty(v).dtype.is_float() && seen.insert(v)));
    }
    seen.iter().chain([&v]).any(|&v| f.ty(v).dtype == DType::F16)
}

impl Rounded {
    /// Counts the elements of a tensor that lie one step beside; others are wrong. `near`: how exact the numbers before
    /// rounding are, as part of their own size and of the largest of all.
    fn add(&mut self, name: &Name, halves: bool, [own, want, from]: [&Tensor; 3], near: f64) {
        let [own, want, from] = [own, want, from].map(Tensor::to_f64_vec);
        self.elements += want.len();
        let before = self.beside;
        let peak = from.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
        for (i, ((x, y), z)) in own.iter().zip(&want).zip(&from).enumerate() {
            let border = if halves { z.floor() + 0.5 } else { z.round() };
            let distance = (z - border).abs();
            // Beside great numbers f32 has less than a step: then a quarter of one, or everything would be near.
            let allowed = near * (peak + z.abs());
            let is_near = distance <= if near < F16_TOLERANCE { allowed.min(MOST_OF_A_STEP) } else { allowed };
            self.near += usize::from(is_near);
            if x == y || x.is_nan() && y.is_nan() {
                continue;
            }
            if (x - y).abs() == 1.0 && is_near {
                (self.beside, self.distance) = (self.beside + 1, self.distance.max(distance));
            } else if self.why.is_none() {
                let text = format!("{name}: element {i} is {x}, expected {y}: {z} before it is rounded");
                self.why = Some(text);
            }
        }
        let beside = self.beside - before;
        // A number beyond a limit counts as far as the limit.
        let held = from.iter().zip(&want).filter(|(z, _)| z.is_finite()).map(|(z, y)| z.abs().min(y.abs() + 1.0));
        let crossed = F16_EPSILON * held.sum::<f64>();
        if near >= F16_TOLERANCE && beside as f64 > crossed.max(1.0) && self.why.is_none() {
            self.why = Some(format!("{name}: {beside} of {} elements lie one step beside", want.len()));
        }
        if own.len() != want.len() {
            self.why = Some(format!("{name}: {} elements, expected {}", own.len(), want.len()));
        }
    }

    /// The sentence about it.
    pub fn text(&self) -> String {
        let Rounded { tensors, elements, beside, distance, rel_l2, .. } = self;
        let parts = format!("the network rounds {tensors} tensors; run part by part on the reference's integers");
        let beside =
            format!("{beside} of {elements} rounded elements lie one step beside, at most {distance:.1e} of a step");
        match &self.why {
            None => format!("{parts}, results agree (rel l2 {rel_l2:.1e}) and {beside} from the border"),
            Some(why) => format!("{parts}, it still differs: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::agreement::{Tolerance, agree};
    use compiler::text::parse_module;

    /// `of(x)` are the integers of a device; the reference has `x` to the nearest.
    fn judged(count: usize, near: f64, of: impl Fn(f64) -> f64) -> Rounded {
        let before: Vec<f64> = (0..count).map(|i| (i as f64 * 0.7).sin() * 127.0).collect();
        let tensor = |all: Vec<f64>| Tensor::from_f64(DType::F32, vec![count], all);
        let [own, want] =
            [&of as &dyn Fn(f64) -> f64, &f64::round_ties_even].map(|f| tensor(before.iter().map(|x| f(*x)).collect()));
        let mut out = Rounded::default();
        out.add(&Name::new("q"), true, [&own, &want, &tensor(before)], near);
        out
    }

    #[test]
    fn borders_are_crossed_and_wrong_kernels_are_seen() {
        for near in [REORDERED, F16_TOLERANCE] {
            // All of them moved by a part of the tolerance, of f16 by a twentieth of a step.
            let by = if near == REORDERED { 0.2 * near * 127.0 } else { 0.05 };
            let right = judged(4000, near, move |x| (x + by).round_ties_even());
            assert!(right.why.is_none() && right.beside > 0 && right.distance <= by + 1e-4, "{right:?}");
            assert!(judged(4000, near, |x| x.trunc()).why.is_some(), "rounded towards zero");
            assert!(judged(4000, near, |x| x.floor()).why.is_some(), "rounded down");
            assert!(judged(4000, near, |x| (x * 1.02).round_ties_even()).why.is_some(), "a wrong scale");
            assert!(judged(4000, near, |x| x.round_ties_even() + 2.0).why.is_some(), "a wrong zero point");
        }
        // Of f32 a scale that is wrong by 1 in 10,000 is seen, and a step in one element of all.
        assert!(judged(4000, REORDERED, |x| (x * 1.0001).round_ties_even()).why.is_some());
        assert!(judged(4000, REORDERED, |x| x.round_ties_even() + f64::from(x == 0.0)).why.is_some());
    }

    /// One great number among the others hides nothing of f32.
    #[test]
    fn great_numbers_do_not_hide_wrong_ones() {
        let before: Vec<f64> =
            (0..4000).map(|i| if i == 7 { 1e6 } else { (f64::from(i) * 0.7).sin() * 127.0 }).collect();
        let tensor = |all: Vec<f64>| Tensor::from_f64(DType::F32, vec![4000], all);
        let own = tensor(before.iter().map(|x| x.floor()).collect());
        let want = tensor(before.iter().map(|x| x.round_ties_even()).collect());
        let mut out = Rounded::default();
        out.add(&Name::new("q"), true, [&own, &want, &tensor(before)], REORDERED);
        assert!(out.why.is_some(), "{out:?}");
    }

    #[test]
    fn ties_explain_finite_results_near_the_reference() {
        let of = |own: [f64; 3], want: [f64; 3]| {
            let [own, want] = [own, want].map(|x| Tensor::from_f64(DType::F32, vec![3], x.to_vec()));
            may_be_of_ties(&agree(&own, &want, &Tolerance::new(DType::F32, None, None)))
        };
        assert!(of([1.0, 2.1, 3.0], [1.0, 2.0, 3.0]));
        assert!(!of([1.0, f64::NAN, 3.0], [1.0, 2.0, 3.0]), "NaN");
        assert!(!of([f64::INFINITY, 2.0, 3.0], [1.0, 2.0, 3.0]), "infinite");
        assert!(!of([-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]), "of another sign");
    }

    #[test]
    fn roundings_are_found_behind_limits_and_zero_points() {
        let text = "
const @s : f32[] = [0.5]
graph @main(%x: f32[4]) -> (y: f32[4], z: f32[4], i: i32[4]) {
  %s = const @s
  %0 = div %x, %s
  %1 = round %0
  %2 = add %1, %s
  %3 = clip %2 {min=-128.0, max=127.0}
  %4 = cast %3 {to=i8}
  %5 = cast %4 {to=f32}
  %6 = round %5
  %7 = cast %x {to=i32}
  return %5, %6, %7
}";
        let module = parse_module(text).expect("a module");
        let found = roundings_of(module.main());
        let halves: Vec<bool> = found.iter().map(|r| r.halves).collect();
        assert_eq!(halves, [true, true, false]);
        let f = module.main();
        let ops = found.iter().map(|r| f.nodes[f.def_node(r.from).unwrap_or(f.blocks[f.body].nodes[0])].op.name());
        assert_eq!(ops.collect::<Vec<_>>(), ["div", "cast", "const"], "what is rounded");
    }
}
