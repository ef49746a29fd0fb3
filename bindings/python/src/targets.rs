//! External targets in Python.
//!
//! A registered target stays for as long as the process runs; registering one of the same name again puts another
//! object in its place. What its functions raise while a network is compiled ends the compilation ([`errors::fail`]);
//! what they raise in a run, the run raises.

use crate::arrays::{results_of, view_of};
use crate::errors::{self, keep_of_targets, usage};
use crate::forms::NodeForm;
use crate::interrupt::calling;
use crate::region::Region;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use weft::extend::{
    self, ExternalPattern, ExternalTarget, Found, Pattern, Prepared, Subject, TargetOptions, TargetSpec,
};
use weft::{Extensions, Tensor, TensorMut};

/// The targets of this module.
static TARGETS: Mutex<Vec<&'static Target>> = Mutex::new(Vec::new());

/// A target whose functions are methods of a Python object.
struct Target {
    name: &'static str,
    now: Mutex<Arc<State>>,
}

/// What a target is since it was last registered.
struct State {
    object: Py<PyAny>,
    options: &'static [(&'static str, &'static str)],
    patterns: Vec<Row>,
    is_native: bool,
}

/// A row of the pattern table.
struct Row {
    name: &'static str,
    pattern: Pattern,
    check: Option<Arc<Py<PyAny>>>,
}

fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// Registers the object as a target: `weft_nn.register_target` is this with the parts of its class.
///
/// Raises weft_nn.Error (code 2) for a name that another target has or that is no word, and for texts that are no
/// patterns.
#[pyfunction]
#[pyo3(signature = (target, name, options, patterns, is_native))]
pub fn add_target(
    target: Py<PyAny>,
    name: String,
    options: Vec<(String, String)>,
    patterns: Vec<(String, String, Option<Py<PyAny>>)>,
    is_native: bool,
) -> PyResult<()> {
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !text.is_empty();
    if let Some(wrong) = std::iter::once(&name).chain(options.iter().map(|o| &o.0)).find(|n| !is_word(n)) {
        return Err(usage(format!("{wrong:?} is no name of a target or an option"), "letters, digits and _ make one"));
    }
    let row = |(of, text, check): (String, String, Option<Py<PyAny>>)| {
        let pattern = Pattern::parse(&text).map_err(|e| {
            usage(
                format!("the pattern {of:?} of {name}: {e}"),
                "help(weft_nn.Module.find) says how a pattern is written",
            )
        })?;
        Ok(Row { name: leaked(of), pattern, check: check.map(Arc::new) })
    };
    let patterns = patterns.into_iter().map(row).collect::<PyResult<Vec<_>>>()?;
    let options: Vec<_> = options.into_iter().map(|(name, help)| (leaked(name), leaked(help))).collect();
    let state = Arc::new(State { object: target, options: Vec::leak(options), patterns, is_native });
    let mut targets = TARGETS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = targets.iter().find(|t| t.name == name) {
        *there.now.lock().unwrap_or_else(PoisonError::into_inner) = state;
        return Ok(());
    }
    let target: &'static Target = Box::leak(Box::new(Target { name: leaked(name), now: Mutex::new(state) }));
    let mut extensions = Extensions { targets: vec![target], ..Extensions::default() };
    extensions.register().map_err(|e| usage(e.to_string(), "give it another name"))?;
    targets.push(target);
    Ok(())
}

/// The specifications of `external=`, and whether one is of Python. Each target says whether it can run here.
///
/// # Errors
/// An unknown target or option; what `check` of a target raises.
pub fn external(given: &[String]) -> PyResult<bool> {
    for text in given {
        let spec = TargetSpec::parse(text)
            .map_err(|why| usage(format!("external=[{text:?}]: {why}"), "weft_nn.register_target adds targets"))?;
        let checked = spec.target.check(&spec.options);
        errors::failed().map_or(Ok(()), Err)?;
        checked.map_err(|why| errors::device(format!("external=[{text:?}]: {why}")))?;
    }
    let own = TARGETS.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(given.iter().any(|text| own.iter().any(|t| text.split(':').next() == Some(t.name))))
}

/// What a predicate says: True for yes, a text for why not, False or None for no.
fn verdict(answer: &Bound<'_, PyAny>, no: impl FnOnce() -> String) -> PyResult<Result<(), String>> {
    if let Ok(why) = answer.extract::<String>() {
        return Ok(Err(why));
    }
    Ok(if answer.is_truthy()? { Ok(()) } else { Err(no()) })
}

