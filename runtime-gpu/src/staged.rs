//! Networks whose sizes are decided at run time (`compiler::compile::NetworkParts`): one session for the head, one for
//! loops that decide sizes (other nodes that decide sizes run on the host), and one for the tail per list of sizes, of
//! which the last 16 are kept. A list that was used before costs only its run. Of the head's results, the host reads
//! the numbers that determine sizes, and operands of host nodes; everything else stays on the device.

use crate::device_outputs::DeviceOutputs;
use crate::error::GpuError;
use crate::host_functions::HostFunctions;
use crate::part::{OpenPlanned, PartError, PartRun, Ran, RunPart, Visit, With, interpret, of_host, visit_on_host};
use crate::planned::Planned;
use crate::recorder::Recorder;
use crate::session::Session;
use crate::tensors::{DeviceTensor, RunInput, RunTensor};
use compiler::compile::{LoopParts, NetworkParts, PartValue};
use compiler::graph::{Module, input_ports, open_dims};
use compiler::int::DimRanges;
use compiler::name::Name;
use compiler::ops::control::Loop;
use compiler::recent::Recent;
use compiler::tensor::Tensor;
use std::sync::Arc;

/// A part of a network, ready to run.
pub enum Part<E> {
    /// On a device.
    Session(Box<Planned>),
    /// On a device, for inputs of any sizes.
    Open(Box<OpenPlanned>),
    /// By a plan, but not on a device.
    Other(Box<dyn RunPart<E>>),
    /// A part without a plan, for the interpreter.
    Host(Box<Module>),
    /// In parts again.
    Staged(Box<Staged<E>>),
    /// A loop that the host counts; the part is its body.
    Loop(Box<(LoopParts, Part<E>)>),
}

/// A part that is open, with its module: the interpreter runs it where its plan does not take the integers of a run.
struct Opened<E> {
    part: Part<E>,
    module: Module,
}

/// Compiles a module with all known sizes, and opens it.
pub type Open<E> = Arc<dyn Fn(Module) -> Result<Part<E>, E> + Send + Sync>;

/// The key of a part: the sizes of the network's open dimensions, the shapes of its operands, and what the numbers that
/// determine sizes make of it.
type Sizes = (Vec<(Name, i64)>, Vec<Vec<usize>>, Vec<String>);

/// Parts for lists of sizes.
type Kept<E> = Recent<Sizes, Opened<E>>;

/// A network in parts.
pub struct Staged<E> {
    /// `None` if the head computes nothing that is used later.
    head: Option<Opened<E>>,
    stages: NetworkParts,
    /// The ranges of the network's open dimensions.
    ranges: DimRanges,
    /// Sessions of the nodes that decide sizes.
    sizings: Kept<E>,
    tails: Kept<E>,
    open: Open<E>,
    functions: HostFunctions,
}

/// Results of the head, on the device or on the host.
enum Results {
    Host(Vec<Tensor>),
    Device(Box<DeviceOutputs>),
}

impl Results {
    fn shape(&self, n: usize) -> Vec<usize> {
        match self {
            Results::Host(list) => list[n].shape().to_vec(),
            Results::Device(outputs) => outputs.tensor(n).shape().to_vec(),
        }
    }
    fn on_device(&self, n: usize) -> Option<DeviceTensor> {
        match self {
            Results::Device(outputs) if outputs.is_on_device(n) => Some(outputs.tensor(n)),
            _ => None,
        }
    }
    /// Those of the list in host memory.
    fn read(&self, list: &[usize]) -> Result<Vec<Tensor>, GpuError> {
        match self {
            Results::Host(all) => Ok(list.iter().map(|&n| all[n].clone()).collect()),
            Results::Device(outputs) => pollster::block_on(outputs.read_of(list)),
        }
    }
}

/// The values of one run that later parts take.
struct Run<'a> {
    dims: Vec<(Name, i64)>,
    inputs: &'a [Tensor],
    head: Results,
    sized: Vec<Tensor>,
}

