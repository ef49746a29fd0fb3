//! Every example in `--help`, the README and docs/ runs as it stands. Those of a page run in the order in which they
//! stand, in a folder that has the reader's own files and nothing that other lines write.
//!
//! An example that is not run is in [`NOT_RUN`] with the reason. Words in capitals (`MODEL`, `NODE=LAYOUT`) make a line
//! a form.
//!
//! `WEFT_EXAMPLES_MODEL=F.onnx` has another network as the reader's `model.onnx`, `WEFT_EXAMPLES_DEVICE=0` another
//! device than a reader without options gets. `examples.txt` in the test's folder has all that the lines print.

use crate::command::{Ran, Weft, line};
use crate::external::libraries::has_second;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How examples begin that are not run, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("weft view", "opens a window; `view.rs` takes pictures of what it shows"),
    (
        "weft compare model.onnx --device cpu --peer",
        "asks for a Python with ONNX Runtime; `comparisons.rs` has a stand-in",
    ),
    ("weft export squeezenet1_1 --web page --target browser.json", "takes a profile that the page writes in a browser"),
    ("cargo install", "builds for ten minutes what is built here already"),
    ("cargo build", "builds in another profile what is built here already"),
    ("cargo test", "runs tests that the page adds itself; continuous integration runs all others"),
    ("cargo xtask", "continuous integration runs `cargo xtask test`, and the others are commands of it"),
];

/// Options that pages name alone, and that are those of Cargo, `cargo xtask` and `python -m weft_nn.lab`.
const OF_OTHERS: &[&str] = &["--features", "--full", "--install", "--launcher", "--unit"];

