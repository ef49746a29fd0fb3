//! Inputs: arrays by name, one array, or images.

use crate::arrays::{Named, read_npy, read_npz};
use crate::error::{Error, Result};
use crate::images::{Preparation, takes_images};
pub use crate::pictures::Inputs;
use crate::progress::log;
use crate::settings::Settings;
use compiler::graph::TensorType;
use compiler::name::Name;
use std::cell::OnceCell;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The content of a file.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Arrays,
    Array,
    Image,
}
impl Kind {
    /// By the first bytes; by the extension where the file cannot be read, which then says why.
    fn of(path: &Path) -> Option<Kind> {
        let mut start = [0; 8];
        let read = weft::plain_files::open_plain(path).and_then(|mut f| f.read(&mut start)).unwrap_or(0);
        match &start[..read] {
            [b'P', b'K', 3 | 5, ..] => return Some(Kind::Arrays),
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => return Some(Kind::Array),
            [0x89, b'P', b'N', b'G', ..] | [0xff, 0xd8, 0xff, ..] => return Some(Kind::Image),
            _ => {}
        }
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "npz" => Some(Kind::Arrays),
            "npy" => Some(Kind::Array),
            "png" | "jpg" | "jpeg" => Some(Kind::Image),
            _ => None,
        }
    }
}

/// One `-i`.
struct Source {
    name: Option<String>,
    path: PathBuf,
    kind: Kind,
}
impl Source {
    fn parse(text: &str) -> Result<Source> {
        let (name, path) = match text.rsplit_once('=') {
            Some((name, file)) if !Path::new(text).exists() => (Some(name.to_string()), PathBuf::from(file)),
            _ => (None, PathBuf::from(text)),
        };
        let kind = Kind::of(&path).ok_or_else(|| match path.exists() {
            true => Error::input(format!("{} is no .npz, .npy, .png or .jpg file", path.display())),
            false => Error::input(format!("cannot read {}: no such file", path.display())),
        })?;
        if kind == Kind::Arrays && name.is_some() {
            return Err(Error::usage(format!("-i {text}: an .npz file names its arrays itself")));
        }
        Ok(Source { name, path, kind })
    }
}

/// The inputs that the command line gives for `model`, by name; none when it gives none.
///
/// # Errors
/// Files that cannot be read, or that no input of the model takes.
pub fn given(a: &Inputs, model: &str, settings: &Settings) -> Result<Option<Named>> {
    if !a.arrays.is_empty() {
        return Ok(Some(a.arrays.clone()));
    }
    let sources = a.files.iter().map(|f| Source::parse(f)).collect::<Result<Vec<_>>>()?;
    refuse_without_images(a, sources.iter().any(|s| s.kind == Kind::Image))?;
    if sources.is_empty() {
        return Ok(None);
    }
    Files::new(a, model, settings).named(&sources).map(Some)
}

/// True for a file that holds an image.
pub fn is_image(file: &Path) -> bool {
    Kind::of(file) == Some(Kind::Image)
}

fn refuse_without_images(a: &Inputs, images: bool) -> Result<()> {
    if !a.about_images() || images {
        return Ok(());
    }
    let text = "--mean, --std, --scale, --resize, --preset, --image-layout and --bgr are for images";
    Err(Error::usage(text).help("give one with -i FILE.png"))
}

/// The files of `folder` that are inputs, by name; and the number of entries that are none. Folders in it are not
/// looked into.
///
/// # Errors
/// A folder that cannot be read, or holds no inputs; options for images where there are none.
pub fn in_folder(folder: &Path, a: &Inputs) -> Result<(Vec<PathBuf>, usize)> {
    let fail = |e: std::io::Error| Error::input(format!("cannot read the folder {}: {e}", folder.display()));
    let (mut files, mut skipped, mut images) = (Vec::new(), 0, false);
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        match if path.is_file() { Kind::of(&path) } else { None } {
            Some(kind) => {
                images |= kind == Kind::Image;
                files.push(path);
            }
            None => skipped += 1,
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Error::input(format!("{} holds no inputs", folder.display()))
            .help("one file is one input: .npz, .npy, .png or .jpg"));
    }
    refuse_without_images(a, images)?;
    Ok((files, skipped))
}

/// Reads inputs of one model from files.
pub struct Files<'a> {
    a: &'a Inputs,
    model: &'a str,
    settings: &'a Settings,
    ports: OnceCell<Vec<(Name, TensorType)>>,
}

