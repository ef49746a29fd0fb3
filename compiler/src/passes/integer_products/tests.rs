use super::*;
use crate::agreement::{Tolerance, agree};
use crate::interpreter::run_function;
use crate::passes::{Sequential, run_pass};
use crate::profile::DeviceProfile;
use crate::text::parse_module;
use proptest::prelude::*;

/// The module before and behind the pass, with what the pass said.
fn rewritten(text: &str) -> (Module, Module, String) {
    rewritten_for(DeviceProfile::named("ada").expect("a profile"), text)
}

fn rewritten_for(profile: DeviceProfile, text: &str) -> (Module, Module, String) {
    let before = parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut after = before.clone();
    let mut cx = PassContext::new(profile);
    run_pass(&IntegerProducts::default(), &mut after, &mut cx).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let said = cx.remarks.iter().map(|r| r.message.clone()).collect::<Vec<_>>().join("; ");
    Sequential::new(["eliminate-dead"]).run(&mut after, &mut cx).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (before, after, said)
}

/// Every byte of a type, in an order of the seed's.
fn bytes(t: DType, shape: &[usize], seed: u64) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| (i as u64 * (2 * seed + 37) + 11 * seed + i as u64 / 13) as u8;
    let of = |i| if t == DType::I8 { f64::from(value(i) as i8) } else { f64::from(value(i)) };
    Tensor::from_f64(t, shape.to_vec(), (0..n).map(of))
}

fn list(values: &[i64]) -> String {
    let words: Vec<String> = values.iter().map(i64::to_string).collect();
    format!("[{}]", words.join(", "))
}

