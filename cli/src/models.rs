//! Models by path or zoo name, with their open dimensions decided, and inputs for them.

use crate::args::Common;
use crate::arrays::Named;
use crate::error::{CliError, CliResult, Code};
use bytes::Bytes;
use compiler::dtype::DType;
use compiler::graph::{Module, TensorType, choose_shapes, input_ports, set_input_shapes};
use compiler::name::Name;
use compiler::onnx::{ExternalData, ImportOptions, import_onnx_with};
use compiler::passes::{PassContext, Sequential, default_pipeline};
use compiler::tensor::{DataSource, Tensor};
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file mapped into memory, kept open by the slices of it.
fn map_file(path: &Path) -> std::io::Result<Bytes> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only; a file that another program changes meanwhile gives wrong numbers, as with any reader.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}

/// External tensor data in the model's folder.
struct Folder(PathBuf);
struct FileSlice {
    path: PathBuf,
    offset: u64,
    length: Option<u64>,
}
impl ExternalData for Folder {
    fn open(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Arc<dyn DataSource>, String> {
        let path = self.0.join(location);
        let inside = path.canonicalize().ok().zip(self.0.canonicalize().ok()).is_none_or(|(p, f)| p.starts_with(f));
        if !inside {
            return Err(format!("external data `{location}` leaves the model's folder"));
        }
        let size = std::fs::metadata(&path).map_err(|e| format!("external data {}: {e}", path.display()))?.len();
        let end = offset.checked_add(length.unwrap_or(0));
        if end.is_none_or(|e| e > size) {
            return Err(format!(
                "external data {} has {size} bytes, the model asks for {offset}+{}",
                path.display(),
                length.unwrap_or(0)
            ));
        }
        Ok(Arc::new(FileSlice { path, offset, length }))
    }
}
impl DataSource for FileSlice {
    fn read(&self) -> Result<Bytes, String> {
        let all = map_file(&self.path).map_err(|e| format!("{}: {e}", self.path.display()))?;
        let end = self.length.map_or(all.len(), |l| (self.offset + l) as usize);
        if (self.offset as usize) > end || end > all.len() {
            return Err(format!("{} is shorter than the model says", self.path.display()));
        }
        Ok(all.slice(self.offset as usize..end))
    }
}

/// The bytes of an ONNX file and where its external data is.
pub fn read_onnx(path: &Path) -> CliResult<(Bytes, Box<dyn ExternalData>)> {
    let bytes = map_file(path).map_err(|e| CliError::input(format!("cannot read {}: {e}", path.display())))?;
    if compiler::trace::CompileTrace::recognizes(&bytes) {
        return Err(CliError::input(format!("{} is a compile trace, not a model", path.display()))
            .help("`weft inspect`, `explain`, `diff` and `view` read traces"));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
    Ok((bytes, Box::new(Folder(folder))))
}

/// True when `model` names a file rather than a zoo model.
pub fn is_path(model: &str) -> bool {
    model.contains(['/', '\\', '.']) || Path::new(model).exists()
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
    set_input_shapes(&mut module, &shapes).map_err(|e| CliError::usage(e.to_string()))?;
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

fn is_onnx(model: &str) -> bool {
    is_path(model) && Path::new(model).extension().is_none_or(|e| e != "weft")
}

/// Loads a model as it stands.
pub fn load_open(model: &str, common: &Common) -> CliResult<Module> {
    let path = Path::new(model);
    if !is_path(model) {
        return benches::zoo::build(model, common.batch.unwrap_or(1) as usize, common.seed).map_err(|e| {
            CliError::input(format!("no model `{model}`: {e}"))
                .help("`weft zoo` lists the built-in models; a file needs its path")
        });
    }
    if path.extension().is_some_and(|e| e == "weft") {
        let text = std::fs::read_to_string(path).map_err(|e| CliError::input(format!("cannot read {model}: {e}")))?;
        let mut module = compiler::text::parse_module(&text).map_err(|e| CliError::input(e.to_string()).at(model))?;
        compiler::check::check_module(&module).map_err(|e| {
            CliError::input(e.to_string())
                .at(model)
                .help("the loops show the culprit; docs/schedule.md says what is held")
        })?;
        if let Some(source) = &common.weights {
            fill_constants(&mut module, source, common)?;
        }
        return Ok(module);
    }
    let (bytes, external) = read_onnx(path)?;
    compiler::onnx::import_onnx(bytes, &*external).map_err(|e| CliError::from(e).at(model))
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
fn decide_shapes(
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
        choose_shapes(ports.clone(), batch, dims, &shapes).map_err(|e| CliError::usage(e.to_string()))
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
            None => out.push(random_tensor(ty.dtype, shape, common.seed.wrapping_add(i as u64))),
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
    match runtime_gpu::available_memory() {
        Some(free) if need > free => Err(CliError::new(
            Code::Device,
            format!("inputs and results take {} MiB, the machine has {} MiB available", need >> 20, free >> 20),
        )
        .help("give smaller sizes with --batch, --dim or --shape")),
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
        Tensor::from_f64(dtype, shape, (0..n).map(|_| rng.random_range(0..high) as f64).collect::<Vec<_>>())
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
