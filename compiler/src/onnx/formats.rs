//! Recognises files of other formats that are given as models, by their first bytes.

use super::error::ImportError;

/// How files of a format begin: where, with which bytes, what they are and what to do with them.
const FORMATS: &[(usize, &[u8], &str, &str)] = &[
    (0, b"\x89PNG", "a PNG image", "an input is given with `-i`"),
    (0, b"\xff\xd8\xff", "a JPEG image", "an input is given with `-i`"),
    (0, b"\x93NUMPY", "a NumPy array", "an input is given with `-i`"),
    (
        0,
        b"PK\x03\x04",
        "a ZIP archive (.npz, or a PyTorch or Keras model)",
        "export the model with `torch.onnx.export`, or give arrays with `-i`",
    ),
    (0, b"\x89HDF", "an HDF5 file (a Keras model)", "convert it with tf2onnx"),
    (4, b"TFL3", "a TensorFlow Lite model", "convert it with tf2onnx"),
    (4, b"ORTM", "a model in ONNX Runtime's own format", "give the .onnx file that it was made of"),
    (0, b"GGUF", "a GGUF file of weights", "it has no graph that Weft could read"),
    (8, b"{\"", "a safetensors file of weights", "it has no graph; export the model with `torch.onnx.export`"),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (0, b"%PDF", "a PDF", "give an .onnx or .weft file"),
    (0, b"\x7fELF", "a program", "give an .onnx or .weft file"),
    (0, b"version https://git-lfs", "a pointer of Git LFS, not the file itself", "`git lfs pull` fetches it"),
    (0, b"<!DOCTYPE", "a web page", "the download did not give the model"),
    (0, b"<html", "a web page", "the download did not give the model"),
];

/// Bytes of a line that are looked at.
const LINE: usize = 256;

/// Why bytes that cannot be decoded are no model: another format, or a file that is cut off.
pub(super) fn no_model(bytes: &[u8], e: &dyn std::fmt::Display) -> ImportError {
    let begins = |f: &&(usize, &[u8], &str, &str)| bytes.get(f.0..).is_some_and(|rest| rest.starts_with(f.1));
    match FORMATS.iter().find(begins) {
        Some(&(_, _, what, help)) => ImportError::OtherFormat { what, help },
        None if is_text(bytes) => ImportError::OtherFormat { what: "a text file", help: "give an .onnx or .weft file" },
        None => ImportError::Malformed(format!("it is cut off or damaged ({e})")),
    }
}

/// True if the file begins with a line of UTF-8 text. An ONNX model begins with its version, a control character.
fn is_text(bytes: &[u8]) -> bool {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let text = std::str::from_utf8(&line[..line.len().min(LINE)]);
    !line.is_empty() && text.is_ok_and(|t| !t.chars().any(|c| c.is_control() && c != '\t' && c != '\r'))
}

#[cfg(test)]
mod tests {
    use super::is_text;

    #[test]
    fn models_that_are_cut_off_are_no_text() {
        assert!(is_text(b"# Weft\n\nWeft compiles") && is_text(b"{\"a\": 1}"));
        assert!(!is_text(b"\x08\x07\x12\x07pytorch") && !is_text(b"") && !is_text(b"\n\x08"));
    }
}
