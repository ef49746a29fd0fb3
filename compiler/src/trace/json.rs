//! The JSON of `weft compile --json`.

use super::{CompileTrace, Group, Kernel, KernelLines};
use serde_json::{Value, json};

impl CompileTrace {
    /// The driver's statistics as `--json` has them.
    pub fn driver_stats_json(&self) -> Option<Value> {
        let names = self.kernels.iter().enumerate().map(|(i, k)| (k.name.as_str(), k.file(i)));
        Some(self.driver_stats.as_ref()?.to_json(names))
    }
    /// One object, schema 1. Lines are counted from 1.
    pub fn to_json(&self) -> Value {
        let calls: Vec<Value> = self
            .calls()
            .enumerate()
            .map(|(i, c)| {
                let k = &self.kernels[c.kernel];
                let stated = c.open.as_ref().is_none_or(|o| o.declared);
                let mut call = json!({ "id": i, "kernel": k.name, "kernel_id": c.kernel, "group": c.group, "grid": stated.then_some(c.grid),
                    "flops": stated.then_some(c.flops), "bytes": stated.then_some(c.bytes) });
                if let Some(open) = &c.open {
                    call["grid_expr"] = json!(open.grid);
                    call["bytes_expr"] = json!(open.bytes);
                }
                call
            })
            .collect();
        let o = &self.options;
        let mut all = json!({
            "schema": 1, "model": self.model, "profile": self.profile_name,
            "options": { "amp": o.amp, "layout": o.layout, "fuse": o.fuse, "opt_level": o.opt_level },
            "passes": self.passes,
            "groups": self.groups.iter().enumerate().map(|(i, g)| self.group_json(i, g)).collect::<Vec<_>>(),
            "kernels": self.kernels.iter().enumerate().map(|(i, k)| self.kernel_json(i, k)).collect::<Vec<_>>(),
            "calls": calls,
            "transposes": self.transposes, "memory": self.memory, "remarks": self.remarks,
            "compile_ms": self.compile_ms,
        });
        if !self.dims.is_empty() {
            all["dims"] = json!(self.dims);
        }
        if self.dims.iter().any(|d| !d.declared) {
            all["memory"]["activations_peak"] = Value::Null;
            all["memory"]["activations_naive"] = Value::Null;
        }
        if let Some(times) = &self.times {
            all["times"] = json!(times);
        }
        if let Some(errors) = &self.errors {
            all["errors"] = json!(errors);
        }
        if let Some(stats) = self.driver_stats_json() {
            all["driver_stats"] = stats;
        }
        all
    }

    fn group_json(&self, i: usize, g: &Group) -> Value {
        let stated = self.is_stated(i);
        let stages: Vec<Vec<&str>> = (0..g.stages.len()).map(|s| g.nodes_of_stages(&[s as u32])).collect();
        let mut group = json!({ "id": i, "name": g.label, "layer": g.layer, "origins": g.origins, "inserted": g.inserted, "stages": stages, "ops": g.ops,
            "anchor": g.anchor, "rule": g.rule, "layout": g.layout, "kind": g.kind,
            "host_function": g.host_function, "flops": stated.then_some(g.flops), "bytes": stated.then_some(g.bytes),
            "reads": g.reads, "remarks": self.remarks_of_group(i) });
        if let Some(open) = &g.open_bytes {
            group["bytes_expr"] = json!(open);
        }
        group
    }

    fn kernel_json(&self, i: usize, k: &Kernel) -> Value {
        let groups = self.groups_of(i);
        let layers: Vec<&str> = groups.iter().map(|&g| self.groups[g].layer.as_str()).collect();
        let blocks: Vec<Value> = k
            .blocks
            .iter()
            .enumerate()
            .map(|(b, block)| json!({ "name": block.name, "stages": block.stages, "nodes": self.nodes_of_block(i, b) }))
            .collect();
        let block_names = |list: &[u32]| list.iter().map(|&b| k.blocks[b as usize].name.as_str()).collect::<Vec<_>>();
        let loops: Vec<Value> = k
            .loops
            .iter()
            .enumerate()
            .map(|(at, l)| {
                json!({ "var": l.var, "extent": l.extent, "kind": l.kind, "instruction": l.maker,
                    "blocks": block_names(&l.blocks), "nodes": self.nodes_of_loop(i, at) })
            })
            .collect();
        let line = |l: &KernelLines| {
            let block = l.block.map(|b| k.blocks[b as usize].name.as_str());
            let around = l.r#loop.map(|l| k.loops[l as usize].var.as_str());
            json!([l.first + 1, l.first + l.count, block, around])
        };
        let mut kernel = json!({ "id": i, "name": k.name, "file": k.file(i), "layers": layers, "groups": groups, "entry": k.entry,
            "function": k.function, "schedule": k.schedule, "instruction_stages": k.instructions,
            "workgroup": k.workgroup, "bindings": k.bindings.len(), "shared_bytes": k.shared_bytes, "dtype": k.dtype,
            "bounds_proved": k.bounds_proved, "wgsl_bytes": k.wgsl.len(), "nodes": self.nodes_of_stages(i, &[]),
            "blocks": blocks, "loops": loops, "lines": k.lines.iter().map(line).collect::<Vec<_>>() });
        if !k.when.is_empty() {
            kernel["when"] = json!(k.when);
        }
        kernel
    }
}
