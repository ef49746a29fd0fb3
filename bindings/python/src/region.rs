//! Parts of a graph that an external target runs.

use crate::arrays::{arrays_of, tensor_of};
use crate::graph::Module;
use crate::interrupt::here;
use crate::nodes::{Held, Node, Value};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use weft::extend::{self, Prepared, ValueId};
use weft::{Tensor, TensorMut};

/// A part of a network that an external target runs. Its inputs, nodes and constants are those of a `Module`, whose
/// types are all fixed.
#[pyclass(frozen, module = "weft_nn")]
pub struct Region {
    region: extend::Region,
    held: Held,
}

impl Region {
    /// Of the compiler's.
    pub fn new(region: extend::Region) -> Region {
        let held = Held::new(region.module().clone());
        Region { region, held }
    }
    fn values(&self, list: &[ValueId]) -> Vec<Value> {
        let function = self.region.function().name;
        list.iter().map(|&id| Value { held: self.held.clone(), function, id }).collect()
    }
}

#[pymethods]
impl Region {
    /// The values that it reads, in the order in which a run gets them. Constants are none.
    #[getter]
    fn inputs(&self) -> Vec<Value> {
        self.values(self.region.function().params())
    }
    /// The values that it computes, in the order in which a run returns them.
    #[getter]
    fn outputs(&self) -> Vec<Value> {
        self.values(self.region.function().results())
    }
    /// The nodes in order. The match of a pattern is one node of the op "composite", with the attribute `name`
    /// ("TARGET.PATTERN"); `Node.body` has the nodes that matched.
    #[getter]
    fn nodes(&self) -> Vec<Node> {
        let f = self.region.function();
        let node = |&id: &extend::NodeId| Node { held: self.held.clone(), function: f.name, id };
        let is_node = |n: &&extend::NodeId| !f.nodes[**n].op.is::<extend::Const>();
        f.blocks[f.body].nodes.iter().filter(is_node).map(node).collect()
    }
    /// Multiply-accumulates of a run.
    #[getter]
    fn macs(&self) -> u64 {
        self.region.macs()
    }
    /// Its graph.
    #[getter]
    fn module(&self) -> Module {
        Module { held: self.held.clone() }
    }
    /// The results by the reference interpreter, a list of arrays: for what a target leaves to Weft, and for tests.
    ///
    /// arrays: the inputs, in order.
    ///
    /// Raises weft_nn.Error (code 3) for arrays that do not fit.
    #[pyo3(signature = (*arrays))]
    fn run<'py>(&self, py: Python<'py>, arrays: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyList>> {
        let inputs = arrays.iter().map(|a| tensor_of("an input", &a)).collect::<PyResult<Vec<Tensor>>>()?;
        let results = here(py, || {
            let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
            let wrong = |why: String| weft::Error::Input(why);
            let region = self.region.sized(&shapes).map_err(|e| wrong(e.to_string()))?;
            let room = |ty: &weft::TensorType| {
                let shape = ty.const_shape().ok_or_else(|| wrong("a result has no fixed size".into()))?;
                TensorMut::zeros(ty.dtype, shape).map_err(|e| wrong(e.to_string()))
            };
            let mut outputs = region.outputs().iter().map(room).collect::<Result<Vec<_>, _>>()?;
            region.run(&inputs, &mut outputs).map_err(wrong)?;
            Ok(outputs.into_iter().map(TensorMut::freeze).collect::<Vec<_>>())
        })?;
        arrays_of(py, results)
    }
    fn __repr__(&self) -> String {
        format!("<weft_nn.Region {}: {}>", self.region.function().name, self.region.summary())
    }
}
