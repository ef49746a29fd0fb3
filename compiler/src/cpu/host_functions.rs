//! Functions of host tensors that `call_host` nodes name: an expert's own code, an external library.
//!
//! A function either returns its results ([`HostFunctions::register`]) or writes them into memory that is there already
//! ([`HostFunctions::register_into`]). Results are held to the types that the call declares.

use crate::dtype::DType;
use crate::name::Name;
use crate::ops::control::CallHost;
use crate::tensor::{Tensor, TensorMut};
use rustc_hash::FxHashMap;
use std::sync::Arc;

type Returning = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>, String> + Send + Sync;
type Writing = dyn Fn(&[Tensor], &mut [TensorMut]) -> Result<(), String> + Send + Sync;

/// A registered function.
#[derive(Clone)]
enum HostFunction {
    Returning(Arc<Returning>),
    Writing(Arc<Writing>),
}

/// Host functions by name.
#[derive(Clone, Default)]
pub struct HostFunctions {
    map: FxHashMap<Name, HostFunction>,
}

impl std::fmt::Debug for HostFunctions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// Dtype and shape that a call declares for a result.
type Declared<'a> = (DType, &'a [usize]);

impl HostFunctions {
    /// None.
    pub fn new() -> HostFunctions {
        HostFunctions::default()
    }
    /// Registers `f`, which returns its results; an earlier function of that name is replaced.
    pub fn register(
        &mut self,
        name: impl Into<Name>,
        f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>, String> + Send + Sync + 'static,
    ) {
        self.map.insert(name.into(), HostFunction::Returning(Arc::new(f)));
    }
    /// Registers `f`, which writes its results into tensors of the declared types. They hold zeros; a result that is declared
    /// in place of an operand holds that operand's values, in its memory where nobody else holds it.
    pub fn register_into(
        &mut self,
        name: impl Into<Name>,
        f: impl Fn(&[Tensor], &mut [TensorMut]) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.map.insert(name.into(), HostFunction::Writing(Arc::new(f)));
    }
    /// True when a function of that name is registered.
    pub fn contains(&self, name: Name) -> bool {
        self.map.contains_key(&name)
    }
    /// The registered names, sorted.
    pub fn names(&self) -> Vec<Name> {
        let mut names: Vec<Name> = self.map.keys().copied().collect();
        names.sort_by_key(|n| n.as_str());
        names
    }

    /// Runs the function that `op` names. `shapes` are those of the results; none where only the run decides them, which a
    /// function that writes its results cannot do.
    ///
    /// # Errors
    /// An unknown name, what the function says, results other than declared.
    pub fn call(
        &self,
        op: &CallHost,
        inputs: Vec<Tensor>,
        shapes: &[Option<Vec<usize>>],
    ) -> Result<Vec<Tensor>, String> {
        let name = op.callee;
        let results = match self.map.get(&name) {
            None => return Err(self.unknown(name)),
            Some(HostFunction::Returning(f)) => f(&inputs)?,
            Some(HostFunction::Writing(f)) => {
                let declared = op.dtypes.iter().zip(shapes).map(|(&d, s)| Some((d, s.as_deref()?)));
                let declared = declared.collect::<Option<Vec<_>>>();
                let declared = declared.ok_or_else(|| {
                    format!(
                        "the host function `{name}` writes its results, so their sizes must be known before it runs"
                    )
                })?;
                write_results(&**f, op, inputs, &declared)?
            }
        };
        check_results(op, &results, shapes)?;
        Ok(results)
    }

    /// Says that `name` is not registered, and what is.
    pub fn unknown(&self, name: Name) -> String {
        let names: Vec<&str> = self.names().iter().map(|n| n.as_str()).collect();
        let there = if names.is_empty() { "none is".into() } else { format!("there are: {}", names.join(", ")) };
        format!("calls the host function `{name}`, which is not registered ({there})")
    }
}

fn write_results(
    f: &Writing,
    op: &CallHost,
    mut inputs: Vec<Tensor>,
    declared: &[Declared<'_>],
) -> Result<Vec<Tensor>, String> {
    let mut results = Vec::with_capacity(declared.len());
    for (i, (dtype, shape)) in declared.iter().enumerate() {
        results.push(match op.in_place_operand(i) {
            // Its place among the operands is taken by an empty tensor, so that nobody else holds the memory.
            Some(operand) => {
                let held = inputs.get_mut(operand).ok_or_else(|| format!("there is no operand {operand}"))?;
                TensorMut::in_place(std::mem::replace(held, Tensor::zeros(held.dtype(), vec![0])), operand)
            }
            None => TensorMut::zeros(*dtype, shape.to_vec()).map_err(|e| e.to_string())?,
        });
    }
    f(&inputs, &mut results)?;
    Ok(results.into_iter().map(TensorMut::freeze).collect())
}

fn check_results(op: &CallHost, results: &[Tensor], shapes: &[Option<Vec<usize>>]) -> Result<(), String> {
    let name = op.callee;
    if results.len() != op.dtypes.len() {
        return Err(format!("`{name}` gives {} results, declared {}", results.len(), op.dtypes.len()));
    }
    for (i, (r, (dtype, shape))) in results.iter().zip(op.dtypes.iter().zip(shapes)).enumerate() {
        let fits = r.dtype() == *dtype && shape.as_deref().is_none_or(|s| s == r.shape());
        if !fits {
            let wanted = shape.as_ref().map_or_else(|| dtype.to_string(), |s| format!("{dtype}{s:?}"));
            return Err(format!("result {i} of `{name}` is {}{:?}, declared {wanted}", r.dtype(), r.shape()));
        }
    }
    Ok(())
}
