//! `weft export --c`: the folder builds with every warning as an error, without Weft, and computes what the interpreter
//! does, by gcc and by clang.

use crate::command::weft;
use crate::exported::{
    Given, MIXED, RESULTS, agree, built, bytes_of, elements, floats, npy, numbers, refused, succeeds,
};
use std::path::Path;

struct Folder {
    at: tempfile::TempDir,
}

impl Folder {
    /// Writes the model as C and builds it with these options.
    fn of(model: &str, (compiler, options): (&str, &[&str])) -> Folder {
        let at = tempfile::tempdir().expect("a folder");
        succeeds(&["export", model, "--c", &at.path().display().to_string(), "--quiet"]);
        built::build(at.path(), compiler, &[&["-O2"], options].concat()).unwrap_or_else(|e| panic!("{e}"));
        Folder { at }
    }
    /// The results as raw elements.
    fn run(&self, inputs: &[Vec<u8>], outputs: usize) -> Vec<Vec<u8>> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        built::run(self.at.path(), &inputs, outputs).unwrap_or_else(|e| panic!("{e}"))
    }
    fn source(&self) -> String {
        std::fs::read_to_string(self.at.path().join("network.c")).expect("the source")
    }
}

#[test]
fn a_network_of_every_kind_of_kernel_is_the_same_in_c() {
    for truth in [0u8, 1] {
        let given = Given::of(truth);
        let made = given.run("interpreter");
        for options in [&["-march=native", "-O3"][..], &["-DWEFT_NO_VECTORS"][..]] {
            for compiler in built::compilers() {
                let c = Folder::of(&given.model(), (compiler, options));
                let got = c.run(&given.bytes, RESULTS.len());
                for ((name, is_float), got) in RESULTS.iter().zip(&got) {
                    let want = elements(&made.join(format!("{name}.npy")));
                    match is_float {
                        true => agree(&floats(&want), &floats(got)),
                        false => assert_eq!(&want, got, "{name} by {compiler}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_choice_changes_the_text_and_no_result() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let model = at("net.weft");
    const CONSTANT: &str = "const @w : f32[64,32] = random(1)";
    let text = format!(
        "{CONSTANT}\ngraph @main(%x: f32[60,64]) -> (y: f32[60,32]) {{
  %w = const @w\n  %y = matmul %x, %w\n  return %y\n}}\n"
    );
    std::fs::write(&model, &text).expect("the model is written");
    let x = bytes_of(&numbers(60 * 64, 9));
    let compiler = built::compilers()[0];
    let one = Folder::of(&model, (compiler, &[]));
    let scheduled = succeeds(&["compile", &model, "--device", "cpu", "--emit", "weft", "-q"]).stdout;
    let rows =
        scheduled.split("point=rows, value=").nth(1).and_then(|s| s.split(',').next()).expect("a choice of rows");
    let other = if rows == "5" { "6" } else { "5" };
    let changed = at("changed.weft");
    let by = |s: &str| s.replace(&format!("point=rows, value={rows},"), &format!("point=rows, value={other},"));
    // Splits and the intrinsic follow the choice.
    let with_data = |l: &str| if l.starts_with("const @w") { format!("{CONSTANT}\n") } else { format!("{l}\n") };
    let edited: String = scheduled.lines().map(with_data).collect();
    let edited = by(&edited)
        .replace(&format!("[0,{rows}]"), &format!("[0,{other}]"))
        .replace(&format!("tile_{rows}x"), &format!("tile_{other}x"));
    assert_ne!(edited, scheduled);
    std::fs::write(&changed, edited).expect("the model is written");
    let two = Folder::of(&changed, (compiler, &[]));
    assert_ne!(one.source(), two.source());
    agree(&floats(&one.run(std::slice::from_ref(&x), 1)[0]), &floats(&two.run(&[x], 1)[0]));
}

/// Loops of so many trips, with rows from each; while a condition holds; of as many trips as an input says, inside each
/// other and around a branch.
const LOOPS: &str = "const @w : f32[3,3] = [0.5, -0.25, 0.125, 1.0, 0.0, -0.5, 0.25, 0.75, -1.0]
const @most : f32[] = [6.5]
const @one : f32[2,3] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
const @step : i32[] = [1]
const @zero : i32[] = [0]
graph @main(%x: f32[2,3], %q: f32[5,2,3], %n: i64[]) -> (y: f32[2,3], rows: f32[5,2,3], a: f32[2,3], k: i32[], z: f32[2,3]) {
  %w = const @w
  %most = const @most
  %one = const @one
  %step = const @step
  %zero = const @zero
  %y, %rows = loop _, _, %x {trips=5} : f32[2,3], f32[5,2,3] (%i: i64[], %carried: f32[2,3]) {
    %2 = gather %q, %i {axis=0}
    %3 = matmul %carried, %w
    %4 = add %3, %2
    %5 = tanh %4
    yield %5, %4
  }
  %s = reduce %y {kind=max, axes=[0,1]}
  %c = less %s, %most
  %a, %k = loop _, %c, %x, %zero {while=true} : f32[2,3], i32[] (%i2: i64[], %b: f32[2,3], %m: i32[]) {
    %d = add %b, %one
    %o = add %m, %step
    %t = reduce %d {kind=max, axes=[0,1]}
    %go = less %t, %most
    yield %go, %d, %o
  }
  %z = loop %n, _, %x : f32[2,3] (%i3: i64[], %u: f32[2,3]) {
    %e = loop %n, _, %u : f32[2,3] (%j: i64[], %v: f32[2,3]) {
      %f = matmul %v, %w
      %g = tanh %f
      yield %g
    }
    %h = reduce %e {kind=mean, axes=[0,1]}
    %p = less %h, %most
    %r = if %p : f32[2,3] {
      %l = sub %e, %x
      yield %l
    } {
      yield %u
    }
    yield %r
  }
  return %y, %rows, %a, %k, %z
}
";

#[test]
fn loops_are_loops_in_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let text = |path: std::path::PathBuf| path.display().to_string();
    let model = text(at("loops.weft"));
    std::fs::write(&model, LOOPS).expect("the model is written");
    let (x, q) = (bytes_of(&numbers(6, 3)), bytes_of(&numbers(30, 4)));
    npy(&at("x.npy"), "<f4", &[2, 3], &x);
    npy(&at("q.npy"), "<f4", &[5, 2, 3], &q);
    let built = built::compilers().iter().map(|c| Folder::of(&model, (c, &["-O2"])));
    let built: Vec<Folder> = built.collect();
    for trips in [0i64, 3] {
        let trips = trips.to_le_bytes();
        npy(&at("n.npy"), "<i8", &[], &trips);
        let mut run = vec!["run".to_string(), model.clone(), "--device".into(), "interpreter".into(), "-q".into()];
        for name in ["x", "q", "n"] {
            run.extend(["-i".to_string(), format!("{name}={}", text(at(&format!("{name}.npy"))))]);
        }
        run.extend(["-o".to_string(), format!("{}/", text(at("made")))]);
        weft(run).run().succeeded();
        for c in &built {
            let got = c.run(&[x.clone(), q.clone(), trips.to_vec()], 5);
            for (name, got) in ["y", "rows", "a", "k", "z"].into_iter().zip(got) {
                let want = elements(&at("made").join(format!("{name}.npy")));
                match name {
                    "k" => assert_eq!(want, got),
                    _ => agree(&floats(&want), &floats(&got)),
                }
            }
        }
    }
}

/// A loop that collects as many rows as data decide.
const ROWS: &str = "graph @main(%x: f32[3], %n: i64[]) -> (rows: f32[m,3]) {
  %y, %rows = loop %n, _, %x {count=m} : f32[3], f32[m,3] (%i: i64[], %a: f32[3]) {
    %b = exp %a
    yield %b, %b
  }
  return %rows
}
";

#[test]
fn what_does_not_become_c_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("c").display().to_string();
    refused(&["export", "ssdlite", "--c", &to], 4, "does not become C");
    assert!(!Path::new(&to).join("network.c").exists());
    let model = folder.path().join("rows.weft").display().to_string();
    std::fs::write(&model, ROWS).expect("the model is written");
    refused(&["export", &model, "--c", &to], 4, "does not become C: data decide how many rows `b` has");
    refused(&["export", "squeezenet1_1", "--c", &to, "-o", "a.onnx"], 2, "cannot be used with");
    refused(&["export", "squeezenet1_1"], 2, "--output");
}

#[test]
fn regions_run_as_c_beside_kernels_of_the_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let model = at("net.weft");
    std::fs::write(&model, MIXED).expect("the model is written");
    let external = format!("c:folder={}", at("regions"));
    let compared = succeeds(&["compare", &model, "--external", &external, "--device", "0", "--json", "-q"]);
    let found = compared.json();
    assert_eq!(found["pass"], true, "{found}");
    let regions = std::fs::read_dir(at("regions")).expect("the folder").count();
    assert!(regions > 1, "{regions}");
    let run = ["run", &model, "--device", "0", "--external", "c:compiler=no-such-compiler"];
    refused(&run, 5, "there is no C compiler `no-such-compiler`");
}
