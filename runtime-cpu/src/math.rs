//! Functions of f32 without branches, so that loops over them become vectors.

/// Products with a sum behind them: in one step where `FUSED`, which the machine then has an instruction for.
#[derive(Clone, Copy)]
pub(crate) struct Fused<const FUSED: bool>;

impl<const FUSED: bool> Fused<FUSED> {
    /// `a * b + c`.
    #[inline(always)]
    pub(crate) fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        if FUSED { a.mul_add(b, c) } else { a * b + c }
    }
    /// A polynomial, by its numbers; the highest power comes first.
    #[inline(always)]
    fn polynomial<const N: usize>(self, x: f32, numbers: [f32; N]) -> f32 {
        (1..N).fold(numbers[0], |sum, i| self.fma(sum, x, numbers[i]))
    }
}

pub(crate) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts: products of the first with small integers are exact.
pub(crate) const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// 1.5 * 2^23: a float of at most 22 bits that is added to it is rounded to an integer, ties to even, in its last bits.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// `e^r = 1 + r + r^2 p(r)` for small `r`.
pub(crate) const EXP: [f32; 6] = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
/// Between these, `e^x` is neither 0 nor infinite.
pub(crate) const EXP_ENDS: [f32; 2] = [-104.0, 89.0];

/// `e^x` to 2 units in the last place: `2^n * e^r` with `|r| <= ln 2 / 2` and a polynomial for `e^r`.
#[inline(always)]
pub(crate) fn exp<const F: bool>(m: Fused<F>, x: f32) -> f32 {
    // NaN stays what it is.
    let below = if x > EXP_ENDS[1] { EXP_ENDS[1] } else { x };
    let bounded = if below < EXP_ENDS[0] { EXP_ENDS[0] } else { below };
    let rounded = m.fma(bounded, LOG2_E, ROUND);
    let (n, integer) = (rounded - ROUND, (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32));
    let r = m.fma(n, -LN_2[1], m.fma(n, -LN_2[0], bounded));
    let y = m.fma(m.polynomial(r, EXP) * r, r, r) + 1.0;
    // In two steps: the power of two alone leaves the normal range before the result does.
    let half = integer >> 1;
    y * power_of_two(half) * power_of_two(integer.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The hyperbolic tangent, by `e^2x`; a polynomial near 0, where that cancels.
#[inline(always)]
pub(crate) fn tanh<const F: bool>(m: Fused<F>, x: f32) -> f32 {
    let s = x * x;
    let numbers = [-5.703_01e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_332_6e-1];
    // A product with `x` keeps the sign of a zero.
    let small = x * m.fma(m.polynomial(s, numbers), s, 1.0);
    let e = exp(m, 2.0 * x.abs());
    let large = (1.0 - 2.0 / (e + 1.0)).copysign(x);
    if x.abs() < 0.625 { small } else { large }
}

/// The natural logarithm to 2 units in the last place: `ln m + e ln 2` for `x = m 2^e` with `m` near 1, and a
/// polynomial for `ln m` (Cephes).
#[inline(always)]
pub(crate) fn log<const F: bool>(m: Fused<F>, x: f32) -> f32 {
    /// The root of a half.
    const LEAST: u32 = 0x3f35_04f3;
    let is_tiny = x < f32::MIN_POSITIVE;
    let bits = if is_tiny { x * 8_388_608.0 } else { x }.to_bits();
    let exponent = (bits.wrapping_sub(LEAST) as i32) >> 23;
    let f = f32::from_bits(bits.wrapping_sub((exponent as u32) << 23)) - 1.0;
    let e = exponent as f32 - if is_tiny { 23.0 } else { 0.0 };
    let numbers = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let square = f * f;
    let small = m.fma(e, LN_2[1], m.polynomial(f, numbers) * f * square);
    let y = m.fma(e, LN_2[0], f + m.fma(square, -0.5, small));
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    // Infinity and NaN.
    if x < f32::INFINITY { y } else { x }
}

/// Angles, at most, of which [`sin`] and [`cos`] are right.
pub(crate) const GREATEST_ANGLE: f32 = 8192.0;
/// A quarter of a turn in three parts: products of the first two with integers of 13 bits are exact.
const QUARTER: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_79e-8];

/// The quarters of a turn in an angle, and what is left of it.
#[inline(always)]
fn quarters<const F: bool>(m: Fused<F>, x: f32) -> (f32, i32) {
    let rounded = m.fma(x, std::f32::consts::FRAC_2_PI, ROUND);
    let (n, count) = (rounded - ROUND, (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32));
    (QUARTER.iter().fold(x, |x, part| m.fma(n, -part, x)), count)
}

/// The sine of an angle of at most half a quarter turn, so many quarters on (Cephes).
#[inline(always)]
fn sine_after<const F: bool>(m: Fused<F>, x: f32, quarters: i32) -> f32 {
    let s = x * x;
    // A product with `x` keeps the sign of a zero.
    let sine = x * m.fma(m.polynomial(s, [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]), s, 1.0);
    let numbers = [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2, -0.5];
    let cosine = m.fma(m.polynomial(s, numbers), s, 1.0);
    let y = if quarters & 1 == 1 { cosine } else { sine };
    if quarters & 2 == 2 { -y } else { y }
}

/// The sine, to 2e-7, of an angle up to [`GREATEST_ANGLE`].
#[inline(always)]
pub(crate) fn sin<const F: bool>(m: Fused<F>, x: f32) -> f32 {
    let (rest, n) = quarters(m, x);
    sine_after(m, rest, n)
}

/// The cosine, likewise.
#[inline(always)]
pub(crate) fn cos<const F: bool>(m: Fused<F>, x: f32) -> f32 {
    let (rest, n) = quarters(m, x);
    sine_after(m, rest, n.wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_close_everywhere() {
        fn check<const F: bool>(m: Fused<F>) {
            for i in -8_192_000..=8_192_000 {
                let x = i as f32 * 1e-3;
                let (s, c) = (f64::from(x).sin(), f64::from(x).cos());
                let near = |got: f32, want: f64| (f64::from(got) - want).abs() <= 1.5e-7 * want.abs() + 3e-8;
                assert!(near(sin(m, x), s) && near(cos(m, x), c), "of {x}: {} {}", sin(m, x), cos(m, x));
            }
            assert!(sin(m, -0.0).is_sign_negative() && sin(m, 1e-30) == 1e-30 && cos(m, 0.0) == 1.0);
        }
        check(Fused::<false>);
        check(Fused::<true>);
    }

    #[test]
    fn functions_are_close_everywhere() {
        close_everywhere(Fused::<false>);
        close_everywhere(Fused::<true>);
    }

    fn close_everywhere<const F: bool>(m: Fused<F>) {
        let (exp, tanh) = (|x| super::exp(m, x), |x| super::tanh(m, x));
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

    /// Over all exponents, subnormals included, and close to 1.
    #[test]
    fn logarithms_are_close_everywhere() {
        fn check<const F: bool>(m: Fused<F>) {
            let all = (1..0x7f80_0000u32).step_by(997).chain(0x3f70_0000..0x3f90_0000).map(f32::from_bits);
            for x in all {
                let (got, want) = (f64::from(log(m, x)), f64::from(x).ln());
                assert!((got - want).abs() <= 2.5e-7 * want.abs(), "log({x:e}) = {got:e}, not {want:e}");
            }
            let ends = [log(m, 0.0), log(m, -0.0), log(m, f32::INFINITY), log(m, 1.0)];
            assert_eq!(ends, [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY, 0.0]);
            assert!([-1.0, f32::NEG_INFINITY, f32::NAN, -1e-40].iter().all(|x| log(m, *x).is_nan()));
        }
        check(Fused::<false>);
        check(Fused::<true>);
    }
}
