//! What the proofs alone say, where a run of the kernel would hide a proof that is missing.

use super::digits::divide_in_steps;
use super::owner::flat_sum;
use super::sharing::unproved;
use super::view::View;
use super::{bounds, coverage};
use crate::int::{Bounds, Int};
use crate::name::Name;
use crate::text::parse_tensor_function;
use crate::tir::TensorFunction;

fn parsed(text: &str) -> TensorFunction {
    parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A kernel of `group_x` and `local_x` loops around `body`, with local buffers.
fn kernel(locals: &str, body: &str) -> TensorFunction {
    let loops = "group_x for a in 0..8 { local_x for b in 0..12 {";
    let interface = "%x: f32[8,12], %i: i32[12], out %y: f32[8,12]";
    parsed(&format!("tensor @f({interface}) {{\n{locals}\n  kernel k {{ {loops} {body} }} }} }}\n}}\n"))
}

/// The violations of a function are these, each as `culprit: message`.
#[track_caller]
fn open(f: &TensorFunction, expected: &[&str]) {
    let found: Vec<String> = unproved(f).iter().map(|v| format!("{}: {}", v.culprit, v.message)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_race_names_the_axis() {
    let shared = "buffer %s: f32[12] shared";
    let race = |who: &str, what: &str| format!("s: the {who} the same elements of {what} memory: they would race");
    let store = "store different values to";
    let y = "block y { %y[a, b] <- %s[b] }";
    open(
        &kernel(shared, &format!("block s {{ %s[0] <- %x[a, b] }} {y}")),
        &[&race(&format!("threads along x {store}"), "`s`, which is workgroup")],
    );
    open(
        &kernel(shared, &format!("vectorize for v in 0..4 {{ block s {{ %s[b] <- %x[a, v] }} }} {y}")),
        &[&race(&format!("lanes of `v` {store}"), "`s`, which is workgroup")],
    );
    open(
        &kernel("buffer %t: f32[12] global", "block s { %t[b] <- %x[a, b] } block y { %y[a, b] <- %x[a, b] }"),
        &[&race(&format!("workgroups along x {store}"), "`t`, which is device")],
    );
    open(
        &kernel(shared, &format!("block s reduce sum {{ %s[0] <- %x[a, b] }} {y}")),
        &[&race("threads along x reduce into", "`s`, which is workgroup")],
    );
}

#[test]
fn a_statement_reads_only_what_it_stores() {
    let with = |index: &str| {
        let body = format!(
            "block s {{ %s[b] <- %x[a, b] }} block t {{ %s[b] <- %s[{index}] + 1.0 }} block y {{ %y[a, b] <- %s[b] }}"
        );
        kernel("buffer %s: f32[12] shared", &body)
    };
    open(&with("11 - b"), &["t: reads elements of `s` that other threads store in the same statement"]);
    open(&with("b"), &[]);
}

#[test]
fn nested_loops_of_one_axis_run_where_they_agree() {
    let nested = |extent: i64, load: &str| {
        let body = format!("group_x for c in 0..{extent} {{ block t {{ %t[c, b] <- %x[{load}, b] }} }}");
        kernel("buffer %t: f32[16,12] global", &format!("{body} block y {{ %y[a, b] <- %x[a, b] }}"))
    };
    open(&nested(4, "c"), &[]);
    open(&nested(8, "c"), &[]);
    open(&nested(16, "c % 8"), &["c: has more iterations than `a` around it, which runs along the same axis"]);
    open(&nested(4, "a"), &["c: runs along the same axis as `a` around it, on which block `t` depends"]);
}

#[test]
fn fragments_belong_to_a_whole_subgroup() {
    let with = |threads: i64| {
        parsed(&format!(
            "tensor @f(%x: f32[8,8], out %y: f32[8,8]) {{\n  buffer %m: f32[8,8] fragment(c)\n  kernel k {{ \
             local_x for t in 0..{threads} {{ for i in 0..8 {{ for j in 0..8 {{ block m {{ %m[i, j] <- %x[i, j] }} }} }} }} \
             for p in 0..8 {{ for q in 0..8 {{ block y {{ %y[p, q] <- %x[p, q] }} }} }} }}\n}}\n"
        ))
    };
    open(&with(1), &[]);
    open(&with(32), &["m: `m` is fragment memory, which the threads of `t` do not share out"]);
}

#[test]
fn values_of_threads_are_followed_through_buffers_against_the_order_of_statements() {
    let locals = "buffer %s: f32[1] shared\n buffer %p: f32[1] register\n buffer %q: f32[1] register";
    let with = |load: &str| {
        let body = "block s { %s[0] <- %p[0] } block p { %p[0] <- %q[0] }";
        let q = format!("block q {{ %q[0] <- %x[a, {load}] }}");
        kernel(locals, &format!("for k in 0..2 {{ {body} {q} }} block y {{ %y[a, b] <- %s[0] }}"))
    };
    open(&with("k"), &[]);
    open(
        &with("b"),
        &[
            "s: the threads along x store different values to the same elements of `s`, which is workgroup memory: they would race",
        ],
    );
}

/// Registers that two nests of threads use.
fn registers(size: i64, body: &str) -> TensorFunction {
    parsed(&format!(
        "tensor @f(%x: f32[8,12], out %y: f32[8,12]) {{\n  buffer %r: f32[{size}] register\n  \
         kernel k {{ group_x for a in 0..8 {{ {body} }} }}\n}}\n"
    ))
}

#[test]
fn threads_read_registers_of_their_own() {
    let parts = |load: &str| {
        registers(
            12,
            &format!(
                "local_x for b in 0..12 {{ block r {{ %r[b] <- %x[a, b] }} }} local_x for c in 0..12 {{ block y {{ %y[a, c] <- %r[{load}] }} }}"
            ),
        )
    };
    open(&parts("c"), &[]);
    open(
        &parts("11 - c"),
        &["y: `r` is register memory, and the threads along x each store a part of it: others do not see that part"],
    );
    // All threads store alike what one loop of them reads.
    open(&registers(1, "block r { %r[0] <- %x[a, 0] } local_x for c in 0..12 { block y { %y[a, c] <- %r[0] } }"), &[]);
}

#[test]
fn conditions_set_threads_apart() {
    let store = "local_x for b in 0..4 { block r { %r[0] <- %x[a, b] } }";
    let rest = |first: i64| {
        format!(
            "local_x for c in 0..12 {{ block q where (c >= 4) {{ %r[0] <- %x[a, c] }} block y where (c >= {first}) {{ %y[a, c] <- %r[0] }} }}"
        )
    };
    open(&registers(1, &format!("{store} {}", rest(4))), &[]);
    let part = "`r` is register memory, and the threads along x each store a part of it: others do not see that part";
    open(&registers(1, &format!("{store} {}", rest(3))), &[&format!("y: {part}")]);
    // No thread has stored what these read.
    let unstored = "local_x for c in 0..12 { block y where (c >= 4) { %y[a, c] <- %r[0] } }";
    open(&registers(1, &format!("{store} {unstored}")), &[&format!("y: {part}")]);
}

#[test]
fn workgroups_rely_on_none_that_does_not_store() {
    let with = |groups: i64, load: &str| {
        parsed(&format!(
            "tensor @f(%x: f32[8,12], out %y: f32[8,12]) {{\n  buffer %t: f32[12] global\n  kernel k {{ \
             group_x for g in 0..{groups} {{ local_x for c in 0..12 {{ block t {{ %t[c] <- %x[0, c] }} }} }} \
             group_x for a in 0..8 {{ local_x for b in 0..12 {{ block y {{ %y[a, b] <- %t[{load}] }} }} }} }}\n}}\n"
        ))
    };
    open(&with(8, "11 - b"), &[]);
    open(&with(4, "b"), &["y: reads elements of `t` that others of the workgroups along x store"]);
}

#[test]
fn a_buffer_lives_anew_in_each_iteration_around_it() {
    let with = |stored: &str| {
        let body = format!("block s {{ %s[{stored}] <- %x[a, b] }} block y {{ %y[a, b] <- %s[{stored}] }}");
        kernel("buffer %s: f32[16] shared", &format!("for k in 0..4 {{ {body} }}"))
    };
    open(&with("k + b"), &[]);
    assert!(!unproved(&with("k + b/2")).is_empty());
}

/// An index of no form of digits is proved by all its values.
#[test]
fn few_values_are_tried() {
    let with = |index: &str| {
        let body = format!("block s {{ %s[{index}] <- %x[a, b] }} block y {{ %y[a, b] <- %s[{index}] }}");
        kernel("buffer %s: f32[12] shared", &body)
    };
    open(&with("(b*5) % 12"), &[]);
    assert!(!unproved(&with("(b*4) % 12")).is_empty());
}

/// Whether each access of a function is proved to be inside.
#[track_caller]
fn inside(body: &str, expected: Option<&str>) {
    let f = kernel("", body);
    let found = View::all(&f).iter().find_map(bounds::outside).map(|o| o.message);
    assert_eq!(found.as_deref(), expected, "{body}");
}

#[test]
fn conditions_of_selects_are_evaluated_in_order() {
    let y = |conditions: &str| format!("block y {{ %y[a, b] <- select(all({conditions}), %x[a, b], 0.0) }}");
    inside(&y("%i[b] < 3"), None);
    inside(&y("%i[b + 1] < 3"), Some("index b + 1 is not inside of `i` with shape [12]"));
    inside(&y("b < 11, %i[b + 1] < 3"), None);
    inside(&y("%i[b + 1] < 3, b < 11"), Some("index b + 1 is not inside of `i` with shape [12]"));
}

#[test]
fn where_a_condition_fails_the_opposite_holds() {
    let y = |conditions: &str, index: &str| {
        format!("block y {{ %y[a, b] <- select(all({conditions}), %x[a, b], %x[a, {index}]) }}")
    };
    inside(&y("b < 4", "b - 4"), None);
    inside(&y("b < 4", "b - 5"), Some("index b - 5 is not inside of `x` with shape [8, 12]"));
    inside(&y("b >= 4", "b + 8"), None);
    inside(&y("b >= 4", "b + 9"), Some("index b + 9 is not inside of `x` with shape [8, 12]"));
    inside(&y("b < 4, a < 3", "b - 4"), Some("index b - 4 is not inside of `x` with shape [8, 12]"));
    inside(&y("b == 4", "b - 1"), Some("index b - 1 is not inside of `x` with shape [8, 12]"));
}

#[test]
fn stores_and_loads_of_one_row_are_of_its_workgroup() {
    let body = |row: &str| format!("block t {{ %t[a, b] <- %x[a, b] }} block y {{ %y[a, b] <- %t[{row}, 11 - b] }}");
    open(&kernel("buffer %t: f32[8,12] global", &body("a")), &[]);
    open(
        &kernel("buffer %t: f32[8,12] global", &body("7 - a")),
        &["y: reads elements of `t` that others of the workgroups along x store"],
    );
}

#[test]
fn quotients_and_minima_are_inside() {
    for (index, is_inside) in
        [("(a*12 + b)/12", true), ("min(a*2, 7)", true), ("max(a, 7)", true), ("max(a*2, 7)", false)]
    {
        let message = format!("index {index} is not inside of `x` with shape [8, 12]");
        let f = kernel("", &format!("block y {{ %y[a, b] <- %x[{index}, b] }}"));
        let found = View::all(&f).iter().find_map(bounds::outside);
        assert_eq!(found.is_none(), is_inside, "{message}");
    }
}

/// What the results of a function lack: the message, and whether it could be complete.
fn gap(f: &TensorFunction) -> Option<(String, bool)> {
    coverage::check(f, &View::all(f)).err().map(|g| (g.message, g.undecided))
}

/// `y[store] = x[0]` for `n` iterations of the loop `i`; sizes are open.
fn open_sizes(store: &str) -> TensorFunction {
    parsed(&format!(
        "tensor @f(%x: f32[n], out %y: f32[n]) {{\n  symbol n in 1..=100\n  for i in 0..n {{ block y {{ %y[{store}] <- %x[0] }} }}\n}}\n"
    ))
}

#[test]
fn open_sizes_are_stored_whole() {
    assert_eq!(gap(&open_sizes("i")), None);
    let (message, undecided) = gap(&open_sizes("n - 1 - i")).expect("no proof");
    assert!(undecided && message.ends_with("its size is not known"), "{message}");
    assert!(gap(&open_sizes("i + 1")).is_some());
    let quotient = "tensor @f(%x: f32[n*m], out %y: f32[n*m,2]) {
  symbol n in 1..=64
  symbol m in 1..=64
  for i in 0..n*m*2 + 9 { block y where (i < n*m*2) { %y[i/2, i % 2] <- %x[i/2] } }
}";
    assert!(View::all(&parsed(quotient)).iter().all(|v| bounds::outside(v).is_none()));
}

#[test]
fn what_instructions_made_is_counted_at_the_least_open_sizes() {
    let made = |store: &str| coverage::check_made(&open_sizes(store), &View::all(&open_sizes(store)), &open_sizes("i"));
    assert!(made("n - 1 - i").is_ok());
    let gap = made("(n - 1 - i)/2").expect_err("two stores of an element");
    assert!(gap.message.contains("element"), "{}", gap.message);
}

/// Stores of no form of digits are counted under their conditions.
#[test]
fn conditions_decide_which_stores_are_counted() {
    let with = |op: &str, size: i64| {
        let text = format!(
            "tensor @f(%x: f32[13], out %y: f32[{size}]) {{\n  for i in 0..13 {{ block y where (i*5 % 13 {op}) {{ %y[i*5 % 13 % {size}] <- %x[i] }} }}\n}}\n"
        );
        gap(&parsed(&text))
    };
    assert_eq!(with("< 12", 12), None);
    assert_eq!(with("< 13", 13), None);
    assert!(with("< 13", 12).is_some_and(|g| g.0.contains("element [0]") && g.0.contains("stored 2 times")));
    assert!(with("< 11", 12).is_some_and(|g| g.0.contains("element [11]") && g.0.contains("never stored")));
}

fn ints(texts: &[&str], shape: &str) -> Vec<Int> {
    let f = parsed(&format!(
        "tensor @f(%x: f32[1], out %y: f32[{shape}]) {{\n  for g in 0..85 {{ for t in 0..128 {{ block y {{ %y[{}] <- %x[0] }} }} }}\n}}\n",
        texts.join(", ")
    ));
    f.body.blocks()[0].indices.clone()
}

#[test]
fn quotients_in_steps_have_the_same_values() {
    let list = [
        "(g*128 + t)/832",
        "(g*128 + t)/832 + (t*6 + g)/12",
        "(g*128 + t)/832*3",
        "7 - (g*128 + t)/832",
        "(g*4 + t/32) % 14",
        "(g*128 + t) % 832 + (t*6 + g)/12",
    ];
    for (text, i) in list.iter().zip(ints(&list, "99,99,99,99,99,99")) {
        let stepwise = divide_in_steps(&i);
        assert_ne!(stepwise, i, "{text}");
        for (g, t) in (0..85).flat_map(|g| [0, 1, 31, 63, 64, 127].map(|t| (g, t))) {
            let at = |e: &Int| e.eval(&|v| Some(if v == Name::new("g") { g } else { t }));
            assert_eq!(at(&stepwise), at(&i), "{text} at {g}, {t}: {stepwise:?}");
        }
    }
}

/// Rows of an image by threads that have parts of them: the quotient and the remainder of a row have other divisors.
#[test]
fn parts_of_rows_are_told_apart() {
    let index = "(g*128 + t)/448, (g*4 + t/32) % 14, t % 32 * 4 + v";
    let loops = "group_x for g in 0..49 { local_x for t in 0..128 { vectorize for v in 0..4 {";
    let text = format!(
        "tensor @f(%x: f32[6272], out %y: f32[14,14,128]) {{
  kernel k {{ {loops} block y {{ %y[{index}] <- %x[g*128 + t] }} }} }} }} }}
}}"
    );
    open(&parsed(&text), &[]);
}

