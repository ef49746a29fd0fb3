//! Compile traces through the command: written, read, compared, refused.

use crate::command::{has_adapter, weft};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn stdout(args: &[&str]) -> String {
    weft(args).run().succeeded().stdout
}

fn json(args: &[&str]) -> serde_json::Value {
    weft(args).run().succeeded().json()
}

fn trace(folder: &Path, name: &str, model: &str, more: &[&str]) -> PathBuf {
    let path = folder.join(name);
    let compiled =
        json(&[&["compile", model, "--target", "lavapipe", "-q", "--json", "-o", text(&path)], more].concat());
    // The trace tells the same as the compilation itself.
    assert_eq!(json(&["inspect", text(&path), "--json"]), compiled);
    path
}

const MODEL: &str = "const @w : f32[8,4,3,3] = splat(0.25)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,8]) {
  %0 = const @w : f32[8,4,3,3]
  %1 = conv %x, %0 {pads=[1,1,1,1]} : f32[1,8,8,8] !from(\"Conv_0\")
  %2 = relu %1 : f32[1,8,8,8] !from(\"Relu_1\")
  return %2
}
";

#[test]
fn a_trace_is_written_read_and_compared() {
    let f = folder("traces");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    let a = trace(&f, "a.trace", text(&model), &[]);
    let b = trace(&f, "b.trace", text(&model), &["--fuse", "off"]);
    let shown = stdout(&["inspect", text(&a), "-v"]);
    assert!(shown.contains("conv+relu") && shown.contains("source") && shown.contains("0.2500"), "{shown}");
    let why = stdout(&["explain", text(&a), "--node", "Relu_1"]);
    assert!(why.contains("conv + relu") && why.contains("dispatch") && why.contains("Conv_0+relu: grid"), "{why}");
    weft(["explain", text(&a), "--node", "Rel"]).run().ended(2);
    assert!(stdout(&["explain", text(&a)]).contains("Conv_0"));

    let same = json(&["diff", text(&a), text(&a), "--json"]);
    assert_eq!((&same["schema"], &same["equal"]), (&1.into(), &true.into()));
    assert!(stdout(&["diff", text(&a), text(&a)]).contains("no difference"));
    let d = json(&["diff", text(&a), text(&b), "--json"]);
    assert_eq!(d["equal"], serde_json::Value::from(false));
    assert_eq!(d["groups_removed"][0]["origins"], serde_json::json!(["Conv_0", "Relu_1"]));
    assert_eq!(d["groups_added"].as_array().unwrap().len(), 2);
    let shown = stdout(&["diff", text(&a), text(&b)]);
    assert!(shown.contains("--fuse") && shown.contains("groups only in a.trace: 1"), "{shown}");
    // The verdict comes first, and names the files.
    assert!(shown.starts_with("1 -> 2 dispatches, ") && shown.contains("times as slow ("), "{shown}");
    assert!(shown.contains("estimated); slower: Conv_0") && shown.contains("(no fuse-ops)"), "{shown}");
    assert!(shown.contains("changed: --fuse (full -> off), "), "{shown}");
    assert_eq!((&d["verdict"]["dispatches"]["a"], &d["verdict"]["time"]["source"]), (&1.into(), &"estimated".into()));
}

#[test]
fn what_is_no_trace_is_refused() {
    let f = folder("no_traces");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    let good = trace(&f, "good.trace", text(&model), &[]);
    let bytes = std::fs::read(&good).unwrap();
    let mut newer = bytes.clone();
    newer[8] = 200;
    for (name, bytes, why) in [
        ("cut.trace", &bytes[..bytes.len() - 5], "truncated"),
        ("newer.trace", &newer, "version 200"),
        ("other.trace", b"not a trace", "not a compile trace"),
        ("empty.trace", b"", "not a compile trace"),
    ] {
        let path = f.join(name);
        std::fs::write(&path, bytes).unwrap();
        for command in
            [vec!["inspect", text(&path)], vec!["diff", text(&good), text(&path)], vec!["explain", text(&path)]]
        {
            weft(command).run().refused(3, why);
        }
    }
    weft(["run", text(&good), "--device", "interpreter"]).run().refused(3, "a compile trace, not a model");
    weft(["diff", text(&good), "nowhere.trace"]).run().ended(3);
}

#[test]
fn nothing_is_left_half_written() {
    let f = folder("half_traces");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    // A folder stands where the trace should be: the new file cannot take its place.
    let taken = f.join("taken.trace");
    std::fs::create_dir(&taken).unwrap();
    weft(["compile", text(&model), "--target", "lavapipe", "-q", "-o", text(&taken)]).run().ended(2);
    let mut left: Vec<_> = std::fs::read_dir(&f).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["m.weft", "taken.trace"]);
    weft(["compile", text(&model), text(&model), "--target", "lavapipe", "-o", text(&taken)]).run().ended(2);
}

