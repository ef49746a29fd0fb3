use super::driver_stats::{Executable, Statistic, StatisticValue};
use super::*;
use crate::calibrate::StoredRange;
use crate::compile::{CompileOptions, Compiled, compile};
use crate::dtype::DType;
use crate::graph::{FunctionBuilder, Module, TensorType, ValueId};
use crate::name::Name;
use crate::passes::{PassContext, PipelineOptions, Sequential, default_pipeline};
use crate::plan::StandInEmitter;
use crate::profile::DeviceProfile;
use crate::schedule::{ScheduleOptions, Versions};
use crate::tensor::Tensor;
use crate::text::{compare_modules, parse_module, print_module};

/// Stands for the shader generator.
const FAKE: StandInEmitter = StandInEmitter { version: 1 };

/// A chain of `n` ops with constants, in which passes find something to do.
fn chain(n: usize) -> Module {
    chains(&[8], n)
}

/// A chain of `n` ops for each number of channels.
fn chains(channels: &[usize], n: usize) -> Module {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let mut results = Vec::new();
    for (k, &channels) in channels.iter().enumerate() {
        let v = b.param(format!("x_{k}"), TensorType::fixed(DType::F32, &[1, channels, 4, 4]));
        let end = add_chain(&mut b, v, channels, k * n..(k + 1) * n);
        results.push((Name::new(&format!("y_{k}")), end));
    }
    b.finish(&results);
    m
}

fn add_chain(b: &mut FunctionBuilder, mut v: ValueId, channels: usize, nodes: std::ops::Range<usize>) -> ValueId {
    for i in nodes {
        b.set_source(Some(Name::new(&format!("node_{i}"))));
        v = match i % 4 {
            0 => {
                let w = b.constant(
                    &format!("w_{i}"),
                    &Tensor::from_vec(vec![channels, 1, 1], vec![i as f32 + 0.5; channels]),
                );
                b.add(crate::ops::binary::Add {}, &[v, w]).unwrap()
            }
            1 => b.add(crate::ops::unary::Relu {}, &[v]).unwrap(),
            2 => b.add(crate::ops::softmax::Softmax { axes: vec![3] }, &[v]).unwrap(),
            _ => b.add(crate::ops::binary::Mul {}, &[v, v]).unwrap(),
        };
    }
    v
}

fn options() -> CompileOptions {
    CompileOptions { record: true, ..CompileOptions::default() }
}

fn compiled(m: Module, options: &CompileOptions) -> Compiled {
    compile(m, options, &DeviceProfile::baseline(), &FAKE, &mut |_, _, _| ()).unwrap()
}

fn trace_of(m: Module, options: &CompileOptions) -> CompileTrace {
    CompileTrace::new("chain", &compiled(m, options), options, &FAKE, Contents::Full).unwrap()
}

#[test]
fn every_stage_comes_back_byte_for_byte() {
    let (m, options) = (chain(12), options());
    let trace = CompileTrace::from_bytes(&trace_of(m.clone(), &options).to_bytes().unwrap()).unwrap();
    let texts = trace.stage_texts().unwrap();
    let mut want = m.clone();
    let mut cx = PassContext::new(DeviceProfile::baseline());
    options.pipeline.configure(&mut cx);
    assert_eq!(texts[0], print_module(&want));
    let pipeline = default_pipeline(&options.pipeline);
    // Passes that others require run between those of the pipeline; the last run of each name is the pipeline's own.
    let mut at = 0;
    for name in &pipeline {
        let before = cx.stats.len();
        Sequential::new([name]).run(&mut want, &mut cx).unwrap();
        at += cx.stats.len() - before;
        assert_eq!(trace.stages[at].label, *name);
        assert_eq!(texts[at], print_module(&want), "after {name}");
    }
    let c = compiled(m, &options);
    assert_eq!(trace.stages[at + 1].label, "lowered");
    assert_eq!(texts[at + 1], print_module(&c.unscheduled_module()));
    assert_eq!(texts[at + 2], print_module(&c.module));
    assert_eq!((texts.len(), trace.passes.len()), (at + 3, at));
    assert_eq!(trace.stage_text(at).unwrap().as_ref(), texts.get(at));
    assert_eq!(trace.stage_text(99).unwrap(), None);
    for text in &texts {
        let again = parse_module(text).unwrap();
        assert_eq!(print_module(&again), *text);
    }
    compare_modules(&parse_module(&texts[at + 2]).unwrap(), &c.module).unwrap();
}

