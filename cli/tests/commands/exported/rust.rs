//! `weft export --rust`: the crate builds with every warning as an error, with `wgpu` and nothing of Weft's, and
//! computes bit for bit what `weft run` does on the device. The tests run on whatever driver there is
//! (`scripts/with-driver.sh`).
//!
//! The crate is built by a call of rustc with the libraries that cargo has built for this test: that takes seconds, and
//! building `wgpu` again minutes. That it needs no others is what its manifest says, which `cargo tree` reads. One test
//! builds it with cargo, for `cargo xtask test --full`.

use crate::command::has_adapter;
use crate::exported::{Given, RESULTS, elements, refused, succeeds};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// The libraries of that name which cargo built beside this test, the newest first.
fn libraries(name: &str) -> Vec<PathBuf> {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.parent().expect("target/<profile>/deps").read_dir().expect("a folder");
    let is_it = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    };
    let mut found: Vec<PathBuf> = folder.flatten().map(|e| e.path()).filter(is_it).collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.metadata().and_then(|m| m.modified()).ok()));
    found
}

/// The crate in a folder, built.
struct Exported {
    at: tempfile::TempDir,
    program: PathBuf,
}

impl Exported {
    /// Written, not built.
    fn written(model: &str, options: &[&str]) -> Exported {
        let at = tempfile::tempdir().expect("a folder");
        succeeds(&[&["export", model, "--quiet", "--rust", &at.path().display().to_string()], options].concat());
        let program = at.path().join("program");
        Exported { at, program }
    }
    fn of(model: &str, options: &[&str]) -> Exported {
        let made = Exported::written(model, options);
        made.build();
        made
    }
    fn cargo(&self, args: &[&str]) -> Output {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        // Dependencies stay built from run to run.
        cargo.env("CARGO_TARGET_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/exported-crate"));
        cargo.current_dir(self.at.path()).args(args).output().expect("cargo runs")
    }
    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }
    fn name(&self) -> String {
        let manifest = std::fs::read_to_string(self.path("Cargo.toml")).expect("the manifest");
        manifest.split('"').nth(1).expect("a name").to_string()
    }
    /// Builds the library, then the program.
    fn build(&self) {
        self.build_program("program", "src/main.rs");
    }
    /// Builds the library, then a program, which may use `wgpu` too; the library is its crate `network`. Builds of the
    /// workspace with other features leave other libraries: the first pair that fits is taken.
    fn build_program(&self, program: &str, source: &str) {
        let name = self.name().replace('-', "_");
        let mut why = "there is no library of wgpu".to_string();
        for (wgpu, pollster) in libraries("wgpu").iter().zip(libraries("pollster").iter().cycle()) {
            let externs = [("wgpu", wgpu.as_path()), ("pollster", pollster)];
            let library = self.rustc(&name, &externs, "src/lib.rs", wgpu);
            if library.status.success() {
                let own = self.path(&format!("lib{name}.rlib"));
                let externs = [&[(name.as_str(), own.as_path()), ("network", &own)], &externs[..]].concat();
                let program = self.rustc(program, &externs, source, wgpu);
                assert!(program.status.success(), "{}", said(&program));
                return;
            }
            why = said(&library);
        }
        panic!("{why}");
    }
    fn rustc(&self, name: &str, externs: &[(&str, &Path)], source: &str, beside: &Path) -> Output {
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
        let kind = if source.ends_with("lib.rs") { "rlib" } else { "bin" };
        command.args(["--edition", "2024", "-D", "warnings", "--crate-type", kind, "--crate-name", name]);
        command.arg("-L").arg(format!("dependency={}", beside.parent().expect("a folder").display()));
        for (name, path) in externs {
            command.arg("--extern").arg(format!("{name}={}", path.display()));
        }
        let place = self.at.path();
        command.arg("--out-dir").arg(place).arg(place.join(source)).output().expect("rustc runs")
    }
    fn start(&self, inputs: &[Vec<u8>], outputs: usize) -> Output {
        let mut command = Command::new(&self.program);
        command.current_dir(self.at.path()).args(["-n", "3"]);
        for (i, bytes) in inputs.iter().enumerate() {
            std::fs::write(self.path(&format!("in{i}")), bytes).expect("writes");
            command.arg(format!("in{i}"));
        }
        command.args((0..outputs).map(|i| format!("out{i}")));
        command.output().expect("the program runs")
    }
    /// The results as raw elements, of the third run.
    fn run(&self, inputs: &[Vec<u8>], outputs: usize) -> Vec<Vec<u8>> {
        let out = self.start(inputs, outputs);
        assert!(out.status.success(), "{}", said(&out));
        (0..outputs).map(|i| std::fs::read(self.path(&format!("out{i}"))).expect("a result")).collect()
    }
}

