//! The examples in C and C++, built against the libraries with every warning as an error, and run on the CPU: also a
//! thousand times under AddressSanitizer with its leak check.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weft::{Bundle, Device, Model, Options, TuningDatabase};

const TEXT: &str = "const @w : f32[3,2] = [1, 0, 0, 1, 1, 1]\n
graph @main(%x: f32[2,3]) -> (y: f32[2,2]) {
  %w = const @w : f32[3,2]
  %a = matmul %x, %w : f32[2,2]
  %y = relu %a : f32[2,2]
  return %y
}
";

/// How often the examples run under AddressSanitizer.
const RUNS: &str = "1000";

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("net.weft"), TEXT).expect("writes");
    folder
}

/// Where cargo puts the libraries that it builds with this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.parent().expect("target/<profile>/deps").to_path_buf()
}

/// Builds an example; `None` without a compiler, which is said.
fn build(at: &Path, source: &str, more: &[&str], is_static: bool) -> Option<PathBuf> {
    let (compiler, standard) = if source.ends_with(".c") { ("cc", "-std=c99") } else { ("c++", "-std=c++17") };
    let place = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = at.join("program");
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-I"]).arg(place.join("include"));
    command.args(more).arg(place.join("examples").join(source)).arg("-o").arg(&program);
    match is_static {
        true => command.arg(libraries().join("libweft_c.a")).args(["-ldl", "-lm"]),
        false => command.arg("-L").arg(libraries()).arg("-lweft_c"),
    };
    command.arg("-pthread").arg(format!("-Wl,-rpath,{}", libraries().display()));
    let Ok(out) = command.output() else {
        eprintln!("LEFT OUT: there is no `{compiler}`, so {source} is not built");
        return None;
    };
    assert!(out.status.success(), "{source}: {}", said(&out));
    Some(program)
}

fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    let folder = program.parent().expect("a folder");
    command.current_dir(folder).args(arguments).envs(variables.iter().copied()).output().expect("it runs")
}

/// Writes a bundle of the network for the CPU.
fn bundle(at: &Path) {
    let model = Model::from_text(TEXT).expect("text");
    let options = Options::for_device(&Device::cpu(1).expect("a CPU"));
    let mut bytes = vec![];
    Bundle::write(&model, "net", &[options], &TuningDatabase::default(), &mut bytes).expect("a bundle");
    std::fs::write(at.join("net.bundle"), bytes).expect("writes");
}

const RESULT: &str = "y [2,2]: 2 2 2 2";

#[test]
fn the_c_example_runs_models_and_bundles() {
    let at = folder("plain");
    bundle(&at);
    let Some(program) = build(&at, "run.c", &[], false) else { return };
    for (model, options) in [("net.weft", "device=cpu"), ("net.bundle", "device=cpu\nrequire_compiled=true")] {
        let out = run(&program, &[model, options, "2"], &[]);
        assert!(out.status.success() && said(&out).contains(RESULT), "{model}: {}", said(&out));
        assert!(said(&out).contains("(device)"), "{}", said(&out));
    }
    for (arguments, code, words) in [
        (["none.onnx", "", "1"], 3, "cannot read none.onnx"),
        (["net.weft", "device=nowhere", "1"], 5, "help: `weft devices` lists"),
        (["net.weft", "speed=high", "1"], 2, "there is no option `speed`"),
        (["net.weft", "require_compiled=true\ndevice=cpu", "1"], 2, "require_compiled is for bundles"),
        (["net.bundle", "device=cpu\namp=fp16", "1"], 2, "amp does not apply to a bundle"),
    ] {
        let out = run(&program, &arguments, &[]);
        assert_eq!(out.status.code(), Some(code), "{arguments:?}: {}", said(&out));
        assert!(said(&out).contains(words), "{arguments:?}: {}", said(&out));
    }
}

/// A network of `body`, of which `;` ends a line.
fn network(parameters: &str, result: &str, body: &str) -> String {
    format!("graph @main({parameters}) -> (y: {result}) {{; {body}; return %y; }};").replace(';', "\n")
}

/// A network with a region of a C compiler that is given these options.
fn region(options: &str) -> String {
    let body = format!("%y = external {{target=c, options=\"{options}\"}} : f32[2] {{; %0 = neg %x; yield %0; }}");
    network("%x: f32[2]", "f32[2]", &body)
}

/// 40 functions, each of which calls the next one twice.
fn calls() -> String {
    let function = |i: usize| {
        let op = if i < 39 { format!("call @g{}", i + 1) } else { "relu".into() };
        format!(
            "graph @g{i}(%a: f32[2]) -> (b: f32[2]) {{\n%0 = {op} %a : f32[2]\n%1 = {op} %0 : f32[2]\nreturn %1\n}}\n"
        )
    };
    network("%x: f32[2]", "f32[2]", "%y = call @g0 %x : f32[2]") + &(0..40).map(function).collect::<String>()
}

