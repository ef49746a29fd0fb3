//! The `weft` command with an op, a schedule instruction, a schedule rule, a fusion rule and a quirk of one's own.
//!
//! ```text
//! cargo run -p weft-command --example own_parts -- run net.weft
//! ```
//!
//! `cube` is an op, with an importer of ONNX's operator `Cube` of the domain `example`; `reverse-loop` an instruction;
//! `one-workgroup` a rule that uses it, for 64 elements on drivers with the quirk `slow-launch`, else for four;
//! `channel-sums` a rule, with `OWN_LAYOUTS`, for convolutions of NHWC tensors, which it prices so low that layouts
//! change; `siblings` a fusion rule. What a function of one's own has to look like is in `docs/add-an-op.md` and
//! `docs/add-a-rule.md`.

use compiler::graph::{TensorType, ValueId};
use compiler::int::Int;
use compiler::name::Name;
use compiler::onnx::{ImportContext, OnnxImport};
use compiler::ops::unary::{Domain, compute_map, infer_map};
use compiler::ops::{InferContext, Op, OpDef, OpResult};
use compiler::passes::fuse_ops::{FusionRule, GroupGraph};
use compiler::profile::quirks::{Quirk, Seen};
use compiler::schedule::estimate::{Cost, KernelEstimate};
use compiler::schedule::rules::{
    Candidate, Decline, Rule, Scheduled, Sketch, Takes, Target, Unit, View, price_as_scheduled,
};
use compiler::schedule::{
    Axis, ComputeAt, DecomposeReduction, Instruction, InstructionDef, LocalScope, Refusal, Rules, ScheduleError,
    ScheduleOptions, ScheduleProvider, ScheduleTarget,
};
use compiler::te::ComputeContext;
use compiler::tir::{BufferId, Expr, LoopKind, Stmt, TensorFunction};
use compiler::{attr_struct, candidate};
use std::process::ExitCode;
use std::sync::Arc;

attr_struct! {
    /// `scale * x^3`, elementwise.
    pub struct Cube("cube") {
        /// The factor.
        pub scale: f64 = 1.0,
    }
}

impl Op for Cube {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        infer_map(cx, Domain::Float)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        compute_map(cx, Domain::Float, |x, t| x.clone() * x.clone() * x * Expr::constant(self.scale, t))
    }
}

const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Cube", domain: "example", since: 1, import: import_cube }];

fn import_cube(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = Cube { scale: cx.attrs.float("scale").unwrap_or(1.0) };
    let x = cx.input(0)?;
    Ok(vec![cx.add(op, &[x])?])
}

attr_struct! {
    /// Runs a serial loop from its last iteration to its first.
    pub struct ReverseLoop("reverse-loop") {
        /// The loop.
        pub r#loop: Name = "".into(),
    }
}

