//! What fusion left on the table: results that are written and read again, with what stands in the way and what one
//! kernel would gain by the estimate.

use super::model::{Modeller, Question};
use super::table::{Cell, show as table};
use crate::state::Viewer;
use crate::units::{beginning, layer_name, mega, milliseconds};
use compiler::trace::{CompileTrace, RoundTrip};
use egui::{Color32, Ui};
use graphview::left::{Trips, alike};

const GOOD: Color32 = Color32::from_rgb(40, 150, 70);
/// Characters of a name.
const NAME: usize = 30;
/// Characters of a reason in the table; all of it stands above for the chosen row.
const REASON: usize = 90;

/// Draws the page.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer) {
    let (document, ctx) = (v.document().clone(), ui.ctx().clone());
    let asked = document.clone();
    let modeller = v.pages.modeller.get_or_insert_with(|| Modeller::start(asked, move || ctx.request_repaint()));
    let Some(model) = modeller.get(&Question::RoundTrips) else {
        ui.spinner();
        return;
    };
    let trips = match &model.round_trips {
        Some(Ok(trips)) => trips,
        Some(Err(why)) => {
            ui.label(why);
            return;
        }
        None => return,
    };
    if trips.is_empty() {
        ui.label("No result goes from kernel to kernel through memory.");
        return;
    }
    let t = document.trace();
    let mut rows = alike(t, trips);
    // What could be gained first, then the most bytes.
    rows.sort_by_key(|r| !r.gains());
    summary(ui, trips);
    let chosen = v.pages.trip.and_then(|g| rows.iter().find(|r| r.all.iter().any(|x| x.from == g)));
    ui.add_space(6.0);
    match chosen {
        Some(r) => reasons(ui, t, r),
        None => {
            ui.weak("A click on a row shows why, and marks both sides in the graph.");
        }
    }
    ui.add_space(6.0);
    let cells: Vec<Vec<Cell>> = rows.iter().map(|r| row(t, r)).collect();
    let heads = ["gain", "bytes", "the trips", "computed again", "times", "result of", "read by", "type", "why"];
    let trip = v.pages.trip;
    let marked = |i: usize| trip.is_some_and(|g| rows[i].all.iter().any(|x| x.from == g));
    let clicked = table(ui, "left", &heads, &cells, &mut v.pages.trips, &marked);
    if let Some(i) = clicked {
        let first = rows[i].all[0];
        let both = std::iter::once(first.from).chain(first.readers.iter().copied());
        let nodes: Vec<String> = both.flat_map(|g| t.groups[g].origins.iter().cloned()).collect();
        v.pages.trip = Some(first.from);
        v.select(nodes);
    }
}

/// What all of them are together.
fn summary(ui: &mut Ui, trips: &[RoundTrip]) {
    let bytes = trips.iter().map(|r| r.bytes).sum();
    let gains: Vec<f64> = trips.iter().filter_map(RoundTrip::gain_ns).filter(|g| *g > 0.0).collect();
    ui.label(format!(
        "{} results go from kernel to kernel through memory: {} written and read again.",
        trips.len(),
        mega(bytes)
    ));
    ui.label(match gains.len() {
        0 => {
            "By the estimate none of them would gain anything in one kernel: computing the result again for each read \
              costs more than the trip."
                .to_string()
        }
        n => format!(
            "By the estimate {n} of them would gain something, were both one kernel that is as fast in all else: {} at \
             most. For the others, computing the result again for each read costs more than the trip.",
            milliseconds(gains.iter().sum::<f64>() / 1e6)
        ),
    });
}

/// Why the results of a row are not computed where they are read.
fn reasons(ui: &mut Ui, t: &CompileTrace, r: &Trips<'_>) {
    let first = r.all[0];
    let readers: Vec<&str> = first.readers.iter().map(|&g| t.groups[g].label.as_str()).collect();
    ui.strong(format!("{}, read by {}", t.groups[first.from].label, readers.join(", ")));
    if first.why.is_empty() {
        ui.label("No rule of fusion joins them.");
    }
    first.why.iter().for_each(|why| {
        ui.label(why);
    });
}

fn row(t: &CompileTrace, r: &Trips<'_>) -> Vec<Cell> {
    let first = r.all[0];
    let name = |g: usize| layer_name(&t.groups[g].label, NAME);
    let more = first.readers.len().saturating_sub(1);
    let reader = first.readers.first().map_or(String::new(), |&g| name(g));
    let read_by = if more > 0 { format!("{reader} and {more} more") } else { reader };
    let gain = r.milliseconds(RoundTrip::gain_ns);
    let gain = match gain {
        Some(ms) if ms <= 0.0 => Cell::number(gain, |_| "none".into()),
        _ => Cell::number(gain, milliseconds).coloured(Some(GOOD)),
    };
    let why = first.why.first().map_or("no rule joins them", String::as_str);
    vec![
        gain,
        Cell::number(Some(r.bytes as f64), |_| mega(r.bytes)),
        Cell::number(r.milliseconds(|x| Some(x.moving_ns)), milliseconds),
        Cell::number(r.milliseconds(|x| x.again_ns), milliseconds),
        Cell::number(Some(r.all.len() as f64), |n| format!("{n:.0}")),
        Cell::text(name(first.from)),
        Cell::text(read_by),
        Cell::text(&first.ty),
        Cell::text(beginning(why, REASON)),
    ]
}
