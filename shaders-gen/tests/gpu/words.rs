//! Products of packed words of bytes, over the whole range of bytes, compared with the host executor.

use crate::device::gpu;
use crate::run_bytes;
use compiler::compile::assign_encodings;
use compiler::dtype::DType;
use compiler::int::const_dims;
use compiler::interpreter::run_tensor_function;
use compiler::profile::DeviceProfile;
use compiler::schedule::ScheduleOptions;
use compiler::schedule::rules::{Choice, Scheduled, choices, schedule, schedule_with};
use compiler::tensor::Tensor;
use compiler::text::parse_tensor_function;
use compiler::tir::{BufferId, TensorFunction};

fn function(text: &str) -> TensorFunction {
    parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}\n{text}")).canonical()
}

fn product(t: DType, m: i64, n: i64, k: i64) -> TensorFunction {
    function(&format!(
        "tensor @mm(%a: {t}[{m},{k}], %b: {t}[{k},{n}], out %y: i32[{m},{n}]) {{
  for i in 0..{m} {{ for j in 0..{n} {{ for k in 0..{k} {{
    block y reduce sum init {{ %y[i, j] <- i32(%a[i, k]) * i32(%b[k, j]) }}
  }} }} }}
}}"
    ))
}

/// A zero point stands in the padding; channels lie next to each other or apart.
fn convolution(h: i64, c: i64, o: i64, last: bool) -> TensorFunction {
    let (shape, at) = match last {
        true => (format!("1,{h},{h},{c}"), "n, p + r - 1, q + s - 1, c"),
        false => (format!("1,{c},{h},{h}"), "n, c, p + r - 1, q + s - 1"),
    };
    function(&format!(
        "tensor @conv(%x: i8[{shape}], %w: i8[{o},{c},3,3], out %y: i32[1,{h},{h},{o}]) {{
  for n in 0..1 {{ for p in 0..{h} {{ for q in 0..{h} {{ for o in 0..{o} {{ for r in 0..3 {{ for s in 0..3 {{ for c in 0..{c} {{
    block y reduce sum init {{ %y[n, p, q, o] <- select(all(p + r - 1 >= 0, q + s - 1 >= 0, p + r - 1 < {h}, q + s - 1 < {h}), i32(%x[{at}]), -77:i32) * i32(%w[o, c, r, s]) }}
  }} }} }} }} }} }} }}
}}"
    ))
}

/// Any byte.
fn bytes(f: &TensorFunction, b: BufferId, salt: usize) -> Tensor {
    let (t, shape) = (f.buffers[b].dtype, const_dims(&f.buffers[b].shape).expect("constant"));
    let n = shape.iter().product::<usize>();
    let value = |i: usize| (i * (37 + 2 * salt) + i / 13 + 11) as u8;
    let of = |i| if t == DType::I8 { f64::from(value(i) as i8) } else { f64::from(value(i)) };
    Tensor::from_f64(t, shape, (0..n).map(of))
}

/// Checks `matmul-dot`, and with `every` everything else that it may; `constant` weights are packed.
fn check(what: &str, original: &TensorFunction, constant: bool, every: bool) -> usize {
    check_rules(&["matmul-dot"], what, original, (constant, every))
}

/// The same for the first of these rules.
fn check_rules(rules: &[&str], what: &str, original: &TensorFunction, (constant, every): (bool, bool)) -> usize {
    let (profile, asked) = (gpu().profile.clone(), ScheduleOptions::of_rules(rules.iter().copied()));
    let target = asked.on(&profile);
    let mut f = original.clone();
    assign_encodings(&mut f, &profile).unwrap_or_else(|e| panic!("{what}: {e}"));
    let inputs: Vec<BufferId> = f.inputs().collect();
    let tensors: Vec<Tensor> = inputs.iter().enumerate().map(|(i, b)| bytes(&f, *b, i)).collect();
    let want = run_tensor_function(original, &tensors).expect("the host runs it").remove(0).to_i64_vec();
    let constants = if constant { &inputs[1..] } else { &[] };
    let first = schedule(&f, constants, target).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(first.rule, rules[0], "{what}: {:?}", first.declined);
    agrees(what, &first, (&inputs, &tensors), &want, &profile);
    let mut tried = 0;
    if !every {
        return tried;
    }
    for c in choices(&first.function.trace).into_iter().filter(|c| !["rule", "function"].contains(&c.point.as_str())) {
        for value in &c.of {
            let one = Choice { unit: c.unit, point: c.point, value: value.clone() };
            let s = schedule_with(&f, constants, target, &[one]).unwrap_or_else(|e| panic!("{what}: {e}"));
            agrees(what, &s, (&inputs, &tensors), &want, &profile);
            tried += 1;
        }
    }
    tried
}

fn agrees(
    what: &str,
    s: &Scheduled,
    (inputs, tensors): (&[BufferId], &[Tensor]),
    want: &[i64],
    profile: &DeviceProfile,
) {
    let memory: Vec<(BufferId, Vec<u8>)> = inputs
        .iter()
        .zip(tensors)
        .map(|(b, x)| match s.function.prepacks.iter().find(|p| p.buffer == *b) {
            Some(p) => {
                (*b, run_tensor_function(&p.packer, std::slice::from_ref(x)).expect("packs")[0].bytes().to_vec())
            }
            None => (*b, x.bytes().to_vec()),
        })
        .collect();
    let out = s.function.outputs().next().expect("an output");
    for (name, _) in s.function.kernels() {
        let k = shaders_gen::emit_kernel(&s.function, name, profile).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(k.bounds_proved, "{what}: {}", k.wgsl);
        assert!(k.wgsl.contains("Packed("), "{what}: one operation multiplies a word\n{}", k.wgsl);
    }
    let got = run_bytes(&s.function, profile, &memory, out);
    let got: Vec<i64> = got[..4 * want.len()]
        .chunks_exact(4)
        .map(|c| i64::from(i32::from_le_bytes(c.try_into().expect("4 bytes"))))
        .collect();
    assert_eq!(got, want, "{what}");
}

#[test]
fn products_of_words() {
    assert!(check("product", &product(DType::I8, 37, 21, 43), false, true) >= 5);
    for t in [DType::I8, DType::U8] {
        for (m, n, k) in [(16, 16, 16), (20, 70, 64)] {
            check("product", &product(t, m, n, k), false, false);
            check("product with packed weights", &product(t, m, n, k), true, false);
        }
    }
}

#[test]
fn few_rows_of_words() {
    // The second rule says that words are multiplied, on a device that would rather not.
    let rules = ["matmul-vector", "matmul-dot"];
    let check = |(t, [m, n, k]): (DType, [i64; 3]), every: bool| {
        let f = product(t, m, n, k);
        check_rules(&rules, &format!("{m} rows, {n} columns, depth {k}"), &f, (true, every))
    };
    assert!(check((DType::I8, [1, 21, 1040]), true) >= 9);
    for t in [DType::I8, DType::U8] {
        for size in [[1, 16, 64], [3, 70, 112], [8, 12, 2048]] {
            check((t, size), false);
        }
    }
}

#[test]
fn convolutions_of_words() {
    check("channels last", &convolution(7, 8, 12, true), true, true);
    for (h, c, o) in [(5, 3, 20), (7, 6, 9)] {
        check("channels last", &convolution(h, c, o, true), true, false);
        check("channels first", &convolution(h, c, o, false), true, false);
    }
}
