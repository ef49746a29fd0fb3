//! Sessions: constants packed once, activations in one arena, the steps of a plan run on tensors.

use crate::emit::Kernel;
use crate::execute::Line;
use crate::memory::View;
use crate::program::Program;
use crate::{CpuError, Isa};
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tensor_ir::name::Name;
use tensor_ir::plan::storage::{decode_tensor, encode_tensor};
use tensor_ir::plan::{
    Branch, BufferView, Call, Content, Dispatch, Handover, HostCaller, HostContent, HostStep, Loop, Plan, Step, Trips,
};
use tensor_ir::tensor::Tensor;
use tensor_ir::tir::Encoding;

/// Calls of the plan's functions inside each other, at most.
const MOST_CALLS: usize = 1000;

/// How a session runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionOptions {
    /// Threads of the pool; 0 for one a core.
    pub threads: usize,
    /// The instruction set; none for the widest that the machine has.
    pub isa: Option<Isa>,
}

/// Memory that is aligned to cache lines.
struct Block(Vec<Line>);
impl Block {
    fn of(bytes: u64) -> Block {
        Block(vec![Line::ZERO; (bytes as usize).div_ceil(64).max(1)])
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        let n = self.0.len() * 64;
        // SAFETY: the lines are plain bytes that this value owns.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), n) }
    }
    fn place(&mut self) -> Place {
        Place { at: self.0.as_mut_ptr().cast(), bytes: self.0.len() * 64 }
    }
}

/// Where a buffer of the plan is.
#[derive(Clone, Copy)]
struct Place {
    at: *mut u8,
    bytes: usize,
}
// SAFETY: places point into blocks that the run or the session owns; the session never writes to constants after it has opened.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    const NONE: Place = Place { at: std::ptr::dangling_mut::<Line>().cast(), bytes: 0 };

    fn read<'a>(&self, bytes: usize) -> &'a [u8] {
        // SAFETY: the place has `bytes` bytes that nothing writes while steps between kernels run: these run one after another.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes.min(bytes)) }
    }
    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), CpuError> {
        if at + bytes.len() > self.bytes {
            return Err(CpuError::Internal(format!("{} bytes at {at} of a buffer of {}", bytes.len(), self.bytes)));
        }
        // SAFETY: in bounds, as just checked; the source is another buffer, or the very same place.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.at.add(at), bytes.len()) };
        Ok(())
    }
}

/// A kernel's times over a run.
#[derive(Clone, Debug, Default)]
pub struct KernelTime {
    /// Calls.
    pub calls: u64,
    /// Nanoseconds of all of them.
    pub ns: f64,
}

/// An open session: any thread may run on it, several at once; they share the pool of threads.
pub struct Session {
    plan: Plan,
    /// Constants of the plan, by buffer.
    constants: Vec<Place>,
    host_constants: FxHashMap<usize, Tensor>,
    isa: Isa,
    pool: Option<rayon::ThreadPool>,
    /// Memory of runs that are over.
    free: Mutex<Vec<Activations>>,
    _memory: Vec<Block>,
}

/// The buffers that runs write, at their places in one arena.
struct Activations {
    places: Vec<Place>,
    _arena: Block,
}

/// What a run has.
struct Run<'s> {
    session: &'s Session,
    places: Vec<Place>,
    host: Vec<Option<Tensor>>,
    functions: &'s dyn HostCaller,
    /// Calls of each function that are under way.
    depth: Vec<usize>,
    calls: usize,
    /// Memory of inner calls, and of rows of loops.
    more: Vec<Block>,
    /// Rows of what loops collect without an end.
    rows: FxHashMap<usize, usize>,
    times: Option<Vec<KernelTime>>,
}

