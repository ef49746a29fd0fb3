use super::*;
use crate::name::Name;
use crate::remark::{Remark, RemarkKind};
use crate::trace::{Call, Group, Kernel, Options, Plan, Step, Times};

fn group(label: &str, origins: &[&str], ops: &[&str]) -> Group {
    Group {
        function: label.into(),
        layer: label.into(),
        label: label.into(),
        origins: origins.iter().map(|o| o.to_string()).collect(),
        inserted: false,
        stages: vec![],
        ops: ops.iter().map(|o| o.to_string()).collect(),
        nodes: vec![],
        anchor: None,
        layout: None,
        rule: String::new(),
        kind: crate::report::GroupKind::Kernel,
        tensor_function: None,
        host_function: None,
        reads: vec![],
        is_result: false,
        flops: 1,
        bytes: 0,
        open_bytes: None,
    }
}

fn kernel(schedule: &str) -> Kernel {
    Kernel {
        name: "k".into(),
        entry: "k".into(),
        function: "k".into(),
        schedule: vec![schedule.into()],
        instructions: vec![],
        blocks: vec![],
        loops: vec![],
        lines: vec![],
        when: vec![],
        groups: vec![],
        workgroup: [1; 3],
        grid: [1; 3],
        bindings: vec![],
        shared_bytes: 0,
        immediate_bytes: 0,
        dtype: "f32".into(),
        bounds_proved: true,
        wgsl: String::new(),
        spirv: vec![],
    }
}

/// A trace in which each group is one dispatch of so many microseconds, give or take a tenth.
fn trace(amp: &str, groups: &[(Group, f64)]) -> CompileTrace {
    let call = |group: usize| Call {
        kernel: group,
        group,
        buffers: vec![],
        grid: [1; 3],
        runs: 1,
        flops: 0,
        bytes: 0,
        open: None,
    };
    let time = |us: f64| DispatchTime { us, min_us: 0.9 * us, max_us: 1.1 * us };
    let total: f64 = groups.iter().map(|g| g.1).sum();
    CompileTrace {
        options: Options { amp: amp.into(), ..Options::default() },
        kernels: groups.iter().map(|_| kernel(amp)).collect(),
        plan: Plan { steps: vec![Step::Gpu((0..groups.len()).map(call).collect())], ..Plan::default() },
        groups: groups.iter().map(|g| g.0.clone()).collect(),
        times: Some(Times {
            dispatches: groups.iter().map(|g| time(g.1)).collect(),
            latency_ms: total / 1e3,
            ..Times::default()
        }),
        ..CompileTrace::default()
    }
}

fn remark(kind: RemarkKind, message: &str) -> Remark {
    Remark {
        pass: Name::new("tiles"),
        kind,
        nodes: vec![Name::new("c2")],
        message: message.into(),
        detail: String::new(),
    }
}

fn two() -> [CompileTrace; 2] {
    let mut a = trace(
        "off",
        &[
            (group("conv1", &["c1", "r1"], &["conv", "relu"]), 1000.0),
            (group("conv2", &["c2"], &["transform"]), 50.0),
            (group("conv2:product", &["c2"], &["matmul"]), 150.0),
            (group("pool", &["p"], &["pool"]), 300.0),
        ],
    );
    let mut turned = group("turn", &["p"], &["transpose"]);
    turned.inserted = true;
    let mut b = trace(
        "fp16",
        &[
            (group("conv1", &["c1"], &["conv"]), 300.0),
            (group("relu", &["r1"], &["relu"]), 100.0),
            (group("conv2", &["c2"], &["conv"]), 400.0),
            (turned, 10.0),
            (group("pool", &["p"], &["pool"]), 290.0),
        ],
    );
    a.remarks.push(remark(RemarkKind::Applied, "c2 became tiles"));
    b.remarks.push(remark(RemarkKind::Missed, "c2 stays as it is: no tiles in fp16"));
    [a, b]
}

#[test]
fn rows_cover_all_groups_however_they_were_fused() {
    let [a, b] = two();
    let c = Comparison::of(&a, &b);
    let rows: Vec<(&str, &[Vec<usize>; 2])> = c.rows.iter().map(|r| (r.name.as_str(), &r.groups)).collect();
    assert_eq!(
        rows,
        [
            ("conv1", &[vec![0], vec![0, 1]]),
            ("conv2:product", &[vec![1, 2], vec![2]]),
            ("pool", &[vec![3], vec![3, 4]]),
        ]
    );
    // The times of all rows are those of all dispatches.
    let sums = [0, 1].map(|side| c.rows.iter().map(|r| r.median_us()[side]).sum::<f64>().round());
    assert_eq!(sums, [1500.0, 1100.0]);
    assert_eq!(c.rows.iter().map(|r| r.changed).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(c.rows[0].noise().map(|n| (100.0 * n).round()), Some(10.0));
}

#[test]
fn the_verdict_says_what_is_slower_and_why() {
    let [a, b] = two();
    let c = Comparison::of(&a, &b);
    assert_eq!(
        c.headline(),
        "4 -> 5 dispatches, 1.4 times as fast (1.50 -> 1.10 ms, measured); slower: conv2:product 0.20 -> 0.40 ms \
         (no tiles); faster: 1 layer by 0.60 ms"
    );
    assert_eq!(c.rows[1].reason.as_deref(), Some("tiles: c2 stays as it is: no tiles in fp16"));
    // The other way round nothing is slower but that layer.
    let back = Comparison::of(&b, &a).headline();
    assert!(
        back.ends_with("slower: relu 0.40 -> 1.00 ms (conv + relu -> conv+relu); faster: 1 layer by 0.20 ms"),
        "{back}"
    );
    assert_eq!(c.titles(["a.trace", "b.trace"]), ["amp off", "amp fp16"]);
}

#[test]
fn two_runs_of_one_program_are_as_fast_and_bear_their_names() {
    let [a, _] = two();
    let c = Comparison::of(&a, &a);
    assert_eq!(c.headline(), "4 dispatches in both, as fast (1.50 -> 1.50 ms, measured)");
    assert_eq!(c.titles(["a.trace", "b.trace"]), ["a.trace", "b.trace"]);
    assert!(c.rows.iter().all(|r| !r.changed && r.reason.is_none()));
}

#[test]
fn a_pass_that_did_something_at_the_left_alone_is_named() {
    let [a, mut b] = two();
    b.remarks.clear();
    let c = Comparison::of(&a, &b);
    assert_eq!(c.rows[1].reason.as_deref(), Some("no tiles; transform + matmul -> conv"));
}
