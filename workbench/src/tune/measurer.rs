//! The process that verifies and times candidates ([`crate::worker`]), as the search sees it. It is killed where a
//! candidate takes too long, and started again with the candidates that were open.

use super::candidate::Candidate;
use super::space::{Opened, Racing};
use crate::error::{Code, Error, Result};
use crate::own_process;
use crate::worker::WORKER;
use crate::worker::{Reply, Request, Setup};
use compiler::schedule::InstrRef;
use compiler::text::print_instruction;
use compiler::tir::TensorFunction;
use runtime_gpu::Standing;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time for the right results of a function, which the host computes; and for a race of networks.
const PREPARING: Duration = Duration::from_secs(600);
/// Time for a candidate, at least; and as a multiple of the default schedule's.
const LEAST: Duration = Duration::from_secs(5);
const MULTIPLE: u32 = 10;
/// A sample of a race takes at least some milliseconds.
const SAMPLE_MS: f64 = 20.0;

struct Process {
    child: Child,
    replies: mpsc::Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Verifies and times candidates of one function after another.
pub struct Measurer {
    /// The first message to the process.
    setup: Setup,
    process: Option<Process>,
    function: Option<Request>,
    open: Vec<Opened>,
    next: usize,
    limit: Duration,
    /// Schedules must sum in the order of the first one of a function.
    same_sums: bool,
}

impl Measurer {
    /// For a device and options.
    pub fn new(setup: Setup) -> Measurer {
        Measurer { setup, process: None, function: None, open: vec![], next: 0, limit: PREPARING, same_sums: false }
    }

    /// With `same_sums`, a schedule must sum in the order of the first one of its function.
    pub fn with_same_sums(self, same_sums: bool) -> Measurer {
        Measurer { same_sums, ..self }
    }

    /// Takes a function, and drops all candidates.
    ///
    /// # Errors
    /// The process does not start, or cannot compute the function.
    pub fn take(&mut self, function: &TensorFunction, constants: &[usize]) -> Result<()> {
        let request = Request::Function { function: Box::new(function.clone()), constants: constants.to_vec() };
        self.open.clear();
        self.limit = PREPARING;
        self.function = Some(request);
        match self.process.is_some() {
            true => self.prepare(),
            false => self.revive(),
        }
    }

    /// Opens the default schedule. Its time decides how long others may take.
    ///
    /// # Errors
    /// The process does not start; why the schedule is refused.
    pub fn open_first(&mut self, trace: &[InstrRef]) -> Result<Result<Opened, String>> {
        let start = Instant::now();
        let opened = self.open_trace(trace)?;
        self.limit = start.elapsed() * MULTIPLE + LEAST;
        Ok(opened)
    }

    /// Opens a schedule, or says why it is refused.
    ///
    /// # Errors
    /// The process does not start again.
    pub fn open_trace(&mut self, trace: &[InstrRef]) -> Result<Result<Opened, String>> {
        self.revive()?;
        let trace = trace.iter().map(print_instruction).collect::<Vec<_>>().join("\n");
        let opened = self.request_open(self.next, trace);
        self.next += 1;
        if let Ok(opened) = &opened {
            self.open.push(opened.clone());
        }
        Ok(opened)
    }

    fn request_open(&mut self, id: usize, trace: String) -> Result<Opened, String> {
        match self.ask(&Request::Open { id, trace: trace.clone(), same: self.same_sums }, self.limit)? {
            Reply::Opened { ms } => Ok(Opened { id, trace, ms }),
            Reply::Refused { why } => Err(why),
            _ => Err("it was not answered".into()),
        }
    }

    /// Races a network with two tuning databases in a fresh process.
    ///
    /// # Errors
    /// The process does not start, or ends; a network that does not run.
    pub fn race_networks(
        mut self,
        model: &str,
        tuning: [PathBuf; 2],
        rounds: usize,
        seed: u64,
    ) -> Result<[Standing; 2]> {
        self.process = Some(start(&self.setup)?);
        let request = Request::Networks { model: model.into(), tuning: tuning.into(), rounds, seed };
        let fail = |why: String| Error::new(Code::Device, format!("{model} in a fresh process: {why}"));
        match self.ask(&request, PREPARING).map_err(fail)? {
            Reply::Raced { standings } => {
                <[Standing; 2]>::try_from(standings).map_err(|_| fail("it was answered in part".into()))
            }
            Reply::Refused { why } => Err(fail(why)),
            _ => Err(fail("it was not answered".into())),
        }
    }

