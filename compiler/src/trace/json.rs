//! The JSON of `weft compile --json`.

use super::CompileTrace;
use serde_json::{Value, json};

impl CompileTrace {
    /// One object, schema 1.
    pub fn to_json(&self) -> Value {
        let groups: Vec<Value> = self
            .groups
            .iter()
            .enumerate()
            .map(|(i, g)| {
                json!({ "id": i, "origins": g.origins, "ops": g.ops, "anchor": g.anchor, "rule": g.rule,
                    "layout": g.layout, "kind": g.kind, "flops": g.flops, "bytes": g.bytes })
            })
            .collect();
        let kernels: Vec<Value> = self
            .kernels
            .iter()
            .map(|k| {
                json!({ "name": k.name, "schedule": k.schedule, "workgroup": k.workgroup, "bindings": k.bindings.len(),
                    "shared_bytes": k.shared_bytes, "dtype": k.dtype, "bounds_proved": k.bounds_proved,
                    "wgsl_bytes": k.wgsl.len() })
            })
            .collect();
        let calls: Vec<Value> = self
            .calls()
            .map(|c| {
                let k = &self.kernels[c.kernel];
                json!({ "kernel": k.name, "group": c.group, "grid": k.grid })
            })
            .collect();
        let o = &self.options;
        json!({
            "schema": 1, "model": self.model, "profile": self.profile_name,
            "options": { "amp": o.amp, "layout": o.layout, "fuse": o.fuse, "opt_level": o.opt_level },
            "passes": self.passes, "groups": groups, "kernels": kernels, "calls": calls,
            "transposes": self.transposes, "memory": self.memory, "remarks": self.remarks,
            "compile_ms": self.compile_ms,
        })
    }
}
