//! Searches on tables.

use super::Asked;
use super::subjects::{measurer, tables};
use super::table::{Measured, Table};
use compiler::schedule::ScheduleTarget;
use compiler::schedule::rules::{Choice, values};
use rand::SeedableRng;
use rand::seq::index::sample;
use rand_chacha::ChaCha8Rng;
use runtime_gpu::Standing;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weft::calibration::{Sample, Samples};
use workbench::document::Document;
use workbench::executor::scheduling;
use workbench::tune::candidate::Candidate;
use workbench::tune::candidates::Maker;
use workbench::tune::search::Search;
use workbench::tune::space::{Opened, Racing, Space, Watching};
use workbench::tune::units::Unit;
use workbench::{Code, Error, Result};

/// Draws of random schedules, over which their loss is averaged.
const DRAWS: u64 = 200;
/// A pick agrees with another one if its time is at most this multiple.
const AGREES: f64 = 1.03;
/// Candidates that a table calls near.
const NEAR: usize = 16;

/// The schedules of a table that still apply.
struct Listed<'t> {
    table: &'t Table,
    /// With the row of each; the first is the default.
    all: Vec<(usize, Candidate)>,
}

impl<'t> Listed<'t> {
    fn of(table: &'t Table, unit: &Unit, target: ScheduleTarget<'_>) -> Result<Listed<'t>> {
        let maker = Maker::new(target, unit, &[]);
        let mut all = Vec::new();
        for (n, row) in table.rows.iter().enumerate() {
            let choices = row.parse().map_err(Error::input)?;
            all.extend(maker.of_choices(&choices).map(|c| (n, c)));
        }
        match all.first() {
            Some((0, _)) => Ok(Listed { table, all }),
            _ => Err(Error::input(format!("{}: its default does not apply", table.shape))),
        }
    }
    fn row(&self, c: &Candidate) -> Option<usize> {
        self.all.iter().find(|(_, own)| own.key() == c.key()).map(|found| found.0)
    }
    /// The ratio of a candidate; 1 for one that does not count.
    fn ratio(&self, c: &Candidate) -> f64 {
        self.row(c).and_then(|n| self.table.rows[n].measured.counted()).unwrap_or(1.0)
    }
}

/// Choices that two candidates do not share.
fn distance(a: &Candidate, b: &Candidate) -> usize {
    let words = |c: &Candidate| values(&c.trace).iter().map(Choice::to_string).collect::<BTreeSet<_>>();
    words(a).symmetric_difference(&words(b)).count()
}

impl Space for Listed<'_> {
    fn default(&self) -> Result<Candidate> {
        Ok(self.all[0].1.clone())
    }
    /// From the default all are near.
    fn around(&self, c: &Candidate) -> Vec<Candidate> {
        let mut all: Vec<&Candidate> = self.all[1..].iter().map(|own| &own.1).collect();
        if c.key() != self.all[0].1.key() {
            all.sort_by_key(|other| distance(c, other));
            all.truncate(NEAR);
        }
        all.into_iter().cloned().collect()
    }
    fn by(&self, _: &Candidate) -> String {
        "oracle".into()
    }
}

/// Times of a table in place of a device.
struct Recorded<'t>(&'t Listed<'t>);

impl Racing for Recorded<'_> {
    fn open_default(&mut self, c: &Candidate) -> Result<Result<Opened, String>> {
        self.open(c)
    }
    fn open(&mut self, c: &Candidate) -> Result<Result<Opened, String>> {
        let row = self.0.row(c).ok_or_else(|| Error::new(Code::Bug, "a schedule that the table has not"))?;
        Ok(match &self.0.table.rows[row].measured {
            Measured::Times { .. } => Ok(Opened::recorded(row)),
            Measured::Refused { why } => Err(why.clone()),
        })
    }
    fn keep(&mut self, _: &[&Opened]) {}
    fn race(&mut self, list: &[&Opened], rounds: usize, _: u64) -> Result<Vec<Standing>> {
        let of = |o: &&Opened| match self.0.table.rows[o.id].measured {
            Measured::Times { ratio, wall } => [ratio, wall],
            Measured::Refused { .. } => [f64::INFINITY; 2],
        };
        let all: Vec<[f64; 2]> = list.iter().map(of).collect();
        let standing = |[ratio, wall]: &[f64; 2]| Standing {
            ratios: vec![ratio / all[0][0]; rounds],
            ns: vec![ratio * self.0.table.us * 1e3; rounds],
            wall_ns: vec![wall * self.0.table.us * 1e3; rounds],
            wall_ratios: vec![wall / all[0][1]; rounds],
        };
        Ok(all.iter().map(standing).collect())
    }
}

struct Nobody;

impl Watching for Nobody {
    fn ran(&mut self, _: usize, _: usize) -> bool {
        false
    }
    fn raced(&mut self, _: &Candidate, _: &Standing) -> Result<()> {
        Ok(())
    }
    fn refused(&mut self, _: &Candidate, _: &str) -> Result<()> {
        Ok(())
    }
}

/// The ratio of what a search of `most` candidates takes.
fn searched(racing: &mut dyn Racing, space: &Listed<'_>, (most, seed): (usize, u64)) -> Result<f64> {
    let mut nobody = Nobody;
    let mut search = Search::new(racing, space, &mut nobody, seed);
    search.most = most;
    let found = search.run(vec![], Instant::now() + Duration::from_secs(3600))?;
    Ok(found.winner().map_or(1.0, |c| space.ratio(c)))
}

