//! Layouts, fusion and algorithms by measured times. The network is compiled in its first form, with other layouts and
//! with other fusion; the times of its functions go into the database. With these times the passes decide again
//! ([`compiler::cost::CostModel::function`]) until their decisions stay the same. Functions that a pass asks about and
//! that have no time are measured alone in between. The first form runs between all measurements, as a reference for
//! the machine's present speed. In the end the first form and the last one are raced in fresh processes; if the last
//! one is slower, the times are withdrawn.

use super::measurer::Measurer;
use super::network::{self, Sides};
use super::record::{GraphRecord, PlanFunction, PlanRecord};
use super::request::Request;
use super::runs::{Control, Runs};
use super::space::Racing;
use super::units::{Timed, timed};
use crate::error::{Error, Result};
use crate::executor::{Device, execute, profile_on};
use crate::figures::few_ms;
use crate::progress::{Progress, go_on, log};
use crate::settings::Settings;
use crate::settings::Times;
use crate::worker::Setup;
use compiler::compile::{AskedFunction, KernelTimes, operand_buffers};
use compiler::graph::Module;
use compiler::schedule::{Rules, ScheduleProvider, ScheduleTarget};
use compiler::tensor::Tensor;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weft::{FunctionLine, TuningDatabase};

/// Decisions of the passes, at most.
const ROUNDS: usize = 3;
/// A function that a pass asked about is measured if its estimate is at least this share of the network's time, or if
/// its expected gain ([`AskedFunction::gain_ns`]) is at least the second share.
const LEAST_SHARE: f64 = 0.01;
const LEAST_GAIN: f64 = 0.0005;
/// Rounds of the race that times a function.
const SAMPLES: usize = 5;

/// A network to decide about.
pub struct Subject<'a> {
    /// The network.
    pub module: &'a Module,
    /// Its inputs.
    pub inputs: &'a [Tensor],
    /// Where.
    pub device: &'a Device,
    /// Path or zoo name.
    pub model: &'a str,
    /// The tuning database.
    pub file: &'a Path,
    /// The device, and what its rules are asked.
    pub target: ScheduleTarget<'a>,
}

/// One way to compile a network, with the times of its functions.
struct Plan {
    name: String,
    /// The forms of its functions with the number of calls, and their names.
    forms: BTreeMap<(String, usize), String>,
    us: f64,
}

impl Plan {
    fn record(&self) -> PlanRecord {
        PlanRecord { name: self.name.clone(), functions: self.forms.len(), us: self.us }
    }
    fn is(&self, other: &Plan) -> bool {
        self.forms.keys().eq(other.forms.keys())
    }
    /// Its functions that the other does not have.
    fn beyond(&self, other: &Plan) -> Vec<PlanFunction> {
        let own = self.forms.iter().filter(|f| !other.forms.contains_key(f.0));
        let function = |((form, calls), name): (&(String, usize), &String)| PlanFunction {
            name: name.clone(),
            form: form.clone(),
            calls: *calls,
        };
        own.map(function).collect()
    }
}

/// Times plans. The control is the network in its first form; `added` are the lines that were appended to the file.
struct Timing<'e> {
    control: Control<'e>,
    added: Vec<FunctionLine>,
}

/// Measures other layouts and other fusion until `until`, decides again, and judges the decisions.
///
/// # Errors
/// Files that cannot be written; a network that does not compile as it is.
pub fn decide(a: &Request, s: &Subject<'_>, until: Instant) -> Result<GraphRecord> {
    let (plans, added) = measure_plans(a, s, until)?;
    let (first, last) = (&plans[0], &plans[plans.len() - 1]);
    let changed = !first.is(last);
    let plans = plans.iter().map(Plan::record).collect();
    if !changed {
        return Ok(GraphRecord { plans, changed, functions: None, network: None });
    }
    let functions = Some([first.beyond(last), last.beyond(first)]);
    let all = TuningDatabase::read_for(s.file, &[&s.target.profile.identity()]).map_err(Error::input)?;
    let before =
        TuningDatabase { functions: all.functions.iter().filter(|l| !added.contains(*l)).cloned().collect(), ..all };
    let found = network::compare(a, s.model, &Sides { before: &before, after: s.file });
    if !found.as_ref().is_ok_and(|found| found.kept) {
        log(&a.settings, "tune: the decisions by measured times are withdrawn");
        for line in &added {
            let withdrawn = FunctionLine { withdrawn: true, ..line.clone() };
            TuningDatabase::append(s.file, &withdrawn).map_err(Error::usage)?;
        }
    }
    Ok(GraphRecord { plans, changed, functions, network: Some(found?) })
}

