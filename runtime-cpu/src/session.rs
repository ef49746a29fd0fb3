//! Sessions: constants packed once, activations in one arena, the steps of a plan run on tensors.

use crate::constants::{Activations, Block, Constants, Place};
use crate::emit::Kernel;
use crate::memory::View;
use crate::program::Program;
use crate::result_memory::ResultMemory;
use crate::times::{Log, Span, Work};
use crate::{CpuError, Processor};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tensor_ir::fault::Fault;
use tensor_ir::name::Name;
use tensor_ir::plan::storage::{decode_tensor, encode_tensor};
use tensor_ir::plan::{
    Branch, BufferView, Call, Content, Dispatch, Handover, HostCaller, HostStep, Loop, Plan, Step, Trips,
};
use tensor_ir::tensor::{Tensor, reserve};

/// Calls of the plan's functions inside each other, at most.
const MOST_CALLS: usize = 1000;

/// An open session: any thread may run on it, several at once; they share the processor's threads.
pub struct Session {
    processor: Arc<Processor>,
    pub(crate) plan: Plan,
    /// The plan may come from a stranger: what would be a bug is an error of its file.
    pub(crate) is_foreign: bool,
    /// Kernels leave elements of results as they are.
    pub(crate) stores_parts: bool,
    constants: Constants,
    /// Memory of runs that are over.
    free: Mutex<Vec<Activations>>,
    /// Places of the plan's dispatches among them all, by their addresses in the plan.
    numbers: OnceLock<FxHashMap<usize, usize>>,
}

/// What a run has.
pub(crate) struct Run<'s> {
    pub session: &'s Session,
    pub places: Vec<Place>,
    pub host: Vec<Option<Tensor>>,
    functions: &'s dyn HostCaller,
    /// Calls of each function that are under way.
    depth: Vec<usize>,
    calls: usize,
    /// Memory of inner calls, and of rows of loops.
    more: Vec<Block>,
    /// Rows of what loops collect without an end.
    rows: FxHashMap<usize, usize>,
    log: Option<Log>,
    /// Memory that results are computed into, by their place among the outputs; its length does not matter.
    pub results: Vec<Option<Vec<u8>>>,
}

impl Session {
    /// Opens a session: constants, which `load` reads, are packed one after another.
    ///
    /// # Errors
    /// Constants that cannot be read or packed; kernels of another emitter.
    pub fn open(
        processor: Arc<Processor>,
        plan: &Plan,
        load: &dyn Fn(Name) -> Result<Tensor, Fault>,
    ) -> Result<Session, CpuError> {
        Session::open_packed(processor, plan, load, &|_| None)
    }

    /// As [`Session::open`]; `ready` has the bytes of buffers whose constants [`pack_constant`](crate::pack_constant)
    /// has packed before. These are not read, and not copied if they begin at a multiple of 64 bytes.
    ///
    /// # Errors
    /// As there.
    pub fn open_packed(
        processor: Arc<Processor>,
        plan: &Plan,
        load: &dyn Fn(Name) -> Result<Tensor, Fault>,
        ready: &dyn Fn(usize) -> Option<Bytes>,
    ) -> Result<Session, CpuError> {
        let mut stores_parts = false;
        for k in &plan.kernels {
            stores_parts |= kernel_of(k.emitted.module.as_ref(), &k.name)?.stores_parts();
        }
        let constants = Constants::load(plan, load, ready, processor.isa())?;
        Ok(Session {
            processor,
            plan: plan.clone(),
            is_foreign: false,
            stores_parts,
            constants,
            free: Mutex::default(),
            numbers: OnceLock::new(),
        })
    }

    /// A session with the same constants for another plan: one with the same kernels and constants, for other sizes.
    pub fn with_plan(&self, plan: Plan) -> Session {
        let constants = self.constants.of(&plan.same_constants(&self.plan));
        let Session { is_foreign, stores_parts, .. } = *self;
        let (processor, free, numbers) = (self.processor.clone(), Mutex::default(), OnceLock::new());
        Session { processor, plan, is_foreign, stores_parts, constants, free, numbers }
    }

