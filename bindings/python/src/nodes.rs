//! Nodes and values of a graph that is being changed: numbers in it, which may be gone.

use crate::arrays::{Operand, array_of, name_of, operand_of};
use crate::attributes::attr_to_py;
use crate::edit;
use crate::errors::{raise, usage};
use crate::ports::Size;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use weft::extend::{self, Name, NodeId, Rewriter, ValueDef, ValueId};

/// A graph that several Python objects look at; none once the pass that had it has ended.
#[derive(Clone)]
pub struct Held(Arc<Mutex<Option<extend::Module>>>);

impl Held {
    /// A graph.
    pub fn new(module: extend::Module) -> Held {
        Held(Arc::new(Mutex::new(Some(module))))
    }
    /// Takes the graph away from those that look at it.
    pub fn take(&self) -> Option<extend::Module> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    /// Works on the graph.
    ///
    /// # Errors
    /// That of the work; a pass that has ended.
    pub fn change<T>(&self, work: impl FnOnce(&mut extend::Module) -> PyResult<T>) -> PyResult<T> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(held.as_mut().ok_or_else(|| {
            usage(
                "this module belonged to a pass that has ended",
                "look at it inside of the pass, or at a copy of its text",
            )
        })?)
    }
    /// Calls `work` with the rewriter of a function.
    ///
    /// # Errors
    /// As [`Held::change`].
    pub fn rewrite<T>(&self, function: Name, work: impl FnOnce(&mut Rewriter<'_>) -> PyResult<T>) -> PyResult<T> {
        self.change(|module| {
            let mut r = Rewriter::new(module, function);
            let done = work(&mut r);
            r.finish();
            done
        })
    }
    /// True for the same graph.
    pub fn same(&self, other: &Held) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A node of a graph: an op, its operands and its results.
#[pyclass(frozen, module = "weft_nn", eq, hash)]
#[derive(Clone)]
pub struct Node {
    pub held: Held,
    pub function: Name,
    pub id: NodeId,
}

/// A value of a graph: an input, a constant, or a result of a node.
#[pyclass(frozen, module = "weft_nn", eq, hash)]
#[derive(Clone)]
pub struct Value {
    pub held: Held,
    pub function: Name,
    pub id: ValueId,
}

macro_rules! same_place {
    ($($class:ident)*) => {$(
        impl PartialEq for $class {
            fn eq(&self, other: &$class) -> bool {
                self.held.same(&other.held) && (self.function, self.id) == (other.function, other.id)
            }
        }
        impl std::hash::Hash for $class {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                (self.function, self.id).hash(state);
            }
        }
    )*};
}
same_place!(Node Value);

/// Nodes of all functions but fused groups, the entry's first; constants are none.
pub fn nodes_of(module: &extend::Module) -> Vec<(Name, NodeId)> {
    let entry = module.functions.get(&module.entry);
    let others = module.functions.values().filter(|f| f.name != module.entry && !f.primitive);
    let is_node = |f: &extend::Function, n: &NodeId| !f.nodes[*n].op.is::<extend::Const>();
    let of =
        |f: &extend::Function| f.walk().into_iter().filter(|n| is_node(f, n)).map(|n| (f.name, n)).collect::<Vec<_>>();
    entry.into_iter().chain(others).flat_map(of).collect()
}

impl Node {
    fn look<T>(&self, what: impl FnOnce(&extend::Function, &extend::Node) -> T) -> PyResult<T> {
        self.held.change(|m| match m.functions.get(&self.function) {
            Some(f) if f.nodes.len() > extend::Id::index(self.id) && f.nodes[self.id].block.is_some() => {
                Ok(what(f, &f.nodes[self.id]))
            }
            _ => Err(usage("this node is no longer in its module", "take it from Module.nodes again")),
        })
    }
    /// A value of its function.
    pub fn value(&self, id: ValueId) -> Value {
        Value { held: self.held.clone(), function: self.function, id }
    }
    /// Its first result.
    ///
    /// # Errors
    /// A node without results, or one that is gone.
    pub fn first(&self) -> PyResult<Value> {
        let id = self.look(|_, n| n.outputs.first().copied())?;
        id.map(|id| self.value(id)).ok_or_else(|| usage("this node has no results", "give a value"))
    }
}

/// Operands for a new node of a function.
///
/// # Errors
/// Values of another function, and what are no operands.
pub fn operands(held: &Held, function: Name, given: &Bound<'_, PyTuple>) -> PyResult<Vec<Operand<ValueId>>> {
    let of_value = |v: &Bound<'_, PyAny>| v.cast::<Value>().ok().map(|v| v.get().clone());
    let list: Vec<Option<Value>> = given.iter().map(|v| of_value(&v)).collect();
    if list.iter().flatten().any(|v| !v.held.same(held) || v.function != function) {
        return Err(usage("an operand is a value of another module or function", "give values of the same function"));
    }
    let first = list.iter().flatten().next().map(|v| v.look(|_, ty, _| ty.dtype)).transpose()?;
    let one = |(v, item): (Option<Value>, Bound<'_, PyAny>)| match v {
        Some(v) => Ok(Operand::Value(v.id)),
        None => operand_of(&item, first),
    };
    list.into_iter().zip(given.iter()).map(one).collect()
}

