//! simplify: algebra and the removal of no-ops, as a table of small rules.
//!
//! ```text
//! %0 = mul %x, 1.0                         %x
//! %1 = transpose %0 {perm=[1,0]}    =>
//! %2 = transpose %1 {perm=[1,0]}
//! ```
//!
//! Each rule is listed under its equation in `simplify/`, with its [pattern](crate::pattern). Nodes are visited in
//! order until nothing changes any more. Rules hold for every finite value, but the sign of a zero may change (`-0 + 0
//! = 0`), and sums and products of constants may be rounded once more or once less.

mod algebra;
mod shapes;
mod windows;

use super::rules::RuleSet;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::Module;

attr_struct! {
    /// Applies the rules until nothing changes.
    pub struct Simplify("simplify") {
        /// Sweeps over a function at most.
        pub max_sweeps: usize = 10,
    }
}

impl Pass for Simplify {
    fn opt_level(&self) -> u8 {
        1
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let rules = RuleSet::new(&[algebra::RULES, shapes::RULES, windows::RULES]);
        Ok(rules.apply(self, module, cx, self.max_sweeps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
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
