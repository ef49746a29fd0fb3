//! Steps of strips on integers of at most 32 bits: lanes have them as the bits of numbers.

use crate::execute::Task;
use crate::isa::Isa;
use crate::memory::Span;
use crate::run_strips::Part;
use crate::strip_bodies as bodies;
use crate::strip_elements::{all, known, lane, of_int, write_ints};
use crate::strip_program::{Code, IntWork, Strips};
use crate::tile_memory::{Lane, StripMemory};
use tensor_ir::dtype::DType;
use tensor_ir::interpreter::scalar;
use tensor_ir::tir::{BinaryOp, Combiner, WithBinary, WithUnary};

impl Task<'_> {
    pub(crate) fn int_step(
        &self,
        s: &Strips,
        work: &IntWork,
        at: [usize; 2],
        strip: Part,
        to: &mut [f32],
        m: &mut StripMemory,
    ) {
        let (isa, n) = (self.isa, to.len());
        match work {
            IntWork::Unary(op, t, a) => {
                bodies::map(isa, |x| op.of_int(*t, i64::from(x)) as i32, ints_mut(to), ints(all(s, 0, *a, n, m)));
            }
            IntWork::Binary(op, t, both) => {
                let [a, b] = [0, 1].map(|i| ints(all(s, i, both[i], n, m)));
                let zipped = Zipped { isa, to: ints_mut(to), a, b };
                // With a constant, the type is not asked for each element.
                let is_plain = *t == DType::I32 || *t == DType::Bool && stays_bool(*op);
                if is_plain { op.with_ints(DType::I32, zipped) } else { op.with_ints(*t, zipped) }
            }
            IntWork::Compare(op, both) => {
                let [a, b] = [0, 1].map(|i| all(s, i, both[i], n, m));
                op.with_comparison::<f32, _>(Compared { isa, to: ints_mut(to), a, b });
            }
            IntWork::Test(op, a) => op.with(Tested { isa, to, a: all(s, 0, *a, n, m) }),
            IntWork::Choose(op, operands) => {
                let [x, y, a, b] = std::array::from_fn(|i| all(s, i, operands[i], n, m));
                let by = [ints(x), ints(y)];
                op.with_comparison::<i32, _>(bodies::Chosen { isa, to, by, limit: None, from: [a, b] });
            }
            IntWork::ToFloat(a) => bodies::floats(isa, to, ints(all(s, 0, *a, n, m))),
            IntWork::ToInt(DType::Bool, a) => {
                bodies::map(isa, |x| of_int(i32::from(x != 0.0)), to, all(s, 0, *a, n, m));
            }
            IntWork::ToInt(t, a) => {
                let [low, high] = [f64::NEG_INFINITY, f64::INFINITY].map(|x| t.saturate(x) as i32);
                let a = all(s, 0, *a, n, m);
                match t.size() {
                    1 | 2 => bodies::to_ints(isa, [low, high].map(|x| x as f32), ints_mut(to), a),
                    _ => bodies::map(isa, |x| of_int((x as i32).clamp(low, high)), to, a),
                }
            }
            IntWork::Wrap(t, a) => {
                bodies::map(isa, |x| t.wrap(i64::from(x)) as i32, ints_mut(to), ints(all(s, 0, *a, n, m)));
            }
            IntWork::Ramp(index, along) => self.ramp(index, along, at, strip, m, to),
        }
    }
    /// Combines all lanes of a part into its element.
    pub(crate) fn fold_ints(&mut self, s: &Strips, code: &Code, part: Part, m: &mut StripMemory) {
        let Some((c, dtype)) = s.fold else { return };
        let nothing = scalar::identity(c, dtype).int();
        let mut sums = [nothing as i32; bodies::SUMS];
        self.each_strip(s, code, part, m, &mut |t, m, at, strip| {
            if let Some(last) = code.steps.last() {
                let to = m.register(last.to);
                t.step(s, &last.work, at, strip, to, m);
            }
            let result = lane(code.result, m);
            fold(t.isa, ints(known(s, 0, result, strip.rows * strip.columns, m)), c, &mut sums);
        });
        let combined = |a: i64, b: i64| c.operator().of_ints(dtype, a, b);
        let folded = sums.iter().fold(nothing, |all, x| combined(all, i64::from(*x)));
        let at = s.places.len() - 1;
        let (view, first) = (self.views[s.places[at].buffer], m.first[at]);
        let begins = s.begins.as_ref().is_some_and(|b| b.iter().all(|slot| self.env[*slot] == 0));
        let old = if begins { nothing } else { view.integer(first) };
        let one = Span { first, rows: 1, columns: 1, row_stride: 0, column_stride: 0 };
        write_ints(self.isa, &view, &one, Lane::All(of_int(combined(old, folded) as i32)), m);
    }
}

/// Functions of bools whose result is one without being wrapped.
fn stays_bool(op: BinaryOp) -> bool {
    let logic = [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor, BinaryOp::Min, BinaryOp::Max];
    op.is_comparison() || logic.contains(&op)
}

/// Combines lanes with partial results. Sums and products wrap.
fn fold(isa: Isa, lanes: &[i32], c: Combiner, sums: &mut [i32; bodies::SUMS]) {
    match c {
        Combiner::Sum => bodies::fold_ints(isa, i32::wrapping_add, lanes, sums),
        Combiner::Prod => bodies::fold_ints(isa, i32::wrapping_mul, lanes, sums),
        Combiner::Max => bodies::fold_ints(isa, |a, b| if a > b { a } else { b }, lanes, sums),
        Combiner::Min => bodies::fold_ints(isa, |a, b| if a < b { a } else { b }, lanes, sums),
    }
}

fn ints(lanes: &[f32]) -> &[i32] {
    bytemuck::cast_slice(lanes)
}

fn ints_mut(lanes: &mut [f32]) -> &mut [i32] {
    bytemuck::cast_slice_mut(lanes)
}

/// A function of two integers.
struct Zipped<'l> {
    isa: Isa,
    to: &'l mut [i32],
    a: &'l [i32],
    b: &'l [i32],
}

impl WithBinary<i64, i64> for Zipped<'_> {
    type Out = ();
    fn with(self, f: impl Fn(i64, i64) -> i64) {
        bodies::zip(self.isa, |a, b| f(i64::from(a), i64::from(b)) as i32, self.to, self.a, self.b);
    }
}

/// A comparison of floats.
struct Compared<'l> {
    isa: Isa,
    to: &'l mut [i32],
    a: &'l [f32],
    b: &'l [f32],
}

impl WithBinary<f32, bool> for Compared<'_> {
    type Out = ();
    fn with(self, f: impl Fn(f32, f32) -> bool) {
        bodies::compare(self.isa, f, self.to, self.a, self.b);
    }
}

/// A test of floats.
struct Tested<'l> {
    isa: Isa,
    to: &'l mut [f32],
    a: &'l [f32],
}

impl WithUnary<f32> for Tested<'_> {
    type Out = ();
    fn with(self, f: impl Fn(f32) -> f32) {
        bodies::map(self.isa, |x| of_int(i32::from(f(x) != 0.0)), self.to, self.a);
    }
}