#[test]
fn the_crate_computes_what_weft_does() {
    if !has_adapter() {
        return;
    }
    for truth in [0u8, 1] {
        let given = Given::of(truth);
        let exported = Exported::of(&given.model(), &[]);
        let made = given.run("0");
        let got = exported.run(&given.bytes, RESULTS.len());
        for ((name, _), got) in RESULTS.iter().zip(&got) {
            assert_eq!(&elements(&made.join(format!("{name}.npy"))), got, "{name} with {truth}");
        }
        if truth == 1 {
            let mut short = given.bytes.clone();
            short[0].pop();
            let out = exported.start(&short, RESULTS.len());
            assert!(!out.status.success() && said(&out).contains("input `x` of the shape"), "{}", said(&out));
            let mut far = given.bytes.clone();
            far[1][4] = 1;
            let out = exported.start(&far, RESULTS.len());
            assert!(!out.status.success() && said(&out).contains("does not fit 32 bits"), "{}", said(&out));
        }
    }
}

/// Plain `cargo build`, with the crates of the registry that the manifest names.
#[test]
#[ignore = "builds wgpu, which takes minutes"]
fn cargo_builds_it_in_an_empty_place() {
    if !has_adapter() {
        return;
    }
    let given = Given::of(1);
    let mut exported = Exported::written(&given.model(), &[]);
    let fetched = exported.cargo(&["fetch"]);
    if !fetched.status.success() {
        eprintln!("LEFT OUT: the crates that an exported crate needs cannot be had: {}", said(&fetched));
        return;
    }
    let built = exported.cargo(&["build"]);
    assert!(built.status.success(), "{}", said(&built));
    exported.program = Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/exported-crate/debug")).join(exported.name());
    let made = given.run("0");
    for ((name, _), got) in RESULTS.iter().zip(&exported.run(&given.bytes, RESULTS.len())) {
        assert_eq!(&elements(&made.join(format!("{name}.npy"))), got, "{name}");
    }
    let tree = said(&exported.cargo(&["tree", "--prefix", "none"]));
    assert!(tree.contains("wgpu v") && !tree.contains("weft"), "{tree}");
}

/// The features that a written crate asks for, by wgpu's names.
fn features_of(exported: &Exported) -> Vec<String> {
    let text = std::fs::read_to_string(exported.path("src/network.rs")).expect("the tables");
    let line = text.lines().find(|l| l.contains("const FEATURES")).expect("the features");
    line.split(".union(wgpu::Features::").skip(1).filter_map(|f| f.split(')').next()).map(String::from).collect()
}

/// A model that computes in f16 and that subgroups sum: a product, a softmax and positions.
const HALVES: &str = "const @w : f32[64,48] = random(1)
graph @main(%x: f32[32,64]) -> (y: f32[32,48], at: i64[32], b: f32[32,48]) {
  %w = const @w
  %0 = matmul %x, %w
  %1 = softmax %0 {axes=[1]}
  %2 = arg_reduce %0 {axis=1}
  %3 = relu %0
  return %1, %2, %3
}
";

fn halves(at: &tempfile::TempDir) -> String {
    let path = at.path().join("halves.weft");
    std::fs::write(&path, HALVES).expect("the model is written");
    path.display().to_string()
}

#[test]
fn shaders_use_the_features_that_the_crate_asks_for() {
    let at = tempfile::tempdir().expect("a folder");
    let halves = halves(&at);
    let mut asked = std::collections::BTreeSet::new();
    for model in ["squeezenet1_1:smallest", "mobilenet_v3_small:smallest", &halves] {
        for target in ["baseline", "navi21", "dg2", "turing", "apple", "swiftshader"] {
            let exported = Exported::written(model, &["--target", target, "--amp", "fp16"]);
            let features = features_of(&exported);
            let features: Vec<&str> = features.iter().map(String::as_str).collect();
            for file in exported.path("kernels").read_dir().expect("the kernels") {
                let path = file.expect("a kernel").path();
                let text = std::fs::read_to_string(&path).expect("the text");
                let name = path.display();
                shaders_gen::read_wgsl(&text, &features).unwrap_or_else(|e| panic!("{target}: {name}: {e}"));
            }
            asked.extend(features.into_iter().map(str::to_string));
        }
    }
    // Without one that it asks for, some text is refused.
    assert!(asked.contains("SHADER_F16") && asked.contains("SUBGROUP"), "{asked:?}");
}

