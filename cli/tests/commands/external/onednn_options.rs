//! oneDNN on networks of a few nodes: what it computes, its options, and what it does once.

use crate::command::command;
use crate::external::{CHAIN, json, model, run};
use serde_json::Value;
use std::path::Path;

/// Whether oneDNN can be loaded; says loudly that a test is skipped where it cannot.
fn has_onednn(test: &str) -> bool {
    let file = model("probe.weft", CHAIN);
    let out = run(command(), &["compile", &file, "--dim", "n=2", "--external", "dnnl", "-q"]);
    if out.code == Some(0) {
        return true;
    }
    eprintln!("SKIPPED: {test}: {}", out.ended(5).stderr.trim());
    false
}

const NETWORK: &str = "const @w : f32[16,8,3,3] = random(1)
const @b : f32[16] = random(2)
const @depthwise : f32[16,1,3,3] = random(3)
const @dense : f32[16,10] = random(4)
graph @main(%x: f32[1,8,20,20], %r: f32[1,16,20,20]) -> (y: f32[1,16,20,20], z: f32[1,20,20,10]) {
  %w = const @w
  %b = const @b
  %w2 = const @depthwise
  %m = const @dense
  %0 = conv %x, %w, %b {pads=[1,1,1,1]} : f32[1,16,20,20]
  %1 = add %0, %r : f32[1,16,20,20]
  %2 = relu %1 : f32[1,16,20,20]
  %3 = conv %2, %w2 {pads=[1,1,1,1], group=16} : f32[1,16,20,20]
  %4 = clip %3 {min=0.0, max=6.0} : f32[1,16,20,20]
  %5 = transpose %4 {perm=[0,2,3,1]} : f32[1,20,20,16]
  %6 = matmul %5, %m : f32[1,20,20,10]
  return %4, %6
}
";

#[test]
fn onednn_computes_what_the_interpreter_does() {
    if !has_onednn("onednn_computes_what_the_interpreter_does") {
        return;
    }
    let file = model("network.weft", NETWORK);
    let out = run(command(), &["compare", &file, "--external", "dnnl:min_macs=0", "--device", "0", "--json", "-q"]);
    let log = out.stdout.clone();
    assert_eq!(json(out)["pass"], true, "{log}");
    assert!(log.contains("exec,cpu,convolution") && log.contains("exec,cpu,matmul"), "{log}");
}

/// Pools, sums, relu and clip alone, products of every form, on one and on several threads.
#[test]
fn onednn_computes_the_other_ops_too() {
    if !has_onednn("onednn_computes_the_other_ops_too") {
        return;
    }
    let file = model("others.weft", OTHERS);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("external/graphs");
    std::fs::create_dir_all(&folder).expect("a folder");
    let external = format!("dnnl:min_macs=0:threads=2:graphs={}", folder.display());
    let out = run(command(), &["compare", &file, "--external", &external, "--device", "0", "--json", "-q"]);
    let log = out.stdout.clone();
    assert_eq!(json(out)["pass"], true, "{log}");
    for primitive in ["pooling", "binary", "eltwise", "matmul"] {
        assert!(log.contains(&format!("exec,cpu,{primitive}")), "{primitive}: {log}");
    }
    let graph = std::fs::read_to_string(folder.join("dnnl_0.json")).expect("the graph of the first region");
    let graph: Value = serde_json::from_str(&graph).expect("JSON");
    assert_eq!((&graph["format"], &graph["nodes"][0]["op"]), (&"weft-dnnl-graph/1".into(), &"pool".into()), "{graph}");
}

const OTHERS: &str = "const @w : f32[6,5] = random(1)
const @t : f32[7,6] = random(2)
const @row : f32[7] = random(3)
graph @main(%x: f32[2,6,9,7], %a: f32[3,6], %b: f32[2,3,4,6], %c: f32[2,1,6,2]) \
  -> (p: f32[2,6,1,1], q: f32[2,6,4,3], r: f32[3,5], s: f32[3,7], t: f32[2,3,4,2], u: f32[2,3,4,5]) {
  %w = const @w
  %t = const @t
  %row = const @row
  %0 = max_pool %x {kernel=[3,3], strides=[2,2], pads=[1,1,1,1]} : f32[2,6,5,4]
  %1 = relu %0 : f32[2,6,5,4]
  %2 = add %1, %0 : f32[2,6,5,4]
  %3 = clip %2 {min=-0.5, max=0.75} : f32[2,6,5,4]
  %p = global_average_pool %3 : f32[2,6,1,1]
  %q = average_pool %3 {kernel=[2,2]} : f32[2,6,4,3]
  %4 = matmul %a, %w : f32[3,5]
  %r = relu %4 : f32[3,5]
  %s = gemm %a, %t, %row {trans_b=true} : f32[3,7]
  %t2 = matmul %b, %c : f32[2,3,4,2]
  %u = matmul %b, %w : f32[2,3,4,5]
  return %p, %q, %r, %s, %t2, %u
}
";

/// `--threads` is what the library runs on, as its log says: OpenMP's variable is set before it is loaded.
#[test]
fn the_library_runs_on_as_many_threads_as_asked() {
    if !has_onednn("the_library_runs_on_as_many_threads_as_asked") {
        return;
    }
    let file = model("threads.weft", NETWORK);
    for n in ["1", "3"] {
        let args = ["run", &file, "--external", "dnnl:min_macs=0", "--device", "0", "--threads", n, "-q"];
        let log = run(command(), &args).succeeded().stdout;
        assert!(log.contains(&format!("nthr:{n}\n")), "{n}: {log}");
    }
}

/// The C of a region is the same network, and is kept where it is asked for.
#[test]
fn onednn_runs_regions_as_c() {
    if !has_onednn("onednn_runs_regions_as_c") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("external/c");
    let file = model("as-c.weft", NETWORK);
    let external = format!("dnnl:min_macs=0:style=c:folder={}", folder.display());
    let out = run(command(), &["compare", &file, "--external", &external, "--device", "0", "--json", "-q"]);
    assert_eq!(json(out)["pass"], true);
    let source = std::fs::read_to_string(folder.join("dnnl_0/network.c")).expect("the C of the first region");
    assert!(source.contains("dnnl_dilated_convolution_forward_desc_init("), "{source}");
}
