//! Files that once crashed the command, hung it, or gave a wrong answer must now give the right answer or a clear
//! refusal. Also unusual output paths and models (links, pipes, devices).

use crate::command::{PROGRAM, Weft, weft};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn case(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name).display().to_string()
}

fn refused(args: &[&str], code: i32, message: &str) {
    weft(args).run().refused(code, message);
}

/// The results of a run on the interpreter: shape, mean and largest value of each.
fn results(name: &str, more: &[&str]) -> Vec<serde_json::Value> {
    let model = case(name);
    let command = weft(["run", model.as_str(), "--device", "interpreter", "--json"]).args(more);
    command.run().succeeded().json()["outputs"].as_array().expect("results").clone()
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weft-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn small_files_that_ask_for_much() {
    for name in ["reduce_min_wide", "arg_max_wide", "gather_wide", "nll_wide", "reduce_l1_wide"] {
        let model = case(&format!("{name}.onnx"));
        refused(&["compile", &model, "--target", "lavapipe"], 5, "bindings");
        refused(&["run", &model, "--device", "interpreter"], 5, "MiB, the machine has");
    }
    refused(&["compile", "vgg16", "--batch", "100000000", "--target", "lavapipe"], 5, "a batch of 100000000");
    let batch = ["--batch", "100000000", "--target", "lavapipe"];
    let folder = Folder::new("batch");
    let model = folder.path("small.onnx");
    weft(["export", "squeezenet1_1", "-o", &model]).run().succeeded();
    refused(&[&["compile", model.as_str()][..], &batch[..]].concat(), 5, "");
}

/// What one kernel or 32 bits do not hold is the device's limit, not a bug: the interpreter has none.
#[test]
fn models_beyond_the_device() {
    let folder = Folder::new("beyond");
    let text = |name: &str, body: &str| {
        let path = folder.path(name);
        std::fs::write(&path, body).expect("writes");
        path
    };
    let wide = "tensor @wide(%x: f32[4], out %y: f32[16]) {
  for i in 0..16 { block y { %y[i] <- %x[i*1000000007/4000000007] } }
}
graph @main(%x: f32[4]) -> (y: f32[16]) {
  %0 = call_tensor @wide %x : f32[16]
  return %0
}
";
    let model = text("wide.weft", wide);
    refused(&["compile", &model, "--target", "lavapipe"], 5, "in an index, beyond 32 bits");
    weft(["run", &model, "--device", "interpreter"]).run().succeeded();
    // Three tensors of 20 bindings each, of which an element needs two.
    let large = "graph @main(%c: bool[700000000], %a: f32[700000000], %b: f32[700000000]) -> (y: f32[700000000]) {
  %0 = where %c, %a, %b : f32[700000000]
  return %0
}
";
    refused(&["compile", &text("large.weft", large), "--target", "lavapipe"], 5, "bindings");
}

#[test]
fn files_that_are_wrong() {
    let cpu = |name: &str| ["run".to_string(), case(name), "--device".into(), "interpreter".into()];
    let refuse = |name: &str, code: i32, message: &str| {
        let args = cpu(name);
        refused(&args.each_ref().map(String::as_str), code, message);
        refused(&["compile", &case(name), "--target", "lavapipe"], code, message);
    };
    // A size has to be given, or to be kept open.
    let open = case("nll_negative_dim.onnx");
    refused(&["run", &open, "--device", "interpreter"], 2, "the model leaves `target.dim2` open");
    refused(&["compile", &open, "--target", "lavapipe"], 2, "the model leaves `target.dim2` open");
    let kept = ["compile", &open, "--target", "lavapipe", "--dim", "target.dim2=open"];
    refused(&kept, 3, "the target is i64[3,6,target.dim2] for scores");
    refuse("no_entry.weft", 3, "the text has no graph function");
    refuse("primitive_entry.weft", 3, "the entry is marked `primitive`");
    refuse("long_loop.weft", 3, "index [1099511627775, 0] is outside of `y`");
    let missing = case("missing_data.weft");
    refused(&["run", &missing, "--device", "interpreter"], 3, "constant @c is declared without data");
    weft(["compile", &missing, "--target", "lavapipe", "-q"]).run().succeeded();
    refused(&["inspect", &case("no_entry.weft")], 3, "the text has no graph function");
    let host = case("host_function.weft");
    refused(&["run", &host, "--device", "interpreter"], 3, "calls the host function `my_fn`, which is not registered");
}

