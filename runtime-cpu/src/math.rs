//! Functions of f32 without branches, so that loops over them become vectors.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts: products of the first with small integers are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// 1.5 * 2^23: a float of at most 22 bits that is added to it is rounded to an integer, ties to even, in its last bits.
const ROUND: f32 = 12_582_912.0;

/// `e^x` to 2 units in the last place: `2^n * e^r` with `|r| <= ln 2 / 2` and a polynomial for `e^r`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let bounded = x.clamp(-104.0, 89.0);
    let rounded = bounded * LOG2_E + ROUND;
    let (n, integer) = (rounded - ROUND, (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32));
    let r = bounded - n * LN_2[0] - n * LN_2[1];
    let p = 1.987_569_1e-4f32;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let y = p * r * r + r + 1.0;
    // In two steps: the power of two alone leaves the normal range before the result does.
    let half = integer >> 1;
    let y = y * power_of_two(half) * power_of_two(integer.wrapping_sub(half));
    if x.is_nan() { x } else { y }
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The hyperbolic tangent, by `e^2x`; a polynomial near 0, where that cancels.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let s = x * x;
    let p = -5.703_01e-3f32;
    let p = p * s + 2.063_909e-2;
    let p = p * s - 5.373_971_6e-2;
    let p = p * s + 1.333_144_2e-1;
    let p = p * s - 3.333_332_6e-1;
    // A product with `x` keeps the sign of a zero.
    let small = x * (p * s + 1.0);
    let e = exp(2.0 * x.abs());
    let large = (1.0 - 2.0 / (e + 1.0)).copysign(x);
    let y = if x.abs() < 0.625 { small } else { large };
    if x.is_nan() { x } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_close_everywhere() {
        for i in -120_000..120_000 {
            let x = i as f32 * 1e-3;
            let (e, t) = (f64::from(x).exp(), f64::from(x).tanh());
            assert!(
                (f64::from(exp(x)) - e).abs() <= 3e-7 * e + 1e-44 || e > f64::from(f32::MAX),
                "exp({x}) = {}",
                exp(x)
            );
            assert!((f64::from(tanh(x)) - t).abs() <= 3e-7 * t.abs(), "tanh({x}) = {}", tanh(x));
        }
        assert_eq!([exp(f32::INFINITY), exp(f32::NEG_INFINITY), exp(0.0)], [f32::INFINITY, 0.0, 1.0]);
        assert_eq!([tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)], [1.0, -1.0]);
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }
}
