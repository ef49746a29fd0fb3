//! Writes the report of a trace: `cargo run -p weft-graphview --example report F.trace F.html [STAGE F.svg]`.

use compiler::trace::CompileTrace;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, ..] = args.as_slice() else { return Err("usage: report F.trace F.html".into()) };
    let trace = CompileTrace::from_bytes(&std::fs::read(input)?)?;
    std::fs::write(output, graphview::report::report(&trace)?)?;
    Ok(())
}
