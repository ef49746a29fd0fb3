//! Reductions of all lanes to one.

use crate::isa::versions;
use tensor_ir::tir::Combiner;

#[inline(always)]
fn combine_one(acc: &mut [f32], tap: &[f32], combiner: Combiner) {
    #[inline(always)]
    fn all(acc: &mut [f32], tap: &[f32], f: impl Fn(f32, f32) -> f32) {
        match tap {
            [one] => acc.iter_mut().for_each(|a| *a = f(*a, *one)),
            lanes => acc.iter_mut().zip(lanes).for_each(|(a, x)| *a = f(*a, *x)),
        }
    }
    match combiner {
        Combiner::Sum => all(acc, tap, |a, x| a + x),
        Combiner::Prod => all(acc, tap, |a, x| a * x),
        Combiner::Max => all(acc, tap, |a, x| if a.is_nan() || a > x { a } else { x }),
        Combiner::Min => all(acc, tap, |a, x| if a.is_nan() || a < x { a } else { x }),
    }
}

versions! {
    /// Combines all lanes into one.
    fn fold(lanes: &[f32], combiner: Combiner, out: &mut f32) {
        let mut parts = [lanes[0]; 32];
        let n = lanes.len() / 32 * 32;
        if n > 0 {
            parts.copy_from_slice(&lanes[..32]);
            for chunk in lanes[32..n].chunks_exact(32) {
                combine_one(&mut parts, chunk, combiner);
            }
        }
        let (mut rest, used) = if n > 0 { (parts[0], &parts[1..]) } else { (lanes[0], &lanes[1..1]) };
        let tail = if n > 0 { &lanes[n..] } else { &lanes[1..] };
        for x in used.iter().chain(tail) {
            let mut one = [rest];
            combine_one(&mut one, std::slice::from_ref(x), combiner);
            rest = one[0];
        }
        *out = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn folds_are_those_of_single_lanes() {
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for n in [1, 7, 16, 31, 64, 100, 203] {
                let x: Vec<f32> = (0..n).map(|i: usize| ((i * 5 + 1) % 9) as f32 - 4.0).collect();
                let mut one = 0.0;
                fold(isa, &x, Combiner::Sum, &mut one);
                assert_eq!(one, x.iter().sum::<f32>(), "{isa:?} {n}");
                fold(isa, &x, Combiner::Max, &mut one);
                assert_eq!(one, x.iter().copied().fold(f32::NEG_INFINITY, f32::max), "{isa:?} {n}");
            }
        }
    }
}
