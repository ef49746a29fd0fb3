//! Leaves that copy elements as they lie: no lanes are made of them.

use crate::along::Along;
use crate::execute::Task;
use crate::isa::Isa;
use crate::listed;
use crate::run_strips::Part;
use crate::strip_program::{Code, Operand, Strips};
use crate::tile_memory::StripMemory;
use crate::turned::{Turned, turn};

/// Where a row is copied from and to, with the bytes from one element to the next, and how many there are.
#[derive(Clone, Copy)]
struct Row {
    from: *const u8,
    to: *mut u8,
    steps: [isize; 2],
    count: usize,
}

impl Row {
    /// # Safety
    /// The elements are readable and writable, and have that type's size and alignment.
    unsafe fn copy<T: Copy>(&self) {
        let size = size_of::<T>() as isize;
        let (from, to) = (self.from.cast::<T>(), self.to.cast::<T>());
        // SAFETY: as said. A leaf that reads what it stores reads the same element.
        unsafe {
            match self.steps {
                [1, 1] => to.copy_from(from, self.count),
                [0, 1] => std::slice::from_raw_parts_mut(to, self.count).fill(*from),
                [a, b] => {
                    debug_assert!(a * size < isize::MAX && b * size < isize::MAX);
                    (0..self.count as isize).for_each(|i| *to.offset(i * b) = *from.offset(i * a));
                }
            }
        }
    }
}

/// Transposes a part; false if it has no block, or neither operand lies next to itself where the other one does not.
///
/// # Safety
/// All places of the part are elements of that type's size and alignment.
unsafe fn transpose<T: Turned>(
    isa: Isa,
    (from, to): (*const T, *mut T),
    [by, to_by]: [[i64; 2]; 2],
    part: Part,
) -> bool {
    let [by, to_by] = [by, to_by].map(|b| b.map(|n| n as isize));
    if part.rows.min(part.columns) < T::BLOCK {
        return false;
    }
    // SAFETY: as said.
    unsafe {
        match (by, to_by) {
            ([1, stride], [apart, 1]) => turn(isa, (from, stride), (to, apart), [part.rows, part.columns]),
            ([stride, 1], [1, apart]) => turn(isa, (from, stride), (to, apart), [part.columns, part.rows]),
            _ => return false,
        }
    }
    true
}

impl Task<'_> {
    /// Copies a part whose places were asked for; false if the leaf does more, or has a better way.
    pub(crate) fn copy(&self, s: &Strips, code: &Code, part: Part, m: &StripMemory) -> bool {
        let (Some(Operand::Place(n)), true, None) = (code.result, code.steps.is_empty(), s.fold) else { return false };
        let last = s.places.len() - 1;
        let [from, to] = [n, last].map(|at| self.views[s.places[at].buffer]);
        let (Along::Even(to_by), form) = (&s.places[last].along, from.form()) else { return false };
        if form != to.form() || form.size() > 4 {
            return false;
        }
        let rows = 0..part.rows as i64;
        match &s.places[n].along {
            Along::Even(by) if s.transposes => {
                let places = (from.bytes_of(m.first[n]).cast_const(), to.bytes_of(m.first[last]));
                // SAFETY: all places of the part are elements of this size, as was asked when it began.
                return unsafe {
                    match form.size() {
                        1 => transpose::<u8>(self.isa, places, [*by, *to_by], part),
                        4 => transpose::<f32>(self.isa, (places.0.cast(), places.1.cast()), [*by, *to_by], part),
                        _ => false,
                    }
                };
            }
            Along::Even(by) => {
                // Rows that follow each other in both are one.
                let joined = [*by, *to_by].iter().all(|by| *by == [part.columns as i64, 1]);
                let (rows, count) = if joined { (0..1, part.rows * part.columns) } else { (rows, part.columns) };
                for r in rows {
                    let places = [m.first[n] + r * by[0], m.first[last] + r * to_by[0]];
                    let steps = [by[1], to_by[1]].map(|n| n as isize);
                    let row = Row { from: from.bytes_of(places[0]), to: to.bytes_of(places[1]), steps, count };
                    // SAFETY: all places of the part are elements of this size, as was asked when it began.
                    unsafe {
                        match form.size() {
                            1 => row.copy::<u8>(),
                            2 => row.copy::<u16>(),
                            _ => row.copy::<u32>(),
                        }
                    }
                }
            }
            Along::Listed(lists) if to_by[1] == 1 && form.size() == 4 => {
                let [added, columns] = part.within(lists, m.origin, [0, 0]);
                for (r, row) in rows.zip(added.added) {
                    let before = (r > 0).then(|| added.added[r as usize - 1]);
                    let lanes = to.bytes_of(m.first[last] + r * to_by[0]).cast::<f32>();
                    // SAFETY: as above.
                    unsafe {
                        if before == Some(*row) {
                            lanes.copy_from(lanes.wrapping_offset(-to_by[0] as isize), part.columns);
                            continue;
                        }
                        let lanes = std::slice::from_raw_parts_mut(lanes, part.columns);
                        listed::read(self.isa, &from, m.first[n] + i64::from(*row), columns, lanes);
                    }
                }
            }
            Along::Listed(_) => return false,
        }
        true
    }
}
