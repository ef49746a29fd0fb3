//! Leaves of all kinds run as strips, and give the interpreter's results with every instruction set.

use crate::emit::Kernel;
use crate::execute;
use crate::isa::Isa;
use crate::memory::View;
use crate::program::{Leaf, Node};
use compiler::agreement::{Tolerance, agree};
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use tensor_ir::arena::Id;
use tensor_ir::dtype::DType;
use tensor_ir::interpreter::run_tensor_function;
use tensor_ir::name::Name;
use tensor_ir::text::parse_tensor_function;

fn leaves<'n>(nodes: &'n [Node], to: &mut Vec<&'n Leaf>) {
    for n in nodes {
        match n {
            Node::Loop(_, _, body) | Node::Within(_, _, body) => leaves(body, to),
            Node::Leaf(l) => to.push(l),
            Node::Tile(_) => {}
        }
    }
}

/// Runs a function of strips.
fn check(text: &str) {
    run(text, &|body| {
        let mut all = vec![];
        leaves(body, &mut all);
        assert!(!all.is_empty() && all.iter().all(|l| l.strips.is_some()), "not all leaves are strips: {text}");
    });
}

/// Runs the function, whose body is one kernel that is as `expected`, with each instruction set. All of its elements are
/// stored as they are.
fn run(text: &str, expected: &dyn Fn(&[Node])) {
    let f = parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let tensor = |(n, b): (usize, tensor_ir::tir::BufferId)| {
        let b = &f.buffers[b];
        let shape: Vec<usize> = b.shape.iter().map(|n| n.as_const().expect("a number") as usize).collect();
        match b.dtype {
            DType::I32 => Tensor::from_f64(
                b.dtype,
                shape.clone(),
                (0..shape.iter().product()).map(|i: usize| ((i * 37 + n) % 41) as f64 - 20.0),
            ),
            t => random_tensor(t, &shape, 5 + n as u64),
        }
    };
    let inputs: Vec<Tensor> = f.inputs().enumerate().map(tensor).collect();
    let want = run_tensor_function(&f, &inputs).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let kernel = Kernel::new(&f, Name::new("k")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let program = kernel.program(&[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    expected(&program.body);
    for isa in Isa::ALL.into_iter().filter(|i| i.is_available()) {
        let mut given: Vec<Vec<u64>> = inputs.iter().map(words).collect();
        let mut made: Vec<Vec<u64>> = want.iter().map(|t| vec![0; words(t).len()]).collect();
        let mut bound = vec![None; f.buffers.len()];
        let places = f.inputs().zip(&mut given).chain(f.outputs().zip(&mut made));
        for (b, memory) in places {
            let form = crate::form::Form::of(f.buffers[b].dtype, f.buffers[b].encoding, f.buffers[b].scope);
            let n = f.buffers[b].numel().as_const().expect("a number") as usize;
            bound[b.index()] = Some(View::new(memory.as_mut_ptr().cast(), n * form.size(), form));
        }
        execute::run(&program, &bound, isa, None);
        for (made, want) in made.iter().zip(&want) {
            let bytes = bytemuck::cast_slice::<u64, u8>(made)[..want.bytes().len()].to_vec();
            let got = Tensor::from_bytes(want.dtype(), want.shape().to_vec(), bytes.into()).expect("a tensor");
            let d = agree(&got, want, &Tolerance::new(want.dtype(), None, None));
            assert!(d.pass, "{} {d:?}\n{text}", isa.name());
        }
    }
}

/// The bytes of a tensor, aligned.
fn words(t: &Tensor) -> Vec<u64> {
    let mut out = vec![0; t.bytes().len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut out)[..t.bytes().len()].copy_from_slice(t.bytes());
    out
}

/// A function of one block in a kernel.
fn one(parameters: &str, loops: &[(&str, i64)], block: &str) -> String {
    let heads: String = loops.iter().map(|(v, n)| format!("for {v} in 0..{n} {{ ")).collect();
    format!("tensor @f({parameters}) {{ kernel k {{ {heads} {block} {} }} }}", "} ".repeat(loops.len()))
}

/// Columns that are held below the end of an operand read its last one again.
#[test]
fn tiles_whose_columns_are_held() {
    for (columns, last) in [(45, 30), (16, 1), (33, 31), (40, 100)] {
        let operands = format!("%x: f32[6, {}], %y: f32[6, {columns}], %s: f32[6], out %z: f32[{columns}]", last + 1);
        for (combiner, value) in [
            ("sum", format!("%x[r, min(j, {last})] * %s[r]")),
            ("sum", format!("%x[r, min(j, {last})] * %y[r, j]")),
            ("sum", format!("%x[r, min(j, {last})]")),
            ("max", format!("%x[r, min(j, {last})]")),
        ] {
            let block = format!("block z reduce {combiner} init {{ %z[j] <- {value} }}");
            let text = one(&operands, &[("r", 6), ("j", columns)], &block);
            run(&text, &|body| assert!(matches!(body, [Node::Tile(_)]), "no tile: {body:?}"));
        }
    }
    // A right operand of f16 is copied for many rows.
    for rows in [2, 6] {
        let operands = format!("%x: f32[{rows}, 3], %y: f16[3, 31], out %z: f32[{rows}, 45]");
        let block = "block z reduce sum init { %z[i, j] <- %x[i, r] * f32(%y[r, min(j, 30)]) }";
        run(&one(&operands, &[("r", 3), ("i", rows), ("j", 45)], block), &|_| ());
        run(&one(&operands, &[("i", rows), ("r", 3), ("j", 45)], block), &|_| ());
    }
    // Rows are held, too.
    let operands = "%x: f32[5, 31], %y: f32[3, 31], out %z: f32[5, 45]";
    for (combiner, value) in [
        ("max", "%x[min(i + r, 4), min(j, 30)]"),
        ("sum", "%x[min(i + r, 4), min(j, 30)] * %y[r, min(j, 30)]"),
        ("sum", "%x[min(i + r, 4), 7] * %y[r, min(j, 30)]"),
    ] {
        let block = format!("block z reduce {combiner} init {{ %z[i, j] <- {value} }}");
        run(&one(operands, &[("i", 5), ("r", 3), ("j", 45)], &block), &|_| ());
    }
}

#[test]
fn functions_of_runs_of_every_length() {
    for n in [1, 7, 31, 32, 33, 512, 513, 1600] {
        let of = |value: &str| {
            check(&one(
                &format!("%x: f32[{n}], %y: f32[{n}], out %z: f32[{n}]"),
                &[("i", n)],
                &format!("block z {{ %z[i] <- {value} }}"),
            ));
        };
        of("max(%x[i], 0.0)");
        of("exp(%x[i]) + tanh(%y[i] * 3.0) * log(abs(%x[i]))");
        of("((2.0 * %x[i] + 0.5) * %x[i] + 0.25) * %x[i] + 1.0");
        of("select(%x[i] < %y[i], %x[i], %y[i] * %y[i])");
        of("select(%x[i] < 0.0, neg(1.0 - exp(%y[i])), 1.0 - exp(%y[i]))");
        of("%x[0] * %y[i] + idx(i):f32");
    }
}

#[test]
fn places_of_every_kind() {
    let of = |parameters: &str, loops: &[(&str, i64)], value: &str| {
        check(&one(parameters, loops, &format!("block z {{ {value} }}")))
    };
    // Transposes, with and without a rest of rows.
    for n in [5, 16, 37] {
        let parameters = format!("%x: f32[70,{n}], out %z: f32[{n},70]");
        of(&parameters, &[("i", n), ("j", 70)], "%z[i, j] <- %x[j, i] * 2.0");
        of(&parameters, &[("j", 70), ("i", n)], "%z[i, j] <- %x[j, i] * 2.0");
    }
    for step in 2..6 {
        let parameters = format!("%x: f32[{}], out %z: f32[9,50]", 9 * 50 * step);
        of(&parameters, &[("i", 9), ("j", 50)], &format!("%z[i, j] <- %x[i*{} + j*{step}]", 50 * step));
        of(&parameters, &[("i", 9), ("j", 50)], &format!("%z[8 - i, j] <- %x[(49 - j)*{step} + i]"));
    }
    of("%x: f32[7,5], %b: f32[5], out %z: f32[7,5]", &[("i", 7), ("j", 5)], "%z[i, j] <- %x[i, j] + %b[j]");
    of("%x: f16[7,5], %b: f32[7], out %z: f16[7,5]", &[("i", 7), ("j", 5)], "%z[i, j] <- f16(f32(%x[i, j]) + %b[i])");
}

/// Quotients, remainders and limits of rows and columns, in places and in values, and elements of every form.
#[test]
fn places_that_lists_describe() {
    let operands = |t: &str| {
        let form = if t.ends_with('8') { " byte_quad" } else { "" };
        format!("%x: {t}[3, 40, 40]{form}, out %z: {t}[3, 60, 60]{form}")
    };
    let loops = [("c", 3), ("i", 60), ("j", 60)];
    let place = "%x[c, max((i + 1)/2 - 1, 0), min((j*2 + 1)/3, 35)]";
    for t in ["f32", "f16", "i8", "u8", "i32"] {
        check(&one(&operands(t), &loops, &format!("block z {{ %z[c, i, j] <- {place} }}")));
    }
    for value in [
        format!("{place} * (1.0 - idx((j + 1) % 2*2 + 1):f32 * 0.25)"),
        format!("{place} / (idx(min(61 - i, 3)):f32 * idx(min(61 - j, 3) - max(1 - j, 0)):f32)"),
        "f32(idx(j % 7):i32) * %x[c, i/2, j/2]".to_string(),
    ] {
        check(&one(&operands("f32"), &loops, &format!("block z {{ %z[c, i, j] <- {value} }}")));
    }
}

/// Steps that follow each other, from and to bytes, and numbers that become long integers.
#[test]
fn chains_of_steps() {
    for n in [1, 5, 64, 600] {
        for t in ["i8", "u8"] {
            let operands = format!("%x: {t}[{n}] byte_quad, %y: {t}[{n}] byte_quad, out %z: {t}[{n}] byte_quad");
            for value in [
                "(f32(%x[i]) + (-3.0)) * 0.02 / 0.7 - 1.5",
                "((f32(%x[i]) + 3.0) * 0.02 + (f32(%y[i]) + 5.0) * 0.3) / 0.02",
                "max(f32(%x[i]) * 3.0, -500.0)",
            ] {
                let block = format!("block z {{ %z[i] <- {t}(min(max(round({value}) + 2.0, -300.0), 300.0)) }}");
                check(&one(&operands, &[("i", n)], &block));
            }
        }
        let operands = format!("%x: f32[{n}], out %z: i64[{n}]");
        check(&one(&operands, &[("i", n)], "block z { %z[i] <- i64(%x[i] * 100.0) }"));
        check(&one(&operands, &[("i", n)], "block z { %z[i] <- i64(%x[i] * 1e13) }"));
    }
}

/// Products of bytes lane by lane whose padding is no 0, in one row of an image and in several.
#[test]
fn padding_of_products_of_bytes() {
    let operands = "%x: u8[7, 9, 20] byte_quad, %w: i8[3, 3, 20] byte_quad, out %z: i32[7, 9, 20]";
    let inside = "all(i + r - 1 >= 0, i + r - 1 < 7, j + s - 1 >= 0, j + s - 1 < 9)";
    for padding in [0, 3] {
        let value = format!("select({inside}, i32(%x[i + r - 1, j + s - 1, c]), {padding}:i32) * i32(%w[r, s, c])");
        let block = format!("block z reduce sum init {{ %z[i, j, c] <- {value} }}");
        let loops = [("i", 7), ("j", 9), ("r", 3), ("s", 3), ("c", 20)];
        run(&one(operands, &loops, &block), &|body| {
            assert!(format!("{body:?}").contains("LaneWords"), "no tile: {body:?}");
        });
    }
}

#[test]
fn conditions_cut_the_lanes() {
    let inside = "all(i - 1 >= 0, i - 1 < 6, j - 2 >= 0, j - 2 < 300)";
    check(&one(
        "%x: f32[6,300], out %z: f32[8,304]",
        &[("i", 8), ("j", 304)],
        &format!("block z {{ %z[i, j] <- select({inside}, exp(%x[i - 1, j - 2]), 0.5) }}"),
    ));
    // A tail that is left out.
    check(&one(
        "%x: f32[90], out %z: f32[90]",
        &[("t", 3), ("i", 32)],
        "block z where (t*32 + i < 90) { %z[t*32 + i] <- %x[t*32 + i] + 1.0 }",
    ));
}

#[test]
fn reductions_along_and_across_the_lanes() {
    for (combiner, n) in [("sum", 3), ("max", 40), ("min", 600), ("sum", 1100), ("prod", 5)] {
        let parameters = format!("%x: f32[20,{n}], out %z: f32[20]");
        let block = format!("block z reduce {combiner} init {{ %z[i] <- exp(%x[i, k]) }}");
        check(&one(&parameters, &[("i", 20), ("k", n)], &block));
        let parameters = format!("%x: f32[{n},200], out %z: f32[200]");
        let block = format!("block z reduce {combiner} init {{ %z[i] <- %x[k, i] * 1.5 }}");
        check(&one(&parameters, &[("k", n), ("i", 200)], &block));
    }
    // A window of every second element.
    check(&one(
        "%x: f32[9,400], %w: f32[9,5], out %z: f32[9,200]",
        &[("c", 9), ("i", 200), ("k", 5)],
        "block z reduce sum init {
           %z[c, i] <- select(all(i*2 + k - 2 >= 0, i*2 + k - 2 < 400), %x[c, i*2 + k - 2], 0.0) * %w[c, k]
         }",
    ));
}

#[test]
fn integers_of_at_most_32_bits() {
    for n in [1, 33, 700] {
        let of = |value: &str| {
            check(&one(
                &format!("%x: i32[{n}], %y: i32[{n}], %f: f32[{n}], out %z: i32[{n}]"),
                &[("i", n)],
                &format!("block z {{ %z[i] <- {value} }}"),
            ));
        };
        of("%x[i] * %y[i] + idx(i):i32");
        of("select(%x[i] < %y[i], %x[i] - 3, max(%y[i], 2))");
        of("select(%f[i] < 0.25, idx(i):i32, %y[i])");
        of("i32(%f[i] * 100.0)");
    }
    check(&one(
        "%x: i32[300], %f: f32[300], out %z: f32[300]",
        &[("i", 300)],
        "block z { %z[i] <- select(%x[i] < 3, %f[i], f32(%x[i])) }",
    ));
    for (combiner, n) in [("sum", 7), ("max", 90), ("min", 700)] {
        let block = format!("block z reduce {combiner} init {{ %z[i] <- select(%x[i, k] < 0.5, idx(k):i32, 17) }}");
        check(&one(&format!("%x: f32[6,{n}], out %z: i32[6]"), &[("i", 6), ("k", n)], &block));
    }
}

/// Bytes lie next to each other or not, in rows that are turned or not.
#[test]
fn bytes_are_integers_of_strips() {
    for (t, value) in [("i8", "f32(%x[i, j]) * 0.5"), ("u8", "f32(%x[j, i])"), ("u8", "f32(%x[i, j]) + f32(%x[j, i])")]
    {
        let operands = format!("%x: {t}[70,70] byte_quad, out %z: f32[70,70]");
        check(&one(&operands, &[("i", 70), ("j", 70)], &format!("block z {{ %z[i, j] <- {value} }}")));
    }
    for (t, to) in [("i8", "%z[i, j]"), ("u8", "%z[j, i]")] {
        let operands = format!("%x: f32[70,70], out %z: {t}[70,70] byte_quad");
        check(&one(&operands, &[("i", 70), ("j", 70)], &format!("block z {{ {to} <- {t}(%x[i, j] * 100.0) }}")));
    }
}

/// The addends of a sum are read again by the leaf behind it.
#[test]
fn what_two_leaves_compute_is_kept() {
    for n in [1, 50, 700] {
        check(&format!(
            "tensor @f(%x: f32[9,{n}], out %y: f32[9,{n}]) {{ buffer %m: f32[] register buffer %s: f32[] register
  kernel k {{
  group_x for i in 0..9 {{
    block m0 {{ %m[] <- -inf }}
    block s0 {{ %s[] <- 0.0 }}
    for a in 0..{n} {{ block m reduce max {{ %m[] <- %x[i, a] }} }}
    for b in 0..{n} {{ block s reduce sum {{ %s[] <- exp(%x[i, b] - %m[]) }} }}
    for c in 0..{n} {{ block y {{ %y[i, c] <- exp(%x[i, c] - %m[]) / %s[] }} }}
  }}
}} }}"
        ));
    }
}
