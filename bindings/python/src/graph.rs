//! The graph of a network, to look at and to change: what a pass in Python gets.
//!
//! A [`Module`] holds a graph that is being changed; nodes and values are numbers in it. A pass's module is given back
//! to the compiler when the pass ends, and can then be used no more.

use crate::arrays::{Operand, array_of, name_of, numpy_dtype, operand_of};
use crate::errors::{raise, usage};
use crate::model::{Model, Size};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use weft::extend::{self, Attr, Attrs, Name, NodeId, OpRef, Origins, Plain, Rewriter, ValueDef, ValueId, find_op};

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
    fn change<T>(&self, work: impl FnOnce(&mut extend::Module) -> PyResult<T>) -> PyResult<T> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(held.as_mut().ok_or_else(|| {
            usage(
                "this module belonged to a pass that has ended",
                "look at it inside of the pass, or at a copy of its text",
            )
        })?)
    }
    /// Calls `work` with the rewriter of a function.
    fn rewrite<T>(&self, function: Name, work: impl FnOnce(&mut Rewriter<'_>) -> PyResult<T>) -> PyResult<T> {
        self.change(|module| {
            let mut r = Rewriter::new(module, function);
            let done = work(&mut r);
            r.finish();
            done
        })
    }
    fn same(&self, other: &Held) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The graph of a network: a pass gets one, and `Model.module()` gives a copy.
///
/// A change is there at once: nodes and values that stay can be used further. `find` and `add` need no more than a
/// pattern and the name of an op; `weft_nn.op` makes ops of one's own.
#[pyclass(frozen, module = "weft_nn")]
pub struct Module {
    pub held: Held,
}

/// A node of a graph: an op, its operands and its results.
#[pyclass(frozen, module = "weft_nn", eq, hash)]
#[derive(Clone)]
pub struct Node {
    held: Held,
    function: Name,
    id: NodeId,
}

/// A value of a graph: an input, a constant, or a result of a node.
#[pyclass(frozen, module = "weft_nn", eq, hash)]
#[derive(Clone)]
pub struct Value {
    held: Held,
    function: Name,
    id: ValueId,
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

/// A node that a pattern matches.
#[pyclass(frozen, module = "weft_nn")]
pub struct Match {
    node: Node,
    /// The result of it that matches.
    value: ValueId,
    found: extend::Found,
}

/// The matches of a pattern, one after another, in the graph as it is when each is looked for.
#[pyclass(frozen, module = "weft_nn")]
pub struct Matches {
    held: Held,
    pattern: extend::Pattern,
    /// Nodes that are still to be tried, the next one last.
    left: Mutex<Vec<(Name, NodeId)>>,
}

/// Nodes of all functions but fused groups, the entry's first; constants are none.
fn nodes_of(module: &extend::Module) -> Vec<(Name, NodeId)> {
    let entry = module.functions.get(&module.entry);
    let others = module.functions.values().filter(|f| f.name != module.entry && !f.primitive);
    let is_node = |f: &extend::Function, n: &NodeId| !f.nodes[*n].op.is::<extend::Const>();
    let of =
        |f: &extend::Function| f.walk().into_iter().filter(|n| is_node(f, n)).map(|n| (f.name, n)).collect::<Vec<_>>();
    entry.into_iter().chain(others).flat_map(of).collect()
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
    /// pattern: an op with operands, in order, `add(a, b)`, in either order, `add{a, b}`, at the beginning, `conv(a, ..)`,
    ///     or any, `relu(..)`. An operand is again a pattern, a name for any value (the same name is the same value), `*`,
    ///     `const`, `param`, or a number, for a constant with that number in all elements (`~1.414` for about that).
    ///     `name:pattern` names what a pattern matches. `(a | b)` are alternatives, and `relu?(..)` may be missing.
    ///     Tests stand behind: `conv(..)[group=1]`, `x[f32]`, `[float]`, `[rank 4]`, `[shape 1x?x8]`, `[used once]`;
    ///     `split(..).1` is the second result. `conv(..) => relu(..)* => mul(*, const)` is a region between two nodes.
    ///
    /// Raises weft_nn.Error: code 2 for a text that is no pattern.
    fn find(&self, pattern: &str) -> PyResult<Matches> {
        let pattern = extend::Pattern::parse(pattern)
            .map_err(|e| usage(e.to_string(), "help(weft_nn.Module.find) says how a pattern is written"))?;
        let mut left = self.held.change(|m| Ok(nodes_of(m)))?;
        left.reverse();
        Ok(Matches { held: self.held.clone(), pattern, left: Mutex::new(left) })
    }

    /// Adds a node, right before a node that is there.
    ///
    /// op: the name of an op (docs/ir.md, `weft_nn.Node.op`), or an op that `weft_nn.op` made.
    /// operands: values; None for one that is absent; numbers and arrays, which become constants (a number has the
    ///     element type of the first value).
    /// before: the node.
    /// name: the new node's name.
    /// attributes: of the op, such as `alpha=1.0` or `pads=[1, 1, 1, 1]`; element types are those of numpy,
    ///     `to=numpy.float16`, and open sizes texts in lists, `shapes=[["n", 4]]`.
    ///
    /// Returns the result: a Value, or a tuple of several.
    ///
    /// Raises weft_nn.Error: code 2 for an op or an attribute that there is not, or operands that the op does not take.
    #[pyo3(signature = (op, *operands, before, name=None, **attributes))]
    fn add<'py>(
        slf: &Bound<'py, Self>,
        op: &Bound<'py, PyAny>,
        operands: &Bound<'py, PyTuple>,
        before: &Bound<'py, Node>,
        name: Option<&str>,
        attributes: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let at = before.get();
        if !at.held.same(&slf.get().held) {
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
        let operands = at.operands(operands)?;
        let made = at.held.rewrite(at.function, |r| {
            let origins = r.f.nodes[at.id].origins.clone();
            insert(r, at.id, op, operands, name.map(Name::new), origins)
        })?;
        values(py, at, made)
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
    /// Raises weft_nn.Error: code 3 for a text that does not parse.
    fn define(&self, text: &str) -> PyResult<String> {
        let defined = extend::parse_module(text).map_err(|e| raise(&weft::Error::Text(e.to_string())))?;
        self.held.change(|m| {
            define(m, defined).map(|name| name.to_string()).map_err(|why| usage(why, "give it another name"))
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

    /// The network of this graph as it is now, to be compiled.
    ///
    /// Raises weft_nn.Error: code 3 if it is not valid.
    fn model(&self) -> PyResult<Model> {
        self.verify()?;
        self.held.change(|m| Ok(Model { model: weft::Model::from_module(m.clone()), name: "model".into() }))
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

/// Adds the items of `new`; the name of its first function.
fn define(module: &mut extend::Module, new: extend::Module) -> Result<Name, String> {
    let first = new.tensor_functions.keys().chain(new.functions.keys()).next().copied();
    let Some(first) = first else { return Err("the text defines no function".into()) };
    // One function with another name calls nothing by it.
    if new.tensor_functions.len() == 1 && new.functions.is_empty() {
        let mut f = new.tensor_functions[&first].clone();
        let same = |(name, there): (&Name, &extend::TensorFunction)| (*there == f).then_some(*name);
        if let Some(name) = module.tensor_functions.iter().find_map(same) {
            return Ok(name);
        }
        let taken = module.tensor_functions.contains_key(&first) || is_taken(module, first);
        let name = if taken { module.fresh_name(first.as_str()) } else { first };
        f.name = name;
        module.tensor_functions.insert(name, f);
        return Ok(name);
    }
    let names = new.tensor_functions.keys().chain(new.functions.keys()).chain(new.constants.keys());
    if let Some(name) = names.copied().find(|&n| module.tensor_functions.contains_key(&n) || is_taken(module, n)) {
        return Err(format!("the module has a @{name} already"));
    }
    module.tensor_functions.extend(new.tensor_functions);
    module.functions.extend(new.functions);
    module.constants.extend(new.constants);
    Ok(first)
}

fn is_taken(module: &extend::Module, name: Name) -> bool {
    module.functions.contains_key(&name) || module.constants.contains_key(&name)
}

/// The op of that name with attributes.
fn op_of(name: &str, attributes: Option<&Bound<'_, PyDict>>) -> PyResult<OpRef> {
    let Some(def) = find_op(name) else {
        return Err(usage(format!("there is no op `{name}`"), "Node.op and docs/ir.md have the names of ops"));
    };
    let mut attrs = Attrs::new();
    for (name, value) in attributes.iter().flat_map(|a| a.iter()) {
        attrs.insert(name.extract()?, attr_of(&value)?);
    }
    (def.from_attrs)(&attrs).or_else(|why| {
        let sized: Attrs = attrs.iter().map(|(name, a)| (name.clone(), with_sizes(a, false))).collect();
        (def.from_attrs)(&sized).map_err(|_| usage(why, format!("the op is `{name}`")))
    })
}

fn attr_of(value: &Bound<'_, PyAny>) -> PyResult<Attr> {
    if let Ok(flag) = value.extract::<bool>() {
        return Ok(Attr::Bool(flag));
    }
    if let Ok(text) = value.extract::<String>() {
        return Ok(Attr::Str(text));
    }
    if let Ok(number) = value.extract::<i64>() {
        return Ok(Attr::Int(number));
    }
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Attr::Float(number));
    }
    if let Ok(list) = value.try_iter() {
        let items: Vec<Attr> = list.map(|item| attr_of(&item?)).collect::<PyResult<_>>()?;
        return Ok(Attr::List(items));
    }
    numpy_dtype(value).map(Attr::DType)
}

/// With texts in lists as open sizes.
fn with_sizes(attr: &Attr, in_list: bool) -> Attr {
    match attr {
        Attr::Str(text) if in_list => Attr::Expr(weft::Dim::var(text.as_str())),
        Attr::List(list) => Attr::List(list.iter().map(|a| with_sizes(a, true)).collect()),
        other => other.clone(),
    }
}

fn attr_to_py<'py>(py: Python<'py>, attr: &Attr) -> PyResult<Bound<'py, PyAny>> {
    Ok(match attr {
        Attr::Int(v) => v.into_pyobject(py)?.into_any(),
        Attr::Float(v) => v.into_pyobject(py)?.into_any(),
        Attr::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
        Attr::Str(v) => v.into_pyobject(py)?.into_any(),
        Attr::DType(t) => name_of(*t).into_pyobject(py)?.into_any(),
        Attr::Expr(e) => e.to_string().into_pyobject(py)?.into_any(),
        Attr::List(list) => {
            let items = list.iter().map(|a| attr_to_py(py, a)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
    })
}

/// Adds a node before `at`; its results.
fn insert(
    r: &mut Rewriter<'_>,
    at: NodeId,
    op: OpRef,
    operands: Vec<Operand<ValueId>>,
    name: Option<Name>,
    origins: Origins,
) -> PyResult<Vec<ValueId>> {
    let name = name.unwrap_or_else(|| Name::new(&format!("{}.{}", r.f.nodes[at].name, op.name())));
    let kind = op.name();
    let mut inputs = vec![];
    for operand in operands {
        inputs.push(match operand {
            Operand::Value(v) => Some(v),
            Operand::Absent => None,
            Operand::Tensor(t) => {
                let constant = extend::Constant::from_tensor(&t);
                Some(r.constant_before(at, &format!("{name}.constant"), constant, origins.clone()))
            }
        });
    }
    r.add_before(at, op, inputs, name, origins).map_err(|e| {
        usage(format!("`{kind}` does not take these operands: {}", e.message), format!("it is to be added as `{name}`"))
    })
}

fn values<'py>(py: Python<'py>, at: &Node, made: Vec<ValueId>) -> PyResult<Bound<'py, PyAny>> {
    let value = |id| Value { held: at.held.clone(), function: at.function, id };
    match made[..] {
        [one] => Ok(Bound::new(py, value(one))?.into_any()),
        _ => Ok(PyTuple::new(py, made.into_iter().map(value))?.into_any()),
    }
}

/// Removes `n` and what it alone needed, as far as that has no effects.
fn sweep(r: &mut Rewriter<'_>, n: NodeId) {
    let mut left = vec![n];
    while let Some(n) = left.pop() {
        let node = &r.f.nodes[n];
        let unused = node.outputs.iter().all(|&v| r.num_uses(v) == 0);
        if r.is_dead(n) || !unused || node.op.effects().stateful || !node.regions.is_empty() {
            continue;
        }
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        r.erase(n);
        left.extend(operands.into_iter().filter_map(|v| r.f.def_node(r.resolve(v))));
    }
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
    fn value(&self, id: ValueId) -> Value {
        Value { held: self.held.clone(), function: self.function, id }
    }
    fn first(&self) -> PyResult<Value> {
        let id = self.look(|_, n| n.outputs.first().copied())?;
        id.map(|id| self.value(id)).ok_or_else(|| usage("this node has no results", "give a value"))
    }
    /// Operands for a new node before this one.
    fn operands(&self, given: &Bound<'_, PyTuple>) -> PyResult<Vec<Operand<ValueId>>> {
        let of_value = |v: &Bound<'_, PyAny>| v.cast::<Value>().ok().map(|v| v.get().clone());
        let list: Vec<Option<Value>> = given.iter().map(|v| of_value(&v)).collect();
        if list.iter().flatten().any(|v| !v.held.same(&self.held) || v.function != self.function) {
            return Err(usage(
                "an operand is a value of another module or function",
                "give values of the same function",
            ));
        }
        let first = list.iter().flatten().next().map(|v| v.look(|_, ty, _| ty.dtype)).transpose()?;
        let one = |(v, item): (Option<Value>, Bound<'_, PyAny>)| match v {
            Some(v) => Ok(Operand::Value(v.id)),
            None => operand_of(&item, first),
        };
        list.into_iter().zip(given.iter()).map(one).collect()
    }
}

#[pymethods]
impl Node {
    /// Its name, which reports show.
    #[getter]
    fn name(&self) -> PyResult<String> {
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
    fn replace(&self, new: &Value) -> PyResult<()> {
        if !new.held.same(&self.held) || new.function != self.function {
            return Err(usage(
                "the new value is one of another module or function",
                "give a value of the same function",
            ));
        }
        self.held.rewrite(self.function, |r| {
            let (old_type, new_type) = (r.f.ty(self.id), r.f.ty(new.id));
            if old_type != new_type {
                let why = format!("a value of type {old_type:?} cannot be replaced by one of type {new_type:?}");
                return Err(usage(why, "add a cast, a reshape or an expand"));
            }
            r.replace(self.id, new.id);
            if let Some(n) = r.f.def_node(self.id) {
                sweep(r, n);
            }
            Ok(())
        })
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

#[pymethods]
impl Matches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }
    fn __next__(&self) -> PyResult<Option<Match>> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        self.held.change(|m| {
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
                        return Ok(Some(Match { node: Node { held: self.held.clone(), function, id }, value, found }));
                    }
                }
            }
            Ok(None)
        })
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

    /// Puts a new node in the place of the value that matches: `match.replace("swish", match["x"])`. It computes all source
    /// nodes of the match, for reports. The other nodes of the match go where nobody else needs them.
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
        let module = Bound::new(py, Module { held: self.node.held.clone() })?;
        let before = Bound::new(py, self.node.clone())?;
        let name = self.node.name()?;
        let made = Module::add(&module, op, operands, &before, Some(&name), attributes)?;
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
