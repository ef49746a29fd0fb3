//! The interface between an op's file and ONNX: attributes, operands, and the insertion of nodes.

mod apart;

use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{BlockId, FunctionBuilder, TensorType, ValueId};
use crate::int::Dim;
use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::ops::cast::Cast;
use crate::ops::narrow::Narrow;
use crate::ops::reshape::Reshape;
use crate::ops::{OpRef, OpResult};
use crate::tensor::{MAX_RANK, Tensor};
use indexmap::IndexMap;
use rustc_hash::FxHashMap;

/// An ONNX attribute value.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum OnnxAttr {
    Int(i64),
    Float(f32),
    Str(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strs(Vec<String>),
    Tensor(Tensor),
}

/// Attributes of one ONNX node.
#[derive(Clone, Debug, Default)]
pub struct OnnxAttrs(pub IndexMap<String, OnnxAttr>);
impl OnnxAttrs {
    /// An int attribute.
    pub fn int(&self, name: &str) -> Option<i64> {
        if let Some(OnnxAttr::Int(v)) = self.0.get(name) { Some(*v) } else { None }
    }
    /// A float attribute.
    pub fn float(&self, name: &str) -> Option<f64> {
        if let Some(OnnxAttr::Float(v)) = self.0.get(name) { Some(*v as f64) } else { None }
    }
    /// A string attribute.
    pub fn str(&self, name: &str) -> Option<&str> {
        if let Some(OnnxAttr::Str(v)) = self.0.get(name) { Some(v) } else { None }
    }
    /// A list of ints.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        if let Some(OnnxAttr::Ints(v)) = self.0.get(name) { Some(v) } else { None }
    }
    /// A list of floats.
    pub fn floats(&self, name: &str) -> Option<&[f32]> {
        if let Some(OnnxAttr::Floats(v)) = self.0.get(name) { Some(v) } else { None }
    }
    /// A tensor attribute.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        if let Some(OnnxAttr::Tensor(v)) = self.0.get(name) { Some(v) } else { None }
    }
}

