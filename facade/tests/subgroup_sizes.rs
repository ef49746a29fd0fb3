//! If a driver chooses subgroup sizes that kernels on matrix units do not support, the session gets kernels without
//! matrix units.

use compiler::profile::DeviceProfile;
use compiler::schedule::ScheduleOptions;
use weft::{Device, Model, Options, Tensor};

const TEXT: &str = "graph @main(%x: f16[40,32], %w: f16[32,24]) -> (y: f16[40,24]) {
  %y = matmul %x, %w : f16[40,24]
  return %y
}
";

fn operand(shape: Vec<usize>, seed: u64) -> Tensor {
    compiler::text::random_tensor(weft::DType::F16, &shape, seed)
}

#[test]
fn other_subgroups_than_announced_leave_matrix_units() {
    let device = match Device::open("0") {
        Ok(Device::Gpu(gpu)) if gpu.profile.matrix_units().is_ok_and(|all| !all.is_empty()) => Device::Gpu(gpu),
        _ => return eprintln!("NOT RUN: there is no adapter with matrix units"),
    };
    let Device::Gpu(gpu) = &device else { return };
    let own = gpu.profile.clone();
    let largest = own.subgroup.1;
    let other = DeviceProfile { subgroup: (2 * largest, 2 * largest), ..own.clone() };
    let mut results = Vec::new();
    for (profile, leaves) in [(own, false), (other, true)] {
        let module = compiler::text::parse_module(TEXT).expect("text");
        let mut options = Options { profile: Some(profile), ..Options::for_device(&device) };
        options.pipeline.scheduling = ScheduleOptions::of_rules(["matmul-matrix"]);
        let compiled = Model::from_module(module).compile(&options).expect("compiles");
        assert!(
            compiled.compilation().expect("compiled").plan.kernels.iter().any(|k| k.emitted.wgsl.contains("coop_mat"))
        );
        let session = compiled.session(&device).expect("opens");
        let made = session.compilation().expect("compiled");
        let on_matrices = made.plan.kernels.iter().any(|k| k.emitted.wgsl.contains("coop_mat"));
        assert_eq!(on_matrices, !leaves);
        let said = made.remarks.iter().any(|r| r.message.contains("with subgroups of"));
        assert_eq!(said, leaves, "{:?}", made.remarks);
        let inputs = [("x", operand(vec![40, 32], 1)), ("w", operand(vec![32, 24], 2))];
        results.push(session.run(&inputs).expect("runs")["y"].to_f32_vec());
    }
    let (a, b) = (&results[0], &results[1]);
    let wrong = a.iter().zip(b).filter(|(a, b)| (*a - *b).abs() > 2e-3 * (1.0 + a.abs())).count();
    assert_eq!(wrong, 0, "of {} results", a.len());
}