impl<'a> Files<'a> {
    /// For `model`, with images prepared as the options say.
    pub fn new(a: &'a Inputs, model: &'a str, settings: &'a Settings) -> Files<'a> {
        Files { a, model, settings, ports: OnceCell::new() }
    }
    /// The inputs in one file, by name.
    ///
    /// # Errors
    /// A file that cannot be read, or that no input of the model takes.
    pub fn read(&self, file: &Path) -> Result<Named> {
        let kind = Kind::of(file)
            .ok_or_else(|| Error::input(format!("{} is no .npz, .npy, .png or .jpg file", file.display())))?;
        self.named(&[Source { name: None, path: file.to_path_buf(), kind }])
    }
    /// The model's inputs, looked up once.
    fn ports(&self) -> Result<&[(Name, TensorType)]> {
        if self.ports.get().is_none() {
            let ports = crate::models::ports(self.model, self.settings)?;
            let _ = self.ports.set(ports);
        }
        Ok(self.ports.get().map_or(&[], Vec::as_slice))
    }
    fn named(&self, sources: &[Source]) -> Result<Named> {
        let mut named = Named::new();
        for s in sources.iter().filter(|s| s.kind == Kind::Arrays) {
            named.extend(read_npz(&s.path)?);
        }
        if sources.iter().any(|s| s.kind == Kind::Image || s.name.is_none() && s.kind == Kind::Array) {
            let placed = placed(self.a, sources, &named, self.ports()?, self.model, self.settings)?;
            named.extend(placed);
        } else {
            for s in sources.iter().filter(|s| s.kind == Kind::Array) {
                named.push((s.name.clone().unwrap_or_default(), read_npy(&s.path)?));
            }
        }
        for (i, (name, _)) in named.iter().enumerate() {
            if named[..i].iter().any(|n| n.0 == *name) {
                return Err(Error::usage(format!("input `{name}` is given twice")));
            }
        }
        self.scalars(named)
    }
    /// Takes an array of one element for a scalar.
    fn scalars(&self, mut named: Named) -> Result<Named> {
        for (name, t) in named.iter_mut().filter(|(_, t)| t.len() == 1 && !t.shape().is_empty()) {
            if self.ports()?.iter().any(|(port, ty)| port.as_str() == name && ty.shape.is_empty()) {
                *t = t.reshaped(vec![]);
            }
        }
        Ok(named)
    }
}

/// Arrays and images at the inputs that they are for.
fn placed(
    a: &Inputs,
    sources: &[Source],
    named: &Named,
    ports: &[(Name, TensorType)],
    model: &str,
    settings: &Settings,
) -> Result<Named> {
    let taken = |n: &Name| {
        let by_source = sources.iter().any(|s| s.name.as_deref() == Some(n.as_str()));
        by_source || named.iter().any(|(m, _)| m == n.as_str())
    };
    let free: Vec<&(Name, TensorType)> = ports.iter().filter(|p| !taken(&p.0)).collect();
    let mut images: Vec<(Name, Vec<PathBuf>)> = Vec::new();
    let mut out = Named::new();
    for s in sources.iter().filter(|s| s.kind != Kind::Arrays) {
        let image = s.kind == Kind::Image;
        let fits = |p: &&&(Name, TensorType)| !image || takes_images(&p.1, a.image_layout);
        let port = match &s.name {
            Some(name) => ports.iter().find(|p| p.0.as_str() == name),
            None => match free.iter().filter(fits).collect::<Vec<_>>().as_slice() {
                [one] => Some(**one),
                [] if ports.len() == 1 => ports.first(),
                _ => None,
            },
        };
        let Some((name, _)) = port else {
            let names: Vec<&str> = ports.iter().map(|p| p.0.as_str()).collect();
            let file = s.path.display();
            return Err(match &s.name {
                Some(name) => Error::input(format!("the model has no input `{name}`; it has: {}", names.join(", "))),
                None => Error::usage(format!("{file} may be for several inputs, or for none of: {}", names.join(", ")))
                    .help(format!("name the input: -i NAME={file}")),
            });
        };
        match images.iter_mut().find(|i| i.0 == *name) {
            _ if !image => out.push((name.to_string(), read_npy(&s.path)?)),
            Some((_, list)) => list.push(s.path.clone()),
            None => images.push((*name, vec![s.path.clone()])),
        }
    }
    let preparation = Preparation::new(a, model)?;
    for (name, paths) in images {
        let Some((_, ty)) = ports.iter().find(|p| p.0 == name) else { continue };
        let t = preparation.tensor(&paths, name.as_str(), ty)?;
        let files =
            if let [one] = paths.as_slice() { one.display().to_string() } else { format!("{} images", paths.len()) };
        log(
            settings,
            format!("input: {name} {} from {files}: {}", crate::figures::shape(t.shape()), preparation.describe()),
        );
        out.push((name.to_string(), t));
    }
    Ok(out)
}
