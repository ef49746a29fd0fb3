//! Defaults of options in a file: what does not fit a command is left out, and files of strangers do nothing.

use crate::command::{Ran, Weft, has_adapter, line};
use std::path::Path;
use tempfile::TempDir;

/// A folder with a file of defaults and a model.
fn folder(defaults: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let block = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/block.weft");
    std::fs::copy(block, folder.path().join("block.weft")).expect("copies");
    std::fs::write(folder.path().join("weft.toml"), defaults).expect("writes");
    folder
}

fn at(folder: &TempDir, words: &str) -> Weft {
    line(words).at(folder.path()).env("WEFT_CACHE", "off")
}

fn with(defaults: &str, words: &str) -> Ran {
    at(&folder(defaults), words).run()
}

/// The example of the page.
fn example() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config.md");
    let page = std::fs::read_to_string(page).expect("the page");
    page.split("```toml\n").nth(1).and_then(|t| t.split("```").next()).expect("an example").to_string()
}

#[test]
fn the_example_of_the_page_fits_every_command() {
    let text = example();
    assert!(["device", "threads", "keep-f32"].iter().all(|key| text.contains(key)), "{text}");
    let folder = folder(&text);
    for words in [
        "export block.weft -o e.onnx",
        "export block.weft --amp fp16 -o f.onnx",
        "run block.weft --device interpreter",
        "compare block.weft --device interpreter",
        "compile block.weft --target lavapipe -o x.trace",
        "explain x.trace",
        "report x.trace -o x.html",
        "inspect x.trace",
        "diff x.trace x.trace",
        "opt block.weft --amp fp16 --keep-f32 Conv_0",
        "bench block.weft --runs 1 --warmup 0",
    ] {
        at(&folder, words).run().succeeded();
    }
    // A crate runs on GPUs: whether there is one to make it for is not the file's matter.
    let made = at(&folder, "export block.weft --rust crate").run();
    assert!(!made.said().contains("as asked"), "{}", made.said());
    let compared = at(&folder, "compare block.weft").run().succeeded();
    assert!(compared.stderr.contains("--keep-f32 /head/*: a default"), "{}", compared.stderr);
    // Sizes of another model.
    with("dim = [\"steps=7\"]\n", "run block.weft --device interpreter").succeeded();
    // Options of the command line itself must fit, as ever.
    at(&folder, "compare block.weft --keep-f32 /head/*").run().refused(2, "/head/*");
    at(&folder, "run block.weft --device interpreter --dim steps=7").run().refused(2, "--dim steps");
    at(&folder, "run block.weft --device interpreter --threads 3").run().refused(2, "--threads is for the CPU");
    at(&folder, "explain x.trace --device cpu").run().refused(2, "--device does not apply to x.trace");
    if has_adapter() {
        at(&folder, "run block.weft --device 0").run().succeeded();
    }
}

#[test]
fn wrong_lines_are_named() {
    let run = "run block.weft --seed 1";
    with("device = [\"interpreter\", \"cpu\"]\n", run).refused(2, "weft.toml:1: `device` takes one value");
    with("\n[bench]\nruns = [1, 2]\n", run).refused(2, "weft.toml:3: `runs` takes one value");
    let wrong = with("\nthreads = \"two\"\n", run).refused(2, "weft.toml:2: invalid value 'two' for '--threads <N>'");
    assert_eq!(wrong.stderr.matches("error").count(), 1, "{}", wrong.stderr);
    with("amp = \"fp17\"\n", "inspect block.weft").refused(2, "weft.toml:1: invalid value 'fp17'");
    // The line stands with errors that the command finds later.
    with("\ndevice = 77\n", run).refused(5, "weft.toml:2");
}

#[test]
fn a_file_names_no_file() {
    for line in ["[tune]\ntuning = \"new.jsonl\"", "[run]\ncache = \"here\"", "[results]\nfolder = \"here\""] {
        let folder = folder(line);
        at(&folder, "inspect block.weft").run().refused(2, "weft.toml:2: ");
        at(&folder, "tune block.weft --budget 1s --device cpu").run().refused(2, "names a file");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 2, "{line}");
    }
    with("cache = \"off\"\ntuning = \"off\"\n", "run block.weft --device interpreter").succeeded();
}

#[test]
fn a_file_is_plain_text_and_small() {
    let refused = |name: &str, why: &str| {
        line("zoo --config").args([name]).run().refused(2, why);
    };
    let folder = folder("");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        path.display().to_string()
    };
    refused(&file("binary", &[0x7f, b'E', b'L', b'F', 0, 1, 0xff]), "it is no text file");
    refused(&file("zeros", &[0; 64]), "it is no text file");
    refused(&file("large", &vec![b'\n'; (1 << 20) + 1]), "it has more than 1 MiB");
    refused(&folder.path().display().to_string(), "it is a folder");
    if cfg!(unix) {
        refused("/dev/zero", "it is no plain file");
    }
}
