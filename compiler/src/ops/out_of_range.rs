//! Operands that name elements which do not exist (indices of gathers and scatters beyond a dimension), and integer
//! divisors that are 0.
//!
//! ONNX forbids both. A constant one is refused on import. For all other data there is one rule on every device
//! (docs/ir.md): a gather takes the nearest element, or 0 if the dimension is empty; a scatter drops the update; an
//! integer divided by 0 is 0, with remainder 0. An index of `-d..0` counts from the end of a dimension of `d`. The
//! interpreter counts such elements on request.

use crate::dtype::DType;
use crate::graph::TensorType;
use crate::int::{Cond, Dim, Int};
use crate::tensor::Tensor;
use crate::tir::{BufferId, Expr};

/// The condition on an operand's elements.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// Indices: element `n` is one into a dimension of `sizes[n % sizes.len()]` elements.
    Indices {
        /// The operand.
        operand: usize,
        /// The dimensions.
        sizes: Vec<Dim>,
    },
    /// Divisors of integers.
    Divisors {
        /// The operand.
        operand: usize,
    },
}

/// Elements that are out of range.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct OutOfRange {
    /// How many there are.
    pub count: u64,
    /// The error of the first one.
    pub first: String,
}

impl Checked {
    /// The indices of `operand` into dimension `axis` of operand 0.
    pub(super) fn along(types: &[Option<&TensorType>], operand: usize, axis: i64) -> Option<Checked> {
        let data = types.first().copied().flatten()?;
        let axis = super::permute::normalize_axis(axis, data.rank()).ok()?;
        Some(Checked::Indices { operand, sizes: vec![data.shape[axis].clone()] })
    }
    /// The coordinates in the last dimension of operand 1 into the dimensions of operand 0 from `first` on.
    pub(super) fn coordinates(types: &[Option<&TensorType>], first: usize) -> Option<Checked> {
        let (data, indices) = (types.first().copied().flatten()?, types.get(1).copied().flatten()?);
        let depth = usize::try_from(indices.shape.last()?.as_const()?).ok()?;
        Some(Checked::Indices { operand: 1, sizes: data.shape.get(first..first.checked_add(depth)?)?.to_vec() })
    }
    /// Operand 1 as divisors, if it has integers.
    pub(super) fn divisors(types: &[Option<&TensorType>]) -> Option<Checked> {
        let integers = types.get(1).copied().flatten()?.dtype.is_int();
        integers.then_some(Checked::Divisors { operand: 1 })
    }
    /// The operand whose elements these are.
    pub fn operand(&self) -> usize {
        match self {
            Checked::Indices { operand, .. } | Checked::Divisors { operand } => *operand,
        }
    }
    /// The elements of the operand that are out of range. Dimensions that are not known are not checked.
    pub fn count(&self, elements: &Tensor) -> OutOfRange {
        let mut found = OutOfRange::default();
        let mut note = |what: &dyn Fn() -> String| {
            if found.count == 0 {
                found.first = what();
            }
            found.count += 1;
        };
        for (n, &v) in elements.to_i64_vec().iter().enumerate() {
            match self {
                Checked::Divisors { operand } if v == 0 => {
                    note(&|| format!("element {n} of operand {operand}, by which integers are divided, is 0"));
                }
                Checked::Indices { operand, sizes } if !sizes.is_empty() => match sizes[n % sizes.len()].as_const() {
                    Some(d) if v < -d || v >= d => {
                        note(&|| {
                            format!("index {v} (element {n} of operand {operand}) is outside of a dimension of {d}")
                        });
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        found
    }
}

/// The element of `x` at `at`; 0 if one of the dimensions that are indexed by data is empty.
pub(super) fn load_nearest(x: BufferId, at: Vec<Int>, indexed: &[Int], dtype: DType) -> Expr {
    if indexed.iter().any(|d| d.is(0)) {
        return Expr::int(0, dtype);
    }
    let open: Vec<Cond> = indexed.iter().filter(|d| d.as_const().is_none()).map(|d| Cond::ge(d, 1)).collect();
    if open.is_empty() { Expr::load(x, at) } else { Expr::guarded(open, Expr::load(x, at), Expr::int(0, dtype)) }
}

/// The index of data into a dimension of `d` elements: one from the end where it is negative, the nearest one where it
/// is outside.
pub(super) fn nearest(index: &Int, d: &Int) -> Int {
    match index.as_const() {
        Some(c) if c >= 0 => index.min(d.clone() - 1),
        Some(_) => (d.clone() + index).max(0),
        None => index.max(Int::new(0) - d).min(d.clone() - 1).rem(d),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::binary::{Div, Mod};
    use crate::ops::gather::{Gather, GatherElements, GatherNd};
    use crate::ops::scatter::{Reduction, ScatterElements, ScatterNd};
    use crate::ops::testing::run;

    #[test]
    fn gathers_from_nothing_are_zero() {
        let (x, at) = (Tensor::from_vec(vec![0], Vec::<i64>::new()), Tensor::ints(&[0, -1]));
        assert_eq!(run(Gather { axis: 0 }, &[&x, &at]).to_i64_vec(), [0, 0]);
        assert_eq!(run(GatherElements { axis: 0 }, &[&x, &at]).to_i64_vec(), [0, 0]);
        let tuples = Tensor::from_vec(vec![2, 1], at.to_i64_vec());
        assert_eq!(run(GatherNd { batch_dims: 0 }, &[&x, &tuples]).to_i64_vec(), [0, 0]);
    }

    #[test]
    fn gathers_take_the_nearest_element() {
        let x = Tensor::from_vec(vec![4], vec![0i64, 10, 20, 30]);
        let at = Tensor::ints(&[-9, -5, -4, -1, 0, 3, 4, 1 << 40]);
        let want = [0, 0, 0, 30, 0, 30, 30, 30];
        assert_eq!(run(Gather { axis: 0 }, &[&x, &at]).to_i64_vec(), want);
        assert_eq!(run(GatherElements { axis: 0 }, &[&x, &at]).to_i64_vec(), want);
        let tuples = Tensor::from_vec(vec![8, 1], at.to_i64_vec());
        assert_eq!(run(GatherNd { batch_dims: 0 }, &[&x, &tuples]).to_i64_vec(), want);
        for (i, w) in at.to_i64_vec().into_iter().zip(want) {
            assert_eq!(run(Gather { axis: 0 }, &[&x, &Tensor::scalar(i)]).to_i64_vec(), [w]);
        }
        let checked = Checked::Indices { operand: 1, sizes: vec![4.into()] };
        let found = checked.count(&at);
        assert_eq!(
            (found.count, found.first.as_str()),
            (4, "index -9 (element 0 of operand 1) is outside of a dimension of 4")
        );
    }

    #[test]
    fn scatters_drop_the_update() {
        let x = Tensor::from_vec(vec![3], vec![1.0f32, 2.0, 3.0]);
        let (at, by) = (Tensor::ints(&[3, -4, -3, 1 << 40]), Tensor::from_vec(vec![4], vec![5.0f32, 6.0, 7.0, 8.0]));
        for reduction in [Reduction::None, Reduction::Max] {
            assert_eq!(run(ScatterElements { axis: 0, reduction }, &[&x, &at, &by]).to_f64_vec(), [7.0, 2.0, 3.0]);
            let tuples = Tensor::from_vec(vec![4, 1], at.to_i64_vec());
            assert_eq!(run(ScatterNd { reduction }, &[&x, &tuples, &by]).to_f64_vec(), [7.0, 2.0, 3.0]);
        }
    }

    #[test]
    fn integers_divided_by_0_are_0() {
        let a = Tensor::from_vec(vec![4], vec![5, i32::MIN, -7, i32::MIN]);
        let b = Tensor::from_vec(vec![4], vec![0, -1, 0, 0]);
        assert_eq!(run(Div {}, &[&a, &b]).to_i64_vec(), [0, i64::from(i32::MIN), 0, 0]);
        for fmod in [false, true] {
            assert_eq!(run(Mod { fmod }, &[&a, &b]).to_i64_vec(), [0; 4]);
        }
        assert_eq!(Checked::Divisors { operand: 1 }.count(&b).count, 3);
    }
}
