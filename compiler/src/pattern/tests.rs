use super::*;
use crate::graph::Module;
use crate::ops::binary::{Add, Mul};
use crate::ops::conv::Conv;
use crate::ops::split::Split;
use crate::ops::unary::{Exp, Relu, Sigmoid};
use crate::text::parse_module;

/// A function over `%x: f32[2,4]` with constants `%w` (1x1 weights), `%one`, `%c`; matches against the last node.
fn check(body: &str, pattern: &Pattern) -> Result<Vec<String>, String> {
    let last = body.lines().count() - 1;
    let lines: Vec<String> = body.lines().map(|l| format!("  {}\n", l.trim())).collect();
    let text = format!(
        "const @w : f32[4,4,1,1] = random(1)\nconst @one : f32[4] = splat(1.0)\nconst @c : f32[] = [0.5]\n\
         graph @main(%x: f32[1,4,2,4]) -> (y: f32[1,4,2,4]) {{\n  %w = const @w\n  %one = const @one\n  %c = const @c\n{}  \
         return %{last}\n}}\n",
        lines.concat()
    );
    let m: Module = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let f = m.main();
    let found = pattern.matches(&Plain::new(&m, f), f.results()[0]).map_err(|e| e.to_string())?;
    let mut names: Vec<String> = found.nodes.iter().map(|&n| f.nodes[n].op.name().to_string()).collect();
    names.extend(found.between.iter().map(|&n| format!("~{}", f.nodes[n].op.name())));
    Ok(names)
}

fn ok(body: &str, pattern: &Pattern, nodes: &[&str]) {
    assert_eq!(check(body, pattern).as_deref(), Ok(&nodes.iter().map(|s| s.to_string()).collect::<Vec<_>>()[..]));
}
fn miss(body: &str, pattern: &Pattern, why: &str) {
    assert_eq!(check(body, pattern), Err(format!("no match for {pattern}: {why}")));
}

const ADD_ONE: &str = "%0 = relu %x : f32[1,4,2,4]\n%1 = add %one, %0 : f32[1,4,2,4]";

#[test]
fn operands_match_in_order_or_in_either_order() {
    ok(ADD_ONE, &op::<Add>([number(1.0), op::<Relu>([param()])]), &["add", "relu"]);
    miss(ADD_ONE, &op::<Add>([op::<Relu>([any()]), number(1.0)]), "`const_1` is const, not relu");
    ok(ADD_ONE, &commuted::<Add>(op::<Relu>([any()]), number(1.0)), &["add", "relu"]);
    miss(ADD_ONE, &commuted::<Add>(any(), number(2.0)), "`const_1` is not a constant of 2 everywhere");
    miss(ADD_ONE, &op::<Add>([any()]), "`add_4` has 2 operands, not 1");
    ok(ADD_ONE, &op_from::<Add>([constant()]), &["add"]);
}

#[test]
fn alternatives_optionals_and_results() {
    let light = either([is::<Sigmoid>(), is::<Relu>()]);
    ok(ADD_ONE, &op::<Add>([constant(), light.clone()]), &["add", "relu"]);
    let maybe = is::<Relu>().optional(|p| op::<Exp>([p]));
    assert_eq!(maybe.to_string(), "exp?(relu(..))");
    ok("%0 = relu %x : f32[1,4,2,4]\n%1 = exp %0 : f32[1,4,2,4]", &maybe, &["exp", "relu"]);
    ok("%0 = relu %x : f32[1,4,2,4]", &maybe, &["relu"]);
    let split = "%a, %b = split %x {axis=0, sizes=[1,0]} : f32[1,4,2,4], f32[0,4,2,4]\n%1 = relu %a : f32[1,4,2,4]";
    ok(split, &op::<Relu>([is::<Split>().result(0)]), &["relu", "split"]);
    miss(split, &op::<Relu>([is::<Split>().result(1)]), "`split_3` is not result 1 of its node");
}

#[test]
fn attributes_types_and_shapes_are_tested() {
    let conv = "%0 = conv %x, %w : f32[1,4,2,4]";
    let grouped = is::<Conv>().attr::<Conv>("group=2", |c| c.group == 2);
    miss(conv, &grouped, "`conv_3` is not [group=2]");
    let shaped = op::<Conv>([any().rank(4).dtype(DType::F32), constant().shape(&[None, Some(4), Some(1), Some(1)])]);
    assert_eq!(shaped.to_string(), "conv(*[rank 4][f32], const[shape ?x4x1x1])");
    ok(conv, &shaped, &["conv"]);
    miss(conv, &op::<Conv>([any().rank(3), any()]), "`x` is not [rank 3]");
}

