//! Steps of a strip that follow each other on the same lanes, done in registers: bytes become numbers on the way in and
//! numbers bytes on the way out.
//!
//! ```text
//! r0 = f32(x); r0 = r0 + -3; r0 = r0 * 0.02   ->   r0 = chain x: from bytes, add -3, multiply by 0.02
//! ```

use crate::isa::Isa;
use crate::strip_program::{Code, IntWork, Link, Operand, Step, Uniform, Work};
use crate::tile_memory::Lane;
use tensor_ir::dtype::DType;
use tensor_ir::tir::{BinaryOp, UnaryOp};

/// The lanes that a step reads, and the link that it is: of the result `last` of the step before it, if it reads that.
fn link(work: &Work, last: Option<Operand>, uniforms: &mut Vec<Uniform>) -> Option<(Operand, Link<Operand>)> {
    let lanes = |o: &Operand| !matches!(o, Operand::Uniform(_));
    Some(match work {
        Work::Unary(op, a) if lanes(a) => {
            let link = match op {
                UnaryOp::Neg => Link::Neg,
                UnaryOp::Abs => Link::Abs,
                UnaryOp::Round => Link::Round,
                UnaryOp::Exp => Link::Exp,
                _ => return None,
            };
            (*a, link)
        }
        Work::Binary(op, [a, b]) => {
            let [straight, turned]: [fn(Operand) -> Link<Operand>; 2] = match op {
                BinaryOp::Add => [Link::Add, Link::Add],
                BinaryOp::Sub => [Link::Sub, Link::SubFrom],
                BinaryOp::Mul => [Link::Mul, Link::Mul],
                BinaryOp::Div => [Link::Div, Link::DivFrom],
                BinaryOp::Max => [Link::Max, Link::Max],
                BinaryOp::Min => [Link::Min, Link::Min],
                _ => return None,
            };
            let is_turned = !lanes(a) || Some(*a) != last && Some(*b) == last;
            if is_turned { (*b, turned(*a)) } else { (*a, straight(*b)) }
        }
        Work::Polynomial(a, numbers) if lanes(a) => {
            let first = uniforms.len();
            uniforms.extend(numbers.iter().map(|x| Uniform::Number(*x)));
            (*a, Link::Polynomial(first, numbers.len()))
        }
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
        let step = &code.steps[n];
        let last = steps.last().map(|s| Operand::Register(s.to)).filter(|_| is_used_once(code, n - 1));
        let Some((from, link)) = link(&step.work, last, &mut code.uniforms) else {
            steps.push(step.clone());
            continue;
        };
        match steps.last_mut().filter(|_| last == Some(from)) {
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

/// True if a product with the reciprocal, corrected twice, is the exact quotient by this number.
pub(crate) fn is_moderate(x: f32) -> bool {
    [x, 1.0 / x].iter().all(|x| x.abs() <= 16_384.0)
}

/// Replaces divisions by a number whose quotients are rounded to integers with products.
pub(crate) fn divide_by_products(links: &mut [Link<Lane>]) {
    for n in 1..links.len() {
        if let (Link::Div(Lane::All(x)), Link::Round) = (links[n - 1], links[n])
            && is_moderate(x)
        {
            links[n - 1] = Link::DivBy(x, 1.0 / x);
        }
    }
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

/// Links, and uniforms.
type Links<'l> = (&'l [Link<Lane>], &'l [f32]);

macro_rules! body {
    ($(#[$feature:meta])* $name:ident) => {
        mod $name {
            use super::{Lane, Lies, Link, Links, Side};
            use crate::math::{EXP, EXP_ENDS, LN_2, LOG2_E, ROUND};
            use crate::vectors::$name::*;

            const VECTORS: usize = 4;
            const AT_ONCE: usize = VECTORS * LANES;

            $(#[$feature])*
            #[inline]
            fn polynomial(x: Vector, numbers: &[f32]) -> Vector {
                numbers[1..].iter().fold(splat(numbers[0]), |sum, c| fma(sum, x, splat(*c)))
            }

            /// Of a few vectors at once.
            $(#[$feature])*
            #[inline]
            fn polynomials(v: &[Vector; VECTORS], numbers: &[f32]) -> [Vector; VECTORS] {
                let mut sums = [splat(numbers[0]); VECTORS];
                for c in &numbers[1..] {
                    for (sum, x) in sums.iter_mut().zip(v) {
                        *sum = fma(*sum, *x, splat(*c));
                    }
                }
                sums
            }

            /// As [`crate::math::exp`].
            $(#[$feature])*
            #[inline]
            fn exp(x: Vector) -> Vector {
                // NaN stays what it is.
                let bounded = max(splat(EXP_ENDS[0]), min(splat(EXP_ENDS[1]), x));
                let rounded = fma(bounded, splat(LOG2_E), splat(ROUND));
                let (n, integer) = (sub(rounded, splat(ROUND)), sub_int(rounded, splat(ROUND)));
                let r = fma(n, splat(-LN_2[1]), fma(n, splat(-LN_2[0]), bounded));
                let y = add(fma(mul(polynomial(r, &EXP), r), r, r), splat(1.0));
                let int = |x: i32| splat(f32::from_bits(x as u32));
                let power_of_two = |n: Vector| shift_left(add_int(n, int(127)), int(23));
                // Half of it, rounded down: of what is not below 0.
                let half = sub_int(shift_right(add_int(integer, int(256)), int(1)), int(128));
                mul(mul(y, power_of_two(half)), power_of_two(sub_int(integer, half)))
            }

            /// The links of a block of lanes that were loaded as `read`, the first ones as many as a mask has; operands
            /// that are lanes begin so many before the block.
            ///
            /// # Safety
            /// As many lanes of the operands are readable, and numbers of as many rows as the whole block has.
            $(#[$feature])*
            #[inline]
            unsafe fn apply(
                (links, uniforms): Links<'_>,
                read: Lies,
                (before, masks): (usize, &[Mask; VECTORS]),
                v: &mut [Vector; VECTORS],
            ) {
                macro_rules! each {
                    (|$a:ident| $e:expr) => {
                        for v in &mut *v {
                            let $a = *v;
                            *v = $e;
                        }
                    };
                    ($x:expr, |$a:ident, $b:ident| $e:expr) => {
                        match $x {
                            Lane::All(x) => {
                                let $b = splat(x);
                                each!(|$a| $e)
                            }
                            // Rows are whole vectors: `super::run` makes numbers of others.
                            Lane::Rows(numbers, columns) => {
                                let vectors = (columns / LANES) as u32;
                                for (i, v) in ((before / LANES) as u32..).zip(v.iter_mut()) {
                                    // SAFETY: as said.
                                    let ($a, $b) = (*v, splat(unsafe { *numbers.add((i / vectors) as usize) }));
                                    *v = $e;
                                }
                            }
                            Lane::At(lanes) => {
                                for (i, v) in v.iter_mut().enumerate() {
                                    // SAFETY: as said.
                                    let $b = unsafe { load(masks[i], lanes.wrapping_add(before + i * LANES)) };
                                    let $a = *v;
                                    *v = $e;
                                }
                            }
                        }
                    };
                }
                for link in links {
                    match *link {
                        // Bytes are numbers when they are loaded.
                        Link::ToFloat if read == Lies::Words => each!(|a| to_float(a)),
                        Link::ToFloat => {}
                        Link::Add(x) => each!(x, |a, b| add(a, b)),
                        Link::Sub(x) => each!(x, |a, b| sub(a, b)),
                        Link::SubFrom(x) => each!(x, |a, b| sub(b, a)),
                        Link::Mul(x) => each!(x, |a, b| mul(a, b)),
                        Link::Div(x) => each!(x, |a, b| div(a, b)),
                        Link::DivBy(x, reciprocal) => each!(|a| quotient(a, x, reciprocal)),
                        Link::DivFrom(x) => each!(x, |a, b| div(b, a)),
                        Link::Max(x) => each!(x, |a, b| keep_max(a, b)),
                        Link::Min(x) => each!(x, |a, b| keep_min(a, b)),
                        Link::Neg => each!(|a| sub(splat(-0.0), a)),
                        Link::Abs => each!(|a| and(a, splat(f32::from_bits(!(1 << 31))))),
                        Link::Round => each!(|a| round(a)),
                        Link::Exp => each!(|a| exp(a)),
                        Link::Polynomial(first, count) => *v = polynomials(v, &uniforms[first..][..count]),
                        Link::ToInt(low, high) => each!(|a| to_int(a, low, high)),
                    }
                }
            }

            /// # Safety
            /// A block of lanes is readable and writable, and of the operands the first `own` ones.
            $(#[$feature])*
            #[inline]
            unsafe fn block(
                links: Links<'_>,
                (before, own): (usize, usize),
                (from, read): Side<*const u8>,
                (to, write): Side<*mut u8>,
            ) {
                let (mut v, mut masks) = ([splat(0.0); VECTORS], [mask(LANES); VECTORS]);
                // SAFETY: as said.
                unsafe {
                    for (i, v) in v.iter_mut().enumerate() {
                        let place = from.add(i * LANES * read.size());
                        *v = match read {
                            Lies::Words => load(mask(LANES), place.cast()),
                            Lies::Bytes(signed) => load_bytes(signed, place),
                        };
                        masks[i] = mask(own.saturating_sub(i * LANES));
                    }
                    apply(links, read, (before, &masks), &mut v);
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
                links: Links<'_>,
                (from, read): Side<*const u8>,
                (to, write): Side<*mut u8>,
                n: usize,
            ) {
                let whole = n / AT_ONCE * AT_ONCE;
                // SAFETY: as said; the lanes behind the last whole block are copied to memory that has one.
                unsafe {
                    for at in (0..whole).step_by(AT_ONCE) {
                        let sides = ((from.add(at * read.size()), read), (to.add(at * write.size()), write));
                        block(links, (at, AT_ONCE), sides.0, sides.1);
                    }
                    if whole < n {
                        let (mut first, mut last) = ([0f32; AT_ONCE], [0f32; AT_ONCE]);
                        let source = from.add(whole * read.size());
                        source.copy_to_nonoverlapping(first.as_mut_ptr().cast(), (n - whole) * read.size());
                        let sides = ((first.as_ptr().cast(), read), (last.as_mut_ptr().cast(), write));
                        block(links, (whole, n - whole), sides.0, sides.1);
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
/// So many lanes are readable, in operands too, and writable; they are the same ones or lie apart. Numbers of rows are
/// in a register, which has room for a block more. The machine has `isa`.
pub(crate) unsafe fn run(
    isa: Isa,
    (links, uniforms): Links<'_>,
    from: Side<*const u8>,
    to: Side<*mut u8>,
    n: usize,
    rows: &mut Vec<Link<Lane>>,
) {
    let of_rows = |l: &Link<Lane>| if let Some(Lane::Rows(_, columns)) = l.operand() { Some(columns) } else { None };
    // SAFETY: as said.
    let Some(columns) = links.iter().find_map(of_rows).filter(|columns| !columns.is_multiple_of(lanes(isa))) else {
        return unsafe { run_lanes(isa, (links, uniforms), from, to, n) };
    };
    // A row after another, each with its number.
    for row in 0..n / columns {
        let at = row * columns;
        rows.clear();
        rows.extend(links.iter().map(|l| {
            l.map(|x| match x {
                // SAFETY: there is a number for each row.
                Lane::Rows(numbers, _) => Lane::All(unsafe { *numbers.add(row) }),
                Lane::At(lanes) => Lane::At(lanes.wrapping_add(at)),
                all => all,
            })
        }));
        let (from, to) =
            ((from.0.wrapping_add(at * from.1.size()), from.1), (to.0.wrapping_add(at * to.1.size()), to.1));
        // SAFETY: as said.
        unsafe { run_lanes(isa, (rows, uniforms), from, to, columns) };
    }
}

/// Lanes of a vector.
fn lanes(isa: Isa) -> usize {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => crate::vectors::avx512::LANES,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => crate::vectors::avx2::LANES,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => crate::vectors::neon::LANES,
        _ => crate::vectors::portable::LANES,
    }
}

/// Runs links whose numbers of rows are of rows of whole vectors.
///
/// # Safety
/// As [`run`].
unsafe fn run_lanes(isa: Isa, links: Links<'_>, from: Side<*const u8>, to: Side<*mut u8>, n: usize) {
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
    use crate::math;

    /// Numbers and bytes on both sides, lanes that are no whole blocks, in every body.
    #[test]
    fn chains_are_what_their_links_are() {
        let all = |x: f32| Lane::All(x);
        let links = [
            Link::Add(all(-3.0)),
            Link::Mul(all(0.5)),
            Link::Max(all(-4.5)),
            Link::Div(all(0.7)),
            Link::Sub(all(1.0)),
            Link::Round,
        ];
        let apply = |x: f32| (((x - 3.0) * 0.5).max(-4.5) / 0.7 - 1.0).round_ties_even();
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for n in [1, 7, 64, 77, 300] {
                let bytes: Vec<u8> = (0..n).map(|i| (i * 37 % 256) as u8).collect();
                for signed in [false, true] {
                    let number = |x: u8| if signed { f32::from(x as i8) } else { f32::from(x) };
                    let [low, high] = if signed { [-128.0, 127.0] } else { [0.0, 255.0] };
                    let words: Vec<f32> = bytes.iter().map(|x| number(*x)).collect();
                    let ints: Vec<i32> = words.iter().map(|x| *x as i32).collect();
                    let whole: Vec<Link<Lane>> =
                        [Link::ToFloat].into_iter().chain(links).chain([Link::ToInt(low, high)]).collect();
                    let (mut out, mut narrow) = (vec![0f32; n], vec![0u8; n]);
                    let [to, own] = [out.as_mut_ptr().cast(), narrow.as_mut_ptr()];
                    // SAFETY: each vector has `n` lanes.
                    unsafe {
                        run_lanes(isa, (&links, &[]), (words.as_ptr().cast(), Lies::Words), (to, Lies::Words), n);
                        assert!(out.iter().zip(&words).all(|(o, x)| *o == apply(*x)), "{isa:?} {n}");
                        run_lanes(isa, (&whole[..7], &[]), (bytes.as_ptr(), Lies::Bytes(signed)), (to, Lies::Words), n);
                        assert!(out.iter().zip(&words).all(|(o, x)| *o == apply(*x)), "{isa:?} {n} {signed}");
                        run_lanes(
                            isa,
                            (&whole, &[]),
                            (ints.as_ptr().cast(), Lies::Words),
                            (own, Lies::Bytes(signed)),
                            n,
                        );
                    }
                    let held = |x: f32| apply(x).clamp(low, high);
                    assert!(narrow.iter().zip(&words).all(|(o, x)| number(*o) == held(*x)), "{isa:?} {n} {signed}");
                }
            }
        }
    }

    /// Operands that are lanes, and functions, the ends of numbers included.
    #[test]
    fn chains_read_other_lanes() {
        let numbers = [0.25, -1.5, 3.0];
        let exp = |x: f32| math::exp(math::Fused::<true>, x);
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for n in [1, 7, 64, 77, 300] {
                let ends = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e30, -1e30, 88.5, -100.0];
                let x: Vec<f32> = (0..n).map(|i| if i < 8 { ends[i] } else { i as f32 * 0.37 - 40.0 }).collect();
                let y: Vec<f32> = (0..n).map(|i| (i * 29 % 17) as f32 - 8.0).collect();
                let lanes = Lane::At(y.as_ptr());
                let check = |links: &[Link<Lane>], want: &dyn Fn(f32, f32) -> f32| {
                    let mut out = vec![0f32; n];
                    let to = out.as_mut_ptr().cast();
                    // SAFETY: each vector has `n` lanes.
                    unsafe {
                        run_lanes(isa, (links, &numbers), (x.as_ptr().cast(), Lies::Words), (to, Lies::Words), n)
                    };
                    for (i, got) in out.iter().enumerate() {
                        let want = want(x[i], y[i]);
                        let near = (got - want).abs() <= want.abs() * 3e-7 + 1e-44;
                        let same = near || *got == want || got.is_nan() && want.is_nan();
                        assert!(same, "{isa:?} {n} {links:?} of {} and {}: {got}, not {want}", x[i], y[i]);
                    }
                };
                check(&[Link::Add(lanes)], &|x, y| x + y);
                check(&[Link::Sub(lanes)], &|x, y| x - y);
                check(&[Link::SubFrom(lanes), Link::Abs], &|x, y| (y - x).abs());
                check(&[Link::Mul(lanes), Link::Neg], &|x, y| -(x * y));
                check(&[Link::Div(lanes), Link::DivFrom(Lane::All(2.0))], &|x, y| 2.0 / (x / y));
                check(&[Link::DivFrom(lanes), Link::SubFrom(Lane::All(1.0))], &|x, y| 1.0 - y / x);
                check(&[Link::Max(lanes)], &|x, y| if x.is_nan() { x } else { x.max(y) });
                check(&[Link::Min(lanes)], &|x, y| if x.is_nan() { x } else { x.min(y) });
                check(&[Link::Exp], &|x, _| exp(x));
                let mut divided = [Link::Div(Lane::All(0.7)), Link::Round];
                divide_by_products(&mut divided);
                assert_eq!(divided[0], Link::DivBy(0.7, 1.0 / 0.7));
                check(&divided[..1], &|x, _| x / 0.7);
                check(&divided, &|x, _| (x / 0.7).round_ties_even());
                check(&[Link::Min(Lane::All(9.0)), Link::Max(Lane::All(-9.0)), Link::Polynomial(0, 3)], &|x, _| {
                    let x = if x.is_nan() { x } else { x.clamp(-9.0, 9.0) };
                    ((0.25 * f64::from(x) - 1.5) * f64::from(x) + 3.0) as f32
                });
            }
        }
    }

    /// A number for each row, of whole vectors and others, beside lanes.
    #[test]
    fn rows_have_numbers() {
        let numbers: Vec<f32> = (0..crate::tile_memory::LANES).map(|i| (i * 13 % 31) as f32 - 7.0).collect();
        for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
            for (rows, columns) in [(1, 16), (5, 16), (3, 32), (8, 64), (2, 48), (4, 20), (7, 3), (2, 200)] {
                let n = rows * columns;
                let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.5 - 9.0).collect();
                let y: Vec<f32> = (0..n).map(|i| (i * 29 % 17) as f32).collect();
                let row = Lane::Rows(numbers.as_ptr(), columns);
                let links = [Link::Sub(row), Link::Mul(Lane::At(y.as_ptr())), Link::Add(row)];
                let (mut out, mut kept) = (vec![0f32; n], vec![]);
                let to = (out.as_mut_ptr().cast(), Lies::Words);
                // SAFETY: each vector has `n` lanes, and the numbers are as many as a register's.
                unsafe { run(isa, (&links, &[]), (x.as_ptr().cast(), Lies::Words), to, n, &mut kept) };
                let want = (0..n).map(|i| (x[i] - numbers[i / columns]) * y[i] + numbers[i / columns]);
                assert!(out.iter().copied().eq(want), "{isa:?} {rows} {columns}");
            }
        }
    }
}