/// Opens the network on devices of the application's own that were opened without some features.
const OPENS: &str = r#"//! Opens the network on each device, without the features that are named.
fn main() {
    let named = |name: String| match name.as_str() {
        "SHADER_F16" => wgpu::Features::SHADER_F16,
        _ => wgpu::Features::SUBGROUP,
    };
    let without = std::env::args().skip(1).map(named).fold(wgpu::Features::empty(), wgpu::Features::union);
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    for adapter in pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all())) {
        let (needed, limits) = network::Network::needs();
        let descriptor = wgpu::DeviceDescriptor {
            required_features: needed.intersection(adapter.features()).difference(without),
            required_limits: limits.or_better_values_from(&adapter.limits()),
            ..Default::default()
        };
        let Ok((device, queue)) = pollster::block_on(adapter.request_device(&descriptor)) else { continue };
        match network::Network::new(device, queue, network::WEIGHTS) {
            Ok(_) => println!("opened"),
            Err(e) => println!("{e}"),
        }
    }
}
"#;

#[test]
fn a_device_without_halves_or_subgroups_is_refused_in_words() {
    if !has_adapter() {
        return;
    }
    let at = tempfile::tempdir().expect("a folder");
    let exported = Exported::of(&halves(&at), &["--target", "lavapipe", "--amp", "fp16"]);
    std::fs::write(exported.path("src/opens.rs"), OPENS).expect("the source is written");
    exported.build_program("opens", "src/opens.rs");
    let said = |without: &[&str]| {
        said(&Command::new(exported.path("opens")).args(without).output().expect("the program runs"))
    };
    assert_eq!(features_of(&exported), ["SHADER_F16", "SUBGROUP"]);
    for without in [&["SHADER_F16"][..], &["SUBGROUP"], &["SUBGROUP", "SHADER_F16"]] {
        let text = said(without);
        let named = text.contains(&format!("it lacks {}", without.join(" and ")));
        assert!(named && !text.contains("opened"), "{without:?}: {text}");
    }
}

/// Kernels for subgroups that no software driver has.
#[test]
fn a_device_that_lacks_something_is_named() {
    if !has_adapter() {
        return;
    }
    let given = Given::of(0);
    let exported = Exported::of(&given.model(), &["--target", "ada"]);
    let out = exported.start(&given.bytes, RESULTS.len());
    let text = said(&out);
    assert!(!out.status.success() && text.contains("no device can run the network"), "{text}");
    assert!(text.contains("the kernels are for [32, 32]"), "{text}");
}

#[test]
fn it_depends_on_nothing_of_wefts() {
    let at = tempfile::tempdir().expect("a folder");
    let to = at.path().display().to_string();
    succeeds(&["export", "squeezenet1_1:smallest", "--rust", &to, "--target", "baseline", "-q"]);
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    std::fs::copy(lock, at.path().join("Cargo.lock")).expect("the workspace's lock file");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    let out =
        cargo.current_dir(at.path()).args(["tree", "--offline", "--prefix", "none", "--edges", "normal"]).output();
    let out = out.expect("cargo runs");
    assert!(out.status.success(), "{}", said(&out));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|l| l.starts_with("squeezenet1-1-smallest-network ")), "{text}");
    let all: Vec<&str> = lines.filter_map(|l| l.split(' ').next()).collect();
    assert!(all.contains(&"wgpu") && all.contains(&"pollster"), "{text}");
    assert!(!all.iter().any(|name| name.contains("weft")), "{text}");
    // All of it comes from the registry but the crate itself.
    assert_eq!(text.matches(" (/").count(), 1, "{text}");
}

#[test]
fn what_does_not_become_a_crate_is_named() {
    let at = tempfile::tempdir().expect("a folder");
    let to = at.path().join("crate").display().to_string();
    refused(&["export", "ssdlite", "--rust", &to, "--target", "ada"], 4, "does not become a crate: ");
    refused(&["export", "encoder:smallest", "--dim", "sequence=open", "--rust", &to, "--target", "ada"], 2, "--dim");
    refused(&["export", "squeezenet1_1", "--device", "cpu", "--rust", &to], 2, "the crate has shaders");
    refused(&["export", "squeezenet1_1", "--c", &to, "--rust", &to], 2, "cannot be used with");
    assert!(!Path::new(&to).exists());
}