/// Times the network in its first form, with other layouts and fusion until `until`, and as measured times decide.
/// Returns the plans, the last of which was decided by times, and the lines that were appended to the file.
fn measure_plans(a: &Request, s: &Subject<'_>, until: Instant) -> Result<(Vec<Plan>, Vec<FunctionLine>)> {
    let mut settings = a.settings.clone();
    crate::tuning::provide(&mut settings, true)?;
    let network = execute(s.module.clone(), &settings, s.device, s.inputs)?.sized_for(s.inputs)?;
    let mut timing = Timing { control: Control::new(&network, &settings, s.inputs)?, added: vec![] };
    let as_is = timed(&network, &profile_on(&settings, s.device)?, timing.control.runs())?;
    let mut plans = vec![timing.plan(s, "as decided", as_is)?];
    let ways: [(&str, fn(&mut Settings)); 3] = [
        ("layout nchw", |c| c.layout = "nchw".into()),
        ("layout nhwc", |c| c.layout = "nhwc".into()),
        ("fuse classic", |c| c.fuse = "classic".into()),
    ];
    let free = |name: &str| match name.split(' ').next() {
        Some("layout") => a.settings.layout == "auto",
        _ => a.settings.fuse == "full",
    };
    let mut progress = Progress::new(&a.settings, &[]);
    let ways: Vec<_> = ways.into_iter().filter(|w| free(w.0)).collect();
    for (n, (name, way)) in ways.iter().enumerate() {
        if Instant::now() >= until {
            break;
        }
        go_on(&a.settings)?;
        progress.report(&format!("tune: the network with {name}"), n, ways.len());
        match timing.measure(a, s, (name, way)) {
            Ok(plan) => plans.push(plan),
            Err(e) => log(&a.settings, format!("tune: {name} is left out: {}", e.message)),
        }
    }
    drop(progress);
    for round in 1..=ROUNDS {
        let known =
            TuningDatabase::read_for(s.file, &[&s.target.profile.identity()]).map_err(Error::input)?.measurements();
        let times = Arc::new(KernelTimes::new(known).recording());
        let by_times = |c: &mut Settings| c.times = Times(Some(times.clone()));
        let decided = timing.measure(a, s, (&format!("decided by times, round {round}"), &by_times))?;
        let asked = timing.measure_asked(a, s, (&times, decided.us), until)?;
        let same = plans.last().is_some_and(|last| last.is(&decided));
        plans.push(decided);
        if same && asked == 0 {
            break;
        }
    }
    Ok((plans, timing.added))
}

