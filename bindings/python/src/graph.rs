//! The graph of a network, to look at and to change: what a pass in Python gets.
//!
//! A [`Module`] holds a graph that is being changed. A pass's module is given back to the compiler when the pass ends,
//! and can then be used no more.

use crate::attributes::op_of;
use crate::edit::{self, Place};
use crate::errors::{raise, usage};
use crate::matches::Matches;
use crate::nodes::{Held, Node, Value, nodes_of, operands as operands_of};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use weft::extend::{self, Name, ValueId};

/// The graph of a network: a pass gets one, and `Model.module()` gives a copy. `weft_nn.compile` and
/// `weft_nn.load` take it as a model.
///
/// A change is there at once: nodes and values that stay can be used further. `find` and `add` need no more than a
/// pattern and the name of an op; `weft_nn.op` makes ops of one's own.
#[pyclass(frozen, module = "weft_nn")]
pub struct Module {
    pub held: Held,
}

#[pymethods]
impl Module {
    /// The nodes in the order in which they run, those of the entry function first. Constants are values, not nodes.
    #[getter]
    fn nodes(&self) -> PyResult<Vec<Node>> {
        let list = self.held.change(|m| Ok(nodes_of(m)))?;
        Ok(list.into_iter().map(|(function, id)| Node { held: self.held.clone(), function, id }).collect())
    }
    /// The inputs of the entry function.
    #[getter]
    fn inputs(&self) -> PyResult<Vec<Value>> {
        self.ends(|f| f.params().to_vec())
    }
    /// The results of the entry function.
    #[getter]
    fn outputs(&self) -> PyResult<Vec<Value>> {
        self.ends(|f| f.results().to_vec())
    }

    /// The matches of a pattern, one after another: `for match in module.find("mul{x, sigmoid(x)}")`. The graph may be
    /// changed meanwhile; each match is looked for in the graph as it then is.
    ///
    /// pattern: an op with operands, in order, `sub(a, b)`, in either order if it commutes, `add(a, b)`, or so written,
    /// `sub{a, b}`, at the beginning, `conv(a, ..)`, or any, `relu(..)`. An operand is again a pattern, a name for any
    /// value (the same name is the same value), `*`, `const`, `param`, or a number, for a constant with that number in
    /// all elements (`~1.414` for about that). `name:pattern` names what a pattern matches. `(a | b)` are alternatives,
    /// and `relu?(..)` may be missing. Tests stand behind: `conv(..)[group=1]`, `x[f32]`, `[float]`, `[rank 4]`,
    /// `[shape 1x?x8]`, `[used once]`; `split(..).1` is the second result. `conv(..) => relu(..)* => mul(*, const)` is
    /// a region between two nodes.
    ///
    /// Raises weft_nn.Error: code 2 for a text that is no pattern.
    fn find(slf: &Bound<'_, Self>, pattern: &str) -> PyResult<Matches> {
        Matches::new(slf.clone().into_any().unbind(), &slf.get().held, pattern)
    }

