//! The estimate's choices beside the best that was measured.

use super::table::{Row, Table};
use std::collections::BTreeMap;
use std::fmt::Write;
use weft::statistics::Statistics;
use workbench::Result;

/// Quotient of the times of the chosen and the best rows, over all units together, and of the worst unit.
fn choice(tables: &[Table], price: impl Fn(&Row) -> f64) -> (f64, f64, String) {
    let (mut chosen, mut least, mut worst) = (0.0, 0.0, (1.0, String::new()));
    for t in tables {
        let best = t.rows.iter().map(|r| r.us).fold(f64::INFINITY, f64::min);
        let Some(own) = t.rows.iter().min_by(|a, b| price(a).total_cmp(&price(b))) else { continue };
        (chosen, least) = (chosen + own.us, least + best);
        if own.us / best > worst.0 {
            worst = (own.us / best, format!("{} {}", t.network, t.name));
        }
    }
    (chosen / least, worst.0, worst.1)
}

/// The judgement in text.
pub fn judged(tables: &[Table]) -> Result<String> {
    let tables: Vec<Table> = tables.iter().cloned().map(Table::recounted).collect::<Result<_>>()?;
    let mut out = format!("{} units\n", tables.len());
    for (name, price) in [("before", (|r: &Row| r.before_us) as fn(&Row) -> f64), ("now", |r| r.estimate_us)] {
        let (all, worst, unit) = choice(&tables, price);
        let mut rules: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let rows = tables.iter().flat_map(|t| &t.rows);
        rows.for_each(|r| rules.entry(&r.rule).or_default().push(price(r) / r.us));
        let medians = rules.iter().map(|(rule, list)| format!("{rule} {:.2}", Statistics::of(list).median));
        let medians: Vec<String> = medians.collect();
        let _ = writeln!(
            out,
            "{name}: {all:.3} of the best together, the worst {worst:.2} ({unit}); estimate over time: {}",
            medians.join(", ")
        );
    }
    Ok(out)
}
