//! The `weft` command with faults of its own, for `weft bisect` to find.
//!
//! ```text
//! cargo run -p weft-command --example planted_faults -- bisect net.weft --passes infer-types,lose-constants,fuse-ops
//! PLANTED_RULE=1 cargo run -p weft-command --example planted_faults -- bisect net.weft
//! ```
//!
//! `lose-constants` is a pass that halves constants of 3 elements; `off-by-half` is a schedule rule that adds one half to what blocks of at least 40
//! elements store.

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

fn main() -> ExitCode {
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
        instructions: vec![InstructionDef::of::<AddHalf>()],
        rules: std::env::var_os("PLANTED_RULE").map(|_| rule).into_iter().collect(),
        ..cli::Extensions::default()
    };
    cli::run(std::env::args_os(), extensions)
}
