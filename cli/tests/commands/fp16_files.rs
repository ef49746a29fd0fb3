//! Mixed precision as an ONNX file: each node has one float type, as ONNX wants it; the file gives the model's results;
//! keep lists go with it. `scripts/fp16_files.py` asks the ONNX checker and ONNX Runtime about more networks.

use crate::command::weft;
use compiler::dtype::DType;
use compiler::graph::{Module, TensorType};
use compiler::onnx::{NoExternalData, import_onnx};
use compiler::ops::onnx::FloatTypes;
use compiler::tensor::Tensor;
use compiler::trace::CompileTrace;
use std::path::PathBuf;

struct Folder(PathBuf);
impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weft-fp16-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
    fn model(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("writes");
        self.path(name)
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn imported(file: &str) -> Module {
    import_onnx(std::fs::read(file).expect("the file").into(), &NoExternalData).expect("a model")
}

/// Nodes that give f16; every node whose ONNX form asks for one float type has one.
fn halves(module: &Module) -> usize {
    let mut found = 0;
    for f in module.functions.values() {
        for n in f.walk() {
            let node = &f.nodes[n];
            let (inputs, outputs) = f.node_types(n);
            let float = |t: &&TensorType| t.dtype.is_float();
            let types: Vec<DType> =
                inputs.into_iter().flatten().chain(outputs).filter(float).map(|t| t.dtype).collect();
            let one =
                node.op.onnx_floats() != FloatTypes::One || !node.regions.is_empty() || node.op.callee().is_some();
            assert!(one || types.windows(2).all(|w| w[0] == w[1]), "{} ({}): {types:?}", node.name, node.op.name());
            found += usize::from(node.outputs.iter().any(|&v| f.ty(v).dtype == DType::F16));
        }
    }
    found
}

/// Products with biases, a normalisation, and a branch and a loop with nodes in f16.
const CONTROL: &str = "const @w : f32[16,16] = random(1)
const @b : f32[16] = random(2)
graph @main(%x: f32[8,16], %c: bool[]) -> (y: f32[8,16], z: f32[8,16]) {
  %w = const @w
  %b = const @b
  %0 = gemm %x, %w, %b
  %1 = layer_norm %0, %b, %b {axis=1}
  %2 = if %c : f32[8,16] {
    %3 = matmul %1, %w
    %4 = relu %3
    yield %4
  } {
    %5 = tanh %1
    yield %5
  }
  %6 = matmul %2, %w
  %7 = loop _, _, %6 {trips=3} : f32[8,16] (%i: i64[], %a: f32[8,16]) {
    %8 = gemm %a, %w, %b
    %9 = tanh %8
    yield %9
  }
  return %6, %7
}
";

#[test]
fn files_in_mixed_precision_have_one_float_type_a_node_and_agree() {
    let folder = Folder::new("agree");
    let control = folder.model("control.weft", CONTROL);
    for model in ["mobilenet_v3_small:smallest", "encoder:smallest", &control] {
        let (exact, file) = (folder.path("exact.npz"), folder.path("half.onnx"));
        weft(["run", model, "--device", "interpreter", "-q", "-o", &exact]).run().succeeded();
        for (amp, form) in [("fp16", ""), ("fp16", "--optimized"), ("auto", ""), ("auto", "--optimized")] {
            let export = ["export", model, "--amp", amp, "--device", "cpu", "-o", &file, form];
            weft(export.iter().filter(|a| !a.is_empty())).run().succeeded();
            assert!(halves(&imported(&file)) > 2, "{model} {amp} {form}");
            let against = ["--against", &exact, "--rtol", "0.01", "--device", "cpu"];
            weft([&["compare", file.as_str()][..], &against].concat()).run().succeeded();
        }
    }
}

/// A concat that a device's kernels store in parts is a concat in the optimised file: ONNX has no such results.
#[test]
fn a_concat_that_is_stored_in_parts_is_one_in_the_file() {
    let text = "
const @w : f32[16,16,1,1] = random(1)
const @v : f32[8,8,3,3] = random(2)
graph @main(%x: f32[1,16,12,12]) -> (y: f32[1,32,12,12]) {
  %w = const @w
  %v = const @v
  %0 = conv %x, %w
  %1 = relu %0
  %2 = slice %1 {starts=[0], ends=[8], axes=[1]}
  %3 = slice %1 {starts=[8], ends=[16], axes=[1]}
  %4 = conv %3, %v {pads=[1,1,1,1]}
  %5 = add %4, %3
  %6 = max_pool %5 {kernel=[3,3], pads=[1,1,1,1]}
  %7 = concat %2, %3, %5, %6 {axis=1}
  return %7
}
";
    let folder = Folder::new("parts");
    let model = folder.model("parts.weft", text);
    let (exact, file) = (folder.path("exact.npz"), folder.path("optimised.onnx"));
    let said = weft(["explain", &model, "--target", "navi31", "-v"]).run().succeeded();
    assert!(said.said().contains("are stored into their parts of the result"), "{}", said.said());
    weft(["run", &model, "--device", "interpreter", "-q", "-o", &exact]).run().succeeded();
    weft(["export", &model, "--target", "navi31", "--optimized", "-o", &file]).run().succeeded();
    weft(["compare", &file, "--against", &exact, "--device", "cpu"]).run().succeeded();
}

/// Three products whose second result is beyond f16, and a third that brings it back.
fn overflowing() -> String {
    let matrix = |v: &str| vec![v; 16].join(", ");
    format!(
        "const @a : f32[4,4] = [{}]\nconst @b : f32[4,4] = [{}]\nconst @c : f32[4,4] = [{}]\n\
         graph @main(%x: f32[4,4]) -> (y: f32[4,4]) {{\n  %a = const @a\n  %b = const @b\n  %c = const @c\n  \
         %p = abs %x !from(\"Abs_0\")\n  %0 = matmul %p, %a !from(\"MatMul_1\")\n  \
         %1 = matmul %0, %b !from(\"MatMul_2\")\n  %2 = matmul %1, %c !from(\"MatMul_3\")\n  return %2\n}}\n",
        matrix("64.0"),
        matrix("256.0"),
        matrix("0.0009765625"),
    )
}

#[test]
fn a_keep_list_goes_with_the_file() {
    let folder = Folder::new("keep");
    let model = folder.model("large.weft", &overflowing());
    let (exact, file) = (folder.path("exact.npz"), folder.path("half.onnx"));
    weft(["run", &model, "--device", "interpreter", "-q", "-o", &exact]).run().succeeded();
    let compare = ["compare", &file, "--against", &exact, "--rtol", "0.01", "--device", "cpu"];
    for form in [&[][..], &["--optimized"]] {
        let export = [&["export", &model, "--amp", "fp16", "--device", "cpu", "-o", &file][..], form].concat();
        weft(&export).run().succeeded();
        weft(compare).run().refused(1, "not finite");
        let keep = ["--keep-f32", "MatMul_2", "--keep-f32", "MatMul_3"];
        weft([&export[..], &keep].concat()).run().succeeded();
        weft(compare).run().succeeded();
    }
    // Calibration finds the nodes itself.
    weft(["export", &model, "--amp", "auto", "--device", "cpu", "-o", &file]).run().succeeded();
    weft(compare).run().succeeded();
}

#[test]
fn a_keep_list_is_checked_and_one_that_keeps_all_is_told() {
    let folder = Folder::new("listed");
    let (model, file) = (folder.model("large.weft", &overflowing()), folder.path("half.onnx"));
    for amp in ["fp16", "auto"] {
        let export = ["export", &model, "--amp", amp, "--device", "cpu", "-o", &file, "--keep-f32"];
        weft([&export[..], &["none*"]].concat()).run().refused(2, "no node matches the pattern `none*`");
        assert!(!PathBuf::from(&file).exists());
    }
    let export = ["export", &model, "--amp", "fp16", "--device", "cpu", "-o", &file, "--keep-f32"];
    let all = weft([&export[..], &["*"]].concat()).run().succeeded();
    let all = &all.stderr;
    assert!(all.contains("warning: --amp fp16 puts nothing into f16"), "{all}");
    let some = weft([&export[..], &["MatMul_2"]].concat()).run().succeeded();
    let some = &some.stderr;
    assert!(!some.contains("warning") && !some.contains("times about"), "{some}");
}

#[test]
fn inputs_and_results_are_converted_if_asked() {
    let folder = Folder::new("ports");
    let (control, file) = (folder.model("control.weft", CONTROL), folder.path("half.onnx"));
    for (options, want) in [(&["--amp", "fp16"][..], DType::F32), (&["--amp", "fp16", "--f16-ports"], DType::F16)] {
        weft([&["export", &control, "--device", "cpu", "-o", &file][..], options].concat()).run().succeeded();
        let module = imported(&file);
        halves(&module);
        let f = module.main();
        assert_eq!([f.ty(f.params()[0]).dtype, f.ty(f.results()[0]).dtype], [want; 2]);
        weft(["run", &file, "--device", "cpu"]).run().succeeded();
    }
}

#[test]
fn constants_go_beside_the_model_if_asked() {
    let folder = Folder::new("beside");
    let (plain, beside) = (folder.path("plain.onnx"), folder.path("beside.onnx"));
    weft(["export", "squeezenet1_1:smallest", "-o", &plain]).run().succeeded();
    weft(["export", "squeezenet1_1:smallest", "--external-data", "-o", &beside]).run().succeeded();
    let size = |name: &str| std::fs::metadata(name).expect("a file").len();
    assert!(size(&format!("{beside}.data")) > 0 && size(&beside) < size(&plain));
    let [a, b] = [&plain, &beside].map(|m| weft(["run", m, "--device", "interpreter", "--json"]).run().json());
    assert_eq!(a["outputs"], b["outputs"]);
}

#[test]
fn options_that_change_nothing_in_the_file_are_refused() {
    let folder = Folder::new("refused");
    let file = folder.path("o.onnx");
    let refused = |options: &[&str], message: &str| {
        let export = ["export", "squeezenet1_1:smallest", "-o", &file];
        weft([&export[..], options].concat()).run().refused(2, message);
        assert!(!PathBuf::from(&file).exists());
    };
    refused(&["--fuse", "off"], "--fuse changes nothing in the ONNX file without --optimized");
    refused(&["--keep-f32", "*"], "--keep-f32 changes nothing in the ONNX file without --amp fp16");
    refused(&["--f16-ports"], "--f16-ports changes nothing in the ONNX file without --amp fp16");
    refused(&["--amp", "fp16", "-i", "in.npz"], "changes nothing in the ONNX file without --amp auto");
    refused(&["--cache", "off"], "--cache changes nothing in an ONNX file");
}

/// Decoders of three exporters' forms with open lengths, whole and in mixed precision.
#[test]
fn open_sizes_have_an_onnx_form() {
    let folder = Folder::new("open");
    let decoders = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/decoders");
    let dims = ["batch_size=1", "sequence_length=2", "past_sequence_length=3", "total_sequence_length=5"];
    for name in ["std23.onnx", "old.onnx"] {
        let (model, file) = (decoders.join(name).display().to_string(), folder.path(name));
        let open = |file: &str| weft(["inspect", file, "--json"]).run().json()["inputs"].clone();
        for options in [&[][..], &["--optimized"], &["--amp", "fp16"], &["--amp", "fp16", "--optimized"]] {
            weft([&["export", &model, "-o", &file][..], options].concat()).run().succeeded();
            assert_eq!(open(&model), open(&file), "{name} {options:?}");
            let sizes: Vec<&str> = dims.iter().flat_map(|d| ["--dim", d]).collect();
            let exact = folder.path("exact.npz");
            let run = [&["run", &model, "-q", "-o", &exact, "--device", "interpreter"][..], &sizes].concat();
            weft(run).run().succeeded();
            let compare = [&["compare", &file, "--against", &exact, "--rtol", "0.01"][..], &sizes].concat();
            weft(compare).args(["--device", "cpu"]).run().succeeded();
        }
    }
}

/// `compare --data` has the range of each value that is stored in f16; one is made to come near the end.
#[test]
fn a_value_near_the_end_of_f16_stands_first_in_the_table_of_ranges() {
    let folder = Folder::new("ranges");
    let model = folder.model("large.weft", &overflowing());
    let data = folder.path("data");
    std::fs::create_dir_all(&data).expect("a folder");
    // |x| * 4 * 64 * 4 * 256: the largest element, 0.24, gives 62914.56, of f16's 65504.
    for (file, x) in [("a.npz", 0.01f32), ("b.npz", 0.24), ("c.npz", 1e-8)] {
        let t = Tensor::from_vec(vec![4, 4], vec![x; 16]);
        weft::arrays::write_npz(&PathBuf::from(&data).join(file), &[("x".into(), t)]).expect("writes");
    }
    let compare = ["compare", &model, "--amp", "fp16", "--data", &data, "--device", "cpu", "--against", "reference"];
    let json = weft(compare).args(["--json"]).run().json();
    let ranges = json["data"]["stored_in_f16"].as_array().expect("a list");
    assert_eq!(ranges[0]["name"], "MatMul_2", "{ranges:?}");
    let share = ranges[0]["of_f16"].as_f64().expect("a number");
    assert!((share - 62914.56 / 65504.0).abs() < 1e-4, "{share}");
    assert_eq!((&ranges[0]["overflowing"], &ranges[0]["elements"]), (&0.into(), &48.into()));
    assert!(ranges.windows(2).all(|w| w[0]["largest"].as_f64() >= w[1]["largest"].as_f64()), "{ranges:?}");
    let first = ranges.iter().find(|r| r["name"] == "MatMul_1").expect("the first product");
    assert_eq!((&first["zeroed"], &first["subnormal"]), (&0.into(), &16.into()), "1e-8 * 4 * 64 is subnormal");
    let file = folder.path("ranges.trace");
    let text = weft(compare).args(["-o", &file]).run().said();
    let trace = CompileTrace::from_bytes(&std::fs::read(&file).expect("the trace")).expect("a trace");
    let stored = trace.ranges.expect("ranges");
    assert_eq!((stored.inputs, stored.values.len()), (3, ranges.len()));
    assert_eq!(stored.values[0].name.as_str(), "MatMul_2");
    assert!(trace.errors.is_some_and(|e| e.nodes.iter().any(|n| n.name == "MatMul_2")));
    assert!(text.contains("stored in f16") && text.contains(" 62915 ") && text.contains("96.05 %"), "{text}");
}
