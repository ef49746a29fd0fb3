//! Steps of a strip that follow each other on the same lanes, done in registers: bytes become numbers on the way in and
//! numbers bytes on the way out.
//!
//! ```text
//! r0 = f32(x); r0 = r0 + -3; r0 = r0 * 0.02   ->   r0 = chain x: from bytes, add -3, multiply by 0.02
//! ```

use crate::isa::Isa;
use crate::strip_program::{Code, IntWork, Link, Operand, Step, Work};
use tensor_ir::dtype::DType;
use tensor_ir::tir::{BinaryOp, UnaryOp};

/// The lanes that a step reads, and the link that it is.
fn link(work: &Work) -> Option<(Operand, Link<usize>)> {
    let lanes = |o: &Operand| !matches!(o, Operand::Uniform(_));
    Some(match work {
        Work::Unary(UnaryOp::Round, a) => (*a, Link::Round),
        Work::Binary(op, [a, Operand::Uniform(b)]) if lanes(a) => {
            let of = match op {
                BinaryOp::Add => Link::Add,
                BinaryOp::Sub => Link::Sub,
                BinaryOp::Mul => Link::Mul,
                BinaryOp::Div => Link::Div,
                BinaryOp::Max => Link::Max,
                BinaryOp::Min => Link::Min,
                _ => return None,
            };
            (*a, of(*b))
        }
        Work::Binary(BinaryOp::Add, [Operand::Uniform(a), b]) if lanes(b) => (*b, Link::Add(*a)),
        Work::Binary(BinaryOp::Mul, [Operand::Uniform(a), b]) if lanes(b) => (*b, Link::Mul(*a)),
        Work::Ints(IntWork::ToFloat(a)) if lanes(a) => (*a, Link::ToFloat),
        Work::Ints(IntWork::ToInt(t @ (DType::I8 | DType::U8 | DType::I16 | DType::U16), a)) if lanes(a) => {
            let [low, high] = [f64::NEG_INFINITY, f64::INFINITY].map(|x| t.saturate(x) as f32);
            (*a, Link::ToInt(low, high))
        }
        _ => return None,
    })
}

/// Makes chains of the steps of a code.
pub(crate) fn join(code: &mut Code) {
    let mut steps: Vec<Step> = vec![];
    for n in 0..code.steps.len() {
        let (step, next) = (&code.steps[n], link(&code.steps[n].work));
        let Some((from, link)) = next else {
            steps.push(step.clone());
            continue;
        };
        let joined =
            steps.last_mut().filter(|last| from == Operand::Register(last.to) && n > 0 && is_used_once(code, n - 1));
        match joined {
            Some(Step { work: Work::Chain(_, links), to }) => {
                links.push(link);
                *to = step.to;
            }
            _ => steps.push(Step { work: Work::Chain(from, vec![link]), to: step.to }),
        }
    }
    code.steps = steps;
    let reads = |at: usize, own: &dyn Fn(&Work) -> bool| {
        code.steps.iter().filter(|s| s.work.operands().contains(&Operand::Place(at))).all(|s| own(&s.work))
    };
    let from_bytes = |w: &Work| matches!(w, Work::Chain(_, links) if links[0] == Link::ToFloat);
    let alone = |at: &&usize| code.result != Some(Operand::Place(**at)) && reads(**at, &from_bytes);
    code.bytes = code.strips.iter().filter(alone).copied().collect();
}

/// True if nothing reads the result of a step but the next one.
fn is_used_once(code: &Code, n: usize) -> bool {
    let own = Operand::Register(code.steps[n].to);
    let mut uses = 0;
    for s in &code.steps[n + 1..] {
        uses += s.work.operands().iter().filter(|o| **o == own).count();
        if Operand::Register(s.to) == own {
            return uses == 1;
        }
    }
    uses == 1 && code.result != Some(own)
}

/// How lanes lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lies {
    Words,
    /// Bytes, with a sign or without.
    Bytes(bool),
}

impl Lies {
    fn size(self) -> usize {
        if self == Lies::Words { 4 } else { 1 }
    }
}

/// Where lanes lie: their first one, and how.
type Side<P> = (P, Lies);