impl Timing<'_> {
    /// Times the functions that passes asked about, in the order of their expected gain. Returns their number.
    fn measure_asked(
        &mut self,
        a: &Request,
        s: &Subject<'_>,
        (times, network_us): (&KernelTimes, f64),
        until: Instant,
    ) -> Result<usize> {
        let mut asked: Vec<(String, AskedFunction)> = times.unmeasured().into_iter().collect();
        let share = |ns: f64| ns / 1e3 / network_us;
        let matters = |f: &AskedFunction| share(f.estimated_ns) >= LEAST_SHARE || share(f.gain_ns) >= LEAST_GAIN;
        asked.retain(|(_, f)| matters(f) && share(f.estimated_ns) < 1.0 && f.function.symbols.is_empty());
        let dearer = |a: &AskedFunction, b: &AskedFunction| b.estimated_ns.total_cmp(&a.estimated_ns);
        asked.sort_by(|a, b| b.1.gain_ns.total_cmp(&a.1.gain_ns).then_with(|| dearer(&a.1, &b.1)));
        let mut progress = Progress::new(&a.settings, &[]);
        let (all, mut count) = (asked.len(), 0);
        let mut measurer = Measurer::new(Setup::of(&a.settings, &a.input));
        for (n, (form, f)) in asked.into_iter().enumerate() {
            if Instant::now() >= until {
                break;
            }
            go_on(&a.settings)?;
            progress.report("tune: functions that passes ask about", n, all);
            let constants = operand_buffers(&f.function, &f.constants);
            let Ok(scheduled) = Rules.schedule(&f.function, &constants, s.target) else { continue };
            let timed = measurer.take(&f.function, &f.constants).and_then(|()| {
                let Ok(opened) = measurer.open_first(&scheduled.function.trace)? else { return Ok(None) };
                let before = self.control.pace()?;
                let standings = measurer.race(&[&opened], SAMPLES, a.settings.seed)?;
                let pace = f64::midpoint(before, self.control.pace()?);
                Ok(standings.first().map(|st| st.median_elapsed(s.target.profile) / 1e3 * pace))
            });
            match timed {
                Ok(Some(us)) => {
                    let (device, name) = (s.target.profile.identity(), f.function.name.to_string());
                    let weft = env!("CARGO_PKG_VERSION").into();
                    let line = FunctionLine { device, form, name, us, withdrawn: false, weft };
                    TuningDatabase::append(s.file, &line).map_err(Error::usage)?;
                    self.added.push(line);
                    count += 1;
                }
                Ok(None) => {}
                Err(e) => {
                    log(&a.settings, format!("tune: a function that passes ask about is left out: {}", e.message))
                }
            }
        }
        Ok(count)
    }

    /// Compiles the network in one way and times its functions.
    fn measure(&mut self, a: &Request, s: &Subject<'_>, (name, way): (&str, &dyn Fn(&mut Settings))) -> Result<Plan> {
        let mut settings = a.settings.clone();
        crate::tuning::provide(&mut settings, true)?;
        way(&mut settings);
        let executor = execute(s.module.clone(), &settings, s.device, s.inputs)?.sized_for(s.inputs)?;
        let runs: Runs = self.control.beside(&executor, &settings, s.inputs)?;
        let list = timed(&executor, &profile_on(&settings, s.device)?, &runs)?;
        self.plan(s, name, list)
    }

    /// Makes a plan and appends the times of its functions. A form is written once in a search: if each plan could
    /// lower its time, forms that occur in many plans would get smaller times than others.
    fn plan(&mut self, s: &Subject<'_>, name: &str, list: Vec<Timed>) -> Result<Plan> {
        let known = TuningDatabase::read_for(s.file, &[&s.target.profile.identity()]).map_err(Error::input)?;
        let mut plan = Plan { name: name.into(), forms: BTreeMap::new(), us: 0.0 };
        for Timed { line, calls } in list {
            plan.us += line.us * calls as f64;
            plan.forms.insert((line.form.clone(), calls), line.name.clone());
            let same = |l: &&FunctionLine| !l.withdrawn && (&l.device, &l.form) == (&line.device, &line.form);
            let is_new = !self.added.iter().any(|l| l.form == line.form);
            if is_new && known.functions.iter().filter(same).all(|l| line.us < l.us) {
                TuningDatabase::append(s.file, &line).map_err(Error::usage)?;
                self.added.push(line);
            }
        }
        Ok(plan)
    }
}

/// In words.
pub fn describe(model: &str, found: Option<&GraphRecord>) -> Vec<String> {
    let Some(found) = found else { return vec![] };
    let plan = |p: &PlanRecord| match p.us > 0.0 {
        true => format!("{} {} ms", p.name, few_ms(p.us / 1e3)),
        false => format!("{} (no function of it was timed)", p.name),
    };
    let list: Vec<String> = found.plans.iter().map(plan).collect();
    let outcome = match found.changed {
        true => network::describe(&format!("{model}, decided by times,"), found.network.as_ref()),
        false => "graph: measured times change no layout, no fusion and no algorithm".into(),
    };
    vec![format!("graph: {}", list.join(", ")), outcome]
}