#[test]
fn files_that_are_right() {
    let zero = &results("matmul_k0.onnx", &[])[0];
    assert_eq!((&zero["shape"], &zero["mean"], &zero["max"]), (&[2, 3][..].into(), &0.0.into(), &0.0.into()));
    assert_eq!(results("slice_empty.onnx", &[])[0]["shape"], serde_json::json!([0]));
    let ones = &results("shape_arithmetic.weft", &["--dim", "n=3"])[0];
    assert_eq!((&ones["shape"], &ones["mean"]), (&[3, 3][..].into(), &1.0.into()));
    for name in ["let", "if", "calls", "group_norm", "instance_norm", "nhwc_concat"] {
        let one = results(&format!("{name}.weft"), &[]);
        assert!(one.len() == 1 && one[0]["mean"].as_f64().is_some_and(f64::is_finite), "{name}: {one:?}");
    }
    let fused = weft(["opt", &case("shape_arithmetic.weft"), "--passes", "fuse-ops", "--target", "lavapipe"]);
    let fused = fused.run().succeeded().stdout;
    assert!(fused.contains("expand"), "{fused}");
}

/// Runs the command, which must end within 10 s of CPU time and 4 GB of address space, with `code` and `message`.
#[cfg(target_os = "linux")]
fn refused_early(folder: &Folder, line: &str, code: i32, message: &str) {
    let limits = "ulimit -v 4000000; ulimit -t 10; exec \"$@\"";
    let command = Weft::of("sh").args(["-c", limits, "sh", PROGRAM]).args(line.split(' ')).at(&folder.0);
    let ran = command.run().ended(code);
    assert!(ran.stderr.contains(message), "weft {line} said:\n{}", ran.stderr);
}

/// Bytes of an ONNX message: a field of a number and bytes.
fn field(number: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    for mut n in [number << 3 | 2, bytes.len()] {
        while n >= 128 {
            out.push(n as u8 | 128);
            n >>= 7;
        }
        out.push(n as u8);
    }
    [out, bytes.to_vec()].concat()
}

/// Files of some bytes that expand to any number of nodes or to deep calls.
#[cfg(target_os = "linux")]
#[test]
fn expansion_is_bounded_before_it_begins() {
    let folder = Folder::new("expansion");
    let text = |functions: usize, calls: usize, kind: &str| {
        let mut out =
            "graph @main(%a: f32[4]) -> (b: f32[4]) {\n  %b = call @g0 %a : f32[4]\n  return %b\n}\n".to_string();
        for i in 0..functions {
            out += &format!("graph @g{i}(%v0: f32[4]) -> (b: f32[4]){kind} {{\n");
            for k in 0..calls {
                let op = if i + 1 < functions { format!("call @g{}", i + 1) } else { "relu".into() };
                out += &format!("  %v{} = {op} %v{k} : f32[4]\n", k + 1);
            }
            out += &format!("  return %v{calls}\n}}\n");
        }
        out
    };
    let files = [
        ("wide20.weft", text(20, 2, ""), "more than 100000"),
        ("wide70.weft", text(64, 4, ""), "more than 100000"),
        ("fused40.weft", text(40, 2, " primitive"), "more than 100000"),
        ("deep.weft", text(1000, 1, ""), "deep, more than 64"),
    ];
    for (name, text, message) in files {
        std::fs::write(folder.path(name), text).expect("writes");
        for verb in ["inspect", "compile --target ada", "run --device cpu", "run --device interpreter"] {
            let (verb, options) = verb.split_once(' ').unwrap_or((verb, "-q"));
            refused_early(&folder, &format!("{verb} {name} {options}"), 3, message);
        }
    }
}

/// A PNG of no data that says it has this size.
fn png(width: u32, height: u32) -> Vec<u8> {
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let body = [&kind[..], data].concat();
        let crc = crc32fast::hash(&body).to_be_bytes();
        [&(data.len() as u32).to_be_bytes()[..], &body, &crc].concat()
    };
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let data = [0x78, 0x9c, 0x03, 0x00, 0x00, 0x00, 0x00, 0x01];
    [b"\x89PNG\r\n\x1a\n", &chunk(b"IHDR", &header)[..], &chunk(b"IDAT", &data), &chunk(b"IEND", b"")].concat()
}

