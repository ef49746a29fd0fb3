//! No file starts a program, loads a library or writes files: every place in which a file could name one.

use crate::command::{Ran, line};
use std::path::{Path, PathBuf};

/// A folder of its own with a program that leaves a file behind when it is started; removed at the end.
struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weft-machine-code-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("writes");
    }
    #[cfg(unix)]
    fn program(&self, name: &str) {
        use std::os::unix::fs::PermissionsExt;
        self.write(name, "#!/bin/sh\ntouch \"$(dirname \"$0\")/STARTED\"\nexit 1\n");
        std::fs::set_permissions(self.0.join(name), std::fs::Permissions::from_mode(0o755)).expect("a program");
    }
    fn weft(&self, words: &str) -> Ran {
        line(words).at(&self.0).run()
    }
    fn refused(&self, line: &str, code: i32, words: &str) {
        self.weft(line).refused(code, words);
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A network whose product is given to a target.
fn text(target: &str, options: &str) -> String {
    format!(
        "graph @main(%x: f32[2,2]) -> (y: f32[2,2]) {{
  %y = call_host @c_0 %x {{dtypes=[f32], shapes=[[2,2]], reference=c_0, target={target}, options=\"{options}\"}} : f32[2,2]
  return %y
}}
graph @c_0(%x: f32[2,2]) -> (y: f32[2,2]) primitive {{
  %2 = matmul %x, %x : f32[2,2]
  return %2
}}
"
    )
}

/// A network with a region of a target, before it is made a function.
fn region(target: &str, options: &str) -> String {
    format!(
        "graph @main(%x: f32[2,2]) -> (y: f32[2,2]) {{
  %y = external {{target={target}, options=\"{options}\"}} : f32[2,2] {{
    %0 = matmul %x, %x : f32[2,2]
    yield %0
  }}
  return %y
}}
"
    )
}

/// Options by which a target starts a program, loads a library or writes files.
const OPTIONS: &[(&str, &str)] = &[
    ("c", "compiler=./evil.sh"),
    ("c", "folder=./ESCAPED"),
    ("dnnl", "library=./evil.so"),
    ("dnnl", "graphs=."),
    ("dnnl", "style=c:compiler=./evil.sh"),
    ("dnnl", "style=c:folder=./ESCAPED"),
    ("c", "min_macs=0:folder=x:compiler=./evil.sh"),
];

