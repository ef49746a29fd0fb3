//! Buffers as kernels see them: memory with a storage form, bounds checked once for each run of elements.

use crate::form::Form;
use crate::halves;
use crate::isa::Isa;
use crate::vectors::prefetch;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::rc::Rc;

/// An element in memory and the lane type that it is computed in.
pub(crate) trait Element: Copy + 'static {
    /// f32, f64 or i64.
    type Lane: Copy;
    /// It is its own lane type.
    const IS_LANE: bool;
    fn read(self) -> Self::Lane;
    fn write(lane: Self::Lane) -> Self;
    /// Reads adjacent elements.
    #[inline(always)]
    fn read_all(from: &[Self], to: &mut [Self::Lane]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from.read());
    }
    /// Writes adjacent elements.
    #[inline(always)]
    fn write_all(from: &[Self::Lane], to: &mut [Self]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = Self::write(*from));
    }
}
macro_rules! elements {
    ($($t:ty => $lane:ty, $same:literal, $read:expr, $write:expr $(, $read_all:expr, $write_all:expr)?;)*) => { $(
        impl Element for $t {
            type Lane = $lane;
            const IS_LANE: bool = $same;
            #[inline(always)]
            fn read(self) -> $lane { $read(self) }
            #[inline(always)]
            fn write(lane: $lane) -> $t { $write(lane) }
            $(
                fn read_all(from: &[$t], to: &mut [$lane]) { $read_all(from, to) }
                fn write_all(from: &[$lane], to: &mut [$t]) { $write_all(from, to) }
            )?
        }
    )* };
}
elements! {
    f32 => f32, true, |x| x, |x| x;
    f64 => f64, true, |x| x, |x| x;
    f16 => f32, false, f16::to_f32, f16::from_f32,
        |from: &[f16], to: &mut [f32]| halves::widen_f16(Isa::best(), from.reinterpret_cast(), to),
        |from: &[f32], to: &mut [f16]| halves::narrow_f16(Isa::best(), from, to.reinterpret_cast_mut());
    bf16 => f32, false, bf16::to_f32, bf16::from_f32;
    i8 => i64, false, i64::from, |x| x as i8;
    u8 => i64, false, i64::from, |x| x as u8;
    i32 => i64, false, i64::from, |x| x as i32;
    u32 => i64, false, i64::from, |x| x as u32;
    i64 => i64, true, |x| x, |x| x;
    u64 => i64, false, |x| x as i64, |x| x as u64;
}

/// Memory is aligned to cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(#[allow(dead_code)] [u8; 64]);
impl Line {
    pub(crate) const ZERO: Line = Line([0; 64]);
}

/// A buffer of a kernel while it runs. Tasks of one kernel share global buffers: they write different elements, and
/// none reads what another one writes, which `tensor_ir::check` has proved of the schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    at: *mut u8,
    elements: usize,
    form: Form,
}
// SAFETY: see `View`; whoever makes one owns the memory for as long as the kernel runs.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

/// Places in a buffer: `rows` x `columns` of them, from `first` on at these strides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub first: i64,
    pub rows: usize,
    pub columns: usize,
    pub row_stride: i64,
    pub column_stride: i64,
}

impl Span {
    /// The least and the greatest place.
    fn ends(&self) -> (i64, i64) {
        let along = |n: usize, stride: i64| stride * (n as i64 - 1).max(0);
        let (r, c) = (along(self.rows, self.row_stride), along(self.columns, self.column_stride));
        (self.first + r.min(0) + c.min(0), self.first + r.max(0) + c.max(0))
    }
    /// Elements lie next to each other in order.
    pub(crate) fn is_contiguous(&self) -> bool {
        (self.column_stride == 1 || self.columns == 1) && (self.rows == 1 || self.row_stride == self.columns as i64)
    }
    /// Elements of each column lie next to each other, and columns apart.
    pub(crate) fn is_turned(&self) -> bool {
        self.row_stride == 1 && self.rows > 1 && self.column_stride.abs() > 1
    }
    /// The same places; a column is a row.
    fn flat(&self) -> Span {
        match self.columns {
            1 => Span { rows: 1, columns: self.rows, column_stride: self.row_stride, ..*self },
            _ => *self,
        }
    }
    /// All places are one.
    pub(crate) fn is_single(&self) -> bool {
        (self.column_stride == 0 || self.columns == 1) && (self.rows == 1 || self.row_stride == 0)
    }
}

