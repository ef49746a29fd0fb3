//! What the rules for processors make of tensor functions, run by the executor on every instruction set that this
//! machine has, against the interpreter.

mod functions;

use functions::{conv, depthwise, elementwise_chain, inputs_of, matmul, pool, row_sum, softmax};
use runtime_cpu::{Emitter, Isa, Processor, Session};
use tensor_ir::interpreter::run_tensor_function;
use tensor_ir::name::Name;
use tensor_ir::plan::{
    BufferView, Content, Dispatch, EmitKernel, HostCaller, HostResult, Plan, PlanBuffer, PlanKernel, Step,
};
use tensor_ir::profile::DeviceProfile;
use tensor_ir::schedule::rules::schedule;
use tensor_ir::tensor::Tensor;
use tensor_ir::text::{parse_tensor_function, print_tensor_function};
use tensor_ir::tir::{BufferId, Combiner, Scope, TensorFunction};

struct NoFunctions;
impl HostCaller for NoFunctions {
    fn contains(&self, _: Name) -> bool {
        false
    }
    fn call(&self, name: Name, _: Vec<Tensor>, _: &[HostResult<'_>]) -> Result<Vec<Tensor>, String> {
        Err(format!("there is no function {name}"))
    }
}

/// A plan of one function, with constants packed when the session opens.
fn plan_of(f: &TensorFunction, constants: &[BufferId], profile: &DeviceProfile) -> Plan {
    let shape = |b: BufferId| -> Vec<usize> {
        f.caller_shape(b).iter().map(|d| d.as_const().expect("a number") as usize).collect()
    };
    let mut plan = Plan::default();
    let inputs: Vec<BufferId> = f.inputs().filter(|b| !constants.contains(b)).collect();
    for (id, b) in f.buffers.iter().filter(|(_, b)| b.scope == Scope::Global) {
        let numel = b.numel().as_const().expect("a number") as u64;
        let packer = f.prepacks.iter().find(|p| p.buffer == id).map(|p| std::sync::Arc::new((*p.packer).clone()));
        let content = match inputs.iter().position(|i| *i == id) {
            Some(n) => Content::Input(n),
            None if constants.contains(&id) => Content::Constant { name: b.name, packer },
            None => Content::Pool,
        };
        let bytes = b.encoding.storage_bytes(b.dtype, numel);
        plan.buffers.push(PlanBuffer { content, bytes, slice_bytes: bytes, encoding: Some(b.encoding) });
    }
    let globals: Vec<BufferId> = f.buffers.iter().filter(|(_, b)| b.scope == Scope::Global).map(|(i, _)| i).collect();
    let at = |b: BufferId| globals.iter().position(|g| *g == b).expect("a global buffer");
    for (part, _) in f.kernels() {
        let emitted = Emitter.emit(f, part, profile).unwrap_or_else(|e| panic!("{e}\n{}", print_tensor_function(f)));
        // What is kept of a kernel makes the same kernel.
        let mut again = emitted.clone();
        again.module = Emitter.restore(&Emitter.save(&emitted).expect("bytes")).expect("a kernel");
        let buffers = again.bindings.iter().map(|b| (at(b.buffer), 0)).collect();
        let grid = again.grid;
        plan.kernels.push(PlanKernel { name: part.to_string(), emitted: again, function: f.name, part });
        let kernel = plan.kernels.len() - 1;
        plan.steps.push(Step::Gpu(vec![Dispatch {
            kernel,
            buffers,
            grid,
            symbols: vec![],
            group: 0,
            flops: 0,
            bytes: 0,
        }]));
    }
    let view = |b: BufferId| {
        let buffer = &f.buffers[b];
        let (name, dtype, encoding) = (buffer.name, buffer.dtype, buffer.encoding);
        BufferView { name, buffer: at(b), dtype, shape: shape(b), encoding }
    };
    plan.inputs = inputs.into_iter().map(view).collect();
    plan.outputs = f.outputs().map(view).collect();
    plan
}

/// Schedules `f` for every instruction set of this machine, runs it on one thread and on two, and compares; gives the
/// rules that took it where the second parameter is a weight.
fn check(f: &TensorFunction) -> Vec<String> {
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
            let s = schedule(f, &constants, &profile).unwrap_or_else(|e| panic!("{e}\n{}", print_tensor_function(f)));
            let plan = plan_of(&s.function, &constants, &profile);
            let given = f.inputs().zip(&all).filter(|(b, _)| !constants.contains(b)).map(|(_, t)| t.clone());
            let given: Vec<Tensor> = given.collect();
            let load = |name: Name| {
                let mut each = f.inputs().zip(&all);
                each.find(|(b, _)| f.buffers[*b].name == name)
                    .map(|(_, t)| t.clone())
                    .ok_or_else(|| "unknown".to_string())
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
        for (i, (x, y)) in g.to_f64_vec().into_iter().zip(w.to_f64_vec()).enumerate() {
            let close = x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 2e-5 * y.abs().max(1.0);
            assert!(close, "element {i} is {x}, not {y}: {what}");
        }
    }
}

#[test]
fn products_run_in_tiles() {
    for (m, n, k) in [(1, 10, 7), (4, 16, 8), (14, 32, 9), (29, 70, 33), (49, 64, 64), (3, 5, 300)] {
        let rules = check(&matmul(m, n, k));
        // One row has no tile.
        let rule = if m > 1 { "matmul-tile" } else { "lanes" };
        assert!(rules.iter().all(|r| r.starts_with(rule)), "{m} {n} {k}: {rules:?}");
    }
}

#[test]
fn convolutions_read_their_windows_where_they_lie() {
    for (c, h, oc, k, stride, pad) in
        [(3, 9, 16, 3, 2, 1), (16, 7, 32, 3, 1, 1), (8, 14, 40, 1, 1, 0), (4, 15, 8, 5, 1, 2), (3, 17, 20, 7, 2, 3)]
    {
        let rules = check(&conv(1, c, h, h, oc, k, stride, pad));
        println!("{c} {h} {oc} {k}: {rules:?}");
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
        // A task computes a row, where there are several that are long enough.
        let rules = check(&softmax(rows, columns));
        let rule = if rows > 1 && columns > 3 { "row-tasks" } else { "lanes" };
        assert!(!rules.is_empty() && rules.iter().all(|r| r.starts_with(rule)), "{rows} {columns}: {rules:?}");
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