macro_rules! body {
    ($(#[$feature:meta])* $name:ident) => {
        mod $name {
            use super::{Lies, Link, Side};
            use crate::vectors::$name::*;

            const VECTORS: usize = 4;
            const AT_ONCE: usize = VECTORS * LANES;

            /// The links of a block of lanes that were loaded as `read`.
            $(#[$feature])*
            #[inline]
            fn apply(links: &[Link<f32>], read: Lies, v: &mut [Vector; VECTORS]) {
                macro_rules! each {
                    (|$a:ident| $e:expr) => {
                        for v in &mut *v {
                            let $a = *v;
                            *v = $e;
                        }
                    };
                }
                for link in links {
                    match *link {
                        // Bytes are numbers when they are loaded.
                        Link::ToFloat if read == Lies::Words => each!(|a| to_float(a)),
                        Link::ToFloat => {}
                        Link::Add(x) => each!(|a| add(a, splat(x))),
                        Link::Sub(x) => each!(|a| sub(a, splat(x))),
                        Link::Mul(x) => each!(|a| mul(a, splat(x))),
                        Link::Div(x) => each!(|a| div(a, splat(x))),
                        Link::Max(x) => each!(|a| keep_max(a, splat(x))),
                        Link::Min(x) => each!(|a| keep_min(a, splat(x))),
                        Link::Round => each!(|a| round(a)),
                        Link::ToInt(low, high) => each!(|a| to_int(a, low, high)),
                    }
                }
            }

            /// # Safety
            /// A block of lanes is readable and writable.
            $(#[$feature])*
            #[inline]
            unsafe fn block(links: &[Link<f32>], (from, read): Side<*const u8>, (to, write): Side<*mut u8>) {
                let mut v = [splat(0.0); VECTORS];
                // SAFETY: as said.
                unsafe {
                    for (i, v) in v.iter_mut().enumerate() {
                        let place = from.add(i * LANES * read.size());
                        *v = match read {
                            Lies::Words => load(mask(LANES), place.cast()),
                            Lies::Bytes(signed) => load_bytes(signed, place),
                        };
                    }
                    apply(links, read, &mut v);
                    for (i, v) in v.into_iter().enumerate() {
                        let place = to.add(i * LANES * write.size());
                        match write {
                            Lies::Words => store(mask(LANES), place.cast(), v),
                            Lies::Bytes(_) => store_bytes(place, v),
                        }
                    }
                }
            }

            /// # Safety
            /// As [`super::run`].
            $(#[$feature])*
            pub unsafe fn run(
                links: &[Link<f32>],
                (from, read): Side<*const u8>,
                (to, write): Side<*mut u8>,
                n: usize,
            ) {
                let whole = n / AT_ONCE * AT_ONCE;
                // SAFETY: as said; the lanes behind the last whole block are copied to memory that has one.
                unsafe {
                    for at in (0..whole).step_by(AT_ONCE) {
                        block(links, (from.add(at * read.size()), read), (to.add(at * write.size()), write));
                    }
                    if whole < n {
                        let (mut first, mut last) = ([0f32; AT_ONCE], [0f32; AT_ONCE]);
                        let source = from.add(whole * read.size());
                        source.copy_to_nonoverlapping(first.as_mut_ptr().cast(), (n - whole) * read.size());
                        block(links, (first.as_ptr().cast(), read), (last.as_mut_ptr().cast(), write));
                        let lanes = last.as_ptr().cast::<u8>();
                        lanes.copy_to_nonoverlapping(to.add(whole * write.size()), (n - whole) * write.size());
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
body!(
    #[target_feature(enable = "avx512f,avx512bw")]
    avx512
);
#[cfg(target_arch = "x86_64")]
body!(
    #[target_feature(enable = "avx2,fma,f16c")]
    avx2
);
#[cfg(target_arch = "aarch64")]
body!(
    #[target_feature(enable = "neon")]
    neon
);
body!(portable);

/// Runs links over `n` lanes.
///
/// # Safety
/// So many lanes are readable and writable, and are the same ones or lie apart. The machine has `isa`.
pub(crate) unsafe fn run(isa: Isa, links: &[Link<f32>], from: Side<*const u8>, to: Side<*mut u8>, n: usize) {
    // SAFETY: as said.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::run(links, from, to, n),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::run(links, from, to, n),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::run(links, from, to, n),
            _ => portable::run(links, from, to, n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers and bytes on both sides, lanes that are no whole blocks, in every body.
    #[test]
    fn chains_are_what_their_links_are() {
        let links = [Link::Add(-3.0), Link::Mul(0.5), Link::Max(-4.5), Link::Div(0.7), Link::Sub(1.0), Link::Round];
        let apply = |x: f32| (((x - 3.0) * 0.5).max(-4.5) / 0.7 - 1.0).round_ties_even();
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for n in [1, 7, 64, 77, 300] {
                let bytes: Vec<u8> = (0..n).map(|i| (i * 37 % 256) as u8).collect();
                for signed in [false, true] {
                    let number = |x: u8| if signed { f32::from(x as i8) } else { f32::from(x) };
                    let [low, high] = if signed { [-128.0, 127.0] } else { [0.0, 255.0] };
                    let words: Vec<f32> = bytes.iter().map(|x| number(*x)).collect();
                    let ints: Vec<i32> = words.iter().map(|x| *x as i32).collect();
                    let all: Vec<Link<f32>> =
                        [Link::ToFloat].into_iter().chain(links).chain([Link::ToInt(low, high)]).collect();
                    let (mut out, mut narrow) = (vec![0f32; n], vec![0u8; n]);
                    let [to, own] = [out.as_mut_ptr().cast(), narrow.as_mut_ptr()];
                    // SAFETY: each vector has `n` lanes.
                    unsafe {
                        run(isa, &links, (words.as_ptr().cast(), Lies::Words), (to, Lies::Words), n);
                        assert!(out.iter().zip(&words).all(|(o, x)| *o == apply(*x)), "{isa:?} {n}");
                        run(isa, &all[..7], (bytes.as_ptr(), Lies::Bytes(signed)), (to, Lies::Words), n);
                        assert!(out.iter().zip(&words).all(|(o, x)| *o == apply(*x)), "{isa:?} {n} {signed}");
                        run(isa, &all, (ints.as_ptr().cast(), Lies::Words), (own, Lies::Bytes(signed)), n);
                    }
                    let held = |x: f32| apply(x).clamp(low, high);
                    assert!(narrow.iter().zip(&words).all(|(o, x)| number(*o) == held(*x)), "{isa:?} {n} {signed}");
                }
            }
        }
    }
}
