use super::*;
use crate::dtype::DType;
use crate::ops::testing::{assert_close, random, run, transposed, try_run};
use crate::tensor::Tensor;
use crate::tir::TensorFunction;

/// A two-dimensional convolution written as the definition says.
fn reference(op: &Conv, x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let (xs, ws) = (x.shape(), w.shape());
    let (xv, wv) = (x.to_f64_vec(), w.to_f64_vec());
    let or = |v: &[i64], i: usize, d: i64| v.get(i).copied().unwrap_or(d);
    let size = |d: usize| {
        let pads = or(&op.pads, d, 0) + or(&op.pads, d + 2, 0);
        (xs[d + 2] as i64 + pads - (ws[d + 2] as i64 - 1) * or(&op.dilations, d, 1) - 1) / or(&op.strides, d, 1) + 1
    };
    let (oh, ow) = (size(0) as usize, size(1) as usize);
    let per = ws[0] / op.group as usize;
    let mut out = vec![];
    for n in 0..xs[0] {
        for oc in 0..ws[0] {
            for (h, v) in (0..oh).flat_map(|h| (0..ow).map(move |v| (h, v))) {
                let mut sum = bias.map_or(0.0, |b| b.to_f64_vec()[oc]);
                for ic in 0..ws[1] {
                    let c = oc / per * ws[1] + ic;
                    for (i, j) in (0..ws[2]).flat_map(|i| (0..ws[3]).map(move |j| (i, j))) {
                        let at = |o: usize, k: usize, d: usize| {
                            o as i64 * or(&op.strides, d, 1) + k as i64 * or(&op.dilations, d, 1) - or(&op.pads, d, 0)
                        };
                        let (a, b) = (at(h, i, 0), at(v, j, 1));
                        if (0..xs[2] as i64).contains(&a) && (0..xs[3] as i64).contains(&b) {
                            let xi = ((n * xs[1] + c) * xs[2] + a as usize) * xs[3] + b as usize;
                            sum += xv[xi] * wv[((oc * ws[1] + ic) * ws[2] + i) * ws[3] + j];
                        }
                    }
                }
                out.push(sum);
            }
        }
    }
    Tensor::from_f64(x.dtype(), vec![xs[0], ws[0], oh, ow], out)
}

