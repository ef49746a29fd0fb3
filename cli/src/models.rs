//! Models by path or zoo name, with their open dimensions decided, and inputs for them.

use crate::args::Common;
use crate::arrays::Named;
use crate::error::{CliError, CliResult, Code};
use benches::zoo::ZooError;
use bytes::Bytes;
use compiler::dtype::DType;
use compiler::graph::{Module, TensorType, choose_shapes, input_ports, set_input_shapes};
use compiler::name::Name;
use compiler::onnx::{ExternalData, ImportOptions, MODEL_FILE, import_onnx_with, skim_model};
use compiler::passes::{PassContext, Sequential, default_pipeline};
use compiler::tensor::{DataSource, Tensor, ensure_room, reserve};
use rand::{RngExt, SeedableRng};
use rustc_hash::FxHashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Opens a plain file. Anything else is refused unopened: a pipe would wait for a writer, a device may never end.
pub fn open_plain(path: &Path) -> std::io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(std::io::Error::other("it is a folder"));
    }
    if !kind.is_file() {
        return Err(std::io::Error::other("it is no plain file (a pipe or a device)"));
    }
    File::open(path)
}

/// All bytes of a plain file.
pub fn read_plain(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    open_plain(path)?.read_to_end(&mut out)?;
    Ok(out)
}

/// The text of a plain file.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    String::from_utf8(read_plain(path)?).map_err(|_| std::io::Error::other("it is no UTF-8 text"))
}

/// A file of tensor data: opened once, read in parts when they are needed. It may shrink meanwhile; parts that are no longer
/// there are an error.
struct DataFile {
    path: PathBuf,
    file: Mutex<File>,
    size: u64,
}
impl DataFile {
    fn open(path: &Path) -> std::io::Result<Arc<DataFile>> {
        let file = open_plain(path)?;
        let size = file.metadata()?.len();
        Ok(Arc::new(DataFile { path: path.to_path_buf(), file: Mutex::new(file), size }))
    }
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
    fn read(&self) -> Result<Bytes, String> {
        let length = usize::try_from(self.length).map_err(|e| e.to_string())?;
        let mut out = reserve(length)?;
        let mut file = self.file.file.lock().map_err(|e| e.to_string())?;
        let read =
            file.seek(SeekFrom::Start(self.offset)).and_then(|_| file.by_ref().take(self.length).read_to_end(&mut out));
        match read {
            Ok(n) if n == length => Ok(out.into()),
            Ok(_) => Err(format!("{} became shorter after it was opened", self.file.path.display())),
            Err(e) => Err(format!("{}: {e}", self.file.path.display())),
        }
    }
}

/// An ONNX file without its large tensors, and where those and its external data are.
pub fn read_onnx(path: &Path) -> CliResult<(Bytes, Box<dyn ExternalData>)> {
    let fail = |e: std::io::Error| CliError::input(format!("cannot read {}: {e}", path.display()));
    if crate::trace::begins_as_trace(path) {
        return Err(CliError::input(format!("{} is a compile trace, not a model", path.display()))
            .help("`weft inspect`, `explain`, `diff` and `view` read traces"));
    }
    let model = DataFile::open(path).map_err(fail)?;
    let file = model.file.lock().map_err(|e| CliError::input(e.to_string()))?.try_clone().map_err(fail)?;
    let bytes = skim_model(&mut BufReader::new(file)).map_err(|e| CliError::from(e).at(path.display().to_string()))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
    Ok((bytes, Box::new(Folder { folder, model, open: Mutex::default() })))
}

/// True when `model` names a file rather than a zoo model.
pub fn is_path(model: &str) -> bool {
    model.contains(['/', '\\', '.']) || Path::new(model).is_file()
}

/// Loads a model and decides its open dimensions from the options and from `inputs`. An ONNX model is told its shapes
/// while it comes in, so that what is computed from them is known.
pub fn load(model: &str, common: &Common, inputs: Option<&Named>) -> CliResult<Module> {
    load_with_values(model, common, inputs, &[])
}