impl Instruction for ReverseLoop {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let mut found = false;
        f.body.visit_mut(&mut |s| {
            let Stmt::For(l) = s else { return };
            if l.var != self.r#loop || l.kind != LoopKind::Serial {
                return;
            }
            found = true;
            let last = l.extent.clone() - 1 - Int::var(l.var);
            l.body.visit_mut(&mut |s| {
                if let Stmt::Block(b) = s {
                    b.map_ints(&mut |i| i.substitute(self.r#loop, &last));
                }
            });
        });
        if found { Ok(()) } else { Err(Refusal::at(self.r#loop, "is no serial loop")) }
    }
}

/// A driver for which a kernel of one workgroup is worth its while.
const SLOW_LAUNCH: Quirk = Quirk {
    name: "slow-launch",
    what: "takes long to launch many workgroups: small kernels have one",
    seen: &[Seen { driver: "lavapipe", device: "", until: None }],
    versions: "an example",
    evidence: "cli/tests/own_parts.rs",
    goes: "the example goes",
    guards: false,
};

candidate! {
    /// One workgroup, whose threads store the elements from behind.
    struct OneWorkgroup {
        /// Threads of the workgroup.
        pub threads: i64,
    }
}

/// Elements of a lone block that is small enough.
fn elements(view: &View<'_>, unit: &Unit) -> Result<i64, Decline> {
    let loops = view.loops(unit.output)?;
    let mut total = 1;
    for l in &loops {
        total *= view.constant_extent(&l.extent)?;
    }
    let most = if view.profile.quirks.has(&SLOW_LAUNCH) { 64 } else { 4 };
    match loops.is_empty() || total > most {
        true => Err(Decline(format!("{total} elements are more than {most}"))),
        false => Ok(total),
    }
}

/// A thread for each element; one thread for all is for who asks for it.
fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let all = Candidate::new(OneWorkgroup { threads: elements(view, unit)? });
    Ok(vec![all, Candidate::new(OneWorkgroup { threads: 1 }).on_request()])
}

fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    price_as_scheduled(view, unit, candidate, one_workgroup)
}

fn one_workgroup(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<OneWorkgroup>()?;
    let total = elements(&sketch.view(), unit)?;
    let loops = sketch.loops(unit.output)?;
    let vars: Vec<Name> = loops.iter().map(|l| l.var).collect();
    let flat = sketch.fuse(&vars, Name::new(&format!("{}_i", unit.output)))?;
    sketch.apply(ReverseLoop { r#loop: flat })?;
    let threads = sketch.choose("threads", &[total, 1], chosen.threads)?;
    let parts = sketch.split(flat, &[1, threads, 0], &["g", "t", "i"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    Ok(())
}

candidate! {
    /// A thread for each result of a convolution.
    struct ChannelSum {
        /// Threads of a workgroup.
        pub threads: i64,
    }
}

/// Convolutions whose channels lie next to each other: those of NHWC tensors.
fn channel_sums(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let reduce = unit.reduce.filter(|_| unit.window.is_none()).ok_or_else(Decline::other_kind)?;
    let sums = view.f.reduction_loops(reduce);
    let block = view.block(reduce).ok_or_else(Decline::other_kind)?;
    let channels = |ix: &[Int]| ix.last().and_then(|i| i.as_var()).is_some_and(|v| sums.contains(&v));
    let window = |ix: &[Int]| ix.iter().any(|i| i.vars().len() == 2);
    match block.value.loads().iter().any(|(_, ix)| window(ix) && channels(ix)) {
        true => Ok(vec![Candidate::new(ChannelSum { threads: 64 })]),
        false => Err(Decline::other_kind()),
    }
}

/// A tenth of what the kernel takes by the estimate, as if the device had a unit for it.
fn price_of_channel_sum(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let mut kernels = price_as_scheduled(view, unit, candidate, channel_sum);
    kernels.iter_mut().for_each(|k| k.cost = Cost { arithmetic: k.total() / 10.0, ..Cost::default() });
    kernels
}

fn channel_sum(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let threads = candidate.choices::<ChannelSum>()?.threads;
    let block = unit.reduce.ok_or_else(Decline::other_kind)?;
    let vars: Vec<Name> = sketch.loops(unit.output)?.iter().map(|l| l.var).collect();
    let flat = sketch.fuse(&vars, Name::new(&format!("{}_i", unit.output)))?;
    let parts = sketch.split(flat, &[0, threads], &["g", "t"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    sketch.apply(ComputeAt { block, at: parts[1], scope: LocalScope::Register })?;
    let first = sketch.f.reduction_loops(block).first().copied().ok_or_else(Decline::other_kind)?;
    sketch.apply(DecomposeReduction { block, at: first })?;
    Ok(())
}

/// Joins lone nodes of one operand that read the same value and have one shape: its elements are loaded once.
fn siblings(cx: &mut GroupGraph<'_, '_>) {
    let groups = cx.groups();
    for (i, first) in groups.iter().enumerate() {
        for second in &groups[i + 1..] {
            let ([a, b], f) = (
                match (&first[..], &second[..]) {
                    (&[a], &[b]) => [a, b],
                    _ => continue,
                },
                cx.f,
            );
            let (a_node, b_node) = (&f.nodes[a], &f.nodes[b]);
            let lone = a_node.inputs.len() == 1 && b_node.inputs == a_node.inputs;
            if lone && f.ty(a_node.outputs[0]).shape == f.ty(b_node.outputs[0]).shape {
                let what = format!("{} beside {}, which reads the same", b_node.name, a_node.name);
                if cx.join("siblings", [a, b], what).is_ok() {
                    return;
                }
            }
        }
    }
}

/// The rules, but for functions of at most 16 results, which get a thread for each.
struct SmallOnes;

impl ScheduleProvider for SmallOnes {
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        let results: Vec<i64> = function.outputs().filter_map(|b| function.buffers[b].numel().as_const()).collect();
        if results.is_empty() || results.iter().any(|n| *n > 16) || !target.options.rules.is_empty() {
            return Rules.schedule(function, constants, target);
        }
        let direct = ScheduleOptions::of_rules(["direct"]);
        Rules.schedule(function, constants, direct.on(target.profile))
    }
    fn identity(&self, _: &compiler::profile::DeviceProfile) -> Option<String> {
        Some("small ones are direct".into())
    }
}

fn rules() -> Vec<Rule> {
    let one_workgroup = Rule {
        name: "one-workgroup",
        target: Target::Devices,
        takes: Takes::Blocks,
        tiles: false,
        candidates,
        price,
        apply: one_workgroup,
    };
    let channel_sums = Rule {
        name: "channel-sums",
        target: Target::Devices,
        takes: Takes::Reductions,
        tiles: false,
        candidates: channel_sums,
        price: price_of_channel_sum,
        apply: channel_sum,
    };
    std::iter::once(one_workgroup).chain(std::env::var_os("OWN_LAYOUTS").map(|_| channel_sums)).collect()
}

fn main() -> ExitCode {
    let extensions = cli::Extensions {
        ops: vec![(OpDef::of::<Cube>(), ONNX)],
        instructions: vec![InstructionDef::of::<ReverseLoop>()],
        rules: rules(),
        fusion_rules: vec![FusionRule {
            name: "siblings",
            looks_for: "nodes of one operand that read the same value",
            apply: siblings,
        }],
        quirks: vec![SLOW_LAUNCH],
        schedules: std::env::var_os("OWN_SCHEDULES").map(|_| Arc::new(SmallOnes) as Arc<dyn ScheduleProvider>),
        ..cli::Extensions::default()
    };
    cli::run(std::env::args_os(), extensions)
}
