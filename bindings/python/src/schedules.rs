//! Kernels of a session with their schedules, and sessions with other schedules.

use crate::errors::usage;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft::extend::{Name, Rules, ScheduleProvider, parse_instructions};
use weft::{CompileTrace, Options, TuningDatabase};

/// A kernel: `name` in reports, `function`, the tensor function that it is of, `schedule`, the instructions that made
/// it of that function, one a line (docs/schedule.md), `wgsl`, the shader's text, and threads of a `workgroup` and
/// workgroups of the `grid` in x, y and z.
#[pyclass(frozen, get_all, module = "weft_nn")]
pub struct Kernel {
    /// As reports have it.
    name: String,
    /// The tensor function that it is of.
    function: String,
    /// The instructions that made it of that function, one a line (docs/schedule.md).
    schedule: String,
    /// The shader's text; empty for kernels of the processor.
    wgsl: String,
    /// Threads of a workgroup in x, y and z.
    workgroup: (u32, u32, u32),
    /// Workgroups in x, y and z.
    grid: (u32, u32, u32),
}

#[pymethods]
impl Kernel {
    fn __repr__(&self) -> String {
        format!("<weft_nn.Kernel {:?} of {}>", self.name, self.function)
    }
}

/// The kernels of a record.
pub fn kernels(trace: &CompileTrace) -> Vec<Kernel> {
    let one = |k: &weft::extend::KernelTrace| Kernel {
        name: k.name.clone(),
        function: k.function.clone(),
        schedule: k.schedule.join("\n"),
        wgsl: k.wgsl.clone(),
        workgroup: k.workgroup.into(),
        grid: k.grid.into(),
    };
    trace.kernels.iter().map(one).collect()
}

/// The network with these schedules for some of its tensor functions; the others keep theirs.
///
/// # Errors
/// A function that there is not, with those that there are; text that is no schedule; a model that is not compiled as
/// a whole.
pub fn rescheduled(
    model: &weft::Model,
    options: &Options,
    schedules: &BTreeMap<String, String>,
) -> Result<weft::Model, weft::Error> {
    let options = Options { cache: weft::Cache::default(), ..options.clone() };
    let compiled = model.compile(&options)?;
    let Some(compiled) = compiled.compilation() else {
        return Err(weft::Error::Input(
            "the model is not compiled as a whole: it has no schedules before a run".into(),
        ));
    };
    let module = compiled.unscheduled_module();
    weft::Model::from_module(module).changed(|module| {
        for (name, text) in schedules {
            let there: Vec<&str> = module.tensor_functions.keys().map(|n| n.as_str()).collect();
            if !there.contains(&name.as_str()) {
                let why = format!("there is no tensor function `{name}`; there are: {}", there.join(", "));
                return Err(weft::Error::Input(why));
            }
            let list = parse_instructions(text).map_err(|e| weft::Error::Text(e.to_string()))?;
            module.tensor_functions[&Name::new(name)].pending = list;
        }
        Ok(())
    })
}

/// Adds the tuned choices of a database to options. A line that does not parse is skipped with a warning.
///
/// # Errors
/// A file that cannot be read, or is no database.
pub fn tuned(py: Python<'_>, options: &mut Options, path: &std::path::Path) -> PyResult<()> {
    let refuse = |why: String| {
        usage(format!("tuning={:?}: {why}", path.display().to_string()), "weft_nn.tune makes such a file")
    };
    if !path.exists() {
        return Err(refuse("there is no such file".into()));
    }
    let database = TuningDatabase::read(path).map_err(refuse)?;
    if let Some(first) = database.bad.first() {
        if database.has_only_bad_lines() {
            return Err(refuse(first.clone()));
        }
        let others = database.bad.len() - 1;
        let more = if others > 0 { format!(", and {others} more lines") } else { String::new() };
        let text = format!("tuning: skipped {first}{more}; `weft_nn.command` `tuning check --mend` drops them");
        let text = std::ffi::CString::new(text).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<pyo3::exceptions::PyUserWarning>(), &text, 1)?;
    }
    let rest: Arc<dyn ScheduleProvider> = Arc::new(Rules);
    options.compile.schedules = Some(Arc::new(database.provider(rest)));
    Ok(())
}
