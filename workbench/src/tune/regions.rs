//! Times of the regions that external targets could run: in the target, and in Weft's kernels. With them
//! `inline-external` decides ([`compiler::cost::CostModel::region`]).

use super::record::RegionRecord;
use super::request::Request;
use crate::error::{Error, Result};
use crate::executor::{Device, execute, pipeline_for, profile_on};
use crate::progress::{Progress, go_on, log};
use crate::settings::Settings;
use benches::statistics::Statistics;
use compiler::external::{CallSite, Region, TargetSpec};
use compiler::graph::Module;
use compiler::ops::control::CallHost;
use compiler::passes::{PassContext, Sequential, default_pipeline};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use std::path::Path;
use std::time::Instant;
use weft::{RegionLine, TuningDatabase};

/// The pass that decides which regions stay.
const DECIDES: &str = "inline-external";
/// Runs before those that count, and those that count.
const RUNS: (usize, usize) = (2, 9);

/// Times each region that has no line in the file yet, and appends its line.
///
/// # Errors
/// A network that does not compile; a file that cannot be written.
pub fn measure(
    a: &Request,
    (module, inputs): (&Module, &[Tensor]),
    device: &Device,
    file: &Path,
) -> Result<Vec<RegionRecord>> {
    if a.settings.external.is_empty() {
        return Ok(vec![]);
    }
    let profile = profile_on(&a.settings, device)?;
    let known = TuningDatabase::read_for(file, &[&profile.identity()]).map_err(Error::input)?;
    let regions = regions(&a.settings, module, inputs, &profile)?;
    let (mut progress, mut rows) = (Progress::new(&a.settings, &[]), vec![]);
    for (n, (spec, region)) in regions.iter().enumerate() {
        let name = region.function().name.to_string();
        go_on(&a.settings)?;
        progress.report(&format!("tune: the region {name}"), n, regions.len());
        let key = spec.times_key(region);
        if known.regions.iter().any(|l| l.device == profile.identity() && l.region == key) {
            continue;
        }
        let (target_us, weft_us) = match times(&a.settings, spec, region, device) {
            Ok(times) => times,
            Err(e) => {
                log(&a.settings, format!("tune: {name} is left out: {}", e.message));
                continue;
            }
        };
        let line = RegionLine {
            device: profile.identity(),
            region: key,
            name: name.clone(),
            target: spec.name().to_string(),
            target_us,
            weft_us,
            weft: env!("CARGO_PKG_VERSION").into(),
        };
        TuningDatabase::append(file, line).map_err(Error::usage)?;
        let (target, ops) = (spec.name().to_string(), region.summary());
        rows.push(RegionRecord { name, target, ops, target_us, weft_us });
    }
    Ok(rows)
}

/// All regions that targets support, whether or not they pay.
fn regions(
    settings: &Settings,
    module: &Module,
    inputs: &[Tensor],
    profile: &DeviceProfile,
) -> Result<Vec<(TargetSpec, Region)>> {
    let options = pipeline_for(module, settings, profile, inputs)?;
    let mut module = module.clone();
    let mut cx = PassContext::new(profile.clone());
    options.configure(&mut cx);
    let list: Vec<String> = default_pipeline(&options).into_iter().take_while(|p| p != DECIDES).collect();
    Sequential::new(&list).run(&mut module, &mut cx).map_err(|e| Error::usage(e.to_string()))?;
    let mut found = vec![];
    for f in module.functions.values().filter(|f| !f.primitive) {
        for n in f.walk() {
            let Some(call) = f.nodes[n].op.downcast::<CallHost>() else { continue };
            let Some(target) = call.external_target() else { continue };
            let spec = TargetSpec::new(target, &call.options).map_err(Error::usage)?;
            found.extend(Region::of(&module, call.reference).map(|region| (spec, region)));
        }
    }
    Ok(found)
}

/// Microseconds of a run in the target and in Weft's kernels: medians.
fn times(settings: &Settings, spec: &TargetSpec, region: &Region, device: &Device) -> Result<(f64, f64)> {
    let shape = |t: &compiler::graph::TensorType| Some((t.dtype, t.const_shape()?));
    let types: Option<Vec<_>> = region.inputs().iter().map(shape).collect();
    let types = types.ok_or_else(|| Error::usage("its sizes are open"))?;
    let inputs: Vec<Tensor> = (1u64..).zip(types).map(|(i, (t, shape))| random_tensor(t, &shape, i)).collect();
    let site = CallSite::new(spec.clone(), region.clone());
    let target = median(|| {
        let start = Instant::now();
        site.run(&inputs).map_err(Error::input)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    })?;
    // Composites dissolve: no target takes them here.
    let mut module = region.module().clone();
    Sequential::new(["partition-graph"])
        .run(&mut module, &mut PassContext::default())
        .map_err(|e| Error::usage(e.to_string()))?;
    let plain = Settings { external: vec![], ..settings.silent() };
    let executor = execute(module, &plain, device, &inputs)?.sized_for(&inputs)?;
    if let Some(session) = executor.on_device() {
        let mut resident = session.resident(&inputs)?;
        return Ok((target, median(|| Ok(resident.run()? * 1e3))?));
    }
    let weft = median(|| {
        let start = Instant::now();
        executor.run_in_order(&inputs)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    })?;
    Ok((target, weft))
}

fn median(mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    for _ in 0..RUNS.0 {
        run()?;
    }
    let samples: Vec<f64> = (0..RUNS.1).map(|_| run()).collect::<Result<_>>()?;
    Ok(Statistics::of(&samples).median)
}

/// The regions in words.
pub fn describe(rows: &[RegionRecord]) -> Vec<String> {
    let line = |RegionRecord { name, target, ops, target_us, weft_us }: &RegionRecord| {
        format!("{name} ({ops}): {target_us:.1} us in {target}, {weft_us:.1} us in Weft's kernels")
    };
    rows.iter().map(line).collect()
}
