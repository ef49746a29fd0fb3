//! `Loop` and `Scan`: a few iterations are unrolled, more become a loop of the graph. A loop whose values change their
//! shapes between iterations can only be unrolled.

use super::super::error::ImportError;
use super::super::proto::GraphProto;
use super::super::{OnnxAttr, OnnxAttrs};
use super::binding::Binding;
use super::constants::known_scalar;
use super::node_ref::{NodeRef, tensors};
use super::trips::{Counting, known_size};
use super::{Importer, Scope, attributes};
use crate::dtype::DType;
use crate::graph::{FunctionBuilder, TensorType, ValueId};
use crate::int::Dim;
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::Loop;
use crate::ops::permute::normalize_axis;
use crate::tensor::Tensor;

/// Largest number of iterations that are unrolled although a loop of the graph is possible.
const FEW: i64 = 8;
/// The most iterations that are unrolled.
const UNROLL_LIMIT: i64 = 256;

impl<'p> Importer<'p> {
    pub(super) fn import_loop(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        given: &[Binding],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        let carried = given.get(2..).unwrap_or(&[]);
        // Carried values that are not tensors must be known on import, and so must the iterations.
        if carried.iter().any(|x| !matches!(x, Binding::Tensor(_, None))) {
            return self.unroll_loop(b, node, given, scope);
        }
        let inputs = &tensors(node, given)?;
        let operand = |i: usize| inputs.get(i).copied().flatten();
        let trips = operand(0).map(|v| known_scalar(b, v));
        let begins = operand(1).is_none_or(|v| known_scalar(b, v).is_some());
        if trips.flatten().is_some_and(|n| n <= FEW) && begins {
            match b.attempt(|b| self.unroll_loop(b, node, given, scope)) {
                Err(ImportError::Unsupported(_)) => {}
                done => return done,
            }
        }
        let refused = match b.attempt(|b| self.repeat_loop(b, node, inputs, scope)) {
            Err(e) => e,
            Ok(results) => return Ok(results.into_iter().map(Binding::tensor).collect()),
        };
        // A loop with different shapes in each iteration can still be unrolled.
        self.unroll_loop(b, node, given, scope).map_err(|_| refused)
    }

