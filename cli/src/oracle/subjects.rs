//! What tables are of: the tensor functions of shapes, and the process that measures their schedules.

use super::table::{self, Table};
use crate::args::OracleArgs;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{compile_options, compile_with, pipeline_for, scheduling};
use crate::output::log;
use crate::tune::candidates::Maker;
use crate::tune::measurer::Measurer;
use crate::tune::space::Space;
use crate::tune::units::Unit;
use benches::shapes::{KNOWN, OTHERS, Shape};
use compiler::profile::DeviceProfile;

/// Options of the command that the process that measures does not get; true for those with a value.
const OWN: &[(&str, bool)] = &[
    ("--most", true),
    ("--shapes", true),
    ("--searches", false),
    ("--picks", false),
    ("--calibrate", false),
    ("--seeds", true),
    ("--json", false),
    ("--quiet", false),
    ("-q", false),
];

/// The process that measures.
pub fn measurer(a: &OracleArgs) -> Measurer {
    Measurer::new(crate::tune::arguments_of("oracle", OWN, &[a.file.display().to_string()]))
}

/// The tensor function of a shape with the most time by the estimate.
pub fn unit_of(a: &OracleArgs, shape: &Shape, profile: &DeviceProfile) -> CliResult<Unit> {
    let module = compiler::text::parse_module(&shape.model()).map_err(|e| CliError::new(Code::Bug, e.to_string()))?;
    let options = compile_options(pipeline_for(&module, &a.common, profile, &[])?, &a.common, profile)?;
    let compiled = compile_with(module, &options, &a.common, profile)?;
    let scheduling = scheduling(&a.common);
    let mut found: Option<(f64, Unit)> = None;
    for name in compiled.unscheduled.keys() {
        let Some((unit, _)) = Unit::of(&compiled, *name, profile) else { continue };
        let ns = Maker::new(scheduling.on(profile), &unit, &[]).default()?.estimated_ns;
        if found.as_ref().is_none_or(|f| ns > f.0) {
            found = Some((ns, unit));
        }
    }
    found.map(|f| f.1).ok_or_else(|| CliError::new(Code::Bug, "a shape without a function"))
}

/// The tables of a file, each with its function.
pub fn tables(a: &OracleArgs) -> CliResult<Vec<(Table, Unit)>> {
    let mut out = Vec::new();
    for table in table::read(&a.file)? {
        let shape = KNOWN.iter().chain(OTHERS).find(|s| s.0 == table.shape);
        let shape = shape.ok_or_else(|| CliError::input(format!("{}: no shape {}", a.file.display(), table.shape)))?;
        let unit = unit_of(a, &shape.1, &table.profile)?;
        match unit.workload.function == table.function {
            true => out.push((table, unit)),
            false => log(&a.common, format!("oracle: {} is left out: its function is another one now", table.shape)),
        }
    }
    match out.is_empty() {
        true => Err(CliError::input(format!("{}: it has no table that can be used", a.file.display()))
            .help("`weft oracle FILE --device 0` measures tables into it")),
        false => Ok(out),
    }
}
