//! Reads elements whose places are listed; see `along`.

use crate::along::Listed;
use crate::form::Form;
use crate::halves;
use crate::isa::{Isa, versions};
use crate::memory::View;

/// Elements next to each other from which on they are read together.
const RUN: usize = 8;
/// How often an element is repeated, at most, that is read once.
const MOST_REPEATS: usize = 4;

/// Reads a row of elements from `first` on into lanes.
///
/// # Safety
/// The places are elements of the view.
pub(crate) unsafe fn read(isa: Isa, view: &View, first: i64, from: Listed<'_>, to: &mut [f32]) {
    let is_word = matches!(view.form(), Form::F32 | Form::I32 | Form::U32);
    if is_word && (2..=MOST_REPEATS).contains(&from.repeats) {
        let place = view.bytes_of(first + i64::from(from.added[0])).cast_const().cast::<f32>();
        // SAFETY: these places are elements, as the caller says.
        let numbers = unsafe { std::slice::from_raw_parts(place, to.len().div_ceil(from.repeats)) };
        return repeat(isa, from.repeats, numbers, to);
    }
    if is_word && from.runs.iter().take(RUN).all(|n| *n < RUN) {
        return gather(isa, view.bytes_of(first).cast::<f32>().cast_const(), from.added, to);
    }
    let mut at = 0;
    while at < to.len() {
        let n = from.runs[at].min(to.len() - at);
        let run = view.bytes_of(first + i64::from(from.added[at])).cast_const();
        // SAFETY: the caller vouches for these elements, which lie next to each other.
        unsafe { halves::widen(isa, view.form(), run, &mut to[at..][..n]) };
        at += n;
    }
}

versions! {
    /// Reads elements one by one. They are readable.
    fn gather(from: *const f32, added: &[i32], to: &mut [f32]) {
        for (to, at) in to.iter_mut().zip(added) {
            // SAFETY: as said.
            *to = unsafe { *from.wrapping_offset(*at as isize) };
        }
    }
}

versions! {
    /// Repeats each number so often; the last one may be cut off.
    fn repeat(times: usize, numbers: &[f32], to: &mut [f32]) {
        #[inline(always)]
        fn each<const N: usize>(numbers: &[f32], to: &mut [f32]) {
            let (whole, rest) = to.as_chunks_mut::<N>();
            whole.iter_mut().zip(numbers).for_each(|(to, x)| *to = [*x; N]);
            rest.fill(numbers[numbers.len() - 1]);
        }
        match times {
            2 => each::<2>(numbers, to),
            3 => each::<3>(numbers, to),
            _ => each::<4>(numbers, to),
        }
    }
}
