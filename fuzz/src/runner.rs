//! The parent: starts child processes, watches their time, and keeps what they find.

use crate::corpus::Corpus;
use crate::target::Target;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Cases of one child process; names that inputs bring with them stay in memory until it ends.
const CASES_OF_A_CHILD: u64 = 2000;

/// How long a child may take to start.
const START: Duration = Duration::from_secs(60);

/// A case that waits for the processor has so many times its time; what waits for anything else would never end.
const MOST_WAITS: u32 = 15;

/// How to run a target.
pub struct Options {
    /// How long.
    pub time: Duration,
    /// Time of one case.
    pub timeout: Duration,
    /// Of the random numbers.
    pub seed: u64,
    /// The first case.
    pub from: u64,
    /// Where inputs with findings go.
    pub out: PathBuf,
}
impl Default for Options {
    fn default() -> Options {
        let (time, timeout) = (Duration::from_secs(60), Duration::from_secs(20));
        Options { time, timeout, seed: 0, from: 0, out: PathBuf::from("fuzz-findings") }
    }
}

/// How a child ended.
enum End {
    /// With its last case, or because the time is over.
    Well,
    /// In this case.
    In(u64, String),
    /// Before its first case.
    Broken(String),
}

#[derive(Default)]
struct Tally {
    cases: u64,
    stages: BTreeMap<String, u64>,
    /// First case and count by message.
    findings: BTreeMap<String, (u64, String, u64)>,
}
impl Tally {
    fn find(&mut self, number: u64, message: &str) {
        self.cases += 1;
        // Findings that differ in their numbers only are one.
        let digits = |c: char| c.is_ascii_digit();
        let key: String = match message.split_once(": ").filter(|m| m.0.starts_with("panic at ")) {
            Some((place, _)) => place.into(),
            None => message.replace(digits, "#").chars().take(120).collect(),
        };
        self.findings.entry(key).or_insert_with(|| (number, message.into(), 0)).2 += 1;
    }
}

/// Runs a target; true when it found nothing.
///
/// # Errors
/// When no child can run, or a finding cannot be saved.
pub fn run(target: &'static Target, o: &Options) -> Result<bool, String> {
    let fail = |e: std::io::Error| format!("cannot write the seeds: {e}");
    let (corpus, folder) = (Corpus::of(target), tempfile::tempdir().map_err(fail)?);
    corpus.save(folder.path()).map_err(fail)?;
    let parent = Parent { target, o, seeds: folder.path(), until: Instant::now() + o.time };
    let (start, mut next, mut tally) = (Instant::now(), o.from, Tally::default());
    while start.elapsed() < o.time {
        match parent.watch(&mut next, &mut tally)? {
            End::Well => {}
            End::In(number, message) => {
                tally.find(number, &message);
                next = number + 1;
            }
            End::Broken(message) => return Err(format!("{}: the child cannot start: {message}", target.name)),
        }
    }
    let rates: Vec<String> = tally.stages.iter().map(|(s, n)| format!("{n} {s}")).collect();
    let seconds = start.elapsed().as_secs();
    println!("{}: {} cases in {seconds} s, seed {}: {}", target.name, tally.cases, o.seed, rates.join(", "));
    for (number, message, count) in tally.findings.values() {
        let path = save(&corpus, target, o, *number)?;
        let again = format!("cargo run -p fuzz -- one {} {}", target.name, path.display());
        println!("  FOUND ({count} cases, the first is {number}): {message}\n    {again}");
    }
    Ok(tally.findings.is_empty())
}

fn save(corpus: &Corpus, target: &Target, o: &Options, number: u64) -> Result<PathBuf, String> {
    let path = o.out.join(format!("{}-{}-{number}", target.name, o.seed));
    let written = std::fs::create_dir_all(&o.out).and_then(|()| std::fs::write(&path, corpus.case(o.seed, number)));
    written.map_err(|e| format!("cannot save {}: {e}", path.display()))?;
    Ok(path)
}

struct Running {
    child: Child,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

/// What the children of one run have in common.
struct Parent<'a> {
    target: &'static Target,
    o: &'a Options,
    /// The folder of the seeds.
    seeds: &'a Path,
    until: Instant,
}

