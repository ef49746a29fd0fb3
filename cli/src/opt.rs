//! `weft opt`: text or a model in, passes, text out.

use crate::Extensions;
use crate::args::{Common, OptArgs};
use crate::output::print_text;
use compiler::graph::Module;
use compiler::passes::mixed_precision::check_listed;
use compiler::passes::{PassContext, PassErrorKind, Sequential};
use compiler::plan::EmitFailure;
use std::io::Read;
use std::path::Path;
use workbench::executor::{named_passes, pipeline_options, target_profile};
use workbench::models::{is_path, load, load_open};
use workbench::progress::log;
use workbench::written::write_file;
use workbench::{Code, Error, Result};

/// Runs passes on text.
pub fn execute(a: &OptArgs, extensions: &Extensions) -> Result<()> {
    let mut module = read(a)?;
    if a.dialect != "wgpu" && a.emit != "wgsl" {
        return Err(Error::usage("--dialect is for WGSL").help("add --emit wgsl"));
    }
    let profile = target_profile(&a.common)?;
    let mut cx = PassContext::new(profile.clone());
    let options = pipeline_options(&a.common)?;
    check_listed(&module, &options.keep_f32).map_err(Error::usage)?;
    options.configure(&mut cx);
    cx.verify = true;
    cx.alter_layouts.extend(extensions.alter_layouts.iter().cloned());
    pipeline(&a.common)?.run(&mut module, &mut cx).map_err(|e| {
        let code = if e.kind == PassErrorKind::Request { Code::Usage } else { Code::Input };
        Error::new(code, e.to_string())
    })?;
    for (label, text) in &cx.printed {
        log(&a.common, format!("---- {label}\n{text}"));
    }
    for r in &cx.remarks {
        log(&a.common, format!("remark: {} {:?}: {}", r.pass, r.kind, r.message));
    }
    let out = if a.emit == "wgsl" {
        kernels_text(&module, &profile, &a.dialect)?
    } else {
        compiler::text::print_module(&module)
    };
    match &a.output {
        Some(path) => Ok(write_file(path, out.as_bytes())?),
        None => print_text(out.trim_end()),
    }
}

/// The module: of text from a file or stdin, or of a model.
fn read(a: &OptArgs) -> Result<Module> {
    let (batch, dim, shape) = (a.common.batch.is_some(), !a.common.dim.is_empty(), !a.common.shape.is_empty());
    let of_sizes = [("batch", batch), ("dim", dim), ("shape", shape)];
    let given: Vec<&str> = of_sizes.into_iter().filter(|o| o.1).map(|o| o.0).collect();
    let text = match a.file.as_str() {
        "-" => {
            let mut s = String::new();
            std::io::stdin().read_to_string(&mut s).map_err(|e| Error::input(format!("cannot read stdin: {e}")))?;
            s
        }
        model if !is_path(model) || Path::new(model).extension().is_some_and(|e| e == "onnx") => {
            return if given.is_empty() { load_open(model, &a.common) } else { load(model, &a.common, None) };
        }
        path => {
            weft::plain_files::read_text(path.as_ref()).map_err(|e| Error::input(format!("cannot read {path}: {e}")))?
        }
    };
    if let Some(option) = given.iter().find(|o| !a.common.is_default(o)) {
        return Err(Error::usage(format!("--{option} is for models: a text has its own sizes")).at(a.file.clone()));
    }
    let module = compiler::text::parse_module(&text).map_err(|e| Error::input(e.to_string()).at(a.file.clone()))?;
    compiler::verify::verify_module(&module)
        .map_err(|e| Error::input(e.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n")).at(a.file.clone()))?;
    Ok(module)
}

/// The passes of `--passes`, one after the other, each with its own options.
fn pipeline(common: &Common) -> Result<Sequential> {
    let list = named_passes(common)?.into_iter();
    Ok(list.fold(Sequential::default(), |s, (name, options)| match options.is_empty() {
        true => s.then_named(&name),
        false => s.then_with(&name, options),
    }))
}

fn kernels_text(module: &Module, profile: &compiler::profile::DeviceProfile, dialect: &str) -> Result<String> {
    let mut out = String::new();
    for f in module.tensor_functions.values() {
        for (kernel, _) in f.kernels() {
            let wrong = |code: Code, m: String| Error::new(code, format!("kernel {kernel} of @{}: {m}", f.name));
            let e = weft::emitter(profile).emit(f, kernel, profile).map_err(|e| match e {
                EmitFailure::BeyondDevice(m) => wrong(Code::Device, m),
                EmitFailure::Lowering(m) => wrong(Code::Input, m),
            })?;
            let text = match e.module.downcast_ref::<shaders_gen::GeneratedModule>() {
                Some(g) => {
                    g.emit_wgsl_in(crate::compile::dialect(dialect)).map_err(|e| wrong(Code::Input, e.to_string()))?
                }
                None => e.wgsl.clone(),
            };
            out += &format!("// kernel {}\n{text}\n", e.name);
        }
    }
    Ok(out)
}