/// A network of the kind that examples name: an image in, 1000 classes out. Small, since examples run in a debug build.
const CLASSIFIER: &str = "const @w : f32[16,3,7,7] = random(1)
const @d : f32[16,1000] = random(2)
graph @main(%image: f32[1,3,224,224]) -> (classes: f32[1,1000]) {
  %w = const @w : f32[16,3,7,7]
  %c = conv %image, %w {strides=[4,4], pads=[3,3,3,3]} : f32[1,16,56,56] !from(\"stem\")
  %r = relu %c : f32[1,16,56,56] !from(\"stem.relu\")
  %p = reduce %r {kind=mean, axes=[2,3]} : f32[1,16] !from(\"pool\")
  %d = const @d : f32[16,1000]
  %classes = matmul %p, %d : f32[1,1000] !from(\"classes\")
  return %classes
}
";

/// An example, and where it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Example {
    line: String,
    place: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn weft(folder: &Path, arguments: &[&str]) -> Ran {
    shell(folder, "exec \"$WEFT\" \"$@\"", arguments).succeeded()
}

/// Runs a line of a shell that finds `weft`, with a home folder and caches of its own.
fn shell(folder: &Path, line: &str, arguments: &[&str]) -> Ran {
    let binary = Path::new(env!("CARGO_BIN_EXE_weft"));
    let own = binary.parent().expect("a folder").display().to_string();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
    let command = Weft::of("sh").args(["-c", line, "sh"]).args(arguments).at(folder);
    let command = command.env("PATH", path).env("WEFT", binary).env("HOME", folder);
    // An editor that changes nothing.
    let command =
        command.env("WEFT_CACHE", folder.join("cache")).env("EDITOR", "true").without("VISUAL").without("WEFT_DEVICE");
    let device = std::env::var_os("WEFT_EXAMPLES_DEVICE").map(|d| d.to_string_lossy().into_owned());
    let command = match device {
        Some(device) => command.env("WEFT_DEVICE", device),
        None => command,
    };
    command.env("NO_COLOR", "1").run()
}

/// The line without its description: words behind two blanks, or `#`, describe it.
fn command(line: &str) -> String {
    let line = line.trim().trim_start_matches("$ ");
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (verb, rest) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
    // Arguments stand in a column of their own: `weft run     model.onnx   what it does`.
    let rest = if rest.starts_with(&" ".repeat(10)) { "" } else { rest.trim() };
    let rest = rest.split(" #").next().unwrap_or_default().split("  ").next().unwrap_or_default();
    format!("{name} {verb} {rest}").trim_end().to_string()
}

/// True when the line says how a command is written and not one command: it has a word in capitals.
fn is_form(line: &str) -> bool {
    let capitals = |w: &str| w.len() > 1 && w.chars().all(|c| c.is_ascii_uppercase());
    line.contains("...") || line.split([' ', '=', '@', '.']).any(|w| capitals(w) || w == "M" || w == "F")
}

/// The commands that `weft --help` lists.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let commands: Vec<&str> = lines.filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help").collect();
    assert!(commands.len() > 10, "{help}");
    commands
}

/// The examples at the end of the help of each command.
fn help_examples(folder: &Path) -> Vec<Example> {
    let help = |arguments: &[&str]| weft(folder, arguments).stdout;
    let all = help(&["--help"]);
    let examples = |text: &str, place: &str| -> Vec<Example> {
        let lines = text.lines().map(str::trim).filter(|l| l.starts_with("weft "));
        lines.map(|l| Example { line: command(l), place: place.to_string() }).collect()
    };
    let mut found = examples(&all, "weft --help");
    for c in commands(&all) {
        let text = help(&[c, "--help"]);
        let of_command = examples(text.split("Examples:").nth(1).unwrap_or_default(), &format!("weft {c} --help"));
        assert!(!of_command.is_empty(), "the help of `weft {c}` has no examples");
        found.extend(of_command);
    }
    found
}

/// True where code in a text names a command and some of its options, and leaves out what they are for.
fn is_mention(code: &str) -> bool {
    let mut words = code.split_whitespace().skip(1);
    let takes_nothing = words.next().is_some_and(|c| c == "devices" || c.starts_with('-'));
    !takes_nothing && words.next().is_none_or(|w| w.starts_with('-'))
}

/// The pages: name and text.
fn pages() -> Vec<(String, String)> {
    let pages = std::fs::read_dir(root().join("docs")).expect("the pages").map(|e| e.expect("an entry").path());
    let pages = pages.filter(|p| p.extension().is_some_and(|e| e == "md")).chain([root().join("README.md")]);
    let read = |page: PathBuf| {
        let text = std::fs::read_to_string(&page).expect("a page");
        (page.file_name().expect("a name").to_string_lossy().into_owned(), text)
    };
    pages.map(read).collect()
}

/// The code in the text of a page.
fn inline(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The lines of a page that are indented or behind a prompt.
fn indented(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|l| l.starts_with("    ") || l.starts_with("$ "));
    lines.map(|l| l.trim().trim_start_matches("$ "))
}

/// The commands that pages show: indented lines, and code in the text.
fn page_examples() -> Vec<Example> {
    let mut found = vec![];
    for (place, text) in pages() {
        let shown = indented(&text).chain(inline(&text).filter(|c| !c.contains('\n') && !is_mention(c)));
        let shown = shown.map(|l| l.trim_start_matches("$ "));
        let shown = shown.filter(|l| l.starts_with("weft ") || l.starts_with("cargo "));
        found.extend(shown.map(|l| Example { line: command(l), place: place.clone() }));
    }
    found
}

/// The options in a text, without their values: `--amp` of `[--amp=fp16]`.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let other = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let words = text.split_whitespace().map(|w| w.trim_start_matches(['[', '(']));
    let names = words.map(move |w| &w[..w.find(other).unwrap_or(w.len())]);
    names.filter(|w| w.len() > 2 && w.starts_with("--"))
}

/// A folder with a reader's own files: a model, inputs for it, pictures, a list of classes, a decoder, and the texts
/// that
/// docs/tuning.md asks for.
fn readers() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("photos")).expect("a folder");
    let image = image::open(root().join("docs/hills.png")).expect("a picture").to_rgb8();
    for name in ["cat.jpg", "cat.png", "photos/one.png", "photos/two.png"] {
        image.save(folder.join(name)).expect("the picture is written");
    }
    let classes: Vec<String> = (0..1000).map(|i| format!("class {i}")).collect();
    std::fs::write(folder.join("classes.txt"), classes.join("\n")).expect("the classes are written");
    match std::env::var_os("WEFT_EXAMPLES_MODEL") {
        Some(model) => drop(std::fs::copy(model, folder.join("model.onnx")).expect("the model is copied")),
        None => {
            std::fs::write(folder.join("classifier.weft"), CLASSIFIER).expect("the classifier is written");
            weft(&folder, &["export", "classifier.weft", "-o", "model.onnx", "-q"]);
            std::fs::remove_file(folder.join("classifier.weft")).expect("the classifier goes");
        }
    }
    for name in ["a.onnx", "b.onnx"] {
        std::fs::copy(folder.join("model.onnx"), folder.join(name)).expect("copies");
    }
    let decoder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/decoders/old.onnx");
    std::fs::copy(decoder, folder.join("decoder.onnx")).expect("copies");
    let settings = workbench::settings::Settings::default();
    let model = workbench::models::load(&folder.join("model.onnx").display().to_string(), &settings, None);
    let model = model.expect("the model loads");
    let inputs = workbench::models::inputs_for(&model, None, &settings).expect("inputs");
    let (main, unnamed) = (model.main(), compiler::name::Name::new("x"));
    let names = main.params().iter().map(|&p| main.values[p].name.unwrap_or(unnamed).to_string());
    let named: Vec<_> = names.zip(inputs).collect();
    workbench::arrays::write_npz(&folder.join("in.npz"), &named).expect("the inputs are written");
    let page = std::fs::read_to_string(root().join("docs/tuning.md")).expect("the page");
    let template = page.split("```weft\n").nth(1).and_then(|t| t.split("```").next()).expect("its template");
    std::fs::write(folder.join("pool.schedule"), template).expect("the template is written");
    let schedule = "choose {unit=conv_0, point=rule, value=lanes}\n";
    std::fs::write(folder.join("mine.schedule"), schedule).expect("the schedule is written");
    folder
}

