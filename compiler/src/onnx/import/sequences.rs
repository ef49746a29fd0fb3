//! Sequences and optionals. Their elements are known during import, so their operators make no nodes, except for
//! splitting a tensor and concatenating the parts. Positions and lengths must be known then.

use super::super::error::ImportError;
use super::super::{ImportContext, OnnxAttr, OnnxAttrs};
use super::binding::Binding;
use super::constants::known_scalar;
use super::node_ref::NodeRef;
use super::{Importer, Scope, attributes};
use crate::dtype::DType;
use crate::graph::{FunctionBuilder, ValueId};
use crate::int::{Dim, Int};
use crate::ops::int_value;
use crate::ops::permute::normalize_axis;
use crate::ops::reshape::Squeeze;
use crate::ops::split::Split;
use crate::tensor::Tensor;

/// The most elements that a tensor is split into.
const MOST_PARTS: i64 = 4096;

/// An operator on sequences or optionals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SequenceOp {
    Empty,
    Construct,
    Insert,
    At,
    Erase,
    Length,
    Split,
    Concat,
    Map,
    Optional,
    HasElement,
    GetElement,
}
impl SequenceOp {
    /// The operator of ai.onnx of this name.
    pub(super) fn find(op: &str) -> Option<SequenceOp> {
        Some(match op {
            "SequenceEmpty" => SequenceOp::Empty,
            "SequenceConstruct" => SequenceOp::Construct,
            "SequenceInsert" => SequenceOp::Insert,
            "SequenceAt" => SequenceOp::At,
            "SequenceErase" => SequenceOp::Erase,
            "SequenceLength" => SequenceOp::Length,
            "SplitToSequence" => SequenceOp::Split,
            "ConcatFromSequence" => SequenceOp::Concat,
            "SequenceMap" => SequenceOp::Map,
            "Optional" => SequenceOp::Optional,
            "OptionalHasElement" => SequenceOp::HasElement,
            "OptionalGetElement" => SequenceOp::GetElement,
            _ => return None,
        })
    }
}

/// The operands of a node that are no plain tensors.
struct Operands<'n, 'p, 'b> {
    node: &'n NodeRef<'p>,
    list: &'b [Binding],
}
impl Operands<'_, '_, '_> {
    fn any(&self, i: usize) -> Result<&Binding, ImportError> {
        match self.list.get(i) {
            Some(x) if *x != Binding::Absent => Ok(x),
            _ => Err(self.node.invalid(format!("input {i} is missing"))),
        }
    }
    fn sequence(&self, i: usize) -> Result<&[Binding], ImportError> {
        match self.any(i)? {
            Binding::Sequence(list) => Ok(list),
            other => Err(self.node.invalid(format!("input {i} is {}, not a sequence", other.kind()))),
        }
    }
    fn tensor(&self, i: usize) -> Result<ValueId, ImportError> {
        let x = self.any(i)?;
        x.value().ok_or_else(|| self.node.invalid(format!("input {i} is {}, not a tensor", x.kind())))
    }
    /// The position in a sequence that operand `i` says, of `places`; negative ones count from the end.
    fn position(&self, b: &FunctionBuilder<'_>, i: usize, places: usize) -> Result<usize, ImportError> {
        let at = known_scalar(b, self.tensor(i)?);
        let at = at.ok_or_else(|| {
            self.node.unsupported(format!("unsupported: the position, input {i}, is not known at compile time"))
        })?;
        let from_start = if at < 0 { at + places as i64 } else { at };
        let inside = usize::try_from(from_start).ok().filter(|&p| p < places);
        inside.ok_or_else(|| self.node.invalid(format!("the position {at} is outside a sequence with {places} places")))
    }
}

impl<'p> Importer<'p> {
    pub(super) fn import_sequence_op(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        op: SequenceOp,
        inputs: &[Binding],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        let x = Operands { node, list: inputs };
        b.set_source(Some(node.name));
        let number = |b: &mut FunctionBuilder<'_>, t: Tensor| Binding::tensor(b.constant(node.name.as_str(), &t));
        Ok(vec![match op {
            SequenceOp::Empty => Binding::Sequence(vec![]),
            SequenceOp::Construct => Binding::Sequence(inputs.to_vec()),
            SequenceOp::Insert => {
                let mut list = x.sequence(0)?.to_vec();
                let at = match inputs.get(2) {
                    None | Some(Binding::Absent) => list.len(),
                    // The end is a valid position too, and -1 means the position before the last element.
                    Some(_) => match known_scalar(b, x.tensor(2)?) {
                        Some(at) if at == list.len() as i64 => list.len(),
                        _ => x.position(b, 2, list.len())?,
                    },
                };
                list.insert(at, x.any(1)?.clone());
                Binding::Sequence(list)
            }
            SequenceOp::At => {
                let list = x.sequence(0)?;
                list[x.position(b, 1, list.len())?].clone()
            }
            SequenceOp::Erase => {
                let mut list = x.sequence(0)?.to_vec();
                let at = match inputs.get(1) {
                    None | Some(Binding::Absent) if list.is_empty() => {
                        return Err(node.invalid("the sequence is empty"));
                    }
                    None | Some(Binding::Absent) => list.len() - 1,
                    Some(_) => x.position(b, 1, list.len())?,
                };
                list.remove(at);
                Binding::Sequence(list)
            }
            SequenceOp::Length => {
                let length = x.sequence(0)?.len() as i64;
                number(b, Tensor::scalar(length))
            }
            SequenceOp::Split => self.split_to_sequence(b, &x)?,
            SequenceOp::Concat => self.concat_from_sequence(b, &x)?,
            SequenceOp::Map => return self.map_sequences(b, node, inputs, scope),
            // Without an operand, an optional holds nothing.
            SequenceOp::Optional => inputs.first().cloned().unwrap_or(Binding::Absent),
            SequenceOp::HasElement => {
                let there = inputs.first().is_some_and(|x| *x != Binding::Absent);
                number(b, Tensor::from_f64(DType::Bool, vec![], [f64::from(u8::from(there))]))
            }
            SequenceOp::GetElement => x.any(0)?.clone(),
        }])
    }