/// As [`load`]; `values` are inputs of an ONNX model that become constants.
pub fn load_with_values(
    model: &str,
    common: &Common,
    inputs: Option<&Named>,
    values: &[(Name, Tensor)],
) -> CliResult<Module> {
    if is_onnx(model) {
        let (bytes, external) = read_onnx(Path::new(model))?;
        let ports = compiler::onnx::onnx_inputs(bytes.clone()).map_err(|e| CliError::from(e).at(model))?;
        let shapes = decide_shapes(ports, common, inputs)?;
        let options = ImportOptions { shapes, values: values.to_vec(), ..ImportOptions::default() };
        return import_onnx_with(bytes, &*external, &options).map_err(|e| CliError::from(e).at(model));
    }
    let mut module = load_open(model, common)?;
    let shapes = decide_shapes(input_ports(&module), common, inputs)?;
    set_input_shapes(&mut module, &shapes)?;
    Ok(module)
}

/// Names of a model's inputs.
pub fn input_names(model: &str, common: &Common) -> CliResult<Vec<String>> {
    Ok(open_ports(model, common)?.into_iter().map(|p| p.0.to_string()).collect())
}

fn open_ports(model: &str, common: &Common) -> CliResult<Vec<(Name, TensorType)>> {
    if !is_onnx(model) {
        return Ok(input_ports(&load_open(model, common)?));
    }
    let (bytes, _) = read_onnx(Path::new(model))?;
    compiler::onnx::onnx_inputs(bytes).map_err(|e| CliError::from(e).at(model))
}

/// A model's inputs with the sizes that `--shape`, `--dim` and `--batch` choose; others stay open.
pub fn ports(model: &str, common: &Common) -> CliResult<Vec<(Name, TensorType)>> {
    let ports = open_ports(model, common)?;
    let (names, shapes) = (ports.iter().map(|p| p.0).collect::<Vec<_>>(), chosen_shapes(&ports, common)?);
    let dims = decide_dims(&ports, common)?;
    let types = choose_shapes(ports, common.batch.map(|b| b as usize), &dims, &shapes);
    Ok(names.into_iter().zip(types.map_err(|e| CliError::usage(e.to_string()))?).collect())
}

/// True when `model` names an ONNX file.
pub fn is_onnx(model: &str) -> bool {
    is_path(model) && Path::new(model).extension().is_none_or(|e| e != "weft")
}

/// Loads a model as it stands.
pub fn load_open(model: &str, common: &Common) -> CliResult<Module> {
    let path = Path::new(model);
    if !is_path(model) {
        return benches::zoo::build(model, common.batch.unwrap_or(1) as usize, common.seed).map_err(|e| match e {
            ZooError::BadBatch(_) => CliError::new(Code::Device, e.to_string()).help("give a smaller --batch"),
            _ => CliError::input(format!("no model `{model}`: {e}"))
                .help("`weft zoo` lists the built-in models; a file needs its path"),
        });
    }
    if path.extension().is_some_and(|e| e == "weft") {
        let text = read_text(path).map_err(|e| CliError::input(format!("cannot read {model}: {e}")))?;
        let mut module = parse_checked(&text).map_err(|e| e.at(model))?;
        if let Some(source) = &common.weights {
            fill_constants(&mut module, source, common)?;
        }
        return Ok(module);
    }
    let (bytes, external) = read_onnx(path)?;
    compiler::onnx::import_onnx(bytes, &*external).map_err(|e| CliError::from(e).at(model))
}

/// Parses text of a model, which anything may have written: what the passes rely on is checked.
fn parse_checked(text: &str) -> CliResult<Module> {
    let module = compiler::text::parse_module(text).map_err(|e| CliError::input(e.to_string()))?;
    compiler::verify::verify_module(&module).map_err(|list| {
        let lines: Vec<String> = list.iter().map(ToString::to_string).collect();
        CliError::input(lines.join("\n"))
    })?;
    compiler::check::check_module(&module).map_err(|e| {
        CliError::input(e.to_string()).help("the loops show the culprit; docs/schedule.md says what is held")
    })?;
    if !module.functions.contains_key(&module.entry) {
        return Err(CliError::input("the text has no graph function for a run to start in").help(
            "`weft opt` takes tensor functions alone; a model needs `graph @main(...) { ... }` that calls them",
        ));
    }
    Ok(module)
}