#[test]
fn a_name_stands_for_one_value() {
    let square = op::<Mul>([var("x"), var("x")]);
    ok("%0 = mul %x, %x : f32[1,4,2,4]", &square, &["mul"]);
    miss("%0 = mul %x, %one : f32[1,4,2,4]", &square, "x is `x`, not `const_1` as well");
    // The second order of a commuted op starts with no names of the first.
    let absorbed = commuted::<Add>(op::<Mul>([var("a"), var("b")]), var("b"));
    ok(
        "%0 = mul %x, %x : f32[1,4,2,4]\n%1 = mul %x, %0 : f32[1,4,2,4]\n%2 = add %0, %1 : f32[1,4,2,4]",
        &absorbed,
        &["add", "mul"],
    );
}

#[test]
fn dominators_see_every_path_and_every_use() {
    let light = either([is::<Relu>(), is::<Exp>(), is::<Add>()]);
    let region = dominator(is::<Conv>().named("conv"), light, commuted::<Mul>(any(), number(0.5)));
    assert_eq!(region.to_string(), "conv:conv(..) => (relu(..) | exp(..) | add(..))* => mul{*, 0.5}");
    let t = ": f32[1,4,2,4]";
    let diamond = |last: &str| {
        format!(
            "%0 = conv %x, %w {t}\n%1 = relu %0 {t}\n%2 = exp %0 {t}\n%3 = add %1, %2 {t}\n%4 = add %3, %one {t}\n{last}"
        )
    };
    ok(&diamond(&format!("%5 = mul %4, %c {t}")), &region, &["mul", "conv", "~add", "~add", "~relu", "~exp"]);
    miss(
        &diamond(&format!("%5 = sigmoid %1 {t}\n%6 = mul %4, %c {t}")),
        &region,
        "`relu_4` is used outside of the region",
    );
    miss(&format!("%0 = sigmoid %x {t}\n%1 = mul %0, %c {t}"), &region, "`sigmoid_3` leads to no parent");
    miss(
        &format!("%0 = conv %x, %w {t}\n%1 = conv %x, %w {t}\n%2 = add %0, %1 {t}\n%3 = mul %2, %c {t}"),
        &region,
        "there are two parents, `conv_3` and `conv_4`",
    );
    ok(&format!("%0 = conv %x, %w {t}\n%1 = mul %0, %c {t}"), &region, &["mul", "conv"]);
}

#[test]
fn roots_are_known_for_tables_of_rules() {
    assert_eq!(either([is::<Relu>(), is::<Exp>()]).roots().map(|r| r.len()), Some(2));
    assert!(either([is::<Relu>(), any()]).roots().is_none());
}

#[test]
fn the_printed_form_is_read() {
    for text in [
        "*",
        "sub(1, relu(param))",
        "add{x, const}",
        "w:const",
        "conv(*, const, ..)[group=1]",
        "relu(..)[f32][used once]",
        "relu(*)[rank 4][shape 1x4x?x4]",
        "(sigmoid(..) | relu(..))",
        "relu?(add{matmul(x, w:const), bias:const})",
        "split(..).1",
        "f(x, ~1.4142)",
        "conv(..) => relu(..)* => mul{*, const}",
        "clip(x, -0.5)",
    ] {
        assert_eq!(Pattern::parse(text).unwrap_or_else(|e| panic!("{e}")).to_string(), text);
    }
    let reads = |text: &str| Pattern::parse(text).expect("a pattern");
    ok(ADD_ONE, &reads("add(1, relu(param)[rank 4, float])"), &["add", "relu"]);
    ok(ADD_ONE, &reads("add{relu(*), 1}"), &["add", "relu"]);
    ok(ADD_ONE, &reads("add(relu(*), 1)"), &["add", "relu"]);
    assert_eq!(reads("add(x, 1)").to_string(), "add{x, 1}");
    miss("%0 = relu %x : f32[1,4,2,4]", &reads("relu(param)[rank 3]"), "`relu_3` is not [rank 3]");
    let conv = "%0 = conv %x, %w {group=1} : f32[1,4,2,4]";
    ok(conv, &reads("conv(*, const)[group=1]"), &["conv"]);
    miss(conv, &reads("conv(*, const)[group=2]"), "`conv_3` is not [group=2]");
}

#[test]
fn what_is_no_pattern_has_a_place() {
    for (text, why) in [
        ("mul(x, sigmod(x))", "there is no op `sigmod`"),
        ("relu(x", "expected `)`, found the end"),
        ("relu(x) y", "expected the end of the pattern"),
        ("relu(x)[grup=1]", "has no attribute `grup`"),
        ("relu(x)[positive]", "there is no test `positive` that has a text"),
        ("x[group=1]", "an attribute belongs to an op"),
        ("relu?(..)", "needs a first operand"),
        ("conv(..) => relu(..) => mul(..)", "expected `*`"),
        ("relu(x)[shape 1x]", "a shape is sizes joined by `x`"),
    ] {
        let error = Pattern::parse(text).expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let deep = "relu(".repeat(100_000);
    assert!(Pattern::parse(&deep).expect_err("too deep").to_string().contains("nested deeper"));
}