#[test]
fn a_model_and_its_trace_are_explained_alike() {
    let f = folder("explained_traces");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    let path = trace(&f, "m.trace", text(&model), &[]);
    for more in [vec![], vec!["-v"], vec!["--node", "Relu_1"]] {
        let of_model = stdout(&[&["explain", text(&model), "--target", "lavapipe"], &more[..]].concat());
        let of_trace = stdout(&[&["explain", text(&path)], &more[..]].concat());
        assert_eq!(of_model, of_trace);
        assert!(of_trace.contains("its result is a result of the model"), "{of_trace}");
    }
    weft(["explain", text(&path), "--sort", "time"]).run().refused(2, "nothing was measured");
}

/// The strings of a JSON list.
fn strings(v: &serde_json::Value) -> Vec<&str> {
    v.as_array().expect("a list").iter().map(|s| s.as_str().expect("a string")).collect()
}

#[test]
fn every_kernel_block_and_line_of_resnet50_leads_to_its_nodes() {
    let f = folder("resnet50_trace");
    let path = trace(&f, "resnet50.trace", "resnet50", &[]);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes < 1_000_000, "{bytes}");
    let shaders = f.join("wgsl");
    let compiled = ["compile", "resnet50", "--target", "lavapipe", "-q", "--json", "--emit-dir", text(&shaders)];
    let c = json(&compiled);
    let list = |key: &str| c[key].as_array().expect(key).clone();
    let (groups, kernels, calls) = (list("groups"), list("kernels"), list("calls"));
    let mut sources: Vec<&str> = groups.iter().flat_map(|g| strings(&g["origins"])).collect();
    sources.sort_unstable();

    let mut names: Vec<&str> = kernels.iter().map(|k| k["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"layer2.0.conv1+batch_norm+relu"), "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), kernels.len());
    for (i, k) in kernels.iter().enumerate() {
        assert_eq!(k["id"], i);
        let file = k["file"].as_str().unwrap();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        assert!(file.starts_with(&format!("{i:03}_")) && file.chars().all(plain), "{file}");
        let wgsl = std::fs::read_to_string(shaders.join(file).with_extension("wgsl")).expect(file);
        let runs: Vec<usize> = calls.iter().filter(|c| c["kernel_id"] == i).map(|c| number(&c["group"])).collect();
        assert_eq!(k["layers"].as_array().unwrap().len(), runs.len());
        let nodes = strings(&k["nodes"]);
        assert!(!nodes.is_empty() && nodes.iter().all(|n| sources.binary_search(n).is_ok()));
        let blocks = k["blocks"].as_array().unwrap();
        assert!(blocks.iter().all(|b| !strings(&b["nodes"]).is_empty()));
        let known = |key: &str, by: &str, name: &str| k[key].as_array().unwrap().iter().any(|x| x[by] == name);
        let (mut last, mut own) = (0, 0);
        for l in k["lines"].as_array().unwrap() {
            let (first, end) = (number(&l[0]), number(&l[1]));
            assert!(last < first && first <= end && end <= wgsl.lines().count(), "{file} {l}");
            assert!(l[2].as_str().is_none_or(|b| known("blocks", "name", b)), "{file} {l}");
            assert!(l[3].as_str().is_none_or(|v| known("loops", "var", v)), "{file} {l}");
            own += if l[2].is_null() { 0 } else { end + 1 - first };
            last = end;
        }
        assert!(2 * own > wgsl.lines().count(), "{file}: {own} lines lead to a block");
        // The lines of a loop around several blocks lead to the nodes of the loop.
        let among = |v: &serde_json::Value| {
            let list = strings(&v["nodes"]);
            !list.is_empty() && list.iter().all(|n| nodes.contains(n))
        };
        assert!(blocks.iter().chain(k["loops"].as_array().unwrap()).all(among), "{file}");
        assert_eq!(k["instruction_stages"].as_array().unwrap().len(), k["schedule"].as_array().unwrap().len());
    }
    for (i, g) in groups.iter().enumerate() {
        assert!(!strings(&g["origins"]).is_empty() && !g["remarks"].as_array().unwrap().is_empty(), "{g}");
        let own: Vec<_> = calls.iter().filter(|c| c["group"] == i).collect();
        for what in ["flops", "bytes"] {
            assert_eq!(own.iter().map(|c| number(&c[what])).sum::<usize>(), number(&g[what]), "{what} of {g}");
        }
        let scheduled = list("remarks").iter().any(|r| r["pass"] == "schedule" && r["nodes"] == g["origins"]);
        assert!(scheduled && g["kind"] == "kernel", "{g}");
    }
}

