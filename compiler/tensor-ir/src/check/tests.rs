use crate::schedule::accept;
use crate::text::parse_tensor_function;

/// What is refused of the only function of a text.
fn refusal(text: &str) -> Option<String> {
    let mut f = parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    accept(&mut f).err().map(|e| e.message)
}

fn kernel(body: &str, locals: &str) -> String {
    format!("tensor @f(%x: f32[8,12], out %y: f32[8,12]) {{\n{locals}\n  kernel k {{ {body} }}\n}}\n")
}

#[track_caller]
fn refused(text: &str, why: &str) {
    let found = refusal(text).unwrap_or_else(|| panic!("accepted:\n{text}"));
    assert!(found.contains(why), "{found}");
}

#[track_caller]
fn accepted(text: &str) {
    assert_eq!(refusal(text), None, "{text}");
}

const LOOPS: &str = "group_x for a in 0..8 { local_x for b in 0..12";

#[test]
fn stores_of_one_statement_must_not_meet() {
    let shared = "buffer %s: f32[1] shared";
    refused(
        &kernel(&format!("{LOOPS} {{ block s {{ %s[0] <- %x[a, b] }} block y {{ %y[a, b] <- %s[0] }} }} }}"), shared),
        "threads 0 and 1",
    );
    // One value from all threads is no race.
    accepted(&kernel(
        &format!("{LOOPS} {{ block s {{ %s[0] <- %x[a, 3] }} block y {{ %y[a, b] <- %s[0] }} }} }}"),
        shared,
    ));
}

#[test]
fn a_statement_must_not_read_what_other_threads_store_in_it() {
    let shared = "buffer %s: f32[12] shared";
    let with = |index: &str| {
        kernel(
            &format!(
                "{LOOPS} {{ block s {{ %s[b] <- %x[a, b] }} block t {{ %s[b] <- %s[{index}] + 1.0 }} block y {{ %y[a, b] <- %s[b] }} }} }}"
            ),
            shared,
        )
    };
    refused(&with("11 - b"), "in the same statement");
    accepted(&with("b"));
}

#[test]
fn workgroups_must_not_read_each_other() {
    let scratch = "buffer %t: f32[8,12] global";
    let with = |row: &str| {
        kernel(
            &format!("{LOOPS} {{ block t {{ %t[a, b] <- %x[a, b] }} block y {{ %y[a, b] <- %t[{row}, 11 - b] }} }} }}"),
            scratch,
        )
    };
    refused(&with("7 - a"), "both touch");
    // Threads of one workgroup wait for each other between statements.
    accepted(&with("a"));
}

#[test]
fn accesses_stay_inside() {
    let with =
        |load: &str, store: &str| kernel(&format!("{LOOPS} {{ block y {{ %y[{store}] <- %x[{load}] }} }} }}"), "");
    refused(&with("a + 5, b", "a, b"), "outside of `x`");
    refused(&with("a, b", "a + 4, b"), "outside of `y`");
    accepted(&with("7 - a, b", "a, b"));
}

#[test]
fn every_element_is_stored_once() {
    let plain = |loops: &str, store: &str| {
        format!(
            "tensor @f(%x: f32[8,12], out %y: f32[8,12]) {{\n  {loops} {{ block y {{ %y[{store}] <- %x[0, 0] }} }} }}\n}}\n"
        )
    };
    refused(&plain("for a in 0..8 { for b in 0..6", "a, b"), "never stored");
    refused(&plain("for a in 0..8 { for b in 0..12", "a, b/2"), "times");
    accepted(&plain("for a in 0..8 { for b in 0..12", "7 - a, b"));
    accepted(&plain("for a in 0..2 { for b in 0..48", "a*4 + b/12, b % 12"));
    let again = "tensor @f(%x: f32[8,12], out %y: f32[8]) {\n  for a in 0..8 { for k in 0..12 { block y { %y[a] <- %x[a, k] } } }\n}\n";
    refused(again, "does not reduce");
}

#[test]
fn memory_is_stored_to_before_it_is_read() {
    let shared = "buffer %s: f32[12] shared";
    refused(&kernel(&format!("{LOOPS} {{ block y {{ %y[a, b] <- %s[b] }} }} }}"), shared), "nothing was stored to");
}

#[test]
fn quotients_and_remainders_of_a_loop_are_told_apart() {
    // Too large to be counted or interpreted: only a proof accepts it.
    let kernels = |row: &str| {
        let half = |n: i64| {
            let store = format!("%y[g{n}/{row}, g{n} % 32*16 + t{n}/8, t{n} % 8*4 + v{n} + {}] <- %x[g{n}]", n * 32);
            format!(
                "  kernel k{n} {{ group_x for g{n} in 0..16384 {{ local_x for t{n} in 0..128 {{ for v{n} in 0..4 {{ block y{n} {{ {store} }} }} }} }} }}\n"
            )
        };
        let interface = "%x: f32[16384], out %y: f32[512,512,64]";
        format!("tensor @f({interface}) {{\n{}{}}}\n", half(0), half(1))
    };
    accepted(&kernels("32"));
    refused(&kernels("64"), "is stored once is not proved");
}

#[test]
fn quotients_and_remainders_of_a_sum_tell_its_loops() {
    let unproved = |times: &str| {
        let sum = format!("(g*{times} + t)");
        let loops = "group_x for g in 0..79 { local_x for t in 0..16 { for v in 0..64";
        let store = format!("%y[{sum}/25, {sum} % 25, v] <- %x[g]");
        let block = format!("block y where ({sum} < 1250) {{ {store} }}");
        let text = format!(
            "tensor @f(%x: f32[79], out %y: f32[50,25,64]) {{\n  kernel k {{ {loops} {{ {block} }} }} }} }}\n}}\n"
        );
        let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        super::sharing::unproved(&f).len()
    };
    // The sum goes beyond the rows: what the digits say must do without the guard.
    assert_eq!(unproved("16"), 0);
    assert!(unproved("8") > 0);
}

#[test]
fn quotients_are_taken_in_steps_where_a_remainder_is_of_the_smaller_sum() {
    let unproved = |times: &str| {
        let store = format!("%y[(g*128 + t)/832, (g*{times} + t/64) % 13, t % 64] <- %x[g]");
        let text = format!(
            "tensor @f(%x: f32[85], out %y: f32[14,13,64]) {{\n  kernel k {{ group_x for g in 0..85 {{ local_x for t in 0..128 {{ \
             block y {{ {store} }} }} }} }}\n}}\n"
        );
        let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        super::sharing::unproved(&f).len()
    };
    assert_eq!(unproved("2"), 0);
    assert!(unproved("3") > 0);
}
