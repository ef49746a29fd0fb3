//! Sizes of open dimensions: which of them a run may have.

use super::error::CompileError;
use crate::graph::substitute_dims;
use crate::graph::{
    BindError, Module, TensorType, bind_dims, input_ports, instantiate_functions, open_dims, shapes_in_order,
};
use crate::int::{DimRange, DimRanges, Int, typical_size};
use crate::name::Name;
use rustc_hash::FxHashMap;

/// A size that a run cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Inputs that do not go with the network, or with each other.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A dimension beyond its range.
    #[error("`{dim}` is {size}, and was declared to be {range}")]
    OutOfRange {
        /// The dimension.
        dim: Name,
        /// The requested size.
        size: i64,
        /// Its range.
        range: DimRange,
    },
    /// Sizes within their ranges that a node does not take.
    #[error("the model does not take {sizes}: {why}")]
    Refused {
        /// The sizes: `height = 33, width = 64`.
        sizes: String,
        /// The node, and what it says.
        why: BindError,
    },
    /// A dimension that no input shape determines.
    #[error("the inputs do not say how large `{0}` is")]
    Unknown(Name),
    /// Beyond the limits of the kernels for all sizes: a tensor that exceeds one binding, or too many loop iterations.
    /// There may be a plan for these sizes alone.
    #[error("{0}")]
    BeyondOpenPlan(String),
    /// These sizes exceed a limit of the device.
    #[error("{0}")]
    BeyondDevice(String),
    /// A bug of ours.
    #[error("internal error in `{at}`: {message}")]
    Bug {
        /// Node, kernel or step.
        at: String,
        /// The error.
        message: String,
    },
}

impl From<CompileError> for SizeError {
    fn from(e: CompileError) -> SizeError {
        match e {
            CompileError::Bug { at, message } => SizeError::Bug { at, message },
            CompileError::NeedsCpu(why) => SizeError::BeyondOpenPlan(why),
            other => SizeError::BeyondDevice(other.to_string()),
        }
    }
}

/// The sizes of the open dimensions of a network that inputs of these shapes have, in the order in which the inputs
/// have them.
///
/// # Errors
/// Shapes that do not go with the network's inputs, sizes beyond their ranges.
pub(super) fn sizes_of(
    module: &Module,
    shapes: &[&[usize]],
    ranges: &DimRanges,
) -> Result<Vec<(Name, i64)>, SizeError> {
    let ports = input_ports(module);
    shapes_in_order(&ports, shapes)?;
    let mut sizes: FxHashMap<Name, i64> = FxHashMap::default();
    for ((_, ty), shape) in ports.iter().zip(shapes) {
        for (d, &n) in ty.shape.iter().zip(*shape) {
            if let Some(v) = d.as_var() {
                sizes.insert(v, n as i64);
            }
        }
    }
    let of = |dim: Name| Ok((dim, *sizes.get(&dim).ok_or(SizeError::Unknown(dim))?));
    let sizes: Vec<(Name, i64)> = open_dims(module).into_iter().map(of).collect::<Result<_, SizeError>>()?;
    sizes.iter().try_for_each(|s| check_range(ranges, *s))?;
    Ok(sizes)
}

pub(super) fn check_range(ranges: &DimRanges, (dim, size): (Name, i64)) -> Result<(), SizeError> {
    let range = ranges.sizes(dim);
    let fits = range.contains(size) || range.takes_empty(size);
    if fits { Ok(()) } else { Err(SizeError::OutOfRange { dim, size, range }) }
}

/// Refuses sizes of inputs of these shapes that are beyond the ranges of the network's open dimensions.
///
/// # Errors
/// Only [`SizeError::OutOfRange`]; the caller that runs the network refuses other wrong shapes.
pub fn check_ranges(module: &Module, shapes: &[&[usize]], ranges: &DimRanges) -> Result<(), SizeError> {
    match sizes_of(module, shapes, ranges) {
        Err(e @ SizeError::OutOfRange { .. }) => Err(e),
        _ => Ok(()),
    }
}

/// Refuses an input of this shape whose sizes are beyond the ranges of the open dimensions in its type.
///
/// # Errors
/// Only [`SizeError::OutOfRange`].
pub fn check_ranges_of(ty: &TensorType, shape: &[usize], ranges: &DimRanges) -> Result<(), SizeError> {
    let open = ty.shape.iter().zip(shape).filter_map(|(d, &n)| Some((d.as_var()?, n as i64)));
    open.into_iter().try_for_each(|size| check_range(ranges, size))
}

