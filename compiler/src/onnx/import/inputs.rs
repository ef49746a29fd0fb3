//! A model's inputs: their types, and the elements of sequences and optionals among them.

use super::super::error::{ImportError, invalid_value};
use super::super::proto::{DimensionProto, DimensionValue, GraphProto, TypeValue, ValueInfoProto};
use super::super::tensor_data::stored_dtype;
use super::binding::{Binding, element_name};
use super::constants::add_constant;
use crate::graph::{Constant, FunctionBuilder, TensorType};
use crate::int::{Dim, DimRanges};
use crate::name::Name;
use crate::ops::narrow::Narrow;
use crate::tensor::Tensor;
use rustc_hash::FxHashSet;

/// Values that are fixed on import, so that everything computed from them is known.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The first dimension of every input that has dimensions.
    pub batch: Option<usize>,
    /// Sizes of named dimensions.
    pub dims: Vec<(Name, i64)>,
    /// Shapes of inputs; they have priority over the other settings. Element `i` of the sequence `x` is the input
    /// `x.i`: a sequence has as many elements as there are shapes here, and an optional is present if it has a shape.
    pub shapes: Vec<(Name, Vec<usize>)>,
    /// Inputs that become constants: sizes and axes that would otherwise be known only at run time.
    pub values: Vec<(Name, Tensor)>,
    /// Ranges of open dimensions. They decide comparisons in shape arithmetic.
    pub ranges: DimRanges,
}

/// An input of the graph.
pub(super) struct Input<'p> {
    pub(super) name: &'p str,
    held: Held,
}

/// The kind of an input.
enum Held {
    Tensor(TensorType, Option<Narrow>),
    /// An optional that is not there.
    Nothing,
    Sequence(Vec<TensorType>),
}

impl<'p> Input<'p> {
    /// `shapes` say what sequences and optionals hold.
    pub(super) fn new(info: &'p ValueInfoProto, shapes: &[(Name, Vec<usize>)]) -> Result<Input<'p>, ImportError> {
        let name = info.name.as_deref().unwrap_or("");
        let value = info.r#type.as_ref().and_then(|t| t.value.as_ref());
        // An optional is what it holds, or nothing.
        let (value, optional) = match value {
            Some(TypeValue::Optional(held)) => (held.elem_type.as_ref().and_then(|t| t.value.as_ref()), true),
            other => (other, false),
        };
        let shape_of = |name: &str| shapes.iter().find(|s| s.0.as_str() == name).map(|s| &s.1);
        let tensor = |value: Option<&TypeValue>, shape: &[usize]| match value {
            Some(TypeValue::Tensor(t)) => {
                stored_dtype(t.elem_type.unwrap_or(0)).map(|dtype| TensorType::fixed(dtype, shape))
            }
            _ => Err("sequence or optional of other than tensors".into()),
        };
        let of = |ty: String| ImportError::UnsupportedType { what: "input", name: Name::new(name), ty };
        let held = match value {
            _ if shapes.is_empty() && (optional || matches!(value, Some(TypeValue::Sequence(_)))) => {
                return Err(of("sequence or optional, of which no inputs say what it holds".into()));
            }
            Some(TypeValue::Sequence(elements)) => {
                let element = elements.elem_type.as_ref().and_then(|t| t.value.as_ref());
                let given = (0..).map_while(|i| shape_of(&element_name(name, i)));
                let types: Vec<TensorType> = given.map(|s| tensor(element, s)).collect::<Result<_, _>>().map_err(of)?;
                if optional && types.is_empty() { Held::Nothing } else { Held::Sequence(types) }
            }
            Some(TypeValue::Tensor(t)) if optional => match shape_of(name) {
                Some(shape) => {
                    Held::Tensor(tensor(value, shape).map_err(of)?, Narrow::of_onnx(t.elem_type.unwrap_or(0).into()))
                }
                None => Held::Nothing,
            },
            Some(TypeValue::Tensor(t)) => {
                Held::Tensor(import_type(info)?, Narrow::of_onnx(t.elem_type.unwrap_or(0).into()))
            }
            _ => Held::Tensor(import_type(info)?, None),
        };
        Ok(Input { name, held })
    }

    /// The inputs of the module.
    pub(super) fn ports(&self) -> Vec<(Name, TensorType)> {
        match &self.held {
            Held::Nothing => vec![],
            Held::Tensor(ty, _) => vec![(Name::new(self.name), ty.clone())],
            Held::Sequence(types) => {
                let port = |(i, ty): (usize, &TensorType)| (Name::new(&element_name(self.name, i)), ty.clone());
                types.iter().enumerate().map(port).collect()
            }
        }
    }

    /// Adds the parameters, or constants, of types `types` in order.
    pub(super) fn add(
        &self,
        b: &mut FunctionBuilder<'_>,
        types: &mut impl Iterator<Item = TensorType>,
        options: &ImportOptions,
    ) -> Result<Binding, ImportError> {
        let mut values = vec![];
        for ((name, _), ty) in self.ports().into_iter().zip(types) {
            values.push(match options.values.iter().find(|v| v.0 == name) {
                Some((_, t)) => {
                    check_value(name.as_str(), &ty, t)?;
                    add_constant(b, name.as_str(), Constant::from_tensor(t))
                }
                None => b.param(name.as_str(), ty),
            });
        }
        Ok(match (&self.held, &values[..]) {
            (Held::Tensor(_, narrow), &[value]) => Binding::Tensor(value, *narrow),
            (Held::Sequence(_), list) => Binding::Sequence(list.iter().copied().map(Binding::tensor).collect()),
            _ => Binding::Absent,
        })
    }
}

/// The graph's inputs, and the types of the module's with the chosen shapes.
pub(super) fn input_types<'p>(
    graph: &'p GraphProto,
    chosen: &ImportOptions,
) -> Result<(Vec<Input<'p>>, Vec<TensorType>), ImportError> {
    let inputs = real_inputs(graph).map(|info| Input::new(info, &chosen.shapes)).collect::<Result<Vec<_>, _>>()?;
    let ports: Vec<(Name, TensorType)> = inputs.iter().flat_map(Input::ports).collect();
    let unknown = chosen.values.iter().find(|v| !ports.iter().any(|p| p.0 == v.0));
    if let Some(&(name, _)) = unknown {
        let known = ports.iter().map(|p| p.0).collect();
        return Err(crate::graph::BindError::UnknownInput { name, known }.into());
    }
    let types = crate::graph::choose_shapes(ports, chosen.batch, &chosen.dims, &chosen.shapes)?;
    Ok((inputs, types))
}

