//! `weft compare`, and what agreement of two tensors means.

use crate::args::CompareArgs;
use crate::arrays::{Named, read_npz};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, Executor};
use crate::models::{inputs_for, load};
use crate::output::{print_text, table, write_json};
use compiler::dtype::DType;
use compiler::tensor::Tensor;

/// Tolerances of one comparison: `|a-b| <= atol*max|b| + rtol*|b|` and `norm(a-b) <= rtol*norm(b)`.
pub struct Tolerance {
    rtol: f64,
    atol: f64,
}
impl Tolerance {
    /// By dtype (1e-2 for f16, 1e-3 otherwise), overridden by the options.
    pub fn new(dtype: DType, rtol: Option<f64>, atol: Option<f64>) -> Tolerance {
        let t = if matches!(dtype, DType::F16 | DType::BF16) { 1e-2 } else { 1e-3 };
        Tolerance { rtol: rtol.unwrap_or(t), atol: atol.unwrap_or(rtol.unwrap_or(t)) }
    }
    /// One tolerance for both.
    pub fn uniform(t: f64) -> Tolerance {
        Tolerance { rtol: t, atol: t }
    }
}

/// How two tensors differ.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Difference {
    /// They agree.
    #[serde(skip)]
    pub pass: bool,
    /// Why not.
    #[serde(skip)]
    pub why: String,
    /// Largest absolute difference.
    pub max_abs: f64,
    /// Largest relative difference where the reference is not tiny.
    pub max_rel: f64,
    /// `norm(a-b) / norm(b)`.
    pub rel_l2: f64,
    /// Cosine of the angle between them.
    pub cosine: f64,
    /// NaNs in the first and not in the second.
    pub nan: usize,
    /// Infinities in the first and not in the second.
    pub inf: usize,
    /// Largest magnitude of the first.
    pub max_magnitude: f64,
}

/// Compares `a` with the reference `b`.
pub fn agree(a: &Tensor, b: &Tensor, tol: &Tolerance) -> Difference {
    let mut d = Difference { cosine: 1.0, ..Difference::default() };
    if a.shape() != b.shape() {
        d.why = format!("shape {:?}, expected {:?}", a.shape(), b.shape());
        return d;
    }
    let (x, y) = (a.to_f64_vec(), b.to_f64_vec());
    let peak = y.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
    let (mut num, mut den, mut xx, mut xy) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    let mut worst: Option<(usize, f64)> = None;
    for (i, (&p, &q)) in x.iter().zip(&y).enumerate() {
        if p.is_nan() && q.is_nan() || p == q {
            let f = if p.is_finite() { p } else { 0.0 };
            (den, xx, xy) = (den + f * f, xx + f * f, xy + f * f);
            d.max_magnitude = d.max_magnitude.max(f.abs());
            continue;
        }
        if !p.is_finite() || !q.is_finite() {
            d.nan += p.is_nan() as usize;
            d.inf += p.is_infinite() as usize;
            worst = Some((i, f64::INFINITY));
            continue;
        }
        let e = (p - q).abs();
        d.max_abs = d.max_abs.max(e);
        d.max_magnitude = d.max_magnitude.max(p.abs());
        if q.abs() > 1e-6 * peak {
            d.max_rel = d.max_rel.max(e / q.abs());
        }
        let excess = e - (tol.atol * peak + tol.rtol * q.abs());
        if excess > 0.0 && worst.is_none_or(|w| excess > w.1) {
            worst = Some((i, excess));
        }
        (num, den, xx, xy) = (num + e * e, den + q * q, xx + p * p, xy + p * q);
    }
    d.rel_l2 = if num == 0.0 { 0.0 } else { (num / den.max(f64::MIN_POSITIVE)).sqrt() };
    if xx > 0.0 && den > 0.0 {
        d.cosine = xy / (xx.sqrt() * den.sqrt());
    }
    d.pass = worst.is_none() && d.rel_l2 <= tol.rtol.max(tol.atol);
    if let Some((i, _)) = worst {
        d.why = format!("element {i} is {}, expected {}", x[i], y[i]);
    } else if !d.pass {
        d.why = format!("relative error {:.3e}", d.rel_l2);
    }
    d
}