#[test]
fn a_trace_holds_what_the_compilation_did() {
    let options = options();
    let c = compiled(chain(8), &options);
    let t = CompileTrace::new("chain", &c, &options, &FAKE, Contents::Full).unwrap();
    let read = CompileTrace::from_bytes(&t.to_bytes().unwrap()).unwrap();
    assert_eq!(read, t);
    assert_eq!(t.remarks, c.remarks);
    assert_eq!(t.passes, c.passes);
    assert_eq!(t.groups.len(), c.groups.len());
    assert_eq!(t.kernels.len(), c.plan.kernels.len());
    assert_eq!(t.kernels[0].spirv.len(), 8);
    assert!(!t.kernels[0].schedule.is_empty());
    assert_eq!(t.sources.len(), 8);
    assert_eq!(t.sources[1].name, "node_1");
    let names: Vec<&str> = t.weights.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["w_0", "w_4"]);
    assert_eq!((t.weights[1].min, t.weights[1].max), (4.5, 4.5));
    for s in &t.sources {
        assert!(!t.groups_of_node(&s.name).is_empty(), "{} is in no group", s.name);
    }
    let lines = t.origin_map(0).unwrap();
    assert_eq!(lines.iter().filter(|l| l.origins == ["node_1"]).count(), 1);
    let json = serde_json::to_value(t.record()).expect("JSON");
    assert_eq!(json["calls"].as_array().unwrap().len(), t.calls().count());
    let summary = CompileTrace::new("chain", &c, &options, &FAKE, Contents::Summary).unwrap();
    assert_eq!(serde_json::to_value(summary.record()).expect("JSON"), json);
    assert!(summary.weights.is_empty() && summary.kernels[0].spirv.is_empty());
}

#[test]
fn other_bytes_are_refused_with_the_reason() {
    let bytes = trace_of(chain(4), &options()).to_bytes().unwrap();
    let error = |b: &[u8]| CompileTrace::from_bytes(b).unwrap_err();
    assert_eq!(error(b"PK\x03\x04 something else"), TraceError::NotATrace);
    assert_eq!(error(b""), TraceError::NotATrace);
    assert!(matches!(error(MAGIC), TraceError::Damaged(_)));
    let mut newer = bytes.clone();
    newer[8] = VERSION as u8 + 1;
    assert_eq!(error(&newer), TraceError::Version { found: VERSION + 1 });
    for end in [12, 13, 40, bytes.len() / 2, bytes.len() - 1] {
        assert!(matches!(error(&bytes[..end]), TraceError::Damaged(_)), "cut at {end}");
    }
    for at in (12..bytes.len()).step_by(37) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        assert!(CompileTrace::from_bytes(&changed).is_err(), "changed at {at}");
    }
    let mut longer = bytes;
    longer.extend_from_slice(b"more");
    assert!(CompileTrace::from_bytes(&longer).is_err());
}

#[test]
fn indices_out_of_range_are_refused() {
    let mut t = trace_of(chain(4), &options());
    let Some(Step::Gpu(list)) = t.plan.steps.first_mut() else { panic!("no dispatch") };
    list[0].kernel = 1000;
    assert!(matches!(CompileTrace::from_bytes(&t.to_bytes().unwrap()), Err(TraceError::Damaged(_))));
}

