use super::*;
use crate::graph::{FunctionBuilder, bind_dims};
use crate::int::DimRange;
use crate::interpreter::run_function;
use crate::ops::OpRef;
use crate::ops::binary::{
    Add, And, Div, Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Max, Min, Mod, Mul, Or, Sub, Xor,
};
use crate::ops::cast::Cast;
use crate::ops::reduce::{Reduce, ReduceKind};
use crate::ops::select::Where;
use crate::ops::shape::Shape;
use crate::ops::unary::{Abs, Neg, Not, Sign};
use proptest::prelude::*;
use rustc_hash::FxHashSet;

/// What a step adds: an op over values so far, by their positions from the last one.
type Step = (usize, usize, usize, usize);

/// Functions of two lists of integers.
fn of_two(i: usize) -> OpRef {
    match i {
        0 => Add {}.into(),
        1 => Sub {}.into(),
        2 => Mul {}.into(),
        3 => Div {}.into(),
        4 => Mod { fmod: false }.into(),
        5 => Min {}.into(),
        _ => Max {}.into(),
    }
}

/// Comparisons of two lists of integers.
fn condition(i: usize) -> OpRef {
    match i {
        0 => Equal {}.into(),
        1 => Less {}.into(),
        2 => LessOrEqual {}.into(),
        3 => Greater {}.into(),
        _ => GreaterOrEqual {}.into(),
    }
}

/// Adds the steps to a function of `x: f32[n,m]`; all of its integer values.
fn build(b: &mut FunctionBuilder<'_>, steps: &[Step]) -> Vec<ValueId> {
    let (n, m) = (Dim::var("n"), Dim::var("m"));
    let x = b.param("x", TensorType::new(DType::F32, vec![n, m]));
    let mut ints = vec![b.add(Shape::default(), &[x]).unwrap()];
    for list in [[1, 1], [-1, -1], [2, 3], [7, 0]] {
        ints.push(b.constant("c", &Tensor::ints(&list)));
    }
    let mut bools = vec![b.add(Equal {}, &[ints[0], ints[2]]).unwrap()];
    for &(op, i, j, k) in steps {
        let of = |list: &[ValueId], i: usize| list[list.len() - 1 - i % list.len()];
        let (a, c, cond) = (of(&ints, i), of(&ints, j), of(&bools, k));
        let new: Result<ValueId, _> = match op {
            0..=6 => b.add(of_two(op), &[a, c]),
            7..=11 => b.add(condition(op - 7), &[a, c]),
            12 => b.add(And {}, &[cond, of(&bools, i)]),
            13 => b.add(Or {}, &[cond, of(&bools, i)]),
            14 => b.add(Xor {}, &[cond, of(&bools, i)]),
            15 => b.add(Not {}, &[cond]),
            16 => b.add(Cast::new(DType::I64), &[cond]),
            17 => b.add(Cast::new(DType::Bool), &[a]),
            18 => b.add(Neg {}, &[a]),
            19 => b.add(Abs {}, &[a]),
            20 => b.add(Sign {}, &[a]),
            21 => b.add(Reduce::new(ReduceKind::Prod, &[0], true), &[a]),
            22 => b.add(Reduce::new(ReduceKind::Sum, &[0], true), &[a]),
            _ => b.add(Where {}, &[cond, a, c]),
        };
        let Ok(new) = new else { continue };
        if b.ty(new).dtype == DType::Bool { bools.push(new) } else { ints.push(new) }
    }
    [ints, bools].concat()
}

/// The values that depend on an integer division by 0: ONNX does not say what they are.
fn of_divisions_by_zero(f: &Function, said: &[(ValueId, Vec<Dim>)], got: &[Tensor]) -> FxHashSet<ValueId> {
    let zeros: FxHashSet<ValueId> =
        said.iter().zip(got).filter(|(_, t)| t.to_i64_vec().contains(&0)).map(|(s, _)| s.0).collect();
    let mut out: FxHashSet<ValueId> = FxHashSet::default();
    for n in f.walk() {
        let node = &f.nodes[n];
        let divides = node.op.is::<Div>() || node.op.is::<Mod>();
        let by_zero = divides && node.inputs.get(1).copied().flatten().is_some_and(|v| zeros.contains(&v));
        if by_zero || node.inputs.iter().flatten().any(|v| out.contains(v)) {
            out.extend(&node.outputs);
        }
    }
    out
}

proptest! {
    /// What shape arithmetic says of a value as an expression is what a run gives, at every size within the ranges.
    #[test]
    fn values_of_shape_arithmetic_are_those_of_a_run(
        steps in prop::collection::vec((0usize..26, 0usize..6, 0usize..6, 0usize..4), 1..12),
        low in 0i64..4,
    ) {
        let mut module = Module::new("main");
        module.dims.declare_range(Name::new("n"), DimRange::new(low, 9, 1).unwrap());
        let mut b = FunctionBuilder::new(&mut module, "main");
        let values = build(&mut b, &steps);
        let said: Vec<(ValueId, Vec<Dim>)> =
            values.into_iter().filter_map(|v| Some((v, int_value(b.module, &b.function, v, 0)?))).collect();
        let results: Vec<(Name, ValueId)> = said.iter().map(|s| (Name::new("r"), s.0)).collect();
        b.finish(&results);
        prop_assert!(said.len() >= 5);
        for (n, m) in [(low, 1), (low + 1, 0), (5, 7), (9, 2)] {
            let sizes = [(Name::new("n"), n), (Name::new("m"), m)];
            let mut bound = module.clone();
            bind_dims(&mut bound, &sizes).unwrap();
            let x = Tensor::zeros(DType::F32, vec![n as usize, m as usize]);
            let got = run_function(&bound, bound.entry, &[x]).unwrap();
            let undefined = of_divisions_by_zero(bound.main(), &said, &got);
            for ((v, dims), t) in said.iter().zip(&got).filter(|((v, _), _)| !undefined.contains(v)) {
                let want: Vec<Option<i64>> =
                    dims.iter().map(|d| d.eval(&|s| sizes.iter().find(|x| x.0 == s).map(|x| x.1))).collect();
                // A product beyond i64 has no value as an expression.
                let same = want.len() == t.len()
                    && want.iter().zip(t.to_i64_vec()).all(|(want, got)| want.is_none_or(|w| w == got));
                prop_assert!(same, "n = {n}, m = {m}: {v:?} is {:?}, not {dims:?} = {want:?}", t.to_i64_vec());
            }
        }
    }
}

#[test]
fn what_u64_holds_beyond_i64_is_no_size() {
    let mut module = Module::new("main");
    let mut b = FunctionBuilder::new(&mut module, "main");
    let mut value = |v: u64| {
        let c = b.constant("c", &Tensor::from_vec(vec![1], vec![v]));
        let sum = b.add(Add {}, &[c, c]).unwrap();
        [c, sum].map(|v| int_value(b.module, &b.function, v, 0))
    };
    assert_eq!(value(5), [Some(vec![Dim::new(5)]), Some(vec![Dim::new(10)])]);
    assert_eq!(value(1 << 62), [Some(vec![Dim::new(1 << 62)]), None]);
    assert_eq!(value(u64::MAX), [None, None]);
}
