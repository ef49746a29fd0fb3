//! `weft diff a.onnx b.onnx`: nodes matched by values and structure.

use super::lists::{FIRST, first_of};
use crate::args::DiffArgs;
use crate::output::{print_wrapped, write_json};
use workbench::Result;
use workbench::match_models::{How, ModelDiff, NodePair, RTOL, match_models};
use workbench::record::Versioned;

pub(super) fn execute(args: &DiffArgs) -> Result<()> {
    let paths = [&args.a, &args.b].map(|p| p.display().to_string());
    let found = match_models([&paths[0], &paths[1]], args.rtol, &args.common)?;
    if write_json(&args.common, &Versioned::new(&found))? {
        return Ok(());
    }
    show(&found, args.common.verbose > 0)
}

/// Shows where two models part and what of them has a counterpart; `all` of it.
pub(crate) fn show(d: &ModelDiff, all: bool) -> Result<()> {
    let by = |how: How| d.pairs.iter().filter(|p| p.by == how).count();
    let most = if all { usize::MAX } else { FIRST };
    let share = d.pairs.len() as f64 * 100.0 / d.nodes[0].max(1) as f64;
    let same = if d.pairs.len() == 1 { "pair computes" } else { "pairs compute" };
    print_wrapped(&format!("{}: {}; {}: {}", d.a, nodes(d.nodes[0]), d.b, nodes(d.nodes[1])))?;
    print_wrapped(&format!(
        "{} {same} the same, {share:.1} % of the first: {} by values alone, {} by op, {} by operands, {} by users",
        d.pairs.len(),
        by(How::Values),
        by(How::Op),
        by(How::Operands),
        by(How::Users)
    ))?;
    first_of("they part at", &d.partings, most, |p| p.sentence(d.rtol))?;
    if d.rtol > RTOL {
        print_wrapped(&format!("results are one if they differ by less than {} of their norm", d.rtol))?;
        let line = |p: &&NodePair| format!("{} | {} ({}): rel l2 {:.2e}", p.a, p.b, p.op, p.rel_l2);
        first_of("those that differ most", &d.farthest(FIRST), most, line)?;
    }
    let behind = [d.behind_a.len(), d.behind_b.len()];
    if behind != [0, 0] && !all {
        let it = if d.partings.len() == 1 { "it" } else { "them" };
        print_wrapped(&match behind {
            [n, m] if n == m => format!("  {} behind {it} (-v shows them)", nodes(n)),
            [n, m] => format!("  {} behind {it} in the first, {m} in the second (-v shows them)", nodes(n)),
        })?;
    }
    first_of("equal values, not told apart", &d.ambiguous, most, |g| format!("{} | {}", g.a.join(" "), g.b.join(" ")))?;
    let sides = [(&d.a, &d.only_a, &d.behind_a), (&d.b, &d.only_b, &d.behind_b)];
    for (file, only, behind) in sides {
        if all {
            first_of(&format!("behind it in {file}"), behind, most, String::clone)?;
        }
        let line = |(n, k): &(String, usize)| if *k > 1 { format!("{n} ({})", nodes(*k)) } else { n.clone() };
        first_of(&format!("only in {file}"), &d.rest(only, behind), most, line)?;
    }
    Ok(())
}

fn nodes(n: usize) -> String {
    if n == 1 { "1 node".into() } else { format!("{n} nodes") }
}
