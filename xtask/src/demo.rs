//! `cargo xtask demo`: compiles, runs and times ResNet-50 in a fresh clone.

use crate::cargo::{build_weft, run as run_command};
use crate::heading::heading;
use crate::vulkan::{Missing, prepare, quiet_loader};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "compiles ResNet-50 to shaders, runs and times it";

/// What the demo runs: shaders on the first adapter, a GPU or a software driver, and the same network on the CPU.
const SHOWN: &[&[&str]] = &[
    &["devices"],
    &["compile", "resnet50", "--device", "0"],
    &["bench", "resnet50", "--runs", "10", "--warmup", "3", "--device", "0"],
    &["bench", "resnet50", "--runs", "10", "--warmup", "3", "--device", "cpu"],
];

const GO_ON: &str = "
That was ResNet-50 (seeded weights), as shaders and on the CPU, both timed. Go on with:
  target/release/weft zoo                                    the other built-in networks
  target/release/weft compile squeezenet1_1 --emit wgsl --emit-dir kernels
                                                             every generated shader as a file
  target/release/weft explain resnet50                       why each node is in its kernel
  target/release/weft compare resnet50 --against reference   device against interpreter, node by node
  target/release/weft run YOUR.onnx -i in.npz -o out.npz     a model of your own
  target/release/weft run YOUR.onnx -i cat.jpg --preset imagenet --top 5
  cargo xtask test                                           every check of the repository";

/// Runs the command.
///
/// # Errors
/// When the build or one of the commands fails.
pub fn run(args: &[String]) -> Result<(), String> {
    if !args.is_empty() {
        return Err("usage: cargo xtask demo".into());
    }
    println!("The command is built first: five minutes on two cores, once; cargo's bar shows how far it is.");
    let adapter = prepare(Missing::Tolerated)?;
    if !adapter {
        eprintln!("Without an adapter the demo shows the CPU alone.");
    }
    heading("cargo build --release --package weft-command");
    let weft = build_weft(true)?;
    let needs_adapter = |words: &[&str]| words.ends_with(&["--device", "0"]);
    for words in SHOWN.iter().filter(|words| adapter || !needs_adapter(words)) {
        heading(&format!("weft {}", words.join(" ")));
        let mut c = Command::new(&weft);
        c.args(*words);
        quiet_loader(&mut c);
        run_command(c)?;
    }
    let program = weft.display().to_string();
    println!("{}", GO_ON.replace("target/release/weft", &program));
    Ok(())
}
