//! Settings for the sizes that a model leaves open.

use super::{BindError, Module, TensorType, bind_dims, choose_shapes, open_dims, open_dims_of};
use crate::int::{DimRange, DimRanges};
use crate::name::Name;
use crate::tensor::Tensor;

/// Why sizes do not fit a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizesError {
    /// Names that the model does not have, sizes that contradict each other or a fixed size.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Dimensions of inputs that nothing gives a size.
    #[error("the model leaves {} open", .dims.iter().map(|d| format!("`{d}`")).collect::<Vec<_>>().join(" and "))]
    Open {
        /// The dimensions.
        dims: Vec<Name>,
        /// The inputs that have them, with their types.
        inputs: String,
    },
    /// Two inputs with different sizes for one dimension.
    #[error("{0}")]
    Contradiction(String),
}

/// Sizes for a model's open dimensions, and inputs with known values.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// The first dimension of every input that has dimensions.
    pub batch: Option<usize>,
    /// Sizes of named dimensions.
    pub dims: Vec<(String, usize)>,
    /// Whole shapes of inputs, by name; they go before the others.
    pub shapes: Vec<(String, Vec<usize>)>,
    /// Dimensions that stay open, with the least and the most that they may be: one compilation serves all of these
    /// sizes.
    pub open: Vec<(String, usize, usize)>,
    /// Steps between the sizes of dimensions in `open`, from the least size on; default 1.
    pub steps: Vec<(String, usize)>,
    /// Shapes of inputs of later runs, by name: they decide sizes that are not set above and not open.
    pub seen: Vec<(String, Vec<usize>)>,
    /// Dimensions that stay open without a range.
    pub any_size: Vec<String>,
    /// Undecided sizes stay open, if no input shapes are given. Otherwise an undecided first dimension is 1, and any
    /// other one is an error.
    pub keep_open: bool,
    /// Inputs of an ONNX model that become constants, such as sizes and axes.
    pub values: Vec<(String, Tensor)>,
}

/// The decided sizes of a model's inputs.
pub struct Decided {
    /// Names and types of the inputs.
    pub types: Vec<(Name, TensorType)>,
    /// Sizes of dimensions.
    pub dims: Vec<(Name, i64)>,
    /// The ranges of open dimensions.
    pub ranges: DimRanges,
}

impl Decided {
    /// The shapes of inputs that are not open.
    pub fn closed(&self) -> Vec<(Name, Vec<usize>)> {
        self.types.iter().filter_map(|(n, t)| Some((*n, t.const_shape()?))).collect()
    }

    /// Gives the dimensions that a module still leaves open their sizes.
    ///
    /// # Errors
    /// Sizes that its nodes do not take.
    pub fn bind(&self, module: &mut Module) -> Result<(), BindError> {
        let open = open_dims(module);
        let dims: Vec<(Name, i64)> = self.dims.iter().copied().filter(|d| open.contains(&d.0)).collect();
        if dims.is_empty() { Ok(()) } else { bind_dims(module, &dims) }
    }
}