#[cfg(target_os = "linux")]
#[test]
fn sizes_in_files_are_bounded_before_memory_is_taken() {
    let folder = Folder::new("sizes");
    std::fs::write(folder.path("big.png"), png(65535, 65535)).expect("writes");
    let line = "run squeezenet1_1:smallest --device cpu -i big.png";
    refused_early(&folder, line, 3, "65535 x 65535 pixels takes 12288 MiB, more than 512 MiB");
    let long = image::RgbImage::new(65535, 1);
    long.save(folder.path("long.png")).expect("writes");
    let line = "run squeezenet1_1:smallest --device cpu -i long.png";
    refused_early(&folder, line, 3, "more than 512 MiB");
    // A buffer between two kernels.
    let buffer = "tensor @t(%x: f32[4], out %y: f32[4]) {
 buffer %b: f32[1099511627776] global
 for i in 0..4 { block b { %b[i] <- %x[i] } }
 for j in 0..4 { block y { %y[j] <- %b[j] } }
 schedule { cut-kernel } }
graph @main(%x: f32[4]) -> (y: f32[4]) {
 %y = call_tensor @t %x : f32[4]
 return %y
}
";
    std::fs::write(folder.path("big.weft"), buffer).expect("writes");
    for device in ["cpu", "interpreter"] {
        refused_early(&folder, &format!("run big.weft --device {device}"), 5, "MiB");
    }
    // Loops of more iterations than 32 bits count.
    for name in ["one_hot_deep.onnx", "arg_max_long.onnx"] {
        let model = case(name);
        refused_early(&folder, &format!("compile {model} --target ada"), 5, "");
        refused_early(&folder, &format!("run {model} --device cpu"), 5, "MiB");
    }
}