/// Compares a device with a reference.
pub fn execute(a: &CompareArgs) -> CliResult<()> {
    let given = a.input.as_ref().map(|p| read_npz(p)).transpose()?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), &a.common)?;
    let device = Device::open(&a.common)?;
    let executor = Executor::new(module.clone(), &a.common, &device)?;
    let names = executor.output_names();
    let got = executor.run(&inputs)?;
    drop(executor);
    let reference = reference(a, &module, &inputs, &names, &device)?;
    let half = a.common.amp != "off";
    let mut rows = Vec::new();
    for (name, t) in names.iter().zip(&got) {
        let (_, want) = reference
            .iter()
            .find(|(n, _)| n == name)
            .ok_or_else(|| CliError::input(format!("the reference has no output `{name}`")))?;
        let tol = Tolerance::new(if half { DType::F16 } else { t.dtype() }, a.rtol, a.atol);
        rows.push((name.clone(), agree(t, want, &tol)));
    }
    let nodes = crate::explain::node_errors(a, &module, &inputs, &device)?;
    if let Some(path) = &a.write_keep {
        let keep: Vec<&str> = nodes.iter().filter(|n| !n.1.pass).map(|n| n.0.0.as_str()).collect();
        crate::output::write_file(path, keep.join("\n").as_bytes())?;
    }
    let pass = rows.iter().all(|r| r.1.pass);
    let failing = nodes.iter().find(|n| !n.1.pass).map(|n| n.0.0.clone());
    let json = serde_json::json!({
        "schema": 1, "model": a.model, "pass": pass, "device": device.describe(),
        "outputs": rows.iter().map(|(n, d)| with_name(n, None, d)).collect::<Vec<_>>(),
        "nodes": nodes.iter().map(|((n, op), d)| with_name(n, Some(op), d)).collect::<Vec<_>>(),
        "first_failing": if pass { None } else { failing.or_else(|| rows.iter().find(|r| !r.1.pass).map(|r| r.0.clone())) },
    });
    if !write_json(&a.common, &json)? {
        print_table(a, &rows, &nodes)?;
    }
    if pass {
        return Ok(());
    }
    let why: Vec<String> = rows.iter().filter(|r| !r.1.pass).map(|r| format!("{}: {}", r.0, r.1.why)).collect();
    Err(CliError::new(Code::Check, format!("results differ: {}", why.join("; "))))
}

fn print_table(
    a: &CompareArgs,
    rows: &[(String, Difference)],
    nodes: &[((String, String), Difference)],
) -> CliResult<()> {
    let mut t = table(&["", "output", "max abs", "max rel", "rel l2", "cosine"]);
    for (n, d) in rows {
        t.add_row([
            if d.pass { "ok" } else { "FAIL" }.to_string(),
            n.clone(),
            format!("{:.3e}", d.max_abs),
            format!("{:.3e}", d.max_rel),
            format!("{:.3e}", d.rel_l2),
            format!("{:.7}", d.cosine),
        ]);
    }
    print_text(&t.to_string())?;
    let bad: Vec<_> = nodes.iter().filter(|n| !n.1.pass || a.common.verbose > 0).collect();
    if !bad.is_empty() {
        let mut t = table(&["", "node", "op", "max abs", "rel l2", "max magnitude"]);
        for ((n, op), d) in bad {
            t.add_row([
                if d.pass { "ok" } else { "FAIL" }.to_string(),
                n.clone(),
                op.clone(),
                format!("{:.3e}", d.max_abs),
                format!("{:.3e}", d.rel_l2),
                format!("{:.3e}", d.max_magnitude),
            ]);
        }
        print_text(&t.to_string())?;
    }
    Ok(())
}

fn with_name(name: &str, op: Option<&str>, d: &Difference) -> serde_json::Value {
    let mut v = serde_json::json!({ "name": name });
    if let Some(op) = op {
        v["op"] = op.into();
    }
    if let (Some(o), Ok(serde_json::Value::Object(rest))) = (v.as_object_mut(), serde_json::to_value(d)) {
        o.extend(rest);
    }
    v
}

fn reference(
    a: &CompareArgs,
    module: &compiler::graph::Module,
    inputs: &[Tensor],
    names: &[String],
    device: &Device,
) -> CliResult<Named> {
    match a.against.as_str() {
        "cpu" => Ok(names.iter().cloned().zip(crate::executor::run_on_cpu(module, inputs)?).collect()),
        "fp32" => {
            let plain = crate::args::Common { amp: "off".into(), ..a.common.clone() };
            let e = Executor::new(module.clone(), &plain, device)?;
            Ok(e.output_names().into_iter().zip(e.run(inputs)?).collect())
        }
        file => {
            let path = std::path::Path::new(file);
            if !path.exists() {
                return Err(CliError::usage(format!(
                    "--against {file}: needs cpu, fp32, or a file of results that exists"
                )));
            }
            read_npz(path)
        }
    }
}
