//! Holds what the rules pick against all schedules that differ in one choice, by the estimate of the scheduled kernels.
//!
//! ```text
//! cargo run -p weft-benches --release --bin picks -- [--target ada,navi31,bmg] [--amp off,fp16] [-v] [MODEL...]
//! ```
//!
//! A line for each network, target and precision: functions with choices, those with another value of one choice that
//! is estimated more than 3 % and more than 10 % cheaper, the largest gain, and the time of all functions with the best
//! single choices over that with the rules' own.

use benches::zoo;
use compiler::compile::{CompileOptions, compile};
use compiler::passes::AmpMode;
use compiler::profile::DeviceProfile;
use compiler::schedule::estimator::estimate;
use compiler::schedule::rules::{FunctionVersion, Scheduled, neighbours};
use compiler::schedule::{Rules, ScheduleError, ScheduleProvider, ScheduleTarget};
use compiler::tir::{BufferId, TensorFunction};
use shaders_gen::Emitter;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// Gains that are told, as fractions.
const GAINS: [f64; 2] = [0.03, 0.1];

/// The best single choice for a function, and what it costs with it and without, in nanoseconds.
struct Best {
    function: String,
    choice: String,
    own: f64,
    other: f64,
}

impl Best {
    fn ratio(&self) -> f64 {
        self.other / self.own
    }
}

/// The rules; each function that they schedule is compared.
#[derive(Default)]
struct Compared {
    best: Mutex<Vec<Best>>,
}

impl ScheduleProvider for Compared {
    fn schedule(
        &self,
        f: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        let own = Rules.schedule(f, constants, target)?;
        let cost = estimate(&own.function, constants, target).map(|e| e.total());
        let others = neighbours(f, constants, target, &own.function.trace);
        if let (Ok(cost), Some(first), Ok(mut best)) = (cost, others.first(), self.best.lock()) {
            let (function, choice, other) = (f.name.to_string(), first.choice.to_string(), first.estimate.total());
            best.push(Best { function, choice, own: cost, other });
        }
        Ok(own)
    }
    fn versions(
        &self,
        f: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        Rules.versions(f, constants, target, all)
    }
    fn identity(&self, _: &DeviceProfile) -> Option<String> {
        None
    }
}

struct Args {
    targets: Vec<String>,
    amp: Vec<AmpMode>,
    each: bool,
    models: Vec<String>,
}

fn parse_args(mut list: impl Iterator<Item = String>) -> Result<Args, String> {
    let words = |text: &str| text.split(',').map(String::from).collect::<Vec<String>>();
    let mut a = Args { targets: words("ada,navi31,bmg"), amp: vec![AmpMode::Off], each: false, models: vec![] };
    while let Some(word) = list.next() {
        let mut value = || list.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--target" => a.targets = words(&value()?),
            "--amp" => {
                let mode = |w: &String| match w.as_str() {
                    "off" => Ok(AmpMode::Off),
                    "fp16" => Ok(AmpMode::Fp16),
                    other => Err(format!("--amp is off or fp16, not {other}")),
                };
                a.amp = words(&value()?).iter().map(mode).collect::<Result<_, _>>()?;
            }
            "-v" => a.each = true,
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            _ => a.models.push(word),
        }
    }
    if a.models.is_empty() {
        a.models.push("resnet50".into());
    }
    Ok(a)
}

fn main() -> ExitCode {
    match parse_args(std::env::args().skip(1)).and_then(|a| run(&a)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(a: &Args) -> Result<(), String> {
    for model in &a.models {
        for target in &a.targets {
            let profile = DeviceProfile::named(target).ok_or_else(|| format!("no profile {target}"))?;
            for amp in &a.amp {
                let best = compared(model, &profile, *amp)?;
                println!("{model} {target} {amp}: {}", summary(&best));
                for b in best.iter().filter(|b| a.each && b.ratio() < 1.0 - GAINS[0]) {
                    println!(
                        "    {:.3}  {}: {}, {:.2} us to {:.2}",
                        b.ratio(),
                        b.function,
                        b.choice,
                        b.own / 1e3,
                        b.other / 1e3
                    );
                }
            }
        }
    }
    Ok(())
}

fn compared(model: &str, profile: &DeviceProfile, amp: AmpMode) -> Result<Vec<Best>, String> {
    let module = zoo::build(model, 1, 0).map_err(|e| format!("{model}: {e}"))?;
    let compared = Arc::new(Compared::default());
    let mut options = CompileOptions { schedules: Some(compared.clone()), ..CompileOptions::default() };
    options.pipeline.amp = amp;
    compile(module, &options, profile, &Emitter, &mut |_, _, _| {}).map_err(|e| format!("{model}: {e}"))?;
    let mut best = std::mem::take(&mut *compared.best.lock().map_err(|e| e.to_string())?);
    best.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    Ok(best)
}

fn summary(best: &[Best]) -> String {
    let cheaper = |gain: f64| best.iter().filter(|b| b.ratio() < 1.0 - gain).count();
    let counts = GAINS.map(|g| format!("> {:.0} % cheaper in {}", g * 100.0, cheaper(g))).join(", ");
    let farthest = best.first().map_or(1.0, Best::ratio);
    let all = |of: &dyn Fn(&Best) -> f64| best.iter().map(of).sum::<f64>();
    let time = all(&|b| b.other.min(b.own)) / all(&|b| b.own);
    let mut points: BTreeMap<&str, usize> = BTreeMap::new();
    for b in best.iter().filter(|b| b.ratio() < 1.0 - GAINS[0]) {
        *points.entry(b.choice.split(' ').next().unwrap_or_default()).or_default() += 1;
    }
    let points: Vec<String> = points.iter().map(|(point, n)| format!("{point} {n}")).collect();
    format!("{} functions, {counts}; the best {farthest:.3}; time {time:.3}; {}", best.len(), points.join(", "))
}
