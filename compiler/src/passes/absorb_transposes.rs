//! absorb-transposes: matrix products read transposed operands, and write transposed results, by their index maps.
//!
//! ```text
//! %0 = transpose %q {perm=[0,2,1,3]}
//! %1 = mul %0, %scale                    %0 = mul %q, %scale
//! %2 = transpose %k {perm=[0,2,3,1]}  => %1 = permuted_matmul %0, %k {perm_a=[0,2,1,3], perm_b=[0,2,3,1]}
//! %3 = matmul %1, %2
//! ```
//!
//! A transpose that only a product uses is merged into the product, also through elementwise ops with scalars in
//! between. A transpose that is the only user of a product is merged too. A value with other users is not changed,
//! since its transpose would remain.

use super::fusion_kind::describe_node;
use super::rewriter::Rewriter;
use super::{FunctionPass, GraphFunctions, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{NodeId, Origins, ValueId};
use crate::name::Name;
use crate::ops::matmul::MatMul;
use crate::ops::permute::permute;
use crate::ops::permuted_matmul::PermutedMatMul;
use crate::ops::transpose::Transpose;

attr_struct! {
    /// Lets matrix products absorb the transposes around them.
    pub struct AbsorbTransposes("absorb-transposes") {}
}

impl FunctionPass for AbsorbTransposes {
    type Of = GraphFunctions;
    fn opt_level(&self) -> u8 {
        2
    }
    fn run_on(&self, r: &mut Rewriter<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        for n in r.f.walk() {
            r.normalize(n);
            if product(r, n).is_some() {
                self.absorb_operands(r, n, cx);
            } else if r.f.nodes[n].op.is::<Transpose>() {
                self.absorb_into_result(r, n, cx);
            }
        }
        Ok(())
    }
}

/// The node as a product with permutations.
fn product(r: &Rewriter<'_>, n: NodeId) -> Option<PermutedMatMul> {
    let op = &r.f.nodes[n].op;
    match op.downcast::<PermutedMatMul>() {
        Some(p) => Some(p.clone()),
        None => op.is::<MatMul>().then(PermutedMatMul::default),
    }
}

/// A transpose above an operand, through elementwise ops with scalars.
struct Above {
    /// The operand of the transpose.
    source: ValueId,
    perm: Vec<usize>,
    transpose: NodeId,
    /// Elementwise nodes between the transpose and the operand, upper ones first, with the operand that leads up.
    between: Vec<(NodeId, usize)>,
}

fn find_above(r: &Rewriter<'_>, v: ValueId) -> Result<Option<Above>, String> {
    let (mut at, mut between) = (v, Vec::new());
    loop {
        let Some(n) = r.f.def_node(at) else { return Ok(None) };
        let node = &r.f.nodes[n];
        if let Some(t) = node.op.downcast::<Transpose>() {
            let source = r.resolve(node.inputs[0].ok_or("the transpose has no operand")?);
            if r.num_uses(at) != 1 {
                return Err(format!("{} has {} users", node.name, r.num_uses(at)));
            }
            between.reverse();
            let perm = t.perm(r.f.ty(source).rank())?;
            return Ok(Some(Above { source, perm, transpose: n, between }));
        }
        let data: Vec<usize> = (0..node.inputs.len())
            .filter(|&i| node.inputs[i].is_some_and(|v| !r.f.ty(v).numel().is(1) || r.f.ty(v).rank() > 1))
            .collect();
        let [up] = data[..] else { return Ok(None) };
        let agnostic = node.outputs.len() == 1 && describe_node(r.module, &r.f, n).is_some_and(|i| i.layout_agnostic);
        if !agnostic || r.num_uses(at) != 1 {
            return Ok(None);
        }
        between.push((n, up));
        let Some(v) = node.inputs[up] else { return Ok(None) };
        at = r.resolve(v);
    }
}

/// `p` after `first`: the order of a transpose by `first` and another one by `p`.
fn compose(first: &[usize], p: &[usize]) -> Vec<usize> {
    if p.is_empty() { first.to_vec() } else { permute(first, p) }
}

impl AbsorbTransposes {
    fn absorb_operands(&self, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) {
        let Some(mut op) = product(r, n) else { return };
        let node = r.f.nodes[n].clone();
        let (mut inputs, mut origins) = (node.inputs.clone(), node.origins.clone());
        let mut absorbed: Vec<NodeId> = Vec::new();
        for (i, input) in inputs.iter_mut().enumerate() {
            let Some(v) = input.map(|v| r.resolve(v)) else { return };
            let above = match find_above(r, v) {
                Ok(Some(above)) => above,
                Ok(None) => continue,
                Err(why) => {
                    cx.missed(self, &[node.name], format!("{} does not absorb a transpose: {why}", node.name));
                    continue;
                }
            };
            let Some(source) = lift(r, n, &above) else { continue };
            let perm = if i == 0 { &mut op.perm_a } else { &mut op.perm_b };
            *perm = compose(&above.perm, perm);
            *input = Some(source);
            origins = origins.union(&r.f.nodes[above.transpose].origins);
            self.remark(r, node.name, above.transpose, &format!("reads operand {i} in the order {perm:?}"), cx);
            absorbed.push(above.transpose);
            absorbed.extend(above.between.iter().rev().map(|b| b.0));
        }
        if absorbed.is_empty() {
            return;
        }
        self.replace(r, n, n, op, inputs, node.name, origins);
    }

    fn absorb_into_result(&self, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) {
        let node = r.f.nodes[n].clone();
        let Some(v) = node.inputs[0].map(|v| r.resolve(v)) else { return };
        let Some(m) = r.f.def_node(v).filter(|&m| r.f.nodes[m].block == node.block) else { return };
        let (Some(mut op), Some(t)) = (product(r, m), node.op.downcast::<Transpose>()) else { return };
        let Ok(perm) = t.perm(r.f.ty(v).rank()) else { return };
        let name = r.f.nodes[m].name;
        if r.num_uses(v) != 1 {
            let message = format!("{name} does not absorb {}: its result has {} users", node.name, r.num_uses(v));
            cx.missed(self, &[name], message);
            return;
        }
        op.perm_out = if op.perm_out.is_empty() { perm } else { permute(&op.perm_out, &perm) };
        let origins = r.f.nodes[m].origins.union(&node.origins);
        self.remark(r, name, n, &format!("writes its result in the order {:?}", op.perm_out), cx);
        let inputs = r.f.nodes[m].inputs.clone();
        self.replace(r, n, m, op, inputs, name, origins);
    }

    /// Puts the new product before `n`, whose result it takes over; the product `m` and what only it used become dead.
    #[allow(clippy::too_many_arguments)]
    fn replace(
        &self,
        r: &mut Rewriter<'_>,
        n: NodeId,
        m: NodeId,
        op: PermutedMatMul,
        inputs: Vec<Option<ValueId>>,
        name: Name,
        origins: Origins,
    ) {
        let old = r.f.nodes[n].outputs[0];
        if let Ok(made) = r.add_before(n, op, inputs, name, origins) {
            r.f.values[made[0]].name = r.f.values[old].name;
            r.replace(old, made[0]);
            r.erase(n);
            if m != n {
                r.erase(m);
            }
        }
    }

    fn remark(&self, r: &Rewriter<'_>, name: Name, transpose: NodeId, what: &str, cx: &mut PassContext) {
        let t = &r.f.nodes[transpose];
        let size = r.f.ty(t.outputs[0]).numel();
        cx.applied(self, &[name, t.name], format!("{name} {what}, so that {} of {size} elements vanishes", t.name));
    }
}

/// The operand without its transpose: the elementwise ops in between are applied to the transpose's operand.
fn lift(r: &mut Rewriter<'_>, at: NodeId, above: &Above) -> Option<ValueId> {
    let mut v = above.source;
    for &(n, up) in &above.between {
        let node = r.f.nodes[n].clone();
        let mut inputs: Vec<Option<ValueId>> = node.inputs.iter().map(|i| i.map(|i| r.resolve(i))).collect();
        inputs[up] = Some(v);
        v = r.add_before(at, node.op.clone(), inputs, node.name, node.origins.clone()).ok()?[0];
    }
    Some(v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::passes::{EliminateDead, run_pass};
    use crate::text::{parse_module, random_tensor};

    /// Runs the pass; the results must stay. Returns the op names that are left, and the remarks.
    fn absorb(body: &str, result: &str, last: &str) -> (Vec<&'static str>, Vec<String>) {
        let text = format!(
            "const @s : f32[] = [0.5]\ngraph @main(%q: f32[2,5,3,4], %k: f32[2,5,3,4]) -> ({result}) {{\n  \
             %s = const @s\n{body}\n  return {last}\n}}\n"
        );
        let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let f = m.main();
        let inputs: Vec<_> =
            (0..2).map(|i| random_tensor(f.ty(f.params()[i]).dtype, &[2, 5, 3, 4], i as u64)).collect();
        let want = run_function(&m, m.entry, &inputs).expect("it runs");
        let mut cx = PassContext::default();
        run_pass(&AbsorbTransposes {}, &mut m, &mut cx).unwrap_or_else(|e| panic!("{e}\n{text}"));
        run_pass(&EliminateDead {}, &mut m, &mut cx).expect("it runs");
        for (a, b) in run_function(&m, m.entry, &inputs).expect("it runs").iter().zip(&want) {
            crate::ops::testing::assert_close(a, b, 1e-5);
        }
        let f = m.main();
        let ops = f.walk().iter().map(|&n| f.nodes[n].op.name()).filter(|&o| o != "const").collect();
        (ops, cx.remarks.iter().map(|r| r.message.clone()).collect())
    }

    #[test]
    fn heads_of_attention() {
        let body = "  %0 = transpose %q {perm=[0,2,1,3]} : f32[2,3,5,4]\n  %1 = mul %0, %s : f32[2,3,5,4]\n  \
                    %2 = transpose %k {perm=[0,2,3,1]} : f32[2,3,4,5]\n  %3 = matmul %1, %2 : f32[2,3,5,5]\n  \
                    %4 = softmax %3 {axes=[3]} : f32[2,3,5,5]\n  %5 = transpose %k {perm=[0,2,1,3]} : f32[2,3,5,4]\n  \
                    %6 = matmul %4, %5 : f32[2,3,5,4]\n  %7 = transpose %6 {perm=[0,2,1,3]} : f32[2,5,3,4]";
        let (ops, remarks) = absorb(body, "y: f32[2,5,3,4]", "%7");
        assert_eq!(ops, ["mul", "permuted_matmul", "softmax", "permuted_matmul"], "{remarks:?}");
        assert!(remarks.iter().filter(|m| m.contains("vanishes")).count() >= 4, "{remarks:?}");
    }

    #[test]
    fn what_has_other_users_stays() {
        let body = "  %0 = transpose %q {perm=[0,2,1,3]} : f32[2,3,5,4]\n  \
                    %1 = transpose %k {perm=[0,2,3,1]} : f32[2,3,4,5]\n  %2 = matmul %0, %1 : f32[2,3,5,5]\n  \
                    %3 = transpose %2 {perm=[0,2,1,3]} : f32[2,5,3,5]";
        let (ops, remarks) = absorb(body, "y: f32[2,3,5,4], p: f32[2,3,5,5], t: f32[2,5,3,5]", "%0, %2, %3");
        assert_eq!(ops, ["transpose", "permuted_matmul", "transpose"], "{remarks:?}");
        assert!(remarks.iter().any(|m| m.contains("has 2 users")), "{remarks:?}");
    }
}
