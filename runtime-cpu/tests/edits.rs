//! Random edits of schedules on every instruction set that this machine has, as `shaders-gen/tests/gpu/edits.rs` has
//! them on a device: the same workloads and edits, of what the rules for processors propose.
//!
//! `WEFT_CPU_EDITS` sets the number of edits (default 2000), `WEFT_SEED` the first seed.

#[path = "../../shaders-gen/tests/gpu/edits/draw.rs"]
mod draw;
#[path = "../../shaders-gen/tests/gpu/edits/hold.rs"]
mod hold;
#[path = "functions/plan.rs"]
mod plan;
// The device's tests have workloads that edits do not use.
#[allow(dead_code)]
#[path = "../../shaders-gen/tests/gpu/workloads.rs"]
mod workloads;

use compiler::dtype::DType;
use compiler::name::Name;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::tir::{BufferId, TensorFunction};
use hold::{Base, bases_for, edited, edited_text, hold, kernels_of, setting};
use plan::{NoFunctions, plan_of};
use runtime_cpu::{Isa, Processor, Session};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn bases() -> Vec<Base> {
    let available = |isa: &Isa| {
        if !isa.is_available() {
            println!("SKIPPED: this machine has no {}", isa.name());
        }
        isa.is_available()
    };
    let profiles = Isa::ALL.into_iter().filter(available).map(|isa| {
        let profile = DeviceProfile::processor(2, isa.tile());
        DeviceProfile { name: isa.name().into(), ..profile }
    });
    profiles.flat_map(|p| bases_for(&p, &[DType::F32, DType::F16])).collect()
}

#[test]
fn of_instructions() {
    hold(&bases(), setting("WEFT_CPU_EDITS", 2000), 4, edited, &on_processor_if_taken);
}

#[test]
fn of_lines() {
    hold(&bases(), setting("WEFT_CPU_EDITS", 2000) / 2, 8, edited_text, &on_processor_if_taken);
}

/// What the processor gives; `None` where no task can run the kernels, as those with threads.
fn on_processor_if_taken(base: &Base, f: &TensorFunction) -> Option<Result<Vec<f64>, String>> {
    let f = kernels_of(f);
    let isa = Isa::ALL.into_iter().find(|isa| base.profile.name == isa.name())?;
    let packed = |b: &BufferId| f.prepacks.iter().any(|p| p.buffer == *b);
    let constants: Vec<BufferId> = f.inputs().enumerate().filter(|(n, b)| *n > 0 || packed(b)).map(|i| i.1).collect();
    let plan = plan_of(&f, &constants, &base.profile).ok().filter(|p| !p.kernels.is_empty())?;
    let run = || -> Result<Vec<f64>, String> {
        let processor = Arc::new(Processor::open(1, Some(isa)).map_err(|e| e.to_string())?);
        let each = || f.inputs().zip(&base.inputs);
        let named = |name: Name| each().find(|(b, _)| f.buffers[*b].name == name).map(|(_, t)| t.clone());
        let load = |name: Name| named(name).ok_or_else(|| format!("there is no constant {name}").into());
        let session = Session::open(processor, &plan, &load).map_err(|e| e.to_string())?;
        let given: Vec<Tensor> = each().filter(|(b, _)| !constants.contains(b)).map(|(_, t)| t.clone()).collect();
        let results = session.run(&given, &NoFunctions).map_err(|e| e.to_string())?;
        Ok(results.iter().flat_map(Tensor::to_f64_vec).collect())
    };
    // A check of bounds that fails is a panic; the seed is printed with it.
    Some(catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("a panic".into())))
}
