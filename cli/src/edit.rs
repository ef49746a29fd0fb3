//! `weft edit`: a kernel's schedule in an editor. A saved schedule is checked, verified against the interpreter, and
//! raced with the one before; a line of the tuning database keeps it.

mod editor;

use crate::args::EditArgs;
use crate::output::{print_text, show_table, table, write_json};
use crate::terminal::asks;
use compiler::compile::{Compiled, EditRefused, Edited, compile_edited};
use compiler::name::Name;
use compiler::schedule::{InstrRef, ScheduleTarget};
use compiler::text::print_instruction;
use compiler::tir::print_loops;
use editor::Draft;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;
use weft::{TuningDatabase, TuningLine};
use workbench::device::{DeviceRecord, describe};
use workbench::executor::{Device, compile_options, compile_with, open_device, pipeline_for, profile_on, scheduling};
use workbench::models::{inputs_for, load};
use workbench::progress::log;
use workbench::record::Versioned;
use workbench::tune::by_hand::ByHand;
use workbench::tune::measurer::Measurer;
use workbench::tune::space::{Opened, Racing};
use workbench::tune::units::{Unit, owners};
use workbench::tuning;
use workbench::worker::Setup;
use workbench::{Code, Error, Result};

/// Rounds of the race: as many as fit in this time, within this range.
const ROUNDS: std::ops::RangeInclusive<usize> = 7..=15;
const RACE_MS: f64 = 1500.0;

/// The schedule of a function before, and its measurer.
struct Subject<'a> {
    a: &'a EditArgs,
    unit: Unit,
    before: Vec<InstrRef>,
    target: ScheduleTarget<'a>,
    device: &'a Device,
}

/// A schedule beside the one before.
struct Raced {
    edited: Edited,
    us: [f64; 2],
    ratio: f64,
    rounds: [usize; 2],
    /// Seconds to compile and verify the edited schedule, and of the race.
    seconds: [f64; 2],
}

/// The outcome of an edited schedule.
#[derive(Serialize, JsonSchema)]
pub struct EditedRecord {
    /// The name of the file, or the zoo's.
    model: String,
    /// Where it was measured.
    device: DeviceRecord,
    /// The tensor function.
    function: String,
    /// `unchanged`; or `measured`, with the fields below.
    result: &'static str,
    /// The race.
    #[serde(flatten)]
    measured: Option<MeasuredRecord>,
}

/// An edited schedule beside the one before.
#[derive(Serialize, JsonSchema)]
struct MeasuredRecord {
    /// Microseconds before, and with the edited schedule.
    us: [f64; 2],
    /// The same, as they are estimated; null where the estimate cannot weigh a schedule.
    estimated_us: [Option<f64>; 2],
    /// Time of the edited schedule by that before: the median over the rounds.
    ratio: f64,
    /// Rounds of the race, and those that the edited schedule won.
    rounds: [usize; 2],
    /// To compile and verify the edited schedule, with the driver; of the race.
    seconds: [f64; 2],
    /// The edited schedule, as it was applied.
    schedule: Vec<String>,
    /// The database that keeps it.
    kept: Option<String>,
}

/// A process that measures, and the schedule before in it.
type Ready = Result<(Measurer, Opened)>;

