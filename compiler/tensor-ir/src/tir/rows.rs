//! A part of a tensor function's result: a few rows at a time, if the whole result would take too much memory.

use super::{Access, LoopKind, Stmt, TensorFunction};
use crate::int::Int;
use crate::name::Name;

impl TensorFunction {
    /// Number of rows of the result, and elements of a row, of a function with one compute stage that stores its loop
    /// variables in order; a row is one index of the outermost axis that is not of size 1. `None` for other functions.
    pub fn result_rows(&self) -> Option<(usize, usize)> {
        let (_, axis, shape) = self.row_axis()?;
        let rows = shape[axis];
        (rows > 0).then(|| (rows, shape.iter().product::<usize>() / rows))
    }
    /// The function that computes rows `start .. start + count` of the result alone (see
    /// [`TensorFunction::result_rows`]).
    pub fn with_rows(&self, start: usize, count: usize) -> Option<TensorFunction> {
        let (var, axis, _) = self.row_axis()?;
        let mut f = self.clone();
        let output = f.outputs().next()?;
        f.buffers[output].shape[axis] = Int::new(count as i64);
        restrict(&mut f.body, var, start as i64, count as i64);
        Some(f)
    }
    /// The variable of the outermost axis that is not of size 1, that axis, and the result's shape.
    fn row_axis(&self) -> Option<(Name, usize, Vec<usize>)> {
        let stages = self.stages()?;
        let [stage] = stages.as_slice() else { return None };
        let mut outputs = self.params.iter().filter(|p| p.access == Access::Write);
        let (Some(output), None) = (outputs.next(), outputs.next()) else { return None };
        let whole = self.updates.is_empty() && stage.block.buffer == output.buffer;
        if !whole || stage.block.reduce.is_some() || !stage.block.guards.is_empty() {
            return None;
        }
        let shape = crate::int::const_dims(&self.buffers[output.buffer].shape)?;
        let axis = shape.iter().position(|&d| d != 1)?;
        let var = stage.loops.iter().map(|l| l.0).find(|v| stage.block.indices[axis] == Int::var(*v))?;
        let elsewhere = stage.block.indices.iter().enumerate().any(|(i, e)| i != axis && e.uses(var));
        (!elsewhere).then_some((var, axis, shape))
    }
}

/// Lets `var` run over `count` values, and the stored value see `var + start`.
fn restrict(s: &mut Stmt, var: Name, start: i64, count: i64) {
    match s {
        Stmt::For(l) => {
            if l.var == var && l.kind == LoopKind::Serial {
                l.extent = Int::new(count);
            }
            restrict(&mut l.body, var, start, count);
        }
        Stmt::Block(b) => {
            let by = Int::var(var) + start;
            b.value = b.value.map_ints(&mut |i| i.substitute(var, &by));
        }
        Stmt::Seq(list) => list.iter_mut().for_each(|s| restrict(s, var, start, count)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::interpreter::run_tensor_function;
    use crate::text::{parse_tensor_function, random_tensor};

    const PACK: &str = "tensor @pack(%w: f32[70,6], out %p: f32[1,3,6,32]) {
  for b in 0..1 { for p in 0..3 { for k in 0..6 { for q in 0..32 {
    block p { %p[0, p, k, q] <- select(all(p * 32 + q < 70), %w[p * 32 + q, k], 0.0) }
  } } } }
}
";

    #[test]
    fn parts_make_the_whole() {
        let f = parse_tensor_function(PACK).expect("text");
        let w = [random_tensor(DType::F32, &[70, 6], 1)];
        let whole = run_tensor_function(&f, &w).expect("runs").remove(0);
        assert_eq!(f.result_rows(), Some((3, 6 * 32)));
        let mut parts = vec![];
        for (start, count) in [(0, 2), (2, 1)] {
            let part = f.with_rows(start, count).expect("rows");
            let got = run_tensor_function(&part, &w).expect("runs").remove(0);
            assert_eq!(got.shape(), [1, count, 6, 32]);
            parts.extend_from_slice(got.bytes());
        }
        assert_eq!(parts, whole.bytes()[..]);
    }
}
