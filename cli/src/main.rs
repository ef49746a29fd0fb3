//! The `weft` binary.

use std::process::ExitCode;

#[global_allocator]
static MEMORY: cli::Memory = cli::Memory;

fn main() -> ExitCode {
    cli::run(std::env::args_os(), cli::Extensions::default())
}