impl Run<'_> {
    fn shape(&self, v: PartValue) -> Vec<usize> {
        match v {
            PartValue::Input(n) => self.inputs[n].shape().to_vec(),
            PartValue::Head(n) => self.head.shape(n),
            PartValue::Sizing(n) => self.sized[n].shape().to_vec(),
        }
    }
    /// The values in host memory; those on the device are read back together.
    fn read(&self, list: &[PartValue]) -> Result<Vec<Tensor>, GpuError> {
        let of_head = list.iter().filter_map(|v| if let PartValue::Head(n) = v { Some(*n) } else { None });
        let mut read = self.head.read(&of_head.collect::<Vec<_>>())?.into_iter();
        let one = |v: &PartValue| match *v {
            PartValue::Input(n) => Ok(self.inputs[n].clone()),
            PartValue::Head(_) => read.next().ok_or_else(|| GpuError::Lost("a result was not read back".into())),
            PartValue::Sizing(n) => Ok(self.sized[n].clone()),
        };
        list.iter().map(one).collect()
    }
    /// The values, those on the device that `session` takes there as they are.
    fn operands(&self, list: &[PartValue], session: &Session) -> Result<Vec<RunTensor>, GpuError> {
        let stays = |(i, v): (usize, &PartValue)| match *v {
            PartValue::Head(n) => self.head.on_device(n).filter(|t| session.takes(i, t)),
            _ => None,
        };
        let there: Vec<Option<DeviceTensor>> = list.iter().enumerate().map(stays).collect();
        let missing = list.iter().zip(&there).filter(|(_, t)| t.is_none()).map(|(v, _)| *v);
        let mut read = self.read(&missing.collect::<Vec<_>>())?.into_iter();
        let all = there.into_iter().map(|t| t.map(RunTensor::Device).or_else(|| read.next().map(RunTensor::Host)));
        Ok(all.flatten().collect())
    }
}

impl<E: PartError> Staged<E> {
    /// Opens the head and, if no dimension is open, the nodes that decide sizes. The tail opens when its sizes are
    /// known. `ranges` are those of the open dimensions.
    ///
    /// # Errors
    /// An error of `open`.
    pub fn open(
        stages: NetworkParts,
        ranges: DimRanges,
        functions: HostFunctions,
        open: Open<E>,
    ) -> Result<Staged<E>, E> {
        let head = if gives(&stages.head) { Some(Opened::new(&open, stages.head.clone())?) } else { None };
        let staged = Staged { head, stages, ranges, sizings: Kept::default(), tails: Kept::default(), open, functions };
        if open_dims(&staged.stages.head).is_empty() && gives(&staged.stages.sizing) {
            let operands = input_ports(&staged.stages.sizing);
            let shapes: Option<Vec<_>> = operands.iter().map(|(_, ty)| ty.const_shape()).collect();
            if let Some(shapes) = shapes {
                staged.sizing(vec![], shapes)?;
            }
        }
        Ok(staged)
    }

    /// The nodes that decide sizes, for operands of these shapes: on the device if there are loops.
    fn sizing(&self, dims: Vec<(Name, i64)>, shapes: Vec<Vec<usize>>) -> Result<Arc<Opened<E>>, E> {
        self.sizings.get((dims, shapes, vec![]), |(dims, shapes, _)| {
            let module = self.stages.sizing_at(dims, shapes).map_err(|e| GpuError::Input(e.to_string()))?;
            let main = module.main();
            match main.walk().iter().any(|&n| main.nodes[n].op.is::<Loop>()) {
                true => Opened::new(&self.open, module),
                false => Ok(Opened { part: Part::Host(Box::new(module.clone())), module }),
            }
        })
    }