/// The network for checking sizes: each function has the types that it is called with. `None` if type inference fails.
pub(super) fn as_called(module: &Module) -> Option<Module> {
    let mut source = module.clone();
    instantiate_functions(&mut source).ok()?;
    Some(source)
}

/// Infers the types of `source` anew for these sizes of its open dimensions.
///
/// # Errors
/// A node that does not take them; a value of another shape than the expressions say that kernels for any sizes are
/// made for, such as a slice beyond the end.
pub(super) fn check_sizes(source: &Module, sizes: &[(Name, i64)]) -> Result<(), SizeError> {
    let mut bound = source.clone();
    bind_dims(&mut bound, sizes).map_err(|why| SizeError::Refused { sizes: listed(sizes), why })?;
    let value = |v: Name| sizes.iter().find(|s| s.0 == v).map(|s| s.1);
    for (name, f) in &source.functions {
        let Some(sized) = bound.functions.get(name) else { continue };
        for (v, known) in f.values.iter() {
            let is = &sized.ty(v).shape;
            let differs = |(was, is): (&Int, &Int)| {
                let told = is.as_const().filter(|_| was.vars().into_iter().all(|v| value(v).is_some()));
                told.is_some_and(|is| was.eval(&value) != Some(is))
            };
            if known.ty.shape.len() != is.len() || known.ty.shape.iter().zip(is).any(differs) {
                return Err(SizeError::BeyondOpenPlan(format!(
                    "for {}, {} is {is:?}, which the kernels for any sizes are not made for",
                    listed(sizes),
                    f.describe_value(v)
                )));
            }
        }
    }
    Ok(())
}

/// `height = 33, width = 64`
fn listed(sizes: &[(Name, i64)]) -> String {
    sizes.iter().map(|(dim, n)| format!("{dim} = {n}")).collect::<Vec<_>>().join(", ")
}

/// Sizes of the open dimensions that numbers are shown for: the least that the kernels for any sizes serve.
fn shown_sizes(source: Option<&Module>, open: &[Name], ranges: &DimRanges) -> Sizes {
    let of = |pick: &dyn Fn(DimRange) -> i64| -> Vec<(Name, i64)> {
        open.iter().map(|&d| (d, pick(ranges.sizes(d)))).collect()
    };
    let up = |r: DimRange, n: i64| r.low + (n - r.low).max(0).div_euclid(r.step) * r.step;
    let least = [of(&|r| r.low), of(&|r| up(r, (r.low + 1).min(r.high)))];
    // Most networks that refuse small sizes want more, or multiples of a power of 2.
    let multiples = (3..=10).map(|k| of(&|r| up(r, (r.low.max(1) + (1 << k) - 1) >> k << k).min(r.high)));
    let further = [of(&|r| up(r, typical_size((r.low, r.high)))), of(&|r| r.high)];
    let tried: Vec<_> = least.into_iter().chain(multiples).chain(further).collect();
    let checked = |sizes: &[(Name, i64)]| source.map_or(Ok(()), |m| check_sizes(m, sizes));
    let served = tried.iter().find(|s| checked(s).is_ok());
    let taken = || tried.iter().find(|s| !matches!(checked(s), Err(SizeError::Refused { .. })));
    let picked = served.or_else(taken).unwrap_or(&tried[0]);
    picked.iter().map(|&(d, n)| (d, Int::new(n))).collect()
}

/// A module with numbers for its open sizes, for what is reported.
pub(super) struct Shown {
    pub module: Module,
    /// The numbers: the least that the kernels for any sizes serve.
    pub sizes: Sizes,
}

impl Shown {
    /// `source` is the network before its passes, which says what sizes it takes.
    pub fn of(module: &Module, source: Option<&Module>, ranges: &DimRanges) -> Shown {
        let sizes = shown_sizes(source, &open_dims(module), ranges);
        Shown { module: at_sizes(module, &sizes), sizes }
    }
}

/// The module with numbers for open sizes.
pub(super) fn at_sizes(module: &Module, sizes: &Sizes) -> Module {
    let mut module = module.clone();
    substitute_dims(&mut module, sizes);
    module
}

/// Numbers of open dimensions, as expressions take their place.
pub(super) type Sizes = FxHashMap<Name, Int>;

/// The size of a dimension, for the evaluation of expressions.
pub(super) fn number_in(sizes: &Sizes) -> impl Fn(Name) -> Option<i64> {
    |dim| sizes.get(&dim).and_then(Int::as_const)
}
