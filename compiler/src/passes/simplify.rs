//! simplify: algebra and the removal of what does nothing, as a table of small rules.
//!
//! ```text
//! %0 = mul %x, 1.0                         %x
//! %1 = transpose %0 {perm=[1,0]}    =>
//! %2 = transpose %1 {perm=[1,0]}
//! ```
//!
//! Each rule stands under its equation in `simplify/`. A rule looks at one node and the nodes that make its operands;
//! nodes are visited in order until nothing changes any more. Rules hold for every finite value; the sign of a zero may
//! change (`-0 + 0 = 0`).

mod algebra;
mod shapes;
mod windows;

use super::rewriter::{Rewriter, rewrite_functions};
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Module, NodeId, Origins, TensorType, ValueId};
use crate::ops::OpRef;
use crate::ops::control::Const;
use crate::tensor::Tensor;

attr_struct! {
    /// Applies the rules until nothing changes.
    pub struct Simplify("simplify") {
        /// Sweeps over a function at most.
        pub max_sweeps: usize = 10,
    }
}

/// What takes a node's place.
pub(super) enum Change {
    /// A value that is there already.
    Value(ValueId),
    /// A new node with the same name and the origins of all nodes it stands for.
    Node(OpRef, Vec<Option<ValueId>>),
}

/// One rule: its equation for remarks, and the function that applies it to a node.
pub(super) struct Rule {
    /// The equation.
    pub equation: &'static str,
    /// What takes the node's place; `None` where the rule does not apply.
    pub apply: fn(&Match<'_, '_>) -> Option<Change>,
}

/// A node under a rule.
pub(super) struct Match<'a, 'm> {
    /// The rewriter, for looking only.
    pub r: &'a Rewriter<'m>,
    /// The node.
    pub n: NodeId,
}
impl Match<'_, '_> {
    /// The node's op as `T`.
    pub fn op<T: 'static>(&self) -> Option<&T> {
        self.r.f.nodes[self.n].op.downcast()
    }
    /// Operand `i`.
    pub fn input(&self, i: usize) -> Option<ValueId> {
        self.r.f.nodes[self.n].inputs.get(i).copied().flatten()
    }
    /// Number of operands that are there.
    pub fn num_inputs(&self) -> usize {
        self.r.f.nodes[self.n].inputs.iter().flatten().count()
    }
    /// Type of the first result.
    pub fn ty(&self) -> &TensorType {
        self.r.f.ty(self.r.f.nodes[self.n].outputs[0])
    }
    /// Type of a value.
    pub fn ty_of(&self, v: ValueId) -> &TensorType {
        self.r.f.ty(v)
    }
    /// The `T` that makes `v`, as a match of its own.
    pub fn made_by<T: 'static>(&self, v: ValueId) -> Option<(Match<'_, '_>, &T)> {
        let n = self.r.f.def_node(v)?;
        let op = self.r.f.nodes[n].op.downcast::<T>()?;
        Some((Match { r: self.r, n }, op))
    }
    /// The constant `v`, when it is small (64 KiB): larger ones stay unread.
    pub fn constant(&self, v: ValueId) -> Option<Tensor> {
        let (_, c) = self.r.f.def_op::<Const>(v)?;
        let c = self.r.module.constants.get(&c.name)?;
        if c.byte_len() <= 65536 { c.load().ok() } else { None }
    }
    /// True when every element of `v` is the constant `value`.
    pub fn is_all(&self, v: ValueId, value: f64) -> bool {
        self.constant(v).is_some_and(|t| !t.is_empty() && t.to_f64_vec().iter().all(|&x| x == value))
    }
    /// `v` in the node's place, when it has the type of the result.
    pub fn same_type(&self, v: ValueId) -> Option<Change> {
        (self.ty_of(v) == self.ty()).then_some(Change::Value(v))
    }
}

impl Pass for Simplify {
    fn opt_level(&self) -> u8 {
        1
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let mut changed = false;
        for _ in 0..self.max_sweeps {
            let again = rewrite_functions(module, |r| {
                for n in r.f.walk() {
                    if !r.is_dead(n) {
                        r.normalize(n);
                        self.visit(r, n, cx);
                    }
                }
            });
            changed |= again;
            if !again {
                break;
            }
        }
        Ok(changed)
    }
}