/// Gives constants that stand in a text without data those of the same name and type in `source`, as the passes leave
/// them: some are only made by a pass.
fn fill_constants(module: &mut Module, source: &str, common: &Common) -> CliResult<()> {
    let own = Common { weights: None, ..common.clone() };
    let mut from = load(source, &own, None)?;
    let before = from.constants.clone();
    let pipeline = crate::executor::pipeline_options(&own)?;
    let mut cx = PassContext::new(crate::executor::target_profile(&own)?);
    pipeline.configure(&mut cx);
    Sequential::new(default_pipeline(&pipeline))
        .run(&mut from, &mut cx)
        .map_err(|e| CliError::new(Code::Bug, e.to_string()))?;
    for (name, c) in module.constants.iter_mut().filter(|c| c.1.load().is_err()) {
        let found = from.constants.get(name).or_else(|| before.get(name)).filter(|f| f.ty() == c.ty());
        *c = found.cloned().ok_or_else(|| {
            CliError::input(format!("`{source}` has no constant @{name} : {:?}", c.ty()))
                .help("compile it with the options that made the text")
        })?;
    }
    Ok(())
}

fn pairs(list: &[String], flag: &str) -> CliResult<Vec<(String, String)>> {
    list.iter()
        .map(|s| {
            // Names may hold '=' themselves; the value never does.
            s.rsplit_once('=')
                .map(|(a, b)| (a.to_string(), b.to_string()))
                .ok_or_else(|| CliError::usage(format!("{flag} {s}: needs NAME=VALUE")))
        })
        .collect()
}

/// The shape of every input: from `--shape`, `--dim`, `--batch` and the model, in this order. What the model leaves open comes from
/// the arrays of `inputs`; an open first dimension is 1 where nothing says otherwise.
pub fn decide_shapes(
    ports: Vec<(Name, TensorType)>,
    common: &Common,
    inputs: Option<&Named>,
) -> CliResult<Vec<(Name, Vec<usize>)>> {
    let known: Vec<Name> = ports.iter().map(|p| p.0).collect();
    let shapes = chosen_shapes(&ports, common)?;
    let mut dims = decide_dims(&ports, common)?;
    for (name, t) in inputs.into_iter().flatten() {
        let port = ports.iter().find(|p| p.0.as_str() == name.as_str()).filter(|p| p.1.rank() == t.shape().len());
        let Some((name, ty)) = port.filter(|p| !shapes.iter().any(|s| s.0 == p.0)) else { continue };
        for (symbol, &size) in ty.shape.iter().zip(t.shape()).filter_map(|(d, n)| Some((d.as_var()?, n))) {
            match dims.iter().find(|d| d.0 == symbol) {
                Some(d) if d.1 != size as i64 => {
                    return Err(CliError::input(format!("input `{name}` has {size} for `{symbol}`, which is {}", d.1)));
                }
                Some(_) => {}
                None => dims.push((symbol, size as i64)),
            }
        }
    }
    let choose = |batch: Option<usize>, dims: &[(Name, i64)]| {
        choose_shapes(ports.clone(), batch, dims, &shapes).map_err(CliError::from)
    };
    let batch = common.batch.map(|b| b as usize);
    let open = choose(batch, &dims)?;
    for symbol in open.iter().filter_map(|t| t.shape.first()?.as_var()) {
        if !dims.iter().any(|d| d.0 == symbol) {
            dims.push((symbol, 1));
        }
    }
    let types = choose(batch, &dims)?;
    check_closed(&known, &types)?;
    Ok(known.into_iter().zip(types.iter().map(|t| t.const_shape().unwrap_or_default())).collect())
}

/// The shapes of `--shape`.
fn chosen_shapes(ports: &[(Name, TensorType)], common: &Common) -> CliResult<Vec<(Name, Vec<usize>)>> {
    let known: Vec<Name> = ports.iter().map(|p| p.0).collect();
    let mut shapes = Vec::new();
    for (name, value) in pairs(&common.shape, "--shape")? {
        let shape: Option<Vec<usize>> = value.split(['x', ',']).map(|d| d.parse().ok()).collect();
        let shape = shape
            .ok_or_else(|| CliError::usage(format!("--shape {name}={value}: needs a shape such as 1x3x224x224")))?;
        shapes.push((check_input(&known, &name, "--shape")?, shape));
    }
    Ok(shapes)
}

