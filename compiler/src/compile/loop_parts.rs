//! A loop that has no plan, since data decide sizes inside of it: its body as a network of its own, which a runtime
//! compiles, perhaps in parts ([`split_network`](super::split_network)), and runs once for each iteration. What the
//! body hands on unchanged is a constant of the body or an operand of each iteration.

use super::network_parts::{FreshNames, free_values, part};
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{BlockId, Function, Module, NodeId, ValueId};
use crate::ops::const_value;
use crate::ops::control::{Const, Loop};
use crate::passes::{FoldConstants, InlineFunctions, PassContext, PassError, Simplify, run_pass};
use crate::tensor::Tensor;

/// An operand of the loop.
#[derive(Clone, Debug)]
enum Operand {
    /// The n-th input of the network.
    Input(usize),
    Constant(Tensor),
}

/// A result of the network.
#[derive(Clone, Copy, Debug)]
enum Output {
    /// The n-th value that changes.
    Carried(usize),
    /// The n-th operand after the control of the loop, which stays as it is.
    Unchanged(usize),
    /// The n-th list of collected rows.
    Rows(usize),
}

/// A network that is one loop.
#[derive(Clone, Debug)]
pub struct LoopParts {
    /// The body. It takes the number of the iteration, the values that change, and inputs of the network. It gives
    /// whether to go on, if the loop asks that, the next values, and the rows to collect.
    pub body: Module,
    /// The inputs of the network that it takes.
    taken: Vec<usize>,
    /// The number of iterations and whether to begin; a missing one is no limit.
    control: [Option<Operand>; 2],
    trips: Option<i64>,
    asks: bool,
    /// Operands of the loop after its control, and those among them that change.
    first: Vec<Operand>,
    changing: Vec<usize>,
    /// Type and shape of collected rows.
    rows: Vec<(DType, Vec<usize>)>,
    outputs: Vec<Output>,
}

/// The loop of a network that has nothing else but constants. `None` for another network, and for a loop that collects
/// rows of open sizes.
///
/// # Errors
/// An error of simplification.
pub fn split_loop(module: &Module) -> Result<Option<LoopParts>, PassError> {
    let mut module = module.clone();
    let mut cx = PassContext::default();
    run_pass(&InlineFunctions::default(), &mut module, &mut cx)?;
    run_pass(&FoldConstants::default(), &mut module, &mut cx)?;
    run_pass(&Simplify::default(), &mut module, &mut cx)?;
    Ok(only_loop(module.main()).and_then(|n| parts(module, n)))
}

/// The one node of the function that is no constant, if it is a loop.
fn only_loop(f: &Function) -> Option<NodeId> {
    let mut nodes = f.blocks[f.body].nodes.iter().filter(|n| !f.nodes[**n].op.is::<Const>());
    let found = nodes.next().copied().filter(|&n| f.nodes[n].op.is::<Loop>())?;
    nodes.next().is_none().then_some(found)
}

fn parts(mut module: Module, n: NodeId) -> Option<LoopParts> {
    let f = module.main();
    let node = f.nodes[n].clone();
    let op = node.op.downcast::<Loop>()?;
    let &[region] = node.regions.as_slice() else { return None };
    let operand = |v: ValueId| {
        let input = f.params().iter().position(|p| *p == v).map(Operand::Input);
        input.or_else(|| const_value(&module, f, v).map(Operand::Constant))
    };
    let control = [0, 1].map(|i| node.inputs.get(i).copied().flatten());
    let firsts: Vec<ValueId> = node.inputs.iter().skip(Loop::CONTROL).copied().collect::<Option<_>>()?;
    let (args, results) = (&f.blocks[region].args, &f.blocks[region].results);
    let next = |i: usize| results.get(op.leading() + i);
    let changing: Vec<usize> = (0..firsts.len()).filter(|&i| next(i) != args.get(1 + i)).collect();
    let of_rows = node.outputs.get(firsts.len()..)?;
    let row = |v: &ValueId| {
        let sizes = f.ty(*v).shape[1..].iter().map(|d| usize::try_from(d.as_const()?).ok());
        Some((f.ty(*v).dtype, sizes.collect::<Option<Vec<usize>>>()?))
    };
    let output = |v: &ValueId| {
        let at = node.outputs.iter().position(|o| o == v)?;
        Some(match changing.iter().position(|c| *c == at) {
            Some(k) => Output::Carried(k),
            None if at < firsts.len() => Output::Unchanged(at),
            None => Output::Rows(at - firsts.len()),
        })
    };
    let mut out = LoopParts {
        body: Module::new(module.entry),
        taken: vec![],
        control: [control[0].map(operand), control[1].map(operand)].map(Option::flatten),
        trips: op.trips.as_ref().and_then(crate::int::Int::as_const),
        asks: op.r#while,
        first: firsts.iter().map(|v| operand(*v)).collect::<Option<_>>()?,
        rows: of_rows.iter().map(row).collect::<Option<_>>()?,
        outputs: f.results().iter().map(output).collect::<Option<_>>()?,
        changing,
    };
    let is_there = |i: usize| control[i].is_none() || out.control[i].is_some();
    if !is_there(0) || !is_there(1) || op.trips.is_some() && out.trips.is_none() {
        return None;
    }
    out.take_body(&mut module, (op, region), &firsts)?;
    Some(out)
}

