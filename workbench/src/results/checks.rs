//! Rules of a right result. Bounds are wide enough for honest measurements on busy machines.

use super::entry::{Entry, Layer, Sampled, Spent};
use benches::statistics::Statistics;
use compiler::trace::{Kind, TimeRow};

/// The part by which a figure may differ from the one that its file implies: numbers may be rounded in between.
const ROUNDED: f64 = 1e-3;
/// The part by which one measurement may be above another that bounds it.
const ABOVE: f64 = 1.25;
/// Samples from which on a median says something.
const FEWEST: usize = 5;
/// Winograd's transforms of tiles of 4x4 leave a quarter of the products of a convolution.
const SAVED: f64 = 4.0;
/// Rates of a device's caches over that of its memory, at most.
const CACHES: f64 = 40.0;
/// No device multiplies and adds so often: 10^9 operations a second.
const MOST_GFLOPS: f64 = 1e7;

/// The rules, with the field that each is about.
const RULES: [fn(&Entry) -> Result<(), String>; 11] =
    [names, signs, samples, cold, headline, spent, layers, throughput, peaks, precision, versions];

/// Checks an entry by itself.
///
/// # Errors
/// Says what does not fit.
pub fn check(e: &Entry) -> Result<(), String> {
    RULES.iter().try_for_each(|rule| rule(e))
}

fn refuse(wrong: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if wrong { Err(why()) } else { Ok(()) }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= ROUNDED * a.abs().max(b.abs()) + 1e-9
}

/// The model, the device and its driver have names, and the network a digest.
fn names(e: &Entry) -> Result<(), String> {
    let d = &e.device;
    for (what, text) in
        [("model", &e.model), ("device.name", &d.name), ("device.driver", &d.driver), ("env.os", &e.env.os)]
    {
        refuse(text.trim().is_empty(), || format!("`{what}` is empty"))?;
    }
    let digest = &e.work.digest;
    let hex = digest.len() >= 16 && digest.chars().all(|c| c.is_ascii_hexdigit());
    refuse(!hex, || format!("`work.digest` is `{digest}`, which is no digest"))?;
    refuse(e.batch == 0, || "`batch` is 0".into())
}

/// No time, rate or count is below 0.
fn signs(e: &Entry) -> Result<(), String> {
    let spread = |s: &Sampled| [s.of.median, s.of.p90, s.of.p99, s.of.min, s.of.mean, s.of.stddev];
    let samples = [Some(&e.latency_ms), e.device_ms.as_ref()].into_iter().flatten();
    let of_samples = samples.flat_map(|s| spread(s).into_iter().chain(s.samples.iter().flatten().copied()));
    let of_layers = e.per_kernel.iter().flat_map(|l| [l.us_median, l.us_total, l.gflops, l.gb_s]);
    let others = e.compile_ms.iter().flat_map(|c| [c.cold, c.warm.unwrap_or(0.0)]).chain(e.throughput_per_s);
    let low = of_samples.chain(of_layers).chain(others).find(|v| !v.is_finite() || *v < 0.0);
    refuse(low.is_some(), || format!("a figure is {}, below 0", low.unwrap_or_default()))?;
    refuse(e.latency_ms.of.median == 0.0, || "`latency_ms.median` is 0".into())
}

/// The statistics follow from the samples.
fn samples(e: &Entry) -> Result<(), String> {
    let n = e.latency_ms.samples.as_ref().map_or(0, Vec::len);
    refuse(n < FEWEST, || {
        format!("`latency_ms` has {n} samples; a figure needs {FEWEST}: `weft bench --runs {FEWEST}`")
    })?;
    let all = [("latency_ms", Some(&e.latency_ms)), ("device_ms", e.device_ms.as_ref())];
    all.into_iter().filter_map(|(name, s)| Some((name, s?))).try_for_each(|(name, s)| of_samples(name, s))
}

fn of_samples(name: &str, s: &Sampled) -> Result<(), String> {
    let Some(samples) = &s.samples else { return Ok(()) };
    let Statistics { median, p90, p99, min, mean, stddev, .. } = Statistics::of(samples);
    let stated = [s.of.median, s.of.p90, s.of.p99, s.of.min, s.of.mean, s.of.stddev];
    let words = ["median", "p90", "p99", "min", "mean", "stddev"];
    for ((word, said), is) in words.iter().zip(stated).zip([median, p90, p99, min, mean, stddev]) {
        refuse(!is_near(said, is), || {
            format!("`{name}.{word}` is {said:.4}, but {is:.4} of its {} samples", samples.len())
        })?;
    }
    Ok(())
}

/// The first run, which compiles, is no faster than the fastest of the others.
fn cold(e: &Entry) -> Result<(), String> {
    let (Some(c), fastest) = (&e.compile_ms, e.latency_ms.of.min) else { return Ok(()) };
    refuse(c.cold * ABOVE < fastest, || {
        format!("`compile_ms.cold`, with a run in it, is {:.3} ms, and the fastest run {fastest:.3} ms", c.cold)
    })
}

/// Neither the kernels together nor the device take longer than the longest run.
fn headline(e: &Entry) -> Result<(), String> {
    let device = e.device_ms.as_ref().map_or(0.0, Sampled::longest);
    let (longest, kernels) = (e.latency_ms.longest(), e.per_kernel.iter().map(|l| l.us_total / 1e3).sum::<f64>());
    let busy = e.device_ms.as_ref().map_or(0.0, |d| d.of.median);
    refuse(busy > ABOVE * longest, || {
        format!("`device_ms.median` is {busy:.3} ms, and the longest run {longest:.3} ms")
    })?;
    let bound = longest.max(device).max(e.spent.as_ref().map_or(0.0, |s| s.run_ms));
    refuse(kernels > ABOVE * bound, || {
        format!("the kernels take {kernels:.3} ms together, and the longest run {bound:.3} ms")
    })
}

