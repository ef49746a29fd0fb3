//! The dependence of an index on the lane of a vectorised loop: `base + step * lane`, and the divisors of `base`.

use tensor_ir::int::{Int, IntNode, divisor};
use tensor_ir::name::Name;

/// The variable of a vectorised loop, `0 <= var < count`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lane {
    pub var: Name,
    pub count: u8,
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// True when `n` divides every value of `e`.
pub(crate) fn is_multiple(e: &Int, n: i64) -> bool {
    divisor(e) % n == 0
}

/// `e == base + step * lane.var`, with `base` free of the variable, for every value of the lane.
pub(crate) fn split_lane(e: &Int, lane: Lane) -> Option<(Int, i64)> {
    if !e.uses(lane.var) {
        return Some((e.clone(), 0));
    }
    match e.node() {
        IntNode::Var(_) => Some((Int::new(0), 1)),
        IntNode::Add(a, b) => {
            let ((a, s), (b, t)) = (split_lane(a, lane)?, split_lane(b, lane)?);
            Some((a + b, s.checked_add(t)?))
        }
        IntNode::Sub(a, b) => {
            let ((a, s), (b, t)) = (split_lane(a, lane)?, split_lane(b, lane)?);
            Some((a - b, s.checked_sub(t)?))
        }
        IntNode::Mul(a, b) => {
            let ((a, s), (b, t)) = (split_lane(a, lane)?, split_lane(b, lane)?);
            match (a.as_const(), b.as_const()) {
                (_, Some(c)) if t == 0 => Some((a * c, s.checked_mul(c)?)),
                (Some(c), _) if s == 0 => Some((b * c, t.checked_mul(c)?)),
                _ if s == 0 && t == 0 => Some((a * b, 0)),
                _ => None,
            }
        }
        // floor((b + s*v) / c) with s*v never carrying over a multiple of c: the quotient is that of the base.
        IntNode::Div(a, c) => {
            let (base, step) = split_lane(a, lane)?;
            let c = c.as_const().filter(|c| *c > 0)?;
            match step {
                0 => Some((base.div(c), 0)),
                s if s % c == 0 => Some((base.div(c), s / c)),
                s if never_carries(&base, s, c, lane) => Some((base.div(c), 0)),
                _ => None,
            }
        }
        IntNode::Mod(a, c) => {
            let (base, step) = split_lane(a, lane)?;
            let c = c.as_const().filter(|c| *c > 0)?;
            match step {
                s if s % c == 0 => Some((base.rem(c), 0)),
                s if never_carries(&base, s, c, lane) => Some((base.rem(c), s)),
                _ => None,
            }
        }
        IntNode::Min(..) | IntNode::Max(..) | IntNode::Load(..) | IntNode::Const(_) => None,
    }
}

/// `base mod c + step * lane < c` for all lanes: residues are multiples of `gcd(divisor(base), c)`.
fn never_carries(base: &Int, step: i64, c: i64, lane: Lane) -> bool {
    step > 0 && step.saturating_mul(i64::from(lane.count) - 1) < gcd(divisor(base), c)
}

/// The values of `e` for each lane.
pub(crate) fn per_lane(e: &Int, lane: Lane) -> Vec<Int> {
    (0..i64::from(lane.count)).map(|v| e.substitute(lane.var, &Int::new(v))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> Lane {
        Lane { var: "v".into(), count: 4 }
    }

    #[test]
    fn splits_unit_stride_behind_division() {
        let flat = Int::var("i") * 4 + Int::var("v");
        let (base, step) = split_lane(&(flat.div(8) * 8 + flat.rem(8)), lane()).expect("no carry");
        assert_eq!(step, 1);
        assert!(is_multiple(&base, 4), "{base}");
    }

    #[test]
    fn refuses_a_carry() {
        let flat = Int::var("i") * 2 + Int::var("v");
        assert!(split_lane(&flat.div(4), lane()).is_none());
    }

    #[test]
    fn splitting_agrees_with_evaluation() {
        let (i, v) = (Int::var("i"), Int::var("v"));
        let cases =
            [i.clone() * 4 + v.clone() * 1, (i.clone() * 8 + v.clone()).div(8), (i.clone() * 12 + v * 3).rem(12)];
        for e in cases {
            let (base, step) = split_lane(&e, lane()).expect("splits");
            for iv in 0..9 {
                for vv in 0..4 {
                    let env = |n: Name| Some(if n.as_str() == "i" { iv } else { vv });
                    assert_eq!(e.eval(&env), Some(base.eval(&env).expect("base") + step * vv), "{e} at {iv},{vv}");
                }
            }
        }
    }
}