    /// Starts the process if it has ended, and opens what was open.
    fn revive(&mut self) -> Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        self.process = Some(start(&self.setup)?);
        self.prepare()?;
        for o in self.open.clone() {
            self.request_open(o.id, o.trace).map_err(|why| {
                Error::new(Code::Device, format!("a schedule that was right before is refused: {why}"))
            })?;
        }
        Ok(())
    }

    /// Gives it the function.
    fn prepare(&mut self) -> Result<()> {
        let Some(function) = self.function.take() else { return Ok(()) };
        let reply = self.ask(&function, PREPARING);
        self.function = Some(function);
        match reply {
            Ok(Reply::Done) => Ok(()),
            Ok(Reply::Refused { why }) | Err(why) => Err(Error::new(Code::Device, why)),
            Ok(_) => Err(Error::new(Code::Bug, "the process that measures answered something else")),
        }
    }

    /// Sends a request and waits for its reply; where there is none, the process ends.
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, String> {
        let reply = self.process.as_mut().map_or(Err("it has ended".into()), |p| p.ask(request, limit));
        match reply {
            Ok(Reply::Lost { why }) => {
                self.process = None;
                Err(why)
            }
            Err(why) => {
                self.process = None;
                Err(why)
            }
            reply => reply,
        }
    }
}

impl Racing for Measurer {
    /// Its time decides how long others may take.
    fn open_default(&mut self, c: &Candidate) -> Result<Result<Opened, String>> {
        self.open_first(&c.trace)
    }

    fn open(&mut self, c: &Candidate) -> Result<Result<Opened, String>> {
        self.open_trace(&c.trace)
    }

    fn keep(&mut self, list: &[&Opened]) {
        let ids: Vec<usize> = list.iter().map(|o| o.id).collect();
        self.open.retain(|o| ids.contains(&o.id));
        if self.process.is_some() {
            // Where that fails, the process has ended, and the next one opens these alone.
            let _ = self.ask(&Request::Keep { ids }, self.limit);
        }
    }

    fn race(&mut self, list: &[&Opened], rounds: usize, seed: u64) -> Result<Vec<Standing>> {
        self.revive()?;
        let ids = list.iter().map(|o| o.id).collect();
        let ms: f64 = list.iter().map(|o| o.ms.max(SAMPLE_MS)).sum();
        let limit = self.limit + Duration::from_secs_f64(ms * 1e-3 * 4.0 * (rounds + 5) as f64);
        let why = match self.ask(&Request::Race { ids, rounds, seed }, limit) {
            Ok(Reply::Raced { standings }) => return Ok(standings),
            Ok(Reply::Refused { why }) | Err(why) => why,
            Ok(_) => "it was not answered".into(),
        };
        match list {
            [] | [_] => Err(Error::new(Code::Device, format!("the default schedule: {why}"))),
            [first, _] => {
                let mut out = self.race(&[first], rounds, seed)?;
                out.push(Standing::default());
                Ok(out)
            }
            [first, others @ ..] => {
                let mut out = self.race(&[first], rounds, seed)?;
                for other in others {
                    let pair = self.race(&[first, other], rounds, seed)?;
                    out.extend(pair.into_iter().skip(1));
                }
                Ok(out)
            }
        }
    }
}

impl Process {
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, String> {
        let text = serde_json::to_string(request).map_err(|e| e.to_string())?;
        let sent = self.child.stdin.as_mut().is_some_and(|pipe| writeln!(pipe, "{text}").is_ok());
        if !sent {
            return Err(self.ended());
        }
        let until = Instant::now() + limit;
        loop {
            match self.replies.recv_timeout(until.saturating_duration_since(Instant::now())) {
                // A driver may write to stdout too.
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(reply) => return Ok(reply),
                    Err(_) => continue,
                },
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!("it takes longer than {:.0} s", limit.as_secs_f64()));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    fn ended(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("it ends the process: {status}"),
            Err(e) => format!("it ends the process: {e}"),
        }
    }
}

fn start(setup: &Setup) -> Result<Process> {
    let fail = |e: &dyn std::fmt::Display| Error::input(format!("the process that measures does not start: {e}"));
    let mut command = own_process::again().map_err(|e| fail(&e))?;
    command.arg(WORKER);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = pipes.spawn().map_err(|e| fail(&e))?;
    let (sender, replies) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    let setup = serde_json::to_string(setup).map_err(|e| fail(&e))?;
    let sent = child.stdin.as_mut().ok_or("it takes no input".to_string());
    sent.and_then(|pipe| writeln!(pipe, "{setup}").map_err(|e| e.to_string())).map_err(|e| fail(&e))?;
    Ok(Process { child, replies })
}