/// The rows of a run are the run, and its kernels have the times of their rows.
fn spent(e: &Entry) -> Result<(), String> {
    let Some(Spent { run_ms, rows }) = &e.spent else { return Ok(()) };
    let negative = rows.iter().find(|r| r.ms.is_nan() || r.ms < 0.0);
    refuse(negative.is_some(), || format!("row `{}` of `spent` is below 0", negative.map_or("", |r| &r.name)))?;
    let sum = |of: &dyn Fn(&TimeRow) -> bool| rows.iter().filter(|r| of(r)).map(|r| r.ms).sum::<f64>();
    let (all, kernels) = (sum(&|_| true), sum(&|r| r.kind == Kind::Kernel));
    refuse(!is_near(all, *run_ms), || {
        format!("the rows of `spent` take {all:.3} ms together, and `spent.run_ms` is {run_ms:.3}")
    })?;
    let layers = e.per_kernel.iter().map(|l| l.us_total / 1e3).sum::<f64>();
    refuse(kernels > 0.0 && !is_near(layers, kernels), || {
        format!("the kernels take {layers:.3} ms together, and their rows of `spent` {kernels:.3}")
    })
}

/// A kernel's time is the sum of its calls.
fn layers(e: &Entry) -> Result<(), String> {
    e.per_kernel.iter().try_for_each(|l: &Layer| {
        let sum = l.us_median * l.calls as f64;
        refuse(!is_near(sum, l.us_total), || {
            format!(
                "kernel `{}`: {} calls of {:.3} us make {sum:.3} us, and `us_total` is {:.3}",
                l.name, l.calls, l.us_median, l.us_total
            )
        })
    })
}

/// No more inputs a second than the fastest runs allow.
fn throughput(e: &Entry) -> Result<(), String> {
    let Some(rate) = e.throughput_per_s else { return Ok(()) };
    let device = e.device_ms.as_ref().map_or(f64::INFINITY, |d| d.of.min);
    let fastest = e.latency_ms.of.min.min(device).max(1e-6);
    let most = e.batch as f64 * e.in_flight.unwrap_or(1) as f64 * 1e3 / fastest;
    refuse(rate > ABOVE * most, || {
        format!("`throughput_per_s` is {rate:.1}, and runs of {fastest:.3} ms allow {most:.1}")
    })
}

/// No rate is above what the device does at most.
fn peaks(e: &Entry) -> Result<(), String> {
    let c = e.ceilings;
    let arithmetic = c.map_or(MOST_GFLOPS, |c| c.fma_gflops.max(c.matrix_gflops.unwrap_or(0.0)));
    let memory = c.map_or(MOST_GFLOPS, |c| (c.copy_gb_s * CACHES).max(c.cache_gb_s.unwrap_or(0.0)));
    let help = "; if the peak is wrong, `weft bench --ceilings` on a quiet machine measures it again";
    refuse(c.is_some_and(|c| !(c.fma_gflops > 0.0 && c.copy_gb_s > 0.0)), || "`ceilings` has a peak of 0".into())?;
    let whole = e.flops as f64 / e.latency_ms.of.median / 1e6;
    refuse(whole > SAVED * arithmetic, || {
        format!("{whole:.0} GFLOP/s of the run are above the device's peak of {arithmetic:.0}{help}")
    })?;
    for l in &e.per_kernel {
        let above = |what: &str, rate: f64, peak: f64| {
            refuse(rate > ABOVE * peak, || {
                format!("kernel `{}`: {rate:.0} {what} are above the device's peak of {peak:.0}{help}", l.name)
            })
        };
        above("GFLOP/s", l.gflops, arithmetic)?;
        above("GB/s", l.gb_s, memory)?;
        let Some((c, said)) = c.zip(l.roofline_fraction) else { continue };
        let is = c.fraction(l.gflops, l.gb_s);
        refuse(!is_near(said, is), || {
            format!("kernel `{}`: `roofline_fraction` is {said:.3}, and its rates are {is:.3} of the ceilings", l.name)
        })?;
    }
    Ok(())
}

/// Mixed precision comes with its error against f32.
fn precision(e: &Entry) -> Result<(), String> {
    let amp = e.settings.get("amp").and_then(|a| a.as_str()).unwrap_or_default();
    let said = if amp == "off" { "f32" } else { "f16" };
    refuse(e.dtype != said, || format!("`dtype` is {}, but `settings.amp` is {amp}", e.dtype))?;
    let Some(a) = &e.against_f32 else {
        return refuse(e.dtype == "f16", || "it is of fp16 without `against_f32`, the comparison with f32".into());
    };
    refuse(a.outputs == 0, || "`against_f32` compares no result".into())?;
    refuse(a.rel_l2 < 0.0 || a.max_abs < 0.0, || "`against_f32` has an error below 0".into())?;
    refuse(a.not_finite > 0, || {
        format!("its results in fp16 have {} numbers that are finite on one side alone", a.not_finite)
    })
}

/// The version is one.
fn versions(e: &Entry) -> Result<(), String> {
    let v = &e.env.weft;
    let numbers = v.split(['-', '+']).next().unwrap_or_default().split('.').collect::<Vec<_>>();
    let right = numbers.len() == 3 && numbers.iter().all(|n| n.parse::<u32>().is_ok());
    refuse(!right, || format!("`env.weft` is `{v}`, which is no version"))
}