/// A copy of the reader's files for the examples of one page.
fn folder_of(place: &str, readers: &Path) -> PathBuf {
    let name: String = place.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let folder = readers.with_file_name("examples_of").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("photos")).expect("a folder");
    for from in [readers.to_path_buf(), readers.join("photos")] {
        for entry in std::fs::read_dir(from).expect("the files").map(|e| e.expect("an entry").path()) {
            let to = folder.join(entry.strip_prefix(readers).expect("a file of the reader"));
            if entry.is_file() {
                std::fs::copy(&entry, to).expect("copies");
            }
        }
    }
    folder
}

/// Runs one example; the reason why it failed.
fn failure(folder: &Path, e: &Example, mut transcript: &std::fs::File) -> Option<String> {
    // What an earlier example measured changes the names of kernels.
    let _ = std::fs::remove_file(folder.join("cache/tuning.jsonl"));
    let start = Instant::now();
    let o = shell(folder, &e.line, &[]);
    let (took, said) = (start.elapsed().as_secs_f64(), o.said());
    println!("{took:5.1} s  {} ({})", e.line, e.place);
    let _ = writeln!(transcript, "$ {}   # {}, exit {:?}\n{said}", e.line, e.place, o.code);
    // A difference that is found is an answer, not a failure of the command.
    let compares = ["weft compare", "weft bisect"].iter().any(|c| e.line.starts_with(c));
    let fine = o.code == Some(0) || compares && o.code == Some(1);
    (!fine).then(|| format!("{}: `{}` ends with {:?}\n{}", e.place, e.line, o.code, o.stderr))
}

/// An option that a page names is one of the command that it is given to; also in forms, and in lines that are not run.
#[test]
fn options_in_pages_are_of_their_command() {
    let help = |command: &str| line(format!("{command} --help").trim()).run().succeeded().stdout;
    let of = |command: &str| options(&help(command)).map(str::to_string).collect::<BTreeSet<_>>();
    let all = help("");
    let known: BTreeMap<&str, BTreeSet<String>> = commands(&all).into_iter().map(|c| (c, of(c))).collect();
    let (mut given, mut wrong) = (0, vec![]);
    for (place, text) in pages() {
        for code in indented(&text).chain(inline(&text)).flat_map(|c| c.split(['|', '&', ';'])) {
            let mut words = code.split_whitespace();
            let (first, command) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if first != "weft" && !first.starts_with("--") {
                continue;
            }
            for o in options(code) {
                given += 1;
                let known = match known.get(command).filter(|_| first == "weft") {
                    Some(own) => own.contains(o),
                    None => OF_OTHERS.contains(&o) || known.values().any(|own| own.contains(o)),
                };
                if !known {
                    wrong.push(format!("{place}: `{}`: {o}", code.trim()));
                }
            }
        }
    }
    assert!(given > 100, "only {given} options were found");
    assert!(wrong.is_empty(), "no such option:\n{}", wrong.join("\n"));
}

#[test]
fn every_example_runs() {
    let readers = readers();
    let all: Vec<Example> = help_examples(&readers).into_iter().chain(page_examples()).collect();
    let all: Vec<Example> = all.into_iter().filter(|e| !is_form(&e.line)).collect();
    let mut used = BTreeSet::new();
    let (mut run, mut folders) = (BTreeSet::new(), BTreeMap::new());
    let mut failed = vec![];
    let transcript = std::fs::File::create(readers.with_file_name("examples.txt")).expect("a transcript");
    for e in &all {
        let draws = e.line.contains("--screenshot") || e.line.starts_with("weft view") && e.line.contains(" -o ");
        let reason = NOT_RUN.iter().find(|(begin, _)| e.line.starts_with(begin) && !draws);
        if let Some((begin, why)) = reason {
            println!("not run: {} ({}): {why}", e.line, e.place);
            used.insert(*begin);
        } else if e.line.contains("--external dnnl") && !has_second() {
            eprintln!("SKIPPED: {} ({}): there is no oneDNN", e.line, e.place);
        } else if run.insert(e.clone()) {
            let folder = folders.entry(e.place.as_str()).or_insert_with(|| folder_of(&e.place, &readers));
            failed.extend(failure(folder, e, &transcript));
        }
    }
    assert!(run.len() > 40, "only {} examples were found", run.len());
    let unused: Vec<_> = NOT_RUN.iter().filter(|(begin, _)| !used.contains(begin)).collect();
    assert!(unused.is_empty(), "no example begins so: {unused:?}");
    assert!(failed.is_empty(), "{} of {} examples fail:\n{}", failed.len(), run.len(), failed.join("\n"));
}
