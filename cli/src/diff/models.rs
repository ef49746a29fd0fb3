//! `weft diff a.onnx b.onnx`: nodes matched by values and structure.

use super::lists::{FIRST, first_of};
use crate::args::DiffArgs;
use crate::output::{print_text, write_json};
use workbench::Result;
use workbench::match_models::{How, ModelDiff, Parting, match_models};
use workbench::record::Versioned;

/// Results of two exporters' files differ by the order of sums.
const RTOL: f64 = 1e-4;

pub(super) fn execute(args: &DiffArgs) -> Result<()> {
    let paths = [&args.a, &args.b].map(|p| p.display().to_string());
    let found = match_models([&paths[0], &paths[1]], args.rtol.unwrap_or(RTOL), &args.common)?;
    if write_json(&args.common, &Versioned::new(&found))? {
        return Ok(());
    }
    show(&found, if args.common.verbose > 0 { usize::MAX } else { FIRST })
}

fn show(d: &ModelDiff, most: usize) -> Result<()> {
    let by = |how: How| d.pairs.iter().filter(|p| p.by == how).count();
    let share = d.pairs.len() as f64 * 100.0 / d.nodes[0].max(1) as f64;
    print_text(&format!("{}: {} nodes; {}: {} nodes", d.a, d.nodes[0], d.b, d.nodes[1]))?;
    print_text(&format!(
        "{} pairs compute the same, {share:.1} % of the first: {} by values alone, {} by operands, {} by users",
        d.pairs.len(),
        by(How::Values),
        by(How::Operands),
        by(How::Users)
    ))?;
    first_of("they part at", &d.partings, most, parting)?;
    first_of("equal values, not told apart", &d.ambiguous, most, |g| format!("{} | {}", g.a.join(" "), g.b.join(" ")))?;
    first_of(&format!("only in {}", d.a), &d.only_a, most, String::clone)?;
    first_of(&format!("only in {}", d.b), &d.only_b, most, String::clone)
}

fn parting(p: &Parting) -> String {
    let error = p.rel_l2.map_or("other shapes".into(), |e| format!("rel l2 {e:.2e}"));
    let operands: Vec<String> = p.constants.iter().map(|i| format!("constant operand {i}")).collect();
    let why = match operands.is_empty() {
        true => "operands are the same: attributes differ".into(),
        false => format!("{} differs", operands.join(", ")),
    };
    format!("{} | {} ({}): {error}; {why}", p.a, p.b, p.op)
}