impl Parent<'_> {
    fn start(&self, from: u64) -> Result<Running, String> {
        let fail = |e: std::io::Error| format!("cannot start a child: {e}");
        let program = std::env::current_exe().map_err(fail)?;
        let mut command = Command::new(program);
        command.args(["worker", self.target.name]).arg(self.seeds);
        command.args([self.o.seed, from, CASES_OF_A_CHILD].map(|n| n.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(fail)?;
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                BufReader::new(out).lines().map_while(Result::ok).try_for_each(|l| send.send(l))
            });
        }
        let stderr = child.stderr.take().map(|err| std::thread::spawn(move || tail(err)));
        Ok(Running { child, lines, stderr })
    }

    /// Runs one child from case `next` on.
    fn watch(&self, next: &mut u64, tally: &mut Tally) -> Result<End, String> {
        let mut running = self.start(*next)?;
        let last = next.saturating_add(CASES_OF_A_CHILD);
        let mut ready = false;
        let mut waits = Waits::default();
        let end = loop {
            if Instant::now() >= self.until {
                break End::Well;
            }
            match running.lines.recv_timeout(if ready { self.o.timeout } else { START }) {
                Ok(line) => {
                    ready = true;
                    waits = Waits::default();
                    if let Some((number, rest)) = line.split_once(' ').and_then(|(_, r)| r.split_once(' ')) {
                        *next = number.parse::<u64>().map_err(|_| format!("the child says `{line}`"))? + 1;
                        if line.starts_with("find ") {
                            tally.find(*next - 1, rest);
                        } else {
                            tally.cases += 1;
                            *tally.stages.entry(rest.into()).or_default() += 1;
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) if ready && waits.once_more(running.child.id(), self.o.timeout) => {}
                Err(RecvTimeoutError::Timeout) if ready => {
                    break End::In(*next, format!("hang: no end after {} s", self.o.timeout.as_secs()));
                }
                Err(RecvTimeoutError::Timeout) => break End::Broken("it does not start".into()),
                Err(RecvTimeoutError::Disconnected) => break ended(&mut running, ready, *next, last)?,
            }
        };
        let _ = running.child.kill();
        let _ = running.child.wait();
        Ok(end)
    }
}

/// How often a case was waited for, and what the child had of the processor at first.
#[derive(Default)]
struct Waits {
    count: u32,
    first: Option<Duration>,
}

impl Waits {
    /// True when the child has not had `time` of the processor since the first wait: the machine may be busy with other
    /// work.
    fn once_more(&mut self, child: u32, time: Duration) -> bool {
        let Some(now) = processor_time(child) else { return false };
        self.count += 1;
        now.saturating_sub(*self.first.get_or_insert(now)) < time && self.count < MOST_WAITS
    }
}

/// What a process had of the processor; none where the system does not tell.
fn processor_time(process: u32) -> Option<Duration> {
    let pid = sysinfo::Pid::from_u32(process);
    let mut system = sysinfo::System::new().ok()?;
    let what = sysinfo::ProcessRefreshKind::nothing().with_cpu();
    system.refresh_processes_specifics(sysinfo::ProcessesToUpdate::Some(&[pid]), true, what);
    system.process(pid).map(|p| Duration::from_millis(p.accumulated_cpu_time()))
}

/// The end of what a child says on stderr.
fn tail(mut from: impl Read) -> String {
    let (mut kept, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = from.read(&mut part) {
        kept.extend_from_slice(&part[..n]);
        let beyond = kept.len().saturating_sub(8192);
        kept.drain(..beyond);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The child's output has ended.
fn ended(running: &mut Running, ready: bool, next: u64, last: u64) -> Result<End, String> {
    let status = running.child.wait().map_err(|e| e.to_string())?;
    let said = running.stderr.take().and_then(|t| t.join().ok()).unwrap_or_default();
    Ok(match (ready, status.success() && next == last) {
        (true, true) => End::Well,
        (true, false) => End::In(next, format!("abort: {}", why(status, &said))),
        (false, _) => End::Broken(why(status, &said)),
    })
}

fn why(status: ExitStatus, said: &str) -> String {
    let line = said.lines().map(str::trim).rfind(|l| !l.is_empty());
    format!("{status}; {}", line.unwrap_or("nothing on stderr"))
}
