//! What the rules for processors make of tensor functions, run by the executor on every instruction set that this
//! machine has, against the interpreter.

mod functions;

use functions::plan::{NoFunctions, plan_of};
use functions::{conv, depthwise, elementwise_chain, grouped, inputs_of, matmul, pool, row_sum, softmax, stored_as};
use runtime_cpu::{Isa, Processor, Session};
use tensor_ir::dtype::DType;
use tensor_ir::interpreter::run_tensor_function;
use tensor_ir::name::Name;
use tensor_ir::profile::DeviceProfile;
use tensor_ir::schedule::ScheduleOptions;
use tensor_ir::schedule::rules::schedule;
use tensor_ir::tensor::Tensor;
use tensor_ir::text::{parse_tensor_function, print_tensor_function};
use tensor_ir::tir::{Combiner, TensorFunction};

/// Checks `f`, and `f` with parameters in f16, with the rules that are chosen.
fn check(f: &TensorFunction) {
    check_one(f, &[]);
    check_one(&stored_as(f, DType::F16), &[]);
}

/// Checks `f`, and `f` with parameters in f16, which the same rules take, if this one is tried first; gives the rules.
fn check_first(f: &TensorFunction, rule: &str) -> Vec<String> {
    let rules = check_one(f, &[rule]);
    let names = |rules: &[String]| -> Vec<String> {
        rules.iter().filter_map(|r| r.split_whitespace().next()).map(String::from).collect()
    };
    let narrow = check_one(&stored_as(f, DType::F16), &[rule]);
    assert_eq!(names(&narrow), names(&rules), "{narrow:?} {}", print_tensor_function(f));
    rules
}

/// Schedules `f` for every instruction set of this machine, runs it on one thread and on two, and compares; gives the
/// rules that took it where the second parameter is a weight.
fn check_one(f: &TensorFunction, asked: &[&str]) -> Vec<String> {
    let all: Vec<Tensor> = inputs_of(f);
    let want = run_tensor_function(f, &all).unwrap_or_else(|e| panic!("{e}"));
    let mut rules = vec![];
    for isa in Isa::ALL {
        if !isa.is_available() {
            println!("SKIPPED: this machine has no {}", isa.name());
            continue;
        }
        // The second parameter is a weight, known when the session opens; with none, all are operands.
        for (n, constants) in [f.inputs().skip(1).take(1).collect::<Vec<_>>(), vec![]].into_iter().enumerate() {
            let profile = DeviceProfile::processor(2, isa.tile());
            let options = ScheduleOptions { rules: asked.iter().map(|r| (*r).into()).collect(), ..Default::default() };
            let target = options.on(&profile);
            let s = schedule(f, &constants, target).unwrap_or_else(|e| panic!("{e}\n{}", print_tensor_function(f)));
            let plan = plan_of(&s.function, &constants, &profile)
                .unwrap_or_else(|e| panic!("{e}\n{}", print_tensor_function(&s.function)));
            let given = f.inputs().zip(&all).filter(|(b, _)| !constants.contains(b)).map(|(_, t)| t.clone());
            let given: Vec<Tensor> = given.collect();
            let load = |name: Name| {
                let mut each = f.inputs().zip(&all);
                each.find(|(b, _)| f.buffers[*b].name == name).map(|(_, t)| t.clone()).ok_or_else(|| "unknown".into())
            };
            for threads in [1, 2] {
                let processor = Processor::open(threads, Some(isa)).map(std::sync::Arc::new);
                let session = processor.and_then(|p| Session::open(p, &plan, &load)).unwrap_or_else(|e| panic!("{e}"));
                for _ in 0..2 {
                    let got = session.run(&given, &NoFunctions).unwrap_or_else(|e| panic!("{e}"));
                    compare(&got, &want, &format!("{} {threads} {}", isa.name(), print_tensor_function(&s.function)));
                }
            }
            if n == 0 {
                rules.push(format!("{} {:?}", s.rule, s.declined));
            }
        }
    }
    rules
}

