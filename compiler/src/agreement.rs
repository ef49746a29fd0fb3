//! Agreement of two tensors: the one definition of tolerances, for the command and the tests. Tests also compare each
//! slice along each axis (channels, columns), and the interpreter with itself to 1e-5.

use crate::dtype::DType;
use crate::tensor::Tensor;

/// The tolerance of f16.
pub const F16_TOLERANCE: f64 = 1e-2;

/// The tolerance of one computation in f32 against the same in another order, on the same machine: the interpreter
/// against itself.
pub const REORDERED: f64 = 1e-5;

/// Slices with fewer elements say no more than their elements do.
const SLICE: usize = 8;
/// The share of the absolute tolerance that the mean error of a slice may take.
const SLICE_SHARE: f64 = 0.1;
/// Smallest tolerance of a slice, relative to the largest magnitude: f32 sums lose that much if terms cancel.
const SLICE_FLOOR: f64 = 32.0 * f32::EPSILON as f64;

/// Tolerances of one comparison: `|a-b| <= atol*max|b| + rtol*|b|` and `norm(a-b) <= rtol*norm(b)`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerance {
    /// Relative to the element, and to the norm.
    pub rtol: f64,
    /// Relative to the reference's largest magnitude.
    pub atol: f64,
}
impl Tolerance {
    /// By dtype (1e-2 for f16, 1e-3 otherwise), overridden by the options.
    pub fn new(dtype: DType, rtol: Option<f64>, atol: Option<f64>) -> Tolerance {
        let t = if matches!(dtype, DType::F16 | DType::BF16) { F16_TOLERANCE } else { 1e-3 };
        Tolerance { rtol: rtol.unwrap_or(t), atol: atol.unwrap_or(rtol.unwrap_or(t)) }
    }
    /// The largest difference from the element `b` of a reference whose largest magnitude is `peak`.
    pub fn allowed(&self, peak: f64, b: f64) -> f64 {
        self.atol * peak + self.rtol * b.abs()
    }
    /// The largest `norm(a-b) / norm(b)`.
    pub fn whole(&self) -> f64 {
        self.rtol.max(self.atol)
    }
    /// One tolerance for both.
    pub fn uniform(t: f64) -> Tolerance {
        Tolerance { rtol: t, atol: t }
    }
}

/// How two tensors differ.
#[derive(Clone, Debug, Default, serde::Serialize, schemars::JsonSchema)]
pub struct Difference {
    /// They agree.
    #[serde(skip)]
    pub pass: bool,
    /// Why not.
    #[serde(skip)]
    pub why: String,
    /// The largest fraction of the tolerance that an element uses: above 1 the tensors differ.
    #[serde(skip)]
    pub used: f64,
    /// Largest absolute difference. It and the next two are infinite if an element is finite in only one of the
    /// tensors.
    #[schemars(with = "Option<f64>")]
    pub max_abs: f64,
    /// Largest relative difference where the reference is not tiny.
    #[schemars(with = "Option<f64>")]
    pub max_rel: f64,
    /// `norm(a-b) / norm(b)`.
    #[schemars(with = "Option<f64>")]
    pub rel_l2: f64,
    /// Cosine of the angle between them; NaN if an element is finite in only one of the tensors.
    #[schemars(with = "Option<f64>")]
    pub cosine: f64,
    /// Elements that are NaN in one of both alone.
    pub nan: usize,
    /// Other elements that are infinite in one of both alone, or infinities of opposite signs.
    pub inf: usize,
    /// Largest magnitude of the first.
    #[schemars(with = "Option<f64>")]
    pub max_magnitude: f64,
}

