//! One kernel: the choices of its schedule, and the estimated costs of their other values.

use super::explained::{Explained, NotExplained, Record, Result};
use super::record::{AlternativeRecord, ChoiceRecord, EstimateRecord, KernelExplained, MeasuredKernel};
use super::relations::Relations;
use crate::document::Document;
use crate::names;
use crate::reasons::ceilings_of;
use compiler::schedule::estimate::Estimate;
use compiler::schedule::rules::{Alternative, Choice};
use compiler::text::print_value;
use compiler::trace::{Call, CompileTrace};

/// Explains the kernel `name`.
///
/// # Errors
/// When there is no such kernel, or the compilation does not say how it was scheduled.
pub fn explain(r: &Relations<'_>, name: &str) -> Result<Explained> {
    let file = |i: usize| r.t.kernels[i].file(i);
    // Kernels of one layer are of one tensor function, and so are their choices.
    let layer = |i: &usize| r.t.kernels[*i].name.split_once('/').is_some_and(|(layer, _)| layer == name);
    let all = 0..r.t.kernels.len();
    let found =
        all.clone().find(|&i| r.t.kernels[i].name == name || file(i) == name).or_else(|| all.clone().find(layer));
    let Some(kernel) = found else { return Err(unknown(r.t, name)) };
    let list = r.t.alternatives(kernel)?;
    let (mut out, measured) = (Document::default(), measured(r.t, kernel));
    let k = &r.t.kernels[kernel];
    let of: Vec<String> = k.groups.iter().map(|&g| format!("group {g} ({})", r.group(g).ops.join(" + "))).collect();
    out.say(format!("{} of {} for {}, in {}", k.name, k.function, r.t.profile_name, of.join(", ")));
    if !k.when.is_empty() {
        out.say(format!("runs where {}", k.when.join(" and ")));
    }
    let stats = r.t.stats_record();
    stats.iter().for_each(|s| crate::driver_table::tell(&mut out, s, |k| k == kernel));
    if let Some(m) = &measured {
        out.say(line(m, r.t, kernel));
    }
    if let Some((own, others)) = list.split_first() {
        tell(&mut out, own, others);
    }
    let record = KernelExplained {
        model: r.t.model.clone(),
        kernel: k.name.clone(),
        kernel_id: kernel,
        profile: r.t.profile_name.clone(),
        measured,
        picked: list.first().map(alternative),
        alternatives: list.iter().skip(1).map(alternative).collect(),
        driver_stats: stats.map(|mut s| s.kernels.swap_remove(kernel).executables),
    };
    Ok(Explained::new(Record::Kernel(Box::new(record)), out))
}

/// The choices of the schedule and of others.
fn tell(out: &mut Document, own: &Alternative, others: &[Alternative]) {
    let choices: Vec<String> = own.choices.iter().map(Choice::to_string).collect();
    out.say(format!("made with {}", if choices.is_empty() { "no choices".into() } else { choices.join(", ") }));
    out.say(format!("  {}", cost_line(own)));
    let scheduled: Vec<&Alternative> = others.iter().filter(|o| o.total().is_some()).collect();
    if let Some(lead) = own.total().zip(scheduled.first()).and_then(|(t, o)| Some((t, o.total()?))) {
        out.say(lead_line(lead));
    }
    out.say(format!("\n{} other schedules, one choice changed in each, the cheapest first", scheduled.len()));
    for o in &scheduled {
        let ratio = own.total().zip(o.total()).map_or(String::new(), |(a, b)| format!("{:5.2}x ", b / a));
        let choice = o.choice.as_ref().map_or(String::new(), Choice::to_string);
        out.say(format!("  {ratio} {choice}: {}", cost_line(o)));
    }
    let refused: Vec<&Alternative> = others.iter().filter(|o| o.total().is_none()).collect();
    if !refused.is_empty() {
        out.say("\nNot possible");
    }
    for o in refused {
        let why = o.estimate.as_ref().err().map_or("", String::as_str);
        out.say(format!(
            "  {}: {}",
            o.choice.as_ref().map_or(String::new(), Choice::to_string),
            why.lines().next().unwrap_or("")
        ));
    }
}

