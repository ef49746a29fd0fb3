//! Prices of the kernels of the zoo: what the rules say of a function before they schedule it, and what the estimate
//! says of the kernels that they make.
//!
//! `WEFT_ZOO=all` goes over all networks; `--nocapture` shows the table and the kernels that are far off.

use benches::zoo;
use compiler::compile::{CompileOptions, compile};
use compiler::passes::AmpMode;
use compiler::profile::DeviceProfile;
use compiler::schedule::estimate::Cost;
use compiler::schedule::estimator::estimate;
use compiler::schedule::rules::{FunctionVersion, GIVEN_UP, Scheduled};
use compiler::schedule::{Rules, ScheduleError, ScheduleProvider, ScheduleTarget};
use compiler::tir::{BufferId, TensorFunction};
use shaders_gen::Emitter;
use std::sync::{Arc, Mutex};

const NETWORKS: [&str; 4] = ["resnet50", "mobilenet_v2", "vit_b_16", "squeezenet1_1"];
const PROFILES: [&str; 5] = ["ada", "navi31", "bmg", "dg2", "lavapipe"];

const CLOSE: f64 = 1.1;

/// How far apart prices and estimates may be.
struct Limits {
    amp: AmpMode,
    /// Part of all estimated time in functions whose price is not within [`CLOSE`] of the estimate of their kernels.
    far: f64,
    /// The quotient of both, for any function.
    farthest: f64,
}

const LIMITS: [Limits; 2] =
    [Limits { amp: AmpMode::Off, far: 0.05, farthest: 1.5 }, Limits { amp: AmpMode::Fp16, far: 0.05, farthest: 1.5 }];

/// A function that was scheduled: its cost before and after.
struct Seen {
    name: String,
    rule: &'static str,
    price: Cost,
    made: Cost,
}

impl Seen {
    /// How far apart both are: 1 where they are equal.
    fn ratio(&self) -> f64 {
        let (price, made) = (self.price.total(), self.made.total());
        (price / made).max(made / price)
    }
}

/// The rules, with what was seen of them.
#[derive(Default)]
struct Watched {
    seen: Mutex<Vec<Seen>>,
    given_up: Mutex<Vec<String>>,
}

impl ScheduleProvider for Watched {
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        let scheduled = Rules.schedule(function, constants, target)?;
        let before = estimate(function, constants, target);
        let after = estimate(&scheduled.function, constants, target);
        if let (Ok(before), Ok(after)) = (before, after) {
            let (name, rule) = (function.name.to_string(), scheduled.rule);
            let seen = Seen { name, rule, price: before.cost, made: after.cost };
            self.seen.lock().expect("a lock").push(seen);
        }
        let given_up = scheduled.declined.iter().filter(|d| d.contains(GIVEN_UP)).cloned();
        self.given_up.lock().expect("a lock").extend(given_up);
        Ok(scheduled)
    }
    fn versions(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
        all: &Scheduled,
    ) -> Vec<FunctionVersion> {
        Rules.versions(function, constants, target, all)
    }
    fn identity(&self, _: &DeviceProfile) -> Option<String> {
        None
    }
}

fn networks() -> Vec<&'static str> {
    match std::env::var("WEFT_ZOO").as_deref() {
        // Those of ssdlite are compiled as a run decides sizes.
        Ok("all") => zoo::list().iter().map(|m| m.name).filter(|n| *n != "ssdlite").collect(),
        _ => NETWORKS.to_vec(),
    }
}

fn watched(network: &str, profile: &DeviceProfile, amp: AmpMode) -> Arc<Watched> {
    let watched = Arc::new(Watched::default());
    let module = zoo::build(network, 1, 0).unwrap_or_else(|e| panic!("{network}: {e}"));
    let mut options = CompileOptions { schedules: Some(watched.clone()), ..CompileOptions::default() };
    options.pipeline.amp = amp;
    let made = compile(module, &options, profile, &Emitter, &mut |_, _, _| {});
    made.map(|_| watched).unwrap_or_else(|e| panic!("{network} for {}: {e}", profile.name))
}

#[test]
fn the_candidate_chosen_applies_and_costs_what_its_rule_said() {
    let mut failures = Vec::new();
    for (limits, name) in LIMITS.iter().flat_map(|l| PROFILES.map(|p| (l, p))) {
        let (profile, amp) = (DeviceProfile::named(name).expect("a profile"), limits.amp);
        let (mut all, mut far, mut farthest) = (0.0, 0.0, 1.0f64);
        for network in networks() {
            let watched = watched(network, &profile, amp);
            let given_up = watched.given_up.lock().expect("a lock");
            failures.extend(given_up.iter().map(|line| format!("{network} for {name}, {amp}: {line}")));
            for s in watched.seen.lock().expect("a lock").iter() {
                all += s.made.total();
                farthest = farthest.max(s.ratio());
                if s.ratio() > CLOSE {
                    far += s.made.total();
                    println!("{network} for {name}: {} by {}: price {}, made {}", s.name, s.rule, s.price, s.made);
                }
            }
        }
        let part = far / all;
        let words = format!("{:.1} % not within {CLOSE}; farthest {farthest:.2}", part * 1e2);
        println!("{name}, {amp}: {:.1} us, {words}", all / 1e3);
        if part > limits.far || farthest > limits.farthest {
            failures.push(format!("{name}, {amp}: {words}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