#[pymethods]
impl Node {
    /// Its name, which reports show.
    #[getter]
    pub fn name(&self) -> PyResult<String> {
        self.look(|_, n| n.name.to_string())
    }
    /// The name of its op, such as "conv".
    #[getter]
    fn op(&self) -> PyResult<&'static str> {
        self.look(|_, n| n.op.name())
    }
    /// The attributes of its op that differ from their defaults: a dictionary.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let attrs = self.look(|_, n| n.op.attrs())?;
        let dict = PyDict::new(py);
        attrs.iter().try_for_each(|(name, value)| dict.set_item(name, attr_to_py(py, value)?))?;
        Ok(dict)
    }
    /// All attributes of its op, those with default values too: a dictionary.
    #[getter]
    fn all_attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let attrs = self.look(|_, n| n.op.every_attr())?;
        let dict = PyDict::new(py);
        attrs.iter().try_for_each(|(name, value)| dict.set_item(name, attr_to_py(py, value)?))?;
        Ok(dict)
    }
    /// The nodes that are inside of it, such as those of a composite or of the branches of an `if`: a list of Node.
    #[getter]
    fn body(&self) -> PyResult<Vec<Node>> {
        let list = self.look(|f, n| {
            let all = n.regions.iter().flat_map(|&b| f.blocks[b].nodes.iter().copied());
            all.filter(|&n| !f.nodes[n].op.is::<extend::Const>()).collect::<Vec<_>>()
        })?;
        Ok(list.into_iter().map(|id| Node { id, ..self.clone() }).collect())
    }
    /// Its operands: a list of Value, with None for one that is absent.
    #[getter]
    fn inputs(&self) -> PyResult<Vec<Option<Value>>> {
        let list = self.look(|_, n| n.inputs.clone())?;
        Ok(list.into_iter().map(|v| v.map(|v| self.value(v))).collect())
    }
    /// Its results: a list of Value.
    #[getter]
    fn outputs(&self) -> PyResult<Vec<Value>> {
        let list = self.look(|_, n| n.outputs.clone())?;
        Ok(list.into_iter().map(|v| self.value(v)).collect())
    }
    /// The names of the nodes of the model that it computes.
    #[getter]
    fn origins(&self) -> PyResult<Vec<String>> {
        self.look(|_, n| n.origins.names().iter().map(|n| n.to_string()).collect())
    }
    /// The function that it is in; most models have one, "main".
    #[getter]
    fn function(&self) -> String {
        self.function.to_string()
    }
    fn __repr__(&self) -> PyResult<String> {
        self.look(|_, n| format!("<weft_nn.Node {:?}: {}>", n.name.as_str(), n.op.name()))
    }
}

impl Value {
    fn look<T>(&self, what: impl FnOnce(&extend::Function, &weft::TensorType, &extend::Module) -> T) -> PyResult<T> {
        self.held.change(|m| match m.functions.get(&self.function) {
            Some(f) if f.values.len() > extend::Id::index(self.id) => Ok(what(f, f.ty(self.id), m)),
            _ => Err(usage("this value is no longer in its module", "take it from a node again")),
        })
    }
    /// Puts another value in its place.
    ///
    /// # Errors
    /// A value of another type or function.
    pub fn replace(&self, new: &Value) -> PyResult<()> {
        if !new.held.same(&self.held) || new.function != self.function {
            return Err(usage(
                "the new value is one of another module or function",
                "give a value of the same function",
            ));
        }
        self.held.rewrite(self.function, |r| edit::replace(r, self.id, new.id))
    }
}

#[pymethods]
impl Value {
    /// Its name in the model, or None.
    #[getter]
    fn name(&self) -> PyResult<Option<String>> {
        self.look(|f, _, _| f.values[self.id].name.map(|n| n.to_string()))
    }
    /// numpy's name of the element type.
    #[getter]
    fn dtype(&self) -> PyResult<&'static str> {
        self.look(|_, ty, _| name_of(ty.dtype))
    }
    /// The shape: a number for each dimension that is fixed, and a text for one that stays open.
    #[getter]
    fn shape(&self) -> PyResult<Vec<Size>> {
        self.look(|_, ty, _| ty.shape.iter().map(Size::of).collect())
    }
    /// The node that makes it; None for inputs and constants.
    #[getter]
    fn node(&self) -> PyResult<Option<Node>> {
        let made = self.look(|f, _, _| match f.values[self.id].def {
            ValueDef::Result(n, _) if !f.nodes[n].op.is::<extend::Const>() => Some(n),
            _ => None,
        })?;
        Ok(made.map(|id| Node { held: self.held.clone(), function: self.function, id }))
    }
    /// The nodes that use it.
    #[getter]
    fn users(&self) -> PyResult<Vec<Node>> {
        let list = self.look(|f, _, _| {
            f.walk().into_iter().filter(|&n| f.nodes[n].inputs.contains(&Some(self.id))).collect::<Vec<_>>()
        })?;
        Ok(list.into_iter().map(|id| Node { held: self.held.clone(), function: self.function, id }).collect())
    }
    /// The array of a constant; None for other values.
    ///
    /// Raises weft_nn.Error: code 3 if the data cannot be read.
    #[getter]
    fn constant<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.look(|f, _, m| {
            let (_, read) = f.def_op::<extend::Const>(self.id)?;
            m.constants.get(&read.name).map(|c| c.load())
        })?;
        let Some(loaded) = found else { return Ok(None) };
        let tensor = loaded.map_err(|e| raise(&weft::Error::Input(e.to_string())))?;
        array_of(py, tensor).map(Some)
    }
    fn __repr__(&self) -> PyResult<String> {
        self.look(|f, ty, _| format!("<weft_nn.Value {}: {ty:?}>", f.describe_value(self.id)))
    }
}
