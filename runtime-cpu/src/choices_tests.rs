//! Choices of a schedule decide what a native kernel is made of.

use crate::emit::{Emitter, Kernel};
use crate::isa::Isa;
use crate::processor::Processor;
use crate::program::StepOp;
use crate::session::Session;
use crate::translate::first_tile;
use compiler::agreement::{Difference, Tolerance, agree};
use compiler::attr::Attr;
use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::interpreter::{HostFunctions, run_function};
use compiler::profile::DeviceProfile;
use compiler::schedule::rules::{self, Choice, Scheduled};
use compiler::schedule::{ScheduleError, ScheduleProvider, ScheduleTarget};
use compiler::tensor::Tensor;
use compiler::text::parse_module;
use compiler::tir::{BufferId, TensorFunction};
use std::sync::Arc;

/// The rules, with so many rows in tiles.
struct Rows(i64);

impl ScheduleProvider for Rows {
    fn schedule(
        &self,
        function: &TensorFunction,
        constants: &[BufferId],
        target: ScheduleTarget<'_>,
    ) -> Result<Scheduled, ScheduleError> {
        let own = rules::schedule(function, constants, target)?;
        let rows = rules::choices(&own.function.trace).into_iter().filter(|c| c.point == "rows".into());
        let values: Vec<Choice> =
            rows.map(|c| Choice { unit: c.unit, point: c.point, value: Attr::Int(self.0) }).collect();
        rules::schedule_with(function, constants, target, &values)
    }
    fn identity(&self, _: &DeviceProfile) -> Option<String> {
        None
    }
}

const CONVOLUTION: &str = "const @w : f32[40,8,3,3] = random(1)\nconst @b : f32[40] = random(2)
graph @main(%x: f32[1,15,16,8]) -> (y: f32[1,15,16,40]) {
  %w = const @w
  %b = const @b
  %0 = conv %x, %w, %b {pads=[1,1,1,1], layout=nhwc}
  %1 = relu %0
  return %1
}";

fn compiled(m: &Module, profile: &DeviceProfile, schedules: Option<Arc<dyn ScheduleProvider>>) -> Compiled {
    let mut options = CompileOptions { schedules, ..CompileOptions::default() };
    options.pipeline.scheduling.rules = vec!["matmul-tile".into()];
    compile(m.clone(), &options, profile, &Emitter, &mut |_, _, _| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// Rows and columns of the tile of the plan's one kernel with a tile.
fn tile_of(compiled: &Compiled) -> [i64; 2] {
    let programs = compiled.plan.kernels.iter().map(|k| {
        let kernel = k.emitted.module.downcast_ref::<Kernel>().expect("a kernel of this target");
        kernel.program(&[]).expect("a program")
    });
    let tiles: Vec<[i64; 2]> = programs.filter_map(|p| first_tile(&p.body).map(|t| [t.rows, t.columns])).collect();
    assert_eq!(tiles.len(), 1, "{tiles:?}");
    tiles[0]
}

/// How the results of the plan differ from the interpreter's.
fn difference(m: &Module, made: &Compiled, processor: Arc<Processor>) -> Difference {
    let shape = compiler::int::const_dims(&m.main().ty(m.main().params()[0]).shape).expect("numbers");
    let values = (0..shape.iter().product()).map(|i: usize| ((i * 37 + 5) % 101) as f64 / 50.0 - 1.0);
    let x = Tensor::from_f64(DType::F32, shape, values);
    let want = run_function(m, m.entry, std::slice::from_ref(&x)).expect("a result");
    let constants = &made.module.constants;
    let load = |name| constants.get(&name).ok_or("no such constant")?.load();
    let session = Session::open(processor, &made.plan, &load).expect("a session");
    let got = session.run(&[x], &HostFunctions::default()).expect("a result");
    agree(&got[0], &want[0], &Tolerance::new(DType::F32, Some(1e-5), None))
}

#[test]
fn a_choice_of_rows_is_the_tile_of_the_native_kernel() {
    let m = parse_module(CONVOLUTION).unwrap_or_else(|e| panic!("{e}"));
    let processor = Arc::new(Processor::open(1, None).expect("a processor"));
    let profile = processor.profile();
    let [most, width] = profile.machine.register_tile().expect("a register tile").map(i64::from);
    let own = tile_of(&compiled(&m, &profile, None));
    let mut seen = vec![];
    for rows in 2..=most {
        let made = compiled(&m, &profile, Some(Arc::new(Rows(rows))));
        assert_eq!(tile_of(&made), [rows, width]);
        seen.push([rows, width]);
        let difference = difference(&m, &made, processor.clone());
        assert!(difference.pass, "{rows} rows: {difference:?}");
    }
    assert!(seen.contains(&own), "the rule's own tile {own:?} is one of them");
}

/// An activation that reads the sum twice is part of the tile: nothing of it goes through memory.
#[test]
fn activations_that_read_their_operand_twice_stay_in_registers() {
    let text = CONVOLUTION.replace("%1 = relu %0", "%1 = hard_swish %0");
    let m = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let processor = Arc::new(Processor::open(1, Some(isa)).expect("a processor"));
        let made = compiled(&m, &processor.profile(), None);
        let kept = made.plan.kernels.iter().any(|k| {
            let kernel = k.emitted.module.downcast_ref::<Kernel>().expect("a kernel of this target");
            let program = kernel.program(&[]).expect("a program");
            let epilogue = first_tile(&program.body).and_then(|t| t.epilogue.as_ref());
            epilogue.is_some_and(|e| e.steps.iter().any(|s| s.op == StepOp::Keep))
        });
        assert!(kept, "{}", isa.name());
        let difference = difference(&m, &made, processor);
        assert!(difference.pass, "{}: {difference:?}", isa.name());
    }
}

/// Rows of an image that begin and end in the padding are tiles: columns that have the same taps at a time.
#[test]
fn lanes_may_leave_the_image() {
    for (op, taps) in [("conv %x, %w {pads=[1,2], group=6}", 3), ("max_pool %x {kernel=[4], pads=[1,2]}", 4)] {
        let text = format!(
            "const @w : f32[6,1,3] = random(1)\ngraph @main(%x: f32[1,6,37]) -> (y: f32[1,6,{}]) {{
               %w = const @w
               %y = {op}
               return %y
             }}",
            41 - taps
        );
        let m = parse_module(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let processor = Arc::new(Processor::open(1, None).expect("a processor"));
        let made = compiled(&m, &processor.profile(), None);
        let across = made.plan.kernels.iter().filter_map(|k| {
            let kernel = k.emitted.module.downcast_ref::<Kernel>().expect("a kernel of this target");
            let program = kernel.program(&[]).expect("a program");
            first_tile(&program.body).map(|t| t.across.len())
        });
        assert_eq!(across.collect::<Vec<_>>(), [2], "{op}");
        let difference = difference(&m, &made, processor);
        assert!(difference.pass, "{op}: {difference:?}");
    }
}
