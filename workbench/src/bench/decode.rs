//! `--decode`: the speed of a language model. A prompt is read at once, then tokens are made one by one. The cache goes
//! from run to run where it is, and the most likely token is chosen where the logits are: a number for each sequence
//! comes back.
//!
//! A prompt has a session for its length, and the tokens behind it one for all lengths of the cache. Each length is new
//! to that session, as it is to a program that writes text: the time of a token holds the plan for it. The tables of
//! kernels are of the last token again, whose plan is there already.

mod bytes;
mod decoder;
pub mod record;
mod tokens;

use super::kernels::put_spent;
use super::places::Place;
use super::record::{BenchRecord, Run, Sampled, Work};
use super::repeated::repeat;
use super::request::{Request, Timing};
use super::starts::timed;
use super::stored::{self, Measured};
use super::timeline::{Known, Shown};

use crate::arrays::Named;
use crate::error::{Code, Error, Result};
use crate::executor::execute;
use crate::models::{inputs_for, load, load_open};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::state::State;
use compiler::compile::{Compiled, GroupKind};
use compiler::graph::{Module, TensorType, input_ports};
use compiler::name::Name;
use compiler::tensor::Tensor;
use compiler::trace::CompileTrace;
use decoder::{Decoder, Fed};
use rand::{RngExt, SeedableRng};
use record::{DecodeRecord, FirstToken, Speed};
use runtime_gpu::{Recorder, RunTensor};
use serde_json::Value;
use std::time::Instant;
use tokens::{Runs, Taken, greedy};

/// Tokens of a prompt that nobody gives.
const PROMPT: usize = 64;
/// Runs that are not counted, and runs that are.
const ROUNDS: [usize; 2] = [1, 5];
/// Runs of one token at the full length.
const STEPS: usize = 20;

/// A model whose speed is asked for.
struct Job<'a> {
    a: Request,
    place: &'a Place,
    settings: &'a Settings,
    model: &'a str,
    decoder: Decoder,
    /// `[batch, length]`
    prompt: Tensor,
    /// Values for other inputs.
    given: Named,
    past: usize,
    count: usize,
}

/// A session for runs of one length.
struct Opened<'a> {
    runs: Runs<'a>,
    settings: Settings,
    module: Module,
    /// Random inputs of the least sizes.
    random: Vec<Tensor>,
}

/// The prompt was read.
struct Begun {
    speed: Speed,
    first: FirstToken,
    taken: Taken,
    /// The first token of each sequence.
    made: Tensor,
}

/// The tokens were made.
struct Tokens {
    speed: Speed,
    /// In order, of each sequence; the first ones are the prompt's.
    made: Vec<Tensor>,
    /// The operands of the last run.
    last: Taken,
}

/// The step that is timed by layer, and its network.
struct Step {
    measured: Measured,
    settings: Settings,
    module: Module,
    inputs: Vec<Tensor>,
}

/// The result of a decoder.
pub struct Decoded {
    /// The request with its own number of rounds.
    pub a: Request,
    /// Measurements.
    pub record: BenchRecord,
    /// The network of a token.
    pub work: Work,
    /// The machine before them.
    pub before: State,
    /// One run as Chrome's trace format has it, where it was asked for.
    pub timeline: Option<Value>,
    /// The trace that was asked for.
    pub trace: Option<Box<CompileTrace>>,
}

/// Times a decoder.
///
/// # Errors
/// A model that is none, sizes that it does not have, options that do not go with it; a failed run.
pub fn decode(a: &Request, place: &Place, settings: &Settings, model: &str) -> Result<Decoded> {
    let (job, before) = (Job::of(a, place, settings, model)?, State::now());
    let begun = job.read_prompt()?;
    let Step { measured, settings, module, inputs } = job.step_by_step(&begun)?;
    let work = Work::of(&module, &inputs);
    let trace = match a.trace {
        true => Some(Box::new(stored::trace(place, &settings, (model, module), &inputs, &measured)?)),
        false => None,
    };
    let Measured { record, timeline, .. } = measured;
    Ok(Decoded { a: job.a, record, work, before, timeline, trace })
}

