//! Element type and symbolic shape of a value, or the signature of a function value.

use crate::dtype::DType;
use crate::int::print::print_shaped;
use crate::int::{Bounds, Dim, Int, const_dims, product, simplify};
use crate::tensor::MAX_RANK;
use std::sync::Arc;

/// Dtype and symbolic shape of a value. Shown as in text: `f32[n,64]`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<Dim>,
    /// The signature, for a function value (which is stored as one i64).
    pub signature: Option<Arc<Signature>>,
}

/// Parameter and result types of a function value, in text `function(f32[4], i64[]) -> (f32[4], bool[])`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Types of the operands of a call.
    pub params: Vec<TensorType>,
    /// Its results.
    pub results: Vec<TensorType>,
}
impl std::fmt::Debug for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |types: &[TensorType]| types.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(", ");
        let results = list(&self.results);
        match self.results.len() {
            1 => write!(f, "function({}) -> {results}", list(&self.params)),
            _ => write!(f, "function({}) -> ({results})", list(&self.params)),
        }
    }
}

impl std::fmt::Debug for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.signature {
            Some(signature) => write!(f, "{signature:?}"),
            None => f.write_str(&print_shaped(self.dtype, &self.shape)),
        }
    }
}
impl TensorType {
    /// True for a type of at most [`MAX_RANK`] dimensions that are not negative and read no buffer, and whose constant
    /// size is below 2^48 elements. A dimension without symbols that is not a number has overflowed.
    pub fn is_sane(&self) -> bool {
        let mut elements = 1i64;
        let mut sane = |d: &Int| match d.as_const() {
            Some(c) => {
                elements = elements.saturating_mul(c.max(1));
                c >= 0 && elements < 1 << 48
            }
            None => !d.reads_buffer() && !d.vars().is_empty(),
        };
        let inner = self.signature.iter().flat_map(|s| s.params.iter().chain(&s.results));
        self.rank() <= MAX_RANK && self.shape.iter().all(&mut sane) && inner.into_iter().all(TensorType::is_sane)
    }
    /// The type of a function value.
    pub fn function(signature: Signature) -> TensorType {
        TensorType { dtype: DType::I64, shape: vec![], signature: Some(Arc::new(signature)) }
    }
    /// True for the type of a function value.
    pub fn is_function(&self) -> bool {
        self.signature.is_some()
    }
    /// Replaces every dimension, also in a signature. The new dimensions are in canonical form.
    pub fn change_dims(&mut self, change: &dyn Fn(&Dim) -> Dim) {
        self.shape.iter_mut().for_each(|d| *d = canonical_dim(change(d)));
        if let Some(signature) = &mut self.signature {
            let signature = Arc::make_mut(signature);
            signature.params.iter_mut().chain(&mut signature.results).for_each(|t| t.change_dims(change));
        }
    }
    /// A type with symbolic dimensions. They are brought to canonical form, so `n*m` and `m*n` are one type.
    pub fn new(dtype: DType, shape: Vec<Dim>) -> TensorType {
        TensorType { dtype, shape: shape.into_iter().map(canonical_dim).collect(), signature: None }
    }
    /// The type with its dimensions in canonical form.
    pub fn canonical(mut self) -> TensorType {
        self.change_dims(&Dim::clone);
        self
    }
    /// A type with constant dimensions.
    pub fn fixed(dtype: DType, shape: &[usize]) -> TensorType {
        TensorType::new(dtype, shape.iter().map(|&d| Dim::from(d)).collect())
    }
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
    /// The shape when every dimension is constant.
    pub fn const_shape(&self) -> Option<Vec<usize>> {
        const_dims(&self.shape)
    }
    /// Number of elements, symbolic.
    pub fn numel(&self) -> Dim {
        product(&self.shape)
    }
    /// Bytes in host memory, when the shape is constant.
    pub fn bytes(&self) -> Option<usize> {
        self.const_shape()?.iter().try_fold(self.dtype.size(), |n, &d| n.checked_mul(d))
    }
}

/// The one form of all expressions that are equal for the simplifier.
fn canonical_dim(d: Dim) -> Dim {
    if d.as_const().is_some() || d.as_var().is_some() { d } else { simplify(&d, &Bounds::new()) }
}
