//! Specialises a module: open dimensions and input shapes become numbers, and types are inferred again.

use super::builder::possible;
use super::instantiate::instantiate_functions;
use super::{BlockId, Function, Module, NodeId, TensorType};
use crate::attr::{Attr, Attrs};
use crate::fault::FaultKind;
use crate::int::{Dim, Int};
use crate::name::Name;
use crate::ops::{InferContext, OpRef};
use rustc_hash::FxHashMap;

/// Why a module could not be specialised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// No open dimension has this name.
    #[error("no dimension is called `{name}`; the open ones are: {}", if .known.is_empty() { "none".to_string() } else { .known.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(", ") })]
    UnknownDim {
        /// What was asked for.
        name: Name,
        /// The open dimensions.
        known: Vec<Name>,
    },
    /// No input has this name.
    #[error("no input is called `{name}`; the inputs are: {}", .known.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(", "))]
    UnknownInput {
        /// What was asked for.
        name: Name,
        /// The inputs.
        known: Vec<Name>,
    },
    /// A size that the dimension or input cannot have.
    #[error("`{name}` cannot be {value}: {why}")]
    BadSize {
        /// The dimension or input.
        name: Name,
        /// What was asked for.
        value: String,
        /// Why not.
        why: String,
    },
    /// Sizes that no memory holds.
    #[error("{0}")]
    TooLarge(String),
    /// A node does not accept the new types.
    #[error("node `{node}` ({op}): {message}")]
    Node {
        /// The node.
        node: Name,
        /// Its op.
        op: &'static str,
        /// An error of inference.
        message: String,
    },
}

/// Symbols of the entry's parameters that are still open, in order of first occurrence.
pub fn open_dims(module: &Module) -> Vec<Name> {
    let f = module.functions.get(&module.entry);
    f.map_or(vec![], |f| open_dims_of(f.params().iter().map(|&p| f.ty(p))))
}