fn compare(got: &[Tensor], want: &[Tensor], what: &str) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert_eq!((g.dtype(), g.shape()), (w.dtype(), w.shape()));
        if !g.dtype().is_float() {
            assert!(g.bytes() == w.bytes(), "{g:?} is not {w:?}: {what}");
        }
        for (i, (x, y)) in g.to_f64_vec().into_iter().zip(w.to_f64_vec()).enumerate() {
            // A sum close to the middle between two f16 is rounded to either.
            let step = if g.dtype() == DType::F16 { 1.0 / 1024.0 } else { 0.0 };
            let close = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= (2e-5 + step) * y.abs().max(1.0);
            assert!(close, "element {i} is {x}, not {y}: {what}");
        }
    }
}

#[test]
fn products_run_in_tiles() {
    for (m, n, k) in [(1, 10, 7), (4, 16, 8), (14, 32, 9), (29, 70, 33), (49, 64, 64), (3, 5, 300)] {
        let rules = check_first(&matmul(m, n, k), "matmul-tile");
        assert!(rules.iter().all(|r| r.starts_with("matmul-tile")), "{m} {n} {k}: {rules:?}");
    }
}

/// No pass makes an addition of a subtraction in a tensor function.
#[test]
fn numbers_are_subtracted_from_sums() {
    for epilogue in ["%t[p, q] - 0.75", "0.75 - %t[p, q]", "(%t[p, q] - 0.75)*2.0"] {
        let text = format!(
            "tensor @f(%a: f32[64,64], %b: f32[64,64], out %y: f32[64,64]) {{
  buffer %t: f32[64,64] global
  for i in 0..64 {{ for j in 0..64 {{ for k in 0..64 {{ block t reduce sum init {{ %t[i, j] <- %a[i, k]*%b[k, j] }} }} }} }}
  for p in 0..64 {{ for q in 0..64 {{ block y {{ %y[p, q] <- {epilogue} }} }} }}
}}"
        );
        check(&parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}")));
    }
}

#[test]
fn convolutions_read_their_windows_where_they_lie() {
    for (c, h, oc, k, stride, pad) in
        [(3, 9, 16, 3, 2, 1), (16, 7, 32, 3, 1, 1), (8, 14, 40, 1, 1, 0), (4, 15, 8, 5, 1, 2), (3, 17, 20, 7, 2, 3)]
    {
        check(&conv(1, c, h, h, oc, k, stride, pad));
    }
}

/// A product whose columns are stored across its rows, as in NCHW, computes them as lanes and turns them when it stores.
#[test]
fn columns_are_lanes_wherever_they_are_stored() {
    for (channels, h, out) in [(3, 40, 16), (16, 18, 24), (5, 9, 33)] {
        let text = format!(
            "tensor @f(%x: f32[{channels},{h},{h}], %w: f32[{out},{channels},3,3], out %y: f32[{out},{h},{h}]) {{
  buffer %t: f32[{h},{h},{out}] global
  for i in 0..{h} {{ for j in 0..{h} {{ for o in 0..{out} {{ for r in 0..3 {{ for s in 0..3 {{ for c in 0..{channels} {{
    block t reduce sum init {{
      %t[i, j, o] <- select(all(i + r - 1 >= 0, i + r - 1 < {h}, j + s - 1 >= 0, j + s - 1 < {h}),
                            %x[c, i + r - 1, j + s - 1], 0.0) * %w[o, c, r, s]
    }}
  }} }} }} }} }} }}
  for o2 in 0..{out} {{ for i2 in 0..{h} {{ for j2 in 0..{h} {{
    block y {{ %y[o2, i2, j2] <- max(%t[i2, j2, o2], 0.0) }}
  }} }} }}
}}"
        );
        let f = parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}"));
        check_first(&f, "lanes");
        check_first(&f, "matmul-tile");
        check(&f);
    }
}