impl View {
    /// A view of `bytes` bytes at `at`, of which whole elements count.
    pub(crate) fn new(at: *mut u8, bytes: usize, form: Form) -> View {
        View { at, elements: bytes / form.size(), form }
    }
    pub(crate) fn form(&self) -> Form {
        self.form
    }
    /// How many elements it has.
    pub(crate) fn elements(&self) -> usize {
        self.elements
    }
    /// True if all places of the span are elements.
    pub(crate) fn holds(&self, s: &Span) -> bool {
        let (low, high) = s.ends();
        low >= 0 && high < self.elements as i64
    }
    /// Stops the run if a place is none: a schedule that passed `tensor_ir::check` has no such access.
    pub(crate) fn require(&self, s: &Span) {
        let (low, high) = s.ends();
        self.require_all(low, high);
    }
    /// The same for all places from `low` to `high`.
    #[inline]
    pub(crate) fn require_all(&self, low: i64, high: i64) {
        assert!(
            low >= 0 && high < self.elements as i64,
            "an access to {low}..={high} of a buffer of {} elements: a bug of the schedule",
            self.elements
        );
    }
    /// The elements of a contiguous span.
    pub(crate) fn slice<'m, T: Element>(&self, s: &Span) -> &'m [T] {
        debug_assert_eq!(size_of::<T>(), self.form.size());
        self.require(s);
        // SAFETY: in bounds, as just checked; aligned, since buffers are and every place is a whole element; nobody
        // writes these elements while the result is used (see `View`; a task stores only when it is done with what it
        // loaded).
        unsafe { std::slice::from_raw_parts(self.at.cast::<T>().add(s.first as usize), s.rows * s.columns) }
    }
    /// A pointer to the bytes of an element, wherever it is.
    pub(crate) fn bytes_of(&self, place: i64) -> *mut u8 {
        self.at.wrapping_offset(place as isize * self.form.size() as isize)
    }
    /// A pointer to an element of a checked span.
    pub(crate) fn pointer<T>(&self, place: i64) -> *mut T {
        debug_assert!(place >= 0 && place <= self.elements as i64);
        self.at.cast::<T>().wrapping_offset(place as isize)
    }
    /// One element.
    pub(crate) fn get<T: Element>(&self, place: i64) -> T::Lane {
        self.require(&Span { first: place, rows: 1, columns: 1, row_stride: 0, column_stride: 0 });
        // SAFETY: in bounds, as just checked.
        unsafe { *self.at.cast::<T>().add(place as usize) }.read()
    }
    /// One element as an integer; 0 outside of the buffer, where lanes read that take no part: what indices load under
    /// a condition is computed for all of them.
    pub(crate) fn integer(&self, place: i64) -> i64 {
        if !(0..self.elements as i64).contains(&place) {
            return 0;
        }
        match self.form {
            Form::I8 => self.get::<i8>(place),
            Form::U8 => self.get::<u8>(place),
            Form::I32 => self.get::<i32>(place),
            Form::U32 => self.get::<u32>(place),
            Form::I64 => self.get::<i64>(place),
            Form::U64 => self.get::<u64>(place),
            Form::F32 => self.get::<f32>(place) as i64,
            Form::F64 => self.get::<f64>(place) as i64,
            Form::F16 => self.get::<f16>(place) as i64,
            Form::BF16 => self.get::<bf16>(place) as i64,
        }
    }
    /// Reads a span into lanes.
    pub(crate) fn read<T: Element>(&self, s: &Span, to: &mut [T::Lane]) {
        self.require(s);
        let s = &s.flat();
        let base = self.at.cast::<T>();
        if s.is_turned() {
            for c in 0..s.columns {
                let from = base.wrapping_offset((s.first + c as i64 * s.column_stride) as isize);
                // Each column is a stream of its own, more of them than a processor follows: the rows after the next.
                prefetch(from.wrapping_add(2 * s.rows).cast(), s.rows);
                for r in 0..s.rows {
                    // SAFETY: every place of the span is an element, as just checked.
                    to[r * s.columns + c] = unsafe { *from.add(r) }.read();
                }
            }
            return;
        }
        for (r, row) in to[..s.rows * s.columns].chunks_exact_mut(s.columns).enumerate() {
            let first = s.first + r as i64 * s.row_stride;
            match s.column_stride {
                // SAFETY: every place of the span is an element, as just checked.
                0 => row.fill(unsafe { *base.add(first as usize) }.read()),
                1 => {
                    // SAFETY: as above.
                    let from = unsafe { std::slice::from_raw_parts(base.add(first as usize), s.columns) };
                    T::read_all(from, row);
                }
                // SAFETY: as above.
                2 => unsafe { read_apart::<T, 2>(base.add(first as usize), row) },
                // SAFETY: as above.
                3 => unsafe { read_apart::<T, 3>(base.add(first as usize), row) },
                // SAFETY: as above.
                4 => unsafe { read_apart::<T, 4>(base.add(first as usize), row) },
                stride => {
                    for (c, to) in row.iter_mut().enumerate() {
                        // SAFETY: as above.
                        *to = unsafe { *base.offset((first + c as i64 * stride) as isize) }.read();
                    }
                }
            }
        }
    }
    /// Writes lanes, from lane `n` on, to a span; with a mask only those that it has.
    pub(crate) fn write<T: Element>(&self, s: &Span, lanes: &Source<'_, T::Lane>, mut n: usize, mask: Option<&[u8]>) {
        if mask.is_none() {
            self.require(s);
        }
        let s = &s.flat();
        let base = self.at.cast::<T>();
        if s.is_turned() && mask.is_none() {
            for c in 0..s.columns {
                let first = s.first + c as i64 * s.column_stride;
                for r in 0..s.rows {
                    // SAFETY: every place of the span is an element, as just checked.
                    unsafe {
                        base.offset(first as isize + r as isize).write(T::write(lanes.at(n + r * s.columns + c)))
                    };
                }
            }
            return;
        }
        for r in 0..s.rows {
            let first = s.first + r as i64 * s.row_stride;
            if s.column_stride == 1 && mask.is_none() {
                // SAFETY: every place of the span is an element, as checked above; whoever loaded from there is done
                // (see `slice`).
                let to = unsafe { base.add(first as usize) };
                lanes.copy_to::<T>(n, s.columns, to);
                n += s.columns;
                continue;
            }
            if let (None, Ok(from)) = (mask, lanes.lanes()) {
                let mut to = base.wrapping_offset(first as isize);
                for x in &from[n..n + s.columns] {
                    // SAFETY: every place of the span is an element, as checked above.
                    unsafe { to.write(T::write(*x)) };
                    to = to.wrapping_offset(s.column_stride as isize);
                }
                n += s.columns;
                continue;
            }
            for c in 0..s.columns {
                let place = first + c as i64 * s.column_stride;
                if mask.is_none_or(|m| m[n] != 0) {
                    assert!(place >= 0 && place < self.elements as i64, "a store to {place}: a bug of the schedule");
                    // SAFETY: in bounds, as just checked.
                    unsafe { base.add(place as usize).write(T::write(lanes.at(n))) };
                }
                n += 1;
            }
        }
    }
}

