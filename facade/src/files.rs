//! Model files: plain files, ONNX without its large tensors, and external data that is read in parts.

use crate::error::Error;
use crate::plain_files::{begins_as_bundle, begins_as_trace, open_plain};
use bytes::Bytes;
use compiler::fault::Fault;
use compiler::fingerprint::Fingerprint;
use compiler::onnx::{ExternalData, MODEL_FILE, onnx_metadata, skim_model};
use compiler::tensor::{DataSource, reserve};
use rustc_hash::FxHashMap;
use std::fs::{File, Metadata};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

/// The notes of an ONNX model's producer, by name, such as the classes of its results.
///
/// # Errors
/// Bytes that are no ONNX model.
pub fn metadata(bytes: Bytes) -> Result<Vec<(String, String)>, Error> {
    Ok(onnx_metadata(bytes)?)
}

/// The licence among the notes of an ONNX model: the one called `license` or `licence`.
pub fn licence(notes: &[(String, String)]) -> Option<String> {
    let is_it = |name: &str| ["license", "licence"].iter().any(|l| name.eq_ignore_ascii_case(l));
    notes.iter().find(|n| is_it(&n.0)).map(|n| n.1.clone())
}

/// A file of tensor data: opened once, read in parts when they are needed. It may shrink meanwhile; parts that are no
/// longer there are an error.
struct DataFile {
    path: PathBuf,
    file: Mutex<File>,
    size: u64,
    /// Which file it is, as it was when it was opened.
    identity: Option<String>,
}
impl DataFile {
    fn open(path: &Path) -> std::io::Result<Arc<DataFile>> {
        let mut file = open_plain(path)?;
        let about = file.metadata()?;
        let size = about.len();
        let identity = identity(path, &about, &mut file);
        Ok(Arc::new(DataFile { path: path.to_path_buf(), file: Mutex::new(file), size, identity }))
    }
}

/// Parts of a file that its identity has a digest of, and the bytes of each.
const SAMPLES: (u64, u64) = (16, 4096);

/// The identity of a file, for caches of derived data; `None` if the system does not give one.
///
/// Size and time of writing are not enough: a copy or an unpacked archive may keep both. So it also has the inode and
/// the time of the last change, which no program can set back, and a digest of parts that are spread over the file, for
/// systems that have neither.
fn identity(path: &Path, about: &Metadata, file: &mut File) -> Option<String> {
    let written = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let (place, size, changed) = (path.canonicalize().ok()?, about.len(), changed(about));
    let sample = sample(file, size).ok()?;
    Some(format!("{} of {size} bytes, written at {written:?}, {changed}, sample {sample}", place.display()))
}

#[cfg(unix)]
fn changed(about: &Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let (device, inode, seconds, nanoseconds) = (about.dev(), about.ino(), about.ctime(), about.ctime_nsec());
    format!("inode {device}:{inode} changed at {seconds}.{nanoseconds:09}")
}
#[cfg(not(unix))]
fn changed(_about: &Metadata) -> String {
    String::new()
}

/// The digest of the beginning, the end, and parts between them at equal distances.
fn sample(file: &mut File, size: u64) -> std::io::Result<Fingerprint> {
    let (parts, bytes) = SAMPLES;
    let mut read = Vec::new();
    for part in 0..parts {
        let (span, steps) = (size.saturating_sub(bytes), parts - 1);
        let at = span / steps * part + span % steps * part / steps;
        file.seek(SeekFrom::Start(at))?;
        file.by_ref().take(bytes).read_to_end(&mut read)?;
    }
    Ok(Fingerprint::of(|w| w.bytes(&read)))
}

/// External tensor data: in the model's own file, and in files of its folder.
struct Folder {
    folder: PathBuf,
    model: Arc<DataFile>,
    open: Mutex<FxHashMap<PathBuf, Arc<DataFile>>>,
}
struct FileSlice {
    file: Arc<DataFile>,
    offset: u64,
    length: u64,
}
impl Folder {
    fn file(&self, location: &str) -> Result<Arc<DataFile>, String> {
        if location == MODEL_FILE {
            return Ok(self.model.clone());
        }
        let path = self.folder.join(location);
        let inside =
            path.canonicalize().ok().zip(self.folder.canonicalize().ok()).is_none_or(|(p, f)| p.starts_with(f));
        if !inside {
            return Err(format!("external data `{location}` leaves the model's folder"));
        }
        let mut open = self.open.lock().map_err(|e| e.to_string())?;
        if let Some(file) = open.get(&path) {
            return Ok(file.clone());
        }
        let file = DataFile::open(&path).map_err(|e| format!("external data {}: {e}", path.display()))?;
        open.insert(path, file.clone());
        Ok(file)
    }
}
impl ExternalData for Folder {
    fn open(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Arc<dyn DataSource>, String> {
        let file = self.file(location)?;
        let (size, name) = (file.size, file.path.display().to_string());
        let length = length.unwrap_or(size.saturating_sub(offset));
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(format!("external data {name} has {size} bytes, the model asks for {offset}+{length}"));
        }
        Ok(Arc::new(FileSlice { file, offset, length }))
    }
}
impl DataSource for FileSlice {
    fn read(&self) -> Result<Bytes, Fault> {
        let length = usize::try_from(self.length).map_err(|e| e.to_string())?;
        let mut out = reserve(length)?;
        let mut file = self.file.file.lock().map_err(|e| e.to_string())?;
        let read =
            file.seek(SeekFrom::Start(self.offset)).and_then(|_| file.by_ref().take(self.length).read_to_end(&mut out));
        match read {
            Ok(n) if n == length => Ok(out.into()),
            Ok(_) => Err(format!("{} became shorter after it was opened", self.file.path.display()).into()),
            Err(e) => Err(format!("{}: {e}", self.file.path.display()).into()),
        }
    }
    fn identity(&self) -> Option<String> {
        self.file.identity.as_ref().map(|file| format!("{}+{} of {file}", self.offset, self.length))
    }
}

