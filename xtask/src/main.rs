//! Repository chores: `cargo xtask COMMAND`. One file for each command, one line for it in the table below.

mod bare;
mod bless;
mod cargo;
mod conformance;
mod demo;
mod driver;
mod dxc;
mod fuzz;
mod gpu_report;
mod heading;
mod kernels;
mod lines;
mod measure;
mod neon;
mod networks;
mod package;
mod page;
mod peers;
mod portable;
mod python;
mod release;
mod replay;
mod report;
mod semver;
mod test;
mod times;
mod tint;
mod vulkan;
mod wheel;

use std::process::ExitCode;

/// A command: its name, what it does, and the function that does it.
struct Command {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

const COMMANDS: &[Command] = &[
    Command { name: "test", help: test::HELP, run: test::run },
    Command { name: "demo", help: demo::HELP, run: demo::run },
    Command { name: "bless", help: bless::HELP, run: bless::run },
    Command { name: "conformance", help: conformance::HELP, run: conformance::run },
    Command { name: "networks", help: networks::HELP, run: networks::run },
    Command { name: "kernels", help: kernels::HELP, run: kernels::run },
    Command { name: "lines", help: lines::HELP, run: lines::run },
    Command { name: "fuzz", help: fuzz::HELP, run: fuzz::run },
    Command { name: "neon", help: neon::HELP, run: neon::run },
    Command { name: "report", help: report::HELP, run: report::run },
    Command { name: "page", help: page::HELP, run: page::run },
    Command { name: "gpu-report", help: gpu_report::HELP, run: gpu_report::run },
    Command { name: "replay", help: replay::HELP, run: replay::run },
    Command { name: "measure", help: measure::HELP, run: measure::run },
    Command { name: "peers", help: peers::HELP, run: peers::run },
    Command { name: "driver", help: driver::HELP, run: driver::run },
    Command { name: "package", help: package::HELP, run: package::run },
    Command { name: "wheel", help: wheel::HELP, run: wheel::run },
    Command { name: "release", help: release::HELP, run: release::run },
    Command { name: "bare", help: bare::HELP, run: bare::run },
    Command { name: "semver", help: semver::HELP, run: semver::run },
    Command { name: "timed", help: times::HELP, run: times::run },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(real) = std::env::var_os(wheel::REAL_CARGO) {
        return ended("cargo", wheel::as_cargo(&real, &args));
    }
    let found = args.first().and_then(|name| COMMANDS.iter().find(|c| c.name == name));
    let Some(command) = found else {
        eprintln!("usage: cargo xtask COMMAND\n");
        COMMANDS.iter().for_each(|c| eprintln!("  {:<12} {}", c.name, c.help));
        return ExitCode::from(2);
    };
    ended(command.name, (command.run)(&args[1..]))
}

fn ended(name: &str, done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{name}: {message}");
            ExitCode::FAILURE
        }
    }
}