/// Postcard names no fields: when this fails, the layout of a recorded type changed. Raise [`VERSION`], then renew the
/// digits.
#[test]
fn the_layout_belongs_to_the_version() {
    let t = CompileTrace {
        model: "m".into(),
        weft: "w".into(),
        profile: "{}".into(),
        profile_name: "p".into(),
        options: Options { opt_level: 3, pipeline: vec!["a".into()], ..Options::default() },
        dims: vec![OpenDim { name: "n".into(), low: 1, high: 8, declared: true }],
        sources: vec![SourceNode { name: "n".into(), op: "o".into(), origins: vec!["n".into()] }],
        stages: vec![Stage {
            label: "source".into(),
            delta: TextDelta { hunks: vec![Hunk { keep: 1, drop: 2, add: "x\n".into() }] },
        }],
        passes: vec![crate::passes::PassStats {
            name: "a".into(),
            ms: 1.0,
            nodes_before: 2,
            nodes_after: 3,
            changed: true,
        }],
        remarks: vec![Remark {
            pass: "a".into(),
            kind: crate::remark::RemarkKind::Missed,
            nodes: vec!["n".into()],
            message: "why".into(),
            detail: String::new(),
        }],
        groups: vec![Group {
            function: "f".into(),
            layer: "n".into(),
            label: "l".into(),
            origins: vec!["n".into()],
            inserted: false,
            stages: vec![vec![0], vec![]],
            ops: vec!["o".into()],
            nodes: vec!["n".into()],
            anchor: Some("o".into()),
            layout: None,
            rule: "r".into(),
            kind: GroupKind::View,
            tensor_function: None,
            host_function: None,
            reads: vec![0],
            is_result: true,
            flops: 300,
            bytes: 4,
            open_bytes: Some("n*4".into()),
        }],
        kernels: vec![Kernel {
            name: "k".into(),
            entry: "e".into(),
            function: "t".into(),
            schedule: vec!["s".into()],
            instructions: vec![vec![0, 1]],
            blocks: vec![KernelBlock { name: "b".into(), stages: vec![1] }],
            loops: vec![KernelLoop {
                var: "i".into(),
                extent: "4".into(),
                kind: "for".into(),
                maker: Some(0),
                blocks: vec![0],
            }],
            lines: vec![KernelLines { first: 1, count: 2, block: Some(0), r#loop: None }],
            when: vec!["n < 4".into()],
            groups: vec![0],
            workgroup: [1, 2, 3],
            grid: [4, 5, 6],
            bindings: vec![Binding { buffer: "b".into(), slice: 1, written: true }],
            shared_bytes: 7,
            immediate_bytes: 8,
            dtype: "f32".into(),
            bounds_proved: true,
            wgsl: "g".into(),
            spirv: vec![9, 10],
        }],
        plan: Plan {
            buffers: vec![PlanBuffer {
                content: Content::Constant { name: "c".into(), packer: Some("p".into()) },
                bytes: 16,
                slice_bytes: 16,
            }],
            steps: vec![
                Step::Gpu(vec![Call {
                    kernel: 0,
                    group: 0,
                    buffers: vec![(0, 1)],
                    grid: [1, 2, 3],
                    runs: 1,
                    flops: 5,
                    bytes: 6,
                    open: Some(OpenCall {
                        grid: ["n".into(), "1".into(), "1".into()],
                        bytes: "n*4".into(),
                        declared: true,
                    }),
                }]),
                Step::Host { group: 0, inputs: vec![0], outputs: vec![] },
                Step::Copy { from: 0, to: 0 },
                Step::Call { group: 0, callee: 0, arguments: vec![(0, 0)], results: vec![(0, 0)] },
            ],
            inputs: vec![BufferView {
                name: "x".into(),
                buffer: 0,
                dtype: DType::F16,
                shape: vec![2],
                encoding: "Native".into(),
            }],
            outputs: vec![],
            functions: vec![PlanFunction { name: "f".into(), first: 3, buffers: vec![0] }],
        },
        memory: MemoryReport { weights: 1, activations_peak: 2, activations_naive: 3 },
        transposes: TransposeReport { activation: 1, weight_folded: 2, weight_runtime: 3 },
        weights: vec![WeightSummary::of("w", &crate::graph::Constant::from_tensor(&Tensor::ints(&[1]))).unwrap()],
        parts: vec![TracePart { name: "before".into(), group: 0, kernel: 0, host_ms: Some(1.0) }],
        compile_ms: 2.0,
        timings: vec![("t".into(), 3.0)],
        times: Some(Times {
            device: "d".into(),
            source: "s".into(),
            dispatches: vec![DispatchTime { us: 2.0, min_us: 1.0, max_us: 3.0 }],
            latency_ms: 4.0,
            plus_minus_ms: Some(0.25),
            device_ms: 5.0,
            run: Some(RunSpans {
                spans: vec![Span {
                    lane: Lane::Device,
                    kind: Kind::Kernel,
                    name: "k".into(),
                    dispatch: Some(0),
                    group: Some(0),
                    waits: false,
                    start_us: 1.0,
                    end_us: 2.0,
                }],
                kernel_times: "host-clock".into(),
                rows: vec![TimeRow { name: "k".into(), count: 1, ..TimeRow::default() }],
                ms: 3.0,
                left_out: 1,
                uncertainty_us: 0.5,
            }),
            ceilings: Some(Ceilings { copy_gb_s: 6.0, fma_gflops: 7.0, ..Ceilings::default() }),
        }),
        errors: Some(Errors {
            device: "d".into(),
            against: "cpu".into(),
            cumulative: true,
            tolerance: 0.5,
            nodes: vec![NodeError {
                name: "n".into(),
                max_abs: 1.0,
                rel_l2: 2.0,
                max_magnitude: 3.0,
                pass: true,
                accumulated: Some(4.0),
            }],
            outputs: vec![],
        }),
        ranges: Some(RangesInF16 {
            inputs: 5,
            values: vec![StoredRange {
                name: "n".into(),
                op: "o".into(),
                largest: 1.0,
                of_f16: 2.0,
                elements: 6,
                overflowing: 7,
                zeroed: 8,
                subnormal: 9,
            }],
        }),
        driver_stats: Some(DriverStats {
            device: "d".into(),
            kernels: vec![vec![Executable {
                name: "compute".into(),
                subgroup_size: 32,
                statistics: vec![Statistic { name: "s".into(), meaning: "m".into(), value: StatisticValue::Uint(300) }],
                isa: Some("i".into()),
            }]],
        }),
        overlay: None,
    };
    let plain = postcard::to_stdvec(&t).unwrap();
    assert_eq!(CompileTrace::from_bytes(&t.to_bytes().unwrap()).unwrap(), t);
    use sha2::{Digest, Sha256};
    let digest: String = Sha256::digest(&plain).iter().take(8).map(|b| format!("{b:02x}")).collect();
    assert_eq!((VERSION, digest.as_str()), (19, "eaae1714d25b2ffd"), "{} bytes", plain.len());
}

/// Bundles, traces and databases of tuned choices have profiles in this form. Earlier builds wrote the same, the first
/// of them without `register_tile`.
#[test]
fn saved_profiles_keep_their_form() {
    let processor = DeviceProfile::processor(2, [6, 16]);
    let all = [
        (DeviceProfile::baseline(), false, [0, 0]),
        (DeviceProfile::lavapipe(), true, [0, 0]),
        (processor, true, [6, 16]),
    ];
    for (profile, software, tile) in all {
        let mut saved = serde_json::to_value(&profile).expect("a profile is saved");
        assert_eq!(saved["software"], software, "{}", profile.name);
        assert_eq!(saved["register_tile"], serde_json::json!(tile), "{}", profile.name);
        assert_eq!(serde_json::from_value::<DeviceProfile>(saved.clone()).expect("it is read"), profile);
        if tile == [0, 0] {
            saved.as_object_mut().expect("an object").remove("register_tile");
            assert_eq!(serde_json::from_value::<DeviceProfile>(saved).expect("it is read"), profile);
        }
    }
}

#[test]
fn ten_thousand_nodes_stay_below_twenty_megabytes() {
    let t = trace_of(chains(&(1..=200).collect::<Vec<_>>(), 50), &options());
    assert_eq!(t.sources.len(), 10_000);
    assert!(t.kernels.len() >= 400, "{}", t.kernels.len());
    let bytes = t.to_bytes().unwrap().len();
    assert!(bytes < 20_000_000, "{bytes}");
    assert_eq!(CompileTrace::from_bytes(&t.to_bytes().unwrap()).unwrap(), t);
}

fn facts(list: &[diff::Fact]) -> Vec<&str> {
    list.iter().map(|f| f.what.as_str()).collect()
}

#[test]
fn a_trace_does_not_differ_from_itself_but_in_time() {
    let a = trace_of(chain(8), &options());
    let mut b = a.clone();
    b.compile_ms = 7.0;
    b.passes[0].ms = 3.0;
    let d = TraceDiff::between(&a, &b).unwrap();
    assert!(d.is_empty(), "{d:?}");
    assert_eq!(
        d.timings[0],
        diff::Timing { what: "the whole compilation".into(), a_ms: Some(a.compile_ms), b_ms: Some(7.0) }
    );
}

#[test]
fn differences_are_named() {
    let full = options();
    let pipeline = PipelineOptions { fuse: crate::passes::FuseMode::Off, ..PipelineOptions::default() };
    let off = CompileOptions { pipeline, ..full.clone() };
    let (a, b) = (trace_of(chain(8), &full), trace_of(chain(8), &off));
    let d = TraceDiff::between(&a, &b).unwrap();
    assert!(facts(&d.facts).contains(&"--fuse") && facts(&d.facts).contains(&"groups"), "{:?}", d.facts);
    assert!(!d.groups_removed.is_empty() && d.groups_added.len() > d.groups_removed.len());
    assert!(d.stages.iter().any(|s| s.label == "fuse-ops" && s.removed > 0 && s.added > 0), "{:?}", d.stages);
    assert!(!d.remarks_removed.is_empty(), "fusion remarks are gone");

    let scheduling =
        ScheduleOptions { rules: vec!["direct".into()], versions: Versions::Off, ..ScheduleOptions::default() };
    let pipeline = PipelineOptions { scheduling, ..PipelineOptions::default() };
    let asked = trace_of(chain(8), &CompileOptions { pipeline, ..full.clone() });
    let d = TraceDiff::between(&a, &asked).unwrap();
    assert!(facts(&d.facts).contains(&"--rules") && facts(&d.facts).contains(&"--versions"), "{:?}", d.facts);

    let mut c = a.clone();
    c.kernels[0].schedule.push("unroll {loop=i}".into());
    c.kernels[0].workgroup = [32, 1, 1];
    c.groups[0].rule = "another".into();
    let d = TraceDiff::between(&a, &c).unwrap();
    assert_eq!(d.kernels.len(), 1);
    assert_eq!(facts(&d.kernels[0].facts), ["workgroup"]);
    assert_eq!(d.kernels[0].schedule.last().unwrap(), "+ unroll {loop=i}");
    assert_eq!(facts(&d.groups_changed[0].facts), ["rule"]);
    assert_eq!((d.groups_removed.len(), d.groups_added.len()), (0, 0));
    assert!(!d.is_empty());
}

#[test]
fn measured_times_show_which_layers_changed() {
    let mut a = trace_of(chain(8), &options());
    let time = |us: f64| DispatchTime { us, min_us: us - 1.0, max_us: us + 1.0 };
    let times = |t: &CompileTrace| Times { dispatches: t.calls().map(|_| time(10.0)).collect(), ..Times::default() };
    a.times = Some(times(&a));
    let mut b = a.clone();
    let last = b.calls().count() - 1;
    if let Some(t) = &mut b.times {
        t.dispatches[0] = time(11.5);
        t.dispatches[last] = time(40.0);
    }
    let d = TraceDiff::between(&a, &b).unwrap();
    assert!(d.is_empty(), "times are no difference: {:?}", d.facts);
    let slow = b.calls().last().unwrap().group;
    let c = Comparison::of(&a, &b);
    let changed = c.changed(true);
    assert_eq!((changed.len(), &changed[0].groups[1]), (1, &vec![slow]));
    assert_eq!(changed[0].median_us()[1], b.time_of_group(slow).unwrap().us);
    assert!(c.changed(false).is_empty());
    let again = CompileTrace::from_bytes(&b.to_bytes().unwrap()).unwrap();
    assert_eq!(again.times, b.times);
}

#[test]
fn parts_of_kernels_lead_to_the_nodes_of_every_group_that_runs_them() {
    let t = trace_of(chains(&[8, 8], 16), &options());
    let shared = (0..t.kernels.len()).find(|&k| t.groups_of(k).len() > 1).expect("equal groups share a kernel");
    let groups = t.groups_of(shared);
    for (b, block) in t.kernels[shared].blocks.iter().enumerate() {
        let nodes = t.nodes_of_block(shared, b);
        for &g in &groups {
            let own = t.groups[g].nodes_of_stages(&block.stages);
            assert!(!own.is_empty() && own.iter().all(|n| nodes.contains(n)), "{nodes:?} {own:?}");
        }
    }
    assert!((0..t.groups.len()).all(|g| !t.remarks_of_group(g).is_empty()));
    let k = &t.kernels[shared];
    assert_eq!(k.instructions.len(), k.schedule.len());
    assert!((0..k.schedule.len()).all(|i| !t.nodes_of_instruction(shared, i).is_empty()));
    assert!((0..k.loops.len()).all(|l| !t.nodes_of_loop(shared, l).is_empty()));
    assert!(k.loops.iter().any(|l| l.maker.is_some()));
}

#[test]
fn positions_out_of_range_are_refused() {
    let good = trace_of(chain(4), &options());
    let damaged = |change: fn(&mut CompileTrace)| {
        let mut t = good.clone();
        change(&mut t);
        CompileTrace::from_bytes(&t.to_bytes().unwrap()).is_err()
    };
    assert!(!damaged(|_| ()));
    assert!(damaged(|t| t.groups[0].stages.push(vec![99])));
    assert!(damaged(|t| t.groups[0].reads.push(99)));
    assert!(damaged(|t| t.kernels[0].lines.push(KernelLines { first: 0, count: 1, block: Some(99), r#loop: None })));
    assert!(damaged(|t| t.times = Some(Times::default())));
}

#[test]
fn a_small_file_does_not_expand_to_all_memory() {
    let zeros = |bytes: usize| {
        let head = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let mut encoder = zstd::Encoder::new(head, 1).unwrap();
        let block = vec![0; 1 << 20];
        (0..bytes >> 20).for_each(|_| std::io::Write::write_all(&mut encoder, &block).unwrap());
        CompileTrace::from_bytes(&encoder.finish().unwrap()).unwrap_err().to_string()
    };
    assert!(zeros(256 << 20).contains("expand to more than 16 MiB"), "{}", zeros(256 << 20));
    assert!(zeros(8 << 20).contains("damaged"));
}