/// Integers of 64 bits are that on a processor: those beyond 32 bits, too.
#[test]
fn integers_of_64_bits_are_whole() {
    for (dtype, value) in [
        (DType::I64, "idx(i):i64 * idx(i):i64 * 9000000:i64 - %w[i] * 3000000000:i64 + %x[i]"),
        (DType::I64, "(%x[i] + idx(i):i64) * 5000000000:i64 / max(%w[i], 7:i64)"),
        (DType::U64, "max(idx(i):u64 * 40000000000000000:u64, %w[i] + %x[i])"),
    ] {
        let n = dtype.name();
        let text = format!(
            "tensor @f(%x: {n}[700], %w: {n}[700], out %y: {n}[700]) {{
  for i in 0..700 {{ block y {{ %y[i] <- {value} }} }}
}}"
        );
        check_one(&parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}")), &[]);
    }
}

#[test]
fn depthwise_convolutions_run_in_lanes() {
    for nhwc in [true, false] {
        for (channels, h, k, stride, pad) in [(24, 7, 3, 1, 1), (100, 9, 3, 2, 1), (16, 11, 5, 1, 2)] {
            check(&depthwise(channels, h, k, stride, pad, nhwc));
        }
    }
}

/// Windows over images with the channels first: rows of lanes that a weight scales, groups that share what they read,
/// and pools; lanes lie up to four elements apart, or farther.
#[test]
fn windows_with_channels_first_run_in_lanes() {
    let sizes =
        [(1, 1, 1, 19), (2, 1, 1, 40), (2, 1, 0, 71), (3, 1, 1, 29), (4, 1, 1, 70), (5, 1, 1, 33), (1, 2, 2, 50)];
    for (stride, dilation, pad, w) in sizes {
        let (h, reach) = (11, 2 * dilation + 1);
        let [oh, ow] = [h, w].map(|n| (n + 2 * pad - reach) / stride + 1);
        let place = |v: &str, r: &str| format!("{v} * {stride} + {r} * {dilation} - {pad}");
        let (y, x) = (place("i", "r"), place("j", "s"));
        let inside = format!("all({y} >= 0, {y} < {h}, {x} >= 0, {x} < {w})");
        let text = |group: i64, combiner: &str, loops: &str, value: &str, result: &str| {
            let depth = 6 / group * group;
            format!(
                "tensor @f(%x: f32[6,{h},{w}], %k: f32[6,{group},3,3], %b: f32[6], out %y: f32[6,{oh},{ow}]) {{
  buffer %t: f32[6,{oh},{ow}] global
  for a in 0..{depth} {{ for i in 0..{oh} {{ for j in 0..{ow} {{ {loops} for r in 0..3 {{ for s in 0..3 {{
    block t reduce {combiner} init {{ %t[a, i, j] <- {value} }}
  }} }} }} }} }} {}
  for c in 0..6 {{ for p in 0..{oh} {{ for q in 0..{ow} {{ block y {{ %y[c, p, q] <- {result} }} }} }} }}
}}",
                if loops.is_empty() { "" } else { "}" }
            )
        };
        let image = format!("select({inside}, %x[a, {y}, {x}], 0.0)");
        let shared = format!("select({inside}, %x[a / 3 * 3 + d, {y}, {x}], 0.0) * %k[a, d, r, s]");
        let bias = "max(%t[c, p, q] + %b[c], 0.0)";
        for text in [
            text(1, "sum", "", &format!("{image} * %k[a, 0, r, s]"), bias),
            text(1, "sum", "", &format!("{image} * %k[a, 0, r, s]"), "%t[c, p, q] * %b[c]"),
            text(3, "sum", "for d in 0..3 {", &shared, bias),
            text(1, "sum", "", &image, "%t[c, p, q] * 0.125"),
            text(1, "max", "", &format!("select({inside}, %x[a, {y}, {x}], -0.25)"), "%t[c, p, q]"),
            text(1, "min", "", &format!("select({inside}, %x[a, {y}, {x}], 9.0)"), "%t[c, p, q]"),
        ] {
            check(&parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}: {text}")));
        }
    }
}