/// Files that ask for programs, folders, memory or work without end, and damaged ones: one line of error within 5 s of CPU
/// time and 4 GB of address space; nothing is started or written.
#[test]
fn hostile_files_are_errors_in_one_line() {
    let at = folder("hostile");
    bundle(&at);
    let Some(program) = build(&at, "run.c", &[], false) else { return };
    let whole = std::fs::read(at.join("net.bundle")).expect("reads");
    let flipped = |at: usize| [&whole[..at], &[whole[at] ^ 1], &whole[at + 1..]].concat();
    let grid =
        "%0 = expand %x {shape=[1000000,1000000]}; %1 = cumsum %0 {axis=0}; %y = reduce %1 {axes=[0,1], kind=max}";
    let host = "%y = call_host @system %x {dtypes=[f32], shapes=[[2]]} : f32[2]";
    let files = [
        ("program.weft", region("compiler=./evil.sh").into_bytes(), 2, "runs code of this machine"),
        ("folder.weft", region("folder=ESCAPED").into_bytes(), 2, "runs code of this machine"),
        ("function.weft", network("%x: f32[2]", "f32[2]", host).into_bytes(), 3, "`system`"),
        ("calls.weft", calls().into_bytes(), 3, "more than 100000"),
        ("memory.weft", network("%x: f32[1]", "f32[]", grid).into_bytes(), 5, "iB"),
        ("zeros.onnx", vec![0; 4096], 3, "zeros.onnx"),
        ("long.onnx", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f".to_vec(), 3, "long.onnx"),
        ("cut.bundle", whole[..whole.len() / 2].to_vec(), 3, "truncated"),
        ("index.bundle", flipped(whole.len() - 30), 3, "damaged"),
        ("zeros.bundle", [&whole[..12], &vec![0; 1 << 20]].concat(), 3, "truncated"),
    ];
    let listed = || std::fs::read_dir(&at).expect("a folder").count();
    for (name, bytes, code, words) in files {
        std::fs::write(at.join(name), bytes).expect("writes");
        let before = listed();
        let limits = "ulimit -v 4000000; ulimit -t 5; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", limits, "sh"]).arg(&program).args([name, "device=cpu\nthreads=1", "1"]).current_dir(&at);
        let out = command.env("RAYON_NUM_THREADS", "1").output().expect("it runs");
        assert_eq!(out.status.code(), Some(code), "{name}: {}", said(&out));
        let lines = said(&out).lines().filter(|l| l.starts_with("error ")).count();
        assert!(lines == 1 && said(&out).contains(words), "{name}: {}", said(&out));
        assert_eq!(listed(), before, "{name} leaves a file");
    }
}

#[test]
fn the_cpp_example_runs_one_session_on_threads() {
    let at = folder("threads");
    let Some(program) = build(&at, "threads.cpp", &[], false) else { return };
    let out = run(&program, &["net.weft", "device=cpu", "50"], &[]);
    assert!(out.status.success() && said(&out).contains("thread 0: 2 2 2 2\nthread 1: 4 4 4 4"), "{}", said(&out));
}

#[test]
fn a_network_is_timed_and_compared() {
    let at = folder("bench");
    let Some(program) = build(&at, "bench.c", &[], false) else { return };
    let out = run(&program, &["net.weft", "device=cpu\nnan=fast\nexternal=c"], &[]);
    assert!(out.status.success(), "{}", said(&out));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let [times, errors] = [0, 1].map(|n| serde_json::from_str::<serde_json::Value>(text.lines().nth(n).unwrap_or("")));
    let (times, errors) = (times.expect("a record"), errors.expect("a record"));
    assert_eq!(times["latency_ms"]["samples"].as_array().map(Vec::len), Some(10), "{times}");
    assert!(times["per_kernel"].is_array(), "{times}");
    assert_eq!((&errors["pass"], &errors["outputs"][0]["name"]), (&true.into(), &"y".into()), "{errors}");
    let out = run(&program, &["net.weft", "device=cpu\nnan=slow"], &[]);
    assert!(out.status.code() == Some(2) && said(&out).contains("option nan=slow: "), "{}", said(&out));
}

#[test]
fn networks_and_functions_call_each_other() {
    let at = folder("functions");
    let Some(program) = build(&at, "functions.c", &[], false) else { return };
    let out = run(&program, &["3"], &[]);
    assert!(out.status.success() && said(&out).contains("y [2,3]: 3 -2 9 -4 15 -6"), "{}", said(&out));
}

