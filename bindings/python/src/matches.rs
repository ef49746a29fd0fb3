//! Matches of patterns in a graph.

use crate::errors::usage;
use crate::nodes::{Held, Node, Value, nodes_of};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Mutex, PoisonError};
use weft::extend::{self, Name, NodeId, Origins, Plain, ValueId};

/// A node that a pattern matches.
#[pyclass(frozen, module = "weft_nn")]
pub struct Match {
    module: Py<PyAny>,
    node: Node,
    /// The result of it that matches.
    value: ValueId,
    found: extend::Found,
}

/// The matches of a pattern, one after another, in the graph as it is when each is looked for.
#[pyclass(frozen, module = "weft_nn")]
pub struct Matches {
    module: Py<PyAny>,
    held: Held,
    pattern: extend::Pattern,
    /// Nodes that are still to be tried, the next one last.
    left: Mutex<Vec<(Name, NodeId)>>,
}

impl Matches {
    /// Of a pattern in the graph of `module`.
    ///
    /// # Errors
    /// A text that is no pattern; a pass that has ended.
    pub fn new(module: Py<PyAny>, held: &Held, pattern: &str) -> PyResult<Matches> {
        let pattern = extend::Pattern::parse(pattern)
            .map_err(|e| usage(e.to_string(), "help(weft_nn.Module.find) says how a pattern is written"))?;
        let mut left = held.change(|m| Ok(nodes_of(m)))?;
        left.reverse();
        Ok(Matches { module, held: held.clone(), pattern, left: Mutex::new(left) })
    }
}

#[pymethods]
impl Matches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Match>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.held.change(|m| {
            // Several nodes in a row are of one function, whose uses are counted once.
            while let Some(&(function, _)) = left.last() {
                let Some(f) = m.functions.get(&function) else {
                    left.pop();
                    continue;
                };
                let plain = Plain::new(m, f);
                while let Some(&(_, id)) = left.last().filter(|l| l.0 == function) {
                    left.pop();
                    if f.nodes.len() <= extend::Id::index(id) || f.nodes[id].block.is_none() {
                        continue;
                    }
                    let mut results = f.nodes[id].outputs.iter();
                    if let Some((value, found)) = results.find_map(|&v| Some((v, self.pattern.find(&plain, v)?))) {
                        let node = Node { held: self.held.clone(), function, id };
                        return Ok(Some((node, value, found)));
                    }
                }
            }
            Ok(None)
        })?;
        Ok(next.map(|(node, value, found)| Match { module: self.module.clone_ref(py), node, value, found }))
    }
}

#[pymethods]
impl Match {
    /// The outermost node.
    #[getter]
    fn node(&self) -> Node {
        self.node.clone()
    }
    /// The nodes that the pattern spells out, the outermost first.
    #[getter]
    fn nodes(&self) -> Vec<Node> {
        let node = |&id: &NodeId| Node { id, ..self.node.clone() };
        self.found.nodes.iter().map(node).collect()
    }
    /// The value under that name in the pattern.
    ///
    /// Raises KeyError for a name that took no part in the match.
    fn __getitem__(&self, name: &str) -> PyResult<Value> {
        let id = self.found.get(name).ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(name.to_string()))?;
        Ok(self.node.value(id))
    }
    fn __contains__(&self, name: &str) -> bool {
        self.found.get(name).is_some()
    }

    /// Puts a new node in the place of the value that matches: `match.replace("swish", match["x"])`. It computes all
    /// source nodes of the match, for reports. The other nodes of the match go where nobody else needs them.
    ///
    /// op, operands, attributes: as `Module.add` takes them.
    ///
    /// Returns the new result.
    ///
    /// Raises weft_nn.Error: as `Module.add` and `Module.replace`.
    #[pyo3(signature = (op, *operands, **attributes))]
    fn replace<'py>(
        &self,
        py: Python<'py>,
        op: &Bound<'py, PyAny>,
        operands: &Bound<'py, PyTuple>,
        attributes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let words = attributes.map_or_else(|| Ok(PyDict::new(py)), |a| a.copy())?;
        words.set_item("before", self.node.clone())?;
        words.set_item("name", self.node.name()?)?;
        let all: Vec<Bound<'py, PyAny>> = std::iter::once(op.clone()).chain(operands.iter()).collect();
        let made = self.module.bind(py).call_method("add", PyTuple::new(py, all)?, Some(&words))?;
        let new = made.cast::<Value>().map_err(|_| usage("the new node has several results", "use Module.add"))?;
        let operands: Vec<ValueId> = operands.iter().filter_map(|v| Some(v.cast::<Value>().ok()?.get().id)).collect();
        self.node.held.rewrite(self.node.function, |r| {
            let kept = |n: &NodeId| r.f.nodes[*n].outputs.iter().any(|v| operands.contains(v));
            let computed = self.found.nodes.iter().chain(&self.found.between).filter(|n| !kept(n));
            let origins = computed.fold(Origins::none(), |o, &n| o.union(&r.f.nodes[n].origins));
            if let Some(n) = r.f.def_node(new.get().id) {
                r.absorb_origins(n, &origins);
            }
            Ok(())
        })?;
        self.node.value(self.value).replace(new.get())?;
        Ok(made)
    }
    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<weft_nn.Match at {:?}>", self.node.name()?))
    }
}