    /// The session, whose plan may come from a stranger's file: if a run fails where it never should, that is
    /// [`CpuError::Plan`].
    pub fn of_foreign_plan(self) -> Session {
        Session { is_foreign: true, ..self }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    /// Where it runs.
    pub fn processor(&self) -> &Arc<Processor> {
        &self.processor
    }
    /// True when the plan computes something in kernels.
    pub fn has_kernels(&self) -> bool {
        self.plan.dispatches().next().is_some()
    }
    /// True when the plan computes something on tensors, outside of kernels.
    pub fn has_host_steps(&self) -> bool {
        self.plan.all_steps().iter().any(|s| matches!(s, Step::Host(_)))
    }
    /// Runs once: `inputs` in the order of the plan's inputs; results in the order of its outputs.
    ///
    /// # Errors
    /// Wrong inputs, a failed host step.
    pub fn run(&self, inputs: &[Tensor], functions: &dyn HostCaller) -> Result<Vec<Tensor>, CpuError> {
        Ok(self.run_with(inputs, functions, &mut [], false)?.0.into_iter().flatten().collect())
    }
    /// Runs once, with results in given memory, in the order of the plan's outputs: `None` stands for each that has
    /// memory. Kernels write it directly where its form is that of their buffer, and no input lies there.
    ///
    /// # Errors
    /// As [`Session::run`]; memory for another type or shape.
    pub fn run_into(
        &self,
        inputs: &[Tensor],
        functions: &dyn HostCaller,
        memory: &mut [Option<ResultMemory<'_>>],
    ) -> Result<Vec<Option<Tensor>>, CpuError> {
        Ok(self.run_with(inputs, functions, memory, false)?.0)
    }
    /// Runs once; results, and what was done when, in its order.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_measured(
        &self,
        inputs: &[Tensor],
        functions: &dyn HostCaller,
    ) -> Result<(Vec<Tensor>, Vec<Span>), CpuError> {
        let (results, spans) = self.run_with(inputs, functions, &mut [], true)?;
        Ok((results.into_iter().flatten().collect(), spans))
    }
    fn run_with(
        &self,
        inputs: &[Tensor],
        functions: &dyn HostCaller,
        memory: &mut [Option<ResultMemory<'_>>],
        measure: bool,
    ) -> Result<(Vec<Option<Tensor>>, Vec<Span>), CpuError> {
        let log = measure.then(Log::new);
        let held = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let activations = held.map_or_else(|| self.constants.activations(&self.plan), Ok)?;
        let mut run = Run {
            session: self,
            places: activations.places.clone(),
            host: vec![None; self.plan.buffers.len()],
            functions,
            depth: vec![0; self.plan.functions.len()],
            calls: 1,
            more: vec![],
            rows: FxHashMap::default(),
            log,
            results: vec![],
        };
        for (i, t) in &self.constants.host {
            run.host[*i] = Some(t.clone());
        }
        let outputs = run.all(inputs, memory);
        let spans = run.log.take().map_or(vec![], Log::done);
        drop(run);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(activations);
        let outputs = outputs.map_err(|e| match e {
            CpuError::Internal(why) if self.is_foreign => CpuError::Plan(why),
            other => other,
        });
        Ok((outputs?, spans))
    }
    /// The place of a dispatch in the plan.
    fn number(&self, d: &Dispatch) -> usize {
        let address = |d: &Dispatch| std::ptr::from_ref(d) as usize;
        let all = self.numbers.get_or_init(|| self.plan.dispatches().map(address).zip(0..).collect());
        all.get(&address(d)).copied().unwrap_or(0)
    }
}

fn kernel_of<'k>(module: &'k (dyn std::any::Any + Send + Sync), name: &str) -> Result<&'k Kernel, CpuError> {
    module.downcast_ref::<Kernel>().ok_or_else(|| CpuError::Internal(format!("kernel `{name}` is none of the CPU's")))
}