impl LoopParts {
    /// Makes the region of the loop the body. What does not change is read where it comes from.
    fn take_body(&mut self, module: &mut Module, (op, region): (&Loop, BlockId), firsts: &[ValueId]) -> Option<()> {
        let f = module.main_mut();
        let (args, results) = (f.blocks[region].args.clone(), std::mem::take(&mut f.blocks[region].results));
        let same = (0..firsts.len()).filter(|i| !self.changing.contains(i));
        let moved: Vec<(ValueId, ValueId)> = same.map(|i| (args[1 + i], firsts[i])).collect();
        let now = |v: ValueId| moved.iter().find(|m| m.0 == v).map_or(v, |m| m.1);
        let kept = |at: &usize| {
            let carried = at.checked_sub(op.leading()).filter(|i| *i < firsts.len());
            carried.is_none_or(|i| self.changing.contains(&i))
        };
        let gives: Vec<ValueId> = (0..results.len()).filter(kept).map(|at| now(results[at])).collect();
        f.replace_uses_many(&now);
        let (body, nodes) = (f.body, std::mem::take(&mut f.blocks[region].nodes));
        for &inner in &nodes {
            f.nodes[inner].block = Some(body);
        }
        f.blocks[body].nodes.extend(&nodes);
        let mut takes: Vec<ValueId> = vec![args[0]];
        takes.extend(self.changing.iter().map(|&i| args[1 + i]));
        let free = free_values(f, &nodes, &gives).into_iter();
        let captured: Vec<ValueId> = free.filter(|v| !takes.contains(v)).collect();
        self.taken = captured.iter().map(|v| f.params().iter().position(|p| p == v)).collect::<Option<_>>()?;
        takes.extend(captured);
        let names = FreshNames::of(module).take(gives.len()).collect();
        self.body = part(module, &nodes, &takes, &gives, names);
        Some(())
    }

    /// Runs the loop with the network's inputs; `body` runs the body once. `failed` makes an error of what goes wrong
    /// between iterations.
    ///
    /// # Errors
    /// Those of `body`; rows that differ in shape.
    pub fn run<E>(
        &self,
        inputs: &[Tensor],
        body: &mut dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>, E>,
        failed: fn(Fault) -> E,
    ) -> Result<Vec<Tensor>, E> {
        let value = |o: &Operand| match o {
            Operand::Input(n) => inputs[*n].clone(),
            Operand::Constant(t) => t.clone(),
        };
        let number = |o: &Option<Operand>| o.as_ref().and_then(|o| value(o).to_i64_vec().first().copied());
        let most = number(&self.control[0]).or(self.trips);
        let mut go_on = number(&self.control[1]).is_none_or(|c| c != 0);
        let mut carried: Vec<Tensor> = self.changing.iter().map(|&i| value(&self.first[i])).collect();
        let mut rows: Vec<Vec<Tensor>> = vec![vec![]; self.rows.len()];
        let mut trip = 0_i64;
        while go_on && most.is_none_or(|most| trip < most) {
            let mut operands = vec![Tensor::scalar(trip)];
            let count = carried.len();
            operands.append(&mut carried);
            operands.extend(self.taken.iter().map(|&n| inputs[n].clone()));
            let mut given = body(&operands)?.into_iter();
            if self.asks {
                go_on = given.next().is_some_and(|t| t.to_i64_vec().first().is_some_and(|&c| c != 0));
            }
            carried = given.by_ref().take(count).collect();
            rows.iter_mut().zip(given).for_each(|(list, t)| list.push(t));
            trip += 1;
        }
        let stacked = rows.iter().zip(&self.rows).map(|(list, (dtype, shape))| Tensor::stack(*dtype, shape, list));
        let stacked: Vec<Tensor> = stacked.collect::<Result<_, Fault>>().map_err(failed)?;
        let result = |o: &Output| match *o {
            Output::Carried(n) => carried[n].clone(),
            Output::Unchanged(n) => value(&self.first[n]),
            Output::Rows(n) => stacked[n].clone(),
        };
        Ok(self.outputs.iter().map(result).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::text::parse_module;

    /// Runs the loop with its body on the interpreter, and the network as it is.
    fn both(text: &str, inputs: &[Tensor]) -> [Vec<Tensor>; 2] {
        let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
        let parts = split_loop(&module).unwrap_or_else(|e| panic!("{e}")).expect("one loop");
        crate::verify::verify_module(&parts.body).unwrap_or_else(|e| panic!("{e:?}"));
        let mut body = |given: &[Tensor]| {
            run_function(&parts.body, parts.body.entry, given).map_err(|e| Fault::from(e.to_string()))
        };
        let got = parts.run(inputs, &mut body, |why| why).unwrap_or_else(|e| panic!("{e}"));
        [got, run_function(&module, module.entry, inputs).unwrap_or_else(|e| panic!("{e}"))]
    }

    #[test]
    fn a_loop_runs_by_its_body() {
        // The second carried value stays; the third goes through a sum with nothing.
        let text = "const @zero : f32[2] = splat(0.0)
const @w : f32[2] = [0.5, 2.0]
graph @main(%n: i64[], %x: f32[2], %k: f32[2]) -> (a: f32[2], b: f32[2], c: f32[count,2]) {
  %w = const @w
  %zero = const @zero
  %0, %1, %2, %3 = loop %n, _, %x, %w, %k {count=count} : f32[2], f32[2], f32[2], f32[count,2] (%i: i64[], %s: f32[2], %u: f32[2], %v: f32[2]) {
    %4 = mul %s, %u : f32[2]
    %5 = add %4, %v : f32[2]
    %6 = add %v, %zero : f32[2]
    yield %5, %u, %6, %4
  }
  return %0, %1, %3
}
";
        for n in [0_i64, 1, 5] {
            let of = |values: Vec<f32>| Tensor::from_vec(vec![2], values);
            let [got, want] = both(text, &[Tensor::scalar(n), of(vec![1.0, -2.0]), of(vec![0.25, 3.0])]);
            assert_eq!(got, want, "{n} iterations");
        }
    }
}