    /// The operands of later parts of a run, after the head gave `head`.
    fn begin<'a>(&self, inputs: &'a [Tensor], head: Results) -> Result<Run<'a>, E> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let dims = self.stages.sizes(&shapes, &self.ranges).map_err(GpuError::from)?;
        Ok(Run { dims, inputs, head, sized: vec![] })
    }

    /// The part that decides sizes, with its operands; `None` if no node has to run for that.
    fn deciding(&self, run: &Run<'_>) -> Result<Option<(Arc<Opened<E>>, Vec<Tensor>)>, E> {
        if !gives(&self.stages.sizing) {
            return Ok(None);
        }
        let operands = run.read(&self.stages.sizing_operands)?;
        let shapes = operands.iter().map(|t| t.shape().to_vec()).collect();
        Ok(Some((self.sizing(run.dims.clone(), shapes)?, operands)))
    }

    /// Runs once: `inputs` in the order of the network's inputs; results in the order of its outputs.
    ///
    /// # Errors
    /// Wrong inputs, sizes that a later node refuses, an error of compiling the tail, or a failed run.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, E> {
        self.run_recorded(inputs, &Recorder::default())
    }

    /// As [`Staged::run`]; `recorder` takes notes of all parts, under the names that [`Staged::visit`] gives them.
    ///
    /// # Errors
    /// As there.
    pub fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, E> {
        let with = With { functions: &self.functions, recorder };
        let named = |own: &'static str| move |within: &str| format!("{within}{}{own}", dot(within));
        let head = match &self.head {
            Some(part) => recorder.part(named("before"), || part.start(inputs, with))?,
            None => Results::Host(vec![]),
        };
        let mut run = self.begin(inputs, head)?;
        if let Some((sizing, operands)) = self.deciding(&run)? {
            run.sized = recorder.part(named("deciding"), || sizing.run(&operands, with))?;
        }
        let tail = self.tail(&run)?;
        let operands = &self.stages.tail_operands;
        recorder.part(named("after"), || match &tail.part {
            Part::Session(planned) => match in_place(&planned.session, &run, operands, recorder) {
                Err(GpuError::TooWide(_)) => interpret(&tail.module, &run.read(operands)?, with),
                other => Ok(other?),
            },
            _ => tail.run(&run.read(operands)?, with),
        })
    }

    /// Runs once, part by part with values in host memory, and lets `visit` look at each part after it ran.
    ///
    /// # Errors
    /// As [`Staged::run`], and errors of `visit`.
    pub fn visit(&self, inputs: &[Tensor], visit: &mut Visit<'_, E>) -> Result<Vec<Tensor>, E> {
        self.visit_within("", inputs, visit)
    }
    fn visit_within(&self, within: &str, inputs: &[Tensor], visit: &mut Visit<'_, E>) -> Result<Vec<Tensor>, E> {
        let name = |part: &str| format!("{within}{part}");
        let head = match &self.head {
            Some(part) => part.visit(&name("before"), inputs, &self.functions, visit)?,
            None => vec![],
        };
        let mut run = self.begin(inputs, Results::Host(head))?;
        if let Some((sizing, operands)) = self.deciding(&run)? {
            run.sized = sizing.visit(&name("deciding"), &operands, &self.functions, visit)?;
        }
        let operands = run.read(&self.stages.tail_operands)?;
        self.tail(&run)?.visit(&name("after"), &operands, &self.functions, visit)
    }

    /// The second part for the sizes of this run.
    fn tail(&self, run: &Run<'_>) -> Result<Arc<Opened<E>>, E> {
        let shapes = self.stages.tail_operands.iter().map(|&v| run.shape(v)).collect();
        let read = run.read(&self.stages.reads())?;
        let form = self.stages.tail_form(&read).map_err(|e| GpuError::Input(e.to_string()))?;
        let sizes: Sizes = (run.dims.clone(), shapes, form);
        self.tails.get(sizes, |(dims, shapes, _)| {
            let module = self.stages.tail_at(dims, shapes, &read).map_err(|e| GpuError::Input(e.to_string()))?;
            Opened::new(&self.open, module)
        })
    }

    /// Lists of sizes that are ready to run.
    pub fn sizes_kept(&self) -> usize {
        self.tails.len()
    }

    /// True when one of the parts that are open computes something on the device.
    pub fn has_device_steps(&self) -> bool {
        self.any_part(&|p| p.has_device_steps())
    }
    /// True when one of the parts that are open computes something on the host.
    pub fn has_host_steps(&self) -> bool {
        self.any_part(&|p| p.has_host_steps())
    }
    fn any_part(&self, is: &dyn Fn(&Part<E>) -> bool) -> bool {
        let is = |opened: &Opened<E>| is(&opened.part);
        self.head.iter().any(is) || self.sizings.any(&is) || self.tails.any(&is)
    }
}

/// Runs a session with the operands in `list`, those on the device as they are.
fn in_place(
    session: &Session,
    run: &Run<'_>,
    list: &[PartValue],
    recorder: &Recorder,
) -> Result<Vec<Tensor>, GpuError> {
    let given = run.operands(list, session)?;
    let given: Vec<RunInput<'_>> = given.iter().map(RunTensor::as_input).collect();
    let done = pollster::block_on(session.run_in_place(&given, &[], recorder))?;
    pollster::block_on(done.read())
}

impl<E: PartError> Opened<E> {
    fn new(open: &Open<E>, module: Module) -> Result<Opened<E>, E> {
        Ok(Opened { part: open(module.clone())?, module })
    }
    /// As [`Part::run`], with integers of any width.
    fn run(&self, inputs: &[Tensor], with: With<'_>) -> Result<Vec<Tensor>, E> {
        match self.part.run(inputs, with) {
            Err(e) if e.is_too_wide() => interpret(&self.module, inputs, with),
            other => other,
        }
    }
    /// As [`Part::start`], with integers of any width.
    fn start(&self, inputs: &[Tensor], with: With<'_>) -> Result<Results, E> {
        match self.part.start(inputs, with) {
            Err(e) if e.is_too_wide() => Ok(Results::Host(interpret(&self.module, inputs, with)?)),
            other => other,
        }
    }
    /// As [`Part::visit`], with integers of any width.
    fn visit(
        &self,
        named: &str,
        inputs: &[Tensor],
        functions: &HostFunctions,
        visit: &mut Visit<'_, E>,
    ) -> Result<Vec<Tensor>, E> {
        match self.part.visit(named, inputs, functions, visit) {
            Err(e) if e.is_too_wide() => visit_on_host(&self.module, named, inputs, functions, visit),
            other => other,
        }
    }
}