/// The open dimensions of `types`, each once, in the order in which they occur.
pub fn open_dims_of<'t>(types: impl IntoIterator<Item = &'t TensorType>) -> Vec<Name> {
    let mut out = Vec::new();
    for name in types.into_iter().flat_map(|t| t.shape.iter()).flat_map(Int::vars) {
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

/// Notes that dimension `name` is `value`.
fn bind_one(known: &[Name], name: Name, value: i64, map: &mut FxHashMap<Name, Int>) -> Result<(), BindError> {
    let bad = |why: String| Err(BindError::BadSize { name, value: value.to_string(), why });
    if !known.contains(&name) {
        return Err(BindError::UnknownDim { name, known: known.to_vec() });
    }
    if value < 0 {
        return bad("it is negative".into());
    }
    match map.insert(name, Int::new(value)).filter(|o| !o.is(value)) {
        Some(other) => bad(format!("it is already bound to {other}")),
        None => Ok(()),
    }
}

/// Notes which symbols of the shape `old` of an input get which sizes from `new`.
fn match_shape(input: Name, old: &[Dim], new: &[usize], map: &mut FxHashMap<Name, Int>) -> Result<(), BindError> {
    let bad = |why: String| Err(BindError::BadSize { name: input, value: format!("{new:?}"), why });
    if old.len() != new.len() {
        return bad(format!("it has {} dimensions: {old:?}", old.len()));
    }
    for (dim, &size) in old.iter().zip(new) {
        if let Some(symbol) = dim.as_var()
            && let Some(other) = map.insert(symbol, Int::from(size)).filter(|o| *o != Int::from(size))
        {
            return bad(format!("the dimension `{symbol}` would be {other} and {size}"));
        }
    }
    Ok(())
}

/// Gives open dimensions their sizes, everywhere in the module, and infers all types anew.
///
/// # Errors
/// A name that no open dimension has, a negative size (of a dimension or of what is computed from several), or a node
/// that does not accept the new types.
pub fn bind_dims(module: &mut Module, dims: &[(Name, i64)]) -> Result<(), BindError> {
    let known = open_dims(module);
    let mut map: FxHashMap<Name, Int> = FxHashMap::default();
    for &(name, value) in dims {
        bind_one(&known, name, value, &mut map)?;
    }
    instantiate_functions(module)?;
    substitute_dims(module, &map);
    for (name, ty) in input_ports(module) {
        if ty.shape.iter().any(|d| d.as_const().is_some_and(|d| d < 0)) {
            return Err(BindError::BadSize { name, value: format!("{ty:?}"), why: "a size is negative".into() });
        }
    }
    // The entry comes last: the types of calls follow from the callees' results.
    let entry = module.entry;
    let callees: Vec<Name> = module.functions.keys().copied().filter(|&n| n != entry).collect();
    callees.into_iter().chain([entry]).try_for_each(|name| reinfer(module, name))
}

/// [`set_input_shapes`] of one input.
///
/// # Errors
/// As there.
pub fn set_input_shape(module: &mut Module, input: Name, shape: &[usize]) -> Result<(), BindError> {
    set_input_shapes(module, &[(input, shape.to_vec())])
}

/// Names and types of the entry's parameters.
pub fn input_ports(module: &Module) -> Vec<(Name, TensorType)> {
    let f = module.main();
    f.params().iter().map(|&p| (f.values[p].name.unwrap_or(Name::new("")), f.ty(p).clone())).collect()
}

/// Gives inputs of the entry constant shapes, binds the symbols that this determines, and infers all types anew.
/// A dimension that the model already fixes may be replaced too, as long as every node accepts it.
///
/// # Errors
/// An unknown input, another rank, one symbol with two sizes, or a node that does not accept the new types.
pub fn set_input_shapes(module: &mut Module, shapes: &[(Name, Vec<usize>)]) -> Result<(), BindError> {
    let ports = input_ports(module);
    let types = choose_shapes(ports.clone(), None, &[], shapes)?;
    set_input_types(module, &ports, types)
}

/// [`set_input_shapes`] of all inputs, in their order. Names need not tell them apart.
///
/// # Errors
/// As there.
pub fn set_shapes_in_order(module: &mut Module, shapes: &[&[usize]]) -> Result<(), BindError> {
    let ports = input_ports(module);
    let types = shapes_in_order(&ports, shapes)?;
    set_input_types(module, &ports, types)
}

/// The types of inputs `ports` (names and types) with these shapes, in their order.
///
/// # Errors
/// Another number of inputs, another rank, one symbol with two sizes, or sizes that no memory holds.
pub fn shapes_in_order(ports: &[(Name, TensorType)], shapes: &[&[usize]]) -> Result<Vec<TensorType>, BindError> {
    if let Some((name, ty)) = ports.get(shapes.len()) {
        let why = format!("it is {ty:?}, and there are shapes for {} of {} inputs", shapes.len(), ports.len());
        return Err(BindError::BadSize { name: *name, value: "left out".into(), why });
    }
    let mut map: FxHashMap<Name, Int> = FxHashMap::default();
    for ((name, ty), shape) in ports.iter().zip(shapes) {
        match_shape(*name, &ty.shape, shape, &mut map)?;
    }
    let types: Vec<TensorType> =
        ports.iter().zip(shapes).map(|((_, ty), shape)| TensorType::fixed(ty.dtype, shape)).collect();
    check_sane(ports, &types)?;
    Ok(types)
}

fn set_input_types(module: &mut Module, ports: &[(Name, TensorType)], types: Vec<TensorType>) -> Result<(), BindError> {
    instantiate_functions(module)?;
    let mut map: FxHashMap<Name, Int> = FxHashMap::default();
    for ((_, old), new) in ports.iter().zip(&types) {
        let symbols = old.shape.iter().zip(&new.shape).filter_map(|(o, n)| Some((o.as_var()?, n.clone())));
        map.extend(symbols.filter(|(symbol, n)| n.as_var() != Some(*symbol)));
    }
    substitute_dims(module, &map);
    let f = module.main_mut();
    for (p, ty) in f.params().to_vec().into_iter().zip(types) {
        f.values[p].ty = ty;
    }
    let entry = module.entry;
    reinfer(module, entry)
}

/// The types of inputs `ports` (names and types) after shapes are chosen: whole shapes by input, sizes of named
/// dimensions, and a size for every first dimension (a fixed one only where there are others), in this order of
/// precedence. A symbol that is given a size by any of them has it everywhere.
///
/// # Errors
/// Names that no input or dimension has, another rank, or one symbol with two sizes.
pub fn choose_shapes(
    ports: Vec<(Name, TensorType)>,
    batch: Option<usize>,
    dims: &[(Name, i64)],
    shapes: &[(Name, Vec<usize>)],
) -> Result<Vec<TensorType>, BindError> {
    let known: Vec<Name> = open_dims_of(ports.iter().map(|p| &p.1));
    let mut map: FxHashMap<Name, Int> = FxHashMap::default();
    let mut types: Vec<TensorType> = ports.iter().map(|p| p.1.clone()).collect();
    for (input, shape) in shapes {
        let Some(i) = ports.iter().position(|p| p.0 == *input) else {
            return Err(BindError::UnknownInput { name: *input, known: ports.iter().map(|p| p.0).collect() });
        };
        match_shape(*input, &ports[i].1.shape, shape, &mut map)?;
        types[i] = TensorType::fixed(ports[i].1.dtype, shape);
    }
    for &(name, value) in dims {
        bind_one(&known, name, value, &mut map)?;
    }
    for (ty, port) in types.iter_mut().zip(&ports) {
        let chosen = shapes.iter().any(|s| s.0 == port.0);
        let rank = ty.rank();
        if let (Some(batch), Some(first), false) = (batch, ty.shape.first_mut(), chosen) {
            match first.as_var() {
                Some(symbol) => drop(map.entry(symbol).or_insert(Int::from(batch))),
                None if rank > 1 => *first = Int::from(batch),
                None => {}
            }
        }
    }
    for d in types.iter_mut().flat_map(|t| t.shape.iter_mut()) {
        *d = d.replace(&mut |v| map.get(&v).cloned());
    }
    check_sane(&ports, &types)?;
    Ok(types)
}

fn check_sane(ports: &[(Name, TensorType)], types: &[TensorType]) -> Result<(), BindError> {
    match types.iter().zip(ports).find(|(ty, _)| !ty.is_sane()) {
        Some((ty, (name, _))) => Err(BindError::TooLarge(format!("`{name}` is {ty:?}, which no memory holds"))),
        None => Ok(()),
    }
}

/// Infers the types of all nodes of a function again, in order, from the types of its parameters. A graph function
/// that is called with other types than it has is specialised first.
///
/// # Errors
/// The first node that does not accept its operands.
pub fn reinfer(module: &mut Module, function: Name) -> Result<(), BindError> {
    let Some(slot) = module.functions.get_mut(&function) else { return Ok(()) };
    // The function is worked on outside the module, so that inference can look at both; an empty one of the same name
    // keeps its place.
    let mut f = std::mem::replace(slot, Function::new(function));
    let body = f.body;
    let result = reinfer_block(module, &mut f, body);
    if result.is_ok() {
        f.result_types = f.results().iter().map(|&v| f.ty(v).clone()).collect();
    }
    module.functions[&function] = f;
    result
}

fn reinfer_block(module: &mut Module, f: &mut Function, block: BlockId) -> Result<(), BindError> {
    for n in f.blocks[block].nodes.clone() {
        f.set_argument_types(n);
        for region in f.nodes[n].regions.clone() {
            reinfer_block(module, f, region)?;
        }
        specialize_callee(module, f, n)?;
        let node = &f.nodes[n];
        let cx = InferContext::new(module, f, &node.inputs, &node.regions);
        let types = node.op.infer(&cx).and_then(possible);
        let types = types.map_err(|why| match why.kind {
            FaultKind::TooLarge => BindError::TooLarge(format!("node `{}`: {why}", node.name)),
            _ => BindError::Node { node: node.name, op: node.op.name(), message: why.message },
        })?;
        for (v, ty) in node.outputs.clone().into_iter().zip(types) {
            f.values[v].ty = ty.canonical();
        }
    }
    Ok(())
}

/// Gives the parameters of a called function the types of the operands, and infers it again.
fn specialize_callee(module: &mut Module, f: &Function, n: NodeId) -> Result<(), BindError> {
    let node = &f.nodes[n];
    let Some(call) = node.op.downcast::<crate::ops::control::Call>() else { return Ok(()) };
    if call.callee == f.name {
        return Ok(());
    }
    let Some(callee) = module.functions.get_mut(&call.callee) else { return Ok(()) };
    let params = callee.params().to_vec();
    let mut changed = false;
    for (&p, v) in params.iter().zip(&node.inputs) {
        let Some(ty) = v.map(|v| f.ty(v)) else { continue };
        if callee.values[p].ty != *ty {
            callee.values[p].ty = ty.clone();
            changed = true;
        }
    }
    if changed { reinfer(module, call.callee) } else { Ok(()) }
}

/// Replaces symbols in all types, attributes and tensor functions; types are not inferred again.
pub fn substitute_dims(module: &mut Module, map: &FxHashMap<Name, Int>) {
    if map.is_empty() {
        return;
    }
    module.functions.values_mut().for_each(|f| substitute_function_dims(f, map));
    for t in module.tensor_functions.values_mut() {
        t.substitute_symbols(map);
    }
}

/// As [`substitute_dims`], of one function.
pub fn substitute_function_dims(f: &mut Function, map: &FxHashMap<Name, Int>) {
    let subst = |e: &Int| e.replace(&mut |v| map.get(&v).cloned());
    for (_, value) in f.values.iter_mut() {
        value.ty.change_dims(&subst);
    }
    for ty in &mut f.result_types {
        ty.change_dims(&subst);
    }
    for (_, node) in f.nodes.iter_mut() {
        if let Some(op) = substitute_attrs(&node.op, &subst) {
            node.op = op;
        }
    }
}

/// Learns the values of symbols from the old (symbolic) and the new dimensions of a value.
pub fn learn_dims(old: &[Dim], new: &[Dim], map: &mut FxHashMap<Name, Int>) {
    map.extend(
        old.iter().zip(new).filter(|(old, new)| old != new).filter_map(|(old, new)| Some((old.as_var()?, new.clone()))),
    );
}

/// The op with symbols replaced; `None` when it holds none.
fn substitute_attrs(op: &OpRef, subst: &dyn Fn(&Int) -> Int) -> Option<OpRef> {
    fn holds_expr(a: &Attr) -> bool {
        match a {
            Attr::Expr(_) => true,
            Attr::List(list) => list.iter().any(holds_expr),
            _ => false,
        }
    }
    fn replace(a: &Attr, subst: &dyn Fn(&Int) -> Int) -> Attr {
        match a {
            Attr::Expr(e) => crate::attr::AttrValue::to_attr(&subst(e)),
            Attr::List(list) => Attr::List(list.iter().map(|a| replace(a, subst)).collect()),
            other => other.clone(),
        }
    }
    let attrs = op.attrs();
    if !attrs.values().any(holds_expr) {
        return None;
    }
    let new: Attrs = attrs.iter().map(|(k, v)| (k.clone(), replace(v, subst))).collect();
    op.with_attrs(&new).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::graph::FunctionBuilder;
    use crate::ops::control::{Call, If};
    use crate::ops::{Op, OpResult};

    crate::attr_struct! {
        /// An op that is in no table: one row for each of `count`.
        pub struct Rows("test_rows") {
            /// Rows.
            pub count: Dim = Dim::new(1),
        }
    }
    impl Op for Rows {
        fn arity(&self) -> (usize, usize) {
            (1, 1)
        }
        fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
            Ok(vec![TensorType::new(cx.require(0)?.dtype, vec![self.count.clone()])])
        }
    }

    /// `main(c, x: [n, 4]) = if c { double(x) } else { x }` with `double(y: [n, 4]) = y`.
    fn module() -> Module {
        let mut m = Module::new("main");
        let ty = TensorType::new(DType::F32, vec![Dim::var("n"), Dim::new(4)]);
        let mut b = FunctionBuilder::new(&mut m, "identity");
        let y = b.param("y", ty.clone());
        b.finish(&[(Name::new("y"), y)]);
        let mut b = FunctionBuilder::new(&mut m, "main");
        let c = b.param("c", TensorType::new(DType::Bool, vec![]));
        let x = b.param("x", ty);
        let (then, other) = (b.new_block(), b.new_block());
        let called = b.in_block(then, |b| b.add(Call { callee: Name::new("identity") }, &[x]).unwrap());
        b.set_block_results(then, vec![called]);
        b.set_block_results(other, vec![x]);
        let r = b.add_multi(If::default(), vec![Some(c)], vec![then, other]).unwrap();
        b.finish(&[(Name::new("r"), r[0])]);
        m
    }

    #[test]
    fn dims_reach_branches_and_callees() {
        let mut m = module();
        assert_eq!(open_dims(&m), [Name::new("n")]);
        bind_dims(&mut m, &[(Name::new("n"), 3)]).unwrap();
        let want = TensorType::fixed(DType::F32, &[3, 4]);
        assert_eq!(m.main().result_types.as_slice(), std::slice::from_ref(&want));
        assert_eq!(m.functions[&Name::new("identity")].result_types, [want]);
        assert!(open_dims(&m).is_empty());
    }

    #[test]
    fn dims_reach_ops_that_are_in_no_table() {
        let mut m = Module::new("main");
        let mut b = FunctionBuilder::new(&mut m, "main");
        let x = b.param("x", TensorType::new(DType::F32, vec![Dim::var("n"), Dim::new(4)]));
        let y = b.add(Rows { count: Dim::var("n") * 2 }, &[x]).unwrap();
        b.finish(&[(Name::new("y"), y)]);
        bind_dims(&mut m, &[(Name::new("n"), 3)]).unwrap();
        let f = m.main();
        let node = f.def_node(f.results()[0]).map(|n| &f.nodes[n]).unwrap();
        assert_eq!(node.op.downcast::<Rows>().map(|r| r.count.clone()), Some(Dim::new(6)));
        assert_eq!(f.result_types, [TensorType::fixed(DType::F32, &[6])]);
        let symbolic = OpRef::new(Rows { count: Dim::var("k") });
        assert_eq!(symbolic.bind(&|_| Some(5)), OpRef::new(Rows { count: Dim::new(5) }));
    }

    #[test]
    fn shapes_specialise_callees() {
        let mut m = module();
        set_input_shape(&mut m, Name::new("x"), &[2, 5]).unwrap();
        let want = TensorType::fixed(DType::F32, &[2, 5]);
        assert_eq!(m.main().result_types.as_slice(), std::slice::from_ref(&want));
        assert_eq!(m.functions[&Name::new("identity")].result_types, [want]);
    }

    #[test]
    fn batches_and_dims_are_chosen_together() {
        let ty = |shape: Vec<Dim>| TensorType::new(DType::F32, shape);
        let named = |n: &str, shape: Vec<Dim>| (Name::new(n), ty(shape));
        let ports = vec![
            named("x", vec![Dim::var("n"), Dim::var("h")]),
            named("y", vec![Dim::new(1), Dim::var("h")]),
            named("z", vec![Dim::new(7)]),
        ];
        let dims = [(Name::new("h"), 5)];
        let types = choose_shapes(ports, Some(2), &dims, &[]).unwrap();
        let shapes: Vec<_> = types.iter().map(|t| t.const_shape().unwrap()).collect();
        assert_eq!(shapes, [vec![2, 5], vec![2, 5], vec![7]]);
    }

    #[test]
    fn typos_are_errors() {
        let mut m = module();
        let e = bind_dims(&mut m, &[(Name::new("m"), 3)]).unwrap_err();
        assert_eq!(e.to_string(), "no dimension is called `m`; the open ones are: n");
        assert!(bind_dims(&mut m, &[(Name::new("n"), -1)]).is_err());
        assert!(set_input_shape(&mut m, Name::new("z"), &[1]).is_err());
        assert!(set_input_shape(&mut m, Name::new("x"), &[1]).is_err());
    }

    #[test]
    fn sizes_that_come_to_less_than_none_are_refused() {
        let text =
            "graph @main(%x: f32[a - b,6]) -> (y: f32[a - b,6]) {\n  %0 = relu %x : f32[a - b,6]\n  return %0\n}\n";
        let mut m = crate::text::parse_module(text).unwrap();
        let [a, b] = ["a", "b"].map(Name::new);
        let why = bind_dims(&mut m.clone(), &[(a, 1), (b, 2)]).unwrap_err().to_string();
        assert_eq!(why, "`x` cannot be f32[-1,6]: a size is negative");
        bind_dims(&mut m, &[(a, 2), (b, 2)]).unwrap();
    }
}
