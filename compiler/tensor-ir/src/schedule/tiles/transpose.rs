//! Tiles of transposes.

use crate::int::Int;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::BufferId;
use crate::traffic::{BANK_BYTES, BANKS};

/// Elements of a vector.
pub(in crate::schedule) const VECTOR: i64 = 4;
/// Elements of a tile for each thread.
const OF_A_THREAD: i64 = 8;
/// Threads of a workgroup, at most.
const THREADS: i64 = 256;
/// Rows and columns that a tile may have.
const SIZES: [(i64, i64); 7] = [(32, 32), (32, 64), (64, 32), (64, 64), (16, 32), (16, 64), (32, 16)];

/// Which loops of a block are neighbours of what it stores, and which of what it reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::schedule) struct Transposition {
    /// Loops along which what is read lies next to each other, outermost first.
    pub rows: Vec<Name>,
    /// The same for what is stored.
    pub columns: Vec<Name>,
    /// All others.
    pub batch: Vec<Name>,
    /// Iterations of `batch`, `rows` and `columns`.
    pub size: [i64; 3],
    /// Positions of the loads that go along rows.
    pub staged: Vec<usize>,
    /// Rows and columns that a vector may have: so many divide every step of the loops that are no rows (columns).
    pub vectors: (i64, i64),
}

/// By how many elements an access moves with a step of a loop; `None` where that differs from place to place.
pub(in crate::schedule) type Step<'a> = &'a dyn Fn(BufferId, &[Int], Name) -> Option<i64>;

/// An element of a buffer.
pub(in crate::schedule) type Element<'a> = (BufferId, &'a [Int]);

impl Transposition {
    /// Of a block inside `loops` that stores one element and loads others; `None` where all lie alike, or an access of
    /// device memory moves in steps that differ.
    pub(in crate::schedule) fn of(
        loops: &[(Name, i64)],
        store: Element<'_>,
        loads: &[Element<'_>],
        step: Step<'_>,
    ) -> Option<Transposition> {
        let all: Vec<(Name, i64)> = loops.iter().copied().filter(|l| l.1 > 1).collect();
        let steps = |e: &Element<'_>| all.iter().map(|l| step(e.0, e.1, l.0)).collect::<Option<Vec<i64>>>();
        let stored = steps(&store)?;
        let column = stored.iter().position(|s| *s == 1)?;
        let read: Vec<Option<Vec<i64>>> = loads.iter().map(steps).collect();
        let row_of = |s: &Vec<i64>| (s[column].abs() > 1).then(|| s.iter().position(|s| *s == 1))?;
        let row = read.iter().flatten().find_map(row_of)?;
        let is_staged = |s: &Option<Vec<i64>>| s.as_ref().and_then(row_of) == Some(row);
        let staged: Vec<usize> = (0..loads.len()).filter(|&i| is_staged(&read[i])).collect();
        let lying: Vec<&Vec<i64>> = staged.iter().filter_map(|&i| read[i].as_ref()).chain([&stored]).collect();
        let (rows, columns) = (grown(row, column, &all, &lying), grown(column, row, &all, &lying));
        let of = |list: &[usize]| -> Vec<Name> { list.iter().map(|&i| all[i].0).collect() };
        let count = |list: &[usize]| -> i64 { list.iter().map(|&i| all[i].1).product() };
        let rest: Vec<usize> = (0..all.len()).filter(|i| !rows.contains(i) && !columns.contains(i)).collect();
        let vector = |of: &[&Vec<i64>], own: &[usize]| {
            let others = |s: &&&Vec<i64>, n: i64| (0..all.len()).all(|i| own.contains(&i) || s[i] % n == 0);
            let whole = |n: &i64| count(own) % n == 0 && of.iter().all(|s| others(&s, *n));
            [VECTOR, 2].into_iter().find(whole).unwrap_or(1)
        };
        let (loaded, stored) = lying.split_at(lying.len() - 1);
        Some(Transposition {
            vectors: (vector(loaded, &rows), vector(stored, &columns)),
            size: [count(&rest), count(&rows), count(&columns)],
            rows: of(&rows),
            columns: of(&columns),
            batch: of(&rest),
            staged,
        })
    }
    /// The tiles that fit a device for operands of so many `bytes` an element in workgroup memory.
    pub(in crate::schedule) fn tiles(&self, p: &DeviceProfile, bytes: i64) -> Vec<TransposeTile> {
        let of = |(rows, columns): (i64, i64)| {
            let threads = (rows * columns / OF_A_THREAD).min(THREADS).min(i64::from(p.max_invocations));
            let along = columns / self.vectors.1;
            // As many banks as there are threads beside each other that store along the first dimension.
            let pad = (BANKS * self.vectors.0 / rows).max(1) * (BANK_BYTES / bytes).max(1);
            let across = (threads / along).clamp(1, rows / self.vectors.0);
            TransposeTile { rows, columns, threads: (along.min(threads), across), pad }
        };
        // What threads load beside each other along columns meets other banks, too: whole vectors, or single elements
        // of rows as long as there are banks, which begin one bank further each.
        let apart = |t: &TransposeTile| {
            let (of_rows, of_columns) = self.vectors;
            let row = t.columns * bytes == BANKS * BANK_BYTES;
            of_columns == 1 || t.pad % of_columns == 0 || (of_rows == 1 && row)
        };
        let fits = |t: &TransposeTile| {
            apart(t)
                && t.shared_bytes(self, bytes) <= i64::from(p.shared_memory)
                && t.threads.0 * self.vectors.1 == t.columns
                && t.threads.0 <= i64::from(p.max_workgroup_size[0])
                && t.threads.1 <= i64::from(p.max_workgroup_size[1])
        };
        SIZES.into_iter().map(of).filter(fits).collect()
    }
}

/// The loops that lie as one with `first` in all of these steps, outermost first. None of them is `other`.
fn grown(first: usize, other: usize, all: &[(Name, i64)], lying: &[&Vec<i64>]) -> Vec<usize> {
    let mut out = vec![first];
    let mut length = all[first].1;
    let follows =
        |i: &usize, out: &[usize], length: i64| !out.contains(i) && lying.iter().all(|s| s[*i] == s[first] * length);
    while let Some(next) = (0..all.len()).find(|i| *i != other && follows(i, &out, length)) {
        out.insert(0, next);
        length *= all[next].1;
    }
    out
}

/// A workgroup's part of a transpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::schedule) struct TransposeTile {
    pub rows: i64,
    pub columns: i64,
    /// Along columns and rows.
    pub threads: (i64, i64),
    /// Unused elements behind the columns of each vector of rows.
    pub pad: i64,
}

impl TransposeTile {
    /// Bytes of workgroup memory, with `bytes` for each element.
    pub(in crate::schedule) fn shared_bytes(&self, t: &Transposition, bytes: i64) -> i64 {
        let vectors = self.rows / t.vectors.0;
        vectors * (t.vectors.0 * self.columns + self.pad) * bytes * t.staged.len() as i64
    }
}
