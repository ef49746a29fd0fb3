//! The time to make a schedule: `cargo bench --package weft-benches --bench schedule_candidates`.
//!
//! For the different kernels of ResNet-50 on each profile, the best of five: milliseconds of the rules for one kernel,
//! and of replaying its trace, as a search does for each candidate. Names of profiles after `--` select some. Fails if
//! the median of the candidates on a profile is above a millisecond.

use compiler::compile::{CompileOptions, compile};
use compiler::profile::DeviceProfile;
use compiler::schedule::apply_pending;
use compiler::schedule::rules::schedule;
use compiler::tir::{BufferId, TensorFunction};
use shaders_gen::Emitter;
use std::process::ExitCode;
use std::time::Instant;

/// Milliseconds for a candidate.
const GOAL: f64 = 1.0;

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let profiles = [DeviceProfile::lavapipe(), DeviceProfile::hopper()];
    let resnet = benches::zoo::build("resnet50", 1, 0).expect("it is in the zoo");
    let mut good = true;
    println!("{:<12}{:<24}{:>14}{:>12}{:>14}", "profile", "function", "instructions", "rules ms", "candidate ms");
    for profile in profiles.into_iter().filter(|p| chosen.is_empty() || chosen.contains(&p.name)) {
        let compiled = compile(resnet.clone(), &CompileOptions::default(), &profile, &Emitter, &mut |_, _, _| ());
        let mut candidates = Vec::new();
        for f in compiled.expect("it compiles").unscheduled.values() {
            let plain = TensorFunction { pending: vec![], ..f.clone() };
            let constants: Vec<BufferId> = f.inputs().skip(1).collect();
            let rules = best_of_five(|| drop(schedule(&plain, &constants, &profile).expect("a rule takes it")));
            let candidate = best_of_five(|| apply_pending(&mut f.clone()).expect("its own trace applies"));
            let (name, count) = (f.name.as_str(), f.pending.len());
            println!("{:<12}{name:<24}{count:>14}{rules:>12.3}{candidate:>14.3}", profile.name);
            candidates.push(candidate);
        }
        candidates.sort_by(f64::total_cmp);
        let (median, most) = (candidates[candidates.len() / 2], candidates[candidates.len() - 1]);
        println!("{}: median {median:.3} ms, most {most:.3} ms a candidate", profile.name);
        good &= median <= GOAL;
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Milliseconds of the fastest run.
fn best_of_five(mut run: impl FnMut()) -> f64 {
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..5).map(|_| time(&mut run)).fold(f64::INFINITY, f64::min)
}