fn truth(t: &Tensor) -> bool {
    t.to_i64_vec().first().is_some_and(|&c| c != 0)
}

impl Run<'_> {
    fn all(
        &mut self,
        inputs: &[Tensor],
        memory: &mut [Option<ResultMemory<'_>>],
    ) -> Result<Vec<Option<Tensor>>, CpuError> {
        let session = self.session;
        let views = &session.plan.inputs;
        if inputs.len() != views.len() {
            return Err(CpuError::Input(format!("the plan has {} inputs, got {}", views.len(), inputs.len())));
        }
        self.note(|| Work::Prepare);
        for (view, t) in views.iter().zip(inputs) {
            if t.dtype() != view.dtype || t.shape() != view.shape {
                let (want, got) = (format!("{}{:?}", view.dtype, view.shape), format!("{}{:?}", t.dtype(), t.shape()));
                return Err(CpuError::Input(format!("input `{}` is {want}, got {got}", view.name)));
            }
            match self.where_it_lies(view, t) {
                Some(place) => self.places[view.buffer] = place,
                None => self.write(view, t)?,
            }
        }
        self.inputs_on_host(inputs);
        self.note(|| Work::Inputs);
        let given = self.given_memory(inputs, memory)?;
        self.steps(&session.plan.steps)?;
        self.note(|| Work::Prepare);
        let outputs = self.outputs(&given, memory);
        self.note(|| Work::Outputs);
        outputs
    }
    /// Notes what went on since the last note, if the run is measured.
    fn note(&mut self, what: impl FnOnce() -> Work) {
        if let Some(log) = &mut self.log {
            log.note(what());
        }
    }
    pub(crate) fn is_on_host(&self, buffer: usize) -> bool {
        matches!(self.session.plan.buffers[buffer].content, Content::Host(_))
    }
    pub(crate) fn read(&self, view: &BufferView) -> Result<Tensor, CpuError> {
        if self.is_on_host(view.buffer) {
            let t = self.host[view.buffer].as_ref();
            let t = t.ok_or_else(|| CpuError::Internal(format!("`{}` is read before it is computed", view.name)))?;
            // A view may name the elements by other sizes; loops collect as many rows as there are.
            let same = view.shape.iter().product::<usize>() == t.len();
            return Ok(if same { t.reshaped(view.shape.clone()) } else { t.clone() });
        }
        let mut shape = view.shape.clone();
        if let (Some(rows), Some(first)) = (self.rows.get(&view.buffer), shape.first_mut()) {
            *first = *rows;
        }
        let bytes = self.places[view.buffer].read(usize::MAX);
        decode_tensor(bytes, view.dtype, &shape, view.encoding).map_err(|e| CpuError::of(e, CpuError::Internal))
    }
    fn write(&mut self, view: &BufferView, t: &Tensor) -> Result<(), CpuError> {
        if self.is_on_host(view.buffer) {
            self.host[view.buffer] = Some(t.clone());
            return Ok(());
        }
        let too_wide = |e| CpuError::TooWide(format!("`{}`: {e}", view.name));
        let bytes = encode_tensor(t, view.encoding).map_err(|e| CpuError::of(e, too_wide))?;
        self.places[view.buffer].write(0, &bytes)
    }
    fn steps(&mut self, steps: &[Step]) -> Result<(), CpuError> {
        steps.iter().try_for_each(|s| match s {
            Step::Gpu(list) => list.iter().try_for_each(|d| self.dispatch(d)),
            Step::Host(h) => self.host_step(h),
            Step::Copy { from, to } => self.copy(*from, *to),
            Step::Branch(b) => self.branch(b),
            Step::Loop(l) => self.run_loop(l),
            Step::Call(c) => self.call(c),
        })
    }
    fn dispatch(&mut self, d: &Dispatch) -> Result<(), CpuError> {
        let session = self.session;
        let k = &session.plan.kernels[d.kernel];
        let kernel = kernel_of(k.emitted.module.as_ref(), &k.name)?;
        let symbols: Vec<i64> = d.symbols.iter().map(|s| i64::from(*s)).collect();
        let program: Arc<Program> = kernel.program(&symbols).map_err(CpuError::Internal)?;
        let each = k.emitted.bindings.iter().zip(&d.buffers).map(|(b, &(buffer, _))| {
            let place = self.places[buffer];
            kernel.view(b, place.at, place.bytes)
        });
        let views: Vec<(usize, View)> = each.collect();
        self.note(|| Work::Prepare);
        let done = catch_unwind(AssertUnwindSafe(|| kernel.run(&program, &views, &session.processor)));
        done.map_err(|_| CpuError::Internal(format!("kernel `{}` accesses what is out of bounds", k.name)))?;
        self.note(|| Work::Kernel(session.number(d)));
        Ok(())
    }
    fn host_step(&mut self, h: &HostStep) -> Result<(), CpuError> {
        self.note(|| Work::Prepare);
        let inputs = h.inputs.iter().map(|v| self.read(v)).collect::<Result<Vec<_>, _>>()?;
        self.note(|| Work::Operands);
        let outputs = (h.run)(inputs, self.functions).map_err(|e| {
            let lacks = h.call.is_some_and(|c| !c.external && !self.functions.contains(c.function));
            if lacks {
                CpuError::HostFunction(format!("`{}` {e}", h.name))
            } else {
                let message = format!("{}: {e}", h.name);
                CpuError::of(Fault { message, ..e }, CpuError::Host)
            }
        })?;
        self.note(|| Work::Host(h.name.to_string(), h.group));
        h.outputs.iter().zip(&outputs).try_for_each(|(v, t)| self.write(v, t))?;
        self.note(|| Work::Operands);
        Ok(())
    }
    fn copy(&mut self, from: usize, to: usize) -> Result<(), CpuError> {
        if self.is_on_host(to) {
            self.host[to] = self.host[from].clone();
            return Ok(());
        }
        self.note(|| Work::Prepare);
        let bytes = self.session.plan.buffers[from].bytes.min(self.session.plan.buffers[to].bytes);
        let source = self.places[from].read(bytes as usize);
        self.places[to].write(0, source)?;
        self.note(|| Work::Copy);
        Ok(())
    }
    fn branch(&mut self, b: &Branch) -> Result<(), CpuError> {
        let taken = truth(&self.read(&b.condition)?);
        self.steps(if taken { &b.then } else { &b.otherwise })
    }
    fn run_loop(&mut self, l: &Loop) -> Result<(), CpuError> {
        let trips = match &l.trips {
            Trips::Fixed(n) => Some(*n),
            Trips::Unlimited => None,
            Trips::Read(view) => Some(self.read(view)?.to_i64_vec().first().map_or(0, |n| (*n).max(0) as u64)),
        };
        let mut more = match &l.begin {
            Some(view) => truth(&self.read(view)?),
            None => true,
        } && trips != Some(0);
        let mut rows: Vec<Vec<Tensor>> = vec![vec![]; l.collected.len()];
        let mut done = 0u64;
        while more {
            if let Some(view) = &l.index {
                let at = i64::try_from(done).unwrap_or(i64::MAX);
                let number = Tensor::from_vec(view.shape.clone(), vec![at]);
                self.write(view, &number)?;
            }
            self.steps(&l.body)?;
            for (c, rows) in l.collected.iter().zip(&mut rows) {
                match self.is_on_host(c.all) {
                    true => rows.push(self.read(&c.row)?),
                    false => self.collect(c.row.buffer, c.all, done, c.row_bytes as usize, c.grows)?,
                }
            }
            done += 1;
            more = trips.is_none_or(|n| done < n);
            if let (true, Some(go_on)) = (more, &l.go_on) {
                more = truth(&self.read(go_on)?);
            }
            for c in &l.carried {
                match self.is_on_host(c.now) {
                    true => self.host.swap(c.now, c.next),
                    false if l.alternates() => self.places.swap(c.now, c.next),
                    false => self.copy(c.next, c.now)?,
                }
            }
        }
        let odd = l.alternates() && !done.is_multiple_of(2);
        for c in l.carried.iter().filter(|_| odd) {
            if !self.is_on_host(c.now) {
                self.copy(c.now, c.next)?;
                self.places.swap(c.now, c.next);
            }
        }
        for (c, rows) in l.collected.iter().zip(&rows) {
            if c.grows {
                self.rows.insert(c.all, usize::try_from(done).unwrap_or(usize::MAX));
            }
            if self.is_on_host(c.all) {
                let all = Tensor::stack(c.row.dtype, &c.row.shape, rows);
                self.host[c.all] = Some(all.map_err(|e| CpuError::of(e, CpuError::Host))?);
            }
        }
        Ok(())
    }
    /// Keeps a row of an iteration, in more memory where there is none left.
    fn collect(&mut self, row: usize, all: usize, at: u64, bytes: usize, grows: bool) -> Result<(), CpuError> {
        let start = (at as usize).saturating_mul(bytes);
        if grows && start.saturating_add(bytes) > self.places[all].bytes {
            let mut block = Block::of(2 * (start as u64).saturating_add(bytes as u64))?;
            let old = self.places[all].read(start);
            block.bytes_mut()[..old.len()].copy_from_slice(old);
            self.places[all] = block.place();
            self.more.push(block);
        }
        let source = self.places[row].read(bytes);
        self.places[all].write(start, source)
    }
    /// Runs the steps of a function. Calls of one function inside each other have memory of their own for what it
    /// writes.
    fn call(&mut self, c: &Call) -> Result<(), CpuError> {
        let f = &self.session.plan.functions[c.callee];
        if self.calls >= MOST_CALLS {
            let text = format!("@{} and others call each other more than {MOST_CALLS} times deep", f.name);
            return Err(CpuError::Host(text));
        }
        let arguments = self.take(&c.arguments)?;
        let kept: Vec<(Place, Option<Tensor>)> =
            f.buffers.iter().map(|&b| (self.places[b], self.host[b].take())).collect();
        if self.depth[c.callee] > 0 {
            for &b in &f.buffers {
                let mut block = Block::of(self.session.plan.buffers[b].bytes)?;
                self.places[b] = Place { bytes: self.session.plan.buffers[b].bytes as usize, ..block.place() };
                self.more.push(block);
            }
        }
        self.depth[c.callee] += 1;
        self.calls += 1;
        self.put(arguments, &c.arguments)?;
        let done = self.steps(&f.body);
        let results = done.and_then(|()| self.take(&c.results));
        self.depth[c.callee] -= 1;
        self.calls -= 1;
        for (&b, (place, host)) in f.buffers.iter().zip(kept) {
            (self.places[b], self.host[b]) = (place, host);
        }
        self.put(results?, &c.results)
    }
    fn take(&self, list: &[Handover]) -> Result<Vec<Value>, CpuError> {
        let one = |h: &Handover| {
            if self.is_on_host(h.to) {
                return Ok(Value::Host(self.host[h.from].clone()));
            }
            let from = self.places[h.from].read(self.session.plan.buffers[h.from].bytes as usize);
            let mut bytes = reserve(from.len()).map_err(|e| CpuError::NoRoom(e.message))?;
            bytes.extend_from_slice(from);
            Ok(Value::Bytes(bytes))
        };
        list.iter().map(one).collect()
    }
    fn put(&mut self, values: Vec<Value>, list: &[Handover]) -> Result<(), CpuError> {
        for (value, h) in values.into_iter().zip(list) {
            match value {
                Value::Host(t) => self.host[h.to] = t,
                Value::Bytes(bytes) => {
                    let n = bytes.len().min(self.places[h.to].bytes);
                    self.places[h.to].write(0, &bytes[..n])?;
                }
            }
        }
        Ok(())
    }
}

/// A value on its way from one function to another.
enum Value {
    Host(Option<Tensor>),
    Bytes(Vec<u8>),
}
