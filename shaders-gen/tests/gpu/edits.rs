//! Random edits of schedules: every edit that the instructions accept computes the same as the unscheduled function, in
//! the interpreter and on the device.
//!
//! A real schedule (the rules' proposal for a workload and a device) is edited: instructions are deleted, repeated,
//! swapped and invented, and attributes changed. Instructions that refuse are left out, so every edit ends as an
//! accepted schedule. Operands are small whole numbers, so that sums are exact in any order.
//!
//! A schedule's text is edited too: lines are dropped, repeated and swapped, and the result is accepted or refused as a
//! whole, like a file. Only kernels run, as on a device: a statement outside of kernels computes nothing.
//!
//! `WEFT_EDITS` and `WEFT_DEVICE_EDITS` set the number of edits (default 2000 and 100), `WEFT_SEED` the first seed; a
//! failure prints its seed and the schedule.

mod draw;

use crate::device::{Memory, gpu};
use crate::rules::{real_device, small_workloads, software_device};
use compiler::check::check_kernels;
use compiler::compile::assign_encodings;
use compiler::dtype::DType;
use compiler::int::const_dims;
use compiler::interpreter::{run_scheduled, run_tensor_function};
use compiler::profile::DeviceProfile;
use compiler::schedule::rules::schedule;
use compiler::schedule::{InstrRef, accept, apply, print_loops};
use compiler::tensor::Tensor;
use compiler::text::print_instruction;
use compiler::tir::{BufferId, Stmt, TensorFunction};
use draw::Draw;

/// A workload with the schedule that the rules propose for it.
struct Base {
    what: String,
    profile: DeviceProfile,
    f: TensorFunction,
    trace: Vec<InstrRef>,
    inputs: Vec<Tensor>,
    want: Vec<f64>,
}

fn bases() -> Vec<Base> {
    let mut out = Vec::new();
    for profile in [software_device(), real_device(), DeviceProfile { f16: false, ..real_device() }] {
        for t in [DType::F32, DType::F16] {
            if t == DType::F32 && out.iter().any(|b: &Base| b.profile.name == profile.name) {
                continue;
            }
            for (what, f) in small_workloads(t) {
                out.extend(base(&format!("{what} {t}"), f, &profile));
            }
        }
    }
    out
}

fn base(what: &str, mut f: TensorFunction, profile: &DeviceProfile) -> Option<Base> {
    assign_encodings(&mut f, profile).ok()?;
    let constants: Vec<BufferId> = f.inputs().skip(1).collect();
    let trace = schedule(&f, &constants, profile).unwrap_or_else(|e| panic!("{what}: {e}")).function.trace;
    let inputs: Vec<Tensor> = f.inputs().enumerate().map(|(n, b)| whole_numbers(&f, b, n as u64)).collect();
    let want = run_tensor_function(&f, &inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    let want = want.iter().flat_map(Tensor::to_f64_vec).collect();
    Some(Base { what: format!("{what} on {}", profile.name), profile: profile.clone(), f, trace, inputs, want })
}

/// Whole numbers from -2 to 2.
fn whole_numbers(f: &TensorFunction, b: BufferId, seed: u64) -> Tensor {
    let shape = const_dims(&f.buffers[b].shape).expect("constant shape");
    let mut draw = Draw::new(seed + 77);
    let n = shape.iter().product::<usize>();
    let values: Vec<f64> = (0..n).map(|_| draw.below(5) as f64 - 2.0).collect();
    Tensor::from_f64(f.buffers[b].dtype, shape, values)
}

/// A variant of the base's schedule with what was accepted of it.
fn edited(base: &Base, others: &[Base], draw: &mut Draw) -> Option<TensorFunction> {
    let mut trace = base.trace.clone();
    for _ in 0..1 + draw.below(3) {
        let donor = &others[draw.below(others.len())].trace;
        draw.edit(&mut trace, donor);
    }
    let mut f = base.f.clone();
    for i in trace {
        if draw.below(24) == 0 {
            let invented = draw.instruction(&f);
            let _ = invented.map(|i| apply(&mut f, i));
        }
        let _ = apply(&mut f, i);
    }
    Some(f)
}

/// What a file with an edited schedule text gives: each line applied in order, or none; `None` where the file is
/// refused.
fn edited_text(base: &Base, _others: &[Base], draw: &mut Draw) -> Option<TensorFunction> {
    let mut f = TensorFunction { pending: base.trace.clone(), ..base.f.clone() };
    for _ in 0..1 + draw.below(2) {
        draw.edit_lines(&mut f.pending);
    }
    accept(&mut f).ok()?;
    check_kernels(&f).ok()?;
    Some(f)
}

/// The function with its kernels alone.
fn kernels_of(f: &TensorFunction) -> TensorFunction {
    let kernels = f.kernels().into_iter().map(|(name, body)| Stmt::Kernel(name, Box::new(body.clone())));
    TensorFunction { body: Stmt::Seq(kernels.collect()), ..f.clone() }
}

fn text(f: &TensorFunction) -> String {
    let trace: Vec<String> = f.trace.iter().map(|i| format!("    {}", print_instruction(i))).collect();
    format!("{}\n{}", trace.join("\n"), print_loops(f, &f.body, None))
}

/// Where results differ by more than the rounding of what is stored.
fn difference(base: &Base, got: &[f64]) -> Option<String> {
    let tolerance = if base.inputs[0].dtype() == DType::F16 { 4e-3 } else { 2e-5 };
    if got.len() != base.want.len() {
        return Some(format!("{} elements instead of {}", got.len(), base.want.len()));
    }
    let close = |a: f64, b: f64| a == b || (a - b).abs() <= tolerance * (1.0 + a.abs());
    let n = base.want.iter().zip(got).position(|(a, b)| !close(*a, *b))?;
    Some(format!("element {n} is {} instead of {}", got[n], base.want[n]))
}

pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |v| v.parse().unwrap_or_else(|_| panic!("{name}={v} is no number")))
}