/// Runs the command.
///
/// # Errors
/// No device that computes, no such kernel, a schedule that is refused or gives wrong results.
pub fn execute(a: &EditArgs) -> Result<()> {
    let common = &a.common;
    let file = tuning::file_to_write(common)?;
    let device = open_device(common)?;
    if matches!(device, Device::Interpreter) {
        return Err(Error::new(Code::Device, "edit measures schedules of kernels; the interpreter runs none")
            .help("`--device cpu` or an adapter of `weft devices` runs some"));
    }
    let given = workbench::inputs::given(&a.input, &a.model, common)?;
    let module = load(&a.model, common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), common)?;
    let profile = profile_on(common, &device)?;
    let options = compile_options(pipeline_for(&module, common, &profile, &inputs)?, common, &profile)?;
    let compiled = compile_with(module, &options, common, &profile)?;
    let name = one_of(owners(&compiled, &a.kernel)?, a, &compiled);
    let (unit, before) = Unit::of(&compiled, name, &profile)
        .ok_or_else(|| Error::usage(format!("`{name}` has sizes that only a run knows, or no schedule")))?;
    let scheduling = scheduling(common);
    let subject = Subject { a, unit, before, target: scheduling.on(&profile), device: &device };
    // The right results are computed while the user edits.
    let mut ready = Some(subject.prepare());
    let mut draft = Draft::new(subject.text(), a.schedule.as_deref())?;
    loop {
        let Some(text) = draft.edited()? else {
            return subject.ends_unchanged("is unchanged");
        };
        match subject.check(&text) {
            Ok(edited) => return subject.decide(edited, ready.take(), &file),
            Err(why)
                if draft.goes_on()
                    && subject.talks()
                    && asks(&format!("{}\nedit it again? [Y/n] ", said(&why)), true) => {}
            Err(why) => {
                return Err(Error::input(said(&why)).help("docs/schedule.md lists the instructions"));
            }
        }
    }
}

/// The function of a layer with the most work, which a line says.
fn one_of(functions: Vec<Name>, a: &EditArgs, compiled: &Compiled) -> Name {
    let first = functions[0];
    if functions.len() > 1 {
        let kernels = |f: Name| compiled.plan.kernels.iter().filter(move |k| k.function == f).map(|k| k.name.as_str());
        let others: Vec<&str> = functions[1..].iter().flat_map(|f| kernels(*f)).collect();
        let own = kernels(first).next().unwrap_or(first.as_str());
        log(&a.common, format!("edit: {own} has the most work of `{}`; others: {}", a.kernel, others.join(", ")));
    }
    first
}

fn said(why: &EditRefused) -> String {
    format!("the schedule is refused: {why}")
}