/// The geometric mean of how many times the best's the time of the fastest of the default and random schedules is.
fn random(space: &Listed<'_>, most: usize) -> f64 {
    let counted: Vec<f64> = space.all[1..].iter().map(|c| space.ratio(&c.1)).collect();
    let mut sum = 0.0;
    for seed in 0..DRAWS {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let drawn = sample(&mut random, counted.len(), (most - 1).min(counted.len()));
        sum += drawn.into_iter().map(|n| counted[n]).fold(1.0, f64::min).ln();
    }
    (sum / DRAWS as f64).exp() / space.table.best()
}

fn geometric_mean(list: impl IntoIterator<Item = f64>) -> f64 {
    let all: Vec<f64> = list.into_iter().map(f64::ln).collect();
    (all.iter().sum::<f64>() / all.len().max(1) as f64).exp()
}

/// Runs searches on tables: how far their picks are from the best, beside the default and random schedules.
///
/// # Errors
/// A file that cannot be read; schedules that no longer apply.
pub fn searches(a: &Asked) -> Result<()> {
    let scheduling = scheduling(&a.settings);
    let mut rows: Vec<Value> = Vec::new();
    for (t, unit) in &tables(a)? {
        let space = Listed::of(t, unit, scheduling.on(&t.profile))?;
        let all = (0..a.seeds).map(|seed| searched(&mut Recorded(&space), &space, (a.most, seed)));
        let own = geometric_mean(all.collect::<Result<Vec<f64>>>()?) / t.best();
        rows.push(json!({ "shape": t.shape, "schedules": space.all.len(), "reached": t.reached,
            "best": t.best(), "default": 1.0 / t.best(), "search": own, "random": random(&space, a.most) }));
    }
    let mean = |field: &str| geometric_mean(rows.iter().filter_map(|r| r[field].as_f64()));
    let [default, search, random] = ["default", "search", "random"].map(mean);
    let found = json!({ "most": a.most, "shapes": rows, "default": default, "search": search, "random": random });
    let mut cells: Vec<Vec<String>> = Vec::new();
    for r in &rows {
        let number = |field: &str| format!("{:.3}", r[field].as_f64().unwrap_or(0.0));
        let name = r["shape"].as_str().unwrap_or_default().to_string();
        cells.push(vec![
            name,
            r["schedules"].to_string(),
            number("best"),
            number("default"),
            number("search"),
            number("random"),
        ]);
    }
    let mean = [format!("{default:.3}"), format!("{search:.3}"), format!("{random:.3}")];
    cells.push(["geometric mean".to_string(), String::new(), String::new()].into_iter().chain(mean).collect());
    let mut out = Document::default();
    out.table(&["shape", "schedules", "best", "default", "search", "random"], cells);
    a.show(&found, &out);
    Ok(())
}

/// Calibrates the estimate by tables, and prints how it ranks the schedules of each shape: without factors, and with
/// factors that have not seen the shape.
///
/// # Errors
/// A file that cannot be read; too few shapes.
pub fn calibrate(a: &Asked) -> Result<()> {
    let scheduling = scheduling(&a.settings);
    let mut samples = Samples::new();
    for (t, unit) in &tables(a)? {
        let space = Listed::of(t, unit, scheduling.on(&t.profile))?;
        let of = |(row, c): &(usize, Candidate)| match t.rows[*row].measured {
            Measured::Times { ratio, .. } => Some(Sample { cost: c.plain?, ns: ratio * t.us * 1e3 }),
            Measured::Refused { .. } => None,
        };
        samples.insert(t.shape.clone(), space.all.iter().filter_map(of).collect());
    }
    let found = weft::calibration::calibrate(&samples).map_err(Error::input)?;
    let [before, after] = found.mean_ranks();
    let row = |s: &Sample| json!({ "estimate": s.cost, "ns": s.ns });
    let rows: BTreeMap<&String, Vec<Value>> = samples.iter().map(|(f, s)| (f, s.iter().map(row).collect())).collect();
    let value = json!({ "factors": found.factors, "shapes": found.ranks, "before": before, "after": after,
        "schedules": rows });
    let of_shape = |(shape, [before, after]): (&String, &[f64; 2])| {
        vec![shape.clone(), samples[shape].len().to_string(), format!("{before:.3}"), format!("{after:.3}")]
    };
    let mut cells: Vec<Vec<String>> = found.ranks.iter().map(of_shape).collect();
    cells.push(vec!["mean".to_string(), String::new(), format!("{before:.3}"), format!("{after:.3}")]);
    let mut out = Document::default();
    out.table(&["shape", "schedules", "rank correlation", "calibrated"], cells);
    out.say(format!("{:?}", found.factors));
    a.show(&value, &out);
    Ok(())
}

/// Runs searches by measuring, on the schedules of tables, and compares their picks with those of the tables.
///
/// # Errors
/// As [`searches`]; no device that computes.
pub fn picks(a: &Asked) -> Result<()> {
    let scheduling = scheduling(&a.settings);
    let mut measurer = measurer(a);
    let mut rows: Vec<Value> = Vec::new();
    for (t, unit) in &tables(a)? {
        let space = Listed::of(t, unit, scheduling.on(&t.profile))?;
        let quiet = searched(&mut Recorded(&space), &space, (a.most, a.settings.seed))?;
        measurer.take(&unit.function, &unit.positions)?;
        let now = searched(&mut measurer, &space, (a.most, a.settings.seed))?;
        workbench::progress::log(&a.settings, format!("oracle: {}: {now:.3}, by the table {quiet:.3}", t.shape));
        rows.push(json!({ "shape": t.shape, "now": now, "table": quiet }));
    }
    let agrees = |r: &&Value| r["now"].as_f64() <= r["table"].as_f64().map(|q| q * AGREES);
    let found = json!({ "agree": rows.iter().filter(agrees).count(), "shapes": rows });
    let said = format!("{} of {} picks agree within {AGREES}", found["agree"], rows.len());
    let mut out = Document::default();
    out.say(said);
    a.show(&found, &out);
    Ok(())
}
