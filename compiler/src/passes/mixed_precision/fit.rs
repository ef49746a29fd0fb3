//! Tests whether numbers fit f16.

use crate::graph::Constant;
use half::f16;

/// The largest finite f16.
pub const F16_MAX: f64 = 65504.0;

/// The largest loss ([`rounding_loss`]) of a constant that counts as held by f16: eight times the relative rounding of
/// numbers in its normal range.
pub const MAX_LOSS: f64 = 1.0 / 256.0;

/// How numbers fit f16.
#[derive(Clone, Debug, PartialEq)]
pub enum Fit {
    /// They are held.
    Yes,
    /// This number would become infinite.
    Overflow(f64),
    /// They are so small that rounding loses this share of them.
    Underflow(f64),
}

/// The smallest normal f16, as the bits of an f32: from here up rounding is relative.
const NORMAL: u32 = 0x3880_0000;

/// The share `norm(f16(x) - x) / norm(x)` that numbers lose by being below f16's normal range, and the largest
/// magnitude; both over the finite elements.
pub fn rounding_loss(values: &[f32]) -> (f64, f64) {
    let (mut error, mut norm, mut largest) = (0.0f64, 0.0f64, 0u32);
    for x in values {
        let magnitude = x.to_bits() & 0x7fff_ffff;
        if magnitude >= 0x7f80_0000 {
            continue;
        }
        largest = largest.max(magnitude);
        let exact = f64::from(*x);
        norm += exact * exact;
        if magnitude < NORMAL {
            let e = f64::from(f16::from_f32(*x).to_f32()) - exact;
            error += e * e;
        }
    }
    (if norm == 0.0 { 0.0 } else { (error / norm).sqrt() }, f64::from(f32::from_bits(largest)))
}

/// Whether numbers fit f16. Infinities and NaN do.
pub fn fit_values(values: &[f32]) -> Fit {
    let (loss, largest) = rounding_loss(values);
    match () {
        () if f16::from_f64(largest).is_infinite() => Fit::Overflow(largest),
        () if loss > MAX_LOSS => Fit::Underflow(loss),
        () => Fit::Yes,
    }
}

/// Whether an f32 constant fits f16.
///
/// # Errors
/// When its data cannot be read.
pub fn fit_constant(c: &Constant) -> Result<Fit, String> {
    let t = c.load()?;
    Ok(fit_values(&t.as_slice::<f32>().ok_or("the constant is not f32")?))
}

impl Fit {
    /// Why `what` does not fit; `None` when it does.
    pub fn reason(&self, what: &str) -> Option<String> {
        match self {
            Fit::Yes => None,
            Fit::Overflow(v) => Some(format!("{what} holds {v}, f16 ends at {F16_MAX}")),
            Fit::Underflow(e) => Some(format!("{what} is too small for f16, which would lose {:.1}% of it", e * 100.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_tiny_numbers_do_not_fit() {
        assert_eq!(fit_values(&[1.0, -65504.0, f32::INFINITY, f32::NAN, 0.0]), Fit::Yes);
        assert_eq!(fit_values(&[65519.0]), Fit::Yes);
        assert_eq!(fit_values(&[1.0, -70000.0]), Fit::Overflow(70000.0));
        assert_eq!(fit_values(&[f32::MAX]), Fit::Overflow(f64::from(f32::MAX)));
        assert!(matches!(fit_values(&[1e-9]), Fit::Underflow(e) if e == 1.0));
        // Small numbers among larger ones are lost without harm.
        assert_eq!(fit_values(&[1e-9, 0.1]), Fit::Yes);
        assert_eq!(fit_values(&[6.1e-5]), Fit::Yes);
        assert_eq!(fit_values(&[]), Fit::Yes);
    }
}
