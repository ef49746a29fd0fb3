//! Random edits of schedules as C: the same workloads and edits as `runtime-cpu/tests/edits.rs` has, of what the rules
//! propose for the processor, built with every warning an error and with AddressSanitizer and
//! UndefinedBehaviorSanitizer.
//!
//! `WEFT_C_EDITS` sets the number of edits (default 40), `WEFT_SEED` the first seed.

#[path = "../../c-source/tests/shared/built.rs"]
mod built;
#[path = "../../shaders-gen/tests/gpu/edits/draw.rs"]
mod draw;
// Lines of a schedule's text are edited elsewhere.
#[allow(dead_code)]
#[path = "../../shaders-gen/tests/gpu/edits/hold.rs"]
mod hold;
// Other tests run the plans of the CPU target.
#[allow(dead_code)]
#[path = "../../runtime-cpu/tests/functions/plan.rs"]
mod plan;
// The device's tests have workloads that edits do not use.
#[allow(dead_code)]
#[path = "../../shaders-gen/tests/gpu/workloads.rs"]
mod workloads;

use compiler::dtype::DType;
use compiler::plan::{Content, EmitKernel, Plan, PlanBuffer};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::tir::{BufferId, TensorFunction};
use hold::{Base, bases_for, edited, hold, kernels_of, setting};
use plan::plan_by;
use runtime_cpu::{Isa, pack_constant};

const CHECKS: [&str; 4] = ["-O1", "-march=native", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[test]
fn accepted_edits_compute_the_same_in_c() {
    // A vector of C has 4, 8 or 16 floats on any machine.
    let profiles = Isa::ALL.into_iter().map(|isa| {
        let profile = DeviceProfile::processor(1, isa.tile());
        DeviceProfile { name: isa.name().into(), ..profile }
    });
    let bases: Vec<Base> = profiles.flat_map(|p| bases_for(&p, &[DType::F32, DType::F16])).collect();
    hold(&bases, setting("WEFT_C_EDITS", 40), 2, edited, &in_c_if_it_has_any);
}

/// What the C gives; `None` where there is none, as for kernels with threads.
fn in_c_if_it_has_any(base: &Base, f: &TensorFunction) -> Option<Result<Vec<f64>, String>> {
    let f = kernels_of(f);
    let packed = |b: &BufferId| f.prepacks.iter().any(|p| p.buffer == *b);
    let constants: Vec<BufferId> = f.inputs().enumerate().filter(|(n, b)| *n > 0 || packed(b)).map(|i| i.1).collect();
    let emit = |part| c_source::Emitter.emit(&f, part, &base.profile);
    let plan = plan_by(&f, &constants, &emit).ok().filter(|p| !p.kernels.is_empty())?;
    Some(results(base, &f, &constants, &plan))
}

fn results(base: &Base, f: &TensorFunction, constants: &[BufferId], plan: &Plan) -> Result<Vec<f64>, String> {
    let each = || f.inputs().zip(&base.inputs);
    let packed = |b: &PlanBuffer| {
        let Content::Constant { name, packer } = &b.content else { return Ok(vec![]) };
        let data = each().find(|(b, _)| f.buffers[*b].name == *name).map(|(_, t)| t.clone());
        let data = data.ok_or_else(|| format!("there is no constant {name}"))?;
        Ok(pack_constant(b, data, packer.as_deref(), Isa::best())?)
    };
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    for file in c_source::program(plan, &packed, "an edited schedule")? {
        std::fs::write(folder.path().join(file.name), &file.bytes).map_err(|e| e.to_string())?;
    }
    // The first compiler: the sanitizers of others may not be installed.
    built::build(folder.path(), built::compilers()[0], &CHECKS)?;
    let given: Vec<&[u8]> = each().filter(|(b, _)| !constants.contains(b)).map(|(_, t)| &t.bytes()[..]).collect();
    let made = built::run(folder.path(), &given, plan.outputs.len())?;
    let read = |(v, bytes): (&compiler::plan::BufferView, Vec<u8>)| {
        Tensor::from_bytes(v.dtype, v.shape.clone(), bytes.into()).map(|t| t.to_f64_vec())
    };
    let all = plan.outputs.iter().zip(made).map(read).collect::<Result<Vec<_>, String>>()?;
    Ok(all.concat())
}