/// Reads every `STRIDE`th element, a few vectors at once.
///
/// # Safety
/// As many elements as `to` has are readable from `from` on, so far apart.
unsafe fn read_apart<T: Element, const STRIDE: usize>(from: *const T, to: &mut [T::Lane]) {
    const AT_ONCE: usize = 16;
    // The last block is read one by one: behind its last element may be none.
    let whole = to.len().saturating_sub(1) / AT_ONCE * AT_ONCE;
    let (blocks, rest) = to.split_at_mut(whole);
    for (n, to) in blocks.chunks_exact_mut(AT_ONCE).enumerate() {
        // SAFETY: one more element follows the block.
        let all = unsafe { std::slice::from_raw_parts(from.add(n * AT_ONCE * STRIDE), AT_ONCE * STRIDE) };
        to.iter_mut().zip(all.chunks_exact(STRIDE)).for_each(|(to, from)| *to = from[0].read());
    }
    for (n, to) in rest.iter_mut().enumerate() {
        // SAFETY: as said.
        *to = unsafe { *from.add((whole + n) * STRIDE) }.read();
    }
}

/// Lanes of one type: the same in all, elements in memory, or computed ones.
pub(crate) enum Source<'m, T> {
    Splat(T),
    Memory(&'m [T]),
    Own(Box<[T]>),
    /// Computed ones that are used several times.
    Kept(Rc<Box<[T]>>),
}

