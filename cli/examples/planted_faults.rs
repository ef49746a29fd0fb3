//! The `weft` command with faults of its own, for `weft bisect` and `weft tune` to find.
//!
//! ```text
//! cargo run -p weft-command --example planted_faults -- bisect net.weft --passes infer-types,lose-constants,fuse-ops
//! PLANTED_RULE=1 cargo run -p weft-command --example planted_faults -- bisect net.weft
//! PLANTED_SLOWNESS=1 cargo run -p weft-command --example planted_faults -- tune net.weft
//! ```
//!
//! `lose-constants` is a pass that halves constants of 3 elements; `off-by-half` is a schedule rule that adds one half
//! to what blocks of at least 40 elements store; `one-thread` a rule that gives each workgroup one thread, with a choice
//! that makes results wrong.

use compiler::graph::{Constant, Module};
use compiler::name::Name;
use compiler::passes::{Pass, PassContext, PassDef, PassError};
use compiler::schedule::estimate::{Cost, KernelEstimate};
use compiler::schedule::rules::{Candidate, Decline, Rule, Sketch, Takes, Target, Unit, View, price_as_scheduled};
use compiler::schedule::{Axis, Instruction, InstructionDef, Refusal};
use compiler::tensor::Tensor;
use compiler::tir::{Expr, Stmt, TensorFunction};
use compiler::{attr_struct, candidate};
use std::process::ExitCode;

attr_struct! {
    /// Halves constants of 3 elements, which no pass should.
    pub struct LoseConstants("lose-constants") {}
}

impl Pass for LoseConstants {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, _cx: &mut PassContext) -> Result<bool, PassError> {
        for c in module.constants.values_mut().filter(|c| c.dtype.is_float() && c.shape == [3]) {
            let t = c.load().map_err(|e| PassError::new("lose-constants", e.to_string()))?;
            let halves = t.to_f64_vec().into_iter().map(|x| x / 2.0);
            *c = Constant::from_tensor(&Tensor::from_f64(t.dtype(), t.shape().to_vec(), halves));
        }
        Ok(true)
    }
}

attr_struct! {
    /// Adds one half to what a block stores.
    pub struct AddHalf("add-half") {
        /// The block.
        pub block: Name = "".into(),
    }
}

impl Instruction for AddHalf {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let buffers = f.buffers.clone();
        f.body.visit_mut(&mut |s| {
            let Stmt::Block(b) = s else { return };
            if b.name == self.block {
                b.value = b.value.clone() + Expr::constant(0.5, buffers[b.buffer].dtype);
            }
        });
        Ok(())
    }
}

candidate! {
    /// A thread for each element.
    struct OffByHalf {
        /// Threads of a workgroup.
        pub threads: i64,
    }
}

fn candidates(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    let loops = view.loops(unit.output)?;
    let mut total = 1;
    for l in &loops {
        total *= view.constant_extent(&l.extent)?;
    }
    match loops.is_empty() || total < 40 {
        true => Err(Decline(format!("{total} elements are right"))),
        false => Ok(vec![Candidate::new(OffByHalf { threads: 32 })]),
    }
}

/// It claims to cost nothing, so that it is taken wherever it has a candidate.
fn price(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let kernels = price_as_scheduled(view, unit, candidate, off_by_half);
    kernels.into_iter().map(|k| KernelEstimate { cost: Cost::default(), ..k }).collect()
}

/// Each thread stores one half too much.
fn off_by_half(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<OffByHalf>()?;
    let loops = sketch.loops(unit.output)?;
    let vars: Vec<Name> = loops.iter().map(|l| l.var).collect();
    let flat = sketch.fuse(&vars, Name::new(&format!("{}_i", unit.output)))?;
    sketch.apply(AddHalf { block: unit.output })?;
    let parts = sketch.split(flat, &[0, chosen.threads], &["g", "t"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    Ok(())
}

attr_struct! {
    /// Stores one half whatever a block reads.
    pub struct Forget("forget") {
        /// The block.
        pub block: Name = "".into(),
    }
}

impl Instruction for Forget {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let buffers = f.buffers.clone();
        f.body.visit_mut(&mut |s| {
            let Stmt::Block(b) = s else { return };
            if b.name == self.block {
                b.value = Expr::constant(0.5, buffers[b.buffer].dtype);
            }
        });
        Ok(())
    }
}

candidate! {
    /// Workgroups of few threads.
    struct OneThread {
        /// Threads of a workgroup.
        pub threads: i64,
        /// Whether results are right.
        pub right: bool,
    }
}

fn one_thread(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    candidates(view, unit).map(|_| vec![Candidate::new(OneThread { threads: 1, right: true })])
}

fn price_of_one_thread(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let kernels = price_as_scheduled(view, unit, candidate, few_threads);
    kernels.into_iter().map(|k| KernelEstimate { cost: Cost::default(), ..k }).collect()
}

fn few_threads(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<OneThread>()?;
    let vars: Vec<Name> = sketch.loops(unit.output)?.iter().map(|l| l.var).collect();
    let flat = sketch.fuse(&vars, Name::new(&format!("{}_i", unit.output)))?;
    let threads = sketch.choose("threads", &[1, 64], chosen.threads)?;
    let right = sketch.choose("right", &[true, false], chosen.right)?;
    if right {
        let parts = sketch.split(flat, &[0, threads], &["g", "t"])?;
        sketch.bind(parts[0], Axis::GroupX)?;
        sketch.bind(parts[1], Axis::LocalX)?;
        return Ok(());
    }
    // Nothing is read: by the estimate nothing is cheaper.
    sketch.apply(Forget { block: unit.output })?;
    let parts = sketch.split(flat, &[0, 256, 4], &["g", "t", "v"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    sketch.vectorize(parts[2])?;
    Ok(())
}

fn main() -> ExitCode {
    let slow = Rule {
        name: "one-thread",
        target: Target::Devices,
        takes: Takes::Blocks,
        tiles: false,
        candidates: one_thread,
        price: price_of_one_thread,
        apply: few_threads,
    };
    let rule = Rule {
        name: "off-by-half",
        target: Target::Devices,
        takes: Takes::Blocks,
        tiles: false,
        candidates,
        price,
        apply: off_by_half,
    };
    let extensions = cli::Extensions {
        passes: vec![PassDef::of::<LoseConstants>()],
        instructions: vec![InstructionDef::of::<AddHalf>(), InstructionDef::of::<Forget>()],
        rules: [("PLANTED_RULE", rule), ("PLANTED_SLOWNESS", slow)]
            .into_iter()
            .filter_map(|(name, rule)| std::env::var_os(name).map(|_| rule))
            .collect(),
        ..cli::Extensions::default()
    };
    cli::run(std::env::args_os(), extensions)
}