/// Every dimension that is still open is named at once.
fn check_closed(inputs: &[Name], types: &[TensorType]) -> CliResult<()> {
    let mut open: Vec<Name> = types.iter().flat_map(|t| &t.shape).flat_map(|d| d.vars()).collect();
    open.sort();
    open.dedup();
    if open.is_empty() {
        return Ok(());
    }
    let list = |f: fn(&Name) -> String, sep: &str| open.iter().map(f).collect::<Vec<_>>().join(sep);
    let (noun, verb) = if open.len() == 1 { ("dimension", "is") } else { ("dimensions", "are") };
    let of = inputs.iter().zip(types).filter(|(_, t)| t.const_shape().is_none());
    let of: Vec<String> = of.map(|(n, t)| format!("{n} {t:?}")).collect();
    Err(CliError::usage(format!("{noun} {} {verb} open", list(|d| format!("`{d}`"), ", ")))
        .at(format!("input {}", of.join(", ")))
        .help(format!("give sizes with `{}`, or inputs with -i", list(|d| format!("--dim {d}=N"), " "))))
}

/// The sizes of `--dim`.
fn decide_dims(ports: &[(Name, TensorType)], common: &Common) -> CliResult<Vec<(Name, i64)>> {
    let mut dims = Vec::new();
    for (name, value) in pairs(&common.dim, "--dim")? {
        let n: i64 = value
            .parse()
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| CliError::usage(format!("--dim {name}={value}: needs a positive size")))?;
        let open: Vec<Name> = ports.iter().flat_map(|p| &p.1.shape).flat_map(|d| d.vars()).collect();
        let found = open.iter().copied().find(|d| d.as_str() == name).ok_or_else(|| {
            let mut names: Vec<&str> = open.iter().map(|d| d.as_str()).collect();
            names.dedup();
            let list = if open.is_empty() {
                "the model leaves none open".into()
            } else {
                format!("open: {}", names.join(", "))
            };
            CliError::usage(format!("--dim {name}: no such dimension; {list}"))
        })?;
        dims.push((found, n));
    }
    Ok(dims)
}

fn check_input(known: &[Name], name: &str, flag: &str) -> CliResult<Name> {
    known.iter().copied().find(|k| k.as_str() == name).ok_or_else(|| {
        let list = known.iter().map(|k| k.to_string()).collect::<Vec<_>>().join(", ");
        CliError::usage(format!("{flag} {name}: no such input; there are: {list}"))
    })
}

/// The module's inputs in order: from `given` by name, checked; or random ones from the seed.
pub fn inputs_for(module: &Module, given: Option<&Named>, common: &Common) -> CliResult<Vec<Tensor>> {
    let f = module.main();
    let mut out = Vec::new();
    let names: Vec<String> =
        f.params().iter().map(|&p| f.values[p].name.map_or(String::new(), |n| n.to_string())).collect();
    if let Some(given) = given {
        for (name, _) in given {
            if !names.contains(name) {
                return Err(CliError::input(format!("the model has no input `{name}`; it has: {}", names.join(", "))));
            }
        }
    }
    check_memory(module)?;
    for (i, &p) in f.params().iter().enumerate() {
        let ty = f.ty(p);
        let shape =
            ty.const_shape().ok_or_else(|| CliError::usage(format!("input `{}` has open dimensions", names[i])))?;
        match given {
            Some(list) => {
                let t = list.iter().find(|(n, _)| *n == names[i]).map(|(_, t)| t.clone());
                let t = t.ok_or_else(|| CliError::input(format!("input `{}` is missing", names[i])))?;
                if t.dtype() != ty.dtype || t.shape() != shape {
                    return Err(CliError::input(format!(
                        "input `{}` is {}{shape:?}, the file has {}{:?}",
                        names[i],
                        ty.dtype,
                        t.dtype(),
                        t.shape()
                    ))
                    .help("sizes that the model fixes change with --batch and --shape alone"));
                }
                out.push(t);
            }
            None => {
                let bytes = ty.bytes().unwrap_or(usize::MAX);
                ensure_room(bytes).map_err(|e| CliError::new(Code::Device, format!("input `{}`: {e}", names[i])))?;
                out.push(random_tensor(ty.dtype, shape, common.seed.wrapping_add(i as u64)));
            }
        }
    }
    Ok(out)
}

