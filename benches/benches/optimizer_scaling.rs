//! The growth of the optimiser's time with the graph: `cargo bench --package weft-benches --bench optimizer_scaling`.
//!
//! Graphs of 1k, 2k, 4k and 8k nodes of each family, the best of three runs on one thread, with the ratio of each size
//! to the one before (2 is linear). Also a graph of 5,000 nodes and ResNet-101, which have limits. Fails if a limit is
//! exceeded, or if a ratio from 2k nodes on is more than half above linear. Names of families after `--` select some.

use benches::scaling::{Family, build, optimize};
use compiler::graph::Module;
use compiler::passes::PassStats;
use compiler::profile::DeviceProfile;
use std::process::ExitCode;

const SIZES: [usize; 4] = [1000, 2000, 4000, 8000];
const WORST_RATIO: f64 = 3.0;
/// Name, milliseconds at most.
const LIMITS: [(&str, f64); 2] = [("5,000 nodes", 3000.0), ("resnet101", 1000.0)];

fn main() -> ExitCode {
    let mut good = true;
    println!("{:<12}{:>8}{:>12}{:>8}   slowest passes", "family", "nodes", "ms", "ratio");
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for family in Family::ALL.into_iter().filter(|f| chosen.is_empty() || chosen.iter().any(|c| c == f.name())) {
        let mut before: Option<f64> = None;
        for size in SIZES {
            let module = build(family, size).expect("the graph type-checks");
            let (ms, passes) = best_of_three(&module);
            let ratio = before.map(|b| ms / b);
            let shown = ratio.map_or(String::new(), |r| format!("{r:.2}"));
            println!("{:<12}{size:>8}{ms:>12.1}{shown:>8}   {passes}", family.name());
            good &= size <= SIZES[1] || ratio.is_none_or(|r| r <= WORST_RATIO);
            before = Some(ms);
        }
    }
    let five = Family::ALL.map(|f| build(f, 5000).expect("the graph type-checks"));
    let slowest = five.iter().map(|m| best_of_three(m).0).fold(0.0, f64::max);
    let resnet = benches::zoo::build("resnet101", 1, 0).expect("it is in the zoo");
    for ((name, limit), ms) in LIMITS.into_iter().zip([slowest, best_of_three(&resnet).0]) {
        println!("{name}: {ms:.1} ms, at most {limit} ms");
        good &= ms <= limit;
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Milliseconds of the fastest of three runs, and its three slowest passes.
fn best_of_three(module: &Module) -> (f64, String) {
    let profile = DeviceProfile::lavapipe();
    let run = || -> Vec<PassStats> { optimize(&mut module.clone(), &profile).expect("the passes run") };
    let total = |s: &[PassStats]| s.iter().map(|p| p.ms).sum::<f64>();
    let mut best = run();
    for _ in 0..2 {
        let again = run();
        if total(&again) < total(&best) {
            best = again;
        }
    }
    let all = total(&best);
    best.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let slowest: Vec<String> = best.iter().take(3).map(|p| format!("{} {:.1}", p.name, p.ms)).collect();
    (all, slowest.join(", "))
}