impl Simplify {
    fn visit(&self, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) {
        let node = &r.f.nodes[n];
        let [output] = node.outputs[..] else { return };
        if r.num_uses(output) == 0 || node.op.effects().stateful || !node.regions.is_empty() {
            return;
        }
        for rule in algebra::RULES.iter().chain(shapes::RULES).chain(windows::RULES) {
            let Some(change) = (rule.apply)(&Match { r, n }) else { continue };
            let name = r.f.nodes[n].name;
            let new = match change {
                Change::Value(v) => {
                    let origins = origins_between(r, n, &[Some(v)]);
                    if let Some(maker) = r.f.def_node(v).filter(|&d| !r.f.nodes[d].op.is::<Const>()) {
                        r.absorb_origins(maker, &origins);
                    }
                    v
                }
                Change::Node(op, inputs) => {
                    let origins = origins_between(r, n, &inputs);
                    match r.add_before(n, op, inputs, name, origins) {
                        Ok(made) => made[0],
                        Err(_) => continue,
                    }
                }
            };
            debug_assert_eq!(r.f.ty(new), r.f.ty(output), "{}", rule.equation);
            r.replace(output, new);
            r.erase(n);
            cx.applied(self, &[name], format!("{name}: {}", rule.equation));
            return;
        }
    }
}