/// A quantised convolution as `DequantizeLinear` around it makes it: weights `[5, 4, 3, 3]` with these zero points and
/// scales.
fn convolution(data: DType, weights: DType, zero: i64, zeros: &[i64], range: i64, bias: bool) -> String {
    let values: Vec<i64> =
        (0..180).map(|i| zeros[i / 36 % zeros.len()] + (i as i64 * 29) % range - range / 2).collect();
    let shape = if zeros.len() == 1 { "[]" } else { "[5,1,1,1]" };
    let scales = if zeros.len() == 1 { "[0.02]" } else { "[0.02, 0.01, 0.03, 0.5, 0.001]" };
    let zeros: Vec<String> = zeros.iter().map(|z| format!("{z}.0")).collect();
    format!(
        "const @w : {weights}[5,4,3,3] = {values}
const @zw : f32{shape} = [{zeros}]
const @sw : f32{shape} = {scales}
const @zx : f32[] = [{zero}.0]
const @sx : f32[] = [0.125]
const @b : f32[5] = [0.5, -1.0, 2.0, 0.0, 100.0]
graph @main(%x: {data}[2,4,6,7]) -> (y: f32[2,5,3,4]) {{
  %w = const @w
  %zw = const @zw
  %sw = const @sw
  %zx = const @zx
  %sx = const @sx
  %b = const @b
  %0 = cast %x {{to=f32}}
  %1 = sub %0, %zx
  %2 = mul %1, %sx
  %3 = cast %w {{to=f32}}
  %4 = sub %3, %zw
  %5 = mul %4, %sw
  %6 = conv %2, %5{} {{strides=[2,2], pads=[1,1,1,1]}} !from(\"Conv_0\")
  return %6
}}
",
        if bias { ", %b" } else { "" },
        values = list(&values),
        zeros = zeros.join(", "),
    )
}

fn products_of_bytes(m: &Module) -> usize {
    let f = m.main();
    let bytes = |n: &NodeId| {
        let node = &f.nodes[*n];
        let first = node.inputs.first().copied().flatten();
        (node.op.is::<Conv>() || node.op.is::<MatMul>()) && first.is_some_and(|v| f.ty(v).dtype == DType::I8)
    };
    f.walk().iter().filter(|n| bytes(n)).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn convolutions_keep_their_results(
        unsigned in any::<bool>(),
        unsigned_weights in any::<bool>(),
        zero in 0..256i64,
        zeros in prop::collection::vec(0..40i64, 5),
        channels in any::<bool>(),
        bias in any::<bool>(),
        seed in 0..1000u64,
    ) {
        let (data, low) = if unsigned { (DType::U8, 0) } else { (DType::I8, 128) };
        let (weights, from) = if unsigned_weights { (DType::U8, 100) } else { (DType::I8, -20) };
        let zeros: Vec<i64> = zeros.iter().take(if channels { 5 } else { 1 }).map(|z| z + from).collect();
        let text = convolution(data, weights, zero - low, &zeros, 176, bias);
        let (before, after, said) = rewritten(&text);
        prop_assert_eq!(products_of_bytes(&after), 1, "{}", said);
        let x = [bytes(data, &[2, 4, 6, 7], seed)];
        let want = run_function(&before, before.entry, &x).unwrap();
        let got = run_function(&after, after.entry, &x).unwrap();
        let found = agree(&got[0], &want[0], &Tolerance::uniform(1e-5));
        prop_assert!(found.pass, "{}\n{}", found.why, text);
    }

    /// A classifier: weights as rows of columns or the other way round, a scale each, and a bias.
    #[test]
    fn gemms_keep_their_results(
        unsigned in any::<bool>(),
        zero in 0..256i64,
        rows in any::<bool>(),
        bias in any::<bool>(),
        seed in 0..1000u64,
    ) {
        let (data, low) = if unsigned { (DType::U8, 0) } else { (DType::I8, 128) };
        let (shape, along) = if rows { ("7,9", "7,1") } else { ("9,7", "1,7") };
        let weights: Vec<i64> = (0..63).map(|i| (i * 31) % 255 - 127).collect();
        let (b, given) = match bias {
            true => ("const @b : f32[7] = [1, -2, 3, 0.5, 7, 9, 11]\n", "\n  %b = const @b"),
            false => ("", ""),
        };
        let third = if bias { ", %b" } else { "" };
        let text = format!(
            "const @w : i8[{shape}] = {}
const @s : f32[{along}] = [0.25, 0.5, 0.125, 2, 1, 0.0625, 0.75]
const @f : f32[] = [0.5]
const @z : f32[] = [{}]
{b}graph @main(%x: {data}[3,9]) -> (y: f32[3,7]) {{
  %w = const @w
  %s = const @s
  %f = const @f
  %z = const @z{given}
  %0 = cast %x {{to=f32}}
  %1 = sub %0, %z
  %2 = mul %1, %f
  %3 = cast %w {{to=f32}}
  %4 = mul %3, %s
  %5 = gemm %2, %4{third} {{trans_b={rows}}}
  return %5
}}
",
            list(&weights),
            zero - low
        );
        let (before, after, said) = rewritten(&text);
        prop_assert_eq!(products_of_bytes(&after), 1, "{}", said);
        let x = [bytes(data, &[3, 9], seed)];
        let want = run_function(&before, before.entry, &x).unwrap();
        let got = run_function(&after, after.entry, &x).unwrap();
        let found = agree(&got[0], &want[0], &Tolerance::uniform(1e-5));
        prop_assert!(found.pass, "{}\n{}", found.why, text);
    }

    /// Products of integers are the same to the last bit.
    #[test]
    fn matrix_products_keep_their_results(
        unsigned in any::<bool>(),
        zero in 0..256i64,
        given in any::<bool>(),
        seed in 0..1000u64,
    ) {
        let (data, low) = if unsigned { (DType::U8, 0) } else { (DType::I8, 128) };
        let zero = zero - low;
        let (param, value) = match given {
            true => ("".to_string(), "  %zx = const @zx\n".to_string()),
            false => (", %zx: i32[]".to_string(), String::new()),
        };
        let weights: Vec<i64> = (0..63).map(|i| (i * 31) % 256 - 128).collect();
        let text = format!(
            "const @w : i8[9,7] = {}
const @zx : i32[] = [{zero}]
graph @main(%x: {data}[3,9]{param}) -> (y: i32[3,7]) {{
  %w = const @w
{value}  %0 = cast %x {{to=i32}}
  %1 = sub %0, %zx
  %2 = cast %w {{to=i32}}
  %3 = matmul %1, %2
  return %3
}}
",
            list(&weights)
        );
        let (before, after, said) = rewritten(&text);
        prop_assert_eq!(products_of_bytes(&after), 1, "{}", said);
        let mut x = vec![bytes(data, &[3, 9], seed)];
        x.extend((!given).then(|| Tensor::scalar(zero as i32)));
        let want = run_function(&before, before.entry, &x).unwrap();
        let got = run_function(&after, after.entry, &x).unwrap();
        prop_assert_eq!(want[0].to_i64_vec(), got[0].to_i64_vec());
    }
}

#[test]
fn what_cannot_be_exact_stays_and_says_why() {
    let said = |text: &str| {
        let (_, after, said) = rewritten(text);
        assert_eq!(products_of_bytes(&after), 0, "{text}");
        said
    };
    let far = said(&convolution(DType::U8, DType::U8, 3, &[125], 250, false).replace("[125.0]", "[240.0]"));
    assert!(far.contains("is no i8"), "{far}");
    let two = convolution(DType::U8, DType::I8, 3, &[0], 176, false)
        .replace("zx : f32[] = [3.0]", "zx : f32[4,1,1] = [1.0, 2.0, 3.0, 4.0]");
    let two = said(&two);
    assert!(two.contains("more than one zero point"), "{two}");
    let floats = convolution(DType::U8, DType::I8, 3, &[0], 176, false).replace("conv %2, %5", "conv %2, %3");
    let floats = said(&floats);
    assert!(floats.contains("its weights are not quantised"), "{floats}");
    let mut slow = PassContext::new(DeviceProfile::lavapipe());
    let mut m = parse_module(&convolution(DType::U8, DType::I8, 3, &[0], 176, false)).unwrap();
    run_pass(&IntegerProducts::default(), &mut m, &mut slow).unwrap();
    assert!(slow.remarks[0].message.contains("one by one"), "{:?}", slow.remarks);
    run_pass(&IntegerProducts { always: true }, &mut m, &mut slow).unwrap();
    assert_eq!(products_of_bytes(&m), 1);
}

/// A processor multiplies u8 and i8: data keeps its type, and no zero point is moved by 128.
#[test]
fn processors_mix_bytes() {
    for (data, zero, zeros) in [(DType::U8, 0, &[0][..]), (DType::U8, 130, &[3]), (DType::I8, -4, &[0])] {
        let text = convolution(data, DType::I8, zero, zeros, 100, true);
        let (before, after, said) = rewritten_for(DeviceProfile::processor(2, [6, 16]), &text);
        let f = after.main();
        let own = |n: &&NodeId| {
            let node = &f.nodes[**n];
            let first = node.inputs.first().copied().flatten();
            node.op.is::<Conv>() && first.is_some_and(|v| f.ty(v).dtype == data)
        };
        assert_eq!(f.walk().iter().filter(own).count(), 1, "{said}");
        let x = bytes(data, &[2, 4, 6, 7], 5);
        let of = |m: &Module| run_function(m, m.entry, std::slice::from_ref(&x)).expect("a result");
        let found = agree(&of(&after)[0], &of(&before)[0], &Tolerance::uniform(1e-5));
        assert!(found.pass, "{}: {text}", found.why);
    }
}