#[test]
fn a_sum_is_known_from_its_quotients_and_remainders() {
    let known = |indices: &[&str], shape: &[i64], high: i64| {
        let mut bounds = Bounds::new();
        bounds.insert("t".into(), 0, high);
        let shape: Vec<Int> = shape.iter().map(|n| Int::new(*n)).collect();
        flat_sum(&ints(indices, &vec!["99"; indices.len()].join(",")), &shape, &bounds)
    };
    let t = || Some(Int::var(Name::new("t")));
    // The quotient holds all the rest.
    assert_eq!(known(&["t/8", "t % 8"], &[2, 8], 99), t());
    // A remainder alone tells the sum below the size.
    assert_eq!(known(&["t % 8"], &[8], 7), t());
    assert_eq!(known(&["t % 8"], &[8], 9), None);
    assert_eq!(known(&["t/8 % 2", "t % 8"], &[2, 8], 16), None);
}

#[test]
fn every_value_of_a_loop_is_tried() {
    let body = "block s { %s[b*5 % 11] <- %x[a, b] } block y { %y[a, b] <- %s[b*5 % 11] }";
    assert!(!unproved(&kernel("buffer %s: f32[11] shared", body)).is_empty());
}

#[test]
fn accesses_of_different_strides_are_of_different_threads() {
    let f = registers(
        24,
        "local_x for b in 0..12 { block r { %r[b*2] <- %x[a, b] } } local_x for c in 0..12 { block y { %y[a, c] <- %r[c] } }",
    );
    open(
        &f,
        &["y: `r` is register memory, and the threads along x each store a part of it: others do not see that part"],
    );
}

/// Too many values to be tried: the digits of the divided sums tell the thread, beside a sum that nothing divides.
#[test]
fn only_divided_sums_are_numbers_of_digits() {
    let text = "tensor @f(%x: f32[1], out %y: f32[8,1024]) {
  buffer %r: f32[16,700,3] register
  kernel k { group_x for a in 0..8 {
    local_x for b in 0..1024 { for v in 0..16 { for z in 0..2 { block r { %r[v, (b*2 + z)/3, (b*2 + z) % 3] <- %x[0] } } } }
    local_x for c in 0..1024 { for p in 0..8 { for q in 0..8 { for w in 0..2 { block y { %y[a, c] <- %r[p + q, (c*2 + w)/3, (c*2 + w) % 3] } } } } }
  } }
}";
    open(&parsed(text), &[]);
}
