//! Draws edits of schedules and holds what they compute against the unscheduled function; the same for devices and
//! processors.

use super::draw::Draw;
use crate::workloads::small_workloads;
use compiler::check::check_kernels;
use compiler::compile::assign_encodings;
use compiler::dtype::DType;
use compiler::int::const_dims;
use compiler::interpreter::run_tensor_function;
use compiler::profile::DeviceProfile;
use compiler::schedule::rules::schedule;
use compiler::schedule::{InstrRef, accept, apply, print_loops};
use compiler::tensor::Tensor;
use compiler::text::print_instruction;
use compiler::tir::{BufferId, Stmt, TensorFunction};

/// A workload with the schedule that the rules propose for it.
pub struct Base {
    pub what: String,
    pub profile: DeviceProfile,
    pub f: TensorFunction,
    pub trace: Vec<InstrRef>,
    pub inputs: Vec<Tensor>,
    pub want: Vec<f64>,
}

/// The workloads in these types.
pub fn bases_for(profile: &DeviceProfile, types: &[DType]) -> Vec<Base> {
    let each =
        types.iter().flat_map(|&t| small_workloads(t).into_iter().map(move |(what, f)| (format!("{what} {t}"), f)));
    each.filter_map(|(what, f)| base(&what, f, profile)).collect()
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
pub fn edited(base: &Base, others: &[Base], draw: &mut Draw) -> Option<TensorFunction> {
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
pub fn edited_text(base: &Base, _others: &[Base], draw: &mut Draw) -> Option<TensorFunction> {
    let mut f = TensorFunction { pending: base.trace.clone(), ..base.f.clone() };
    for _ in 0..1 + draw.below(2) {
        draw.edit_lines(&mut f.pending);
    }
    accept(&mut f).ok()?;
    check_kernels(&f).ok()?;
    Some(f)
}

/// The function with its kernels alone.
pub fn kernels_of(f: &TensorFunction) -> TensorFunction {
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

pub type Run<'a> = &'a (dyn Fn(&Base, &TensorFunction) -> Option<Result<Vec<f64>, String>> + Sync);

/// Draws an edit of a base's schedule, and gives what it schedules; `None` for what is refused.
pub type Edit = fn(&Base, &[Base], &mut Draw) -> Option<TensorFunction>;

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
pub fn hold(bases: &[Base], count: u64, held_of: u64, edit: Edit, run: Run<'_>) {
    let first = setting("WEFT_SEED", 1);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let (mut held, mut refused, mut wrong) = (0u64, 0u64, Vec::new());
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let part = |n: u64| (first + n..first + count).step_by(threads as usize);
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