/// What became of one edit: it holds, nobody runs it, or its results differ.
enum Outcome {
    Held,
    Refused,
    Wrong(String),
}

type Run<'a> = &'a (dyn Fn(&Base, &TensorFunction) -> Option<Result<Vec<f64>, String>> + Sync);

/// Draws an edit of a base's schedule, and gives what it schedules; `None` for what is refused.
type Edit = fn(&Base, &[Base], &mut Draw) -> Option<TensorFunction>;

fn outcome(seed: u64, bases: &[Base], edit: Edit, run: Run<'_>) -> Outcome {
    let mut draw = Draw::new(seed);
    let base = &bases[draw.below(bases.len())];
    let Some(f) = edit(base, bases, &mut draw) else { return Outcome::Refused };
    if setting("WEFT_SHOW_SEED", 0) == seed {
        println!("seed {seed}, {}\n{}", base.what, text(&f));
    }
    let wrong = |why: String| Outcome::Wrong(format!("seed {seed}, {}: {why}\n{}", base.what, text(&f)));
    if let Err(e) = compiler::verify::verify_tensor_function(&f) {
        return wrong(format!("{e:?}"));
    }
    match run(base, &f) {
        None => Outcome::Refused,
        Some(Err(e)) => wrong(e),
        Some(Ok(got)) => difference(base, &got).map_or(Outcome::Held, wrong),
    }
}

/// Draws edits, on several threads, and collects those whose results differ; `run` gives the results, `None` where the
/// device does not take it. At least one in `held_of` must hold.
fn hold(count: u64, held_of: u64, edit: Edit, run: Run<'_>) {
    let bases = bases();
    let first = setting("WEFT_SEED", 1);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let (mut held, mut refused, mut wrong) = (0u64, 0u64, Vec::new());
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let part = |n: u64| (first + n..first + count).step_by(threads as usize);
        let bases = &bases;
        let work = |n: u64| scope.spawn(move || part(n).map(|s| outcome(s, bases, edit, run)).collect::<Vec<_>>());
        let running: Vec<_> = (0..threads).map(work).collect();
        running.into_iter().flat_map(|r| r.join().expect("no panic")).collect()
    });
    for o in outcomes {
        match o {
            Outcome::Held => held += 1,
            Outcome::Refused => refused += 1,
            Outcome::Wrong(text) => wrong.push(text),
        }
    }
    println!(
        "seeds {first}..{}: {held} edits give the same results, {refused} refused, {} wrong",
        first + count,
        wrong.len()
    );
    assert!(held > count / held_of, "more edits should be accepted");
    let some: Vec<String> = wrong.iter().take(setting("WEFT_SHOW", 5) as usize).cloned().collect();
    assert!(wrong.is_empty(), "{} accepted edits are wrong\n{}", wrong.len(), some.join("\n\n"));
}

#[test]
fn in_the_interpreter() {
    hold(setting("WEFT_EDITS", 2000), 4, edited, &|base, f| Some(interpret(f, base)));
}

#[test]
fn of_lines_in_the_interpreter() {
    hold(setting("WEFT_EDITS", 2000) / 2, 8, edited_text, &|base, f| Some(interpret(&kernels_of(f), base)));
}

fn interpret(f: &TensorFunction, base: &Base) -> Result<Vec<f64>, String> {
    run_scheduled(f, &base.inputs).map(|r| r.iter().flat_map(Tensor::to_f64_vec).collect())
}

#[test]
fn on_the_device() {
    hold(setting("WEFT_DEVICE_EDITS", 100), 4, edited, &on_device_if_taken);
}

#[test]
fn of_lines_on_the_device() {
    hold(setting("WEFT_DEVICE_EDITS", 100) / 2, 8, edited_text, &on_device_if_taken);
}

/// What the device gives; `None` where it does not take the kernels.
fn on_device_if_taken(base: &Base, f: &TensorFunction) -> Option<Result<Vec<f64>, String>> {
    let mut kernels = Vec::new();
    for (name, _) in f.kernels() {
        kernels.push(shaders_gen::emit_kernel(f, name, &base.profile).ok()?);
    }
    if kernels.is_empty() {
        return None;
    }
    Some(run_on_device(base, f, &kernels))
}

fn run_on_device(
    base: &Base,
    f: &TensorFunction,
    kernels: &[compiler::plan::EmittedKernel],
) -> Result<Vec<f64>, String> {
    let mut memory = Memory::new();
    for (b, t) in f.inputs().zip(&base.inputs) {
        let packed = match f.prepacks.iter().find(|p| p.buffer == b) {
            Some(p) => run_scheduled(&p.packer, std::slice::from_ref(t))?.remove(0),
            None => t.clone(),
        };
        memory.insert(b, packed.bytes().to_vec());
    }
    gpu().run(f, kernels, &[], &mut memory, base.profile.slice_bytes().max(16));
    let mut out = Vec::new();
    for b in f.outputs() {
        let n = base.want.len();
        let bytes = memory.remove(&b).ok_or("the kernels do not write the result")?;
        let t = match f.buffers[b].dtype {
            DType::F16 => bytes[..2 * n]
                .chunks_exact(2)
                .map(|c| half::f16::from_le_bytes([c[0], c[1]]).to_f64())
                .collect::<Vec<f64>>(),
            _ => bytes[..4 * n]
                .chunks_exact(4)
                .map(|c| f64::from(f32::from_le_bytes([c[0], c[1], c[2], c[3]])))
                .collect(),
        };
        out.extend(t);
    }
    Ok(out)
}
