//! `weft view` through the command: pictures without a window, and refusals. Built with the feature `view`.
#![cfg(feature = "view")]

use crate::command::{Ran, weft};
use std::path::{Path, PathBuf};

const MODEL: &str = "const @w : f32[8,4,3,3] = splat(0.25)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,8]) {
  %0 = const @w : f32[8,4,3,3]
  %1 = conv %x, %0 {pads=[1,1,1,1]} : f32[1,8,8,8] !from(\"Conv_0\")
  %2 = relu %1 : f32[1,8,8,8] !from(\"Relu_1\")
  return %2
}
";

/// A folder with a model and its trace.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    let (model, trace) = (path.join("m.weft"), path.join("m.trace"));
    std::fs::write(&model, MODEL).expect("the model is written");
    weft(["compile", text(&model), "--target", "lavapipe", "-q", "-o", text(&trace)]).run().succeeded();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// True where the command says that there is no device to draw with, which must not be in continuous integration.
fn cannot_draw(ran: &Ran) -> bool {
    let cannot = ran.code == Some(5) && ran.stderr.contains("no device to draw with");
    if cannot {
        eprintln!("!!! no picture is taken: there is no device to draw with");
        assert!(std::env::var_os("CI").is_none(), "{}", ran.stderr);
    }
    cannot
}

/// Takes a picture; `None` where there is no device to draw with.
fn picture(model: &Path, out: &Path, more: &[&str]) -> Option<image::RgbaImage> {
    let ran = weft(["view", text(model), "--screenshot", text(out)]).args(more).run();
    if cannot_draw(&ran) {
        return None;
    }
    ran.succeeded();
    Some(image::open(out).expect("a picture").to_rgba8())
}

#[test]
fn pictures_are_taken_of_traces_and_models() {
    let f = folder("view-pictures");
    let (trace, model) = (f.join("m.trace"), f.join("m.weft"));
    let Some(graph) = picture(&trace, &f.join("a.png"), &["--view", "graph", "--size", "600x400"]) else { return };
    assert_eq!(graph.dimensions(), (600, 400));
    let colours: std::collections::BTreeSet<[u8; 4]> = graph.pixels().map(|p| p.0).collect();
    assert!(colours.len() > 50, "there are boxes and text on it: {} colours", colours.len());
    let beside = picture(&trace, &f.join("c.png"), &["--beside", text(&trace), "--size", "600x400", "--view", "graph"]);
    assert!(beside.is_some_and(|b| b != graph), "two graphs are not one");
    let more = ["--view", "kernel", "--select", "Relu_1", "--size", "600x400", "--pixels", "2", "--dark"];
    let kernel = picture(&model, &f.join("b.png"), &[&more[..], &["--target", "lavapipe", "-q"]].concat());
    let kernel = kernel.expect("a device was there before");
    assert_eq!(kernel.dimensions(), (1200, 800));
    let mean =
        |p: &image::RgbaImage| p.pixels().map(|p| u64::from(p.0[0])).sum::<u64>() / u64::from(p.width() * p.height());
    assert!(mean(&kernel) + 60 < mean(&graph), "dark is darker: {} {}", mean(&kernel), mean(&graph));
}

/// The size that an SVG says it has.
fn svg_size(svg: &str) -> [f32; 2] {
    let number = |name: &str| svg.split(name).nth(1).and_then(|t| t.split('"').next()?.parse().ok()).expect("a size");
    [number(" width=\""), number(" height=\"")]
}

#[test]
fn the_graph_and_a_box_are_pictures_of_their_own() {
    let f = folder("view-boxes");
    let trace = f.join("m.trace");
    let svg = |name: &str, more: &[&str]| {
        let out = f.join(name);
        weft(["view", text(&trace), "-o", text(&out)]).args(more).run().succeeded();
        std::fs::read_to_string(out).expect("a picture")
    };
    let whole = svg("whole.svg", &[]);
    assert!(whole.contains(">conv 3x3 + relu<") && whole.contains(">y<"), "{whole}");
    let open = svg("open.svg", &["--select", "Relu_1"]);
    assert!(open.contains(">relu<") && !open.contains(">y<"), "{open}");
    let closed = svg("closed.svg", &["--select", "Relu_1", "--closed"]);
    assert!(closed.contains(">conv 3x3 + relu<") && !closed.contains(">relu<"), "{closed}");
    let [size, small] = [svg_size(&open), svg_size(&closed)];
    assert!(small[0] < size[0] && small[1] < size[1], "{small:?} {size:?}");
    let dark = svg("dark.svg", &["--select", "Relu_1", "--closed", "--dark"]);
    assert!(dark != closed && svg_size(&dark) == small);
    let out = f.join("closed.png");
    let ran = weft(["view", text(&trace), "-o", text(&out), "--select", "Relu_1", "--closed", "--pixels", "2"]).run();
    if !cannot_draw(&ran) {
        ran.succeeded();
        let picture = image::open(&out).expect("a picture");
        let pixels = [picture.width(), picture.height()].map(|n| n as f32);
        assert!((0..2).all(|i| (pixels[i] - 2.0 * small[i]).abs() <= 2.0), "{pixels:?} {small:?}");
    }
    weft(["view", text(&trace), "-o", text(&f.join("a.svg")), "--closed"]).run().ended(2);
}

#[test]
fn values_of_a_file_and_another_model_are_shown() {
    let f = folder("view-overlay");
    let (model, out) = (f.join("m.weft"), f.join("a.svg"));
    let shown = |more: &[&str]| {
        let ran = weft(["view", text(&model), "--target", "lavapipe", "--pass", "source", "-o", text(&out)]);
        ran.args(more).run().succeeded();
        std::fs::read_to_string(&out).expect("a picture")
    };
    let file = |name: &str, content: &str| {
        std::fs::write(f.join(name), content).expect("writes");
        f.join(name)
    };
    let csv = file("mine.csv", "node,loss\nConv_0,3.5\nRelu_1,7\nGone_2,1\n");
    let svg = shown(&["--overlay", text(&csv)]);
    for said in ["loss, mine.csv", ">3.50<", ">7.00<", "names of the file that are no nodes here: 1"] {
        assert!(svg.contains(said), "{said}: {svg}");
    }
    let words = file("mine.json", r#"{"Conv_0": "int8", "Relu_1": "float"}"#);
    let svg = shown(&["--overlay", text(&words)]);
    assert!(svg.contains(">int8<") && svg.contains(">float<"), "{svg}");
    let nothing = file("none.csv", "Nobody,1\n");
    let ran = weft(["view", text(&model), "--target", "lavapipe", "--overlay", text(&nothing), "-o", text(&out)]).run();
    ran.refused(3, "none of its 1 names is one of a node of this model");
    // The same with other names: the matched box stays, the new one is marked.
    let renamed = MODEL.replace("Conv_0", "c").replace("Relu_1", "r").replace("relu %1", "tanh %1");
    let other = file("n.weft", &renamed);
    let svg = shown(&["--beside", text(&other), "--view", "compare"]);
    assert!(svg.contains(">tanh<"), "{svg}");
    let trace = f.join("m.trace");
    let ran = weft(["view", text(&trace), "--beside", text(&other), "-o", text(&out)]).run();
    ran.refused(2, "a model stands beside a model");
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let f = folder("view-refused");
    let (trace, out) = (f.join("m.trace"), f.join("a.png"));
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--pass", "fuse-oops"], 2, "there is no pass `fuse-oops`; there are source, "),
        (&["--view", "graf"], 2, "there is no view `graf`; there are graph, "),
        (&["--select", "nobody"], 2, "no box of this stage is `nobody`"),
        (&["--select", "Conv_O"], 2, "is `Conv_O`, or came from it; did you mean: Conv_0"),
        (&["--size", "9x9"], 2, "give a width and a height"),
        (&["--pixels", "40"], 2, "give a number from 0.5 to 4"),
        (&["--beside", "nowhere.trace"], 3, "cannot read nowhere.trace"),
        (&["--amp", "fp16"], 2, "amp"),
    ];
    for (more, code, why) in cases {
        let ran = weft(["view", text(&trace), "--screenshot", text(&out)]).args(more).run();
        if cannot_draw(&ran) {
            continue;
        }
        ran.refused(code, why);
        assert!(!out.exists(), "{more:?} left a picture");
    }
    let damaged = f.join("damaged.trace");
    let mut bytes = std::fs::read(&trace).expect("the trace");
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&damaged, bytes).expect("it is written");
    weft(["view", text(&damaged), "--screenshot", text(&out)]).run().ended(3);
}

#[test]
fn without_a_display_the_window_says_what_needs_none() {
    let f = folder("view-window");
    let ran = weft(["view", text(&f.join("m.trace"))]).without("DISPLAY").without("WAYLAND_DISPLAY").run();
    // On other systems there is a display whatever the environment says.
    if cfg!(target_os = "linux") {
        ran.refused(5, "`--screenshot F.png`, `-o F.svg` and `weft report` need none");
    }
}

#[test]
fn a_model_for_the_cpu_executor_alone_is_shown_without_kernels() {
    let out = folder("view-functions").join("a.png");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests/specialize-functions/no_end.weft");
    let view = ["view", text(&model), "--target", "lavapipe", "--screenshot", text(&out), "--view", "remarks"];
    let ran = weft(view).run();
    if cannot_draw(&ran) {
        return;
    }
    let said = ran.succeeded().stderr;
    assert!(said.contains("has the function value %f, which only a run knows"), "{said}");
    assert!(out.exists());
}
