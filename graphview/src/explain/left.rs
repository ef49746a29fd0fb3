//! What fusion left on the table: results that go from kernel to kernel through memory. Those where one kernel would
//! gain something stand first, then the others by bytes; equal ones, as of equal layers, are one row.

use super::explained::{Explained, Record, Result};
use super::record::{EdgeRecord, LeftExplained};
use super::relations::{Relations, join};
use crate::document::Document;
use crate::figures::si;
use crate::left::{Trips, alike};
use compiler::schedule::estimate::times;
use compiler::trace::RoundTrip;

/// Rows that are shown without `-v`.
const SHOWN: usize = 20;

/// The list.
///
/// # Errors
/// Code 3 for a trace without stages.
pub fn explain(r: &Relations<'_>, verbose: bool) -> Result<Explained> {
    let trips = r.t.round_trips()?;
    let mut out = Document::default();
    let bytes: u64 = trips.iter().map(|t| t.bytes).sum();
    out.say(format!(
        "{} for {}: {} results go from kernel to kernel through memory, {}B written and read again",
        r.t.model,
        r.t.profile_name,
        trips.len(),
        si(bytes as f64)
    ));
    if !trips.is_empty() {
        tell(&mut out, r, &trips, verbose);
    }
    let edges = trips.iter().map(|t| edge(r, t)).collect();
    let record = LeftExplained { model: r.t.model.clone(), profile: r.t.profile_name.clone(), edges };
    Ok(Explained::new(Record::Left(record), out))
}

fn tell(out: &mut Document, r: &Relations<'_>, trips: &[RoundTrip], verbose: bool) {
    let gains: Vec<f64> = trips.iter().filter_map(RoundTrip::gain_ns).filter(|g| *g > 0.0).collect();
    let [gain] = times([gains.iter().sum::<f64>()]);
    out.say(format!(
        "{} of them would gain something, were both one kernel that is as fast in all else: {gain} at most, by the estimate",
        gains.len()
    ));
    let rows = alike(r.t, trips);
    let (gaining, others): (Vec<_>, Vec<_>) = rows.iter().partition(|l| l.gains());
    let shown = if verbose { usize::MAX } else { SHOWN };
    section(out, r, ("One kernel would gain", shown), &gaining);
    section(out, r, ("One kernel would be slower, or what it would gain is not known", shown), &others);
}

fn section(out: &mut Document, r: &Relations<'_>, (title, shown): (&str, usize), rows: &[&Trips<'_>]) {
    if rows.is_empty() {
        return;
    }
    out.say(format!("\n{title}"));
    rows.iter().take(shown).for_each(|l| out.say(row(r, &l.all)));
    if let Some(more @ 1..) = rows.len().checked_sub(shown) {
        out.say(format!("  ... {more} more (-v shows them)"));
    }
}

fn row(r: &Relations<'_>, list: &[&RoundTrip]) -> String {
    let t = list[0];
    let name = |g: usize| format!("{g} ({})", r.group(g).label);
    let readers: Vec<String> = t.readers.iter().map(|&g| name(g)).collect();
    let readers: Vec<&str> = readers.iter().map(String::as_str).collect();
    let times = if list.len() == 1 { String::new() } else { format!("{} times ", list.len()) };
    let such = if list.len() == 1 { "" } else { "such as " };
    let mut text =
        format!("  {times}{}B  {}  {such}{} -> {}", si(t.bytes as f64), t.ty, name(t.from), join(&readers, 4));
    text += &format!("\n    gain: {}", gain(t));
    for why in &t.why {
        text += &format!("\n    {why}");
    }
    if t.why.is_empty() {
        text += "\n    no rule joins them";
    }
    text
}

/// The gain of one kernel, with the parts of the sum.
fn gain(t: &RoundTrip) -> String {
    match (t.again_ns, t.gain_ns()) {
        (Some(again), Some(gain)) if gain > 0.0 && again == 0.0 => {
            let [moving] = times([t.moving_ns]);
            format!("{moving} at most, for the trip")
        }
        (Some(again), Some(gain)) if gain > 0.0 => {
            let [gain, moving, again] = times([gain, t.moving_ns, again]);
            format!("{gain} at most: {moving} for the trip, less {again} to compute it again")
        }
        (Some(again), Some(_)) => {
            let [moving, again] = times([t.moving_ns, again]);
            let reads = t.reads.unwrap_or_default();
            format!("none: the trip takes {moving}, and computing it for each of {reads:.0} reads {again} more")
        }
        _ => {
            let [moving] = times([t.moving_ns]);
            format!("not known; the trip takes {moving}")
        }
    }
}

fn edge(r: &Relations<'_>, t: &RoundTrip) -> EdgeRecord {
    let name = |g: usize| r.group(g).label.clone();
    EdgeRecord {
        from: t.from,
        from_name: name(t.from),
        to: t.readers.clone(),
        to_names: t.readers.iter().map(|&g| name(g)).collect(),
        ty: t.ty.clone(),
        bytes: t.bytes,
        reads: t.reads,
        moving_ms: t.moving_ns / 1e6,
        again_ms: t.again_ns.map(|ns| ns / 1e6),
        gain_ms: t.gain_ns().map(|ns| ns / 1e6),
        why: t.why.clone(),
    }
}