/// Importing one ONNX node: add graph nodes through `b` and return one value per ONNX output.
/// Names, origins and result names are set by the importer around the call.
///
/// A text as an error says that the model is wrong; [`Fault::unsupported`](crate::fault::Fault::unsupported) that it is
/// right, and needs what Weft does not have.
pub struct ImportContext<'a, 'm> {
    /// Where nodes go.
    pub b: &'a mut FunctionBuilder<'m>,
    /// Domain (empty for ai.onnx) and name of the operator whose row is applied; empty without a row.
    pub operator: (&'static str, &'static str),
    /// Opset of the op's domain.
    pub opset: i64,
    /// Operands; `None` for an absent optional one.
    pub inputs: Vec<Option<ValueId>>,
    /// Attributes.
    pub attrs: OnnxAttrs,
    /// Number of outputs the node names (trailing optional outputs may be missing).
    pub num_outputs: usize,
    /// Outputs before the last one that the node leaves out, by position.
    pub unnamed_outputs: Vec<usize>,
    /// For operands of types that Weft only stores, as bytes: which type. Importers that know of them take theirs out
    /// ([`ImportContext::take_narrow`]); of one that is left, the elements may only have been moved.
    pub narrow: Vec<Option<Narrow>>,
    /// Such a type of the results.
    pub narrow_result: Option<Narrow>,
}
impl<'a, 'm> ImportContext<'a, 'm> {
    /// A node with these operands, all of types that are computed in, and all its results named.
    pub fn new(
        b: &'a mut FunctionBuilder<'m>,
        opset: i64,
        inputs: Vec<Option<ValueId>>,
        attrs: OnnxAttrs,
        num_outputs: usize,
    ) -> ImportContext<'a, 'm> {
        ImportContext {
            b,
            operator: ("", ""),
            opset,
            inputs,
            attrs,
            num_outputs,
            unnamed_outputs: vec![],
            narrow: vec![],
            narrow_result: None,
        }
    }
    /// The narrow type of operand `i`, which the importer then takes care of.
    pub fn take_narrow(&mut self, i: usize) -> Option<Narrow> {
        self.narrow.get_mut(i).and_then(Option::take)
    }
}
impl ImportContext<'_, '_> {
    /// True where the model has a name for output `i`: results that nobody asked for need not be computed.
    pub fn wants(&self, i: usize) -> bool {
        i < self.num_outputs && !self.unnamed_outputs.contains(&i)
    }
    /// Refuses every attribute that is not in `known`.
    ///
    /// # Errors
    /// Names the first attribute that is not.
    pub fn only_attrs(&self, known: &[&str]) -> OpResult<()> {
        match self.attrs.0.keys().find(|k| !known.contains(&k.as_str())) {
            Some(other) => Err(Fault::unsupported(format!("unsupported attribute `{other}`"))),
            None => Ok(()),
        }
    }
    /// Refuses an attribute unless it is absent, 0, or empty.
    ///
    /// # Errors
    /// Names the attribute.
    pub fn unset_attr(&self, name: &str) -> OpResult<()> {
        match self.attrs.0.get(name) {
            None | Some(OnnxAttr::Int(0)) => Ok(()),
            Some(OnnxAttr::Str(text)) if text.is_empty() => Ok(()),
            Some(value) => Err(Fault::unsupported(format!("unsupported attribute `{name}` = {value:?}"))),
        }
    }
    /// Refuses operand `i`, called `name` in the operator's definition, unless it is absent.
    ///
    /// # Errors
    /// Names the operand.
    pub fn absent_input(&self, i: usize, name: &str) -> OpResult<()> {
        match self.opt(i) {
            Some(_) => Err(Fault::unsupported(format!("unsupported input {i} (`{name}`)"))),
            None => Ok(()),
        }
    }
    /// An int attribute that must be there and above 0.
    ///
    /// # Errors
    /// Names the attribute.
    pub fn positive_attr(&self, name: &str) -> OpResult<i64> {
        match self.attrs.int(name) {
            Some(n) if n > 0 => Ok(n),
            Some(n) => Err(format!("attribute `{name}` is {n}, which must be above 0").into()),
            None => Err(format!("attribute `{name}` is missing").into()),
        }
    }
    /// A required operand.
    ///
    /// # Errors
    /// When it is absent.
    pub fn input(&self, i: usize) -> OpResult<ValueId> {
        self.opt(i).ok_or_else(|| format!("input {i} is missing").into())
    }
    /// An optional operand.
    pub fn opt(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
    }
    /// Type of a required operand.
    ///
    /// # Errors
    /// When it is absent.
    pub fn ty(&self, i: usize) -> OpResult<TensorType> {
        Ok(self.b.ty(self.input(i)?).clone())
    }
    /// The value of operand `i` where it is a constant, or depends on small constants only.
    pub fn const_tensor(&self, i: usize) -> Option<Tensor> {
        crate::ops::const_value(self.b.module, &self.b.function, self.opt(i)?)
            .or_else(|| crate::ops::folded_value(self.b.module, &self.b.function, self.opt(i)?))
    }
    /// Integer elements of operand `i` where they are constant, through shape arithmetic too.
    pub fn const_ints(&self, i: usize) -> Option<Vec<i64>> {
        crate::ops::int_value(self.b.module, &self.b.function, self.opt(i)?, 0)?.iter().map(|d| d.as_const()).collect()
    }
    /// The number that operand `i` is, where it is constant and an attribute holds it ([`held_number`]).
    pub fn const_number(&self, i: usize) -> Option<f64> {
        held_number(&self.const_tensor(i)?)
    }
    /// Integer elements of operand `i` where they are constant or symbolic: shape arithmetic.
    pub fn int_values(&self, i: usize) -> Option<Vec<Dim>> {
        crate::ops::int_value(self.b.module, &self.b.function, self.opt(i)?, 0)
    }
    /// A dimension that is known only when the node has run: a symbol that nothing else in the function has.
    pub fn fresh_dim(&mut self, base: &str, i: usize) -> Dim {
        Dim::var(format!("{}_{base}{}_{i}", self.b.function.name, self.b.function.values.len()).as_str())
    }
    /// Dimensions of a result whose shape is operand `i`, known only at run time: a fresh symbol for each of its
    /// elements.
    ///
    /// # Errors
    /// An operand whose length is not known, or is more than a shape has.
    pub fn fresh_dims(&mut self, base: &str, i: usize) -> OpResult<Vec<Dim>> {
        let rank = self.ty(i)?.numel().as_const().ok_or("the rank of the result is not known")?;
        if !(0..=MAX_RANK as i64).contains(&rank) {
            return Err(format!("the result has {rank} dimensions, at most {MAX_RANK} are").into());
        }
        Ok((0..rank as usize).map(|d| self.fresh_dim(base, d)).collect())
    }
    /// Adds a node with one result.
    ///
    /// # Errors
    /// An error of inference.
    pub fn add(&mut self, op: impl Into<OpRef>, inputs: &[ValueId]) -> OpResult<ValueId> {
        self.b.add(op, inputs).map_err(|e| e.why)
    }
    /// Adds a node with optional operands and any number of results.
    ///
    /// # Errors
    /// An error of inference.
    pub fn add_multi(&mut self, op: impl Into<OpRef>, inputs: Vec<Option<ValueId>>) -> OpResult<Vec<ValueId>> {
        self.b.add_multi(op, inputs, vec![]).map_err(|e| e.why)
    }
    /// Adds nodes to `block`, the region of a node to come.
    ///
    /// # Errors
    /// An error of `add`.
    pub fn in_block<R>(&mut self, block: BlockId, add: impl FnOnce(&mut Self) -> OpResult<R>) -> OpResult<R> {
        let around = self.b.enter(block);
        let result = add(self);
        self.b.enter(around);
        result
    }
    /// Adds a constant scalar of `dtype`.
    pub fn number(&mut self, value: f64, dtype: DType) -> ValueId {
        self.constant(&Tensor::from_f64(dtype, vec![], [value]))
    }
    /// Type of a value.
    pub fn type_of(&self, v: ValueId) -> TensorType {
        self.b.ty(v).clone()
    }
    /// `v` as `dtype`: itself, or through a cast.
    ///
    /// # Errors
    /// An error of inference.
    pub fn cast(&mut self, v: ValueId, dtype: DType) -> OpResult<ValueId> {
        if self.b.ty(v).dtype == dtype { Ok(v) } else { self.add(Cast::new(dtype), &[v]) }
    }
    /// `v` in the shape `shape`, of which one entry may be -1.
    ///
    /// # Errors
    /// An error of inference.
    pub fn reshape(&mut self, v: ValueId, shape: Vec<Dim>) -> OpResult<ValueId> {
        self.add(Reshape { shape, ..Reshape::default() }, &[v])
    }
    /// Adds a constant.
    pub fn constant(&mut self, t: &Tensor) -> ValueId {
        self.b.constant("const", t)
    }
}