    /// Parts along an axis: of the sizes of operand 1, of one size (the last may be less), or single elements.
    fn split_to_sequence(&self, b: &mut FunctionBuilder<'_>, x: &Operands<'_, 'p, '_>) -> Result<Binding, ImportError> {
        let node = x.node;
        let (Binding::Tensor(data, narrow), attrs) = (x.any(0)?, attributes::convert(&node.attrs, self.external))
        else {
            return Err(node.invalid("input 0 is no tensor"));
        };
        let (data, attrs) = (*data, attrs.map_err(|e| node.refused(e))?);
        let shape = b.ty(data).shape.clone();
        let axis = normalize_axis(attrs.int("axis").unwrap_or(0), shape.len()).map_err(|m| node.invalid(m))?;
        let size = shape[axis].as_const().ok_or_else(|| {
            node.unsupported(format!(
                "unsupported: the number of parts is not known, since dimension {axis} of {:?} is open; give it a size",
                shape
            ))
        })?;
        let given = x.list.get(1).and_then(Binding::value);
        let sizes: Vec<i64> = match given {
            None => vec![1; size.min(MOST_PARTS + 1) as usize],
            Some(v) => {
                let known = int_value(b.module, &b.function, v, 0);
                let known: Option<Vec<i64>> = known.and_then(|d| d.iter().map(Dim::as_const).collect());
                let known = known.ok_or_else(|| {
                    node.unsupported("unsupported: the sizes of the parts are not known at compile time")
                })?;
                match (b.ty(v).rank(), &known[..]) {
                    (0, [0]) => return Err(node.invalid("parts of size 0")),
                    (0, &[each]) if each > 0 && size / each <= MOST_PARTS => {
                        (0..size).step_by(each as usize).map(|from| each.min(size - from)).collect()
                    }
                    _ => known,
                }
            }
        };
        if sizes.len() as i64 > MOST_PARTS || sizes.iter().any(|&s| s < 0) || sizes.iter().sum::<i64>() != size {
            return Err(node.invalid(format!(
                "parts of sizes {sizes:.60?} of a dimension of {size}; at most {MOST_PARTS} parts are made"
            )));
        }
        let squeeze = given.is_none() && attrs.int("keepdims").unwrap_or(1) == 0;
        if sizes.is_empty() {
            return Ok(Binding::Sequence(vec![]));
        }
        let op = Split { axis: axis as i64, sizes: sizes.into_iter().map(Int::new).collect() };
        let mut cx = ImportContext::new(b, i64::MAX, vec![], OnnxAttrs::default(), 1);
        let mut parts = cx.add_multi(op, vec![Some(data)]).map_err(|e| node.refused(e))?;
        if squeeze {
            for part in &mut parts {
                *part = cx.add(Squeeze { axes: vec![axis as i64] }, &[*part]).map_err(|e| node.refused(e))?;
            }
        }
        Ok(Binding::Sequence(parts.into_iter().map(|v| Binding::Tensor(v, *narrow)).collect()))
    }

    fn concat_from_sequence(
        &self,
        b: &mut FunctionBuilder<'_>,
        x: &Operands<'_, 'p, '_>,
    ) -> Result<Binding, ImportError> {
        let (node, list) = (x.node, x.sequence(0)?);
        let Some(Binding::Tensor(_, narrow)) = list.first() else {
            return Err(node.invalid("the sequence holds no tensors"));
        };
        let values: Vec<ValueId> = list.iter().filter_map(Binding::value).collect();
        if values.len() != list.len() || !list.iter().all(|x| x.is_like(&list[0])) {
            return Err(node.invalid("the sequence holds more than tensors of one type"));
        }
        let attrs = attributes::convert(&node.attrs, self.external).map_err(|e| node.refused(e))?;
        let axis = attrs.int("axis").ok_or_else(|| node.invalid("attribute `axis` is missing"))?;
        let value = match attrs.int("new_axis").unwrap_or(0) {
            0 => {
                let axis = OnnxAttrs([("axis".to_string(), OnnxAttr::Int(axis))].into_iter().collect());
                self.apply(b, node, "Concat", &values, axis)?
            }
            _ => self.stack(b, node, &values, axis)?,
        };
        Ok(Binding::Tensor(value, *narrow))
    }

    /// The body for each element of the sequences among the operands; tensors are the same for all.
    fn map_sequences(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        inputs: &[Binding],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        let body = self.body(node, "body")?;
        let length = match inputs.first() {
            Some(Binding::Sequence(list)) => list.len(),
            _ => return Err(node.invalid("input 0 is no sequence")),
        };
        let mut results: Vec<Vec<Binding>> = vec![vec![]; body.output.len()];
        for i in 0..length {
            let element = |x: &Binding| match x {
                Binding::Sequence(list) if list.len() == length => Ok(list[i].clone()),
                Binding::Sequence(list) => {
                    Err(node.invalid(format!("its sequences have {length} and {} elements", list.len())))
                }
                other => Ok(other.clone()),
            };
            let arguments = inputs.iter().map(element).collect::<Result<_, _>>()?;
            let values = self.import_bindings(b, body, format!("{}/{i}/", node.name), arguments, scope)?;
            results.iter_mut().zip(values).for_each(|(list, v)| list.push(v));
        }
        Ok(results.into_iter().map(Binding::Sequence).collect())
    }
}