impl Session {
    /// Opens a session: constants, which `load` reads, are packed one after another.
    ///
    /// # Errors
    /// Constants that cannot be read or packed; kernels of another emitter.
    pub fn open(
        plan: &Plan,
        load: &dyn Fn(Name) -> Result<Tensor, String>,
        options: SessionOptions,
    ) -> Result<Session, CpuError> {
        let isa = options.isa.unwrap_or_else(Isa::best);
        if !isa.is_available() {
            return Err(CpuError::Internal(format!("this machine has no {}", isa.name())));
        }
        for k in &plan.kernels {
            kernel_of(k.emitted.module.as_ref(), &k.name)?;
        }
        let (mut memory, mut constants) = (vec![], vec![Place::NONE; plan.buffers.len()]);
        let mut host_constants = FxHashMap::default();
        for (i, b) in plan.buffers.iter().enumerate() {
            match &b.content {
                Content::Constant { name, packer } => {
                    let error = |e: String| CpuError::Constant(name.to_string(), e);
                    let mut t = load(*name).map_err(error)?;
                    if let Some(p) = packer {
                        let packed = tensor_ir::interpreter::run_tensor_function(p, &[t]);
                        let packed = packed.map_err(|e| error(e.to_string()))?.pop();
                        t = packed.ok_or_else(|| error("its packer has no result".into()))?;
                    }
                    let narrow = if t.dtype().size() == 8 { Encoding::Narrow } else { Encoding::Native };
                    let bytes = encode_tensor(&t, b.encoding.unwrap_or(narrow)).map_err(error)?;
                    let mut block = Block::of(b.bytes.max(bytes.len() as u64));
                    block.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
                    constants[i] = block.place();
                    memory.push(block);
                }
                Content::Host(HostContent::Constant(name)) => {
                    let t = load(*name).map_err(|e| CpuError::Constant(name.to_string(), e))?;
                    host_constants.insert(i, t);
                }
                _ => {}
            }
        }
        let pool = match options.threads {
            1 => None,
            n => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(n)
                    .build()
                    .map_err(|e| CpuError::Internal(e.to_string()))?,
            ),
        };
        let free = Mutex::default();
        Ok(Session { plan: plan.clone(), constants, host_constants, isa, pool, free, _memory: memory })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    /// Threads that kernels run on.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, |p| p.current_num_threads())
    }
    /// Runs once: `inputs` in the order of the plan's inputs; results in the order of its outputs.
    ///
    /// # Errors
    /// Wrong inputs, a failed host step.
    pub fn run(&self, inputs: &[Tensor], functions: &dyn HostCaller) -> Result<Vec<Tensor>, CpuError> {
        Ok(self.run_with(inputs, functions, false)?.0)
    }
    /// Runs once and measures each kernel of the plan.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_measured(
        &self,
        inputs: &[Tensor],
        functions: &dyn HostCaller,
    ) -> Result<(Vec<Tensor>, Vec<KernelTime>), CpuError> {
        let (outputs, times) = self.run_with(inputs, functions, true)?;
        Ok((outputs, times.unwrap_or_default()))
    }
    fn run_with(
        &self,
        inputs: &[Tensor],
        functions: &dyn HostCaller,
        measure: bool,
    ) -> Result<(Vec<Tensor>, Option<Vec<KernelTime>>), CpuError> {
        let held = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let activations = held.unwrap_or_else(|| self.activations());
        let mut run = Run {
            session: self,
            places: activations.places.clone(),
            host: vec![None; self.plan.buffers.len()],
            functions,
            depth: vec![0; self.plan.functions.len()],
            calls: 1,
            more: vec![],
            rows: FxHashMap::default(),
            times: measure.then(|| vec![KernelTime::default(); self.plan.kernels.len()]),
        };
        for (i, t) in &self.host_constants {
            run.host[*i] = Some(t.clone());
        }
        let outputs = run.all(inputs);
        let times = run.times.take();
        drop(run);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(activations);
        Ok((outputs?, times))
    }
    fn activations(&self) -> Activations {
        let own = |c: &Content| matches!(c, Content::Input(_) | Content::Pool);
        let total = self.plan.buffers.iter().filter(|b| own(&b.content)).map(|b| b.bytes.next_multiple_of(64)).sum();
        let mut arena = Block::of(total);
        let all = arena.place();
        let mut at = 0;
        let places = self.plan.buffers.iter().zip(&self.constants).map(|(b, constant)| {
            if !own(&b.content) {
                return *constant;
            }
            let place = Place { at: all.at.wrapping_add(at), bytes: b.bytes as usize };
            at += b.bytes.next_multiple_of(64) as usize;
            place
        });
        Activations { places: places.collect(), _arena: arena }
    }
}

fn kernel_of<'k>(module: &'k (dyn std::any::Any + Send + Sync), name: &str) -> Result<&'k Kernel, CpuError> {
    module.downcast_ref::<Kernel>().ok_or_else(|| CpuError::Internal(format!("kernel `{name}` is none of the CPU's")))
}

fn truth(t: &Tensor) -> bool {
    t.to_i64_vec().first().is_some_and(|&c| c != 0)
}

