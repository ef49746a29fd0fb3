//! Timed runs, one after another.

use super::request::Request;
use crate::error::Result;
use crate::progress::{Progress, go_on};
use compiler::tensor::Tensor;
use std::time::{Duration, Instant};

/// The first dimension of the first input.
pub fn batch(inputs: &[Tensor]) -> usize {
    inputs.first().and_then(|t| t.shape().first().copied()).unwrap_or(1)
}

/// Warms up, then calls `f` for the asked runs or time; wall milliseconds and what `f` returned.
///
/// # Errors
/// An error of `f`.
pub fn repeat(
    a: &Request,
    limit: Option<Duration>,
    stages: [&str; 2],
    progress: &mut Progress,
    mut f: impl FnMut() -> Result<f64>,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let (start, least) = (Instant::now(), a.timing.warmup_time()?);
    let mut warm = 0;
    while warm < a.timing.warmup() || start.elapsed() < least {
        go_on(&a.settings)?;
        progress.report(stages[0], warm, a.timing.warmup().max(warm));
        f()?;
        warm += 1;
    }
    let (mut wall, mut other) = (Vec::new(), Vec::new());
    let start = Instant::now();
    loop {
        go_on(&a.settings)?;
        let enough = match limit {
            Some(d) => start.elapsed() >= d && !wall.is_empty(),
            None => wall.len() >= a.timing.runs(),
        };
        if enough {
            return Ok((wall, other));
        }
        match limit {
            Some(d) => progress.report(stages[1], start.elapsed().as_millis() as usize, d.as_millis() as usize),
            None => progress.report(stages[1], wall.len(), a.timing.runs()),
        }
        let t = Instant::now();
        other.push(f()?);
        wall.push(t.elapsed().as_secs_f64() * 1e3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Timing;

    #[test]
    fn runs_before_the_timed_ones_are_not_counted() {
        let a =
            Request { timing: Timing { warmup: Some(3), runs: Some(2), ..Timing::default() }, ..Request::default() };
        let mut calls = 0.0;
        let run = || {
            calls += 1.0;
            Ok(calls)
        };
        let (wall, of_runs) =
            repeat(&a, None, ["warm-up", "runs"], &mut Progress::new(&a.settings, &[]), run).expect("runs");
        assert_eq!((wall.len(), of_runs), (2, vec![4.0, 5.0]));
    }
}
