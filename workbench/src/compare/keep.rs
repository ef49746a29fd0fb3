//! `--write-keep`: the smallest keep list with which the comparison passes, found by measuring.
//!
//! Calibration proposes lists, for smaller and smaller fractions of the tolerance, until the comparison passes with
//! one. Then names are removed while it still passes, first several at once and finally one by one (after Zeller and
//! Hildebrandt's delta debugging).

use super::cause::Run;
use super::request::Request;
use super::side::{differences, is_all_in_f32};
use crate::arrays::Named;
use crate::error::{Error, Result};
use crate::executor::execute_with;
use crate::precision::{calibrated, keep_list};
use crate::progress::{Progress, go_on, log};
use compiler::agreement::{Difference, Tolerance};
use compiler::calibrate::Limits;
use compiler::dtype::DType;
use compiler::passes::mixed_precision::escape_pattern;
use compiler::passes::{AmpMode, KeepF32, PipelineOptions};

/// Shares of the tolerance that calibration aims at, one after the other.
const SHARES: [f64; 4] = [0.9, 0.6, 0.35, 0.15];
/// Runs of the network for each proposal.
const RUNS: f64 = 32.0;
/// Lists that are measured, at most.
const MOST: usize = 64;

/// A keep list, and what was measured of it.
pub struct Found {
    /// The comparison passes with it; where none was found that does, there are no patterns.
    pub passes: bool,
    pub patterns: Vec<String>,
    /// Lists that were measured.
    pub measured: usize,
    /// A description of it, for the file and for people.
    pub about: String,
}

/// Refuses to look for a keep list where nothing is in f16.
///
/// # Errors
/// With `--amp off`.
pub fn refuse_without_f16(a: &Request) -> Result<()> {
    match a.keep && a.settings.amp == "off" {
        true => Err(Error::usage("--write-keep with --amp off: nothing is in f16").help("ask for --amp fp16 or auto")),
        false => Ok(()),
    }
}

/// Looks for the list; `want` is the reference.
///
/// # Errors
/// An error of the compilation or of a run.
pub fn find(a: &Request, run: &Run<'_>, want: &Named) -> Result<Found> {
    let plain = PipelineOptions { amp: AmpMode::Fp16, keep_f32: vec![], ..run.pipeline.clone() };
    let progress = Progress::new(&a.settings, &[]);
    let mut s = Search { a, run, want, plain, measured: 0, progress, used: f64::INFINITY, limit: 1.0 };
    let given = distinct(keep_list(&a.settings)?.into_iter().map(|k| k.pattern));
    if a.settings.amp == "auto" {
        let mut chosen = distinct(given.iter().cloned().chain(run.chosen.iter().map(|n| escape_pattern(n.as_str()))));
        if s.passes(&chosen)? {
            // What calibration chose leaves room for other inputs, and so does what is left of it.
            s.limit = s.used.max(Limits::default().used);
            s.shrink(&mut chosen)?;
            return Ok(s.found(Some(chosen)));
        }
    }
    let mut list = match () {
        () if s.passes(&given)? => Some(given),
        () if !given.is_empty() && s.passes(&[])? => Some(vec![]),
        () => s.proposed(&given)?,
    };
    if let Some(found) = &mut list {
        s.shrink(found)?;
    }
    Ok(s.found(list))
}

struct Search<'s> {
    a: &'s Request,
    run: &'s Run<'s>,
    want: &'s Named,
    /// `--amp fp16` without a keep list.
    plain: PipelineOptions,
    measured: usize,
    progress: Progress,
    /// The share of the tolerance that the results took with the last list that passed.
    used: f64,
    /// The share of the tolerance that results may take.
    limit: f64,
}

