//! Leaves of strips whose lanes are combined, all of them or row by row.

use crate::execute::{Task, identity, wrong};
use crate::lanes::Lanes;
use crate::memory::Source;
use crate::run_strips::{Part, Zipped};
use crate::strip_bodies as bodies;
use crate::strip_elements::{known, lane, read, write};
use crate::strip_program::{Code, Strips};
use crate::tile_memory::{Lane, StripMemory};
use tensor_ir::tir::Combiner;

impl Task<'_> {
    /// Combines all lanes of a part into its element.
    pub(crate) fn fold_part(&mut self, s: &Strips, c: Combiner, code: &Code, part: Part, m: &mut StripMemory) {
        let Lanes::F(Source::Splat(nothing)) = identity(c, tensor_ir::dtype::DType::F32) else { wrong() };
        let mut sums = [nothing; bodies::SUMS];
        let results = if s.by_row { part.rows } else { 1 };
        let mut folded = std::mem::take(&mut m.folded);
        folded.clear();
        folded.resize(results, nothing);
        self.each_strip(s, code, part, m, &mut |t, m, at, strip| {
            let kept = s.keeps.map(|n| t.strip_span(s, n, at, strip, m)).filter(|(_, span)| span.is_contiguous());
            let own = kept.map(|(view, span)| view.pointer(span.first));
            if let Some(last) = code.steps.last() {
                let to = own.unwrap_or(m.register(last.to));
                t.step(s, &last.work, at, strip, to, m);
            }
            let n = strip.rows * strip.columns;
            let lanes = match (lane(code.result, m), own) {
                (_, Some(own)) => own.cast_const(),
                (lane, None) => known(s, 0, lane, n, m).as_ptr(),
            };
            // SAFETY: the result has the lanes of the strip.
            let all = unsafe { std::slice::from_raw_parts(lanes, n) };
            if s.by_row && strip.columns == part.columns {
                return bodies::fold_rows(t.isa, all, c, nothing, &mut folded[at[0]..][..strip.rows]);
            }
            bodies::fold(t.isa, all, c, &mut sums);
            if s.by_row && at[1] + strip.columns == part.columns {
                bodies::one(t.isa, c, &mut sums, &mut folded[at[0]]);
                sums.fill(nothing);
            }
        });
        if !s.by_row {
            bodies::one(self.isa, c, &mut sums, &mut folded[0]);
        }
        let begins = s.begins.as_ref().is_some_and(|b| b.iter().all(|slot| self.env[*slot] == 0));
        let results = Part { rows: results, columns: 1 };
        let (view, span) = self.strip_span(s, s.places.len() - 1, [0, 0], results, m);
        if !begins {
            let n = folded.len();
            folded.resize(3 * n, 0.0);
            let (new, rest) = folded.split_at_mut(n);
            let (old, to) = rest.split_at_mut(n);
            read(self.isa, &view, &span, old, &mut m.wide);
            let [a, b] = [old, new].map(|x| Lane::At(x.as_ptr()));
            c.operator().with::<f32, _>(Zipped { isa: self.isa, to, a, b });
            folded.copy_within(2 * n.., 0);
            folded.truncate(n);
        }
        write(self.isa, &view, &span, &Source::Memory(&folded));
        m.folded = folded;
    }
}