#[test]
fn the_state_of_a_network_stays_on_the_device() {
    let at = folder("on-device");
    let Some(program) = build(&at, "on_device.c", &[], false) else { return };
    let mut devices = vec!["cpu", "interpreter"];
    match weft::list_adapters().is_empty() {
        true => eprintln!("LEFT OUT: no adapter, so no tensor stays on one"),
        false => devices.push("0"),
    }
    for device in devices {
        let out = run(&program, &[&format!("device={device}"), "3"], &[]);
        assert!(out.status.success(), "{device}: {}", said(&out));
        assert!(said(&out).contains("next [2,3]: 1.75 3.5 5.25 7 8.75 10.5"), "{device}: {}", said(&out));
        assert_eq!(said(&out).contains("host memory"), device != "0", "{device}: {}", said(&out));
    }
}

#[test]
fn the_program_of_the_page_runs() {
    let at = folder("page");
    let text = "graph @main(%image: f32[1,3,16,16]) -> (y: f32[1,3,16,16]) {
  %y = sigmoid %image : f32[1,3,16,16]
  return %y
}
";
    let mut bytes = vec![];
    let model = Model::from_text(text).expect("text");
    let options = Options::for_device(&Device::cpu(1).expect("a CPU"));
    Bundle::write(&model, "net", &[options], &TuningDatabase::default(), &mut bytes).expect("a bundle");
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/c.md")).expect("docs/c.md");
    let program = page.split("```c\n").nth(1).and_then(|p| p.split("```").next()).expect("a program");
    std::fs::write(at.join("page.c"), program).expect("writes");
    let source = at.join("page.c").display().to_string();
    let Some(program) = build(&at, &source, &[], false) else { return };
    assert!(said(&run(&program, &[], &[])).contains("error 3: cannot read model.onnx"));
    // The content says that it is a bundle.
    std::fs::write(at.join("model.onnx"), bytes).expect("writes");
    let out = said(&run(&program, &[], &[]));
    assert!(out.contains("y: 0.5"), "{out}");
}

#[test]
fn the_static_library_links() {
    let at = folder("static");
    let Some(program) = build(&at, "run.c", &[], true) else { return };
    let out = run(&program, &["net.weft", "device=cpu", "1"], &[]);
    assert!(out.status.success() && said(&out).contains(RESULT), "{}", said(&out));
}

/// What is given to AddressSanitizer: with its leak check where that works, which a program that leaks shows. `None` if
/// the compiler has no AddressSanitizer.
fn sanitizer(at: &Path) -> Option<&'static str> {
    let (source, program) = (at.join("leak.c"), at.join("leak"));
    let text = "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(7); p = 0; return p != 0; }\n";
    std::fs::write(&source, text).expect("writes");
    let built = Command::new("cc").args(["-O0", "-fsanitize=address"]).arg(&source).arg("-o").arg(&program).output();
    if !built.is_ok_and(|out| out.status.success()) {
        eprintln!("LEFT OUT: the C compiler has no AddressSanitizer, so nothing is run under it");
        return None;
    }
    let leaks = run(&program, &[], &[("ASAN_OPTIONS", "detect_leaks=1")]);
    if said(&leaks).contains("7 byte(s) leaked") {
        return Some("detect_leaks=1");
    }
    eprintln!("LEFT OUT: the leak check does not work here, AddressSanitizer runs without it: {}", said(&leaks));
    Some("detect_leaks=0")
}

#[test]
fn a_thousand_runs_leak_nothing() {
    let at = folder("sanitized");
    bundle(&at);
    let Some(options) = sanitizer(&at) else { return };
    for source in ["run.c", "threads.cpp"] {
        let Some(program) = build(&at, source, &["-fsanitize=address", "-fno-omit-frame-pointer"], false) else {
            return;
        };
        for model in ["net.weft", "net.bundle"] {
            let out = run(&program, &[model, "device=cpu", RUNS], &[("ASAN_OPTIONS", options)]);
            assert!(out.status.success() && !said(&out).contains("Sanitizer"), "{source}, {model}: {}", said(&out));
        }
    }
    for (source, arguments) in [("functions.c", &[RUNS][..]), ("on_device.c", &["device=cpu", RUNS])] {
        let Some(program) = build(&at, source, &["-fsanitize=address"], false) else { return };
        let out = run(&program, arguments, &[("ASAN_OPTIONS", options)]);
        assert!(out.status.success() && !said(&out).contains("Sanitizer"), "{source}: {}", said(&out));
    }
    // Errors are freed too.
    let Some(program) = build(&at, "run.c", &["-fsanitize=address"], false) else { return };
    let out = run(&program, &["missing.weft", "device=cpu", "1"], &[("ASAN_OPTIONS", options)]);
    assert!(out.status.code() == Some(3) && !said(&out).contains("Sanitizer"), "{}", said(&out));
    // Looking for a device loads drivers, which may leak: Mesa's llvmpipe 22.3 leaks 128 bytes.
    let without = [("ASAN_OPTIONS", "detect_leaks=0")];
    let out = run(&program, &["net.weft", "device=nowhere", "1"], &without);
    assert!(out.status.code() == Some(5) && !said(&out).contains("Sanitizer"), "{}", said(&out));
}
