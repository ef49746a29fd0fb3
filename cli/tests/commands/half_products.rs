//! `--amp fp16` on devices with matrix units: a product of f32 inputs runs on matrix units, and the estimate is no
//! higher than that of `--fuse off`.

use crate::command::weft;
use std::path::PathBuf;

/// A product of an input and weights, and one of two inputs.
const MODELS: [(&str, &str); 2] = [
    (
        "weights",
        "const @w : f32[1024,1024] = random(1)
graph @main(%x: f32[1024,1024]) -> (y: f32[1024,1024]) {
  %w = const @w
  %0 = matmul %x, %w
  %1 = relu %0
  return %1
}
",
    ),
    (
        "inputs",
        "graph @main(%x: f32[1024,1024], %w: f32[1024,1024]) -> (y: f32[1024,1024]) {
  %0 = matmul %x, %w
  return %0
}
",
    ),
];

struct File(PathBuf);
impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Microseconds, and whether a product runs on matrix units.
fn estimated(model: &str, target: &str, fuse: &str) -> (f64, bool) {
    let args = ["explain", model, "--target", target, "--amp", "fp16", "--fuse", fuse, "-v"];
    let said = weft(args).run().succeeded().stdout;
    let line = said.lines().find_map(|l| l.strip_prefix("estimated: ")).unwrap_or_else(|| panic!("{said}"));
    let time = line.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    assert!(line.contains(" us ("), "{line}");
    (time, said.contains("rule matmul-matrix took"))
}

#[test]
fn products_of_inputs_run_on_matrix_units() {
    for (name, text) in MODELS {
        let file = File(std::env::temp_dir().join(format!("weft-half-products-{name}-{}.weft", std::process::id())));
        std::fs::write(&file.0, text).expect("writes");
        let model = file.0.display().to_string();
        for target in ["ada", "navi31", "bmg"] {
            let (fused, matrices) = estimated(&model, target, "full");
            assert!(matrices, "{name} on {target}");
            let (apart, _) = estimated(&model, target, "off");
            assert!(fused <= apart, "{name} on {target}: {fused} us, apart {apart} us");
        }
    }
}
