//! What fusion left on the table: results that are written and read again, with what stands in the way and what one
//! kernel would gain by the estimate.

use super::model::{Modeller, Question};
use super::table::{Cell, Table};
use crate::once::visit;
use crate::state::Viewer;
use crate::units::{beginning, cut_apart, layer_name, mega, milliseconds};
use crate::words;
use compiler::trace::{CompileTrace, RoundTrip};
use egui::{Color32, Ui};
use graphview::left::{Trips, alike};
use rustc_hash::FxHashMap;

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
    let rows = v.once((), |_| LeftRows::of(t, trips));
    rows.summary.iter().for_each(|said| {
        words::label(ui, said);
    });
    let chosen = v.pages.trip.and_then(|g| rows.row_of.get(&g)).copied();
    ui.add_space(6.0);
    match chosen.map(|i| &rows.rows[i]) {
        Some(r) => {
            ui.strong(&r.title);
            r.why.iter().for_each(|why| {
                words::label(ui, why);
            });
        }
        None => {
            ui.weak("A click on a row shows why, and marks both sides in the graph.");
        }
    }
    ui.add_space(6.0);
    let clicked = rows.table.show(ui, &mut v.pages.trips, &|i| chosen == Some(i));
    if let Some(r) = clicked.map(|i| &rows.rows[i]) {
        let nodes: Vec<String> = r.groups.iter().flat_map(|&g| t.groups[g].origins.iter().cloned()).collect();
        v.pages.trip = r.groups.first().copied();
        v.select(nodes);
    }
}

/// A row, with what stands above the table while it is chosen.
struct LeftRow {
    title: String,
    why: Vec<String>,
    /// The group whose result it is, and its readers.
    groups: Vec<usize>,
}

/// The rows of the page, made once.
pub(crate) struct LeftRows {
    summary: [String; 2],
    rows: Vec<LeftRow>,
    /// The row of each group.
    row_of: FxHashMap<usize, usize>,
    table: Table,
}

impl LeftRows {
    fn of(t: &CompileTrace, trips: &[RoundTrip]) -> LeftRows {
        visit(trips.len());
        let mut all = alike(t, trips);
        // What could be gained first, then the most bytes.
        all.sort_by_key(|r| !r.gains());
        let heads = ["gain", "bytes", "the trips", "computed again", "times", "result of", "read by", "type", "why"];
        let firsts = |of: fn(&RoundTrip) -> usize| -> Vec<String> {
            let labels: Vec<&str> = all.iter().map(|r| t.groups[of(r.all[0])].label.as_str()).collect();
            cut_apart(&labels, NAME, |i, most| layer_name(labels[i], most))
        };
        let (from, to) = (firsts(|r| r.from), firsts(|r| r.readers.first().copied().unwrap_or(r.from)));
        let cells = all.iter().zip(from.iter().zip(&to)).map(|(r, (from, to))| row(t, r, from, to)).collect();
        let rows_of = |(i, r): (usize, &Trips<'_>)| r.all.iter().map(|x| (x.from, i)).collect::<Vec<_>>();
        LeftRows {
            summary: summary(trips),
            row_of: all.iter().enumerate().flat_map(rows_of).collect(),
            rows: all.iter().map(|r| reasons(t, r)).collect(),
            table: Table::new("left", &heads, cells),
        }
    }
}

/// What all of them are together.
fn summary(trips: &[RoundTrip]) -> [String; 2] {
    let bytes = trips.iter().map(|r| r.bytes).sum();
    let gains: Vec<f64> = trips.iter().filter_map(RoundTrip::gain_ns).filter(|g| *g > 0.0).collect();
    let all = format!(
        "{} results go from kernel to kernel through memory: {} written and read again.",
        trips.len(),
        mega(bytes)
    );
    let gain = match gains.len() {
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
    };
    [all, gain]
}

/// Why the results of a row are not computed where they are read.
fn reasons(t: &CompileTrace, r: &Trips<'_>) -> LeftRow {
    let first = r.all[0];
    let readers: Vec<&str> = first.readers.iter().map(|&g| t.groups[g].label.as_str()).collect();
    let none = || vec!["No rule of fusion joins them.".to_string()];
    LeftRow {
        title: format!("{}, read by {}", t.groups[first.from].label, readers.join(", ")),
        why: if first.why.is_empty() { none() } else { first.why.clone() },
        groups: std::iter::once(first.from).chain(first.readers.iter().copied()).collect(),
    }
}

fn row(t: &CompileTrace, r: &Trips<'_>, from: &str, reader: &str) -> Vec<Cell> {
    let first = r.all[0];
    let more = first.readers.len().saturating_sub(1);
    let read_by = if more > 0 { format!("{reader} and {more} more") } else { reader.to_string() };
    let labels: Vec<&str> = first.readers.iter().map(|&g| t.groups[g].label.as_str()).collect();
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
        Cell::text(from).about(&t.groups[first.from].label),
        Cell::text(read_by).about(labels.join("\n")),
        Cell::text(&first.ty),
        Cell::text(beginning(why, REASON)).about(why),
    ]
}