#[cfg(target_os = "linux")]
#[test]
fn a_text_sets_no_option_of_the_machine() {
    let at = Folder::new("text");
    at.program("evil.sh");
    for (target, options) in OPTIONS {
        for module in [text(target, options), region(target, options)] {
            at.write("evil.weft", &module);
            for line in [
                "run evil.weft --device cpu",
                "bench evil.weft --runs 1 --device cpu",
                "compare evil.weft --device cpu",
                "inspect evil.weft",
                "compile evil.weft --device cpu",
                "compile evil.weft -o x.bundle --for cpu",
            ] {
                at.refused(line, 2, &format!("`{target}:"));
            }
            at.refused("run evil.weft --device cpu --allow-native", 2, "a file must not set them");
        }
    }
    at.write("evil.weft", &text("c", "compiler=./evil.sh"));
    at.refused("tune evil.weft --device cpu --budget 1s", 2, "`c:compiler`");
    at.refused("bisect evil.weft --device cpu", 2, "`c:compiler`");
    for left in ["STARTED", "ESCAPED", "x.bundle", "x", "c_0.json"] {
        assert!(!at.0.join(left).exists(), "{left}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_text_runs_code_of_the_machine_where_that_is_allowed() {
    let at = Folder::new("allowed");
    at.write("c.weft", &text("c", ""));
    at.refused("run c.weft --device cpu", 2, "the text runs code of this machine through c");
    at.weft("run c.weft --device cpu --allow-native").succeeded();
    at.write("i.weft", &text("interpreter", ""));
    at.weft("run i.weft --device cpu").succeeded();
    at.write("none.weft", "graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %y = neg %x : f32[2]\n  return %y\n}\n");
    // The command line sets them.
    at.weft("run none.weft --device cpu --external c:folder=regions").succeeded();
}

/// A bundle keeps no such option: it would be refused where it is read.
#[cfg(target_os = "linux")]
#[test]
fn a_bundle_keeps_no_option_of_the_machine() {
    let at = Folder::new("bundle");
    let line = "compile squeezenet1_1:smallest -o c.bundle --for cpu --external c:compiler=cc";
    at.refused(line, 2, "`c:compiler`");
    assert!(!at.0.join("c.bundle").exists());
}

/// External data of a model stay in its folder.
#[cfg(unix)]
#[test]
fn external_data_stay_in_the_folder() {
    let at = Folder::new("data");
    std::fs::create_dir_all(at.0.join("model/inner")).expect("a folder");
    let bytes: Vec<u8> = [1f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    for place in ["w.bin", "model/w.bin", "model/inner/w.bin"] {
        std::fs::write(at.0.join(place), &bytes).expect("writes");
    }
    std::os::unix::fs::symlink("../w.bin", at.0.join("model/link.bin")).expect("a link");
    let absolute = at.0.join("w.bin").display().to_string();
    let leaves = "leaves the model's folder";
    for (location, code, said) in [
        ("w.bin", 0, ""),
        ("inner/w.bin", 0, ""),
        ("./inner/./w.bin", 0, ""),
        ("inner/../w.bin", 0, ""),
        ("./inner/./../w.bin", 0, ""),
        ("../w.bin", 3, leaves),
        ("inner/../../w.bin", 3, leaves),
        ("link.bin", 3, leaves),
        (absolute.as_str(), 3, "is an absolute path"),
    ] {
        std::fs::write(at.0.join("model/m.onnx"), model_with_data_in(location)).expect("writes");
        let out = at.weft("run model/m.onnx --device cpu");
        let text = &out.stderr;
        assert_eq!(out.code, Some(code), "`{location}`: {text}");
        assert!(text.contains(said), "`{location}`: {text}");
    }
    assert!(Path::new(&absolute).exists());
}

/// Names of results, functions and nodes are parts of file names, never of paths.
#[test]
fn names_of_results_are_no_paths() {
    let at = Folder::new("paths");
    std::fs::create_dir_all(at.0.join("in/ner")).expect("a folder");
    at.write(
        "in/ner/net.weft",
        "graph @main(%\"../../x\": f32[4,4]) -> (\"../../y\": f32[4,4], \"/z\": f32[4,4]) {
  %0 = matmul %\"../../x\", %\"../../x\" : f32[4,4] !name(\"../../product\") !from(\"../../product\")
  %1 = call @\"../../f\" %0 : f32[4,4]
  return %0, %1
}
graph @\"../../f\"(%a: f32[4,4]) -> f32[4,4] {
  %0 = softmax %a {axes=[1]}
  return %0
}
",
    );
    let listed = |folder: &Path| -> Vec<String> {
        let all = std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry"));
        all.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
    };
    let inner = |words: &str| line(words).at(at.0.join("in/ner")).run();
    inner("run net.weft --device cpu -o results").succeeded();
    inner("compile net.weft --device cpu --emit weft --emit-dir kernels").succeeded();
    inner("compile net.weft --target ada --emit wgsl --emit-dir shaders").succeeded();
    inner("export net.weft --c c").succeeded();
    inner("export net.weft --rust rust --target ada").succeeded();
    inner("run net.weft --device cpu --external c:min_macs=0:folder=regions");
    assert_eq!(listed(&at.0), ["in"]);
    assert_eq!(listed(&at.0.join("in")), ["ner"]);
    assert_eq!(listed(&at.0.join("in/ner/results")).len(), 2);
}

/// What a tuning database says of templates is a label.
#[test]
fn a_database_names_nothing() {
    let at = Folder::new("database");
    at.write(
        "db.jsonl",
        "{\"kind\":\"choices\",\"device\":\"d\",\"function\":\"f\",\"constants\":[],\"name\":\"../../n\",\"choices\":[],\"schedule\":[\"cut-kernel\"],\"ratio\":0.5,\"rounds\":[1,1],\"us\":[1.0,1.0],\"estimated_us\":[1.0,1.0],\"seed\":0,\"by\":\"template ../../evil.py\",\"weft\":\"0\"}\n",
    );
    let ran = at.weft("tuning show db.jsonl").succeeded();
    assert!(ran.stdout.contains("template ../../evil.py"), "{}", ran.stdout);
    at.weft("compile squeezenet1_1:smallest --target ada --tuning db.jsonl").succeeded();
}

/// Commands on a trace open the trace alone.
#[test]
fn a_trace_names_nothing() {
    let at = Folder::new("trace");
    at.write("net.weft", "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = neg %x : f32[4]\n  return %y\n}\n");
    at.weft("compile net.weft --target ada -o net.trace").succeeded();
    std::fs::remove_file(at.0.join("net.weft")).expect("removes");
    for words in ["inspect net.trace", "report net.trace -o net.html", "diff net.trace net.trace"] {
        at.weft(words).succeeded();
    }
}

/// A list of patterns has patterns, no names of further lists.
#[test]
fn a_list_of_patterns_names_no_file() {
    let at = Folder::new("patterns");
    at.write("net.weft", "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = neg %x : f32[4]\n  return %y\n}\n");
    at.write("list.txt", "@/etc/passwd\n");
    let ran = at.weft("compile net.weft --target ada --amp fp16 --keep-f32 @list.txt");
    assert!(!ran.said().contains("root:"), "{}", ran.said());
}

/// y = x + w, where w: f32[2] is in another file.
fn model_with_data_in(location: &str) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        assert!(bytes.len() < 1 << 14);
        if bytes.len() >= 128 {
            out.push(bytes.len() as u8 | 128);
            out.push((bytes.len() >> 7) as u8);
        } else {
            out.push(bytes.len() as u8);
        }
        out.extend(bytes);
        out
    };
    let entry = |key: &str, value: &str| [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
    // TensorProto: dims, data_type, name, external_data (13), data_location (14).
    let tensor =
        [vec![0x08, 2, 0x10, 1], field(8, b"w"), field(13, &entry("location", location)), vec![0x70, 1]].concat();
    let value = |name: &str| {
        let shape = field(2, &field(1, &[0x08, 2]));
        [field(1, name.as_bytes()), field(2, &field(1, &[vec![0x08, 1], shape].concat()))].concat()
    };
    let node = [field(1, b"x"), field(1, b"w"), field(2, b"y"), field(4, b"Add")].concat();
    let graph =
        [field(1, &node), field(2, b"g"), field(5, &tensor), field(11, &value("x")), field(12, &value("y"))].concat();
    [vec![0x08, 9], field(7, &graph), field(8, &[field(1, b""), vec![0x10, 17]].concat())].concat()
}