impl Target {
    fn state(&self) -> Arc<State> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// The options that are given, by name.
    fn given<'py>(&self, py: Python<'py>, state: &State, options: &TargetOptions) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, _) in [("min_macs", "")].iter().chain(state.options) {
            if let Some(value) = options.get(name) {
                dict.set_item(name, value)?;
            }
        }
        Ok(dict)
    }
    /// The result of a method of the object, with the options behind the first operand.
    fn call<T>(
        &self,
        method: &str,
        operand: impl FnOnce(Python<'_>) -> PyResult<Option<Py<PyAny>>>,
        options: &TargetOptions,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, String> {
        self.call_with(method, operand, options, read, |_, e| errors::fail(e))
    }
    /// As [`Target::call`]; `keep` keeps what the method raised, and gives a sentence in its place.
    fn call_with<T>(
        &self,
        method: &str,
        operand: impl FnOnce(Python<'_>) -> PyResult<Option<Py<PyAny>>>,
        options: &TargetOptions,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
        keep: impl FnOnce(Python<'_>, PyErr) -> String,
    ) -> Result<T, String> {
        calling(|py| {
            let done = || {
                let state = self.state();
                let options = self.given(py, &state, options)?.into_any().unbind();
                let operands: Vec<_> = operand(py)?.into_iter().chain([options]).collect();
                read(&state.object.bind(py).call_method1(method, PyTuple::new(py, operands)?)?)
            };
            done().map_err(|e| keep(py, e))
        })
    }
}

/// A new Python object, as an operand.
fn operand<T>(py: Python<'_>, value: T) -> PyResult<Option<Py<PyAny>>>
where
    T: pyo3::PyClass + Into<PyClassInitializer<T>>,
{
    Ok(Some(Py::new(py, value)?.into_any()))
}

impl ExternalTarget for Target {
    fn name(&self) -> &'static str {
        self.name
    }
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        self.state().options
    }
    fn is_native(&self) -> bool {
        self.state().is_native
    }
    fn check(&self, options: &TargetOptions) -> Result<(), String> {
        self.call("check", |_| Ok(None), options, |_| Ok(()))
    }
    fn supports(&self, node: &extend::NodeForm, options: &TargetOptions) -> Result<(), String> {
        let no = || format!("no {}", node.op.name());
        self.call("supports", |py| operand(py, NodeForm::of(node)), options, |a| verdict(a, no))?
    }
    fn patterns(&self) -> Vec<ExternalPattern> {
        let row = |row: &Row| {
            let plain = ExternalPattern::new(row.name, row.pattern.clone());
            let Some(check) = row.check.clone() else { return plain };
            plain.check(move |subject, found| checked(&check, subject, found)?)
        };
        self.state().patterns.iter().map(row).collect()
    }
    fn estimate(&self, region: &extend::Region, options: &TargetOptions) -> Option<f64> {
        let read = |answer: &Bound<'_, PyAny>| answer.extract::<Option<f64>>();
        self.call("estimate", |py| operand(py, Region::new(region.clone())), options, read).ok().flatten()
    }
    fn prepare(&self, region: extend::Region, options: &TargetOptions) -> Result<Box<dyn Prepared>, String> {
        let made = self.call_with(
            "prepare",
            |py| operand(py, Region::new(region)),
            options,
            |function| match function.is_callable() {
                true => Ok(Program { function: function.clone().unbind() }),
                false => Err(usage(
                    format!("`prepare` of the target {} returned {}", self.name, function.repr()?),
                    "return a function that takes the inputs as arrays and returns the results",
                )),
            },
            keep_of_targets,
        );
        made.map(|p| Box::new(p) as Box<dyn Prepared>)
    }
}

/// What the check of a match says of its nodes.
fn checked(check: &Py<PyAny>, subject: &dyn Subject, found: &Found) -> Result<Result<(), String>, String> {
    let form = |&n: &extend::NodeId| NodeForm::of(&extend::NodeForm::of(subject.function(), n));
    let ask = |py: Python<'_>| {
        let nodes = found.nodes.iter().map(form).map(|f| Py::new(py, f)).collect::<PyResult<Vec<_>>>()?;
        verdict(&check.bind(py).call1((PyList::new(py, nodes)?,))?, || "the check of the pattern says no".into())
    };
    calling(|py| ask(py).map_err(errors::fail))
}

/// A region that is ready to run: what `prepare` returned.
struct Program {
    function: Py<PyAny>,
}

impl Prepared for Program {
    fn run(&self, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String> {
        calling(|py| {
            let done = self.computed(py, inputs).map_err(|e| keep_of_targets(py, e))?;
            if done.len() != outputs.len() {
                return Err(format!("it returned {} results, the region has {}", done.len(), outputs.len()));
            }
            for (i, (result, output)) in done.iter().zip(outputs).enumerate() {
                if (result.dtype(), result.shape()) != (output.dtype(), output.shape()) {
                    let form = |dtype, shape: &[usize]| format!("{}{shape:?}", crate::arrays::name_of(dtype));
                    let (given, wanted) = (form(result.dtype(), result.shape()), form(output.dtype(), output.shape()));
                    return Err(format!("its result {i} is {given}, the region has {wanted}"));
                }
                output.bytes_mut().copy_from_slice(result.bytes());
            }
            Ok(())
        })
    }
}

impl Program {
    fn computed(&self, py: Python<'_>, inputs: &[Tensor]) -> PyResult<Vec<Tensor>> {
        let arrays = inputs.iter().map(|t| view_of(py, t)).collect::<PyResult<Vec<_>>>()?;
        results_of("a result of the target", &self.function.bind(py).call1(PyTuple::new(py, arrays)?)?)
    }
}