#[test]
fn agrees_with_the_definition_in_both_layouts() {
    // strides, dilations, pads, group, data, weights
    type Case = (&'static [i64], &'static [i64], &'static [i64], i64, [usize; 4], [usize; 4]);
    let cases: &[Case] = &[
        (&[], &[], &[], 1, [1, 3, 5, 6], [4, 3, 3, 3]),
        (&[2, 1], &[], &[1, 1, 1, 1], 1, [2, 3, 6, 5], [4, 3, 3, 3]),
        (&[1, 2], &[2, 1], &[0, 2, 1, 0], 1, [1, 2, 7, 8], [3, 2, 3, 2]),
        (&[], &[], &[1, 0, 0, 1], 2, [1, 4, 4, 5], [6, 2, 3, 2]),
        (&[2, 2], &[], &[1, 1, 1, 1], 6, [1, 6, 7, 7], [6, 1, 3, 3]),
        (&[], &[], &[2, 2, 2, 2], 3, [2, 3, 4, 4], [6, 1, 5, 5]),
        (&[], &[], &[], 1, [2, 5, 3, 4], [3, 5, 1, 1]),
        (&[], &[], &[], 1, [1, 1, 3, 4], [2, 1, 1, 1]),
    ];
    for &(strides, dilations, pads, group, xs, ws) in cases {
        let op = Conv {
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            pads: pads.to_vec(),
            group,
            ..Conv::default()
        };
        let (x, w, b) = (random(&xs, 1), random(&ws, 2), random(&ws[..1], 3));
        assert_close(&run(op.clone(), &[&x, &w]), &reference(&op, &x, &w, None), 1e-5);
        let want = reference(&op, &x, &w, Some(&b));
        assert_close(&run(op.clone(), &[&x, &w, &b]), &want, 1e-5);
        let nhwc = run(Conv { layout: DataLayout::Nhwc, ..op }, &[&transposed(&x, &[0, 2, 3, 1]), &w, &b]);
        assert_close(&nhwc, &transposed(&want, &[0, 2, 3, 1]), 1e-5);
    }
}

#[test]
fn packed_layouts_agree_with_nchw() {
    use crate::ops::layout_transform::LayoutTransform;
    let cases =
        [(1, [1, 16, 5, 6], [32, 16, 3, 3]), (16, [2, 16, 5, 4], [16, 1, 3, 3]), (2, [1, 32, 4, 4], [16, 16, 1, 1])];
    for (group, xs, ws) in cases {
        let pads = if ws[2] == 3 { vec![1, 0, 1, 1] } else { vec![] };
        let op = Conv { group, pads, strides: vec![2, 1], ..Conv::default() };
        let (x, w, b) = (random(&xs, 1), random(&ws, 2), random(&ws[..1], 3));
        let want = run(op.clone(), &[&x, &w, &b]);
        for layout in [DataLayout::Nchw4c, DataLayout::Nchw8c, DataLayout::Nchw16c] {
            let pack = |t: &Tensor| run(LayoutTransform { from: DataLayout::Nchw, to: layout }, &[t]);
            let got = run(Conv { layout, ..op.clone() }, &[&pack(&x), &w, &b]);
            assert_close(&got, &pack(&want), 1e-5);
        }
    }
    let refusal = |x: &[usize], w: &[usize]| {
        try_run(Conv { layout: DataLayout::Nchw4c, ..Conv::default() }, &[&random(x, 1), &random(w, 2)]).unwrap_err()
    };
    assert!(refusal(&[1, 2, 3, 3, 4], &[6, 8, 1, 1]).contains("6 channels"));
    assert!(refusal(&[1, 8, 3, 3], &[8, 8, 1, 1]).contains("nchw4c"));
}

#[test]
fn one_and_three_spatial_axes() {
    let (x, w) = (random(&[2, 3, 8], 4), random(&[4, 3, 3], 5));
    let op = Conv { pads: vec![1, 0], strides: vec![2], ..Conv::default() };
    let flat = run(op, &[&x, &w]);
    let as_2d = Conv { pads: vec![0, 1, 0, 0], strides: vec![1, 2], ..Conv::default() };
    let want = run(as_2d, &[&x.reshaped(vec![2, 3, 1, 8]), &w.reshaped(vec![4, 3, 1, 3])]);
    assert_close(&flat, &want.reshaped(flat.shape().to_vec()), 1e-6);

    let (x, w) = (random(&[1, 2, 4, 5, 6], 6), random(&[3, 2, 1, 3, 2], 7));
    let op = Conv { pads: vec![0, 1, 0, 0, 1, 0], ..Conv::default() };
    let got = run(op, &[&x, &w]);
    assert_eq!(got.shape(), [1, 3, 4, 5, 5]);
    let as_2d = Conv { pads: vec![1, 0, 1, 0], ..Conv::default() };
    // Each slice of the first spatial axis is a convolution of its own.
    let planes = transposed(&x, &[0, 2, 1, 3, 4]).reshaped(vec![4, 2, 5, 6]);
    let want = run(as_2d, &[&planes, &w.reshaped(vec![3, 2, 3, 2])]);
    assert_close(&transposed(&got, &[0, 2, 1, 3, 4]).reshaped(vec![4, 3, 5, 5]), &want, 1e-5);
}

#[test]
fn half_precision_sums_in_single() {
    let half = |t: Tensor| Tensor::from_f64(DType::F16, t.shape().to_vec(), t.to_f64_vec());
    // 4096 ones: a running f16 sum would stop at 2048.
    let ones = |shape: &[usize]| Tensor::from_f64(DType::F16, shape.to_vec(), vec![1.0; shape.iter().product()]);
    let got = run(Conv::default(), &[&ones(&[1, 4096, 1, 1]), &ones(&[2, 4096, 1, 1])]);
    assert_eq!(got.to_f64_vec(), [4096.0, 4096.0]);
    let (x, w, b) = (half(random(&[1, 3, 5, 5], 8)), half(random(&[4, 3, 3, 3], 9)), half(random(&[4], 10)));
    assert_close(&run(Conv::default(), &[&x, &w, &b]), &reference(&Conv::default(), &x, &w, Some(&b)), 1e-3);
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let refusal = |op: Conv, inputs: &[&Tensor]| try_run(op, inputs).unwrap_err();
    let (x, w) = (random(&[1, 3, 5, 5], 1), random(&[4, 2, 3, 3], 2));
    assert!(refusal(Conv::default(), &[&x, &w]).contains("channels"));
    assert!(refusal(Conv { group: 3, ..Conv::default() }, &[&x, &random(&[4, 1, 3, 3], 2)]).contains("groups"));
    assert!(refusal(Conv::default(), &[&x, &random(&[4, 3, 7, 3], 2)]).contains("does not fit"));
    assert!(refusal(Conv::default(), &[&x, &random(&[4, 3, 3, 3], 2), &random(&[3], 1)]).contains("bias"));
    assert!(refusal(Conv { pads: vec![1], ..Conv::default() }, &[&x, &random(&[4, 3, 3, 3], 2)]).contains("pads"));
    let nhwc = Conv { layout: DataLayout::Nhwc, ..Conv::default() };
    assert!(refusal(nhwc, &[&random(&[1, 3, 5], 1), &random(&[4, 3, 3], 2)]).contains("rank 4"));
}

/// The stages of a convolution over these shapes.
fn stages(op: &Conv, x: &[i64], w: &[i64]) -> TensorFunction {
    use crate::tir::{Buffer, Encoding, Scope};
    let mut f = TensorFunction::new("f");
    let ty = |s: &[i64]| TensorType::new(DType::F32, s.iter().map(|&d| Int::new(d)).collect());
    let inputs = [x, w].map(|s| {
        let name = crate::name::Name::new(&format!("p{}", s.len() + f.buffers.len()));
        Some(f.buffers.push(Buffer {
            name,
            dtype: DType::F32,
            shape: ty(s).shape,
            scope: Scope::Global,
            encoding: Encoding::Native,
        }))
    });
    let window = op.window(&ty(x).shape, &ty(w).shape).expect("window");
    let spatial = window.output(op.layout.spatial(&ty(x).shape)).expect("fits");
    let out = TensorType::new(DType::F32, op.layout.shape(&Int::new(x[0]), &Int::new(w[0]), spatial).expect("divides"));
    let mut cx = ComputeContext::new(&mut f, inputs.to_vec(), vec![None, None], vec![out], "conv");
    op.compute(&mut cx).expect("computes");
    f
}

#[test]
fn indices_have_no_divisions_and_conditions_only_where_padding_is() {
    let text = |op: &Conv, x: &[i64], w: &[i64]| {
        let f = stages(op, x, w);
        let blocks = f.body.blocks();
        assert_eq!(blocks.len(), 1);
        (format!("{:?}", blocks[0].value), f.stages().expect("stages")[0].reduction().len())
    };
    let pad = Conv { pads: vec![1, 0, 1, 0], ..Conv::default() };
    let (value, loops) = text(&pad, &[1, 8, 9, 9], &[4, 8, 3, 3]);
    assert_eq!((value.contains('/'), value.matches("Cond").count(), loops), (false, 2, 3));
    let depthwise = Conv { group: 8, ..Conv::default() };
    let (value, loops) = text(&depthwise, &[1, 8, 9, 9], &[8, 1, 3, 3]);
    assert_eq!((value.contains('/'), value.contains("Cond"), loops), (false, false, 2));
    let (_, loops) = text(&Conv::default(), &[1, 8, 9, 9], &[4, 8, 1, 1]);
    assert_eq!(loops, 1);
}

#[test]
fn symbolic_sizes_stay_simple() {
    use crate::graph::{FunctionBuilder, Module};
    use crate::ops::pool::MaxPool;
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let (n, h) = (Int::var("n"), Int::var("h"));
    let x = b.param("x", TensorType::new(DType::F32, vec![n.clone(), Int::new(3), h.clone(), Int::new(32)]));
    let w = b.param("w", TensorType::fixed(DType::F32, &[8, 3, 3, 3]));
    let y = b.add(Conv { pads: vec![1; 4], ..Conv::default() }, &[x, w]).expect("conv");
    assert_eq!(b.ty(y).shape, [n.clone(), Int::new(8), h.clone(), Int::new(32)]);
    let half = MaxPool { kernel: vec![2, 2], strides: vec![2, 2], ..MaxPool::default() };
    let z = b.add(half, &[y]).expect("pool");
    let at = |v: &Int, size: i64| v.eval(&|_| Some(size)).expect("evaluates");
    assert_eq!((at(&b.ty(z).shape[2], 7), at(&b.ty(z).shape[2], 8), at(&b.ty(z).shape[3], 0)), (3, 4, 16));
    let same = Conv { auto_pad: AutoPad::SameUpper, strides: vec![2, 2], ..Conv::default() };
    let s = b.add(same, &[x, w]).expect("conv");
    assert_eq!((at(&b.ty(s).shape[2], 7), at(&b.ty(s).shape[2], 8)), (4, 4));
}

#[test]
fn exports_channels_last_with_transposes_around() {
    use crate::graph::{FunctionBuilder, Module};
    use crate::interpreter::run_function;
    use crate::name::Name;
    use crate::onnx::{NoExternalData, export_onnx, import_onnx};
    use crate::ops::pool::MaxPool;
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let x = b.param("x", TensorType::fixed(DType::F32, &[1, 5, 6, 3]));
    let w = b.constant("w", &random(&[4, 3, 3, 3], 1));
    let layout = DataLayout::Nhwc;
    let y = b.add(Conv { pads: vec![1; 4], layout, ..Conv::default() }, &[x, w]).expect("conv");
    let pool = MaxPool { kernel: vec![2, 2], indices: true, layout, ..MaxPool::default() };
    let out = b.add_multi(pool, vec![Some(y)], vec![]).expect("pool");
    b.finish(&[(Name::new("best"), out[0]), (Name::new("place"), out[1])]);
    let bytes = export_onnx(&m).expect("exports");
    let again = import_onnx(bytes.into(), &NoExternalData).expect("imports");
    let data = [random(&[1, 5, 6, 3], 2)];
    let (want, got) = (run_function(&m, m.entry, &data), run_function(&again, again.entry, &data));
    for (g, w) in got.expect("runs").iter().zip(&want.expect("runs")) {
        assert_close(g, w, 1e-6);
    }
}
