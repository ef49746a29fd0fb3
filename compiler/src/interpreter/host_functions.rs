//! Functions on host tensors that `call_host` nodes name: an expert's own code, or an external library.
//!
//! A function either returns its results ([`HostFunctions::register`]) or writes them into given memory
//! ([`HostFunctions::register_into`]). One that is prepared ([`HostFunctions::register_prepared`]) writes them too, and
//! keeps what it makes of shapes and constants between the runs of a call site. Results must have the types that the
//! call declares.

use crate::dtype::DType;
use crate::graph::{Function, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::{CallHost, Const};
use crate::plan::{HostCaller, HostResult, HostSignature, HostSite, PrepareFunction, PreparedFunction};
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
    Prepared(Arc<PrepareFunction>),
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
    /// Registers `f`, which writes its results into tensors of the declared types. They hold zeros; a result that is
    /// declared in place of an operand holds that operand's values, in its memory where nobody else holds it.
    pub fn register_into(
        &mut self,
        name: impl Into<Name>,
        f: impl Fn(&[Tensor], &mut [TensorMut]) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.map.insert(name.into(), HostFunction::Writing(Arc::new(f)));
    }
    /// Registers a function that is prepared: `prepare` is called once for each call site and list of sizes, with the
    /// types of operands and results and the data of operands that are constants. What it returns runs, as a function
    /// of [`HostFunctions::register_into`] does; runs may overlap. The last 16 lists of sizes of a site are kept.
    pub fn register_prepared<F>(
        &mut self,
        name: impl Into<Name>,
        prepare: impl Fn(&HostSignature<'_>) -> Result<F, String> + Send + Sync + 'static,
    ) where
        F: Fn(&[Tensor], &mut [TensorMut]) -> Result<(), String> + Send + Sync + 'static,
    {
        let prepare = move |site: &HostSignature<'_>| prepare(site).map(|f| Box::new(f) as Box<PreparedFunction>);
        self.map.insert(name.into(), HostFunction::Prepared(Arc::new(prepare)));
    }
    /// True if a function of that name is registered.
    pub fn contains(&self, name: Name) -> bool {
        self.map.contains_key(&name)
    }
    /// The registered names, sorted.
    pub fn names(&self) -> Vec<Name> {
        let mut names: Vec<Name> = self.map.keys().copied().collect();
        names.sort_by_key(|n| n.as_str());
        names
    }

    /// Says that `name` is not registered, and what is.
    pub fn unknown(&self, name: Name) -> String {
        let names: Vec<&str> = self.names().iter().map(|n| n.as_str()).collect();
        let there = if names.is_empty() { "none is".into() } else { format!("there are: {}", names.join(", ")) };
        format!("calls the host function `{name}`, which is not registered ({there})")
    }
}

impl HostCaller for HostFunctions {
    fn contains(&self, function: Name) -> bool {
        HostFunctions::contains(self, function)
    }
    /// A function that writes its results needs the shapes of all of them.
    fn call(&self, site: &HostSite, inputs: Vec<Tensor>, results: &[HostResult<'_>]) -> Result<Vec<Tensor>, String> {
        let function = site.function;
        let made = match self.map.get(&function) {
            None => return Err(self.unknown(function)),
            Some(HostFunction::Returning(f)) => f(&inputs)?,
            Some(HostFunction::Writing(f)) => write_results(&**f, function, inputs, results)?,
            Some(HostFunction::Prepared(prepare)) => {
                check_sizes(function, results)?;
                let f = site.prepared(prepare, &inputs, results)?;
                write_results(&**f, function, inputs, results)?
            }
        };
        check_results(function, &made, results)?;
        Ok(made)
    }
}

/// The host functions of an interpreter, with what they prepared.
#[derive(Default)]
pub(super) struct HostCalls<'a> {
    caller: Option<&'a dyn HostCaller>,
    /// By graph function and node.
    sites: FxHashMap<(Name, NodeId), HostSite>,
}

impl<'a> HostCalls<'a> {
    pub(super) fn of(caller: &'a dyn HostCaller) -> HostCalls<'a> {
        HostCalls { caller: Some(caller), ..HostCalls::default() }
    }
    pub(super) fn contains(&self, function: Name) -> bool {
        self.caller.is_some_and(|c| c.contains(function))
    }
    /// Runs the call that a node is.
    pub(super) fn call(
        &mut self,
        (f, n): (&Function, NodeId),
        op: &CallHost,
        inputs: Vec<Tensor>,
        shapes: &[Option<Vec<usize>>],
    ) -> Result<Vec<Tensor>, String> {
        let site = self.sites.entry((f.name, n)).or_insert_with(|| host_site(f, n, op));
        let caller =
            self.caller.ok_or_else(|| format!("calls the host function `{}`, and there are none", op.callee))?;
        caller.call(site, inputs, &declared_results(op, shapes))
    }
}

/// The call of a host function that a node is.
pub(crate) fn host_site(f: &Function, n: NodeId, op: &CallHost) -> HostSite {
    let constant = |v: &ValueId| f.def_op::<Const>(*v).is_some();
    HostSite::new(op.callee, f.nodes[n].inputs.iter().flatten().map(constant).collect())
}

/// The results that `op` declares. `shapes` has one entry for each result; none if only the run decides the shape.
pub(crate) fn declared_results<'a>(op: &CallHost, shapes: &'a [Option<Vec<usize>>]) -> Vec<HostResult<'a>> {
    let declared = op.dtypes.iter().zip(shapes).enumerate();
    let result = |(i, (&dtype, shape)): (usize, (&DType, &'a Option<Vec<usize>>))| HostResult {
        dtype,
        shape: shape.as_deref(),
        in_place_of: op.in_place_operand(i),
    };
    declared.map(result).collect()
}

fn check_sizes(function: Name, declared: &[HostResult<'_>]) -> Result<(), String> {
    match declared.iter().any(|d| d.shape.is_none()) {
        true => Err(format!(
            "the host function `{function}` writes its results, so their sizes must be known before it runs"
        )),
        false => Ok(()),
    }
}

fn write_results(
    f: &Writing,
    function: Name,
    mut inputs: Vec<Tensor>,
    declared: &[HostResult<'_>],
) -> Result<Vec<Tensor>, String> {
    check_sizes(function, declared)?;
    let mut results = Vec::with_capacity(declared.len());
    for d in declared {
        results.push(match d.in_place_of {
            // An empty tensor replaces it among the operands, so that its memory is not shared.
            Some(operand) => {
                let held = inputs.get_mut(operand).ok_or_else(|| format!("there is no operand {operand}"))?;
                TensorMut::in_place(std::mem::replace(held, Tensor::zeros(held.dtype(), vec![0])), operand)
            }
            None => TensorMut::zeros(d.dtype, d.shape.unwrap_or_default().to_vec()).map_err(|e| e.to_string())?,
        });
    }
    f(&inputs, &mut results)?;
    Ok(results.into_iter().map(TensorMut::freeze).collect())
}

fn check_results(function: Name, results: &[Tensor], declared: &[HostResult<'_>]) -> Result<(), String> {
    if results.len() != declared.len() {
        return Err(format!("`{function}` gives {} results, declared {}", results.len(), declared.len()));
    }
    for (i, (r, d)) in results.iter().zip(declared).enumerate() {
        let fits = r.dtype() == d.dtype && d.shape.is_none_or(|s| s == r.shape());
        if !fits {
            let wanted = d.shape.map_or_else(|| d.dtype.to_string(), |s| format!("{}{s:?}", d.dtype));
            return Err(format!("result {i} of `{function}` is {}{:?}, declared {wanted}", r.dtype(), r.shape()));
        }
    }
    Ok(())
}