/// Compares `a` with the reference `b`.
pub fn agree(a: &Tensor, b: &Tensor, tol: &Tolerance) -> Difference {
    let mut d = Difference { cosine: 1.0, ..Difference::default() };
    if a.shape() != b.shape() {
        d.why = format!("shape {:?}, expected {:?}", a.shape(), b.shape());
        d.used = f64::INFINITY;
        return d;
    }
    let (x, y) = (a.to_f64_vec(), b.to_f64_vec());
    let peak = y.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let (mut num, mut den, mut xx, mut xy) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    let mut worst: Option<(usize, f64)> = None;
    for (i, (&p, &q)) in x.iter().zip(&y).enumerate() {
        if p.is_nan() && q.is_nan() || p == q {
            let f = if p.is_finite() { p } else { 0.0 };
            (den, xx, xy) = (den + f * f, xx + f * f, xy + f * f);
            d.max_magnitude = d.max_magnitude.max(f.abs());
            continue;
        }
        if !p.is_finite() || !q.is_finite() {
            let nan = p.is_nan() || q.is_nan();
            (d.nan, d.inf) = (d.nan + usize::from(nan), d.inf + usize::from(!nan));
            worst = worst.filter(|w| w.1.is_infinite()).or(Some((i, f64::INFINITY)));
            d.used = f64::INFINITY;
            continue;
        }
        let e = (p - q).abs();
        d.max_abs = d.max_abs.max(e);
        d.max_magnitude = d.max_magnitude.max(p.abs());
        if q.abs() > 1e-6 * peak {
            d.max_rel = d.max_rel.max(e / q.abs());
        }
        let allowed = tol.allowed(peak, q);
        d.used = d.used.max(if allowed > 0.0 { e / allowed } else { f64::INFINITY });
        let excess = e - allowed;
        if excess > 0.0 && worst.is_none_or(|w| excess > w.1) {
            worst = Some((i, excess));
        }
        (num, den, xx, xy) = (num + e * e, den + q * q, xx + p * p, xy + p * q);
    }
    d.rel_l2 = if num == 0.0 { 0.0 } else { (num / den.max(f64::MIN_POSITIVE)).sqrt() };
    if xx > 0.0 && den > 0.0 {
        d.cosine = xy / (xx.sqrt() * den.sqrt());
    }
    let whole = tol.whole();
    d.pass = worst.is_none() && d.rel_l2 <= whole;
    d.used = d.used.max(if d.rel_l2 > 0.0 { d.rel_l2 / whole } else { 0.0 });
    let wild = d.nan + d.inf;
    if wild > 0 {
        (d.max_abs, d.max_rel, d.rel_l2) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
        d.cosine = f64::NAN;
    }
    if let Some((i, _)) = worst {
        d.why = format!("element {i} is {}, expected {}", x[i], y[i]);
        if wild > 0 {
            d.why += &format!("; {wild} of {} elements are not finite in one of both", x.len());
        }
    } else if !d.pass {
        d.why = format!("relative error {:.3e}", d.rel_l2);
    }
    d
}

