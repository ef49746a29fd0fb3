//! Wall-clock and CPU time of the steps of a check, and of each test program in them.
//!
//! Cargo starts a test program through a runner, `xtask timed PROGRAM ...` ([`run`]), which appends the program's times
//! to a file that the step reads. CPU time is user and system time of a process with all of its children; it is known
//! on Unix.

use crate::cargo::{own_program, target_dir};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// One line for the usage.
pub const HELP: &str = "PROGRAM [ARGUMENTS] runs a program and appends its times to the file that WEFT_TIMES names";

/// The file of the times.
const FILE: &str = "WEFT_TIMES";

/// Programs with less CPU time, in seconds, are one row together.
const SMALL: f64 = 2.0;

/// Times of a step or a program, in seconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// What ran.
    pub title: String,
    /// By the clock.
    pub wall: f64,
    /// On all processors together, where it is known.
    pub cpu: Option<f64>,
}

/// Starts to time something.
pub struct Timer {
    start: Instant,
    cpu: Option<f64>,
}

impl Timer {
    /// Starts.
    pub fn start() -> Timer {
        Timer { start: Instant::now(), cpu: of_children() }
    }
    /// The times since the start.
    pub fn row(&self, title: &str) -> Row {
        let cpu = of_children().zip(self.cpu).map(|(now, then)| now - then);
        Row { title: title.into(), wall: self.start.elapsed().as_secs_f64(), cpu }
    }
}

/// CPU seconds of all child processes that ended, with theirs.
#[cfg(unix)]
fn of_children() -> Option<f64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes the whole structure, which is plain numbers and was zeroed.
    let (done, usage) = unsafe { (libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()), usage.assume_init()) };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    (done == 0).then(|| seconds(usage.ru_utime) + seconds(usage.ru_stime))
}

#[cfg(not(unix))]
fn of_children() -> Option<f64> {
    None
}

/// Runs the command: the runner.
///
/// # Errors
/// When the program cannot start or fails.
pub fn run(args: &[String]) -> Result<(), String> {
    let (program, rest) = args.split_first().ok_or("usage: cargo xtask timed PROGRAM [ARGUMENTS]")?;
    let timer = Timer::start();
    let status = Command::new(program).args(rest).status().map_err(|e| format!("{program}: {e}"))?;
    if let Some(file) = std::env::var_os(FILE) {
        let row = timer.row(&name_of(program));
        append(Path::new(&file), &row).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}")) }
}

/// `target/debug/deps/commands-0123456789abcdef` is `commands`.
fn name_of(program: &str) -> String {
    let stem = Path::new(program).file_stem().unwrap_or_default().to_string_lossy();
    let is_hash = |h: &str| h.len() == 16 && h.bytes().all(|b| b.is_ascii_hexdigit());
    match stem.rsplit_once('-') {
        Some((name, hash)) if is_hash(hash) => name.into(),
        _ => stem.into(),
    }
}

fn append(file: &Path, row: &Row) -> std::io::Result<()> {
    use std::io::Write;
    let mut f = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
    writeln!(f, "{}\t{}\t{}", row.title, row.wall, row.cpu.map_or(String::new(), |c| c.to_string()))
}

/// Lets cargo start the programs of a command through the runner; the rows are in the file then.
pub fn watch(command: &mut Command) -> Option<PathBuf> {
    let host = host()?;
    let file = target_dir().ok()?.join("times.tsv");
    let _ = std::fs::remove_file(&file);
    let variable = format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_"));
    let own = own_program().ok()?;
    command.env(variable, format!("{} timed", own.display())).env(FILE, &file);
    Some(file)
}

/// The target that the compiler builds for without further ado.
fn host() -> Option<String> {
    let o = Command::new("rustc").arg("-vV").output().ok()?;
    let text = String::from_utf8(o.stdout).ok()?;
    text.lines().find_map(|l| l.strip_prefix("host: ")).map(str::to_string)
}

/// The rows of a watched command, most CPU time first; small ones are one row.
pub fn programs(file: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut rows: Vec<Row> = text.lines().filter_map(parse).collect();
    rows.sort_by(|a, b| time(b).total_cmp(&time(a)));
    let small = rows.split_off(rows.partition_point(|r| time(r) >= SMALL));
    if !small.is_empty() {
        let cpu = small.iter().map(|r| r.cpu).sum();
        rows.push(Row { title: format!("{} others", small.len()), wall: small.iter().map(|r| r.wall).sum(), cpu });
    }
    rows
}

fn time(r: &Row) -> f64 {
    r.cpu.unwrap_or(r.wall)
}

fn parse(line: &str) -> Option<Row> {
    let mut parts = line.split('\t');
    let (title, wall, cpu) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok());
    Some(Row { title: title.into(), wall, cpu })
}

/// Prints the times of the steps, each with its programs, and their sum.
pub fn print(steps: &[(Row, Vec<Row>)]) {
    let text = |r: &Row, indent: &str| {
        let cpu = r.cpu.map_or("-".into(), |c| format!("{c:.0}"));
        eprintln!("{:>7.0} {cpu:>7}  {indent}{}", r.wall, r.title);
    };
    eprintln!("\n   wall     CPU  seconds");
    for (step, programs) in steps {
        text(step, "");
        programs.iter().for_each(|p| text(p, "  "));
    }
    let all = || steps.iter().map(|s| &s.0);
    text(&Row { title: "all".into(), wall: all().map(|r| r.wall).sum(), cpu: all().map(|r| r.cpu).sum() }, "");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_without_cargos_hash() {
        assert_eq!(name_of("/t/debug/deps/commands-0123456789abcdef"), "commands");
        assert_eq!(name_of("/t/debug/two-words"), "two-words");
    }

    #[test]
    fn rows_come_back_and_small_ones_are_one() {
        let file = std::env::temp_dir().join(format!("weft-times-{}", std::process::id()));
        let row = |title: &str, cpu: f64| Row { title: title.into(), wall: 1.0, cpu: Some(cpu) };
        for r in [row("a", 0.5), row("b", 9.0), row("c", 1.0), row("d", 30.0)] {
            append(&file, &r).expect("a file");
        }
        let mut others = row("2 others", 1.5);
        others.wall = 2.0;
        assert_eq!(programs(&file), [row("d", 30.0), row("b", 9.0), others]);
        std::fs::remove_file(file).expect("the file");
    }
}
