//! Networks with NaN in their inputs: the same results are NaN on the device, and none disappears in mixed precision.
//!
//! Infinities and resizes are left out: if a driver knows that a weight is 0, it may compute 0 from NaN or infinity. So
//! are sums and differences in which a term has both signs, as in `max(x, x) - x` or `(c - x) + x`: drivers cancel it.

use super::tally::Tally;
use super::targets::{self, Target};
use super::{build, check, config, inputs_of, modes, recipe, rounding};
use benches::test_device::test_device;
use compiler::agreement::Tolerance;
use compiler::attr::AttrStruct;
use compiler::compile::{CompileOptions, compile};
use compiler::dtype::DType;
use compiler::graph::{Module, NodeId, ValueId};
use compiler::interpreter::run_function;
use compiler::ops::binary::{Add, Max, Sub};
use compiler::passes::{AmpMode, PipelineOptions, Winograd};
use compiler::tensor::Tensor;
use compiler::text::print_module;
use proptest::prelude::*;
use runtime_gpu::{Session, SessionOptions};
use shaders_gen::Emitter;

/// NaN of either sign, which differ where bits are compared.
const PLANTED: [u32; 4] = [0x7fc0_0000, 0xffc0_0000, 0x7fff_ffff, 0xff80_0001];

/// The inputs with one of [`PLANTED`] in some places.
fn plant(inputs: &[Tensor], places: &[(usize, usize)]) -> Vec<Tensor> {
    let planted = |t: &Tensor| {
        let mut values = t.to_f32_vec();
        for &(at, which) in places {
            let n = values.len();
            if let Some(v) = values.get_mut(at % n.max(1)) {
                *v = f32::from_bits(PLANTED[which]);
            }
        }
        Tensor::from_vec(t.shape().to_vec(), values)
    };
    inputs.iter().map(planted).collect()
}

/// True if a sum or a difference has a term with both signs, alone, moved, or in sums, differences and maxima.
fn cancels(m: &Module) -> bool {
    let f = m.main();
    let sums = |n: &&NodeId| {
        let node = &f.nodes[**n];
        let op = &node.op;
        // A term may be reshaped, or moved, before it is added.
        op.is::<Add>() || op.is::<Sub>() || op.is::<Max>() || node.inputs.iter().flatten().count() == 1
    };
    let made_by = |v: ValueId| f.walk().into_iter().find(|n| f.nodes[*n].outputs.contains(&v));
    let operands = |n: NodeId, negated: bool| {
        let flips = [false, f.nodes[n].op.is::<Sub>()];
        let values: Vec<ValueId> = f.nodes[n].inputs.iter().flatten().copied().collect();
        values.into_iter().zip(flips).map(move |(v, flip)| (v, negated ^ flip))
    };
    let terms = |term: (ValueId, bool)| {
        let (mut all, mut open) = (vec![], vec![term]);
        while let Some((v, negated)) = open.pop() {
            all.push((v, negated));
            let sum = made_by(v).filter(|n| sums(&n));
            open.extend(sum.into_iter().flat_map(|n| operands(n, negated)));
        }
        all
    };
    f.walk().into_iter().filter(|n| f.nodes[*n].op.is::<Add>() || f.nodes[*n].op.is::<Sub>()).any(|n| {
        let both: Vec<(ValueId, bool)> = operands(n, false).collect();
        let [a, b] = both[..] else { return false };
        let others = terms(b);
        terms(a).iter().any(|&(v, negated)| others.contains(&(v, !negated)))
    })
}

fn on_device(
    m: &Module,
    options: PipelineOptions,
    target: &Target,
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, TestCaseError> {
    let gpu = test_device().map_err(TestCaseError::fail)?;
    let fail = |e: String| TestCaseError::fail(format!("{e}{target}\n{}", print_module(m)));
    let options = CompileOptions { pipeline: target.asking(options), ..CompileOptions::default() };
    let c = compile(m.clone(), &options, &target.on(&gpu.profile), &Emitter, &mut |_, _, _| ())
        .map_err(|e| fail(e.to_string()))?;
    let session = Session::open(gpu, &c.plan, &c.module, &SessionOptions::default(), &mut |_, _, _| ());
    session.and_then(|s| s.run(inputs)).map_err(|e| fail(e.to_string()))
}

fn places() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0usize..4096, 0..PLANTED.len()), 1..4)
}

#[test]
fn nan_is_kept_on_the_device() {
    let tally = Tally::default();
    let drawn = (recipe::network(), modes(), targets::target(), 0u64..1000, places());
    proptest!(config(), |((network, options, target, seed, places) in drawn)| {
        let drawn = build(&network.without_zero_weights());
        tally.drawn(&drawn);
        let m = drawn.module;
        if cancels(&m) {
            tally.rejected();
            return Err(TestCaseError::reject("a term that cancels"));
        }
        // Winograd's transforms hand NaN to neighbours.
        let disabled = vec![Winograd::NAME.to_string()];
        let options = PipelineOptions { config: Default::default(), disabled, ..options };
        let inputs = plant(&inputs_of(&m, seed), &places);
        let want = run_function(&m, m.entry, &inputs).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let got = on_device(&m, options, &target, &inputs)?;
        check(&want, &got, &Tolerance::new(DType::F32, None, None), &format!("with {places:?}{target}"), &m)?;
    });
    tally.report("NaN is kept");
}

#[test]
fn nan_is_kept_in_mixed_precision() {
    let tally = Tally::default();
    let drawn = (recipe::network(), modes(), targets::half_target(), 0u64..1000, places());
    proptest!(config(), |((network, options, target, seed, places) in drawn)| {
        let drawn = build(&network.without_zero_weights());
        tally.drawn(&drawn);
        let m = drawn.module;
        if cancels(&m) {
            tally.rejected();
            return Err(TestCaseError::reject("a term that cancels"));
        }
        let inputs = inputs_of(&m, seed);
        let run = |inputs: &[Tensor]| run_function(&m, m.entry, inputs).map_err(|e| TestCaseError::fail(e.to_string()));
        if !rounding::bears_rounding(&m, &inputs, &run(&inputs)?).map_err(TestCaseError::fail)? {
            tally.rejected();
            return Err(TestCaseError::reject("rounding alone moves its results"));
        }
        let inputs = plant(&inputs, &places);
        let options = PipelineOptions { amp: AmpMode::Fp16, config: Default::default(), ..options };
        let (want, got) = (run(&inputs)?, on_device(&m, options, &target, &inputs)?);
        for (w, g) in want.iter().zip(&got) {
            let lost = w.to_f32_vec().iter().zip(g.to_f32_vec()).filter(|(w, g)| w.is_nan() && !g.is_nan()).count();
            prop_assert_eq!(lost, 0, "NaN lost with {:?}{}\n{}", &places, &target, print_module(&m));
        }
    });
    tally.report("NaN is kept in mixed precision");
}
