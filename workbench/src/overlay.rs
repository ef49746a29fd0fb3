//! Values of nodes from a file, for `weft view --overlay`: an object or a list in JSON, two columns in CSV, or a
//! profile that ONNX Runtime wrote.
//!
//! Names are those that all options take (`node_names`). ONNX Runtime calls a fused node after the value that it gives:
//! such a name belongs to the node with which it begins.

use crate::error::{Error, Result};
use crate::names::did_you_mean;
use crate::node_names;
use crate::progress::log;
use crate::settings::Settings;
use compiler::trace::{CompileTrace, Overlay, OverlayValue};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Values by name, as a file has them.
struct Rows {
    title: Option<String>,
    /// A profile: milliseconds, by names of another runtime.
    profile: bool,
    rows: Vec<(String, OverlayValue)>,
}

/// The values of a file for the nodes of a compilation.
///
/// # Errors
/// Code 3: a file that cannot be read, has no values, or none for a node of this model.
pub fn read(path: &Path, trace: &CompileTrace, settings: &Settings) -> Result<Overlay> {
    let place = format!("--overlay {}", path.display());
    let wrong = |why: String| Error::input(format!("{place}: {why}"));
    let text = weft::plain_files::read_text(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    let is_csv = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    let rows = if is_csv { of_csv(&text) } else { of_json(&text) }.map_err(wrong)?;
    let Some((first, _)) = rows.rows.first().cloned() else { return Err(wrong("it has no values".into())) };
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let title = rows.title.map_or(name.clone(), |t| format!("{t}, {name}"));
    let mut out = Overlay { title, times: rows.profile, ..Overlay::default() };
    let nodes: Vec<(&str, &str)> = trace.sources.iter().map(|s| (s.name.as_str(), s.op.as_str())).collect();
    let count = rows.rows.len();
    for (name, value) in rows.rows {
        let found = if rows.profile { begins(&name, &nodes) } else { node_names::find(&name, &nodes) };
        out.strays += usize::from(found.is_empty());
        found.iter().for_each(|&i| out.put(nodes[i].0, value.clone()));
    }
    if out.values.is_empty() {
        let help = did_you_mean(&first, node_names::known(&nodes)).unwrap_or("`weft explain MODEL` lists them".into());
        return Err(wrong(format!("none of its {count} names is one of a node of this model")).help(help));
    }
    if out.strays > 0 {
        log(settings, format!("{place}: of its {count} names {} fit no node of this model", out.strays));
    }
    Ok(out)
}

/// The node with this name, else that with the longest name with which this one begins.
fn begins(name: &str, nodes: &[(&str, &str)]) -> Vec<usize> {
    let holds = |n: &str| {
        let rest = name.strip_prefix(n).filter(|_| !n.is_empty());
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let all = (0..nodes.len()).filter(|&i| holds(nodes[i].0));
    all.max_by_key(|&i| nodes[i].0.len()).into_iter().collect()
}

fn value_of(v: &Value) -> Option<OverlayValue> {
    match v {
        Value::Number(n) => n.as_f64().map(OverlayValue::Number),
        Value::String(s) => Some(OverlayValue::Text(s.clone())),
        Value::Bool(b) => Some(OverlayValue::Text(b.to_string())),
        _ => None,
    }
}

/// `{"node": 1.5}`, `[{"node": "a", "value": 1.5}]`, or the events of a profile.
fn of_json(text: &str) -> std::result::Result<Rows, String> {
    const FORMS: &str =
        "is neither an object of nodes and values, a list of {node, value}, nor a profile of ONNX Runtime";
    let rows = match serde_json::from_str(text).map_err(|e| format!("is no JSON: {e}"))? {
        Value::Object(all) => all.iter().filter_map(|(name, v)| Some((name.clone(), value_of(v)?))).collect(),
        Value::Array(list) if list.iter().any(|e| e["cat"] == "Node") => return Ok(of_profile(&list)),
        Value::Array(list) => {
            let one = |e: &Value| Some((e["node"].as_str()?.to_string(), value_of(&e["value"])?));
            list.iter().map(one).collect::<Option<Vec<_>>>().ok_or(FORMS)?
        }
        _ => return Err(FORMS.into()),
    };
    Ok(Rows { title: None, profile: false, rows })
}

/// Of each node the median of all runs, in milliseconds.
fn of_profile(events: &[Value]) -> Rows {
    let runs = events.iter().filter(|e| e["name"] == "model_run").count().max(1);
    let mut spent: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for e in events.iter().filter(|e| e["cat"] == "Node") {
        let name = e["name"].as_str().and_then(|n| n.strip_suffix("_kernel_time"));
        if let Some((name, us)) = name.zip(e["dur"].as_f64()) {
            spent.entry(name).or_default().push(us);
        }
    }
    let median = |us: &Vec<f64>| {
        // A node of a loop, or several of one name, have several events a run.
        let each = us.len().div_ceil(runs);
        let mut sums: Vec<f64> = us.chunks(each).map(|run| run.iter().sum()).collect();
        sums.sort_by(f64::total_cmp);
        sums[sums.len() / 2] / 1e3
    };
    let rows = spent.iter().map(|(name, us)| (name.to_string(), OverlayValue::Number(median(us)))).collect();
    let title = format!("time in ONNX Runtime, median of {runs} run{}", if runs == 1 { "" } else { "s" });
    Rows { title: Some(title), profile: true, rows }
}

/// `node,value`, with or without a line of titles; a name with a comma stands in double quotes.
fn of_csv(text: &str) -> std::result::Result<Rows, String> {
    let (mut title, mut rows) = (None, vec![]);
    for (i, line) in text.lines().enumerate().filter(|l| !l.1.trim().is_empty()) {
        let quoted = line.strip_prefix('"').and_then(|rest| rest.split_once("\","));
        let Some((name, value)) = quoted.or_else(|| line.split_once(',')) else {
            return Err(format!("line {}: `{line}` is no `node,value`", i + 1));
        };
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        if rows.is_empty() && title.is_none() && ["node", "name"].iter().any(|w| name.eq_ignore_ascii_case(w)) {
            title = Some(value.to_string());
            continue;
        }
        let number = value.parse().map(OverlayValue::Number);
        rows.push((name.to_string(), number.unwrap_or_else(|_| OverlayValue::Text(value.to_string()))));
    }
    Ok(Rows { title, profile: false, rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::trace::SourceNode;

    fn overlay(file: &str, text: &str) -> Result<Overlay> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(file);
        std::fs::write(&path, text).expect("writes");
        let source = |name: &str| SourceNode { name: name.into(), op: "conv".into(), origins: vec![] };
        let sources = ["/a/Conv", "/a/Conv_1", "/b/b.0/Conv"].map(source).to_vec();
        read(&path, &CompileTrace { sources, ..CompileTrace::default() }, &Settings::default())
    }

    fn numbers(o: &Overlay) -> Vec<(&str, f64)> {
        let all = o.values.iter().map(|(n, v)| match v {
            OverlayValue::Number(x) => (n.as_str(), *x),
            OverlayValue::Text(t) => panic!("{n}: {t}"),
        });
        all.collect()
    }

    #[test]
    fn every_form_is_read() {
        let object = overlay("f.json", r#"{"/a/Conv": 2, "b.0": 3.5, "gone": 1}"#).expect("an object");
        assert_eq!((numbers(&object), object.strays), (vec![("/a/Conv", 2.0), ("/b/b.0/Conv", 3.5)], 1));
        let list = overlay("f.json", r#"[{"node": "/a/Conv_1", "value": "slow"}]"#).expect("a list");
        assert_eq!(list.words(["/a/Conv_1"].into_iter()), ["slow"]);
        let csv = overlay("f.csv", "node,error\n/a/Conv,0.5\n\"/a/Conv_1\",7\n").expect("columns");
        assert_eq!((numbers(&csv), csv.title.as_str()), (vec![("/a/Conv", 0.5), ("/a/Conv_1", 7.0)], "error, f.csv"));
    }

    #[test]
    fn a_profile_has_medians_of_its_runs_and_names_of_values() {
        let event = |name: &str, us: u32| format!(r#"{{"cat": "Node", "name": "{name}_kernel_time", "dur": {us}}}"#);
        let run = r#"{"cat": "Session", "name": "model_run", "dur": 9}"#.to_string();
        let runs = [9000, 1000, 2000].map(|us| {
            [run.clone(), event("/a/Conv_output_0_nchwc", us), event("/a/Conv_1", 50), event("Reorder", 1)].join(",")
        });
        let o = overlay("p.json", &format!("[{}]", runs.join(","))).expect("a profile");
        assert_eq!((numbers(&o), o.strays, o.times), (vec![("/a/Conv", 2.0), ("/a/Conv_1", 0.05)], 1, true));
        assert_eq!(o.title, "time in ONNX Runtime, median of 3 runs, p.json");
        let both = ["/a/Conv", "/a/Conv_1"];
        assert_eq!(o.number(both.into_iter()), Some(2.05));
    }

    #[test]
    fn what_fits_nothing_is_refused() {
        for (file, text, why) in [
            ("f.json", "{", "is no JSON"),
            ("f.json", "[1, 2]", "nor a profile"),
            ("f.json", "{}", "it has no values"),
            ("f.csv", "node value\n", "line 1: `node value` is no `node,value`"),
            ("f.csv", "/x/Conv,1\n", "none of its 1 names is one of a node of this model"),
        ] {
            let said = overlay(file, text).expect_err(text).to_string();
            assert!(said.contains(why), "{said}");
        }
    }
}
