//! Makes a trace of a compiled module.

use super::compiled::Compiled;
use super::groups::host_group;
use super::names::Sources;
use super::open::OpenNumbers;
use super::options::CompileOptions;
use crate::dtype::DType;
use crate::graph::{Constant, Module};
use crate::int::{Bounds, Cond, Int, simplify};
use crate::name::Name;
use crate::ops::control::Const;
use crate::passes::default_pipeline;
use crate::plan::{self, EmitKernel, PlanKernel};
use crate::tir::Access;
use crate::trace::{
    Binding, BufferView, Call, CompileTrace, Content, Contents, Group, Kernel, KernelParts, OpenCall, Options, Plan,
    PlanBuffer, StageRecorder, Step, WeightSummary,
};
use rayon::prelude::*;
use std::collections::BTreeSet;

impl CompileTrace {
    /// The trace of a compilation. `model` is a name for people.
    ///
    /// # Errors
    /// When a weight cannot be read, or the generator gives no SPIR-V.
    pub fn new(
        model: &str,
        c: &Compiled,
        options: &CompileOptions,
        emitter: &dyn EmitKernel,
        contents: Contents,
    ) -> Result<CompileTrace, String> {
        let p = &options.pipeline;
        let recording = c.recording.clone().unwrap_or_default();
        let full = contents == Contents::Full;
        let calls = c.open.as_ref().map_or(vec![], |open| open.calls());
        Ok(CompileTrace {
            model: model.into(),
            weft: env!("CARGO_PKG_VERSION").into(),
            profile: serde_json::to_string(&c.profile).map_err(|e| e.to_string())?,
            profile_name: c.profile.name.clone(),
            options: Options {
                amp: p.amp.name().into(),
                layout: p.layout.name().into(),
                fuse: p.fuse.name().into(),
                opt_level: p.opt_level,
                disabled: p.disabled.clone(),
                pipeline: default_pipeline(p),
                scheduling: p.scheduling.clone(),
                asked: p.asked.clone(),
            },
            weights: if full { weights(&recording.constants)? } else { vec![] },
            sources: recording.sources,
            stages: recording.stages,
            passes: c.passes.clone(),
            remarks: c.remarks.clone(),
            dims: c.open.as_ref().map_or(vec![], |open| open.described()),
            groups: c.groups.iter().enumerate().map(|(i, g)| group(g, open_bytes(&calls, i))).collect(),
            kernels: kernels(c, full.then_some(emitter))?,
            plan: plan_of(&c.plan, &calls),
            memory: c.memory,
            transposes: c.transposes,
            parts: vec![],
            compile_ms: c.ms,
            timings: c.timings.clone(),
            times: None,
            errors: None,
            ranges: None,
            driver_stats: None,
            overlay: None,
        })
    }
}

impl CompileTrace {
    /// The trace of a part that the host interprets: its graph, with each node a group of its own.
    pub fn of_host(module: &Module) -> CompileTrace {
        let (f, sources) = (module.main(), Sources::of(module));
        let nodes = f.blocks[f.body].nodes.iter().copied().filter(|&n| !f.nodes[n].op.is::<Const>());
        let recording = StageRecorder::new(module).finish();
        CompileTrace {
            groups: nodes.map(|n| group(&host_group(f, n, &sources), None)).collect(),
            sources: recording.sources,
            stages: recording.stages,
            ..CompileTrace::default()
        }
    }
}

/// Several at a time; each is dropped as soon as it is summed up.
fn weights(constants: &indexmap::IndexMap<Name, Constant>) -> Result<Vec<WeightSummary>, String> {
    let list: Vec<(&Name, &Constant)> = constants.iter().collect();
    list.par_iter().map(|(name, c)| WeightSummary::of(name.as_str(), c)).collect()
}

