//! The values of an index for all lanes of a chunk.
//!
//! Sums of multiples of the lanes' variables are counted up. What divides such a sum by a number is counted up, too:
//!
//! ```text
//! w / 2, w % 2 for w = 5, 6, 7, 8   ->   quotient 2, 3, 3, 4; remainder 1, 0, 1, 0
//! ```
//!
//! What differs between the rows alone is computed once a row, and what differs between the columns alone once.

use crate::execute::Chunk;
use crate::index::{Index, Node, Scene, Slot, floor_div};

/// The lanes of a chunk: rows and columns, with the variable of each.
#[derive(Clone, Copy)]
struct Grid {
    rows: usize,
    columns: usize,
    slots: [Slot; 2],
}

impl Index {
    /// The values for the lanes of `c`, of which the scene has the first.
    pub(crate) fn lanes(&self, s: Scene<'_>, c: &Chunk, out: &mut [i64]) {
        out.fill(0);
        self.add_lanes(s, Grid { rows: c.rows, columns: c.columns, slots: c.slots }, 1, out);
    }
    /// Adds `times` the values to `out`.
    fn add_lanes(&self, s: Scene<'_>, g: Grid, times: i64, out: &mut [i64]) {
        let [row, column] = self.steps(g);
        let first = self.terms.iter().fold(self.base, |sum, t| sum + s.env[t.0] * t.1);
        for (r, lanes) in out.chunks_exact_mut(g.columns).enumerate() {
            let at = (first + r as i64 * row) * times;
            (0i64..).zip(lanes).for_each(|(c, o)| *o += at + c * column * times);
        }
        self.rest.iter().for_each(|(by, n)| n.add_lanes(s, g, by * times, out));
    }
    /// By how much the sum grows from row to row and from column to column, without what is no sum.
    fn steps(&self, g: Grid) -> [i64; 2] {
        g.slots.map(|slot| self.terms.iter().find(|t| t.0 == slot).map_or(0, |t| t.1))
    }
}

impl Node {
    fn add_lanes(&self, s: Scene<'_>, g: Grid, times: i64, out: &mut [i64]) {
        let [by_row, by_column] = [g.rows > 1 && self.uses(g.slots[0]), g.columns > 1 && self.uses(g.slots[1])];
        if !by_column && g.columns > 1 {
            let each = self.values(s, Grid { columns: 1, ..g }, times);
            let rows = out.chunks_exact_mut(g.columns).zip(&each);
            return rows.for_each(|(lanes, value)| lanes.iter_mut().for_each(|o| *o += value));
        }
        if !by_row && g.rows > 1 {
            let each = self.values(s, Grid { rows: 1, ..g }, times);
            let rows = out.chunks_exact_mut(g.columns);
            return rows.for_each(|lanes| lanes.iter_mut().zip(&each).for_each(|(o, value)| *o += value));
        }
        if let Node::Div(a, b) | Node::Mod(a, b) = self
            && let Some(by) = b.as_constant().filter(|n| *n > 0)
            && !a.rest.iter().any(|(_, n)| g.slots.iter().any(|slot| n.uses(*slot)))
        {
            return self.count_up(a.eval(s), a.steps(g), by, (g, times), out);
        }
        let [a, b] = self.parts().map(|i| {
            let mut values = vec![0; out.len()];
            i.into_iter().for_each(|i| i.add_lanes(s, g, 1, &mut values));
            values
        });
        let each = out.iter_mut().zip(a.iter().zip(&b));
        each.for_each(|(o, (a, b))| *o += times * self.of(*a, *b, s.views));
    }
    fn values(&self, s: Scene<'_>, g: Grid, times: i64) -> Vec<i64> {
        let mut out = vec![0; g.rows * g.columns];
        self.add_lanes(s, g, times, &mut out);
        out
    }
    /// Quotients or remainders of a sum by the number `by`; the sum is `first` in the first lane.
    fn count_up(&self, first: i64, [row, column]: [i64; 2], by: i64, (g, times): (Grid, i64), out: &mut [i64]) {
        let [quotients, remainders] = if matches!(self, Node::Div(..)) { [times, 0] } else { [0, times] };
        let whole = floor_div(column, by);
        let part = column - whole * by;
        for (r, lanes) in out.chunks_exact_mut(g.columns).enumerate() {
            let at = first + r as i64 * row;
            let mut quotient = floor_div(at, by);
            let mut remainder = at - quotient * by;
            for o in lanes {
                *o += quotients * quotient + remainders * remainder;
                (quotient, remainder) = (quotient + whole, remainder + part);
                let over = i64::from(remainder >= by);
                (quotient, remainder) = (quotient + over, remainder - over * by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(base: i64, terms: &[(Slot, i64)]) -> Index {
        Index { base, terms: terms.to_vec(), rest: vec![] }
    }
    fn with(mut i: Index, by: i64, node: Node) -> Index {
        i.rest.push((by, node));
        i
    }

    /// Variables 0 and 1 are those of the lanes, 2 is one around them.
    #[test]
    fn lanes_have_the_values_of_single_places() {
        let number = |n: i64| sum(n, &[]);
        let mixed = sum(-7, &[(0, 3), (1, 2), (2, 5)]);
        let halves = with(sum(1, &[(1, 1)]), 6, Node::Div(sum(0, &[(1, 1)]), number(2)));
        let all = [
            mixed.clone(),
            halves.clone(),
            with(number(4), 3, Node::Mod(mixed.clone(), number(4))),
            with(mixed.clone(), -2, Node::Div(mixed.clone(), number(5))),
            with(number(0), 1, Node::Div(sum(90, &[(0, -4), (1, -9)]), number(7))),
            with(number(0), 1, Node::Mod(sum(3, &[(1, 11)]), number(4))),
            with(number(0), 5, Node::Mod(halves, number(3))),
            with(number(9), 2, Node::Min(mixed.clone(), sum(4, &[(0, 1)]))),
            with(number(9), 2, Node::Max(sum(0, &[(0, 2)]), number(3))),
            with(number(0), 1, Node::Mul(mixed.clone(), sum(1, &[(1, 1)]))),
            with(number(0), 1, Node::Div(mixed.clone(), number(-3))),
            with(number(0), 1, Node::Div(mixed, sum(0, &[(2, 1)]))),
            with(sum(0, &[(1, 1)]), 8, Node::Mod(sum(0, &[(2, 1)]), number(2))),
        ];
        for index in &all {
            for (rows, columns) in [(1, 1), (1, 9), (6, 1), (5, 7)] {
                for around in [0, 3, -4] {
                    let mut env = [2, 1, around];
                    let c = Chunk { rows, columns, slots: [0, 1] };
                    let mut got = vec![99; rows * columns];
                    index.lanes(Scene { env: &env, views: &[] }, &c, &mut got);
                    let mut want = vec![];
                    for at in 0..rows * columns {
                        (env[0], env[1]) = (2 + (at / columns) as i64, 1 + (at % columns) as i64);
                        want.push(index.eval(Scene { env: &env, views: &[] }));
                    }
                    assert_eq!(got, want, "{index:?} {rows} x {columns}, {around}");
                }
            }
        }
    }
}
