use super::*;
use crate::interpreter::run_function;
use crate::passes::{CombineParallelConv, CombineParallelMatmul, Pass, run_pass};
use crate::text::{parse_module, random_tensor};

/// Combines the siblings of a body over `%x`; checks the ops that are left, and that the results agree.
fn check(pass: &dyn Pass, x: &str, results: &str, body: &str, left: &[&str]) -> Vec<String> {
    let lines: Vec<String> = body.lines().map(|l| format!("  {}\n", l.trim())).collect();
    let text = format!(
        "const @w0 : f32[4,2,1,1] = random(1)\nconst @w1 : f32[6,2,1,1] = random(2)\nconst @w3 : f32[4,2,3,3] = random(3)\n\
         const @b0 : f32[4] = random(4)\nconst @b1 : f32[6] = random(5)\nconst @m0 : f32[2,3] = random(6)\n\
         const @m1 : f32[2,3] = random(7)\nconst @m2 : f32[2,5] = random(8)\nconst @v0 : f32[3] = random(9)\n\
         const @v1 : f32[3] = random(10)\nconst @v2 : f32[5] = random(11)\nconst @k : f32[] = [0.5]\n\
         graph @main(%x: f32[{x}]) -> ({results}) {{\n  %w0 = const @w0\n  %w1 = const @w1\n  %w3 = const @w3\n  \
         %b0 = const @b0\n  %b1 = const @b1\n  %m0 = const @m0\n  %m1 = const @m1\n  %m2 = const @m2\n  %v0 = const @v0\n  \
         %v1 = const @v1\n  %v2 = const @v2\n  %k = const @k\n{}}}\n",
        lines.concat()
    );
    let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let ty = m.main().ty(m.main().params()[0]).clone();
    let x = random_tensor(ty.dtype, &ty.const_shape().unwrap(), 5);
    let want = run_function(&m, m.entry, std::slice::from_ref(&x)).unwrap();
    let mut cx = PassContext::default();
    run_pass(pass, &mut m, &mut cx).unwrap();
    let f = m.main();
    let ops: Vec<_> = f.walk().iter().map(|&n| f.nodes[n].op.name()).filter(|&o| o != "const").collect();
    assert_eq!(ops, left, "{text}\n{:?}", cx.remarks);
    let got = run_function(&m, m.entry, &[x]).unwrap();
    for (g, w) in got.iter().zip(&want) {
        assert_eq!(g.shape(), w.shape());
        for (a, b) in g.to_f32_vec().iter().zip(&w.to_f32_vec()) {
            assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{text}: {g:?} {w:?}");
        }
    }
    cx.remarks.iter().map(|r| r.message.clone()).collect()
}

fn products(always: bool) -> CombineParallelMatmul {
    CombineParallelMatmul { always, ..Default::default() }
}
fn convs(always: bool) -> CombineParallelConv {
    CombineParallelConv { always, ..Default::default() }
}

const TWO_CONVS: &str = "%0 = conv %x, %w0, %b0 : f32[1,4,5,5]\n%1 = conv %x, %w1, %b1 : f32[1,6,5,5]\n%2 = relu %0 : f32[1,4,5,5]\n\
                         %3 = relu %1 : f32[1,6,5,5]\n%4 = exp %2 : f32[1,4,5,5]\n%5 = neg %3 : f32[1,6,5,5]\nreturn %4, %5";

#[test]
fn convolutions_with_what_is_equal_behind_them() {
    let results = "a: f32[1,4,5,5], b: f32[1,6,5,5]";
    check(&convs(true), "1,2,5,5", results, TWO_CONVS, &["conv", "relu", "split", "exp", "neg"]);
    let remarks = check(&convs(false), "1,2,5,5", results, TWO_CONVS, &["conv", "conv", "relu", "relu", "exp", "neg"]);
    assert!(remarks[0].contains("stay apart: it takes") && remarks[0].contains("read slices"), "{remarks:?}");
    // Another kernel, another stride, a group: no siblings.
    let other = "%0 = conv %x, %w0 {pads=[1,1,1,1]} : f32[1,4,7,7]\n%1 = conv %x, %w3 {pads=[2,2,2,2]} : f32[1,4,7,7]\nreturn %0, %1";
    assert!(check(&convs(true), "1,2,5,5", "a: f32[1,4,7,7], b: f32[1,4,7,7]", other, &["conv", "conv"]).is_empty());
}

