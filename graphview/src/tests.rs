//! Pictures, scenes and reports of small modules.

use crate::near::Near;
use crate::picture::{Category, Node, Picture};
use crate::report::{Beside, Measured, data, page, report};
use crate::scene::{Arrangement, Scene};
use compiler::compile::{CompileOptions, compile};
use compiler::passes::{AmpMode, FuseMode, PipelineOptions};
use compiler::profile::DeviceProfile;
use compiler::text::parse_module;
use compiler::trace::driver_stats::{DriverStats, Executable, Statistic, StatisticValue};
use compiler::trace::{Ceilings, CompileTrace, Contents, DispatchTime, Errors, NodeError, Times};
use serde_json::Value;
use shaders_gen::Emitter;
use std::collections::{BTreeMap, BTreeSet};

const RESIDUAL: &str = "const @w : f32[4,4,1,1] = random(1)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,4,8,8]) {
  %w = const @w : f32[4,4,1,1]
  %0 = conv %x, %w : f32[1,4,8,8] !from(\"Conv_0\")
  %1 = relu %0 : f32[1,4,8,8] !from(\"Relu_1\")
  %2 = conv %1, %w : f32[1,4,8,8] !from(\"Conv_2\")
  %3 = add %2, %x : f32[1,4,8,8] !from(\"Add_3\")
  %4 = transpose %3 {perm=[0,1,3,2]} : f32[1,4,8,8] !from(\"Transpose_4\")
  %5 = softmax %4 {axes=[3]} : f32[1,4,8,8] !from(\"Softmax_5\")
  return %5
}
";

const BRANCH: &str = "graph @main(%c: bool[], %x: f32[4]) -> (y: f32[4]) {
  %0 = exp %x : f32[4] !from(\"Exp_0\")
  %1 = if %c : f32[4] !from(\"If_1\") {
    %2 = relu %0 : f32[4] !from(\"Relu_2\")
    yield %2
  } {
    %3 = neg %x : f32[4] !from(\"Neg_3\")
    yield %3
  }
  return %1
}
";

fn picture(text: &str) -> Picture {
    Picture::of(&parse_module(text).expect("the text parses"))
}

fn arrange(p: &Picture, is_open: &dyn Fn(&Node) -> bool) -> Scene {
    Scene::arrange(p, &Arrangement::plain(is_open))
}

fn trace() -> CompileTrace {
    trace_with(&CompileOptions { record: true, ..CompileOptions::default() })
}

fn trace_with(options: &CompileOptions) -> CompileTrace {
    trace_of(RESIDUAL, options)
}

fn trace_of(text: &str, options: &CompileOptions) -> CompileTrace {
    let module = parse_module(text).expect("the text parses");
    let compiled = compile(module, options, &DeviceProfile::lavapipe(), &Emitter, &mut |_, _, _| ()).expect("compiles");
    CompileTrace::new("</script><b>residual", &compiled, options, &Emitter, Contents::Full).expect("a trace")
}

#[test]
fn a_convolution_of_open_sizes_is_a_contraction() {
    let p = picture(
        "const @w : f32[4,4,3,3] = random(1)
graph @main(%x: f32[n,4,h,w]) -> (y: f32[n,4,h,w]) {
  %w = const @w : f32[4,4,3,3]
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[n,4,h,w] !from(\"Conv_0\")
  return %0
}
",
    );
    let conv = p.nodes.iter().find(|n| n.op == "conv").expect("a convolution");
    assert_eq!(conv.category, Category::Contraction);
}

#[test]
fn constants_are_in_their_readers_and_categories_follow_from_properties() {
    let p = picture(RESIDUAL);
    let ops: Vec<(&str, Category)> = p.nodes.iter().map(|n| (n.op.as_str(), n.category)).collect();
    let expected = [
        ("input", Category::Terminal),
        ("conv", Category::Contraction),
        ("relu", Category::Elementwise),
        ("conv", Category::Contraction),
        ("add", Category::Elementwise),
        ("transpose", Category::Movement),
        ("softmax", Category::Reduction),
        ("output", Category::Terminal),
    ];
    assert_eq!(ops, expected);
    assert_eq!((p.nodes[1].weights.len(), p.nodes[1].weights[0].name.as_str()), (1, "w"));
    assert_eq!(p.nodes[3].origins, ["Conv_2"]);
    let ends: Vec<(usize, usize)> = p.edges.iter().map(|e| (e.from, e.to)).collect();
    assert_eq!(ends, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (4, 5), (5, 6), (6, 7)]);
    let mut keys: Vec<&str> = p.walk().iter().map(|n| n.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), p.walk().len());
}

#[test]
fn regions_are_frames_and_reach_what_they_capture() {
    let p = picture(BRANCH);
    let branch = p.nodes.iter().position(|n| n.category == Category::Control).expect("the branch");
    let titles: Vec<&str> = p.nodes[branch].inside.iter().map(|p| p.title.as_str()).collect();
    assert_eq!(titles, ["then", "else"]);
    let exp = p.nodes.iter().position(|n| n.op == "exp").expect("exp");
    assert!(p.edges.iter().any(|e| (e.from, e.to) == (exp, branch)), "what a region captures is an edge");
    let (open, closed) = (arrange(&p, &|_| true), arrange(&p, &|_| false));
    assert!(open.boxes.len() > closed.boxes.len());
    assert_eq!(open.captions.len(), 2);
    let frame = open.boxes.iter().find(|b| b.open).expect("a frame");
    for inner in open.boxes.iter().filter(|b| b.depth == 1) {
        let ([x, y, w, h], [fx, fy, fw, fh]) = (inner.rect, frame.rect);
        assert!(x >= fx && y >= fy && x + w <= fx + fw && y + h <= fy + fh, "{} leaves its frame", inner.node.key);
    }
    let relu = open.boxes.iter().position(|b| b.node.op == "relu").expect("relu");
    let [x, y, w, h] = open.boxes[relu].rect;
    assert_eq!(Near::of(&open).box_at(&open, [x + w / 2.0, y + h / 2.0]), Some(relu));
}

#[test]
fn keys_stay_over_the_passes_and_groups_lead_back_to_their_sources() {
    let t = trace();
    let texts = t.stage_texts().expect("texts");
    let fused = picture(&texts[t.passes.len()]);
    let groups: Vec<&Node> = fused.nodes.iter().filter(|n| n.category == Category::Group).collect();
    assert!(!groups.is_empty());
    let mut origins: Vec<&String> = groups.iter().flat_map(|g| &g.origins).collect();
    origins.sort();
    origins.dedup();
    let mut sources: Vec<&String> = t.sources.iter().map(|s| &s.name).collect();
    sources.sort();
    assert_eq!(origins, sources);
    assert!(groups.iter().all(|g| g.inside.len() == 1 && !g.inside[0].nodes.is_empty()));
    let first = picture(&texts[0]);
    let relu = first.nodes.iter().find(|n| n.op == "relu").expect("relu");
    let fusion = t.passes.iter().position(|p| p.name == "fuse-ops").expect("fusion");
    for text in &texts[1..=fusion] {
        let p = picture(text);
        if p.walk().iter().any(|n| n.op == "relu" && n.name == relu.name) {
            assert!(p.find(&relu.key).is_some(), "the key of {} changed", relu.name);
        }
    }
}

/// A trace with all that can be measured.
fn measured() -> Measured {
    let mut t = trace();
    let registers = Statistic { name: "VGPRs".into(), meaning: "m".into(), value: StatisticValue::Uint(96) };
    let executable = Executable { statistics: vec![registers], isa: Some("</script>".into()), ..Default::default() };
    let kernels = vec![vec![executable]; t.kernels.len()];
    t.driver_stats = Some(DriverStats { device: "some device".into(), kernels });
    let calls = t.calls().count();
    let dispatches = (1..=calls).map(|i| DispatchTime { us: i as f64, ..Default::default() }).collect();
    let ceilings = Some(Ceilings {
        copy_gb_s: 10.0,
        fma_gflops: 100.0,
        matrix_gflops: None,
        cache_gb_s: Some(30.0),
        workgroup_gb_s: None,
        conflicting_gb_s: None,
        subgroup_gops: None,
        launch_us: Some(5.0),
        ..Ceilings::default()
    });
    t.times = Some(Times { device: "some device".into(), dispatches, device_ms: 1.25, ceilings, ..Default::default() });
    let wrong = |name: &str| NodeError { name: name.into(), rel_l2: 0.5, max_abs: 2.0, ..Default::default() };
    let (nodes, outputs) = (vec![wrong(&t.sources[0].name)], vec![wrong("y")]);
    let errors = Errors { against: "the interpreter".into(), nodes, outputs, ..Default::default() };
    t.errors = Some(errors.clone());
    let mut all = Measured::new(t.clone());
    t.errors = Some(Errors { cumulative: true, ..errors });
    all.take(t).expect("the same compilation");
    all
}

/// A measured trace beside one without fusion.
fn beside() -> Measured {
    let mut m = measured();
    let names = ["fused", "apart"].map(String::from);
    let pipeline = PipelineOptions { fuse: FuseMode::Off, ..PipelineOptions::default() };
    let trace = trace_with(&CompileOptions { record: true, pipeline, ..CompileOptions::default() });
    m.beside = Some(Beside { trace, names });
    m
}

#[test]
fn another_compilation_stands_beside_a_report() {
    let d = data(&beside()).expect("the data")["difference"].clone();
    assert!(d["line"].as_str().is_some_and(|l| l.contains(" dispatches, ") && l.contains("estimated")), "{d}");
    assert_eq!(d["titles"], serde_json::json!(["fuse full", "fuse off"]));
    let rows = d["rows"].as_array().expect("rows");
    let conv = rows.iter().find(|r| r["reason"].as_str().is_some_and(|w| w.contains("conv"))).expect("another fusion");
    assert!(conv["changed"] == true && conv["us"].as_f64() > Some(0.0) && conv["us_beside"].as_f64() > Some(0.0));
    assert!(conv["kernels"].as_array().is_some_and(|l| l.len() > 1), "{conv}");
    assert!(data(&measured()).expect("the data")["difference"].is_null());
}

#[test]
fn a_report_is_one_file_with_everything_in_it() {
    let m = measured();
    let t = &m.trace;
    let html = page(&m).expect("a report");
    assert!(report(t).expect("a report").contains("held against the interpreter"));
    assert_eq!(html.matches("</script>").count(), 2, "nothing of the data ends a script");
    assert!(!html.contains("{{"), "a placeholder was left");
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"), "nothing is fetched");
    let start = html.find("id=\"data\">").expect("the data") + "id=\"data\">".len();
    let end = start + html[start..].find("</script>").expect("its end");
    let data: Value = serde_json::from_str(&html[start..end]).expect("the data is JSON");
    // The page's script parses line by line.
    let lines: Vec<&str> = html[start + 1..end - 1].split(",\n").collect();
    assert!(lines.iter().all(|l| serde_json::from_str::<Value>(&format!("{{{l}}}")).is_ok()), "a line is no field");
    assert_eq!(Some(lines.len()), data.as_object().map(serde_json::Map::len));
    let count = |key: &str| data[key].as_array().map_or(0, Vec::len);
    assert_eq!(count("stages"), t.passes.len() + 1);
    assert_eq!(
        (count("groups"), count("kernels"), count("remarks")),
        (t.groups.len(), t.kernels.len(), t.remarks.len())
    );
    let changed = 1 + t.stages[1..=t.passes.len()].iter().filter(|s| !s.delta.is_empty()).count();
    assert_eq!(count("graphs"), changed);
    let calls = data["calls"].as_array().into_iter().flatten();
    let us: Vec<f64> = calls.filter_map(|c| c["us"]["run"].as_f64()).collect();
    assert_eq!(us, (1..=t.calls().count()).map(|i| i as f64).collect::<Vec<_>>());
    let about = data["about"].as_str().unwrap_or_default();
    assert!(about.contains("1.25 ms") && about.contains("held against the interpreter"), "{about}");
    for kind in ["alone", "accumulated"] {
        let errors = &data["errors"][kind];
        let node = &errors["nodes"][0];
        assert_eq!((&node["node"], &node["rel_l2"], &node["pass"]), (&0.into(), &0.5.into(), &false.into()));
        assert_eq!((&errors["results"][0]["name"], errors["results"][0]["node"].is_null()), (&"y".into(), true));
    }
    let k = &data["kernels"][0];
    assert_eq!(k["wgsl"], t.kernels[0].wgsl);
    assert_eq!((&k["driver"][0]["registers"], &k["driver"][0]["isa"]), (&96.into(), &"</script>".into()));
}

/// Every box of a stage is in a level of its graph, whatever is folded.
#[test]
fn a_report_hides_no_box() {
    let m = measured();
    let data = data(&m).expect("the data");
    let keys_of = |level: &Value| {
        let (mut open, mut keys) = (vec![level.clone()], vec![]);
        while let Some(level) = open.pop() {
            for b in data["levels"][level.as_u64().expect("a level") as usize]["boxes"].as_array().expect("boxes") {
                let node = &data["nodes"][b["node"].as_u64().expect("a node") as usize];
                keys.push(node["key"].as_str().expect("a key").to_string());
                open.extend(b["inside"].as_array().expect("levels").iter().cloned());
            }
        }
        keys
    };
    for (i, text) in m.trace.stage_texts().expect("texts").iter().enumerate().take(m.trace.passes.len() + 1) {
        let graph = data["stages"][i]["graph"].as_u64().expect("a graph") as usize;
        let keys = keys_of(&data["graphs"][graph]["level"]);
        for n in picture(text).walk() {
            assert!(keys.contains(&n.key), "stage {i} has no {}", n.key);
        }
    }
}

#[test]
fn a_report_takes_measurements_of_the_same_compilation_alone() {
    let mut m = Measured::new(trace());
    let other = CompileOptions {
        record: true,
        pipeline: PipelineOptions { fuse: FuseMode::Off, ..Default::default() },
        ..Default::default()
    };
    let why = m.take(trace_with(&other)).expect_err("another compilation");
    assert!(why.0.contains("groups"), "{}", why.0);
}

#[test]
fn a_buffer_is_live_from_a_write_to_the_last_read() {
    // Two results in turn share a buffer: each is read by the next convolution alone.
    let chain: String = (1..6)
        .map(|i| format!("  %{i} = conv %{}, %w {{pads=[1,1,1,1]}} : f32[1,4,8,8] !from(\"Conv_{i}\")\n", i - 1))
        .collect();
    let text = format!(
        "const @w : f32[4,4,3,3] = random(1)\ngraph @main(%x: f32[1,4,8,8]) -> (y: f32[1,4,8,8]) {{\n  %w = const @w : \
         f32[4,4,3,3]\n  %0 = conv %x, %w {{pads=[1,1,1,1]}} : f32[1,4,8,8] !from(\"Conv_0\")\n{chain}  return %5\n}}\n"
    );
    let t = trace_of(&text, &CompileOptions::default());
    let steps = crate::memory::steps(&t);
    let spans = crate::memory::spans(&t, &steps);
    assert!(
        spans.len() > spans.iter().map(|s| s.buffer).collect::<BTreeSet<_>>().len(),
        "a buffer is used twice: {spans:?}"
    );
    for s in &spans {
        assert!(steps[s.first].writes.contains(&s.buffer), "{s:?} begins with a write");
        let result = t.plan.outputs.iter().any(|o| o.buffer == s.buffer) && s.last + 1 == steps.len();
        assert!(result || !steps[s.last].writes.contains(&s.buffer), "{s:?} ends with a read");
    }
    for pair in spans.windows(2).filter(|p| p[0].buffer == p[1].buffer) {
        assert!(pair[0].last < pair[1].first, "{pair:?}");
    }
}

type Fields = BTreeMap<String, BTreeSet<&'static str>>;

/// The fields of a value with their types: `stages[].id` is a text.
fn fields(path: &str, v: &Value, out: &mut Fields) {
    let ty = match v {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    out.entry(path.to_string()).or_default().insert(ty);
    match v {
        Value::Array(list) => list.iter().filter(|v| v.is_object()).for_each(|v| fields(&format!("{path}[]"), v, out)),
        // Keys of boxes and names of parts are data.
        Value::Object(map) => map.iter().for_each(|(k, v)| match path {
            "stages[].removed" | "stages[].added" => fields(&format!("{path}.*"), v, out),
            "" => fields(k, v, out),
            _ => fields(&format!("{path}.{k}"), v, out),
        }),
        _ => {}
    }
}

#[test]
fn the_page_documents_the_data_of_a_report() {
    let page = include_str!("../../docs/report.md");
    let row = |line: &str| {
        let cells: Vec<String> = line.split('|').map(|c| c.trim().trim_matches('`').to_string()).collect();
        (line.starts_with("| `")).then(|| (cells[1].clone(), cells[2].clone()))
    };
    let documented: BTreeMap<String, String> = page.lines().filter_map(row).collect();
    let mut seen = Fields::new();
    fields("", &data(&measured()).expect("the data"), &mut seen);
    fields("", &data(&Measured::new(trace())).expect("the data"), &mut seen);
    fields("", &data(&beside()).expect("the data"), &mut seen);
    for (path, types) in seen.iter().filter(|(p, _)| !p.is_empty() && !p.ends_with("[]")) {
        if path.starts_with("kernels[].driver[].") {
            continue;
        }
        let said = documented.get(path).unwrap_or_else(|| panic!("docs/report.md has no `{path}`: {types:?}"));
        let wrong: Vec<&&str> = types.iter().filter(|t| !said.split(" or ").any(|s| s == **t)).collect();
        assert!(wrong.is_empty(), "docs/report.md says that `{path}` is {said}, and it is {wrong:?}");
    }
    for path in documented.keys() {
        assert!(seen.contains_key(path), "docs/report.md has `{path}`, which no report has");
    }
}

#[test]
fn every_image_has_the_layout_that_it_stands_in() {
    let p = picture(
        "const @w : f32[8,4,1,1] = random(1)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,16], z: f32[1,16]) {
  %w = const @w : f32[8,4,1,1]
  %0 = call @fused %x, %w : f32[1,8,8,8] !from(\"Conv_0\")
  %1 = relu %0 : f32[1,8,8,8] !from(\"Relu_1\")
  %2 = concat %1, %0 {axis=3} : f32[1,8,8,16] !from(\"Concat_2\")
  %3 = max_pool %2 {kernel=[8,8], layout=nhwc} : f32[1,1,1,16] !from(\"Pool_3\")
  %4 = reshape %3 {shape=[1,16]} : f32[1,16] !from(\"Reshape_4\")
  return %2, %4
}
graph @fused(%x: f32[1,4,8,8], %w: f32[8,4,1,1]) -> (out0: f32[1,8,8,8]) primitive {
  %0 = conv %x, %w : f32[1,8,8,8] !from(\"Conv_0\")
  %1 = transpose %0 {perm=[0,2,3,1]} : f32[1,8,8,8] !from(\"Conv_0\")
  return %1
}
",
    );
    let layout = |op: &str| p.nodes.iter().find(|n| n.op == op).map(|n| n.layout).expect("a box");
    assert_eq!(layout("input"), Some("NCHW"));
    assert_eq!(layout("conv 1x1 + transpose"), Some("NHWC"), "a group is in the layout of its result");
    assert_eq!([layout("relu"), layout("concat")], [Some("NHWC"); 2]);
    assert_eq!(layout("reshape"), None);
    let label = |from: &str| p.edges.iter().find(|e| p.nodes[e.from].op == from).map(|e| e.label()).expect("an edge");
    assert_eq!(label("conv 1x1 + transpose"), "f32[1,8,8,8] NHWC");
    assert_eq!(label("reshape"), "f32[1,16]");
    let inner = &p.nodes.iter().find(|n| n.op == "conv 1x1 + transpose").expect("the group").inside[0];
    assert_eq!(inner.nodes.iter().filter_map(|n| n.layout).collect::<Vec<_>>(), ["NCHW", "NCHW", "NHWC", "NHWC"]);
}

#[test]
fn long_sizes_are_cut_in_types() {
    use crate::scene::short_type;
    assert_eq!(short_type("f32[1,64,56,56]"), "f32[1,64,56,56]");
    assert_eq!(short_type("f32[batch,3,height,width]"), "f32[batch,3,height,width]");
    let long = "f32[p2o.DynamicDimension.0,16,(p2o.DynamicDimension.1 + 31)/32*32,min(a, p2o.DynamicDimension.2)]";
    assert_eq!(short_type(long), "f32[…sion.0,16,…,…]");
    assert_eq!(short_type("f32[p2o.DynamicDimension.0,16] NHWC"), "f32[…sion.0,16] NHWC");
}

/// The last kernel reads f16 and stores f32: a page that says f16 of it would tell that its result overflows.
#[test]
fn a_group_stores_the_type_of_its_result_and_not_that_of_what_it_reads() {
    let text = "const @w : f32[64,64] = random(1)
graph @main(%x: f32[64,64]) -> (y: f32[64,64]) {
  %w = const @w : f32[64,64]
  %0 = matmul %x, %w : f32[64,64] !from(\"First\")
  %1 = matmul %0, %w : f32[64,64] !from(\"Last\")
  return %1
}
";
    let pipeline = PipelineOptions { amp: AmpMode::Fp16, ..PipelineOptions::default() };
    let t = trace_of(text, &CompileOptions { record: true, pipeline, ..CompileOptions::default() });
    let last = t.groups.iter().position(|g| g.origins.contains(&"Last".to_string())).expect("its group");
    let stored = t.stored().expect("a whole trace");
    assert_eq!(stored[last].dtype.map(|d| d.to_string()).as_deref(), Some("f32"));
    let v = data(&Measured { trace: t, accumulated: None, beside: None }).expect("the data");
    assert_eq!((&v["groups"][last]["stores"], &v["groups"][last]["dtype"]), (&"f32".into(), &"f16".into()));
    assert!(stored.iter().any(|s| s.dtype.is_some_and(|d| d.to_string() == "f16")), "the first one stores f16");
}
