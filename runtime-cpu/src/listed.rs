//! Reads elements whose places are listed; see `along`.

use crate::along::Listed;
use crate::form::Form;
use crate::halves;
use crate::isa::{Isa, versions};
use crate::memory::View;

/// Elements next to each other from which on they are read together.
const RUN: usize = 8;

/// Reads a row of elements from `first` on into lanes.
///
/// # Safety
/// The places are elements of the view.
pub(crate) unsafe fn read(isa: Isa, view: &View, first: i64, from: Listed<'_>, to: &mut [f32]) {
    let is_word = matches!(view.form(), Form::F32 | Form::I32 | Form::U32);
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