/// One importer: `op_type` of `domain`, valid from opset `since` on.
pub struct OnnxImport {
    /// ONNX op.
    pub op_type: &'static str,
    /// Domain; empty for ai.onnx.
    pub domain: &'static str,
    /// First opset.
    pub since: i64,
    /// Adds the nodes.
    pub import: fn(&mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>>,
}

/// One ONNX node to write.
#[derive(Clone, Debug)]
pub struct ExportNode {
    /// ONNX op.
    pub op_type: String,
    /// Domain; empty for ai.onnx.
    pub domain: String,
    /// Names of the operands; empty for an absent one.
    pub inputs: Vec<String>,
    /// Names of the results.
    pub outputs: Vec<String>,
    /// Attributes.
    pub attrs: Vec<(String, OnnxAttr)>,
}

/// Float types that the ONNX form of an op takes as operands and results. Weft's ops take f32 beside f16; casts in the
/// file make up for the difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FloatTypes {
    /// One type for all: the first float result's.
    One,
    /// Each has a type of its own.
    Own,
    /// One type, and f32 in place of f16: the form has nodes that square or sum data, beyond what f16 holds.
    Wide,
}

/// Exporting one graph node: emit ONNX nodes of [`EXPORT_OPSET`](crate::onnx::EXPORT_OPSET) that compute `outputs` from
/// `inputs`.
pub struct ExportContext<'a> {
    /// Names of the operands; `None` for an absent one.
    pub inputs: Vec<Option<String>>,
    /// Names of the results.
    pub outputs: Vec<String>,
    /// Operand types.
    pub input_types: Vec<Option<&'a TensorType>>,
    /// Result types.
    pub output_types: Vec<&'a TensorType>,
    /// Nodes so far.
    pub nodes: Vec<ExportNode>,
    /// Constants the nodes need, by name.
    pub constants: Vec<(String, Tensor)>,
    /// Prefix for fresh names, unique in the model.
    pub prefix: String,
    /// Where the size of a symbol can be read.
    pub symbols: &'a FxHashMap<Name, SizeSource>,
    /// Symbols that were asked for and can be read nowhere.
    pub missing: Vec<Name>,
}

