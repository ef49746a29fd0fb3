//! The `weft` command with faults of its own, for `weft bisect` and `weft tune` to find.
//!
//! ```text
//! cargo run -p weft-command --example planted_faults -- bisect net.weft --passes infer-types,lose-constants,fuse-ops
//! PLANTED_RULE=1 cargo run -p weft-command --example planted_faults -- bisect net.weft
//! PLANTED_SLOWNESS=1 cargo run -p weft-command --example planted_faults -- tune net.weft
//! ```
//!
//! `lose-constants` is a pass that halves constants of 3 elements; `off-by-half` is a schedule rule that adds one half
//! to what blocks of at least 40 elements store; `few-threads` a rule with small workgroups, with a choice
//! of faults: wrong results, and candidates that end or stop the process that measures them, as a driver may.

use compiler::graph::{Constant, Module};
use compiler::int::Int;
use compiler::name::Name;
use compiler::passes::{Pass, PassContext, PassDef, PassError};
use compiler::schedule::estimate::{Cost, KernelEstimate};
use compiler::schedule::rules::{Candidate, Decline, Rule, Sketch, Takes, Target, Unit, View, price_as_scheduled};
use compiler::schedule::{Axis, Instruction, InstructionDef, Refusal};
use compiler::tensor::Tensor;
use compiler::tir::{Cond, CondOp, Expr, Stmt, TensorFunction};
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

/// The faults of a candidate. All but the first seem cheap.
const FAULTS: [&str; 5] = ["none", "forgets", "tail", "hangs", "aborts"];

attr_struct! {
    /// Plants a fault in a block.
    pub struct Plant("plant") {
        /// The block.
        pub block: Name = "".into(),
        /// `forgets` stores one half whatever the block reads; `tail` makes the last element wrong; `hangs` and
        /// `aborts` act on the process that measures.
        pub fault: String = String::new(),
    }
}

impl Instruction for Plant {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let measures = std::env::args().nth(1).is_some_and(|command| command == "measure");
        match self.fault.as_str() {
            "hangs" if measures => std::thread::sleep(std::time::Duration::from_secs(3600)),
            "aborts" if measures => std::process::abort(),
            _ => {}
        }
        let buffers = f.buffers.clone();
        f.body.visit_mut(&mut |s| {
            let Stmt::Block(b) = s else { return };
            if b.name != self.block {
                return;
            }
            let dtype = buffers[b.buffer].dtype;
            let last = |n: usize| buffers[b.buffer].shape[n].clone() - 1;
            match self.fault.as_str() {
                "forgets" => b.value = Expr::constant(0.5, dtype),
                "tail" => {
                    let at = |(n, i): (usize, &Int)| Cond { lhs: i.clone(), op: CondOp::Eq, rhs: last(n) };
                    let is_last = b.indices.iter().enumerate().map(at).collect();
                    b.value = Expr::guarded(is_last, b.value.clone() + Expr::constant(1.0, dtype), b.value.clone());
                }
                _ => {}
            }
        });
        Ok(())
    }
}

candidate! {
    /// Workgroups of few threads.
    struct FewThreads {
        /// Threads of a workgroup.
        pub threads: i64,
        /// One of the faults.
        pub fault: String,
    }
}

fn small_workgroups(view: &View<'_>, unit: &Unit) -> Result<Vec<Candidate>, Decline> {
    candidates(view, unit).map(|_| vec![Candidate::new(FewThreads { threads: 8, fault: FAULTS[0].into() })])
}

fn price_of_few_threads(view: &View<'_>, unit: &Unit, candidate: &Candidate) -> Vec<KernelEstimate> {
    let kernels = price_as_scheduled(view, unit, candidate, few_threads);
    kernels.into_iter().map(|k| KernelEstimate { cost: Cost::default(), ..k }).collect()
}

fn few_threads(sketch: &mut Sketch<'_>, unit: &Unit, candidate: &Candidate) -> Result<(), Decline> {
    let chosen = candidate.choices::<FewThreads>()?;
    let vars: Vec<Name> = sketch.loops(unit.output)?.iter().map(|l| l.var).collect();
    let flat = sketch.fuse(&vars, Name::new(&format!("{}_i", unit.output)))?;
    let fault = sketch.choose("fault", &FAULTS.map(String::from), chosen.fault.clone())?;
    if fault == FAULTS[0] {
        let threads = sketch.choose("threads", &[8, 64], chosen.threads)?;
        let parts = sketch.split(flat, &[0, threads], &["g", "t"])?;
        sketch.bind(parts[0], Axis::GroupX)?;
        sketch.bind(parts[1], Axis::LocalX)?;
        return Ok(());
    }
    let parts = sketch.split(flat, &[0, 256, 4], &["g", "t", "v"])?;
    sketch.bind(parts[0], Axis::GroupX)?;
    sketch.bind(parts[1], Axis::LocalX)?;
    sketch.vectorize(parts[2])?;
    sketch.apply(Plant { block: unit.output, fault })?;
    Ok(())
}

fn main() -> ExitCode {
    let slow = Rule {
        name: "few-threads",
        target: Target::Devices,
        takes: Takes::Blocks,
        tiles: false,
        candidates: small_workgroups,
        price: price_of_few_threads,
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
        instructions: vec![InstructionDef::of::<AddHalf>(), InstructionDef::of::<Plant>()],
        rules: [("PLANTED_RULE", rule), ("PLANTED_SLOWNESS", slow)]
            .into_iter()
            .filter_map(|(name, rule)| std::env::var_os(name).map(|_| rule))
            .collect(),
        ..cli::Extensions::default()
    };
    cli::run(std::env::args_os(), extensions)
}