fn number(v: &serde_json::Value) -> usize {
    v.as_u64().expect("a number") as usize
}

#[test]
fn measurements_are_stored_and_read() {
    if !has_adapter() {
        return;
    }
    let f = folder("measured_traces");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    let [a, b, errors] = ["a.trace", "b.trace", "errors.trace"].map(|n| f.join(n));
    let bench =
        |path: &Path| json(&["bench", text(&model), "--runs", "3", "--warmup", "1", "-q", "--json", "-o", text(path)]);
    let measured = bench(&a);
    assert_eq!(
        (&measured["per_kernel"][0]["id"], &measured["per_kernel"][0]["groups"]),
        (&0.into(), &serde_json::json!([0]))
    );
    bench(&b);
    let table = stdout(&["explain", text(&a), "--sort", "time"]);
    assert!(table.contains("Conv_0+relu") && table.contains("GFLOP/s"), "{table}");
    let sorted = json(&["explain", text(&a), "--sort", "time", "--json"]);
    let times: Vec<f64> =
        sorted["groups"].as_array().unwrap().iter().map(|g| g["time"]["us"].as_f64().unwrap_or(-1.0)).collect();
    assert!(times[0] > 0.0 && times.is_sorted_by(|x, y| x >= y), "{times:?}");
    assert!(stdout(&["inspect", text(&a)]).contains("times on "));
    let d = json(&["diff", text(&a), text(&b), "--json"]);
    assert_eq!((&d["equal"], &d["layers"][0]["name"]), (&true.into(), &"Conv_0+relu".into()));
    assert!(stdout(&["diff", text(&a), text(&b)]).contains("measured times of 1 layers: "));

    let compared = json(&["compare", text(&model), "-q", "--json", "-o", text(&errors)]);
    let nodes = compared["nodes"].as_array().unwrap().len();
    let stored = json(&["inspect", text(&errors), "--json"]);
    assert_eq!(
        (stored["errors"]["nodes"].as_array().unwrap().len(), &stored["errors"]["against"]),
        (nodes, &"reference".into())
    );
    let table = stdout(&["explain", text(&errors), "--sort", "error"]);
    let row = table.lines().find(|l| l.contains("Conv_0+relu")).unwrap_or_else(|| panic!("{table}"));
    assert!(row.trim_end().ends_with("Relu_1"), "the error is that of what the kernel stores: {table}");
    for wrong in [
        vec!["bench", text(&model), text(&model), "-o", text(&a)],
        vec!["bench", text(&model), "--sweep", "fuse=full,off", "-o", text(&a)],
        vec!["bench", text(&model), "--device", "interpreter", "-o", text(&a)],
    ] {
        weft(wrong).run().ended(2);
    }
}

