//! Graph functions with symbols: the symbols of a function's parameters are local to it, and each call gives them
//! values.
//!
//! ```text
//! %1 = call @f %x : f32[3,4]                      %1 = call @f_1 %x : f32[3,4]
//! %2 = call @f %z : f32[5,4]                      %2 = call @f_2 %z : f32[5,4]
//! graph @f(%x: f32[n,4]) -> f32[n,4] {     =>     graph @f_1(%x: f32[3,4]) -> f32[3,4] {
//!   %0 = exp %x                                     %0 = exp %x
//!   return %0                                       return %0
//! }                                               }
//!                                                 graph @f_2(%x: f32[5,4]) -> f32[5,4] { ... }
//! ```
//!
//! A function that calls itself must use the types of its own parameters, so the number of instances is finite.

use super::bind::{BindError, reinfer, substitute_function_dims};
use super::{Function, Module, NodeId, TensorType, ValueId};
use crate::int::{Bounds, Int, simplify};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::Call;
use rustc_hash::{FxHashMap, FxHashSet};

/// Instances that are made of a module's functions, at most: functions that call each other with growing shapes have no
/// end of them.
const MOST_INSTANCES: usize = 1000;

impl Function {
    /// The values of the symbols of the first parameters, for operands of these types: from the first dimension that is
    /// just the symbol.
    ///
    /// # Errors
    /// The position of the first operand that does not fit, and the type that it would need.
    pub fn unify(&self, operands: &[&TensorType]) -> Result<FxHashMap<Name, Int>, (usize, TensorType)> {
        let params = || self.params().iter().map(|&p| self.ty(p)).zip(operands);
        let mut sizes = FxHashMap::default();
        if params().all(|(want, got)| want == *got) {
            return Ok(sizes);
        }
        for (d, is) in params().flat_map(|(want, got)| want.shape.iter().zip(&got.shape)) {
            if let Some(symbol) = d.as_var() {
                sizes.entry(symbol).or_insert_with(|| is.clone());
            }
        }
        for (i, (want, got)) in params().enumerate() {
            let want = sized(want, &sizes);
            if want != sized(got, &FxHashMap::default()) {
                return Err((i, want));
            }
        }
        Ok(sizes)
    }

    /// A size that a node of the function decides, and that is also one of these: the two would become one.
    pub(crate) fn captured_size(&self, sizes: &FxHashMap<Name, Int>) -> Option<Name> {
        let defined = self.walk().into_iter().flat_map(|n| self.nodes[n].op.defined_symbols());
        defined.into_iter().find(|symbol| sizes.values().any(|is| is.uses(*symbol)))
    }
}

/// The type with sizes for symbols, in canonical form.
pub(crate) fn sized(ty: &TensorType, sizes: &FxHashMap<Name, Int>) -> TensorType {
    let mut ty = ty.clone();
    ty.change_dims(&|d| simplify(&d.replace(&mut |v| sizes.get(&v).cloned()), &Bounds::new()));
    ty
}

/// Makes a separate function for each list of types that a function is called with, following calls from the entry and
/// from uncalled functions. Functions without calls afterwards are removed. Returns whether anything changed.
///
/// # Errors
/// A node that does not accept the types of a call, and functions without an end of instances.
pub fn instantiate_functions(module: &mut Module) -> Result<bool, BindError> {
    let mut made: FxHashMap<(Name, Vec<TensorType>), Name> = FxHashMap::default();
    let called: FxHashSet<Name> =
        module.functions.values().flat_map(|f| callees(f).into_iter().filter(|c| *c != f.name)).collect();
    let is_root = |f: &&Function| f.name == module.entry || !called.contains(&f.name);
    let mut open: Vec<Name> = module.functions.values().filter(is_root).map(|f| f.name).collect();
    let mut seen: FxHashSet<Name> = FxHashSet::default();
    let mut instances = vec![];
    while let Some(name) = open.pop() {
        if !seen.insert(name) || !module.functions.contains_key(&name) {
            continue;
        }
        for n in module.functions[&name].walk() {
            let Some((callee, operands)) = call_to_instantiate(module, &module.functions[&name], n) else {
                open.extend(module.functions[&name].nodes[n].op.callee());
                continue;
            };
            let instance = match made.get(&(callee, operands.clone())) {
                Some(&there) => there,
                None => {
                    if made.len() >= MOST_INSTANCES {
                        let why = format!("@{callee} would be made for more than {MOST_INSTANCES} lists of sizes");
                        return Err(BindError::TooLarge(why));
                    }
                    let instance = add_instance(module, callee, &operands);
                    made.insert((callee, operands), instance);
                    instances.push(instance);
                    open.push(instance);
                    instance
                }
            };
            module.functions[&name].nodes[n].op = OpRef::new(Call { callee: instance });
        }
    }
    instances.iter().rev().try_for_each(|&name| reinfer(module, name))?;
    let originals: Vec<Name> = made.keys().map(|k| k.0).collect();
    remove_uncalled(module, originals);
    Ok(!made.is_empty())
}

