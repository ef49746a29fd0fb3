//! Paths of outputs, whose extensions say what is written.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::path::PathBuf;
use workbench::written::names_folder;

/// The extension of a bundle's file.
pub const BUNDLE: &str = "bundle";

/// A path whose extension is `extension`, so that a slip of the pen is seen before any work is done.
pub fn path_of(extension: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(move |text| named_so(PathBuf::from(text), extension))
}

/// A picture of pixels or of shapes, by its extension.
pub fn png_or_svg() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(text);
        let picture = named_so(path.clone(), "png").or_else(|_| named_so(path, "svg"));
        picture.map_err(|_| "this writes a .png or an .svg file, and the name says otherwise")
    })
}

/// A trace or a bundle, by its extension.
pub fn trace_or_bundle() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| {
        let path = PathBuf::from(text);
        let trace = named_so(path.clone(), BUNDLE).or_else(|_| named_so(path, "trace"));
        trace.map_err(|_| "this writes a .trace or a .bundle file, and the name says otherwise")
    })
}

fn named_so(path: PathBuf, extension: &str) -> Result<PathBuf, String> {
    let named_so = path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension));
    // A device or a pipe has the name it has.
    let stream = path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir());
    match named_so || stream {
        true => Ok(path),
        false => Err(format!("this writes a .{extension} file, and the name says otherwise")),
    }
}

/// A path of arrays: an .npz file, or a folder.
pub fn npz_or_folder() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(move |text| {
        let path = PathBuf::from(text);
        if names_folder(&path) { Ok(path) } else { named_so(path, "npz") }
    })
}
