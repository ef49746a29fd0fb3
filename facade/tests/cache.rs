//! Cached plans and weights give the same results, files that do not match are made again, and processes share a
//! folder.

use compiler::schedule::{ScheduleOptions, Versions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weft::{Cache, Device, Model, Options, Outputs, Tensor};

/// A product with weights that are packed, a step on the host, and a branch of constants.
const TEXT: &str = "const @w : f32[24,24]

graph @main(%x: f32[16,24]) -> (y: f32[96], z: f32[16,24]) {
  %w = const @w : f32[24,24]
  %a = matmul %x, %w : f32[16,24]
  %z = softmax %a {axes=[1]} : f32[16,24]
  %m = reshape %z {shape=[96,2,2]} : f32[96,2,2]
  %d = det %m : f32[96]
  %y = tanh %d : f32[96]
  return %y, %z
}
";

fn model(factor: f32) -> Model {
    let mut module = compiler::text::parse_module(TEXT).expect("text");
    let values: Vec<f32> = (0..576).map(|i| factor * ((i * 37 % 101) as f32 / 101.0 - 0.5)).collect();
    let w = compiler::graph::Constant::from_tensor(&Tensor::from_vec(vec![24, 24], values));
    module.constants.insert("w".into(), w);
    Model::from_module(module)
}

fn input() -> Tensor {
    compiler::text::random_tensor(weft::DType::F32, &[16, 24], 3)
}

/// Runs through the cache; whether the plan came from disk, and the results.
fn run(device: &Device, factor: f32, cache: Cache) -> (bool, Outputs) {
    let compiled = model(factor).compile(&Options::for_device(device).cache(cache)).expect("compiles");
    let kept = compiled.came_from_disk();
    let session = compiled.session(device).expect("opens");
    (kept, session.run(&[("x", input())]).expect("runs"))
}

fn device() -> Option<Device> {
    let device = Device::open("0").ok();
    if device.is_none() {
        eprintln!("NOT RUN: there is no adapter");
    }
    device
}

fn files(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|f| f.path());
    listed.filter(|p| p.extension().is_some_and(|e| e == kind)).collect()
}

#[test]
fn what_is_kept_gives_the_same_results() {
    let Some(device) = device() else { return };
    let (_, want) = run(&device, 1.0, Cache::default());
    for weights in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache { weights, ..Cache::at(folder.path()) };
        for start in 0..3 {
            let (kept, got) = run(&device, 1.0, cache.clone());
            assert_eq!((kept, &got), (start > 0, &want), "start {start}, weights {weights}");
        }
        assert_eq!(files(folder.path(), "plan").len(), 1);
        assert_eq!(files(folder.path(), "weights").len(), usize::from(weights));
        let (kept, other) = run(&device, 2.0, cache);
        assert!(!kept && other != want, "other weights are another model");
    }
}

#[test]
fn what_is_asked_of_the_rules_is_part_of_the_key() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let came_from_disk = |scheduling: &ScheduleOptions| {
        let mut options = Options::for_device(&device).cache(Cache::at(folder.path()));
        options.pipeline.scheduling.clone_from(scheduling);
        model(1.0).compile(&options).expect("compiles").came_from_disk()
    };
    let all = [
        ScheduleOptions::default(),
        ScheduleOptions::of_rules(["direct"]),
        ScheduleOptions::of_rules(["direct", "elementwise"]),
        ScheduleOptions { versions: Versions::All, ..ScheduleOptions::default() },
    ];
    for kept in [false, true] {
        for scheduling in &all {
            assert_eq!(came_from_disk(scheduling), kept, "{scheduling:?}");
        }
    }
}

#[test]
fn what_is_cut_off_or_changed_is_made_anew() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path()).with_weights();
    let (_, want) = run(&device, 1.0, cache.clone());
    for kind in ["plan", "weights", "pipelines"] {
        for file in files(folder.path(), kind) {
            let whole = std::fs::read(&file).expect("reads");
            let mut changed = whole.clone();
            let middle = whole.len() / 2;
            changed[middle] ^= 0x10;
            for bad in [&whole[..middle], &whole[..0], b"something else", &changed] {
                std::fs::write(&file, bad).expect("writes");
                let (kept, got) = run(&device, 1.0, cache.clone());
                assert_eq!((kept, &got), (kind != "plan", &want), "{}", file.display());
                let again = std::fs::read(&file).expect("reads");
                // What a driver says of its pipelines need not be the same bytes.
                let anew = if kind == "pipelines" { again != bad } else { again == whole };
                assert!(anew, "{} was not made anew", file.display());
            }
        }
    }
}

/// The part that a child process plays: it runs many times and says what came out.
#[test]
fn child() {
    let Some(folder) = std::env::var_os("WEFT_TEST_CACHE") else { return };
    let Some(device) = device() else { return };
    let (_, want) = run(&device, 1.0, Cache::default());
    for start in 0..20 {
        // Each removes what there is now and then, so that both write while the other reads.
        if start % 5 == 4 {
            for kind in ["plan", "weights", "pipelines"] {
                files(Path::new(&folder), kind).iter().for_each(|f| drop(std::fs::remove_file(f)));
            }
        }
        let (_, got) = run(&device, 1.0, Cache::at(&folder).with_weights());
        assert_eq!(got, want, "start {start}");
    }
}

#[test]
fn two_processes_share_a_folder() {
    if device().is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let start = || -> Child {
        let mut c = Command::new(std::env::current_exe().expect("this program"));
        c.args(["child", "--exact", "--nocapture"]).env("WEFT_TEST_CACHE", folder.path());
        c.stdout(Stdio::null()).spawn().expect("starts")
    };
    let children = [start(), start()];
    for mut child in children {
        assert!(child.wait().expect("ends").success());
    }
    let left = std::fs::read_dir(folder.path()).expect("lists").count();
    assert!(left <= 3, "{left} files: temporary ones were left");
}