impl Sizes {
    /// Sets the dimension `name` from text: a size; a range `A..B`, or `A..B:STEP` for every STEP-th size from A on, in
    /// which it stays open; or `open`, without a range.
    ///
    /// # Errors
    /// What the text has to be.
    pub fn set_dim(&mut self, name: &str, text: &str) -> Result<(), &'static str> {
        if text == "open" {
            self.any_size.push(name.into());
            return Ok(());
        }
        let Some((low, high)) = text.split_once("..") else {
            let size = text.parse().ok().filter(|&n: &usize| i64::try_from(n).is_ok());
            self.dims.push((name.into(), size.ok_or("needs a size, a range such as 1..64, or `open`")?));
            return Ok(());
        };
        let (high, step) = high.split_once(':').unwrap_or((high, "1"));
        let number = |s: &str| s.parse::<i32>().ok().and_then(|n| usize::try_from(n).ok());
        let (Some(low), Some(high), Some(step @ 1..)) = (number(low), number(high), number(step)) else {
            return Err("needs a range of sizes such as 0..64, or 32..640:32 for every 32nd size from 32 on");
        };
        if high < low {
            return Err("the range is empty");
        }
        self.open.push((name.into(), low, high));
        self.steps.push((name.into(), step));
        Ok(())
    }

    /// The ranges of all dimensions that stay open in one, whatever a model has.
    pub fn declared_ranges(&self) -> DimRanges {
        let mut ranges = DimRanges::default();
        let declared = self.open.iter().filter_map(|(name, low, high)| Some((name, self.range(name, *low, *high)?)));
        declared.for_each(|(name, range)| ranges.declare_range(Name::new(name), range));
        ranges
    }

    /// The range of a dimension, with its step; `None` if no size is in it.
    fn range(&self, name: &str, low: usize, high: usize) -> Option<DimRange> {
        let step = self.steps.iter().find(|s| s.0 == name).map_or(1, |s| s.1);
        let number = |n: usize| i64::try_from(n).ok();
        DimRange::new(number(low)?, number(high)?, number(step)?)
    }

    /// Decides for inputs of these names and types.
    ///
    /// # Errors
    /// Names that the model does not have, sizes that contradict each other or a fixed size, and [`SizesError::Open`].
    pub fn decide(&self, ports: &[(Name, TensorType)]) -> Result<Decided, SizesError> {
        let ranges = self.ranges(&open_dims_of(ports.iter().map(|p| &p.1)))?;
        let keep_open = self.keep_open && self.seen.is_empty();
        let stays = |d: Name| keep_open || ranges.is_declared(d) || self.any_size.iter().any(|n| n == d.as_str());
        let shapes: Vec<_> = self.shapes.iter().map(|(n, s)| (Name::new(n), s.clone())).collect();
        let mut dims: Vec<_> = self.dims.iter().map(|(n, d)| (Name::new(n), *d as i64)).collect();
        self.see(ports, &stays, &mut dims)?;
        let choose = |dims: &[(Name, i64)]| choose_shapes(ports.to_vec(), self.batch, dims, &shapes);
        for symbol in choose(&dims)?.iter().filter_map(|t| t.shape.first()?.as_var()).filter(|&s| !stays(s)) {
            if !dims.iter().any(|d| d.0 == symbol) {
                dims.push((symbol, 1));
            }
        }
        let types: Vec<(Name, TensorType)> = ports.iter().map(|p| p.0).zip(choose(&dims)?).collect();
        let open = open_dims_of(types.iter().map(|t| &t.1)).into_iter().filter(|&d| !stays(d)).collect::<Vec<_>>();
        if open.is_empty() {
            return Ok(Decided { types, dims, ranges });
        }
        let of = types.iter().filter(|t| t.1.const_shape().is_none()).map(|(n, t)| format!("{n} {t:?}"));
        Err(SizesError::Open { dims: open, inputs: of.collect::<Vec<_>>().join(", ") })
    }

    /// The ranges from [`Sizes::open`] for the dimensions `known`.
    fn ranges(&self, known: &[Name]) -> Result<DimRanges, SizesError> {
        let mut ranges = DimRanges::default();
        let mut named = self.open.iter().map(|r| &r.0).chain(&self.any_size).map(|n| Name::new(n));
        if let Some(name) = named.find(|n| !known.contains(n)) {
            return Err(BindError::UnknownDim { name, known: known.to_vec() }.into());
        }
        for (name, low, high) in &self.open {
            let name = Name::new(name);
            let Some(range) = self.range(name.as_str(), *low, *high) else {
                let (value, why) = (format!("{low} to {high}"), "no size is in this range".to_string());
                return Err(BindError::BadSize { name, value, why }.into());
            };
            ranges.declare_range(name, range);
        }
        Ok(ranges)
    }

    /// Adds sizes from the shapes of given inputs, for dimensions that do not stay open.
    fn see(
        &self,
        ports: &[(Name, TensorType)],
        stays: &dyn Fn(Name) -> bool,
        dims: &mut Vec<(Name, i64)>,
    ) -> Result<(), SizesError> {
        for (name, shape) in self.seen.iter().filter(|s| !self.shapes.iter().any(|whole| whole.0 == s.0)) {
            let port = ports.iter().find(|p| p.0.as_str() == name).filter(|p| p.1.rank() == shape.len());
            let sized = port.into_iter().flat_map(|p| p.1.shape.iter().zip(shape));
            for (symbol, &size) in sized.filter_map(|(d, n)| Some((d.as_var()?, n))).filter(|s| !stays(s.0)) {
                match dims.iter().find(|d| d.0 == symbol) {
                    Some(d) if d.1 != size as i64 => {
                        return Err(SizesError::Contradiction(format!(
                            "input `{name}` has {size} for `{symbol}`, which is {}",
                            d.1
                        )));
                    }
                    Some(_) => {}
                    None => dims.push((symbol, size as i64)),
                }
            }
        }
        Ok(())
    }
}
