//! Schedules: instructions of compiled filetests are changed, moved, repeated and taken from other functions. An
//! accepted schedule must verify, run without a race, and give the results of the unscheduled function.

use super::model::compile_for;
use crate::corpus::filetests;
use crate::raw::{one_in, one_of};
use crate::target::{Outcome, Random, Target};
use crate::text::mutate as mutate_text;
use compiler::agreement::{Tolerance, agree};
use compiler::interpreter::run_scheduled;
use compiler::profile::DeviceProfile;
use compiler::schedule::INSTRUCTIONS;
use compiler::schedule::accept;
use compiler::tensor::Tensor;
use compiler::text::{parse_module, print_tensor_function, random_tensor};
use compiler::tir::{Stmt, TensorFunction};
use compiler::verify::verify_tensor_function;
use rand::RngExt;

/// The row of the table.
pub const TARGET: Target = Target {
    name: "schedule",
    help: "schedules in text: apply, verify, run against the unscheduled function",
    seeds,
    mutate,
    run,
};

/// Statements of a function that is run, over all iterations.
const MOST_STEPS: i64 = 1 << 16;

/// What a schedule may grow a function's statements by.
const MOST_GROWTH: i64 = 16;

/// The line that opens a schedule.
const OPEN: &str = "schedule {";

/// The functions of every filetest, with what the rules make of them for a software driver and for a large GPU.
fn seeds() -> Vec<Vec<u8>> {
    let mut out: Vec<String> = Vec::new();
    for text in filetests() {
        let Ok(module) = parse_module(&text) else { continue };
        let mut functions: Vec<TensorFunction> = module.tensor_functions.values().cloned().collect();
        for profile in [DeviceProfile::lavapipe(), DeviceProfile::hopper()] {
            if module.functions.contains_key(&module.entry)
                && let Ok(Some(c)) = compile_for(module.clone(), &profile)
            {
                functions.extend(c.unscheduled.values().cloned());
            }
        }
        let texts =
            functions.iter().filter(|f| steps(&f.body).is_some_and(|s| s <= MOST_STEPS)).map(print_tensor_function);
        for text in texts {
            if !out.contains(&text) {
                out.push(text);
            }
        }
    }
    out.into_iter().map(String::into_bytes).collect()
}

/// Leaves that run, all iterations counted; `None` for open sizes.
fn steps(body: &Stmt) -> Option<i64> {
    match body {
        Stmt::Seq(list) => list.iter().try_fold(0i64, |sum, s| sum.checked_add(steps(s)?)),
        Stmt::For(l) => steps(&l.body)?.checked_mul(l.extent.as_const()?),
        Stmt::Kernel(_, body) => steps(body),
        Stmt::Block(_) | Stmt::Barrier => Some(1),
    }
}

fn mutate(random: &mut Random, from: Vec<u8>, others: &[Vec<u8>]) -> Vec<u8> {
    let text = String::from_utf8_lossy(&from).into_owned();
    let other = String::from_utf8_lossy(one_of::<Vec<u8>>(random, others)).into_owned();
    let (before, mut list, after) = split(&text);
    let names = names(&before);
    let lent = split(&other).1;
    for _ in 0..random.random_range(1..5) {
        let at = random.random_range(0..=list.len());
        match random.random_range(0..8) {
            0 if at < list.len() => drop(list.remove(at)),
            1 if at < list.len() => list.insert(at, list[at].clone()),
            2 if !list.is_empty() => {
                let line = list.remove(random.random_range(0..list.len()));
                list.insert(at.min(list.len()), line);
            }
            3 if !list.is_empty() => list.truncate(at),
            4 | 5 if !lent.is_empty() => {
                let line = one_of(random, &lent).clone();
                list.insert(at, rename(random, &line, &names));
            }
            _ if at < list.len() => {
                let mut known: Vec<&str> = names.iter().map(String::as_str).collect();
                known.extend(["shared", "registers", "global", "group_x", "local_x", "local_y", "group_y"]);
                if one_in(random, 6) {
                    known.extend(INSTRUCTIONS.iter().map(|i| i.name));
                }
                list[at] = mutate_text(random, &list[at], &known, "").trim_end().to_string();
            }
            _ => {}
        }
    }
    format!("{before}{OPEN}\n{}\n}}\n{after}", list.join("\n")).into_bytes()
}

