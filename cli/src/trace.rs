//! Compile traces, shown.

use crate::args::Common;
use crate::output::{print_text, show_driver_stats, show_table, table, write_records};
use compiler::compile::GroupKind;
use compiler::trace::{CompileTrace, OpenDim};
use std::path::Path;
use workbench::Result;
use workbench::figures::si;
use workbench::traces::read;

/// The groups and sums of a compilation.
pub fn show(t: &CompileTrace) -> Result<()> {
    print_text(&format!("{} for {}", t.model, t.profile_name))?;
    let mut rows = table(&["", "name", "rule", "layout", "ops", "flops", "bytes"]);
    for (i, g) in t.groups.iter().enumerate() {
        let rule = match g.kind {
            GroupKind::Kernel => g.rule.as_str(),
            GroupKind::View => "(view)",
            GroupKind::Host => "(host)",
            GroupKind::Control => "(control flow)",
        };
        rows.add_row([
            i.to_string(),
            g.label.clone(),
            rule.into(),
            g.layout.clone().unwrap_or_default(),
            g.ops.join("+"),
            if t.is_stated(i) { si(g.flops as f64) } else { "-".into() },
            if t.is_stated(i) { si(g.bytes as f64) } else { g.open_bytes.clone().unwrap_or_default() },
        ]);
    }
    show_table(&rows)?;
    let versions = t.kernels.iter().filter(|k| !k.when.is_empty()).count();
    let some = if versions == 0 { String::new() } else { format!(", {versions} of them for some sizes only") };
    print_text(&format!(
        "{}; {} dispatches of {} distinct kernels{some}",
        workbench::traces::count_groups(t),
        t.calls().count(),
        t.kernels.len()
    ))?;
    if !t.dims.is_empty() {
        let one = |d: &OpenDim| format!("{} {}..{}", d.name, d.low, d.high);
        let list = t.dims.iter().map(one).collect::<Vec<_>>().join(", ");
        print_text(&format!("open: {list}; numbers are for the least sizes"))?;
    }
    print_text(&format!(
        "weights {}B, activations {}B at the peak of {}B without reuse; transposes: {} of activations, {} of weights at run time; {:.0} ms",
        si(t.memory.weights as f64),
        si(t.memory.activations_peak as f64),
        si(t.memory.activations_naive as f64),
        t.transposes.activation,
        t.transposes.weight_runtime,
        t.compile_ms
    ))
}

/// Shows traces as `weft compile` showed them, with passes, kernels and weights; `--json` is that of `weft compile`.
pub fn inspect(paths: &[String], common: &Common) -> Result<()> {
    let traces = paths.iter().map(|p| read(Path::new(p))).collect::<Result<Vec<_>>>()?;
    if write_records(common, &traces.iter().map(CompileTrace::record).collect::<Vec<_>>())? {
        return Ok(());
    }
    for t in &traces {
        show(t)?;
        show_passes(t)?;
        show_kernels(t)?;
        t.stats_record().map_or(Ok(()), |s| show_driver_stats(&s))?;
        show_measured(t)?;
        show_weights(t, common)?;
    }
    Ok(())
}

fn show_passes(t: &CompileTrace) -> Result<()> {
    let mut rows = table(&["stage", "ms", "nodes before", "after", "lines removed", "added"]);
    for (i, stage) in t.stages.iter().enumerate() {
        let (removed, added) = stage.delta.size();
        let pass = i.checked_sub(1).and_then(|p| t.passes.get(p));
        let number = |f: fn(&compiler::passes::PassStats) -> String| pass.map_or(String::new(), f);
        rows.add_row([
            stage.label.clone(),
            number(|p| format!("{:.2}", p.ms)),
            number(|p| p.nodes_before.to_string()),
            number(|p| p.nodes_after.to_string()),
            removed.to_string(),
            added.to_string(),
        ]);
    }
    show_table(&rows)
}

fn show_kernels(t: &CompileTrace) -> Result<()> {
    let mut rows = table(&["kernel", "workgroup", "grid", "bindings", "shared", "bounds", "schedule", "groups", "us"]);
    for (i, k) in t.kernels.iter().enumerate() {
        rows.add_row([
            k.name.clone(),
            format!("{:?}", k.workgroup),
            format!("{:?}", k.grid),
            k.bindings.len().to_string(),
            k.shared_bytes.to_string(),
            if k.bounds_proved { "proved" } else { "checked" }.into(),
            format!("{} instructions", k.schedule.len()),
            t.groups_of(i).len().to_string(),
            t.time_of_kernel(i).map_or(String::new(), |t| format!("{:.1}", t.us)),
        ]);
    }
    show_table(&rows)
}

fn show_measured(t: &CompileTrace) -> Result<()> {
    if let Some(m) = &t.times {
        print_text(&format!(
            "times on {} ({}): {:.2} ms on the device, {:.2} ms end to end; `weft explain F.trace --sort time` has them by layer",
            m.device, m.source, m.device_ms, m.latency_ms
        ))?;
    }
    let Some(e) = &t.errors else { return Ok(()) };
    let worst = e.outputs.iter().map(|o| o.rel_l2).fold(0.0, f64::max);
    let failing = e.nodes.iter().filter(|n| !n.pass).count();
    print_text(&format!(
        "errors on {} against {}: {worst:.2e} of the results, {failing} of {} nodes beyond the tolerance; `weft explain F.trace --sort error` has them by layer",
        e.device,
        e.against,
        e.nodes.len()
    ))
}

fn show_weights(t: &CompileTrace, common: &Common) -> Result<()> {
    if common.verbose > 0 {
        let mut rows = table(&["weight", "dtype", "shape", "min", "max", "mean", "std", "sha256"]);
        for w in &t.weights {
            let values = [w.min, w.max, w.mean, w.std].map(|v| format!("{v:.4}"));
            let mut row = vec![w.name.clone(), w.dtype.to_string(), format!("{:?}", w.shape)];
            row.extend(values);
            row.push(w.hash()[..16].to_string());
            rows.add_row(row);
        }
        show_table(&rows)?;
    }
    let elements: usize = t.weights.iter().map(|w| w.shape.iter().product::<usize>()).sum();
    print_text(&format!(
        "{} weights of {} elements (-v lists them); {} remarks; {} nodes in the model; made by Weft {}",
        t.weights.len(),
        si(elements as f64).trim(),
        t.remarks.len(),
        t.sources.len(),
        t.weft
    ))
}
