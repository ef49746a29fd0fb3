
use network::{Error, Network, WEIGHTS};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "[-n RUNS] INPUT... OUTPUT...
  the raw elements of each input and output, in the order in which src/network.rs has them";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut arguments: Vec<String> = std::env::args().collect();
    let program = arguments.remove(0);
    let mut runs = 1;
    if arguments.first().is_some_and(|a| a == "-n") {
        let n = arguments
            .get(1)
            .and_then(|n| n.parse::<u32>().ok())
            .filter(|n| *n > 0);
        runs = n.ok_or("-n takes a number of runs")?;
        arguments.drain(..2);
    }
    let files = network::Inputs::COUNT + network::Outputs::COUNT;
    if arguments.len() != files {
        return Err(format!("usage: {program} {USAGE}"));
    }
    let outputs = arguments.split_off(network::Inputs::COUNT);
    let read = |path: &String| std::fs::read(path).map_err(|e| format!("{path}: {e}"));
    let inputs = arguments
        .iter()
        .map(read)
        .collect::<Result<Vec<_>, String>>()?;
    let inputs: Vec<&[u8]> = inputs.iter().map(|bytes| &bytes[..]).collect();
    let said = |e: Error| e.to_string();
    let start = Instant::now();
    let mut network = Network::open(WEIGHTS).map_err(said)?;
    eprintln!(
        "{}: opened in {:.1} ms",
        network.device_name(),
        start.elapsed().as_secs_f64() * 1e3
    );
    let mut results = network.run_bytes(&inputs).map_err(said)?;
    eprintln!(
        "first result after {:.1} ms",
        start.elapsed().as_secs_f64() * 1e3
    );
    let start = Instant::now();
    for _ in 1..runs {
        results = network.run_bytes(&inputs).map_err(said)?;
    }
    if runs > 1 {
        let ms = start.elapsed().as_secs_f64() * 1e3 / f64::from(runs - 1);
        eprintln!("{ms:.3} ms a run");
    }
    for (path, bytes) in outputs.iter().zip(&results) {
        std::fs::write(path, bytes).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(())
}