    /// The loop as one of the graph. Only what a run decides is left to it: how often, and whether to go on.
    fn repeat_loop(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        inputs: &[Option<ValueId>],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<ValueId>, ImportError> {
        let graph = self.body(node, "body")?;
        let operand = |i: usize| inputs.get(i).copied().flatten();
        let first: Vec<ValueId> = inputs.iter().skip(2).copied().flatten().collect();
        if graph.input.len() != first.len() + 2 || graph.output.len() <= first.len() {
            return Err(node.invalid("the inputs and outputs of its body do not fit its own"));
        }
        let scalar = |b: &mut FunctionBuilder<'_>, v: ValueId| match b.ty(v).rank() {
            0 => Ok(v),
            _ => {
                let shape = b.constant(&format!("{}_shape", node.name), &Tensor::ints(&[]));
                self.apply(b, node, "Reshape", &[v, shape], OnnxAttrs::default())
            }
        };
        let size = operand(0).and_then(|v| known_size(b, v)).map(|n| b.module.dims.settle(&n.max(0)));
        let trips = operand(0).filter(|_| size.is_none());
        let begin = operand(1).filter(|&v| known_scalar(b, v) != Some(1));
        let (trips, begin) = (trips.map(|v| scalar(b, v)).transpose()?, begin.map(|v| scalar(b, v)).transpose()?);
        let types: Vec<TensorType> = first.iter().map(|&v| b.ty(v).clone()).collect();
        let body = b.new_block();
        let index = b.block_arg(body, None, TensorType::new(DType::I64, vec![]));
        let args: Vec<ValueId> = types.into_iter().map(|ty| b.block_arg(body, None, ty)).collect();
        let (arguments, yields) = b.in_block(body, |b| {
            b.set_source(Some(node.name));
            let yes = Tensor::from_f64(DType::Bool, vec![], [1.0]);
            let condition = b.constant(&format!("{}_condition", node.name), &yes);
            let arguments: Vec<ValueId> = [index, condition].into_iter().chain(args).collect();
            let mut yields = self.import_body(b, graph, format!("{}/", node.name), &arguments, scope)?;
            yields[0] = scalar(b, yields[0])?;
            Ok::<_, ImportError>((arguments, yields))
        })?;
        let carries = &yields[1..=first.len()];
        let counting = Counting { b: &*b, index, args: &arguments[2..], first: &first, next: carries };
        // No limit: exporters write the largest integer.
        let most = size.clone().filter(|n| n.as_const().is_none_or(|n| n <= i64::from(i32::MAX)));
        let counted = counting.trips(operand(1), yields[0]).filter(|_| trips.is_none());
        let counted = counted.map(|n| most.map_or(n.clone(), |most| n.min(most)));
        let (known, begin) = match counted.clone() {
            Some(n) => (Some(n), None),
            None => (size, begin),
        };
        let ends = counted.is_none() && known_scalar(b, yields[0]) != Some(1);
        let collects = yields.len() > first.len() + 1;
        let decided = ends || trips.is_some() || begin.is_some();
        let count = if collects && decided { fresh_symbol(b) } else { Name::new("") };
        let yields = if ends { yields } else { yields[1..].to_vec() };
        b.set_block_results(body, yields);
        b.set_source(Some(node.name));
        let op = Loop { trips: known, r#while: ends, count };
        let operands = [trips, begin].into_iter().chain(first.into_iter().map(Some)).collect();
        b.add_multi(OpRef::new(op), operands, vec![body]).map_err(|e| node.refused(e.why))
    }

    /// Every iteration written out.
    fn unroll_loop(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        inputs: &[Binding],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        let body = self.body(node, "body")?;
        let operand = |i: usize| inputs.get(i).and_then(Binding::value);
        let mut carried: Vec<Binding> = inputs.iter().skip(2).cloned().collect();
        let Some(trips) = operand(0).and_then(|v| known_scalar(b, v)) else {
            let sequence = carried.iter().find(|x| matches!(x, Binding::Sequence(_)));
            let what =
                sequence.map_or(String::new(), |_| ", and it carries a sequence, whose length must be known".into());
            return Err(node.unsupported(format!("unsupported loop: its trip count is known at run time only{what}")));
        };
        let mut go_on = match operand(1) {
            None => true,
            Some(v) => self.known_condition(b, node, v)?,
        };
        let scans = body.output.len().checked_sub(1 + carried.len());
        let Some(scans) = scans.filter(|_| body.input.len() == carried.len() + 2) else {
            return Err(node.invalid("the inputs and outputs of its body do not fit its own"));
        };
        if trips > UNROLL_LIMIT {
            return Err(node.unsupported(format!("unsupported loop: {trips} iterations are too many to unroll")));
        }
        let mut scanned: Vec<Vec<ValueId>> = vec![vec![]; scans];
        for trip in 0..trips.max(0) {
            if !go_on {
                break;
            }
            b.set_source(Some(node.name));
            let index = b.constant(&format!("{}_trip", node.name), &Tensor::scalar(trip));
            let condition =
                b.constant(&format!("{}_condition", node.name), &Tensor::from_f64(DType::Bool, vec![], [1.0]));
            let arguments = [index, condition].map(Binding::tensor).into_iter().chain(carried).collect();
            let results = self.import_bindings(b, body, format!("{}/{trip}/", node.name), arguments, scope)?;
            let tensor =
                |x: &Binding| x.value().ok_or_else(|| node.invalid(format!("a result of its body is {}", x.kind())));
            go_on = self.known_condition(b, node, tensor(&results[0])?)?;
            let (next, rows) = results[1..].split_at(results.len() - 1 - scans);
            carried = next.to_vec();
            for (list, row) in scanned.iter_mut().zip(rows) {
                list.push(tensor(row)?);
            }
        }
        for list in scanned {
            carried.push(Binding::tensor(self.stack(b, node, &list, 0)?));
        }
        Ok(carried)
    }

    /// Each iteration sees one element of each sequence.
    pub(super) fn import_scan(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        inputs: &[Option<ValueId>],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<ValueId>, ImportError> {
        if self.opset(scope.env, "").is_some_and(|v| v < 9) {
            return Err(node.unsupported("unsupported scan: before opset 9 it has a batch axis"));
        }
        let body = self.body(node, "body")?;
        let attrs = attributes::convert(&node.attrs, self.external).map_err(|e| node.refused(e))?;
        let given: Vec<ValueId> = inputs.iter().copied().flatten().collect();
        let count = attrs.int("num_scan_inputs").and_then(|n| usize::try_from(n).ok()).filter(|&n| n >= 1);
        let states = count.and_then(|n| given.len().checked_sub(n));
        let yields = states.and_then(|n| body.output.len().checked_sub(n));
        let (Some(states), Some(yields)) = (states, yields.filter(|_| body.input.len() == given.len())) else {
            return Err(node.invalid("the inputs and outputs of its body do not fit its own"));
        };
        let entry = |list: &str, i: usize| attrs.ints(list).and_then(|l| l.get(i)).copied().unwrap_or(0);
        let mut sequences = vec![];
        let mut steps = None;
        for (i, &v) in given[states..].iter().enumerate() {
            let shape = b.ty(v).shape.clone();
            let axis = normalize_axis(entry("scan_input_axes", i), shape.len()).map_err(|m| node.invalid(m))?;
            if *steps.get_or_insert(shape[axis].clone()) != shape[axis] {
                return Err(node.invalid("its sequences differ in length"));
            }
            let backward = entry("scan_input_directions", i) != 0;
            sequences.push((if backward { self.reversed(b, node, v, axis as i64)? } else { v }, axis as i64));
        }
        let steps = steps.ok_or_else(|| node.invalid("it has no sequence"))?;
        let scan = Sequences { states: &given[..states], sequences: &sequences, yields, steps: &steps };
        let mut results = match steps.as_const().filter(|&n| n <= FEW) {
            Some(n) => self.unroll_scan(b, node, body, &scan, n, scope)?,
            None => match b.attempt(|b| self.repeat_scan(b, node, body, &scan, scope)) {
                Err(refused) => match steps.as_const().filter(|&n| n <= UNROLL_LIMIT) {
                    Some(n) => self.unroll_scan(b, node, body, &scan, n, scope).map_err(|_| refused)?,
                    None => return Err(refused),
                },
                done => done?,
            },
        };
        for (i, v) in results[states..].iter_mut().enumerate() {
            if entry("scan_output_directions", i) != 0 {
                *v = self.reversed(b, node, *v, 0)?;
            }
            let rank = b.ty(*v).rank();
            let axis = normalize_axis(entry("scan_output_axes", i), rank).map_err(|m| node.invalid(m))?;
            if axis != 0 {
                let perm = (1..=axis as i64).chain([0]).chain(axis as i64 + 1..rank as i64).collect();
                let perm = OnnxAttrs([("perm".to_string(), OnnxAttr::Ints(perm))].into_iter().collect());
                *v = self.apply(b, node, "Transpose", &[*v], perm)?;
            }
        }
        Ok(results)
    }

    /// The elements of the sequences that iteration `at` sees.
    fn elements(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        scan: &Sequences<'_>,
        at: ValueId,
    ) -> Result<Vec<ValueId>, ImportError> {
        let one = |&(v, axis): &(ValueId, i64)| {
            let axis = OnnxAttrs([("axis".to_string(), OnnxAttr::Int(axis))].into_iter().collect());
            self.apply(b, node, "Gather", &[v, at], axis)
        };
        scan.sequences.iter().map(one).collect()
    }

    fn repeat_scan(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        graph: &'p GraphProto,
        scan: &Sequences<'_>,
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<ValueId>, ImportError> {
        let types: Vec<TensorType> = scan.states.iter().map(|&v| b.ty(v).clone()).collect();
        let body = b.new_block();
        let index = b.block_arg(body, None, TensorType::new(DType::I64, vec![]));
        let mut arguments: Vec<ValueId> = types.into_iter().map(|ty| b.block_arg(body, None, ty)).collect();
        let yields = b.in_block(body, |b| {
            arguments.extend(self.elements(b, node, scan, index)?);
            self.import_body(b, graph, format!("{}/", node.name), &arguments, scope)
        })?;
        b.set_block_results(body, yields);
        b.set_source(Some(node.name));
        let op = Loop { trips: Some(scan.steps.clone()), ..Loop::default() };
        let operands = [None, None].into_iter().chain(scan.states.iter().map(|&v| Some(v))).collect();
        b.add_multi(OpRef::new(op), operands, vec![body]).map_err(|e| node.refused(e.why))
    }

    fn unroll_scan(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        graph: &'p GraphProto,
        scan: &Sequences<'_>,
        steps: i64,
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<ValueId>, ImportError> {
        let mut carried = scan.states.to_vec();
        let mut lists: Vec<Vec<ValueId>> = vec![vec![]; scan.yields];
        for t in 0..steps {
            b.set_source(Some(node.name));
            let at = b.constant(&format!("{}_step", node.name), &Tensor::scalar(t));
            let mut arguments = carried;
            arguments.extend(self.elements(b, node, scan, at)?);
            let results = self.import_body(b, graph, format!("{}/{t}/", node.name), &arguments, scope)?;
            carried = results[..scan.states.len()].to_vec();
            lists.iter_mut().zip(&results[scan.states.len()..]).for_each(|(list, &v)| list.push(v));
        }
        for list in lists {
            carried.push(self.stack(b, node, &list, 0)?);
        }
        Ok(carried)
    }

    /// An axis backwards.
    fn reversed(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        v: ValueId,
        axis: i64,
    ) -> Result<ValueId, ImportError> {
        b.set_source(Some(node.name));
        let mut bound = |value: i64| b.constant(&format!("{}_bound", node.name), &Tensor::ints(&[value]));
        let operands = [v, bound(-1), bound(-i64::from(i32::MAX)), bound(axis), bound(-1)];
        self.apply(b, node, "Slice", &operands, OnnxAttrs::default())
    }

    fn known_condition(&self, b: &FunctionBuilder<'_>, node: &NodeRef<'p>, v: ValueId) -> Result<bool, ImportError> {
        let known = known_scalar(b, v).map(|c| c != 0);
        known.ok_or_else(|| node.unsupported("unsupported loop: its condition is known at run time only"))
    }

    /// The yielded values of all iterations, along a new axis.
    pub(super) fn stack(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        list: &[ValueId],
        along: i64,
    ) -> Result<ValueId, ImportError> {
        if list.is_empty() {
            return Err(node.unsupported("unsupported loop: it yields nothing, since it runs no iteration"));
        }
        let axis = b.constant(&format!("{}_axis", node.name), &Tensor::ints(&[along]));
        let mut rows = Vec::with_capacity(list.len());
        for &v in list {
            rows.push(self.apply(b, node, "Unsqueeze", &[v, axis], OnnxAttrs::default())?);
        }
        let axis = OnnxAttrs([("axis".to_string(), OnnxAttr::Int(along))].into_iter().collect());
        self.apply(b, node, "Concat", &rows, axis)
    }
}

/// The sequences of a scan.
struct Sequences<'a> {
    /// First values of its carried values.
    states: &'a [ValueId],
    /// Sequences, in the order that iterations see their elements in, with their axes.
    sequences: &'a [(ValueId, i64)],
    /// How many values it collects.
    yields: usize,
    steps: &'a Dim,
}

/// A symbol that nothing else in the function has.
fn fresh_symbol(b: &FunctionBuilder<'_>) -> Name {
    Name::new(&format!("{}_iterations{}", b.function.name, b.function.values.len()))
}