/// The functions that `f` calls or holds as values.
fn callees(f: &Function) -> Vec<Name> {
    f.walk().into_iter().filter_map(|n| f.nodes[n].op.callee()).collect()
}

/// The function that node `n` of `f` calls with other types than it has, and these types.
fn call_to_instantiate(module: &Module, f: &Function, n: NodeId) -> Option<(Name, Vec<TensorType>)> {
    let node = &f.nodes[n];
    let call = node.op.downcast::<Call>().filter(|c| c.callee != f.name)?;
    let callee = module.functions.get(&call.callee).filter(|c| !c.primitive)?;
    let operands: Vec<&TensorType> = node.inputs.iter().map(|v| v.map(|v| f.ty(v))).collect::<Option<_>>()?;
    let sizes = callee.unify(&operands).ok()?;
    (!sizes.is_empty()).then(|| (call.callee, operands.into_iter().cloned().collect()))
}

/// Adds the function for operands of these types, whose types are still to be inferred.
fn add_instance(module: &mut Module, callee: Name, operands: &[TensorType]) -> Name {
    let name = module.fresh_name(callee.as_str());
    let mut f = module.functions[&callee].clone();
    let sizes = f.unify(&operands.iter().collect::<Vec<_>>()).unwrap_or_default();
    substitute_function_dims(&mut f, &sizes);
    f.name = name;
    // It calls itself as the function that it was made of did.
    for n in f.walk() {
        if f.nodes[n].op.downcast::<Call>().is_some_and(|c| c.callee == callee) {
            f.nodes[n].op = OpRef::new(Call { callee: name });
        }
    }
    let params: Vec<ValueId> = f.params().to_vec();
    for (p, ty) in params.into_iter().zip(operands) {
        f.values[p].ty = ty.clone();
    }
    module.functions.insert(name, f);
    name
}

/// Removes functions of `names` that no other function calls or uses as a value. Repeats that until all remaining ones
/// are used, since functions of `names` may call each other.
fn remove_uncalled(module: &mut Module, names: Vec<Name>) {
    let unused = |module: &Module, name: Name| {
        let calls = |f: &Function| f.name != name && callees(f).contains(&name);
        module.functions.contains_key(&name) && module.entry != name && !module.functions.values().any(calls)
    };
    while let Some(&name) = names.iter().find(|&&name| unused(module, name)) {
        module.functions.shift_remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::tensor::Tensor;
    use crate::text::{parse_module, print_module};
    use crate::verify::verify_module;

    const TEXT: &str = "entry @main
graph @main(%x: f32[3,4], %z: f32[5,4], %a: f32[m,4]) -> (p: f32[3,4], q: f32[5,4], r: f32[m,4], s: f32[3,4]) {
  %0 = call @twice %x : f32[3,4]
  %1 = call @twice %z : f32[5,4]
  %2 = call @twice %a : f32[m,4]
  %3 = call @step %x : f32[3,4]
  return %0, %1, %2, %3
}
graph @twice(%x: f32[n,4]) -> f32[n,4] {
  %0 = call @step %x : f32[n,4]
  %1 = call @step %0 : f32[n,4]
  return %1
}
graph @step(%x: f32[k,l]) -> f32[k,l] {
  %0 = reshape %x {shape=[`k*l`]} : f32[k*l]
  %1 = exp %0 : f32[k*l]
  %2 = reshape %1 {shape=[`k`,`l`]} : f32[k,l]
  return %2
}
";

    #[test]
    fn each_list_of_types_has_a_function() {
        let mut m = parse_module(TEXT).unwrap_or_else(|e| panic!("{e}"));
        verify_module(&m).unwrap_or_else(|e| panic!("{e:?}"));
        let x = |rows: usize| Tensor::from_vec(vec![rows, 4], (0..4 * rows).map(|i| i as f32 / 16.0).collect());
        let run = |m: &Module| run_function(m, m.entry, &[x(3), x(5), x(2)]).unwrap_or_else(|e| panic!("{e}"));
        let want = run(&m);
        assert!(instantiate_functions(&mut m).unwrap());
        verify_module(&m).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(run(&m), want);
        let names: Vec<String> = m.functions.keys().map(|n| n.to_string()).collect();
        assert_eq!(names.len(), 7, "main, and both others for 3, 5 and m rows: {names:?}");
        assert!(!instantiate_functions(&mut m).unwrap(), "{}", print_module(&m));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let text = TEXT.replace("%a: f32[m,4]", "%a: f32[m,3]").replace("r: f32[m,4]", "r: f32[m,3]");
        let m = parse_module(&text.replace("%a : f32[m,4]", "%a : f32[m,3]")).unwrap_or_else(|e| panic!("{e}"));
        let errors = format!("{:?}", verify_module(&m).expect_err("three columns"));
        assert!(errors.contains("operand 0 of @twice is f32[m,4], got f32[m,3]"), "{errors}");
    }
}