/// Texts of networks that ask for much or for code of the machine, with the exit codes of `inspect` and of a run. In
/// each, `;` ends a line.
const HOSTILE: &[(&str, i32, i32)] = &[
    // Programs, libraries and folders.
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = external {target=c, options=\"compiler=./evil\"} : f32[2] {; %0 = neg %x; yield %0; }; return %y; }",
        2,
        2,
    ),
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = external {target=c, options=\"folder=/tmp/evil\"} : f32[2] {; %0 = neg %x; yield %0; }; return %y; }",
        2,
        2,
    ),
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = external {target=dnnl, options=\"library=./evil.so\"} : f32[2] {; %0 = neg %x; yield %0; }; return %y; }",
        2,
        2,
    ),
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = external {target=dnnl, options=\"graphs=/tmp\"} : f32[2] {; %0 = neg %x; yield %0; }; return %y; }",
        2,
        2,
    ),
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = external {target=c, options=\"\"} : f32[2] {; %0 = neg %x; yield %0; }; return %y; }",
        2,
        2,
    ),
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = external {target=nobody, options=\"\"} : f32[2] {; %0 = neg %x; yield %0; }; return %y; }",
        2,
        2,
    ),
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = call_host @system %x {dtypes=[f32], shapes=[[2]]} : f32[2]; return %y; }",
        0,
        3,
    ),
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = call_host @\"../../lib.so\" %x {dtypes=[f32], shapes=[[2]]} : f32[2]; return %y; }",
        0,
        3,
    ),
    // Memory.
    ("graph @main(%x: f32[1000000000000]) -> (y: f32[]) {; %y = reduce %x {axes=[0], kind=max}; return %y; }", 0, 5),
    (
        "graph @main(%x: f32[4294967296,4294967296]) -> (y: f32[]) {; %y = reduce %x {axes=[0,1], kind=max}; return %y; }",
        3,
        3,
    ),
    (
        "graph @main(%x: f32[1]) -> (y: f32[]) {; %0 = expand %x {shape=[1000000,1000000]}; %1 = cumsum %0 {axis=0}; %y = reduce %1 {axes=[0,1], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "graph @main(%x: f32[1]) -> (y: f32[]) {; %0 = tile %x {repeats=[99999999999]}; %1 = cumsum %0 {axis=0}; %y = reduce %1 {axes=[0], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "graph @main(%x: f32[2,2]) -> (y: f32[]) {; %0 = pad %x {pads=[0,0,900000,900000]}; %1 = cumsum %0 {axis=0}; %y = reduce %1 {axes=[0,1], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "graph @main(%x: f32[1,1,2,2]) -> (y: f32[]) {; %0 = resize %x {sizes=[1,1,900000,900000]}; %1 = cumsum %0 {axis=2}; %y = reduce %1 {axes=[0,1,2,3], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "graph @main(%x: f32[900000], %z: f32[900000]) -> (y: f32[]) {; %0 = einsum %x, %z {equation=\"i,j->ij\"}; %1 = cumsum %0 {axis=0}; %y = reduce %1 {axes=[0,1], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "graph @main(%x: f32[900000,1], %z: f32[1,900000]) -> (y: f32[]) {; %0 = matmul %x, %z; %1 = softmax %0 {axes=[0]}; %y = reduce %1 {axes=[0,1], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "graph @main(%x: f32[900000,1], %z: f32[1,900000]) -> (y: i64[]) {; %0 = add %x, %z; %1 = non_zero %0 {count=n}; %y = reduce %1 {axes=[0,1], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "graph @main(%x: f64[900000,1], %z: f64[1,900000]) -> (y: f64[]) {; %0 = add %x, %z; %1 = cumsum %0 {axis=1}; %y = reduce %1 {axes=[0,1], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "graph @main(%x: f32[100000]) -> (y: f32[]) {; %v, %r = loop _, _, %x {trips=1000000} : f32[100000], f32[1000000,100000] (%i: i64[], %a: f32[100000]) {; %1 = sin %a; yield %1, %1; }; %2 = cumsum %r {axis=0}; %y = reduce %2 {axes=[0,1], kind=max}; return %y; }",
        0,
        5,
    ),
    (
        "const @w : f32[1000000,1000000] = splat(1.0);graph @main(%x: f32[1,1000000]) -> (y: f32[1,1000000]) {; %w = const @w; %y = matmul %x, %w; return %y; }",
        3,
        3,
    ),
    (
        "const @w : f32[1000000,1000000] = random(1);graph @main(%x: f32[1,1000000]) -> (y: f32[1,1000000]) {; %w = const @w; %y = matmul %x, %w; return %y; }",
        3,
        3,
    ),
    (
        "const @w : f32[9223372036854775807] = zeros;graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = neg %x; return %y; }",
        3,
        3,
    ),
    (
        "tensor @t(%x: f32[4], out %y: f32[4]) {; buffer %b: f32[1099511627776] global; for i in 0..4 { block b { %b[i] <- %x[i] } }; for j in 0..4 { block y { %y[j] <- %b[j] } }; schedule { cut-kernel } };graph @main(%x: f32[4]) -> (y: f32[4]) {; %y = call_tensor @t %x : f32[4]; return %y; }",
        0,
        5,
    ),
    // Work without end.
    (
        "graph @main(%x: f32[4]) -> (y: f32[4]) {; %y = loop _, _, %x {trips=1099511627776} : f32[4] (%i: i64[], %a: f32[4]) {; %1 = sin %a; yield %1; }; return %y; }",
        3,
        3,
    ),
    // What does not parse, or not as a network.
    ("", 3, 3),
    (";", 3, 3),
    ("graph", 3, 3),
    ("graph @main(", 3, 3),
    ("graph @main() -> (y: f32[2]) {; return; }", 3, 3),
    ("graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = nothing %x; return %y; }", 3, 3),
    ("graph @main(%x: f32[2]) -> (y: f32[2]) {; return %y; }", 3, 3),
    ("graph @main(%x: f32[2]) -> (y: f32[3]) {; return %x; }", 3, 3),
    ("graph @main(%x: f32[-1]) -> (y: f32[-1]) {; return %x; }", 3, 3),
    ("graph @main(%x: f32[99999999999999999999]) -> (y: f32[2]) {; return %x; }", 3, 3),
    (
        "graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = neg %x {a=((((((((((((((((((((((((1))))))))))))))))))))))))}; return %y; }",
        3,
        3,
    ),
    ("graph @f(%x: f32[2]) -> (y: f32[2]) primitive {; %y = neg %x; return %y; };entry @f", 3, 3),
    ("graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = call @main %x : f32[2]; return %y; }", 0, 3),
    ("graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = call @nobody %x : f32[2]; return %y; }", 3, 3),
    ("graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = call_tensor @nobody %x : f32[2]; return %y; }", 3, 3),
    ("const @w : f32[2] = hex(\"zz\");graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = neg %x; return %y; }", 3, 3),
    ("const @w : f32[2] = [1.0];graph @main(%x: f32[2]) -> (y: f32[2]) {; %y = neg %x; return %y; }", 3, 3),
    ("const @w : f32[2];graph @main(%x: f32[2]) -> (y: f32[2]) {; %w = const @w; %y = add %x, %w; return %y; }", 0, 3),
    (
        "tensor @t(%x: f32[4], out %y: f32[4]) {; for i in 0..4 { block y { %y[i] <- %x[i+100] } } };graph @main(%x: f32[4]) -> (y: f32[4]) {; %y = call_tensor @t %x : f32[4]; return %y; }",
        3,
        3,
    ),
    (
        "tensor @t(%x: f32[4], out %y: f32[4]) {; for i in 0..9 { block y { %y[i] <- %x[0] } } };graph @main(%x: f32[4]) -> (y: f32[4]) {; %y = call_tensor @t %x : f32[4]; return %y; }",
        3,
        3,
    ),
];

/// Files that are no text, by name, each with a command and the exit code.
fn hostile_bytes() -> Vec<(&'static str, Vec<u8>, &'static str, i32)> {
    let network = "run squeezenet1_1:smallest --device cpu -i";
    let compile = "compile squeezenet1_1:smallest --target ada --tuning";
    let sparse = |head: &[u8], bytes: usize| [head, &vec![0; bytes]].concat();
    vec![
        ("huge.png", png(60000, 60000), network, 3),
        ("wide.png", png(u32::MAX, 1), network, 3),
        ("flat.png", png(0, 7), network, 3),
        ("cut.png", png(8, 8)[..30].to_vec(), network, 3),
        ("none.jpg", b"\xff\xd8\xff".to_vec(), network, 3),
        ("text.png", b"not an image".to_vec(), network, 3),
        ("none.npz", b"PK\x03\x04".to_vec(), network, 3),
        ("none.npy", b"\x93NUMPY\x01\x00\xff\xff".to_vec(), network, 3),
        ("empty.onnx", vec![], "inspect", 3),
        ("zeros.onnx", vec![0; 4096], "inspect", 3),
        ("long.onnx", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f".to_vec(), "inspect", 3),
        ("none.bundle", b"WEFTBNDL".to_vec(), "inspect", 3),
        ("later.bundle", b"WEFTBNDL\xff\xff\xff\xff".to_vec(), "inspect", 3),
        ("zeros.bundle", sparse(b"WEFTBNDL\x01\x00\x00\x00", 1 << 20), "run", 3),
        ("none.trace", compiler::trace::MAGIC.to_vec(), "inspect", 3),
        ("zeros.trace", sparse(compiler::trace::MAGIC, 1 << 16), "inspect", 3),
        ("garbage.jsonl", b"garbage\n".to_vec(), compile, 3),
        ("binary.jsonl", sparse(b"\xff\xfe", 100).into_iter().chain(*b"\n").collect(), compile, 3),
    ]
}

/// 62 files: refused in one line, within 5 s of CPU time, and with 1 GiB of memory beside what a process begins with.
#[cfg(target_os = "linux")]
#[test]
fn hostile_files_are_refused_early() {
    let folder = Folder::new("hostile");
    let bytes = hostile_bytes();
    assert!(HOSTILE.len() + bytes.len() >= 60, "{} files", HOSTILE.len() + bytes.len());
    let ends = |words: &str, code: i32| {
        let limits = "ulimit -v 1500000; ulimit -t 5; exec \"$@\"";
        let command = Weft::of("sh").args(["-c", limits, "sh", PROGRAM]).args(words.split(' ')).at(&folder.0);
        let ran = command.env("RAYON_NUM_THREADS", "1").env("WEFT_CACHE", "off").run();
        let lines = ran.stderr.lines().filter(|l| l.starts_with("error[")).count();
        assert!(
            ran.code == Some(code) && lines == usize::from(code != 0),
            "weft {words}: {:?}\n{}",
            ran.code,
            ran.said()
        );
    };
    for (n, (text, inspected, run)) in HOSTILE.iter().enumerate() {
        let name = format!("{n}.weft");
        std::fs::write(folder.path(&name), text.replace(';', "\n")).expect("writes");
        ends(&format!("inspect {name}"), *inspected);
        ends(&format!("run {name} --device cpu --threads 1"), *run);
    }
    for (name, bytes, words, code) in bytes {
        std::fs::write(folder.path(name), bytes).expect("writes");
        ends(&format!("{words} {name}"), code);
    }
    assert!(!Path::new("/tmp/evil").exists(), "a file named a folder");
}

/// What is read is bounded by what a file says of itself.
#[cfg(target_os = "linux")]
#[test]
fn files_are_read_as_far_as_they_say() {
    let folder = Folder::new("reads");
    for device in ["/dev/zero", "/dev/stdin"] {
        let line = format!("compile squeezenet1_1:smallest --target ada --tuning {device}");
        refused_early(&folder, &line, 3, "no plain file");
    }
    let cache = folder.path("cache");
    std::fs::create_dir(&cache).expect("a folder");
    let made = Command::new("mkfifo").arg(Path::new(&cache).join("tuning.jsonl")).status().expect("mkfifo runs");
    assert!(made.success());
    let line = format!("compile squeezenet1_1:smallest --target ada --cache {cache}");
    refused_early(&folder, &line, 0, "no plain file");
}

/// How a run of each file of the fuzzer's corpus ends that is refused.
const REFUSED: &[(&str, i32)] = &[
    ("bound_without_kernel", 3),
    ("buffer_of_512_gib", 3),
    ("compile-bug-401a60cf", 2),
    ("compile-bug-", 5),
    ("conv_four_operands", 3),
    ("scale_that_broadcasts", 2),
    ("scatter_of_unlike_sizes", 3),
    ("sixteen_open_dimensions", 3),
    ("min_", 3),
    ("panic-", 3),
    ("host", 3),
    ("noentry", 3),
    ("conv_large_group", 3),
    ("primitive_entry", 3),
    ("long_loop", 3),
    ("missing_data", 3),
    ("b_bad", 3),
    ("c_bad", 3),
    ("d_reg_at_group", 3),
    ("d_rfactor_late_bind", 3),
    ("m1_", 3),
    ("m2_", 3),
    ("m3_", 3),
    ("m4_", 3),
    ("m5_", 3),
    ("m6_", 3),
    ("m7_", 3),
    ("q1", 3),
    ("merged_before_what_it_reads", 3),
    ("register_between_nests", 3),
    ("sched-wrong-", 3),
];

/// How those of them end on the interpreter that it takes for valid: it may have no memory for one, and needs no
/// kernels.
const ON_THE_HOST: &[(&str, i32)] = &[("buffer_of_512_gib", 5), ("bound_without_kernel", 0)];

/// What once broke something is refused, or gives the same on the interpreter and on the device.
#[test]
fn the_corpus_of_the_fuzzer_is_right_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut count = 0;
    for folder in ["onnx", "text", "schedule"] {
        for entry in std::fs::read_dir(corpus.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let (file, name) = (path.display().to_string(), path.file_name().expect("a name").to_string_lossy());
            let listed = |list: &[(&str, i32)]| list.iter().find(|r| name.starts_with(r.0)).map(|r| r.1);
            let code = listed(REFUSED).unwrap_or(0);
            let on_the_host = listed(ON_THE_HOST).unwrap_or(code);
            let runs = ["interpreter", "0"].map(|device| weft(["run", &file, "--device", device, "--json"]).run());
            for (ran, code) in runs.iter().zip([on_the_host, code]) {
                assert_eq!(ran.code, Some(code), "{name} said:\n{}", ran.stderr);
                assert!(!ran.stderr.contains("panicked"), "{name} said:\n{}", ran.stderr);
            }
            let results = runs.map(|ran| ran.json());
            let [a, b] = &results.each_ref().map(|r| r["outputs"].as_array().cloned().unwrap_or_default());
            assert!(code != 0 || !a.is_empty() && a.len() == b.len(), "{name}: {results:?}");
            for (a, b) in a.iter().zip(b) {
                for key in ["shape", "dtype", "nan", "inf"] {
                    assert_eq!(a[key], b[key], "{name}: {a} {b}");
                }
                let means = a["mean"].as_f64().zip(b["mean"].as_f64());
                assert!(means.is_none_or(|(a, b)| (a - b).abs() <= 1e-3 * a.abs().max(1.0)), "{name}: {a} {b}");
            }
            count += 1;
        }
    }
    assert!(count > 40, "{count} files");
}

#[test]
fn arrays_that_claim_more_than_they_hold() {
    let corpus = |name: &str| format!("{}/../fuzz/corpus/npz/{name}", env!("CARGO_MANIFEST_DIR"));
    let model = case("let.weft");
    let run = |file: &str, message: &str| {
        refused(&["run", &model, "--device", "interpreter", "-i", &corpus(file)], 3, message)
    };
    run("shape_beyond_the_file.npy", "its shape is (2147483647, 2, 2, 2, ), but it holds 32 bytes");
    run("header_beyond_the_file.npz", "its header is");
    run("shape_overflow.npz", "its shape (1, 9223372036854775807, 2, 2, ) is not possible");
}

#[test]
fn directories_do_not_hide_networks() {
    let folder = Folder::new("directory");
    std::fs::create_dir(folder.0.join("squeezenet1_1")).expect("a folder");
    weft(["inspect", "squeezenet1_1"]).at(&folder.0).run().succeeded();
    let inside = folder.path("squeezenet1_1");
    refused(&["inspect", &inside], 3, "it is a folder");
}

/// What is read in parts is checked when it is read.
#[test]
fn external_data_that_is_too_short() {
    let folder = Folder::new("external");
    let model = folder.path("w.onnx");
    weft(["export", "squeezenet1_1", "-o", &model]).run().succeeded();
    let whole = std::fs::read(&model).expect("the model");
    std::fs::write(&model, &whole[..whole.len() / 2]).expect("writes");
    refused(&["run", &model, "--device", "interpreter"], 3, "not a complete ONNX model");
}

/// Ends a program that does not end by itself.
fn within_seconds(mut c: Command, seconds: u64) -> Option<i32> {
    let mut child = c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waits") {
            return status.code();
        }
        if start.elapsed() > Duration::from_secs(seconds) {
            let _ = child.kill();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    fn fifo(path: &str) {
        let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
        assert!(made.success());
    }

    fn export(to: &str) -> Vec<String> {
        ["export", &case("group_norm.weft"), "-o", to].map(String::from).to_vec()
    }

    fn exports(to: &str) -> bool {
        weft(export(to)).run().code == Some(0)
    }

    #[test]
    fn pipes_do_not_block() {
        let folder = Folder::new("pipe");
        let pipe = folder.path("model.onnx");
        fifo(&pipe);
        fifo(&folder.path("p.weft"));
        for args in [["inspect", &pipe], ["compile", &pipe], ["run", &pipe], ["inspect", &folder.path("p.weft")]] {
            assert_eq!(within_seconds(weft(args).process(), 60), Some(3), "{args:?}");
        }
        assert_eq!(within_seconds(weft(export(&pipe)).process(), 60), Some(2), "nobody reads the pipe");
        assert!(std::fs::metadata(&pipe).expect("is there").file_type().is_fifo());
    }

    #[test]
    fn pipes_and_devices_take_results_and_stay() {
        let folder = Folder::new("stream");
        let pipe = folder.path("pipe");
        fifo(&pipe);
        let from = pipe.clone();
        let reader = std::thread::spawn(move || std::fs::read(from).expect("reads"));
        // The reader may not be there yet.
        let written = (0..200).any(|_| exports(&pipe));
        assert!(written, "a pipe that somebody reads takes the results");
        let file = folder.path("file.onnx");
        weft(export(&file)).run().succeeded();
        assert_eq!(reader.join().expect("reads"), std::fs::read(&file).expect("reads"));
        for device in ["/dev/null", "/dev/full"].into_iter().filter(|d| Path::new(d).exists()) {
            weft(export(device)).run().ended(if device == "/dev/full" { 2 } else { 0 });
            assert!(std::fs::metadata(device).expect("is there").file_type().is_char_device());
        }
    }

    #[test]
    fn what_is_not_ours_survives() {
        let folder = Folder::new("outputs");
        let (kept, link, target) = (folder.path("kept.onnx"), folder.path("link.onnx"), folder.path("target.onnx"));
        std::fs::write(&kept, "kept").expect("writes");
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o444)).expect("sets");
        refused(&["export", "squeezenet1_1", "-o", &kept], 2, "it is read-only");
        assert_eq!(std::fs::read_to_string(&kept).expect("reads"), "kept");
        std::fs::write(&target, "old").expect("writes");
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).expect("sets");
        symlink(&target, &link).expect("links");
        weft(export(&link)).run().succeeded();
        assert!(std::fs::symlink_metadata(&link).expect("is there").is_symlink());
        assert!(std::fs::read(&target).expect("reads").len() > 1000);
        assert_eq!(std::fs::metadata(&target).expect("is there").permissions().mode() & 0o777, 0o640);
        let (dangling, inner) = (folder.path("dangling.onnx"), folder.path("folder.onnx"));
        symlink(folder.path("absent"), &dangling).expect("links");
        refused(&["export", "squeezenet1_1", "-o", &dangling], 2, "a symbolic link to nothing");
        std::fs::create_dir(&inner).expect("a folder");
        refused(&["export", "squeezenet1_1", "-o", &inner], 2, "");
        refused(&["compile", "squeezenet1_1", "--target", "lavapipe", "--emit-dir", &target], 2, "");
        let left: Vec<_> = std::fs::read_dir(&folder.0).expect("reads").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left.len(), 5, "temporary files are left: {left:?}");
    }

    /// What cannot be written is refused before the work: a model that takes long is not even looked for.
    #[test]
    fn refusals_come_first() {
        for args in [
            ["compile", "absent.onnx", "-o", "/absent/x.trace"],
            ["run", "absent.onnx", "-o", "/absent/x.npz"],
            ["bench", "absent.onnx", "--json=/absent/x.json", "-q"],
            ["bench", "absent.onnx", "-o", "/absent/x.trace"],
            ["compare", "absent.onnx", "-o", "/absent/x.trace"],
            ["compare", "absent.onnx", "--write-keep", "/absent/x"],
        ] {
            refused(&args, 2, "cannot write /absent/x");
        }
    }

    #[test]
    fn a_closed_stderr_is_no_bug() {
        let mut child = weft(["inspect", "absent.onnx"]).process().stderr(Stdio::piped()).spawn().expect("starts");
        drop(child.stderr.take());
        assert_eq!(child.wait().expect("ends").code(), Some(3));
        let mut child = weft(["zoo", "--frobnicate"]).process().stderr(Stdio::piped()).spawn().expect("starts");
        drop(child.stderr.take());
        assert_eq!(child.wait().expect("ends").code(), Some(2));
    }
}

/// A model of `y = relu(x)` in which the input has this name.
fn relu_of(input: &str) -> Vec<u8> {
    let value = |name: &str| {
        let shape = field(2, &field(1, &[0x08, 2]));
        [field(1, name.as_bytes()), field(2, &field(1, &[vec![0x08, 1], shape].concat()))].concat()
    };
    let node = [field(1, input.as_bytes()), field(2, b"y"), field(3, input.as_bytes()), field(4, b"Relu")].concat();
    let graph = [field(1, &node), field(2, b"g"), field(11, &value(input)), field(12, &value("y"))].concat();
    [vec![0x08, 9], field(7, &graph), field(8, &[field(1, b""), vec![0x10, 17]].concat())].concat()
}

/// Names that command a terminal, or change the order of the characters around them, are shown escaped: on terminals, in
/// JSON, in comments of exported code and in pages.
#[test]
fn hidden_characters_in_names_are_shown() {
    let folder = Folder::new("names");
    let model = folder.path("names.onnx");
    let hidden = |text: &str| text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200b}']);
    std::fs::write(&model, relu_of("x\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}1m\u{202e}\u{2066}\u{200b}")).expect("writes");
    let (c, rust) = (folder.path("c"), folder.path("rust"));
    let (page, trace, text) = (folder.path("a.html"), folder.path("a.trace"), folder.path("a.weft"));
    for args in [
        &["inspect", &model][..],
        &["inspect", &model, "--json"],
        &["compile", &model, "--target", "ada", "-o", &trace],
        &["compile", &model, "--target", "ada", "--json"],
        &["compile", &model, "--target", "ada", "--emit", "weft"],
        &["run", &model, "--device", "cpu"],
        &["run", &model, "--device", "cpu", "--json"],
        &["compare", &model, "--device", "cpu"],
        &["explain", &trace],
        &["inspect", &trace, "-v"],
        &["report", &trace, "-o", &page],
        &["export", &model, "--c", &c],
        &["export", &model, "--rust", &rust, "--target", "ada"],
        &["run", &model, "--device", "cpu", "--dump", "nothing"],
        &["run", &model, "--dim", "nothing=3"],
    ] {
        let out = weft(args).run();
        let all = [out.stdout, out.stderr];
        assert!(!all.iter().any(|o| hidden(o)), "weft {args:?}: {all:?}");
        // The JSON of a run names results alone.
        if args.contains(&"--json") && args[0] != "run" {
            let json: serde_json::Value = serde_json::from_str(&all[0]).expect("JSON");
            assert!(hidden(&json.to_string()), "weft {args:?} names the input as it is: {json}");
        }
        if args.contains(&"weft") {
            std::fs::write(&text, &all[0]).expect("writes");
            weft(["inspect", &text]).run().succeeded();
        }
    }
    let mut files = vec![PathBuf::from(page)];
    for folder in [c.clone(), rust.clone(), format!("{rust}/src"), format!("{rust}/kernels")] {
        let all = std::fs::read_dir(&folder).expect("a folder").map(|e| e.expect("an entry").path());
        files.extend(all.filter(|p| p.is_file() && p.extension().is_none_or(|e| e != "bin")));
    }
    assert!(files.len() > 5);
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        assert!(!hidden(&text), "{}:\n{text}", file.display());
    }
}
