//! How fast this machine's processor computes, beside what the estimate says.

use compiler::compile::{CompileOptions, compile};
use compiler::cost::{CostModel, EstimatedCost, NodeForm};
use compiler::interpreter::HostFunctions;
use compiler::profile::{CostFactors, DeviceProfile};
use compiler::tensor::Tensor;
use runtime_cpu::{Isa, Processor, Session, Work};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Timed runs of the product; the fastest counts.
const RUNS: usize = 10;

/// The profile of this machine's processor, whose estimate of arithmetic has the factor by which a product takes longer
/// here than estimated: the prices are of another processor. External targets are timed here, and their times are
/// compared with the estimate. It is measured once in a process, in steps of a quarter of an octave, so that plans in a
/// cache are found again. Other profiles, and those with factors, stay as they are.
pub fn with_arithmetic(profile: DeviceProfile) -> DeviceProfile {
    static MEASURED: Mutex<BTreeMap<(&'static str, u32), f64>> = Mutex::new(BTreeMap::new());
    let Some(isa) = Processor::isa_of(&profile).filter(|_| profile.factors.are_one()) else { return profile };
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let ratio = || {
        let ratio = measured_over_estimated(&profile, isa)?;
        Some((4.0 * ratio.log2()).round() / 4.0).filter(|r| r.is_finite()).map(f64::exp2)
    };
    let arithmetic = *measured.entry((isa.name(), profile.cores)).or_insert_with(|| ratio().unwrap_or(1.0));
    DeviceProfile { factors: CostFactors { arithmetic, ..profile.factors }, ..profile }
}

/// The time of a product by the estimate of it; `None` where it does not run.
fn measured_over_estimated(profile: &DeviceProfile, isa: Isa) -> Option<f64> {
    let module = compiler::text::parse_module(&product_in_tiles(profile).0).ok()?;
    let f = module.functions.values().next()?;
    let product = f.blocks[f.body].nodes.first()?;
    let estimated = EstimatedCost::new(profile).node(&NodeForm::of(f, *product)) as f64;
    let options = CompileOptions::default();
    let compiled = compile(module, &options, profile, &runtime_cpu::Emitter, &mut |_, _, _| ()).ok()?;
    let processor = Arc::new(Processor::open(profile.cores as usize, Some(isa)).ok()?);
    let load = |_| Err("the product has no constants".into());
    let session = Session::open(processor, &compiled.plan, &load).ok()?;
    let inputs: Vec<Tensor> = compiled.plan.inputs.iter().map(|v| Tensor::zeros(v.dtype, v.shape.clone())).collect();
    let run = |_| {
        let (_, spans) = session.run_measured(&inputs, &HostFunctions::default()).ok()?;
        Some(spans.iter().filter(|s| matches!(s.work, Work::Kernel(_))).map(|s| (s.end - s.start) * 1e3).sum::<f64>())
    };
    let measured = (0..RUNS).filter_map(run).fold(f64::INFINITY, f64::min);
    Some(measured / estimated.max(1.0))
}

/// The text of a product whose tiles find their operands in the first cache, and its operations. An odd number of tiles
/// of columns: rows a power of two apart would share a set of it.
pub(crate) fn product_in_tiles(p: &DeviceProfile) -> (String, f64) {
    let [rows, columns] = p.machine.register_tile().unwrap_or([1; 2]).map(|n| n as usize);
    // Long enough that the start of the threads does not count.
    let (m, n, k) = (64 * rows, columns * (32 * p.cores as usize + 1), 128);
    let text = format!(
        "graph @main(%a: f32[{m},{k}], %b: f32[{k},{n}]) -> (y: f32[{m},{n}]) {{
  %y = matmul %a, %b : f32[{m},{n}]
  return %y
}}
"
    );
    (text, 2.0 * (m * n * k) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_has_a_factor_that_stays() {
        let own = Processor::open(1, None).expect("the processor").profile();
        let measured = with_arithmetic(own.clone());
        assert!((1e-3..1e3).contains(&measured.factors.arithmetic) && measured == with_arithmetic(own.clone()));
        // Those of tuning are kept, and other machines are not measured.
        let tuned = DeviceProfile { factors: CostFactors { launch: 2.0, ..own.factors }, ..own };
        for p in DeviceProfile::all().into_iter().chain([tuned]) {
            assert_eq!(with_arithmetic(p.clone()), p);
        }
    }
}
