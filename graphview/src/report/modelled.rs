//! What the estimate says: the cost of each kernel by part, of each other choice of its schedule, of results that go
//! through memory, and of keeping groups in f32.
//!
//! A trace that has no stages, or is for a device that this version does not know, has none of it.

use crate::reasons::{Roofs, ceilings_of, doubt};
use compiler::schedule::estimate::Cost;
use compiler::schedule::rules::{Alternative, Choice};
use compiler::trace::{CompileTrace, RoundTrip, Stored};
use serde_json::{Map, Value, json};

/// For each kernel its estimate; null where there is none.
pub(super) fn estimates(t: &CompileTrace) -> Vec<Value> {
    let found = t.estimates().unwrap_or_default();
    let one = |i: usize| {
        let Some(e) = found.get(i).and_then(Option::as_ref) else { return Value::Null };
        let mut v = cost(&e.cost);
        v["workgroups"] = e.workgroups.into();
        v["threads"] = e.threads.into();
        v
    };
    (0..t.kernels.len()).map(one).collect()
}

/// A cost in microseconds, with its parts.
fn cost(c: &Cost) -> Value {
    let parts: Map<String, Value> =
        c.parts().iter().map(|(name, ns)| (name.replace(' ', "_"), json!(ns / 1e3))).collect();
    json!({ "us": c.total() / 1e3, "bound": c.bound(), "parts_us": parts, "hidden_us": c.hidden / 1e3 })
}

/// The schedule of each tensor function, and what each other choice is estimated to cost.
pub(super) fn schedules(t: &CompileTrace) -> Vec<Value> {
    let one = |(function, list): &(String, Vec<Alternative>)| {
        let (own, others) = list.split_first()?;
        let choices: Vec<String> = own.choices.iter().map(Choice::to_string).collect();
        let others: Vec<Value> = others.iter().map(alternative).collect();
        Some(
            json!({ "function": function, "choices": choices, "us": own.total().map(|ns| ns / 1e3), "others": others }),
        )
    };
    t.all_alternatives().unwrap_or_default().iter().filter_map(one).collect()
}

fn alternative(a: &Alternative) -> Value {
    let refused = a.estimate.as_ref().err().and_then(|why| why.lines().next());
    let cost = a.estimate.as_ref().ok().map(|e| e.cost);
    json!({ "choice": a.choice.as_ref().map(Choice::to_string).unwrap_or_default(),
            "us": cost.map(|c| c.total() / 1e3), "bound": cost.map(|c| c.bound()), "refused": refused })
}

/// Results that go from kernel to kernel through memory, the most bytes first.
pub(super) fn left(t: &CompileTrace) -> Vec<Value> {
    let one = |r: &RoundTrip| {
        json!({ "from": r.from, "to": r.readers, "type": r.ty, "bytes": r.bytes, "reads": r.reads,
                "moving_ms": r.moving_ns / 1e6, "again_ms": r.again_ns.map(|ns| ns / 1e6),
                "gain_ms": r.gain_ns().map(|ns| ns / 1e6), "why": r.why })
    };
    t.round_trips().unwrap_or_default().iter().map(one).collect()
}

/// What each group stores.
pub(super) fn stored(t: &CompileTrace) -> Vec<Stored> {
    let mut known = t.stored().unwrap_or_default();
    known.resize(t.groups.len(), Stored::default());
    known
}

/// The rates that no kernel exceeds: measured ones, else those that the device is known for.
pub(super) fn roofs(t: &CompileTrace) -> Value {
    let r = Roofs::of(t);
    let from = if r.measured { "measured" } else { "profile" };
    let taken = ceilings_of(t).map(|c| c.taken.words());
    let (f32_gflops, matrix_gflops, gb_s) = (r.f32_gflops, r.matrix_gflops, r.gb_s);
    let doubt = doubt(t);
    json!({ "from": from, "taken": taken, "doubt": doubt, "f32_gflops": f32_gflops, "matrix_gflops": matrix_gflops, "gb_s": gb_s })
}