const ATTENTION: &str = "%0 = matmul %x, %m0 : f32[1,7,3]\n%1 = add %0, %v0 : f32[1,7,3]\n%2 = transpose %1 {perm=[1,0,2]} : f32[7,1,3]\n\
                         %3 = matmul %x, %m1 : f32[1,7,3]\n%4 = add %3, %v1 : f32[1,7,3]\n%5 = transpose %4 {perm=[1,2,0]} : f32[7,3,1]\n\
                         %6 = matmul %x, %m2 : f32[1,7,5]\n%7 = add %6, %v2 : f32[1,7,5]\n%8 = reshape %7 {shape=[7,5]} : f32[7,5]\n\
                         %9 = transpose %8 {perm=[1,0]} : f32[5,7]\nreturn %2, %5, %9";

#[test]
fn queries_keys_and_values_pay() {
    let results = "q: f32[7,1,3], k: f32[7,3,1], v: f32[5,7]";
    let left = ["matmul", "add", "split", "transpose", "transpose", "reshape", "transpose"];
    let remarks = check(&products(false), "1,7,2", results, ATTENTION, &left);
    assert!(remarks[0].contains("became one: it takes 3.") && remarks[0].contains("us, apart 9."), "{remarks:?}");
}

#[test]
fn gemms_keep_their_attributes_and_addends() {
    let body = "%0 = gemm %x, %m0, %v0 {alpha=0.5} : f32[7,3]\n%1 = gemm %x, %m2, %v2 {alpha=0.5} : f32[7,5]\n\
                %2 = mul %0, %k : f32[7,3]\n%3 = mul %1, %k : f32[7,5]\nreturn %2, %3";
    check(&products(true), "7,2", "a: f32[7,3], b: f32[7,5]", body, &["gemm", "mul", "split"]);
    let mixed = body.replacen("alpha=0.5", "alpha=2.0", 1);
    check(&products(true), "7,2", "a: f32[7,3], b: f32[7,5]", &mixed, &["gemm", "gemm", "mul", "mul"]);
}

#[test]
fn bindings_limit_the_width() {
    let text = "const @a : f32[64,600] = random(1)\nconst @b : f32[64,600] = random(2)\ngraph @main(%x: f32[2,64]) -> (p: f32[600,2], q: f32[600,2]) \
                {\n  %a = const @a\n  %b = const @b\n  %0 = matmul %x, %a : f32[2,600]\n  %1 = transpose %0 : f32[600,2]\n  \
                %2 = matmul %x, %b : f32[2,600]\n  %3 = transpose %2 : f32[600,2]\n  return %1, %3\n}\n";
    let mut m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let profile = DeviceProfile { max_binding: 200_000, ..DeviceProfile::baseline() };
    let mut cx = PassContext::new(profile);
    run_pass(&products(false), &mut m, &mut cx).unwrap();
    let remark = &cx.remarks[0].message;
    assert!(
        remark.contains("weights of 307200 bytes would take 2 bindings, the largest of theirs takes 1"),
        "{remark}"
    );
}

#[test]
fn packed_weights_are_joined_as_they_are_packed() {
    let text = "
const @p : u32[6,1] = random(1)
const @ps : f32[6,1] = random(2)
const @q : u32[10,1] = random(3)
const @qs : f32[10,1] = random(4)
graph @main(%x: f32[1,8]) -> (a: f32[6,1], b: f32[10,1]) {
  %p = const @p
  %ps = const @ps
  %q = const @q
  %qs = const @qs
  %0 = dequantize_blocks %p, %ps {block=8, size=8}
  %1 = transpose %0 {perm=[1,0]}
  %2 = matmul %x, %1
  %3 = dequantize_blocks %q, %qs {block=8, size=8}
  %4 = transpose %3 {perm=[1,0]}
  %5 = matmul %x, %4
  %6 = transpose %2
  %7 = transpose %5
  return %6, %7
}
";
    let m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let x = random_tensor(crate::dtype::DType::F32, &[1, 8], 5);
    let want = run_function(&m, m.entry, std::slice::from_ref(&x)).unwrap();
    let mut joined = m.clone();
    let mut cx = PassContext::default();
    run_pass(&products(false), &mut joined, &mut cx).unwrap();
    let f = joined.main();
    let left: Vec<_> = f.walk().into_iter().filter(|&n| f.nodes[n].op.name() == "matmul").collect();
    assert_eq!(left.len(), 1, "{:?}", cx.remarks);
    let weights = f.nodes[left[0]].inputs[1].unwrap();
    assert_eq!(f.ty(weights).const_shape().unwrap(), [8, 16], "{:?}", cx.remarks);
    assert_eq!(run_function(&joined, joined.entry, std::slice::from_ref(&x)).unwrap(), want);
    // Blocks of another size are other weights.
    let other = text.replacen("{block=8, size=8}", "{block=4, size=8}", 1).replacen("f32[6,1]", "f32[6,2]", 1);
    let mut apart = parse_module(&other).unwrap_or_else(|e| panic!("{e}"));
    assert!(!run_pass(&products(true), &mut apart, &mut cx).unwrap());
}