/// As [`agree`], and each slice along each axis (a channel, an image, a column) holds on its own: the norm of its error
/// is at most `rtol` of its own norm, and a tenth of `atol*max|b|` an element. A channel of small numbers that is wrong
/// throughout, or a wrong last column, is lost in the norm of the whole, and below the largest magnitude of its
/// elements.
pub fn agree_in_slices(a: &Tensor, b: &Tensor, tol: &Tolerance) -> Difference {
    let mut d = agree(a, b, tol);
    if !d.pass {
        return d;
    }
    let (x, y) = (a.to_f64_vec(), b.to_f64_vec());
    let finite = |v: f64| if v.is_finite() { v } else { 0.0 };
    let peak = y.iter().fold(0.0f64, |m, &v| m.max(finite(v).abs()));
    let floor = (SLICE_SHARE * tol.atol).max(SLICE_FLOOR) * peak;
    for (axis, &extent) in a.shape().iter().enumerate() {
        if extent < 2 || x.len() / extent < SLICE {
            continue;
        }
        let inner: usize = a.shape()[axis + 1..].iter().product();
        let mut squares = vec![(0.0f64, 0.0f64); extent];
        for (i, (&p, &q)) in x.iter().zip(&y).enumerate() {
            let (error, own) = &mut squares[i / inner % extent];
            // What is not finite is equal: the elements agree.
            *error += finite(p - q).powi(2);
            *own += finite(q).powi(2);
        }
        let elements = (x.len() / extent) as f64;
        for (i, (error, own)) in squares.into_iter().enumerate() {
            let allowed = tol.rtol * own.sqrt() + floor * elements.sqrt();
            if error.sqrt() > allowed {
                let share = error.sqrt() / own.sqrt().max(f64::MIN_POSITIVE);
                d.pass = false;
                d.used = d.used.max(error.sqrt() / allowed.max(f64::MIN_POSITIVE));
                d.why = format!("slice {i} along axis {axis}: relative error {share:.3e}");
                return d;
            }
        }
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_channel_of_small_numbers_is_seen() {
        // Channel 1 is a hundredth of channel 0, and wrong throughout by a sixth of itself.
        let tensor = |small: f32| {
            let value = |i: usize| if i / 16 == 0 { 1.0 + i as f32 } else { small };
            Tensor::from_vec(vec![1, 2, 16], (0..32).map(value).collect::<Vec<f32>>())
        };
        let (want, got, tol) = (tensor(0.12), tensor(0.14), Tolerance::uniform(1e-2));
        assert!(agree(&got, &want, &tol).pass);
        let d = agree_in_slices(&got, &want, &tol);
        assert!(!d.pass && d.used > 1.0 && d.why.starts_with("slice 1 along axis 1"), "{d:?}");
        assert!(agree_in_slices(&want, &want, &tol).pass);
        let none = Tensor::from_vec(vec![2, 0], Vec::<f32>::new());
        assert!(agree_in_slices(&none, &none, &tol).pass);
    }

    fn compare(a: &[f32], b: &[f32], t: f64) -> Difference {
        let tensor = |v: &[f32]| Tensor::from_vec(vec![v.len()], v.to_vec());
        agree(&tensor(a), &tensor(b), &Tolerance::uniform(t))
    }

    #[test]
    fn elements_and_the_norm_both_count() {
        // 0.0105 of 0.01 * 1 + 0.01 * 0.5; the norm of the error is 0.0061 of that of the reference.
        let d = compare(&[1.0, 1.0, 1.0, 0.5105], &[1.0, 1.0, 1.0, 0.5], 0.01);
        assert!(d.pass && (d.used - 0.7).abs() < 1e-3, "{d:?}");
        let d = compare(&[1.0, 1.0, 1.0, 0.516], &[1.0, 1.0, 1.0, 0.5], 0.01);
        assert!(!d.pass && d.used > 1.0 && d.rel_l2 < 0.01 && d.why.starts_with("element 3"), "{d:?}");
        // Every element within twice the tolerance, and the norm beyond it.
        let d = compare(&[1.015, 1.015], &[1.0, 1.0], 0.01);
        assert!(!d.pass && d.used > 1.0 && d.why.starts_with("relative error"), "{d:?}");
    }

    #[test]
    fn zeros_agree_with_zeros_only_and_infinities_with_themselves() {
        assert!(compare(&[0.0, f32::INFINITY, f32::NAN], &[0.0, f32::INFINITY, f32::NAN], 0.01).pass);
        assert!(!compare(&[1e-30], &[0.0], 0.01).pass);
        let d = compare(&[f32::INFINITY, 1.0], &[2.0, 1.0], 0.01);
        assert!(!d.pass && d.inf == 1 && d.used == f64::INFINITY, "{d:?}");
        assert!(d.max_abs == f64::INFINITY && d.rel_l2 == f64::INFINITY && d.cosine.is_nan(), "{d:?}");
        assert_eq!(d.why, "element 0 is inf, expected 2; 1 of 2 elements are not finite in one of both");
    }

    /// No figure says that two tensors agree where one of them alone is not finite, whichever it is.
    #[test]
    fn what_is_not_finite_counts_on_both_sides() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for (a, b, counted) in [
            ([nan, 1.0], [2.0, 1.0], (1, 0)),
            ([2.0, 1.0], [nan, 1.0], (1, 0)),
            ([inf, 1.0], [nan, 1.0], (1, 0)),
            ([2.0, 1.0], [inf, 1.0], (0, 1)),
            ([inf, 1.0], [-inf, 1.0], (0, 1)),
        ] {
            let d = compare(&a, &b, 0.01);
            assert!(!d.pass && (d.nan, d.inf) == counted, "{a:?} {b:?}: {d:?}");
            assert!([d.max_abs, d.max_rel, d.rel_l2].iter().all(|f| f.is_infinite()) && d.cosine.is_nan(), "{d:?}");
        }
    }
}