impl Run<'_> {
    fn all(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, CpuError> {
        let session = self.session;
        let views = &session.plan.inputs;
        if inputs.len() != views.len() {
            return Err(CpuError::Input(format!("the plan has {} inputs, got {}", views.len(), inputs.len())));
        }
        for (view, t) in views.iter().zip(inputs) {
            if t.dtype() != view.dtype || t.shape() != view.shape {
                let (want, got) = (format!("{}{:?}", view.dtype, view.shape), format!("{}{:?}", t.dtype(), t.shape()));
                return Err(CpuError::Input(format!("input `{}` is {want}, got {got}", view.name)));
            }
            self.write(view, t)?;
        }
        self.inputs_on_host(inputs);
        self.steps(&session.plan.steps)?;
        session.plan.outputs.iter().map(|v| self.read(v)).collect()
    }
    fn inputs_on_host(&mut self, inputs: &[Tensor]) {
        for (i, b) in self.session.plan.buffers.iter().enumerate() {
            if let Content::Host(HostContent::Input(n)) = b.content {
                self.host[i] = inputs.get(n).cloned();
            }
        }
    }
    fn is_on_host(&self, buffer: usize) -> bool {
        matches!(self.session.plan.buffers[buffer].content, Content::Host(_))
    }
    fn read(&self, view: &BufferView) -> Result<Tensor, CpuError> {
        if self.is_on_host(view.buffer) {
            let t = self.host[view.buffer].clone();
            return t.ok_or_else(|| CpuError::Internal(format!("`{}` is read before it is computed", view.name)));
        }
        let mut shape = view.shape.clone();
        if let (Some(rows), Some(first)) = (self.rows.get(&view.buffer), shape.first_mut()) {
            *first = *rows;
        }
        let bytes = self.places[view.buffer].read(usize::MAX);
        decode_tensor(bytes, view.dtype, &shape, view.encoding).map_err(CpuError::Internal)
    }
    fn write(&mut self, view: &BufferView, t: &Tensor) -> Result<(), CpuError> {
        if self.is_on_host(view.buffer) {
            self.host[view.buffer] = Some(t.clone());
            return Ok(());
        }
        let bytes = encode_tensor(t, view.encoding).map_err(|e| CpuError::TooWide(format!("`{}`: {e}", view.name)))?;
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
        let start = self.times.is_some().then(Instant::now);
        let done = catch_unwind(AssertUnwindSafe(|| kernel.run(&program, &views, session.isa, session.pool.as_ref())));
        done.map_err(|_| CpuError::Internal(format!("kernel `{}` accesses what is out of bounds", k.name)))?;
        if let (Some(start), Some(times)) = (start, &mut self.times) {
            times[d.kernel].calls += 1;
            times[d.kernel].ns += start.elapsed().as_nanos() as f64;
        }
        Ok(())
    }
    fn host_step(&mut self, h: &HostStep) -> Result<(), CpuError> {
        let inputs = h.inputs.iter().map(|v| self.read(v)).collect::<Result<Vec<_>, _>>()?;
        let outputs = (h.run)(inputs, self.functions).map_err(|e| CpuError::Host(format!("{}: {e}", h.name)))?;
        h.outputs.iter().zip(&outputs).try_for_each(|(v, t)| self.write(v, t))
    }
    fn copy(&mut self, from: usize, to: usize) -> Result<(), CpuError> {
        if self.is_on_host(to) {
            self.host[to] = self.host[from].clone();
            return Ok(());
        }
        let bytes = self.session.plan.buffers[from].bytes.min(self.session.plan.buffers[to].bytes);
        let source = self.places[from].read(bytes as usize);
        self.places[to].write(0, source)
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
                self.host[c.all] = Some(all.map_err(|e| CpuError::Host(e.to_string()))?);
            }
        }
        Ok(())
    }
    /// Keeps a row of an iteration, in more memory where there is none left.
    fn collect(&mut self, row: usize, all: usize, at: u64, bytes: usize, grows: bool) -> Result<(), CpuError> {
        let start = at as usize * bytes;
        if grows && start + bytes > self.places[all].bytes {
            let mut block = Block::of((2 * (start + bytes)) as u64);
            let old = self.places[all].read(start);
            block.bytes_mut()[..old.len()].copy_from_slice(old);
            self.places[all] = block.place();
            self.more.push(block);
        }
        let source = self.places[row].read(bytes);
        self.places[all].write(start, source)
    }
    /// Runs the steps of a function. Calls of one function inside each other have memory of their own for what it writes.
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
                let mut block = Block::of(self.session.plan.buffers[b].bytes);
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
        let one = |h: &Handover| match self.is_on_host(h.to) {
            true => Value::Host(self.host[h.from].clone()),
            false => Value::Bytes(self.places[h.from].read(self.session.plan.buffers[h.from].bytes as usize).to_vec()),
        };
        Ok(list.iter().map(one).collect())
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