/// Refuses options that do not go with `--decode`.
///
/// # Errors
/// The first one.
pub fn check(a: &Request) -> Result<()> {
    let decoding = &a.decoding;
    if decoding.decode.is_none() {
        let given = [("--prefill", decoding.prefill.is_some()), ("--past", decoding.past.is_some())];
        return match given.iter().find(|g| g.1) {
            Some((option, _)) => Err(Error::usage(format!("{option} is for --decode N, which is not there"))),
            None => Ok(()),
        };
    }
    let given = [("--driver-stats", a.driver_stats), ("--in-flight", a.timing.in_flight.is_some())];
    match given.iter().find(|g| g.1) {
        Some((option, _)) => Err(Error::usage(format!("{option} does not go with --decode"))
            .help("bench one run without --decode, with sizes by --dim")),
        None => Ok(()),
    }
}

impl<'a> Job<'a> {
    fn of(a: &Request, place: &'a Place, settings: &'a Settings, model: &'a str) -> Result<Job<'a>> {
        if crate::bundles::find(model)?.is_some() {
            return Err(Error::usage(format!("--decode takes a model, and {model} is a bundle")));
        }
        let decoder = Decoder::of(&load_open(model, settings)?, model)?;
        let mut given = crate::inputs::given(&a.input, model, settings)?.unwrap_or_default();
        let tokens = given.iter().position(|g| g.0 == decoder.tokens.as_str()).map(|at| given.swap_remove(at).1);
        if let Some((name, _)) = given.iter().find(|g| decoder.makes(Name::new(&g.0))) {
            return Err(Error::usage(format!("-i: `{name}` follows from --decode, --prefill and --past"))
                .help(format!("give `{}` and inputs that are the same in every run", decoder.tokens)));
        }
        let prompt = prompt(a, settings, &decoder, tokens)?;
        let (past, count) = (a.decoding.past.unwrap_or(0), a.decoding.decode.unwrap_or(1));
        decoder.check_positions([past, prompt.shape()[1], count])?;
        let (warmup, runs) = (a.timing.warmup.or(Some(ROUNDS[0])), a.timing.runs.or(Some(ROUNDS[1])));
        let a = Request { timing: Timing { warmup, runs, ..a.timing.clone() }, ..a.clone() };
        Ok(Job { a, place, settings, model, decoder, prompt, given, past, count })
    }

    fn batch(&self) -> usize {
        self.prompt.shape()[0]
    }
    fn length(&self) -> usize {
        self.prompt.shape()[1]
    }

    /// Compiles for runs of `length` tokens with `past` to `most` positions in the cache.
    fn open(&self, length: usize, past: usize, most: usize) -> Result<Opened<'_>> {
        let dims = self.decoder.dims(&self.settings.dim, length, (past, most))?;
        let dim = self.settings.dim.iter().cloned().chain(dims).collect();
        let batch = self.settings.batch.or(Some(self.batch() as u32));
        let settings = Settings { dim, batch, ..self.settings.clone() };
        let mut module = settings.state.time("import", || load(self.model, &settings, None))?;
        greedy(&mut module, &self.decoder, &self.place.device)?;
        let (random, ports) = (inputs_for(&module, None, &settings)?, input_ports(&module));
        let others = self.others(&ports, past)?;
        let session = execute(module.clone(), &settings, &self.place.device, &random)?;
        let runs = Runs { session, ports, decoder: &self.decoder, device: &self.place.device, length, others };
        Ok(Opened { runs, settings, module, random })
    }

    /// Inputs that are the same in every run: the given ones, and what exporters of merged decoders ask for.
    fn others(&self, ports: &[(Name, TensorType)], past: usize) -> Result<Named> {
        let mut out = self.given.clone();
        for (name, ty) in ports.iter().filter(|p| !self.decoder.knows(p.0)) {
            if out.iter().any(|o| o.0 == name.as_str()) {
                continue;
            }
            let value = match name.as_str() {
                "use_cache_branch" => i64::from(past > 0),
                "num_logits_to_keep" => 1,
                _ => {
                    let text = format!("the model has an input `{name}` {ty:?}, which is no part of a decoder's loop");
                    return Err(Error::usage(text).help(format!("give it with -i {name}=FILE.npy")));
                }
            };
            let shape = ty.const_shape().unwrap_or_default();
            out.push((
                name.to_string(),
                Tensor::from_i64(ty.dtype, shape.clone(), &vec![value; shape.iter().product()]),
            ));
        }
        Ok(out)
    }

