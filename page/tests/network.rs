//! The page's compiler, without a browser.

use bytes::Bytes;
use compiler::compile::split_network;
use compiler::dtype::DType;
use compiler::fault::Fault;
use compiler::interpreter::run_function;
use compiler::onnx::export_onnx_beside;
use compiler::text::random_tensor;
use page::{Files, Measured, Network, Request, profile_of, report_of, zoo};
use serde_json::{Value, json};
use std::sync::Arc;

const TEXT: &str = "\
const @w : f32[8,4] = random(1)

graph @main(%x: f32[n,8]) -> (\"y\": f32[n,4]) {
  %w = const @w
  %0 = matmul %x, %w
  %y = relu %0
  return %y
}
";

/// Files in memory.
struct Memory(Vec<Vec<u8>>);

impl Files for Memory {
    fn read(&self, file: usize, offset: u64, length: usize) -> Result<Bytes, Fault> {
        let bytes = self.0[file].get(offset as usize..offset as usize + length);
        Ok(Bytes::copy_from_slice(bytes.ok_or("the file is shorter")?))
    }
}

fn compiled(request: Value, text: &str) -> Result<Network, String> {
    let name = request["model"].as_str().unwrap_or_default().to_string();
    let files = if text.is_empty() { vec![] } else { vec![(name, text.as_bytes().to_vec())] };
    compiled_from(request, files)
}

fn compiled_from(mut request: Value, files: Vec<(String, Vec<u8>)>) -> Result<Network, String> {
    request["files"] = files.iter().map(|(name, bytes)| json!({ "name": name, "size": bytes.len() })).collect();
    let request: Request = serde_json::from_value(request).map_err(|e| e.to_string())?;
    let files = Memory(files.into_iter().map(|f| f.1).collect());
    Network::compile(&request, Arc::new(files), None, &mut |_, _, _| {})
}

/// A model whose weights are in a file beside it.
fn beside() -> (Vec<u8>, Vec<u8>) {
    let text = TEXT.replace("[n,8]", "[3,8]").replace("[n,4]", "[3,400]").replace("[8,4]", "[8,400]");
    let module = compiler::text::parse_module(&text).expect("a module");
    let mut data = vec![];
    let mut write = |part: &[u8]| {
        data.extend_from_slice(part);
        Ok(())
    };
    let model = export_onnx_beside(&module, "folder/data.bin", &mut write);
    (model.expect("a model"), data)
}

#[test]
fn external_data_is_dropped_together_with_the_model() {
    let (model, data) = beside();
    let request = || json!({ "model": "m.onnx", "profile": "baseline" });
    let all = |name: &str, data: &[u8]| vec![("m.onnx".into(), model.clone()), (name.into(), data.to_vec())];
    let mut apart = compiled_from(request(), all("data.bin", &data)).expect("it compiles");
    let file = apart.files().expect("files").into_iter().find(|f| f.path == "plan.json").expect("a plan");
    let buffers = plan(&file)["buffers"].clone();
    let places: Vec<u64> = buffers.as_array().expect("a list").iter().filter_map(|b| b["weights"].as_u64()).collect();
    assert!(!places.is_empty());
    let read: Vec<Vec<u8>> = places.iter().map(|&at| apart.weights(at as usize).expect("weights")).collect();
    assert!(read.iter().flatten().any(|&b| b != 0));
    let again: Vec<Vec<u8>> = places.iter().rev().map(|&at| apart.weights(at as usize).expect("weights")).collect();
    assert!(again.iter().rev().eq(&read) && apart.weights(1).is_err_and(|e| e.contains("no weights begin at 1")));
    let without = compiled_from(request(), vec![("m.onnx".into(), model.clone())]).err().expect("a refusal");
    assert!(without.contains("its data is in the file `folder/data.bin`: drop both together"), "{without}");
    let short = compiled_from(request(), all("data.bin", &data[1..])).err().expect("a refusal");
    assert!(short.contains("data.bin has 12799 bytes"), "{short}");
}

/// 5000000000 is more than kernels compute with.
const ON_HOST: &str = "\
const @big : i64[] = [5000000000]

graph @main(%n: i64[2]) -> (\"y\": i64[2]) {
  %big = const @big
  %y = mul %n, %big
  return %y
}
";