/// Origins of a node and of the nodes between it and the values `kept`, which a rule leaves out with it.
fn origins_between(r: &Rewriter<'_>, n: NodeId, kept: &[Option<ValueId>]) -> Origins {
    let mut origins = r.f.nodes[n].origins.clone();
    let mut layer = vec![n];
    // No rule looks further back than this.
    for _ in 0..3 {
        let operands = layer.iter().flat_map(|&x| r.f.nodes[x].inputs.iter().flatten());
        let operands = operands.filter(|v| !kept.contains(&Some(**v))).filter_map(|&v| r.f.def_node(v));
        layer = operands.filter(|&d| !r.f.nodes[d].op.is::<Const>()).collect();
        origins = layer.iter().fold(origins, |o, &d| o.union(&r.f.nodes[d].origins));
    }
    origins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::run_function;
    use crate::passes::{EliminateDead, run_pass};
    use crate::text::{parse_module, random_tensor};

    /// Simplifies a body over `%x`; checks the ops that are left, and that the results agree.
    fn check(x: &str, result: &str, body: &str, left: &[&str]) {
        let last = body.lines().count() - 1;
        let lines: Vec<String> = body.lines().map(|l| format!("  {}\n", l.trim())).collect();
        let text = format!(
            "const @one : f32[] = [1.0]\nconst @ones : f32[2,3] = splat(1.0)\nconst @zero : f32[1] = [0.0]\n\
             const @w : f32[2,2,3,3] = random(3)\ngraph @main(%x: {x}) -> (y: {result}) {{\n  %one = const @one\n  \
             %ones = const @ones\n  %zero = const @zero\n  %w = const @w\n{}  return %{last}\n}}\n",
            lines.concat()
        );
        let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let ty = m.main().ty(m.main().params()[0]).clone();
        let x = random_tensor(ty.dtype, &ty.const_shape().unwrap(), 5);
        let want = run_function(&m, m.entry, std::slice::from_ref(&x)).unwrap();
        let mut cx = PassContext::default();
        run_pass(&Simplify::default(), &mut m, &mut cx).unwrap();
        run_pass(&EliminateDead {}, &mut m, &mut cx).unwrap();
        let f = m.main();
        let ops: Vec<_> = f.walk().iter().map(|&n| f.nodes[n].op.name()).filter(|&o| o != "const").collect();
        assert_eq!(ops, left, "{text}\n{:?}", cx.remarks);
        let got = run_function(&m, m.entry, &[x]).unwrap();
        for (a, b) in got[0].to_f32_vec().iter().zip(&want[0].to_f32_vec()) {
            assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{text}: {got:?} {want:?}");
        }
    }

    #[test]
    fn neutral_elements_vanish_unless_they_broadcast() {
        check(
            "f32[2,3]",
            "f32[2,3]",
            "%0 = mul %x, %one : f32[2,3]\n%1 = add %zero, %0 : f32[2,3]\n%2 = div %1, %ones : f32[2,3]",
            &[],
        );
        check("f32[3]", "f32[2,3]", "%0 = mul %x, %ones : f32[2,3]", &["mul"]);
    }

    #[test]
    fn clamps_merge() {
        check("f32[9]", "f32[9]", "%0 = relu %x : f32[9]\n%1 = relu %0 : f32[9]", &["relu"]);
        check("f32[9]", "f32[9]", "%0 = clip %x {min=-0.5, max=0.9} : f32[9]\n%1 = relu %0 : f32[9]", &["clip"]);
        check(
            "f32[9]",
            "f32[9]",
            "%0 = clip %x {min=-1.0, max=0.5} : f32[9]\n%1 = clip %0 {min=0.25} : f32[9]",
            &["clip"],
        );
        check(
            "f32[9]",
            "f32[9]",
            "%0 = abs %x : f32[9]\n%1 = abs %0 : f32[9]\n%2 = neg %1 : f32[9]\n%3 = neg %2 : f32[9]",
            &["abs"],
        );
    }

    #[test]
    fn casts_and_moves_vanish() {
        check("f32[4]", "f32[4]", "%0 = cast %x {to=f64} : f64[4]\n%1 = cast %0 {to=f32} : f32[4]", &[]);
        check("f32[4]", "f32[4]", "%0 = cast %x {to=i32} : i32[4]\n%1 = cast %0 {to=f32} : f32[4]", &["cast", "cast"]);
        check(
            "f32[2,3]",
            "f32[2,3]",
            "%0 = transpose %x {perm=[1,0]} : f32[3,2]\n%1 = transpose %0 {perm=[1,0]} : f32[2,3]",
            &[],
        );
        check("f32[2,3,1]", "f32[2,1,3]", "%0 = transpose %x {perm=[0,2,1]} : f32[2,1,3]", &["reshape"]);
        check(
            "f32[2,6]",
            "f32[3,4]",
            "%0 = reshape %x {shape=[2,2,3]} : f32[2,2,3]\n%1 = flatten %0 : f32[2,6]\n%2 = reshape %1 {shape=[3,-1]} : f32[3,4]",
            &["reshape"],
        );
        check(
            "f32[2,6]",
            "f32[2,6]",
            "%0 = unsqueeze %x {axes=[1]} : f32[2,1,6]\n%1 = squeeze %0 {axes=[1]} : f32[2,6]",
            &[],
        );
        check(
            "f32[2,3]",
            "f32[2,3]",
            "%0 = pad %x {pads=[0,0,0,0]} : f32[2,3]\n%1 = slice %0 {starts=[0], ends=[9]} : f32[2,3]\n%2 = concat %1 : f32[2,3]\n%3 = identity %2 : f32[2,3]",
            &[],
        );
    }

    #[test]
    fn reshapes_between_transposes_lose_both() {
        let body = "%0 = transpose %x {perm=[0,3,1,2]} : f32[2,3,4,6]\n%1 = reshape %0 {shape=[2,3,24]} : f32[2,3,24]\n\
                    %2 = transpose %1 {perm=[0,2,1]} : f32[2,24,3]";
        check("f32[2,4,6,3]", "f32[2,24,3]", body, &["reshape"]);
        let body = "%0 = transpose %x {perm=[0,2,1]} : f32[2,3,4]\n%1 = reshape %0 {shape=[2,3,2,2]} : f32[2,3,2,2]\n\
                    %2 = transpose %1 {perm=[0,2,3,1]} : f32[2,2,2,3]";
        check("f32[2,4,3]", "f32[2,2,2,3]", body, &["reshape"]);
        let body = "%0 = transpose %x {perm=[0,2,1]} : f32[2,3,4]\n%1 = reshape %0 {shape=[6,4]} : f32[6,4]\n\
                    %2 = transpose %1 {perm=[1,0]} : f32[4,6]";
        check("f32[2,4,3]", "f32[4,6]", body, &["transpose", "reshape", "transpose"]);
    }

    #[test]
    fn zero_padding_moves_into_windows() {
        check(
            "f32[1,2,5,5]",
            "f32[1,2,5,5]",
            "%0 = pad %x {pads=[0,0,1,1,0,0,1,1]} : f32[1,2,7,7]\n%1 = conv %0, %w : f32[1,2,5,5]",
            &["conv"],
        );
        check(
            "f32[1,2,5,5]",
            "f32[1,2,6,6]",
            "%0 = pad %x {pads=[0,0,1,1,0,0,1,1]} : f32[1,2,7,7]\n%1 = average_pool %0 {kernel=[2,2], count_include_pad=true} : f32[1,2,6,6]",
            &["average_pool"],
        );
        check(
            "f32[1,2,5,5]",
            "f32[1,2,6,6]",
            "%0 = pad %x {pads=[0,0,1,1,0,0,1,1]} : f32[1,2,7,7]\n%1 = average_pool %0 {kernel=[2,2]} : f32[1,2,6,6]",
            &["pad", "average_pool"],
        );
        check(
            "f32[1,2,5,5]",
            "f32[1,2,6,6]",
            "%0 = pad %x {pads=[0,0,1,1,0,0,1,1]} : f32[1,2,7,7]\n%1 = max_pool %0 {kernel=[2,2]} : f32[1,2,6,6]",
            &["pad", "max_pool"],
        );
        check(
            "f32[1,2,5,5]",
            "f32[1,2,6,6]",
            "%0 = relu %x : f32[1,2,5,5]\n%1 = pad %0 {pads=[0,0,1,1,0,0,1,1]} : f32[1,2,7,7]\n%2 = max_pool %1 {kernel=[2,2]} : f32[1,2,6,6]",
            &["relu", "max_pool"],
        );
    }
}