/// A value in scope that tells a size.
#[derive(Clone, Debug)]
pub enum SizeSource {
    /// The size of one of its axes.
    Axis(String, usize),
    /// The size is its one element; it has shape `[1]`.
    Value(String),
}
impl ExportContext<'_> {
    /// A new, unique name.
    pub fn fresh(&self) -> String {
        format!("{}_{}", self.prefix, self.nodes.len() + self.constants.len())
    }
    /// Adds a constant and returns its name.
    pub fn constant(&mut self, t: Tensor) -> String {
        let name = self.fresh();
        self.constants.push((name.clone(), t));
        name
    }
    /// Name of operand `i`; empty when absent.
    pub fn input(&self, i: usize) -> String {
        self.inputs.get(i).cloned().flatten().unwrap_or_default()
    }
    /// Emits a node.
    pub fn node(&mut self, op_type: &str, inputs: Vec<String>, outputs: Vec<String>, attrs: Vec<(&str, OnnxAttr)>) {
        self.nodes.push(ExportNode {
            op_type: op_type.into(),
            domain: String::new(),
            inputs,
            outputs,
            attrs: attrs.into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
        });
    }
    /// Emits a node with one result of a fresh name, which is returned.
    pub fn emit(&mut self, op_type: &str, inputs: Vec<String>) -> String {
        let out = self.fresh();
        self.node(op_type, inputs, vec![out.clone()], vec![]);
        out
    }
    /// The name of a rank-1 i64 value with these elements: a constant, or computed from the shapes that define their
    /// symbols.
    ///
    /// # Errors
    /// A symbol that is no dimension of an input.
    pub fn ints(&mut self, values: &[Int]) -> OpResult<String> {
        if let Some(known) = values.iter().map(Int::as_const).collect::<Option<Vec<i64>>>() {
            return Ok(self.constant(Tensor::ints(&known)));
        }
        let parts: Vec<String> = values.iter().map(|v| self.int(v)).collect::<OpResult<_>>()?;
        if let [one] = &parts[..] {
            return Ok(one.clone());
        }
        let out = self.fresh();
        self.node("Concat", parts, vec![out.clone()], vec![("axis", OnnxAttr::Int(0))]);
        Ok(out)
    }
    /// One integer as a value of shape `[1]`.
    fn int(&mut self, value: &Int) -> OpResult<String> {
        let (op, a, b) = match value.node() {
            IntNode::Const(c) => return Ok(self.constant(Tensor::ints(&[*c]))),
            IntNode::Var(v) => {
                let (of, axis) = match self.symbols.get(v) {
                    Some(SizeSource::Axis(of, axis)) => (of.clone(), *axis as i64),
                    Some(SizeSource::Value(value)) => return Ok(value.clone()),
                    None => {
                        self.missing.push(*v);
                        return Err(format!("the size `{v}` is no dimension of an input").into());
                    }
                };
                let range = vec![("start", OnnxAttr::Int(axis)), ("end", OnnxAttr::Int(axis + 1))];
                let out = self.fresh();
                self.node("Shape", vec![of], vec![out.clone()], range);
                return Ok(out);
            }
            IntNode::Load(..) => return Err("a size is read from data".into()),
            IntNode::Add(a, b) => ("Add", a, b),
            IntNode::Sub(a, b) => ("Sub", a, b),
            IntNode::Mul(a, b) => ("Mul", a, b),
            // Sizes are not negative, so ONNX's truncation is the floor.
            IntNode::Div(a, b) => ("Div", a, b),
            IntNode::Mod(a, b) => ("Mod", a, b),
            IntNode::Min(a, b) => ("Min", a, b),
            IntNode::Max(a, b) => ("Max", a, b),
        };
        let operands = vec![self.int(a)?, self.int(b)?];
        Ok(self.emit(op, operands))
    }
    /// Emits the usual case: one ONNX node with all operands and results of the graph node.
    pub fn simple(&mut self, op_type: &str, attrs: Vec<(&str, OnnxAttr)>) {
        let inputs = (0..self.inputs.len()).map(|i| self.input(i)).collect();
        let outputs = self.outputs.clone();
        self.node(op_type, inputs, outputs, attrs);
    }
}

/// The first element as a float; `None` for an integer of more bits than a float has.
pub fn held_number(t: &Tensor) -> Option<f64> {
    let number = t.to_f64_vec().first().copied()?;
    let held = !t.dtype().is_int() || t.to_i64_vec().first() == Some(&(number as i64));
    held.then_some(number)
}