/// The bytes of group `i` as an expression of open dimensions, where there are some.
fn open_bytes(calls: &[OpenNumbers], i: usize) -> Option<String> {
    let mut own = calls.iter().filter(|c| c.group == i).peekable();
    own.peek()?;
    Some(simplify(&own.fold(Int::new(0), |all, c| all + &c.bytes), &Bounds::new()).to_string())
}

fn group(g: &super::groups::Group, open_bytes: Option<String>) -> Group {
    let texts = |list: &[Name]| list.iter().map(Name::to_string).collect();
    Group {
        function: g.function.to_string(),
        layer: g.layer.to_string(),
        label: g.label.clone(),
        origins: texts(&g.origins),
        inserted: g.inserted,
        stages: g.stages.iter().map(|s| positions(s, &g.origins)).collect(),
        ops: g.ops.iter().map(|o| o.to_string()).collect(),
        nodes: texts(&g.nodes),
        anchor: g.anchor.map(str::to_string),
        layout: g.layout.map(str::to_string),
        rule: g.rule.into(),
        kind: g.kind,
        tensor_function: g.tensor_function.map(|f| f.to_string()),
        host_function: g.host_function.map(|f| f.to_string()),
        reads: g.reads.clone(),
        is_result: g.is_result,
        flops: g.flops,
        bytes: g.bytes,
        open_bytes,
    }
}

/// Where each of `some` is in the sorted list `all`.
fn positions(some: &[Name], all: &[Name]) -> Vec<u32> {
    some.iter().filter_map(|n| all.binary_search(n).ok()).map(|i| i as u32).collect()
}

fn is_half(buffer: &crate::tir::Buffer) -> bool {
    buffer.dtype == DType::F16
}

fn kernels(c: &Compiled, emitter: Option<&dyn EmitKernel>) -> Result<Vec<Kernel>, String> {
    let mut groups: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); c.plan.kernels.len()];
    for d in c.plan.dispatches() {
        groups[d.kernel].insert(d.group);
    }
    let versions = c.open.as_ref().map_or(vec![], |open| open.versions());
    for (k, own) in groups.iter_mut().enumerate() {
        own.extend(c.open.iter().flat_map(|open| open.groups_of(k)));
    }
    let of = |(i, k): (usize, &PlanKernel)| {
        let version = versions.iter().find(|v| v.kernel == i);
        let when = version.map_or(vec![], |v| v.when.iter().map(Cond::to_string).collect());
        Ok(Kernel { when, groups: groups[i].iter().copied().collect(), ..kernel(c, k, emitter)? })
    };
    c.plan.kernels.iter().enumerate().map(of).collect()
}

/// A kernel, without what it is for.
fn kernel(c: &Compiled, k: &PlanKernel, emitter: Option<&dyn EmitKernel>) -> Result<Kernel, String> {
    let f = c.module.tensor_functions.get(&k.function);
    let e = &k.emitted;
    let half = f.is_some_and(|f| e.bindings.iter().any(|b| f.buffers.get(b.buffer).is_some_and(is_half)));
    let spirv = match emitter {
        Some(emitter) => emitter.spirv(e).map_err(|m| format!("kernel {} has no SPIR-V: {m}", e.name))?,
        None => vec![],
    };
    let parts = f.map(|f| KernelParts::of(f, k.part, &e.lines)).unwrap_or_default();
    Ok(Kernel {
        name: k.name.clone(),
        entry: e.name.clone(),
        function: k.function.to_string(),
        instructions: parts.instructions,
        blocks: parts.blocks,
        loops: parts.loops,
        lines: parts.lines,
        schedule: f.map(|f| f.trace.iter().map(crate::tir::InstrRef::text).collect()).unwrap_or_default(),
        when: vec![],
        groups: vec![],
        workgroup: e.workgroup,
        grid: e.grid,
        bindings: e
            .bindings
            .iter()
            .map(|b| Binding {
                buffer: f.and_then(|f| f.buffers.get(b.buffer)).map_or(String::new(), |b| b.name.to_string()),
                slice: b.slice,
                written: b.access == Access::Write,
            })
            .collect(),
        shared_bytes: e.shared_bytes,
        immediate_bytes: e.immediate_bytes,
        dtype: if half { "f16" } else { "f32" }.into(),
        bounds_proved: e.bounds_proved,
        wgsl: e.wgsl.clone(),
        spirv: spirv.iter().flat_map(|w| w.to_le_bytes()).collect(),
    })
}

