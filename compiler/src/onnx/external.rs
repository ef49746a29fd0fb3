//! Tensor data outside the model file.
//!
//! The compiler opens no files: it gets a lazy source from an [`ExternalData`], after checking that the location is
//! inside the model's folder.

use crate::tensor::DataSource;
use std::sync::Arc;

/// Opens external tensor data of a model. Implemented over files by the program around the compiler.
pub trait ExternalData {
    /// A source of bytes of the model's own file where `location` is [`MODEL_FILE`](super::MODEL_FILE). Otherwise a
    /// source of `length` bytes from `offset` of the file `location`, a checked relative path in the model's folder
    /// with `/` or `\` between its parts. Without a length: everything from `offset` on. Nothing is read yet, but a
    /// file that is missing or too short is best refused here.
    ///
    /// # Errors
    /// One sentence that names the file.
    fn open(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Arc<dyn DataSource>, String>;
}

/// For models that come without a folder: external data is refused.
pub struct NoExternalData;
impl ExternalData for NoExternalData {
    fn open(&self, location: &str, _offset: u64, _length: Option<u64>) -> Result<Arc<dyn DataSource>, String> {
        Err(format!("external data `{location}` is not available for a model that was not read from a folder"))
    }
}

/// Checks lexically that `location` names something inside the model's folder, on every operating system alike.
///
/// # Errors
/// Says which rule the location breaks.
pub fn verify_location(location: &str) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("external data location {location:?} {why}"));
    if location.is_empty() {
        return refuse("is empty");
    }
    if location.contains('\0') {
        return refuse("holds a zero byte");
    }
    if location.starts_with(['/', '\\']) {
        return refuse("is an absolute path");
    }
    // A colon makes a drive (`C:x`) or a stream (`x:y`) on Windows.
    if location.contains(':') {
        return refuse("holds a colon");
    }
    let mut depth = 0_usize;
    for part in location.split(['/', '\\']) {
        depth = match part {
            ".." => depth.checked_sub(1).map_or_else(|| refuse("leaves the model's folder").map(|()| 0), Ok)?,
            "" | "." => depth,
            _ => depth + 1,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::verify_location;

    #[test]
    fn locations_stay_inside() {
        for good in ["w.bin", "sub/w.bin", "./w.bin", "a..b/w", "a/../w", "./a/./../w", "a\\..\\w"] {
            assert!(verify_location(good).is_ok(), "{good}");
        }
        for bad in ["", "/etc/passwd", "\\x", "../w", "a/../../w", "./../w", "a//../../w", "C:\\w", "c:w", "a\0b"] {
            assert!(verify_location(bad).is_err(), "{bad}");
        }
    }
}
