//! What tables are of: the tensor functions of shapes, and the process that measures their schedules.

use super::Asked;
use super::table::Table;
use benches::shapes::{KNOWN, OTHERS, Shape};
use compiler::profile::DeviceProfile;
use workbench::executor::{compile_options, compile_with, pipeline_for, scheduling};
use workbench::inputs::Inputs;
use workbench::progress::log;
use workbench::tune::candidates::Maker;
use workbench::tune::measurer::Measurer;
use workbench::tune::space::Space;
use workbench::tune::units::Unit;
use workbench::worker::Setup;
use workbench::{Code, Error, Result};

/// The process that measures.
pub fn measurer(a: &Asked) -> Measurer {
    Measurer::new(Setup::of(&a.settings, &Inputs::default()))
}

/// The tensor function of a shape with the most time by the estimate.
pub fn unit_of(a: &Asked, shape: &Shape, profile: &DeviceProfile) -> Result<Unit> {
    let module = compiler::text::parse_module(&shape.model()).map_err(|e| Error::new(Code::Bug, e.to_string()))?;
    let options = compile_options(pipeline_for(&module, &a.settings, profile, &[])?, &a.settings, profile)?;
    let compiled = compile_with(module, &options, &a.settings, profile)?;
    let scheduling = scheduling(&a.settings);
    let mut found: Option<(f64, Unit)> = None;
    for name in compiled.unscheduled.keys() {
        let Some((unit, _)) = Unit::of(&compiled, *name, profile) else { continue };
        let ns = Maker::new(scheduling.on(profile), &unit, &[]).default()?.estimated_ns;
        if found.as_ref().is_none_or(|f| ns > f.0) {
            found = Some((ns, unit));
        }
    }
    found.map(|f| f.1).ok_or_else(|| Error::new(Code::Bug, "a shape without a function"))
}

/// The tables of a file, each with its function.
pub fn tables(a: &Asked) -> Result<Vec<(Table, Unit)>> {
    let mut out = Vec::new();
    for table in crate::common::read::<crate::table::Table>(&a.file)? {
        let shape = KNOWN.iter().chain(OTHERS).find(|s| s.0 == table.shape);
        let shape = shape.ok_or_else(|| Error::input(format!("{}: no shape {}", a.file.display(), table.shape)))?;
        let unit = unit_of(a, &shape.1, &table.profile)?;
        match unit.workload.function == table.function {
            true => out.push((table, unit)),
            false => log(&a.settings, format!("oracle: {} is left out: its function is another one now", table.shape)),
        }
    }
    match out.is_empty() {
        true => Err(Error::input(format!("{}: it has no table that can be used", a.file.display()))
            .help("`oracle FILE --device 0` measures tables into it")),
        false => Ok(out),
    }
}