/// Inputs and results must fit in memory.
fn check_memory(module: &Module) -> CliResult<()> {
    let f = module.main();
    let need = f
        .params()
        .iter()
        .chain(f.results())
        .filter_map(|&v| f.ty(v).bytes())
        .fold(0u64, |sum, n| sum.saturating_add(n as u64));
    check_room("inputs and results take", need)
}

/// What the CPU executor holds at once must fit in memory.
pub fn check_cpu_memory(module: &Module) -> CliResult<()> {
    check_room("on the CPU the model takes", compiler::cpu::peak_bytes(module.main()))
}

/// Bytes of memory that the process may still take: what the machine has left, and of a limit on the process (`ulimit -v`)
/// the half, since drivers and threads take their part of it.
pub fn free_memory() -> Option<u64> {
    let machine = runtime_gpu::available_memory();
    [machine, process_limit().map(|bytes| bytes / 2)].into_iter().flatten().min()
}

#[cfg(unix)]
fn process_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure that it is given.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
#[cfg(not(unix))]
fn process_limit() -> Option<u64> {
    None
}

fn check_room(what: &str, need: u64) -> CliResult<()> {
    match free_memory() {
        Some(free) if need > free => {
            let text = format!("{what} {} MiB, the machine has {} MiB available", need >> 20, free >> 20);
            Err(CliError::new(Code::Device, text).help("give smaller sizes with --batch, --dim or --shape"))
        }
        _ => Ok(()),
    }
}

/// Standard normal floats (sum of uniforms), small non-negative integers, random bools.
pub fn random_tensor(dtype: DType, shape: Vec<usize>, seed: u64) -> Tensor {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let n: usize = shape.iter().product();
    if dtype.is_float() {
        let mut normal = || (0..12).map(|_| rng.random::<f32>()).sum::<f32>() as f64 - 6.0;
        Tensor::from_f64(dtype, shape, (0..n).map(|_| normal()))
    } else {
        let high = if dtype == DType::Bool { 2 } else { 8 };
        Tensor::from_f64(dtype, shape, (0..n).map(|_| rng.random_range(0..high) as f64))
    }
}

/// A file name or zoo name for reports.
pub fn short_name(model: &str) -> String {
    Path::new(model).file_stem().map_or_else(|| model.to_string(), |s| s.to_string_lossy().into_owned())
}

/// The code for a missing profile.
pub fn profile(name: &str) -> CliResult<compiler::profile::DeviceProfile> {
    compiler::profile::DeviceProfile::named(name).ok_or_else(|| {
        let list: Vec<String> = compiler::profile::DeviceProfile::all().into_iter().map(|p| p.name).collect();
        CliError::new(Code::Device, format!("no profile `{name}`; there are: {}", list.join(", "))).help(
            "`weft devices --profiles` shows what each one is; `--device` chooses among the devices that are here",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::graph::FunctionBuilder;
    use compiler::onnx::export_onnx;
    use compiler::ops::binary::Add;

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

    #[test]
    fn weights_are_read_when_they_are_needed_and_checked_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.onnx");
        std::fs::write(&path, model()).expect("writes");
        let (bytes, external) = read_onnx(&path).expect("opens");
        assert!(bytes.len() < 2000, "{} bytes are in memory", bytes.len());
        let module = compiler::onnx::import_onnx(bytes, &*external).expect("imports");
        let values = || -> Vec<Result<Tensor, String>> { module.constants.values().map(|c| c.load()).collect() };
        let before: Vec<Tensor> = values().into_iter().collect::<Result<_, _>>().expect("reads");
        assert_eq!(before.iter().map(Tensor::len).max(), Some(50_000));
        assert_eq!(before.iter().map(|t| t.to_f32_vec()[t.len() - 1]).fold(0.0, f32::max), 49_999.0);
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
        file.set_len(1000).expect("cuts");
        let errors: Vec<String> = values().into_iter().filter_map(Result::err).collect();
        assert!(errors.len() == 1 && errors[0].contains("became shorter after it was opened"), "{errors:?}");
    }
}