    /// Adds a node, right before a node that is there, or at the end of the entry function.
    ///
    /// op: the name of an op (docs/ir.md, `weft_nn.Node.op`), or an op that `weft_nn.op` made.
    /// operands: values; None for one that is absent; numbers and arrays, which become constants (a number has the
    ///     element type of the first value).
    /// before: the node; None for the end.
    /// name: the new node's name.
    /// attributes: of the op, such as `alpha=1.0` or `pads=[1, 1, 1, 1]`; element types are those of numpy,
    ///     `to=numpy.float16`, and open sizes texts in lists, `shapes=[["n", 4]]`.
    ///
    /// Returns the result: a Value, or a tuple of several.
    ///
    /// Raises weft_nn.Error: code 2 for an op or an attribute that there is not, or operands that the op does not take.
    #[pyo3(signature = (op, *operands, before=None, name=None, **attributes))]
    fn add<'py>(
        slf: &Bound<'py, Self>,
        op: &Bound<'py, PyAny>,
        operands: &Bound<'py, PyTuple>,
        before: Option<&Bound<'py, Node>>,
        name: Option<&str>,
        attributes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let held = &slf.get().held;
        if before.is_some_and(|at| !at.get().held.same(held)) {
            return Err(usage("the node of before= is one of another module", "give a node of this module"));
        }
        let Ok(kind) = op.cast::<PyString>() else {
            let words = PyDict::new(py);
            words.set_item("before", before)?;
            words.set_item("name", name)?;
            words.set_item("attributes", attributes)?;
            return op.call_method("_add", (slf, operands), Some(&words));
        };
        let op = op_of(&kind.to_cow()?, attributes)?;
        let function = match before {
            Some(at) => at.get().function,
            None => held.change(|m| Ok(m.entry))?,
        };
        let operands = operands_of(held, function, operands)?;
        let made = held.rewrite(function, |r| {
            let at = before.map_or(Place::End(r.f.body), |at| Place::Before(at.get().id));
            edit::insert(r, at, op, operands, name.map(Name::new))
        })?;
        values(py, held, function, made)
    }

    /// Puts a value in the place of another one, or of a node's first result: all that used it use the new one. Nodes
    /// that nobody needs any more are removed.
    ///
    /// Raises weft_nn.Error: code 2 if the types differ, or for values of another module.
    fn replace(&self, old: &Bound<'_, PyAny>, new: &Bound<'_, Value>) -> PyResult<()> {
        let old = match old.cast::<Node>() {
            Ok(node) => node.get().first()?,
            Err(_) => old.cast::<Value>()?.get().clone(),
        };
        old.replace(new.get())
    }

    /// Adds the functions and constants of a text (docs/ir.md) to the module, with other names where theirs are taken
    /// by others; `entry` does not change.
    ///
    /// Returns the name of the first function of the text, for `callee=` of `call_tensor` and `call`.
    ///
    /// Raises weft_nn.Error: code 3 for a text that does not parse, 2 for one that runs code of the machine.
    fn define(&self, text: &str) -> PyResult<String> {
        let defined = extend::parse_module(text).map_err(|e| raise(&weft::Error::Text(e.to_string())))?;
        weft::refuse_machine_code(&defined, false).map_err(|e| raise(&e))?;
        self.held.change(|m| {
            edit::define(m, defined).map(|name| name.to_string()).map_err(|why| usage(why, "give it another name"))
        })
    }

    /// The module as text (docs/ir.md); large constants stand there by name and shape alone.
    #[getter]
    fn text(&self) -> PyResult<String> {
        self.held.change(|m| Ok(weft::Model::from_module(m.clone()).text()))
    }
    /// Puts the module of a text in the place of this one. Constants without data are those of the same name here.
    ///
    /// Raises weft_nn.Error: code 3 for a text that does not parse or is no valid module.
    #[setter]
    fn set_text(&self, text: &str) -> PyResult<()> {
        let mut new = weft::Model::from_text(text).map_err(|e| raise(&e))?.into_module();
        self.held.change(|m| {
            for (name, constant) in &mut new.constants {
                if let (Err(_), Some(old)) =
                    (constant.load(), m.constants.get(name).filter(|c| c.ty() == constant.ty()))
                {
                    *constant = old.clone();
                }
            }
            new.dims.extend(&m.dims);
            *m = new;
            Ok(())
        })
    }

    /// Checks that the module is valid.
    ///
    /// Raises weft_nn.Error: code 3 with everything that is wrong.
    fn verify(&self) -> PyResult<()> {
        self.held.change(|m| verified(m).map_err(|why| raise(&weft::Error::Text(why))))
    }

    fn __repr__(&self) -> PyResult<String> {
        self.held.change(|m| Ok(format!("<weft_nn.Module of {} nodes>", nodes_of(m).len())))
    }
}

impl Module {
    fn ends(&self, which: impl FnOnce(&extend::Function) -> Vec<ValueId>) -> PyResult<Vec<Value>> {
        let (function, list) = self.held.change(|m| match m.functions.get(&m.entry) {
            Some(f) => Ok((f.name, which(f))),
            None => Err(raise(&weft::Error::NoEntry)),
        })?;
        Ok(list.into_iter().map(|id| Value { held: self.held.clone(), function, id }).collect())
    }
}

/// Everything that is wrong with a module.
///
/// # Errors
/// That, one line each.
pub fn verified(module: &extend::Module) -> Result<(), String> {
    extend::verify_module(module).map_err(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn values<'py>(py: Python<'py>, held: &Held, function: Name, made: Vec<ValueId>) -> PyResult<Bound<'py, PyAny>> {
    let value = |id| Value { held: held.clone(), function, id };
    match made[..] {
        [one] => Ok(Bound::new(py, value(one))?.into_any()),
        _ => Ok(PyTuple::new(py, made.into_iter().map(value))?.into_any()),
    }
}