/// Refuses a constant that an input of type `ty` cannot have.
fn check_value(name: &str, ty: &TensorType, t: &Tensor) -> Result<(), ImportError> {
    let fits = |(d, &n): (&Dim, &usize)| d.as_const().is_none_or(|d| d == n as i64);
    if ty.dtype == t.dtype() && ty.rank() == t.shape().len() && ty.shape.iter().zip(t.shape()).all(fits) {
        return Ok(());
    }
    Err(invalid_value("input", name, &format!("it is {}{:?}, the value is {t:?}", ty.dtype, ty.shape)))
}

/// The graph's inputs that are not initializers (files of before IR version 4 list those too).
pub(crate) fn real_inputs(graph: &GraphProto) -> impl Iterator<Item = &ValueInfoProto> {
    let dense = graph.initializer.iter().filter_map(|t| t.name.as_deref());
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref()?.name.as_deref());
    let constants: FxHashSet<&str> = dense.chain(sparse).collect();
    graph.input.iter().filter(move |i| !constants.contains(i.name.as_deref().unwrap_or("")))
}

/// The type of a graph input or output.
///
/// # Errors
/// When it is no tensor, its element type is not supported, or its rank is not given.
pub(crate) fn import_type(info: &ValueInfoProto) -> Result<TensorType, ImportError> {
    let name = info.name.as_deref().unwrap_or("");
    let unsupported = |ty: &str| ImportError::UnsupportedType { what: "input", name: Name::new(name), ty: ty.into() };
    let tensor = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(TypeValue::Tensor(t)) => t,
        Some(TypeValue::Sequence(_)) => return Err(unsupported("sequence")),
        Some(TypeValue::Map(_)) => return Err(unsupported("map")),
        Some(TypeValue::SparseTensor(_)) => return Err(unsupported("sparse tensor")),
        Some(TypeValue::Optional(_)) => return Err(unsupported("optional")),
        None => return Err(invalid_value("input", name, "it has no type")),
    };
    let dtype = stored_dtype(tensor.elem_type.unwrap_or(0)).map_err(|ty| unsupported(&ty))?;
    let Some(shape) = &tensor.shape else {
        return Err(invalid_value("input", name, "the model does not say how many dimensions it has"));
    };
    let dims = shape.dim.iter().enumerate().map(|(i, d)| import_dim(name, i, d));
    Ok(TensorType::new(dtype, dims.collect()))
}

fn import_dim(input: &str, axis: usize, dim: &DimensionProto) -> Dim {
    let anonymous = || Dim::var(Name::new(&format!("{input}.dim{axis}")));
    match &dim.value {
        Some(DimensionValue::Value(v)) if *v >= 0 => Dim::new(*v),
        Some(DimensionValue::Param(p)) => match p.parse::<i64>() {
            Ok(v) if v >= 0 => Dim::new(v),
            Ok(_) => anonymous(),
            Err(_) if p.trim().is_empty() || p == "?" => anonymous(),
            Err(_) => Dim::var(Name::new(p)),
        },
        _ => anonymous(),
    }
}
