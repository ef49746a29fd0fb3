//! Support for tests of rules: functions from text, devices with matrix units, and comparison of proposals with the
//! function.

use super::{assert_close, assert_same, evaluate, inputs_of};
use crate::profile::{DeviceProfile, MatrixShape};
use crate::schedule::rules::{Choice, choices, schedule, schedule_with};
use crate::schedule::{ScheduleOptions, ScheduleTarget};
use crate::tir::TensorFunction;

/// The matrices that devices have: rows, columns, depth.
pub const MATRIX_SHAPES: [[u32; 3]; 4] = [[16, 16, 16], [8, 8, 8], [16, 8, 16], [8, 16, 16]];

/// Subgroups that devices have.
pub const SUBGROUP_SIZES: [u32; 4] = [8, 16, 32, 64];

/// A function from its text.
pub fn parsed(text: &str) -> TensorFunction {
    crate::text::parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}")).canonical()
}

/// A device with matrices of one shape, and so many cores that tiles are small; the rule for matrices is asked for.
pub fn matrix_device(mnk: [u32; 3], subgroup: (u32, u32)) -> Asking {
    let shape = MatrixShape { mnk, ab: "f16".into(), cr: "f32".into() };
    let base = DeviceProfile::named("ada").expect("a profile");
    asking(DeviceProfile { matrix_shapes: vec![shape], subgroup, cores: 1000, ..base }, "matmul-matrix")
}

/// A device, and a rule that is asked for by name there: for functions so small that the estimate prefers others.
pub struct Asking {
    /// The device.
    pub profile: DeviceProfile,
    options: ScheduleOptions,
}

impl<'a> From<&'a Asking> for ScheduleTarget<'a> {
    fn from(asking: &'a Asking) -> ScheduleTarget<'a> {
        asking.options.on(&asking.profile)
    }
}

/// Asks for a rule.
pub fn asking(profile: DeviceProfile, rule: &str) -> Asking {
    Asking { profile, options: ScheduleOptions::of_rules([rule]) }
}

/// What the rule proposes, which computes the same.
pub fn proposed<'a>(f: &TensorFunction, p: impl Into<ScheduleTarget<'a>>, rule: &str) -> TensorFunction {
    let s = schedule(f, &[], p).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(s.rule, rule, "declined: {:?}", s.declined);
    let mut g = s.function;
    g.name = f.name;
    assert_same(f, &g);
    g
}

/// What is proposed with another value of one choice.
pub fn chosen<'a>(f: &TensorFunction, p: impl Into<ScheduleTarget<'a>>, choice: Choice) -> TensorFunction {
    let mut g = schedule_with(f, &[], p, &[choice]).unwrap_or_else(|e| panic!("{e}")).function;
    g.name = f.name;
    g
}

/// Each value of each choice but `of_rules`, between rules, computes the same; the number of values.
pub fn assert_every_choice<'a>(f: &TensorFunction, p: impl Into<ScheduleTarget<'a>>, of_rules: &str) -> usize {
    let p = p.into();
    let made = schedule(f, &[], p).unwrap_or_else(|e| panic!("{e}")).function;
    let mut tried = 0;
    for c in choices(&made.trace).into_iter().filter(|c| c.point.as_str() != of_rules) {
        for value in &c.of {
            assert_same(f, &chosen(f, p, Choice { unit: c.unit, point: c.point, value: value.clone() }));
            tried += 1;
        }
    }
    tried
}

/// `g` computes what `f` does, with subgroups of each of these sizes.
pub fn assert_same_on_subgroups(f: &TensorFunction, g: &TensorFunction, sizes: &[u32]) {
    let want = evaluate(f);
    for &size in sizes {
        let made = crate::interpreter::run_scheduled_on_subgroups(g, &inputs_of(g), size as usize);
        let made = made.unwrap_or_else(|e| panic!("subgroups of {size}: {e}"));
        let got: Vec<f64> = made.iter().flat_map(crate::tensor::Tensor::to_f64_vec).collect();
        assert_close(&want, &got, g);
    }
}
