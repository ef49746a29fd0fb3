//! `weft export`

mod onnx;

use crate::args::{Common, ExportArgs};
use compiler::compile::{CompileError, Compiled, compile};
use compiler::graph::{Module, open_dims};
use compiler::name::Name;
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use runtime_cpu::{Isa, Processor};
use rust_source::Group;
use std::path::Path;
use std::sync::Arc;
use weft::external::c::files_of;
use weft::packed_constant;
use workbench::executor::{Device, chosen_pipeline, compile_options, profile_on, target_profile};
use workbench::models::{inputs_for, load, short_name};
use workbench::options::Tabled;
use workbench::progress::{Progress, log};
use workbench::written::write_file;
use workbench::{Code, Error, Result};

/// Writes a model as ONNX, as C, as a crate, or as a page.
pub fn execute(a: &ExportArgs) -> Result<()> {
    if let (None, Some(row)) = (&a.output, a.input.changed().next()) {
        let why = format!("{} is for ONNX files: nothing else that is written depends on inputs", row.written());
        return Err(Error::usage(why));
    }
    match (&a.c, &a.rust, &a.web, &a.output) {
        (Some(folder), ..) => write_c(&a.model, &a.common, folder),
        (_, Some(folder), ..) => write_rust(&a.model, &a.common, folder),
        (_, _, Some(folder), _) => write_web(&a.model, &a.common, folder),
        (.., Some(output)) => onnx::write(a, output),
        (None, None, None, None) => {
            Err(Error::usage("-o FILE.onnx, --c DIR, --rust DIR or --web DIR says what to write"))
        }
    }
}

/// A model whose sizes are all known, as `what` has them.
fn fixed(model: &str, common: &Common, what: &str) -> Result<Module> {
    let module = load(model, common, None)?;
    match open_dims(&module).first() {
        None => Ok(module),
        Some(dim) => Err(Error::usage(format!("`{dim}` is open, and {what} has fixed sizes"))
            .help(format!("give it a size with `--dim {dim}=N`"))),
    }
}

/// Compiles for a profile. `refused` says why something does not go there.
fn compiled(
    module: Module,
    common: &Common,
    profile: &DeviceProfile,
    emitter: &dyn EmitKernel,
    refused: &dyn Fn(String) -> Error,
) -> Result<Compiled> {
    let inputs = inputs_for(&module, None, common)?;
    let options = compile_options(chosen_pipeline(&module, common, profile, &inputs)?.0, common, profile)?;
    let mut progress = Progress::new(common, &[("kernels", "scheduling")]);
    compile(module, &options, profile, emitter, &mut |s, d, t| progress.report(s, d, t)).map_err(|e| match e {
        CompileError::NeedsCpu(why) => refused(why),
        e => e.into(),
    })
}

/// Writes files of these names and contents, and says so.
fn write_files<'a>(
    folder: &Path,
    files: impl Iterator<Item = (&'a str, &'a [u8])>,
    note: &str,
    common: &Common,
) -> Result<()> {
    if folder.is_file() {
        let text = format!("{} is a file, and several are written into a folder", folder.display());
        return Err(Error::usage(text).help("name a folder, which need not exist"));
    }
    let (mut count, mut bytes) = (0, 0);
    for (name, content) in files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|e| Error::input(format!("{}: {e}", parent.display())))?;
        write_file(&path, content)?;
        (count, bytes) = (count + 1, bytes + content.len());
    }
    log(common, format!("wrote {} ({count} files, {bytes} bytes); {note}", folder.display()));
    Ok(())
}

/// Compiles the model for one thread of this machine's CPU, and writes the plan as C.
fn write_c(model: &str, common: &Common, folder: &Path) -> Result<()> {
    let module = fixed(model, common, "C")?;
    let processor = Processor::open(1, None).map_err(|e| Error::new(Code::Device, e.to_string()))?;
    let profile = profile_on(common, &Device::Cpu(Arc::new(processor)))?;
    let refused = |why: String| Error::new(Code::Unsupported, format!("{model} does not become C: {why}"));
    let compiled = compiled(module, common, &profile, &c_source::Emitter, &refused)?;
    let files = files_of(&compiled, &short_name(model)).map_err(refused)?;
    let list = files.iter().map(|f| (f.name, &f.bytes[..]));
    write_files(folder, list, "network.h says how to build it", common)
}

/// Compiles the model for shaders that go without Weft: `what` they become.
fn for_shaders(model: &str, common: &Common, profile: DeviceProfile, what: &str) -> Result<Compiled> {
    let module = fixed(model, common, &format!("the {what}"))?;
    if !profile.model().shaders {
        return Err(Error::usage(format!("the {what} has shaders, and the device is the CPU"))
            .help("--target NAME compiles for a GPU; --c DIR writes C for the CPU"));
    }
    // Which matrices a driver has, and the size of their subgroups, can only be asked for when a session opens.
    let profile = DeviceProfile { matrix_shapes: vec![], ..profile };
    compiled(module, common, &profile, &shaders_gen::Emitter, &|why| refused(model, what, why))
}

fn refused(model: &str, what: &str, why: String) -> Error {
    Error::new(Code::Unsupported, format!("{model} does not become a {what}: {why}"))
}

/// Writes the plan as a crate.
fn write_rust(model: &str, common: &Common, folder: &Path) -> Result<()> {
    let mut common = common.clone();
    // A crate runs on GPUs: that of a file of defaults may be none.
    if common.is_default("device") && Device::is_processor(&common.device) {
        common.settings.device = "auto".into();
    }
    let common = &common;
    let c = for_shaders(model, common, target_profile(common)?, "crate")?;
    let name = short_name(model);
    let files = rust_source::program(&c.plan, &c.profile, &|b| packed_constant(&c, b, Isa::best()), &name)
        .map_err(|why| refused(model, "crate", why))?;
    let note = format!("its package is {}, for {}", rust_source::package(&name), c.profile.name);
    write_files(folder, files.iter().map(|f| (f.path.as_str(), &f.bytes[..])), &note, common)
}

/// Writes the plan as a page for browsers.
fn write_web(model: &str, common: &Common, folder: &Path) -> Result<()> {
    let mut common = common.clone();
    if common.target.is_none() && !common.names_device() {
        common.settings.target = Some("baseline".into());
    }
    let c = for_shaders(model, &common, target_profile(&common)?, "page")?;
    let texts = |all: &[Name]| all.iter().map(Name::to_string).collect();
    let groups: Vec<Group> =
        c.groups.iter().map(|g| Group { label: g.label.clone(), nodes: texts(&g.origins) }).collect();
    let name = short_name(model);
    let files = rust_source::page(&c.plan, &c.profile, &|b| packed_constant(&c, b, Isa::best()), &name, &groups)
        .map_err(|why| refused(model, "page", why))?;
    let note =
        format!("for {}; any web server shows it: python3 -m http.server -d {}", c.profile.name, folder.display());
    write_files(folder, files.iter().map(|f| (f.path.as_str(), &f.bytes[..])), &note, &common)
}