impl<'m, T: Copy> Source<'m, T> {
    /// The same lanes twice.
    pub(crate) fn keep(self) -> [Source<'m, T>; 2] {
        match self {
            Source::Splat(x) => [Source::Splat(x), Source::Splat(x)],
            Source::Memory(s) => [Source::Memory(s), Source::Memory(s)],
            Source::Own(s) => Source::Kept(Rc::new(s)).keep(),
            Source::Kept(s) => [Source::Kept(s.clone()), Source::Kept(s)],
        }
    }
}

impl<T: Copy> Source<'_, T> {
    #[inline(always)]
    pub(crate) fn at(&self, n: usize) -> T {
        match self {
            Source::Splat(x) => *x,
            Source::Memory(s) => s[n],
            Source::Own(s) => s[n],
            Source::Kept(s) => s[n],
        }
    }
    /// The lanes where they are not all the same.
    pub(crate) fn lanes(&self) -> Result<&[T], T> {
        match self {
            Source::Splat(x) => Err(*x),
            Source::Memory(s) => Ok(s),
            Source::Own(s) => Ok(s),
            Source::Kept(s) => Ok(s),
        }
    }
    /// Stores `count` lanes from `n` on, next to each other.
    fn copy_to<E: Element<Lane = T>>(&self, n: usize, count: usize, to: *mut E) {
        // SAFETY (both): the caller has checked that `count` elements are writable from `to` on. The source may overlap
        // them where a block stores to what it loads, lane by lane: each is read before it is written.
        match self.lanes() {
            // SAFETY: as above; lanes of another type than the elements lie in memory of their own.
            Ok(from) if !E::IS_LANE => {
                E::write_all(&from[n..n + count], unsafe { std::slice::from_raw_parts_mut(to, count) });
            }
            Ok(from) => {
                from[n..n + count].iter().enumerate().for_each(|(i, x)| unsafe { to.add(i).write(E::write(*x)) })
            }
            Err(x) => (0..count).for_each(|i| unsafe { to.add(i).write(E::write(x)) }),
        }
    }
}

/// Calls `$e` with `$t` as the element type of a form.
macro_rules! with_form {
    ($form:expr, $t:ident, F => $f:expr, D => $d:expr, I => $i:expr) => {
        match $form {
            $crate::form::Form::F32 => {
                type $t = f32;
                $f
            }
            $crate::form::Form::F16 => {
                type $t = half::f16;
                $f
            }
            $crate::form::Form::BF16 => {
                type $t = half::bf16;
                $f
            }
            $crate::form::Form::F64 => {
                type $t = f64;
                $d
            }
            $crate::form::Form::I8 => {
                type $t = i8;
                $i
            }
            $crate::form::Form::U8 => {
                type $t = u8;
                $i
            }
            $crate::form::Form::I32 => {
                type $t = i32;
                $i
            }
            $crate::form::Form::U32 => {
                type $t = u32;
                $i
            }
            $crate::form::Form::I64 => {
                type $t = i64;
                $i
            }
            $crate::form::Form::U64 => {
                type $t = u64;
                $i
            }
        }
    };
}
pub(crate) use with_form;
