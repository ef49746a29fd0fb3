//! `weft export --c` and `--rust`: what is written builds without Weft, and computes what Weft does.
#![cfg(target_os = "linux")]

#[path = "../../../../c-source/tests/shared/built.rs"]
mod built;
mod c;
mod rust;

use crate::command::{Ran, weft};
use std::path::{Path, PathBuf};

/// Runs the command, which must succeed.
fn succeeds(args: &[&str]) -> Ran {
    weft(args).run().succeeded()
}

/// Elements of a .npy file, without its header.
fn elements(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[10 + header..].to_vec()
}

/// A .npy file.
fn npy(path: &Path, dtype: &str, shape: &[usize], bytes: &[u8]) {
    let dims: String = shape.iter().map(|d| format!("{d},")).collect();
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({dims}), }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut all = b"\x93NUMPY\x01\x00".to_vec();
    all.extend((header.len() as u16).to_le_bytes());
    all.extend(header.as_bytes());
    all.extend(bytes);
    std::fs::write(path, all).expect("writes");
}

/// Numbers between -1 and 1.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bytes_of(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn agree(want: &[f32], got: &[f32]) {
    assert_eq!(want.len(), got.len());
    let peak = want.iter().fold(0f32, |a, b| a.max(b.abs()));
    for (i, (w, g)) in want.iter().zip(got).enumerate() {
        assert!((w - g).abs() <= 1e-4 * peak + 1e-4 * w.abs(), "element {i} is {g}, expected {w}");
    }
}

/// The arguments are refused with this code, for a reason with these words.
fn refused(args: &[&str], code: i32, why: &str) {
    weft(args).run().refused(code, why);
}

/// Tiles with rows in the padding, a depthwise window, softmax, integers, a gather by data, f64, bool, a branch.
const MIXED: &str = "const @w : f32[40,24,3,3] = random(1)
const @d : f32[40,1,3,3] = random(2)
const @m : f32[40,32] = random(3)
const @words : f32[10,32] = random(4)
graph @main(%x: f32[1,24,9,11], %at: i64[3], %c: bool[]) -> (y: f32[1,32], g: f32[3,32], k: i32[3], t: bool[1,32], b: f32[1,32], z: f32[1,32]) {
  %w = const @w
  %d = const @d
  %m = const @m
  %words = const @words
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,40,9,11]
  %1 = hard_swish %0
  %2 = conv %1, %d {pads=[1,1,1,1], strides=[2,2], group=40}
  %3 = global_average_pool %2
  %4 = flatten %3
  %5 = matmul %4, %m
  %y = softmax %5 {axes=[1]}
  %g = gather %words, %at {axis=0}
  %i = cast %at {to=i32}
  %k = mul %i, %i
  %t = greater %5, %y
  %first = slice %t {starts=[0,0], ends=[1,1], axes=[0,1]}
  %positive = reshape %first {shape=[]}
  %b = if %c : f32[1,32] {
    %then = exp %y : f32[1,32]
    yield %then
  } {
    %otherwise = erf %5 : f32[1,32]
    yield %otherwise
  }
  %z = if %positive : f32[1,32] {
    %then2 = exp %y : f32[1,32]
    yield %then2
  } {
    %otherwise2 = erf %5 : f32[1,32]
    yield %otherwise2
  }
  return %y, %g, %k, %t, %b, %z
}
";

/// The results of [`MIXED`], by name and whether they are f32.
const RESULTS: [(&str, bool); 6] = [("y", true), ("g", true), ("k", false), ("t", false), ("b", true), ("z", true)];

/// [`MIXED`] with inputs in a folder.
struct Given {
    at: tempfile::TempDir,
    /// The elements of the inputs, in order.
    bytes: [Vec<u8>; 3],
}

impl Given {
    /// Inputs whose condition is `truth`.
    fn of(truth: u8) -> Given {
        let at = tempfile::tempdir().expect("a folder");
        let x = bytes_of(&numbers(24 * 9 * 11, 5));
        let rows: Vec<u8> = [7i64, 0, 9].iter().flat_map(|v| v.to_le_bytes()).collect();
        std::fs::write(at.path().join("net.weft"), MIXED).expect("the model is written");
        npy(&at.path().join("x.npy"), "<f4", &[1, 24, 9, 11], &x);
        npy(&at.path().join("at.npy"), "<i8", &[3], &rows);
        npy(&at.path().join("c.npy"), "|b1", &[], &[truth]);
        Given { at, bytes: [x, rows, vec![truth]] }
    }
    fn model(&self) -> String {
        self.at.path().join("net.weft").display().to_string()
    }
    /// The folder with the results of `weft run` on a device.
    fn run(&self, device: &str) -> PathBuf {
        let to = self.at.path().join(format!("made-{device}"));
        let mut run = vec!["run".to_string(), self.model(), "--device".into(), device.into(), "--quiet".into()];
        for name in ["x", "at", "c"] {
            let file = self.at.path().join(format!("{name}.npy"));
            run.extend(["-i".to_string(), format!("{name}={}", file.display())]);
        }
        run.extend(["-o".to_string(), format!("{}/", to.display())]);
        weft(run).run().succeeded();
        to
    }
}