    /// Times the prompt.
    fn read_prompt(&self) -> Result<Begun> {
        let (a, mut progress) = (&self.a, Progress::new(self.settings, &[]));
        let start = Instant::now();
        let opened = self.open(self.length(), self.past, self.past)?;
        let taken = Taken { tokens: RunTensor::Host(self.prompt.clone()), cache: opened.cache()?, past: self.past };
        let read = || opened.runs.made(&taken, &Recorder::default());
        let mut last = self.settings.state.time("first run", read)?;
        let cold = start.elapsed().as_secs_f64() * 1e3;
        let (wall, _) = repeat(a, a.limit()?, ["warm-up: prompt", "prompts"], &mut progress, || {
            last = read()?;
            Ok(0.0)
        })?;
        let speed = Speed::of(self.batch() * self.length(), &wall, wall.clone());
        let first = FirstToken { cold, warm: speed.ms.of.median };
        Ok(Begun { speed, first, taken: last.0, made: last.1 })
    }

    /// Times the tokens behind the prompt.
    fn step_by_step(&self, begun: &Begun) -> Result<Step> {
        let past = begun.taken.past;
        let open = || self.open(1, past, past + self.count - 1);
        let (Opened { runs, settings, module, .. }, compile_ms) = timed(self.settings, open)?;
        let tokens = self.tokens(&runs, begun)?;
        let inputs = runs.empty(&tokens.last);
        let runs = runs.sized_for(&inputs)?;
        let (mut run, shown) = self.step(&runs, &tokens)?;
        let speed = &tokens.speed;
        (run.latency_ms, run.throughput_per_s) = (Some(speed.ms.clone()), Some(speed.tokens_per_s.of.median));
        let decode = Some(self.record(begun, &tokens, runs.session.compilation()));
        let flops = runs.session.compilation().map_or(0, |c| c.groups.iter().map(|g| g.flops).sum());
        let batch = self.batch();
        let record = BenchRecord { run, batch, flops, compile_ms: Some(compile_ms), decode, ..BenchRecord::default() };
        let timeline = shown.timeline(&self.a, "device");
        Ok(Step { measured: Measured { record, timeline, ..Measured::of(shown) }, settings, module, inputs })
    }

    /// Makes tokens, from the prompt's cache on in each round.
    fn tokens(&self, runs: &Runs<'_>, begun: &Begun) -> Result<Tokens> {
        let (a, mut progress) = (&self.a, Progress::new(self.settings, &[]));
        let (mut ms, mut made, mut last) = (vec![], vec![], begun.taken.clone());
        let (wall, _) = repeat(a, a.limit()?, ["warm-up: tokens", "tokens"], &mut progress, || {
            let mut taken = begun.taken.clone();
            made = vec![begun.made.clone()];
            for _ in 0..self.count {
                let start = Instant::now();
                let next = runs.made(&taken, &Recorder::default())?;
                ms.push(start.elapsed().as_secs_f64() * 1e3);
                last = std::mem::replace(&mut taken, next.0);
                made.push(next.1);
            }
            Ok(0.0)
        })?;
        let speed = Speed::of(self.batch() * self.count, &wall, ms.split_off(a.timing.warmup() * self.count));
        Ok(Tokens { speed, made, last })
    }

    /// Times the last token again and again, and records it.
    fn step(&self, runs: &Runs<'_>, tokens: &Tokens) -> Result<(Run, Shown)> {
        let mut progress = Progress::new(self.settings, &[]);
        let timing = Timing { warmup: Some(2), runs: Some(STEPS), ..Timing::default() };
        let (a, ceilings) = (Request { timing, ..self.a.clone() }, self.place.ceilings);
        let mut made = |recorder: &Recorder| runs.made(&tokens.last, recorder).map(drop);
        let stages = ["warm-up: one token", "one token"];
        let ms = repeat(&a, None, stages, &mut progress, || made(&Recorder::default()).map(|()| 0.0))?.0;
        let device_ms = Sampled::of(ms);
        let compiled = runs.session.compilation();
        let known: Vec<Known> = compiled.map(known).into_iter().collect();
        let shown = Shown::record(&a, &mut made, device_ms.of.median, &known, &mut progress)?;
        let mut run = Run { device_ms: Some(device_ms), ..compiled.map_or_else(Run::default, Run::of) };
        put_spent(&mut run, &shown, &known, ceilings);
        Ok((run, shown))
    }

