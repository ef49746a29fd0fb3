//! Quantised results. A value in the middle of two steps goes to one of them here and to the other in the reference,
//! when the sums before it were rounded in another order: such elements lie one step apart, and both are right.

use compiler::agreement::{Difference, Tolerance, agree};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::ops::binary::{Add, Mul, Sub};
use compiler::ops::cast::Cast;
use compiler::ops::const_value;
use compiler::ops::reshape::Reshape;
use compiler::tensor::Tensor;

/// Elements for each that may lie one step beside the reference.
const ALL_FOR_ONE: usize = 1000;

/// The step between neighbouring values of each result; `None` for those that are not quantised, with one scale.
pub fn steps_of(module: &Module) -> Vec<Option<f64>> {
    (0..module.main().result_names.len()).map(|i| step_of(module, i)).collect()
}

fn step_of(module: &Module, result: usize) -> Option<f64> {
    let f = module.main();
    let mut v = *f.blocks[f.body].results.get(result)?;
    let mut step = 1.0;
    loop {
        let node = &f.nodes[f.def_node(v)?];
        let from = node.inputs.first().copied().flatten()?;
        let is_byte = |v| matches!(f.ty(v).dtype, DType::I8 | DType::U8);
        if node.op.is::<Cast>() && is_byte(v) {
            return f.ty(from).dtype.is_float().then_some(step);
        }
        if node.op.is::<Mul>() {
            let scale = const_value(module, f, node.inputs.get(1).copied().flatten()?)?;
            let [scale] = scale.to_f64_vec()[..] else { return None };
            step *= scale.abs();
        } else if !(node.op.is::<Cast>() && is_byte(from)
            || node.op.is::<Sub>()
            || node.op.is::<Add>()
            || node.op.is::<Reshape>())
        {
            return None;
        }
        v = from;
    }
}

/// How the result differs from the reference without the elements that lie one step beside it, and how many these are;
/// `None` if they are too many.
pub fn without_ties(t: &Tensor, want: &Tensor, step: f64, tolerance: &Tolerance) -> Option<(Difference, usize)> {
    if t.shape() != want.shape() {
        return None;
    }
    let (mut own, want_all) = (t.to_f64_vec(), want.to_f64_vec());
    let mut count = 0;
    for (x, y) in own.iter_mut().zip(&want_all) {
        if ((*x - y).abs() - step).abs() <= 1e-3 * step {
            (*x, count) = (*y, count + 1);
        }
    }
    let few = count <= 1 || count * ALL_FOR_ONE <= own.len();
    let all = Tensor::from_f64(t.dtype(), t.shape().to_vec(), own);
    few.then(|| (agree(&all, want, tolerance), count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    #[test]
    fn a_few_elements_may_lie_one_step_beside() {
        let text = "
const @s : f32[] = [0.5]
graph @main(%x: f32[4]) -> (y: f32[4], z: i8[4], x: f32[4]) {
  %s = const @s
  %0 = div %x, %s
  %1 = round %0
  %2 = cast %1 {to=i8}
  %3 = cast %2 {to=f32}
  %4 = mul %3, %s
  return %4, %2, %x
}";
        let module = parse_module(text).expect("a module");
        assert_eq!(steps_of(&module), [Some(0.5), Some(1.0), None]);
        let tolerance = Tolerance::uniform(1e-3);
        let of = |x: [f32; 4]| Tensor::from_vec(vec![4], x.to_vec());
        let ties = |x, y| without_ties(&of(x), &of(y), 0.5, &tolerance).map(|(d, n)| (d.pass, n));
        assert_eq!(ties([1.0, 2.5, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]), Some((true, 1)));
        assert_eq!(ties([1.0, 2.5, 3.5, 4.0], [1.0, 2.0, 3.0, 4.0]), None, "two of four");
        assert_eq!(ties([1.0, 3.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]), Some((false, 0)), "two steps");
    }
}
