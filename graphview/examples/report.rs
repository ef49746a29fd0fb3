//! Writes the report of a trace: `cargo run -p weft-graphview --example report F.html F.trace [MORE.trace ...]`.

use compiler::trace::CompileTrace;
use graphview::report::{Measured, page};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [output, first, more @ ..] = args.as_slice() else { return Err("usage: report F.html F.trace ...".into()) };
    let read = |path: &String| -> Result<CompileTrace, Box<dyn std::error::Error>> {
        Ok(CompileTrace::from_bytes(&std::fs::read(path)?)?)
    };
    let mut measured = Measured::new(read(first)?);
    for path in more {
        measured.take(read(path)?).map_err(|e| format!("{path}: {}", e.0))?;
    }
    std::fs::write(output, page(&measured)?)?;
    Ok(())
}