/// Entry points of shaders get other names than kernels where those end in a digit.
#[test]
fn every_kernel_has_an_estimate() {
    let explained = stdout(&["explain", "squeezenet1_1", "--target", "ada", "-v"]);
    assert!(explained.contains("\nestimated: "), "{explained}");
}

/// As networks that read tables are built: a loop that data decides stands behind a convolutional part.
const DECIDED: &str = r#"const @w : f32[8,3,3,3] = random(1)
const @u : f32[8,5] = random(2)
const @decay : f32[] = [0.7]
const @limit : f32[] = [0.02]
graph @main(%image: f32[1,3,16,16]) -> (y: f32[trips,1,5]) {
  %w = const @w
  %u = const @u
  %decay = const @decay
  %limit = const @limit
  %0 = conv %image, %w {pads=[1,1,1,1]} : f32[1,8,16,16] !from("Conv_0")
  %1 = relu %0 : f32[1,8,16,16] !from("Relu_1")
  %2 = reduce %1 {kind=mean, axes=[2,3], keepdims=false} : f32[1,8] !from("Pool_2")
  %3, %4 = loop _, _, %2 {while=true, trips=40, count=trips} : f32[1,8], f32[trips,1,8] !from("Loop_3") (%i: i64[], %h: f32[1,8]) {
    %5 = mul %h, %decay : f32[1,8] !from("Mul_5")
    %6 = tanh %5 : f32[1,8] !from("Tanh_6")
    %7 = reduce %6 {kind=max, axes=[0,1], keepdims=false} : f32[] !from("Max_7")
    %8 = greater %7, %limit : bool[] !from("Greater_8")
    yield %8, %6, %6
  }
  %9 = matmul %4, %u : f32[trips,1,5] !from("MatMul_9")
  %10 = softmax %9 {axes=[2]} : f32[trips,1,5] !from("Softmax_10")
  return %10
}
"#;
const DECIDED_NODES: [&str; 9] =
    ["Conv_0", "Relu_1", "Pool_2", "Loop_3", "Mul_5", "Tanh_6", "Max_7", "Greater_8", "MatMul_9"];

#[test]
fn a_trace_of_a_network_in_parts_has_all_of_them() {
    let f = folder("traces_parts");
    let (model, still) = (f.join("m.weft"), f.join("still.trace"));
    std::fs::write(&model, DECIDED).unwrap();
    // Without a run every node is there.
    stdout(&["compile", text(&model), "--target", "lavapipe", "-q", "-o", text(&still)]);
    let shown = stdout(&["inspect", text(&still)]);
    assert!(shown.contains("nodes in the model"), "{shown}");
    let html = f.join("m.html");
    stdout(&["report", text(&still), "-o", text(&html)]);
    let page = std::fs::read_to_string(&html).unwrap();
    for node in DECIDED_NODES {
        assert!(page.contains(node), "the report has no {node}");
    }
    // With one, every part has its kernels and times, on a device and on the processor.
    timed_in_parts(&model, &f.join("m.trace"), &[]);
    timed_in_parts(&model, &f.join("cpu.trace"), &["--device", "cpu"]);
}