/// Text up to the schedule, its instructions, and the text behind it.
fn split(text: &str) -> (String, Vec<String>, String) {
    let Some((before, rest)) = text.split_once(OPEN) else {
        let body = text.trim_end().strip_suffix('}').unwrap_or(text);
        return (body.to_string(), vec![], "}\n".into());
    };
    let lines: Vec<&str> = rest.lines().collect();
    let end = lines.iter().position(|l| l.trim() == "}").unwrap_or(lines.len());
    let list = lines[..end].iter().filter(|l| !l.trim().is_empty()).map(|l| l.to_string()).collect();
    (before.to_string(), list, lines.get(end + 1..).unwrap_or_default().join("\n"))
}

/// Names of loops, blocks and buffers.
fn names(body: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let words: Vec<&str> = body.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '%' || c == '.')).collect();
    for pair in words.windows(2) {
        let name = match pair[0] {
            "for" | "block" => pair[1],
            _ => pair[1].strip_prefix('%').unwrap_or(""),
        };
        if !name.is_empty() && !out.iter().any(|n| n == name) {
            out.push(name.into());
        }
    }
    out
}

/// An instruction of another function with some of its names exchanged for names of this one.
fn rename(random: &mut Random, line: &str, names: &[String]) -> String {
    let mut out = String::new();
    for part in line.split_inclusive(['=', ',', '[']) {
        let end = part.find([',', '}', ']']).unwrap_or(part.len());
        let value = &part[..end];
        let is_name = value.chars().next().is_some_and(char::is_alphabetic) && !part.ends_with('=');
        if is_name && !names.is_empty() && !one_in(random, 4) {
            out.push_str(one_of::<String>(random, names));
            out.push_str(&part[end..]);
        } else {
            out.push_str(part);
        }
    }
    out
}

fn run(input: &[u8]) -> Outcome {
    let Ok(module) = parse_module(&String::from_utf8_lossy(input)) else { return Ok("no text") };
    let Some(f) = module.tensor_functions.values().next() else { return Ok("no function") };
    if verify_tensor_function(f).is_err() || f.pending.is_empty() {
        return Ok("nothing to apply");
    }
    let mut scheduled = f.clone();
    if accept(&mut scheduled).is_err() {
        return Ok("refused");
    }
    let plain = TensorFunction { pending: vec![], ..f.clone() };
    let few = |f: &TensorFunction, most| steps(&f.body).is_some_and(|s| s <= most);
    if !few(&plain, MOST_STEPS) || !few(&scheduled, MOST_STEPS * MOST_GROWTH) {
        return Ok("accepted");
    }
    compare(&plain, &scheduled)
}

fn compare(plain: &TensorFunction, scheduled: &TensorFunction) -> Outcome {
    let mut inputs: Vec<Tensor> = Vec::new();
    for (i, b) in plain.inputs().enumerate() {
        let buffer = &plain.buffers[b];
        let Some(shape) = compiler::int::const_dims(&buffer.shape) else { return Ok("accepted") };
        inputs.push(random_tensor(buffer.dtype, &shape, i as u64));
    }
    let Ok(want) = run_scheduled(plain, &inputs) else { return Ok("accepted") };
    let got = run_scheduled(scheduled, &inputs).map_err(|e| format!("accepted, but does not run: {e}"))?;
    for (a, b) in want.iter().zip(&got) {
        if !agree(b, a, &Tolerance::new(a.dtype(), None, None)).pass {
            return Err("accepted, but gives other results".into());
        }
    }
    Ok("agrees")
}