    fn record(&self, begun: &Begun, tokens: &Tokens, compiled: Option<&Compiled>) -> DecodeRecord {
        let bytes_per_token = compiled.map(|c| bytes::of_step(c, &self.decoder)).unwrap_or_default();
        let maker = self.place.device.profile().gb_s;
        let measured = self.place.ceilings.map(|c| c.copy_gb_s);
        let size = |t: &RunTensor| {
            let input = t.as_input();
            (input.shape().iter().product::<usize>() * input.dtype().size()) as u64
        };
        DecodeRecord {
            past: self.past,
            prompt: self.length(),
            tokens: self.count,
            prefill: begun.speed.clone(),
            steps: tokens.speed.clone(),
            first_token_ms: begun.first.clone(),
            layers: self.decoder.layers(),
            host_groups: compiled.map_or(0, |c| c.groups.iter().filter(|g| g.kind == GroupKind::Host).count()),
            bytes_per_token,
            gb_s: bytes_per_token.total() as f64 / tokens.speed.ms.of.median.max(1e-9) / 1e6,
            device_gb_s: measured.or(Some(maker).filter(|&rate| rate > 0.0)),
            cache_bytes: tokens.last.cache.iter().map(size).sum(),
            made: (0..self.batch()).map(|b| tokens.made.iter().map(|t| t.to_i64_vec()[b]).collect()).collect(),
        }
    }
}

/// A network whose dispatches have the bytes that they load and store: of the embedding a row.
fn known(c: &Compiled) -> Known {
    let mut known = Known::of("", c);
    for (of, d) in known.dispatches.iter_mut().zip(c.plan.dispatches()) {
        of.bytes = bytes::of_dispatch(c, d);
    }
    known
}

impl Speed {
    /// Of rounds of `tokens`, which took these milliseconds.
    fn of(tokens: usize, rounds: &[f64], ms: Vec<f64>) -> Speed {
        let rate = |ms: &f64| tokens as f64 / ms.max(1e-9) * 1e3;
        Speed { tokens_per_s: Sampled::of(rounds.iter().map(rate).collect()), ms: Sampled::of(ms) }
    }
}

impl Opened<'_> {
    /// The cache before the prompt, where the session reads it.
    fn cache(&self) -> Result<Vec<RunTensor>> {
        let one = |fed: &Fed| {
            let at = self.runs.ports.iter().position(|p| p.0 == fed.input);
            let t = at.map(|at| &self.random[at]).ok_or_else(|| Error::new(Code::Bug, "a cache without an input"))?;
            Ok(match t.is_empty() {
                true => RunTensor::Host(t.clone()),
                false => self.runs.session.input_where_read(fed.input.as_str(), t)?,
            })
        };
        self.runs.decoder.cache.iter().map(one).collect()
    }
}

/// Given tokens, all of which the model knows.
fn in_vocabulary(given: Tensor, decoder: &Decoder) -> Result<Tensor> {
    let (name, count) = (decoder.tokens, decoder.vocabulary);
    match given.to_i64_vec().into_iter().find(|&id| id < 0 || id >= count as i64) {
        Some(id) => Err(Error::input(format!("input `{name}` has the token {id}, and the vocabulary has {count}"))),
        None => Ok(given),
    }
}

/// The tokens of the prompt, `[batch, length]`: the given ones, else random ones.
fn prompt(a: &Request, settings: &Settings, decoder: &Decoder, given: Option<Tensor>) -> Result<Tensor> {
    let asked = a.decoding.prefill;
    if let Some(given) = given {
        let &[batch, length] = given.shape() else {
            let shape = given.shape();
            return Err(Error::input(format!("input `{}` is [batch, length], the file has {shape:?}", decoder.tokens)));
        };
        return match asked {
            _ if batch == 0 || length == 0 => Err(Error::input(format!("input `{}` has no token", decoder.tokens))),
            Some(asked) if asked != length => {
                Err(Error::usage(format!("--prefill {asked}: `{}` of -i has {length} tokens", decoder.tokens)))
            }
            _ if settings.batch.is_some_and(|b| b as usize != batch) => {
                Err(Error::usage(format!("--batch: `{}` of -i has {batch} rows", decoder.tokens)))
            }
            _ => in_vocabulary(given, decoder),
        };
    }
    let shape = vec![settings.batch.unwrap_or(1) as usize, asked.unwrap_or(PROMPT)];
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(settings.seed);
    let values: Vec<i64> =
        (0..shape.iter().product()).map(|_| rng.random_range(0..decoder.vocabulary.max(1)) as i64).collect();
    Ok(Tensor::from_i64(decoder.ids, shape, &values))
}