fn timed_in_parts(model: &Path, file: &Path, on: &[&str]) {
    let run = ["bench", text(model), "--runs", "3", "--warmup", "1", "-o", text(file), "--json"];
    let run = weft(run).args(on).run();
    if run.code == Some(5) {
        eprintln!("!!! nothing is timed: there is no device");
        return;
    }
    let timed = run.succeeded().json();
    let rows = timed["per_kernel"].as_array().expect("kernels");
    let in_loop = rows.iter().filter(|r| r["part"] == "deciding").filter_map(|r| r["calls"].as_u64());
    assert!(in_loop.max().is_some_and(|n| n > 3), "kernels of the loop count in each iteration: {rows:#?}");
    let explained = json(&["explain", text(file), "--sort", "time", "--json"]);
    let groups = explained["groups"].as_array().expect("groups");
    // Times, FLOPs and bytes of the loop's kernels are all of all iterations: rates are as `bench` has them.
    let mut compared = 0;
    for r in rows.iter().filter(|r| r["calls"].as_u64().is_some_and(|n| n > 3)) {
        let group = groups.iter().find(|g| g["name"] == r["name"] && g["time"].is_object());
        if let Some([a, b]) = group.and_then(|g| Some([g["gb_s"].as_f64()?, r["gb_s"].as_f64()?])) {
            assert!((a - b).abs() <= 0.01 * b, "{a} and {b} GB/s: {r}");
            compared += 1;
        }
    }
    assert!(compared > 0, "{rows:#?} {groups:#?}");
    let origins: Vec<&str> =
        groups.iter().flat_map(|g| g["origins"].as_array().into_iter().flatten()).filter_map(|o| o.as_str()).collect();
    for node in DECIDED_NODES {
        assert!(origins.contains(&node), "no group has {node}: {origins:?}");
    }
    let sum: f64 = explained["spent"].as_array().expect("rows").iter().filter_map(|r| r["ms"].as_f64()).sum();
    let run = explained["run_ms"].as_f64().expect("a run");
    assert!((sum - run).abs() <= 1e-6 * run, "{sum} of {run}");
    assert!(explained["times"]["device_ms"].as_f64().is_some_and(|ms| ms < run));
    // The frames of a report say how long their parts take.
    let html = file.with_extension("html");
    stdout(&["report", text(file), "-o", text(&html)]);
    let page = std::fs::read_to_string(&html).expect("a report");
    for part in ["before", "deciding"] {
        // `part: deciding x11, 2.76 ms`
        let start = format!("\"part: {part}");
        let titles = page.split(&start).filter_map(|t| t.split('"').next());
        let ms =
            titles.filter_map(|t| t.strip_suffix(" ms")?.rsplit_once(", ")).find_map(|(_, ms)| ms.parse::<f64>().ok());
        assert!(ms.is_some(), "{part}: no time");
    }
    // The parts stand one after the other on one axis, with every dispatch.
    let spans = explained["times"]["run"]["spans"].as_array().expect("a run");
    let kernels: BTreeSet<_> = spans.iter().filter_map(|s| s["dispatch"].as_u64()).collect();
    let count = explained["times"]["dispatches"].as_array().map_or(0, Vec::len) as u64;
    assert_eq!(kernels, (0..count).collect::<BTreeSet<_>>());
    for part in ["before: upload", "deciding: ", "after: readback"] {
        assert!(spans.iter().any(|s| s["name"].as_str().is_some_and(|n| n.starts_with(part))), "{part}: {spans:#?}");
    }
}

#[test]
fn a_report_takes_traces_of_one_compilation() {
    let f = folder("reports");
    let model = f.join("m.weft");
    std::fs::write(&model, MODEL).unwrap();
    let [a, b, times] = ["a.trace", "b.trace", "times.trace"].map(|name| f.join(name));
    let html = f.join("a.html");
    let run = weft(["bench", text(&model), "--runs", "2", "-q", "-o", text(&times)]).run();
    if run.code == Some(5) {
        eprintln!("!!! nothing is timed: there is no device");
        return;
    }
    stdout(&["compile", text(&model), "-q", "-o", text(&a)]);
    stdout(&["compile", text(&model), "--fuse", "off", "-q", "-o", text(&b)]);
    stdout(&["report", text(&a), text(&times), "-o", text(&html)]);
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("\"latency_ms\":"), "the times of the second trace are not there");
    assert!(page.contains("\"difference\":null"));
    // Another compilation stands beside it with the verdict that `diff` has.
    stdout(&["report", text(&a), "--beside", text(&b), "-o", text(&html)]);
    let page = std::fs::read_to_string(&html).unwrap();
    let verdict = json(&["diff", text(&a), text(&b), "--json"])["verdict"]["line"].to_string();
    assert!(page.contains(&verdict.replace('<', "\\u003c")), "{verdict}");
    let said = weft(["report", text(&a), text(&b), "-o", text(&html)]).run().refused(3, "another compilation").stderr;
    assert!(said.contains("1 groups") && said.contains("2 groups"), "{said}");
}