#[test]
fn the_host_computes_what_the_plan_gives_to_it() {
    let network = compiled(json!({ "model": "a.weft", "profile": "baseline" }), ON_HOST).expect("it compiles");
    let files = network.files().expect("files");
    let plan = plan(files.iter().find(|f| f.path == "plan.json").expect("a plan"));
    let host = &plan["steps"][0]["host"];
    assert!(host["name"].is_string() && plan["kernels"] == json!([]), "{plan}");
    let node = host["node"].as_u64().expect("a number") as u32;
    let bytes = |n: &[i64]| n.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let results = network.host(node, vec![bytes(&[2, -3])]).expect("results");
    assert_eq!(results[0].bytes, bytes(&[10_000_000_000, -15_000_000_000]));
    assert!(network.host(node, vec![]).is_err_and(|e| e.contains("has no operand `n`")));
    assert!(network.host(node, vec![vec![1]]).is_err() && network.host(node + 9, vec![]).is_err());
    assert!(network.host_constant(999).is_err_and(|e| e.contains("no constant of the host")));
}

/// A node decides how many rows the first result has.
const DECIDED: &str = include_str!("../../xtask/src/page/decided.weft");

#[test]
fn the_host_computes_what_follows_a_node_that_decides_sizes() {
    let network = compiled(json!({ "model": "a.weft", "profile": "baseline" }), DECIDED).expect("it compiles");
    let files = network.files().expect("files");
    let plan = plan(files.iter().find(|f| f.path == "plan.json").expect("a plan"));
    let steps = plan["steps"].as_array().expect("a list");
    let host = &steps.last().expect("a step")["host"];
    assert!(steps.len() > 1 && host["name"].as_str().is_some_and(|n| n.contains("whose sizes it decides")), "{plan}");
    assert_eq!((&plan["outputs"], &plan["outputs"][1]["shape"]), (&host["outputs"], &json!([8, 64])));
    let node = host["node"].as_u64().expect("a number") as u32;
    let module = compiler::text::parse_module(DECIDED).expect("a module");
    let head = split_network(&module).expect("it splits").expect("it has parts").head;
    let x = random_tensor(DType::F32, &[8, 16], 1);
    let before = run_function(&head, head.entry, std::slice::from_ref(&x)).expect("the head");
    let operands: Vec<Vec<u8>> = [&x].into_iter().chain(&before).map(|t| t.bytes().to_vec()).collect();
    let results = network.host(node, operands).expect("results");
    let want = run_function(&module, module.entry, &[x]).expect("results");
    for (r, w) in results.iter().zip(&want) {
        assert_eq!((r.path.as_str(), r.bytes.as_slice()), (json!(w.shape()).to_string().as_str(), w.bytes().as_ref()));
    }
    assert!(network.host(node, vec![]).is_err_and(|e| e.contains("operands, not 0")));
}

fn refused(request: Value, text: &str) -> String {
    compiled(request, text).err().expect("a refusal")
}

fn plan(file: &rust_source::File) -> Value {
    serde_json::from_slice(&file.bytes).expect("plan.json is JSON")
}