impl Search<'_> {
    /// Whether `compare --amp fp16` passes with these patterns alone.
    fn passes(&mut self, patterns: &[String]) -> Result<bool> {
        go_on(&self.a.settings)?;
        self.measured += 1;
        self.progress.report("keep lists", self.measured, MOST);
        let (a, run) = (self.a, self.run);
        let listed = !self.a.settings.is_default("keep_f32");
        let keep_f32 = patterns.iter().map(|p| KeepF32 { listed, ..KeepF32::listed(p) }).collect();
        let pipeline = PipelineOptions { keep_f32, ..self.plain.clone() };
        let silent = a.settings.silent();
        let executor = execute_with(run.module.clone(), pipeline, &silent, run.device, run.profile, false)?;
        let mixed = executor.is_mixed();
        if is_all_in_f32(a, run.device, mixed) {
            return Ok(false);
        }
        let (got, _) = executor.run_unchecked(run.inputs)?;
        let rows = differences(a, &executor.output_names(), &got, self.want, mixed)?;
        let used = rows.iter().map(|r: &(String, Difference)| r.1.used).fold(0.0, f64::max);
        let pass = rows.iter().all(|r| r.1.pass) && used <= self.limit;
        self.used = if pass { used } else { self.used };
        Ok(pass)
    }

    /// A list that passes, by calibration; else of all nodes, where at least that passes.
    fn proposed(&mut self, given: &[String]) -> Result<Option<Vec<String>>> {
        let (a, run) = (self.a, self.run);
        let tolerance = Tolerance::new(DType::F16, a.against.rtol, a.against.atol);
        let settings = match a.verbose {
            true => a.settings.clone(),
            false => a.settings.silent(),
        };
        let mut all: Vec<String> = vec![];
        for used in SHARES {
            let limits = Limits { tolerance, used, runs: RUNS };
            let pipeline = PipelineOptions { keep_f32: vec![], amp: AmpMode::Auto, ..run.pipeline.clone() };
            let found = calibrated(run.module, &settings, &pipeline, run.profile, run.inputs, &limits)?;
            all = distinct(found.nodes.iter().map(|n| escape_pattern(n.listed.as_str())));
            if found.all_in_f32() {
                break;
            }
            let list: Vec<String> = distinct(found.listed().iter().map(|n| escape_pattern(n.as_str())));
            if self.passes(&list)? {
                return Ok(Some(list));
            }
        }
        // Halves of all nodes: where one of them fails, the other may pass.
        let mut run_length = all.len() / 2;
        while run_length > 0 && self.measured < MOST / 2 {
            for start in (0..all.len()).step_by(run_length) {
                let given_back = start..(start + run_length).min(all.len());
                let list: Vec<String> =
                    all.iter().enumerate().filter(|(i, _)| !given_back.contains(i)).map(|(_, n)| n.clone()).collect();
                if self.measured < MOST / 2 && self.passes(&list)? {
                    return Ok(Some(list));
                }
            }
            run_length /= 2;
        }
        let everything = distinct(given.iter().cloned().chain(all));
        Ok(if self.passes(&everything)? { Some(everything) } else { None })
    }

    /// Leaves out what is not needed.
    fn shrink(&mut self, list: &mut Vec<String>) -> Result<()> {
        let mut length = list.len().div_ceil(2).max(1);
        loop {
            let (mut end, before) = (list.len(), list.len());
            while end > 0 {
                if self.measured >= MOST {
                    return Ok(());
                }
                let start = end.saturating_sub(length);
                let mut fewer = list.clone();
                fewer.drain(start..end);
                if self.passes(&fewer)? {
                    *list = fewer;
                }
                end = start;
            }
            match length {
                1 if list.len() == before => return Ok(()),
                _ => length = (length / 2).max(1),
            }
        }
    }

    fn found(&self, list: Option<Vec<String>>) -> Found {
        let measured = self.measured;
        let complete = measured < MOST;
        let (passes, patterns, about) = match list {
            Some(list) => {
                let least = match (list.len(), complete) {
                    (0, _) => "no node has to stay in f32".to_string(),
                    (_, true) if self.limit < 1.0 => format!(
                        "without any one of these the results take more than {:.2} of the tolerance",
                        self.limit
                    ),
                    (_, true) => "without any one of these it fails".to_string(),
                    (_, false) => format!("the smallest of the first {measured} lists"),
                };
                let about =
                    format!("{least}; the results take {:.2} of the tolerance, {measured} lists measured", self.used);
                (true, list, about)
            }
            None => {
                let about = format!(
                    "no keep list that leaves anything in f16 makes the results agree ({measured} lists measured)"
                );
                (false, vec![], about)
            }
        };
        log(&self.a.settings, format!("keep list: {about}"));
        Found { passes, patterns, measured, about }
    }
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for n in names {
        if !out.contains(&n) {
            out.push(n);
        }
    }
    out
}
