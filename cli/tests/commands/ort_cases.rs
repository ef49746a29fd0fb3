//! Compares the operators that ONNX Runtime adds to ONNX, and sequences, with its results on the CPU. The models of
//! `scripts/ort_cases.py` have several variants of some operators each. They run on the interpreter and on a device,
//! in f32, f16, another layout and other fusion modes.

use crate::command::weft;
use std::path::PathBuf;

/// Options of a run.
const MODES: [&[&str]; 5] = [
    &["--device", "interpreter"],
    &["--device", "0"],
    &["--device", "0", "--amp", "fp16"],
    &["--device", "0", "--layout", "nhwc"],
    &["--device", "0", "--fuse", "classic"],
];

/// Compares a model with its stored results in every mode; `tolerance` are options.
fn agrees(family: &str, tolerance: &[&str]) {
    let file = |end: &str| {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/models/ort");
        folder.join(format!("{family}{end}")).display().to_string()
    };
    for mode in MODES {
        let args = ["compare", &file(".onnx"), "-i", &file(".in.npz"), "--against", &file(".out.npz"), "--json"];
        let ran = weft(args).args(mode).args(tolerance).run().succeeded();
        let (json, said) = (ran.json(), ran.stderr);
        assert_eq!(json["pass"], true, "{family} {mode:?}");
        let cpu = json["device"]["name"] == "interpreter";
        assert_eq!(cpu, mode[1] == "interpreter", "{family} {mode:?} ran elsewhere: {said}");
        assert!(json["outputs"].as_array().is_some_and(|o| o.len() > 5), "{family} {mode:?} compared nothing");
    }
}

macro_rules! families {
    ($($family:ident: $tolerance:expr;)*) => {
        $(#[test]
        fn $family() {
            agrees(stringify!($family), &$tolerance);
        })*
        /// Every model has a test.
        #[test]
        fn every_family_is_tested() {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/models/ort");
            let files = std::fs::read_dir(folder).expect("the models").flatten();
            let models = files.filter(|f| f.path().extension().is_some_and(|e| e == "onnx")).count();
            assert_eq!(models, [$(stringify!($family)),*].len());
        }
    };
}

families! {
    activations: [];
    attention: [];
    embeddings: [];
    group_query: [];
    group_query_grown: [];
    lstm: [];
    nbits: [];
    norms: [];
    packed_weights: [];
    products: [];
    // One step of a byte: ONNX Runtime rounds in another order.
    quantized: ["--atol", "0.012", "--rtol", "0"];
    quantized_products: [];
    rotary: [];
    sequences: [];
}