impl Subject<'_> {
    /// Starts the process that measures, with the schedule before.
    fn prepare(&self) -> JoinHandle<Ready> {
        let mut measurer = Measurer::new(Setup::of(&self.a.common, &self.a.input));
        let (function, positions) = (self.unit.function.clone(), self.unit.positions.clone());
        let before = self.before.clone();
        std::thread::spawn(move || {
            measurer.take(&function, &positions)?;
            let opened = measurer.open_first(&before)?;
            let bug = |why| Error::new(Code::Bug, format!("the schedule before: {why}"));
            Ok((measurer, opened.map_err(bug)?))
        })
    }

    /// The text for the editor.
    fn text(&self) -> String {
        let f = &self.unit.function;
        let device = describe(self.device).name;
        let mut out = format!(
            "; The schedule of {} in {} on {device}.\n; Save it and leave the editor: it is checked, verified and timed. \
             docs/schedule.md lists the instructions.\n; A choice with another value lets the rules write the lines \
             behind it. Unchanged, nothing happens.\n;\n; The loops before the schedule:\n",
            f.name, self.a.model
        );
        for line in print_loops(f, &f.body, None).lines() {
            out.push_str(&format!("; {line}\n"));
        }
        out.push('\n');
        self.before.iter().for_each(|i| out.push_str(&format!("{}\n", print_instruction(i))));
        out
    }

    /// Compiles a schedule alone.
    fn check(&self, text: &str) -> Result<Edited, EditRefused> {
        let emitter = weft::emitter(self.target.profile);
        compile_edited(&self.unit.function, &self.unit.positions, text, self.target, emitter)
    }

    /// Measures a schedule that applies, shows the result, and keeps the schedule if the user agrees.
    fn decide(&self, edited: Edited, ready: Option<JoinHandle<Ready>>, file: &Path) -> Result<()> {
        if edited.function.trace == self.before {
            return self.ends_unchanged("is as before");
        }
        let ready = ready.and_then(|r| r.join().ok());
        let ready = ready.unwrap_or_else(|| Err(Error::new(Code::Bug, "the process that measures did not start")));
        let raced = self.race(edited, ready?)?;
        let common = &self.a.common;
        let quiet = common.json.as_deref() == Some("-");
        if !quiet {
            self.show(&raced)?;
        }
        let keeps = self.a.keep || self.talks() && asks("keep it? [y/N] ", false);
        if keeps {
            TuningDatabase::append(file, &self.line(&raced, file)?).map_err(Error::usage)?;
            log(common, format!("edit: kept in {}; the next compilation uses it", file.display()));
        } else if !quiet {
            print_text("it is not kept; --keep keeps it")?;
        }
        let measured = MeasuredRecord {
            us: raced.us,
            estimated_us: [self.estimated_before(), raced.edited.estimated_ns.map(|ns| ns / 1e3)],
            ratio: raced.ratio,
            rounds: raced.rounds,
            seconds: raced.seconds,
            schedule: raced.edited.function.trace.iter().map(print_instruction).collect(),
            kept: keeps.then(|| file.display().to_string()),
        };
        write_json(common, &self.record("measured", Some(measured))).map(drop)
    }

    /// Whether questions are welcome.
    fn talks(&self) -> bool {
        !self.a.common.quiet && self.a.common.json.is_none()
    }

    fn ends_unchanged(&self, how: &str) -> Result<()> {
        match write_json(&self.a.common, &self.record("unchanged", None))? {
            true => Ok(()),
            false => print_text(&format!("the schedule of {} {how}", self.unit.label)),
        }
    }

    fn race(&self, edited: Edited, (mut measurer, before): (Measurer, Opened)) -> Result<Raced> {
        let start = Instant::now();
        let opened = measurer.open_trace(&edited.function.trace)?;
        let opened = opened.map_err(|why| Error::new(Code::Check, format!("the edited schedule: {why}")))?;
        let compiled = start.elapsed().as_secs_f64();
        let fits = RACE_MS / (before.ms + opened.ms).max(1.0);
        let rounds = (fits as usize).clamp(*ROUNDS.start(), *ROUNDS.end());
        let standings = measurer.race(&[&before, &opened], rounds, self.a.common.seed)?;
        let [old, new] = [0, 1].map(|n| standings[n].median_ns() / 1e3);
        let (ratio, wins) = (standings[1].ratio(), standings[1].wins());
        let seconds = [compiled, start.elapsed().as_secs_f64() - compiled];
        Ok(Raced { edited, us: [old, new], ratio, rounds: [standings[1].ratios.len(), wins], seconds })
    }

    fn estimated_before(&self) -> Option<f64> {
        let text = self.before.iter().map(print_instruction).collect::<Vec<_>>().join("\n");
        Some(self.check(&text).ok()?.estimated_ns? / 1e3)
    }

    fn show(&self, raced: &Raced) -> Result<()> {
        let us = |value: Option<f64>| value.map_or("-".to_string(), |us| format!("{us:.1}"));
        let mut t = table(&[self.unit.label.as_str(), "us", "estimated us", "ratio", "rounds"]);
        t.add_row(["before", &us(Some(raced.us[0])), &us(self.estimated_before()), "", ""]);
        let ratio = format!("{:.3}", raced.ratio);
        let rounds = format!("faster in {} of {}", raced.rounds[1], raced.rounds[0]);
        let estimated = raced.edited.estimated_ns.map(|ns| ns / 1e3);
        t.add_row(["edited", &us(Some(raced.us[1])), &us(estimated), &ratio, &rounds]);
        print_text("the edited schedule gives the right results")?;
        show_table(&t)
    }

    /// The line that keeps the schedule.
    fn line(&self, raced: &Raced, file: &Path) -> Result<TuningLine> {
        let known = TuningDatabase::read_for(file, &[&self.target.profile.identity()]).map_err(Error::input)?;
        let by_hand = ByHand {
            unit: &self.unit,
            target: self.target,
            before: &self.before,
            after: &raced.edited.function.trace,
            ratio: raced.ratio,
            rounds: raced.rounds,
            us: raced.us,
            estimated_us: [self.estimated_before(), raced.edited.estimated_ns.map(|ns| ns / 1e3)],
            seed: self.a.common.seed,
        };
        Ok(by_hand.line(&known))
    }

    fn record(&self, result: &'static str, measured: Option<MeasuredRecord>) -> Versioned<EditedRecord> {
        Versioned::new(EditedRecord {
            model: workbench::models::short_name(&self.a.model),
            device: describe(self.device),
            function: self.unit.function.name.to_string(),
            result,
            measured,
        })
    }
}