fn measured(t: &CompileTrace, kernel: usize) -> Option<MeasuredKernel> {
    let own: Vec<&Call> = t.calls().filter(|c| c.kernel == kernel).collect();
    let us = t.time_of_kernel(kernel)?.us.max(1e-3);
    let rate = |of: fn(&Call) -> u64| own.iter().map(|c| of(c) as f64).sum::<f64>() / us / 1e3;
    let (gflops, gb_s) = (rate(|c| c.flops), rate(|c| c.bytes));
    let roofline_fraction = ceilings_of(t).map(|c| c.fraction(gflops, gb_s));
    let dispatches = t.dispatches_of_kernel(kernel) as usize;
    Some(MeasuredKernel { us: us / dispatches as f64, dispatches, gflops, gb_s, roofline_fraction })
}

fn line(m: &MeasuredKernel, t: &CompileTrace, kernel: usize) -> String {
    let device = t.times.as_ref().map_or("", |m| m.device.as_str());
    let estimate = t.estimates().ok().and_then(|list| list.get(kernel)?.as_ref().map(|e| e.total() / 1e3));
    let times = estimate.map(|e| format!("; the estimate of this kernel is {e:.1} us, {:.2} of that", e / m.us));
    let above = ceilings_of(t).and_then(|c| c.above_roof(m.gflops, m.gb_s)).map(|why| format!("\nit reaches {why}"));
    let share = m.roofline_fraction.map(|s| format!(", {:.1} % of the nearer measured ceiling", 1e2 * s));
    format!(
        "measured on {device}: {:.1} us a dispatch, dispatched {} times; {:.1} GFLOP/s, {:.1} GB/s{}{}",
        m.us,
        m.dispatches,
        m.gflops,
        m.gb_s,
        share.unwrap_or_default(),
        times.unwrap_or_default()
    ) + &above.unwrap_or_default()
}

fn lead_line((own, next): (f64, f64)) -> String {
    let by = (next / own - 1.0) * 1e2;
    match by >= 0.0 {
        true => format!("  the next one is estimated {by:.1} % dearer"),
        false => format!("  one below is estimated {:.1} % cheaper, where the rule expected otherwise", -by),
    }
}

fn cost_line(a: &Alternative) -> String {
    match &a.estimate {
        Ok(e) => format!("{} (bound by {})", e.cost, e.cost.bound()),
        Err(why) => why.clone(),
    }
}

fn choice(c: &Choice) -> ChoiceRecord {
    ChoiceRecord { unit: c.unit.to_string(), point: c.point.to_string(), value: print_value(&c.value) }
}

fn estimate(e: &Estimate) -> EstimateRecord {
    EstimateRecord {
        us: e.total() / 1e3,
        bound: e.cost.bound().to_string(),
        parts_us: e.cost.parts().iter().map(|(name, ns)| (name.replace(' ', "_"), ns / 1e3)).collect(),
        hidden_us: e.cost.hidden / 1e3,
        kernels: e.kernels.len(),
    }
}

fn alternative(a: &Alternative) -> AlternativeRecord {
    AlternativeRecord {
        choice: a.choice.as_ref().map(choice),
        choices: a.choices.iter().map(choice).collect(),
        estimate: a.estimate.as_ref().ok().map(estimate),
        refused: a.estimate.as_ref().err().cloned(),
    }
}

fn unknown(t: &CompileTrace, name: &str) -> NotExplained {
    let known = t.kernels.iter().map(|k| k.name.clone()).collect();
    let help = names::did_you_mean(name, known).unwrap_or("`weft compile MODEL` lists the kernels".into());
    NotExplained::Unknown { why: format!("there is no kernel `{name}`"), help }
}