fn loop_of(l: &plan::Loop) -> Step {
    Step::Loop {
        group: l.group,
        trips: if let plan::Trips::Fixed(n) = l.trips { Some(n) } else { None },
        reads: l.read_before().chain(&l.go_on).map(|v| v.buffer).collect(),
        keeps: {
            let carried = l.carried.iter().flat_map(|c| [c.now, c.next]);
            carried.chain(l.collected.iter().map(|c| c.all)).collect()
        },
        body: plan::nested(&l.body).len(),
    }
}

fn plan_of(p: &plan::Plan, open: &[OpenNumbers]) -> Plan {
    let mut open = open.iter().map(Some);
    let view = |s: &plan::BufferView| BufferView {
        name: s.name.to_string(),
        buffer: s.buffer,
        dtype: s.dtype,
        shape: s.shape.clone(),
        encoding: format!("{:?}", s.encoding),
    };
    let content = |c: &plan::Content| match c {
        plan::Content::Input(i) => Content::Input(*i),
        plan::Content::Constant { name, packer } => {
            Content::Constant { name: name.to_string(), packer: packer.as_ref().map(|p| p.name.to_string()) }
        }
        plan::Content::Pool => Content::Pool,
        plan::Content::Host(_) => Content::Host,
    };
    let mut call = |d: &plan::Dispatch| Call {
        kernel: d.kernel,
        group: d.group,
        buffers: d.buffers.clone(),
        grid: d.grid,
        runs: 1,
        flops: d.flops,
        bytes: d.bytes,
        open: open.next().flatten().filter(|o| o.depends()).map(|o| OpenCall {
            grid: [0, 1, 2].map(|i| o.grid[i].to_string()),
            bytes: o.bytes.to_string(),
            declared: o.declared,
        }),
    };
    let mut step = |s: &plan::Step| match s {
        plan::Step::Gpu(list) => Step::Gpu(list.iter().map(&mut call).collect()),
        plan::Step::Host(h) => Step::Host {
            group: h.group,
            inputs: h.inputs.iter().map(|s| s.buffer).collect(),
            outputs: h.outputs.iter().map(|s| s.buffer).collect(),
        },
        plan::Step::Copy { from, to } => Step::Copy { from: *from, to: *to },
        plan::Step::Branch(b) => Step::Branch {
            group: b.group,
            condition: b.condition.buffer,
            then: plan::nested(&b.then).len(),
            otherwise: plan::nested(&b.otherwise).len(),
        },
        plan::Step::Loop(l) => loop_of(l),
        plan::Step::Call(c) => Step::Call {
            group: c.group,
            callee: c.callee,
            arguments: c.arguments.iter().map(|h| (h.from, h.to)).collect(),
            results: c.results.iter().map(|h| (h.from, h.to)).collect(),
        },
    };
    let mut steps: Vec<Step> = plan::nested(&p.steps).into_iter().map(&mut step).collect();
    let mut functions = vec![];
    for f in &p.functions {
        let first = steps.len();
        steps.extend(plan::nested(&f.body).into_iter().map(&mut step));
        functions.push(crate::trace::PlanFunction { name: f.name.to_string(), first, buffers: f.buffers.clone() });
    }
    Plan {
        buffers: p
            .buffers
            .iter()
            .map(|b| PlanBuffer { content: content(&b.content), bytes: b.bytes, slice_bytes: b.slice_bytes })
            .collect(),
        steps,
        functions,
        inputs: p.inputs.iter().map(view).collect(),
        outputs: p.outputs.iter().map(view).collect(),
    }
}