#[test]
fn groups_are_products_or_share_what_they_read() {
    for (groups, channels, h, k, stride, pad) in [
        (2, [24, 40], 6, 3, 1, 1),
        (3, [5, 2], 9, 3, 1, 1),
        (4, [3, 3], 20, 3, 1, 2),
        (5, [3, 7], 17, 3, 1, 0),
        (6, [4, 4], 8, 1, 1, 0),
        (2, [6, 6], 9, 3, 2, 1),
    ] {
        for nhwc in [true, false] {
            let f = grouped(groups, channels, h, [k, stride, pad], nhwc);
            check(&f);
            for rule in ["lanes", "matmul-tile"] {
                let rules = check_first(&f, rule);
                assert!(rules.iter().all(|r| r.starts_with(rule)), "{groups} {channels:?} {nhwc}: {rules:?}");
            }
        }
    }
}

#[test]
fn extrema_of_windows_take_their_padding() {
    for combiner in [Combiner::Max, Combiner::Min] {
        for padding in [0.0, -0.25, f64::from(f32::MIN)] {
            for (channels, h, window) in [(24, 7, [3, 2, 1]), (5, 9, [3, 1, 1]), (40, 6, [5, 1, 2])] {
                check(&pool(channels, h, window, padding, combiner));
            }
        }
    }
}

#[test]
fn rows_and_elements_run_in_lanes() {
    for (rows, columns) in [(4, 7), (33, 197), (1, 1000), (600, 3)] {
        check(&softmax(rows, columns));
        for rule in ["row-tasks", "lanes"] {
            let rules = check_first(&softmax(rows, columns), rule);
            assert!(!rules.is_empty() && rules.iter().all(|r| r.starts_with(rule)), "{rows} {columns}: {rules:?}");
        }
        check(&row_sum(rows, columns));
    }
    for shape in [&[5i64][..], &[3, 4, 5], &[2, 100, 37], &[10_000], &[1, 1]] {
        check(&elementwise_chain(shape));
    }
}

/// A value that occurs often, choices between floats and between integers, and a polynomial.
#[test]
fn what_occurs_often_is_computed_once() {
    for (rows, columns) in [(1, 5), (33, 197), (14, 32)] {
        let t = "(%x[i, j] + %b[j])";
        let polynomial = format!("(((0.5 * {t} + 0.25) * {t} + (-1.0)) * {t} + 2.0)");
        let float = format!("select({t} < 0.0, exp({t}), select({t} >= 0.5, {t} * {t}, -0.0))");
        let whole = "select(%n[i, j] < 1, %n[i, j] * %n[i, j], 3 - %n[i, j])";
        let text = format!(
            "tensor @often(%x: f32[{rows},{columns}], %b: f32[{columns}], %n: i32[{rows},{columns}], out %y: f32[{rows},{columns}], out %m: i32[{rows},{columns}]) {{
               for i in 0..{rows} {{ for j in 0..{columns} {{ block y {{ %y[i, j] <- {polynomial} * {float} }} }} }}
               for k in 0..{rows} {{ for l in 0..{columns} {{ block m {{ %m[k, l] <- {} }} }} }}
             }}",
            whole.replace("i, j", "k, l")
        );
        check(&parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}")));
    }
}

/// What a tile's epilogue keeps: sums that are read twice, with an operand for each element behind that.
#[test]
fn sums_that_are_read_twice() {
    for (m, n, k) in [(14, 32, 9), (29, 70, 33)] {
        for value in [
            "{t} * min(max({t} * 0.16666667 + 0.5, 0.0), 1.0) + %r[i, j]",
            "{t} * {t}",
            "({t} - 2.0) * {t} + {t}",
            "{t} * 0.5 + {t}",
        ] {
            let value = value.replace("{t}", "(%s[i, j] + %b[j])");
            let text = format!(
                "tensor @twice(%x: f32[{m},{k}], %w: f32[{k},{n}], %b: f32[{n}], %r: f32[{m},{n}], out %y: f32[{m},{n}]) {{
                   buffer %s: f32[{m},{n}] global
                   for p in 0..{m} {{ for q in 0..{n} {{ for d in 0..{k} {{
                     block s reduce sum init {{ %s[p, q] <- %x[p, d] * %w[d, q] }} }} }} }}
                   for i in 0..{m} {{ for j in 0..{n} {{ block y {{ %y[i, j] <- {value} }} }} }}
                 }}"
            );
            check(&parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}: {text}")));
        }
    }
}