impl<E: PartError> Part<E> {
    /// Runs once.
    ///
    /// # Errors
    /// As [`Session::run`].
    fn run(&self, inputs: &[Tensor], with: With<'_>) -> Result<Vec<Tensor>, E> {
        match self {
            Part::Session(planned) => Ok(planned.session.run_recorded(inputs, with.recorder)?),
            Part::Open(planned) => {
                let given: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
                Ok(planned.session.for_inputs(&given)?.run_recorded(inputs, with.recorder)?)
            }
            Part::Other(part) => part.run(inputs, with.recorder),
            Part::Host(module) => interpret(module, inputs, with),
            Part::Staged(staged) => staged.run_recorded(inputs, with.recorder),
            Part::Loop(l) => {
                let named = |within: &str| format!("{within}{}body", dot(within));
                let mut body = |operands: &[Tensor]| with.recorder.part(named, || l.1.run(operands, with));
                l.0.run(inputs, &mut body, of_host)
            }
        }
    }
    /// Runs once, and lets `visit` look at it.
    ///
    /// # Errors
    /// As [`Staged::visit`].
    fn visit(
        &self,
        name: &str,
        inputs: &[Tensor],
        functions: &HostFunctions,
        visit: &mut Visit<'_, E>,
    ) -> Result<Vec<Tensor>, E> {
        let at;
        let (ran, results) = match self {
            Part::Session(planned) => (Ran::Plan(planned), planned.session.run(inputs)?),
            Part::Open(planned) => {
                at = planned.at(inputs)?;
                (Ran::Plan(&at), at.session.run(inputs)?)
            }
            Part::Other(part) => (Ran::Other(part.as_any()), part.run(inputs, &Recorder::default())?),
            Part::Host(module) => return visit_on_host(module, name, inputs, functions, visit),
            Part::Staged(staged) => return staged.visit_within(&format!("{name}."), inputs, visit),
            Part::Loop(l) => {
                let mut first = None;
                let mut body = |operands: &[Tensor]| {
                    first.get_or_insert_with(|| operands.to_vec());
                    l.1.run(operands, With { functions, recorder: &Recorder::default() })
                };
                let results = l.0.run(inputs, &mut body, of_host)?;
                if let Some(operands) = first {
                    l.1.visit(&format!("{name}.body"), &operands, functions, visit)?;
                }
                return Ok(results);
            }
        };
        visit(&PartRun { name, ran, operands: inputs })?;
        Ok(results)
    }
    /// Runs once, and leaves results where they are.
    fn start(&self, inputs: &[Tensor], with: With<'_>) -> Result<Results, E> {
        let given: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
        let on = |session: &Session| -> Result<Results, E> {
            Ok(Results::Device(Box::new(pollster::block_on(session.run_in_place(&given, &[], with.recorder))?)))
        };
        match self {
            Part::Session(planned) if planned.session.has_device_steps() => on(&planned.session),
            Part::Open(planned) if planned.session.first().has_device_steps() => {
                on(&*planned.session.for_inputs(&given)?)
            }
            other => Ok(Results::Host(other.run(inputs, with)?)),
        }
    }
    fn has_device_steps(&self) -> bool {
        match self {
            Part::Session(planned) => planned.session.has_device_steps(),
            Part::Open(planned) => planned.session.first().has_device_steps(),
            Part::Other(part) => part.has_kernels(),
            Part::Host(_) => false,
            Part::Staged(staged) => staged.has_device_steps(),
            Part::Loop(l) => l.1.has_device_steps(),
        }
    }
    fn has_host_steps(&self) -> bool {
        match self {
            Part::Session(planned) => planned.session.has_host_steps(),
            Part::Open(planned) => planned.session.first().has_host_steps(),
            Part::Other(part) => part.has_host_steps(),
            Part::Host(_) => true,
            Part::Staged(staged) => staged.has_host_steps(),
            // The host decides whether it goes on.
            Part::Loop(_) => true,
        }
    }
}

/// The separator of the name of a part and that of one in it.
fn dot(within: &str) -> &'static str {
    if within.is_empty() { "" } else { "." }
}

/// True for a part that computes anything.
fn gives(part: &Module) -> bool {
    !part.main().results().is_empty()
}