/// An ONNX file without its large tensors, and the source of these and of its external data.
///
/// # Errors
/// A file that cannot be read, a compile trace, a bundle, or a file that is not ONNX.
pub fn read_onnx(path: &Path) -> Result<(Bytes, Box<dyn ExternalData>), Error> {
    let fail = |e: std::io::Error| Error::file(path, e);
    if begins_as_trace(path) {
        return Err(Error::Trace(path.display().to_string()));
    }
    if begins_as_bundle(path) {
        return Err(Error::IsBundle(path.display().to_string()));
    }
    let model = DataFile::open(path).map_err(fail)?;
    let file = model.file.lock().map_err(|e| Error::file(path, e))?.try_clone().map_err(fail)?;
    let bytes = skim_model(&mut BufReader::new(file)).map_err(|e| Error::from(e).in_file(path))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
    Ok((bytes, Box::new(Folder { folder, model, open: Mutex::default() })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::graph::{FunctionBuilder, Module};
    use compiler::name::Name;
    use compiler::onnx::export_onnx;
    use compiler::ops::binary::Add;
    use compiler::tensor::Tensor;

    /// A model with a tensor that stays in the file, and one that does not.
    fn model() -> Vec<u8> {
        let mut module = Module::new("main");
        let mut b = FunctionBuilder::new(&mut module, "main");
        let large = b.constant("large", &Tensor::from_vec(vec![50_000], (0..50_000).map(|i| i as f32).collect()));
        let small = b.constant("small", &Tensor::from_vec(vec![1], vec![1f32]));
        let sum = b.add(Add {}, &[large, small]).expect("adds");
        b.finish(&[(Name::new("y"), sum)]);
        export_onnx(&module).expect("exports")
    }

    /// A file that changed is another one for caches, also where its size and its time of writing were kept.
    #[test]
    fn a_file_with_other_data_of_the_same_size_and_time_has_another_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data.bin");
        let opened = || DataFile::open(&path).expect("opens").identity.clone().expect("an identity");
        let mut data = vec![1u8; 100_000];
        std::fs::write(&path, &data).expect("writes");
        let written = std::fs::metadata(&path).and_then(|m| m.modified()).expect("a time");
        let (first, again) = (opened(), opened());
        assert_eq!(first, again);
        let mut seen = vec![first];
        for at in [0, 50, 99_999] {
            data[at] += 1;
            std::fs::write(&path, &data).expect("writes");
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
            file.set_modified(written).expect("sets the time back");
            let now = opened();
            assert!(!seen.contains(&now), "{now} after byte {at} changed");
            seen.push(now);
        }
    }

    #[test]
    fn weights_are_read_when_they_are_needed_and_checked_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model()).expect("writes");
        let (bytes, external) = read_onnx(&path).expect("opens");
        assert!(bytes.len() < 2000, "{} bytes are in memory", bytes.len());
        let module = compiler::onnx::import_onnx(bytes, &*external).expect("imports");
        let values = || -> Vec<Result<Tensor, Fault>> { module.constants.values().map(|c| c.load()).collect() };
        let before: Vec<Tensor> = values().into_iter().collect::<Result<_, _>>().expect("reads");
        assert_eq!(before.iter().map(Tensor::len).max(), Some(50_000));
        assert_eq!(before.iter().map(|t| t.to_f32_vec()[t.len() - 1]).fold(0.0, f32::max), 49_999.0);
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
        file.set_len(1000).expect("cuts");
        let errors: Vec<Fault> = values().into_iter().filter_map(Result::err).collect();
        assert!(errors.len() == 1 && errors[0].message.contains("became shorter after it was opened"), "{errors:?}");
    }
}
