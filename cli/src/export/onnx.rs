//! `weft export -o M.onnx`

use crate::args::ExportArgs;
use compiler::attr::AttrStruct;
use compiler::graph::Module;
use compiler::onnx::{export_onnx, export_onnx_beside};
use compiler::ops::control::Const;
use compiler::passes::{
    ConcatParts, MixedPrecision, PassContext, PipelineOptions, Sequential, Winograd, default_pipeline, halve_ports,
};
use compiler::profile::DeviceProfile;
use std::io::Write;
use std::path::Path;
use workbench::executor::{chosen_pipeline, target_profile};
use workbench::inputs::given;
use workbench::models::{Chance, inputs_for, load, load_kept_open};
use workbench::options::{Heading, Tabled};
use workbench::progress::log;
use workbench::settings::Settings;
use workbench::written::{write_file, write_file_with};
use workbench::{Code, Error, Result};

/// Bytes of constants that go into a file beside the model: protobuf ends at 2 GiB, and the graph needs room.
const LARGE: u64 = 2_000_000_000;

/// Writes the model, or what the passes make of it, as ONNX.
pub(super) fn write(a: &ExportArgs, output: &Path) -> Result<()> {
    refuse_unused(a)?;
    let mut module = load_kept_open(&a.model, &a.common)?;
    let mixed = a.common.amp != "off";
    if a.optimized || mixed {
        let profile = target_profile(&a.common)?;
        let options = passes(a, &module, &profile)?;
        if a.f16_ports {
            halve_ports(&mut module);
        }
        run_passes(&options, &mut module, profile)?;
    }
    let bytes = written(a, &module, output)?;
    log(&a.common, format!("wrote {} ({bytes} bytes)", output.display()));
    if mixed {
        let (text, any) = halves(&module);
        log(&a.common, text);
        if !any {
            let why = "`weft explain MODEL` with the same options says why each node stays in f32";
            log(&a.common, format!("warning: --amp {} puts nothing into f16: the file is in f32; {why}", a.common.amp));
        }
    }
    Ok(())
}

/// Refuses options that change nothing in the file.
fn refuse_unused(a: &ExportArgs) -> Result<()> {
    let (mixed, auto) = (a.common.amp != "off", a.common.amp == "auto");
    let unused = |what: String, needs: &str| {
        Err(Error::usage(format!("{what} changes nothing in the ONNX file without {needs}"))
            .help(format!("add {needs}")))
    };
    if a.f16_ports && !mixed {
        return unused("--f16-ports".into(), "--amp fp16");
    }
    if let (false, Some(row)) = (auto, a.input.changed().next()) {
        return unused(row.written(), "--amp auto");
    }
    for row in a.common.given.iter().filter_map(|id| Settings::row(id)) {
        match (row.heading, row.name) {
            (Heading::Model, _) | (_, "amp") => {}
            (_, "keep_f32") if mixed => {}
            (_, "keep_f32") => return unused(row.written(), "--amp fp16"),
            (_, "cache" | "cache_weights" | "nan") => {
                return Err(Error::usage(format!("{} changes nothing in an ONNX file", row.written())));
            }
            // Whether weights become f16 depends on the device's matrix units; calibration compiles for the device.
            (_, "device" | "target") if mixed => {}
            _ if a.optimized || auto => {}
            _ => return unused(row.written(), "--optimized"),
        }
    }
    Ok(())
}

/// The passes that make the graph of the file: all of a compilation, or mixed precision alone.
fn passes(a: &ExportArgs, module: &Module, profile: &DeviceProfile) -> Result<PipelineOptions> {
    let mut options = if a.common.amp == "auto" {
        let given = given(&a.input, &a.model, &a.common)?;
        let sized = load(&a.model, &a.common, given.as_ref())?;
        let inputs = inputs_for(&sized, given.as_ref(), &a.common)?;
        let chance = Chance::of(&sized, &inputs, given.as_ref());
        chosen_pipeline(&sized, &a.common, profile, &inputs).map_err(|e| chance.blamed(e))?.0
    } else {
        chosen_pipeline(module, &a.common, profile, &[])?.0
    };
    // ONNX has no operators for Winograd's transforms and for results that are stored in parts.
    options.disabled.extend([Winograd::NAME, ConcatParts::NAME].map(Into::into));
    if !a.optimized {
        let list = ["infer-types", MixedPrecision::NAME, "eliminate-dead"];
        options.passes = Some(list.map(String::from).to_vec());
    }
    Ok(options)
}

fn run_passes(options: &PipelineOptions, module: &mut Module, profile: DeviceProfile) -> Result<()> {
    let mut cx = PassContext::new(profile);
    options.configure(&mut cx);
    let run = Sequential::new(default_pipeline(options)).run(module, &mut cx);
    run.map_err(|e| Error::new(Code::Bug, e.to_string()))?;
    Ok(())
}

/// Writes the file, and the constants beside it if they are large; returns all bytes.
fn written(a: &ExportArgs, module: &Module, output: &Path) -> Result<u64> {
    let constants: u64 = module.constants.values().map(|c| c.byte_len() as u64).sum();
    if !a.external_data && constants <= LARGE {
        let bytes = export_onnx(module).map_err(|e| Error::input(e.to_string()))?;
        write_file(output, &bytes)?;
        return Ok(bytes.len() as u64);
    }
    let name = output.file_name().map_or_else(|| "model.onnx".into(), |n| n.to_string_lossy());
    let location = format!("{name}.data");
    let mut size = 0;
    let mut model = vec![];
    write_file_with(&output.with_file_name(&location), |to: &mut dyn Write| {
        let mut write = |bytes: &[u8]| {
            size += bytes.len() as u64;
            to.write_all(bytes).map_err(|e| format!("{location}: {e}"))
        };
        let exported = export_onnx_beside(module, &location, &mut write);
        model = exported.map_err(|e| Error::input(e.to_string()))?;
        Ok::<(), Error>(())
    })?;
    write_file(output, &model)?;
    Ok(size + model.len() as u64)
}

/// How much of the graph is in f16: nodes with float results, and bytes of constants and of results of known sizes; and
/// whether anything is.
fn halves(module: &Module) -> (String, bool) {
    let (mut nodes, mut halves, mut bytes, mut half_bytes) = (0, 0, 0, 0);
    for f in module.functions.values() {
        for n in f.walk() {
            let node = &f.nodes[n];
            // The results of a call are counted in its function.
            if !node.regions.is_empty() || node.op.callee().is_some() {
                continue;
            }
            let mut floats = node.outputs.iter().map(|&v| f.ty(v)).filter(|t| t.dtype.is_float()).peekable();
            if let (Some(first), false) = (floats.peek(), node.op.is::<Const>()) {
                nodes += 1;
                halves += usize::from(first.dtype.size() == 2);
            }
            for t in floats {
                let size = t.numel().as_const().unwrap_or(0) as usize * t.dtype.size();
                bytes += size;
                half_bytes += if t.dtype.size() == 2 { size } else { 0 };
            }
        }
    }
    let mb = |b: usize| b as f64 / 1e6;
    let share = mb(half_bytes);
    let of = format!("{share:.2} of {:.2} MB of weights and results", mb(bytes));
    (format!("{halves} of {nodes} float nodes give f16; {of}"), halves > 0)
}