#[test]
fn one_compilation_serves_open_sizes_from_a_buffer() {
    let request = json!({ "model": "a.weft", "profile": "baseline", "dims": { "n": "1..64" } });
    let mut network = compiled(request, TEXT).expect("it compiles");
    assert_eq!(network.open_dims(), r#"{"n":"1..64"}"#);
    let files = network.files().expect("files");
    let of = |end: &str| files.iter().filter(|f| f.path.ends_with(end)).collect::<Vec<_>>();
    let first = plan(of("plan.json")[0]);
    let texts: Vec<_> = of(".wgsl").iter().map(|f| String::from_utf8_lossy(&f.bytes).into_owned()).collect();
    assert!(texts.iter().any(|t| t.contains("var<uniform> symbols")), "{texts:?}");
    assert!(texts.iter().all(|t| !t.contains("immediate")), "{texts:?}");
    let mut at = |n: i64| network.plan_at(&[("n".to_string(), n)].into()).map(|f| plan(&f));
    let (large, again) = (at(64).expect("64 rows"), at(1).expect("one row"));
    assert_eq!(again, first);
    assert_eq!(large["inputs"][0]["shape"], json!([64, 8]));
    assert_eq!(large["kernels"], first["kernels"]);
    let weights = |p: &Value| p["buffers"].as_array().map(|b| b.iter().filter(|b| !b["weights"].is_null()).count());
    assert_eq!((weights(&large), large["weightBytes"].clone()), (weights(&first), first["weightBytes"].clone()));
    assert!(at(65).is_err_and(|e| e.contains("65")) && network.plan_at(&[].into()).is_err());
}

#[test]
fn the_report_has_the_times_of_the_page() {
    let request = json!({ "model": "a.weft", "profile": "webgpu", "dims": { "n": "3" }, "record": true });
    let network = compiled(request, TEXT).expect("it compiles");
    let measured = |us: Vec<f64>| Measured { device: "d".into(), source: "host-clock".into(), us, latency_ms: 1.0 };
    let count = network.trace(None).expect("a trace").calls().count();
    let [trace, html] = network.report(Some(measured(vec![2.0; count]))).expect("a report");
    assert_eq!((trace.path.as_str(), html.path.as_str()), ("a.trace", "report.html"));
    let read = compiler::trace::CompileTrace::from_bytes(&trace.bytes).expect("the trace can be read");
    assert_eq!(read.times.expect("times").dispatches.len(), count);
    assert_eq!(report_of(&trace.bytes).expect("a report").bytes, html.bytes);
    assert!(report_of(b"nothing").is_err());
    assert!(read.stages.len() > 3 && String::from_utf8_lossy(&html.bytes).contains("host-clock"));
    assert!(network.report(Some(measured(vec![]))).is_err_and(|e| e.contains("0 times were measured")));
}

#[test]
fn refusals_are_sentences() {
    let baseline = |model: &str| json!({ "model": model, "profile": "baseline" });
    assert!(refused(baseline("a.weft"), TEXT.replace("relu", "no_such_op").as_str()).starts_with("a.weft: "));
    assert!(refused(baseline("a.onnx"), "no model").starts_with("a.onnx: "));
    assert!(refused(baseline("nothing"), "").contains("the zoo has no model `nothing`"));
    assert!(refused(json!({ "model": "a.weft", "profile": "none" }), TEXT).contains("no profile `none`"));
    assert!(refused(json!({ "model": "a.weft", "profile": {} }), TEXT).contains("this is no profile"));
    let with = |n: &str| json!({ "model": "a.weft", "profile": "baseline", "dims": { "n": n } });
    assert!(refused(with("x"), TEXT).contains("dimension `n` needs a size"));
    let other = json!({ "model": "a.weft", "profile": "baseline", "dims": { "m": "2" } });
    assert!(refused(other, TEXT).contains("no dimension is called `m`"));
}

#[test]
fn an_adapter_becomes_a_profile_that_the_command_reads() {
    let mut limits = json!({ "maxComputeWorkgroupStorageSize": 32768, "maxStorageBuffersPerShaderStage": 10 });
    // Limits that kernels do not meet are not read.
    limits["maxTextureDimension1D"] = 8192.into();
    let adapter = json!({
        "name": "a b", "features": ["subgroups", "timestamp-query"], "subgroupMinSize": 4, "subgroupMaxSize": 8,
        "software": false, "limits": limits,
    });
    let text = profile_of(&adapter.to_string()).expect("a profile");
    let p = compiler::profile_file::parse_profile(&text).expect("it comes back");
    assert_eq!((p.name.as_str(), p.subgroup, p.f16, p.shared_memory), ("browser: a b", (4, 8), false, 32768));
    assert_eq!((p.max_storage_buffers, p.max_binding, p.immediates), (10, 128 << 20, 0));
    let none = compiler::profile_file::parse_profile(&profile_of("{}").expect("nothing is said")).expect("a profile");
    assert_eq!((none.name.as_str(), none.subgroup), ("browser", (0, 0)));
    assert!(profile_of("7").is_err_and(|e| e.contains("the adapter's description")));
    let absurd = json!({ "limits": { "maxComputeInvocationsPerWorkgroup": 0 } });
    assert!(profile_of(&absurd.to_string()).is_err_and(|e| e.contains("max_invocations")));
}

#[test]
fn the_zoo_is_listed() {
    let list: Value = serde_json::from_str(&zoo()).expect("JSON");
    assert!(list.as_array().is_some_and(|l| l.len() > 10 && l.iter().all(|m| m["name"].is_string())));
}
