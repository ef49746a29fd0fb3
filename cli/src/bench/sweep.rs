//! `weft bench --sweep`: every combination of some settings.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use compiler::passes::{AmpMode, FuseMode, LayoutMode};
use compiler::profile::DeviceProfile;
use serde_json::{Value, json};

/// The settings that `--sweep` varies, with their values.
const SWEPT: &[(&str, &str)] = &[
    ("amp", "off, fp16, auto"),
    ("layout", "auto, nchw, nhwc, nchw4c, nchw8c, nchw16c, none"),
    ("fuse", "full, classic, off"),
    ("batch", "a number from 1 on"),
    ("opt_level", "0, 1, 2, 3"),
    ("device", "what --device takes"),
    ("target", "a profile of `weft devices --profiles`, or none"),
    ("dim", "NAME=A,B: sizes of a dimension that the model leaves open"),
    ("keep", "patterns of nodes to keep in f32, @FILE for a list of them, or none"),
];

/// Keys that the table of results has columns for.
const WITH_COLUMNS: &[&str] = &["amp", "layout", "fuse", "batch"];

/// The options of some rows of the table.
#[derive(Clone)]
pub struct Setting {
    pub common: Common,
    /// What was swept: keys and values in order.
    pub swept: Vec<(String, String)>,
}

impl Setting {
    /// `settings` of the JSON.
    pub fn to_json(&self) -> Value {
        let c = &self.common;
        let swept: serde_json::Map<String, Value> = self.swept.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        json!({ "amp": c.amp, "layout": c.layout, "fuse": c.fuse, "opt_level": c.opt_level, "seed": c.seed, "device": c.device,
            "target": c.target, "dim": c.dim, "keep_f32": c.keep_f32, "swept": swept })
    }
    /// What was swept and has no column of its own: `device=0 n=64`.
    pub fn others(&self) -> String {
        let others = self.swept.iter().filter(|s| !WITH_COLUMNS.contains(&s.0.as_str()));
        others.map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    }
    /// All that was swept, for messages.
    pub fn text(&self) -> String {
        self.swept.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    }
}

/// Every combination of the swept settings.
pub fn sweep(list: &[String], common: &Common) -> CliResult<Vec<Setting>> {
    let mut out = vec![Setting { common: common.clone(), swept: vec![] }];
    for s in list {
        let (key, values) = s.split_once('=').ok_or_else(|| CliError::usage(format!("--sweep {s}: needs KEY=A,B")))?;
        let (_, choices) = SWEPT.iter().find(|k| k.0 == key).ok_or_else(|| {
            let keys: Vec<&str> = SWEPT.iter().map(|k| k.0).collect();
            CliError::usage(format!("--sweep {key}: can sweep {}", keys.join(", ")))
        })?;
        // Of `dim=height=320,640` each value has the name.
        let (name, values) = if key == "dim" { values.rsplit_once('=').unwrap_or(("", values)) } else { ("", values) };
        let mut next = Vec::new();
        for base in &out {
            for v in values.split(',') {
                let mut setting = base.clone();
                let done = match name {
                    "" => set(&mut setting.common, key, v),
                    name => set_dim(&mut setting.common, name, v),
                };
                done.ok_or_else(|| CliError::usage(format!("--sweep {key}={v}: takes {choices}")))?;
                setting.swept.push((if name.is_empty() { key } else { name }.to_string(), v.to_string()));
                next.push(setting);
            }
        }
        out = next;
    }
    Ok(out)
}

/// Gives an open dimension a size, in the place of one that the command line gives it.
fn set_dim(c: &mut Common, name: &str, v: &str) -> Option<()> {
    v.parse::<u64>().ok()?;
    c.dim.retain(|d| d.rsplit_once('=').is_none_or(|(n, _)| n != name));
    c.dim.push(format!("{name}={v}"));
    Some(())
}

/// Gives a swept setting a value; none where it is no value of it.
fn set(c: &mut Common, key: &str, v: &str) -> Option<()> {
    let known = |parsed: bool| parsed.then(|| v.to_string());
    match key {
        "amp" => c.amp = known(AmpMode::parse(v).is_some())?,
        "layout" => c.layout = known(LayoutMode::parse(v).is_some())?,
        "fuse" => c.fuse = known(FuseMode::parse(v).is_some())?,
        "batch" => c.batch = Some(v.parse().ok().filter(|&b| b > 0)?),
        "device" => c.device = known(!v.is_empty())?,
        "target" if v == "none" => c.target = None,
        "target" => c.target = Some(known(DeviceProfile::named(v).is_some())?),
        "keep" if v == "none" => c.keep_f32.clear(),
        "keep" => c.keep_f32 = vec![known(!v.is_empty())?],
        "opt_level" => c.opt_level = v.parse().ok().filter(|&o| o <= 3)?,
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(list: &[&str]) -> Vec<String> {
        let list: Vec<String> = list.iter().map(|s| s.to_string()).collect();
        let common = Common { dim: vec!["w=3".into(), "h=9".into()], ..Common::default() };
        let all = sweep(&list, &common).unwrap_or_else(|e| panic!("{}", e.message));
        all.iter().map(|s| format!("{} | {}", s.others(), s.common.dim.join(" "))).collect()
    }

    #[test]
    fn every_combination_once() {
        assert_eq!(settings(&["device=0,cpu", "batch=1,2"]).len(), 4);
        assert_eq!(settings(&["dim=w=1,2", "target=ada"]), ["w=1 target=ada | h=9 w=1", "w=2 target=ada | h=9 w=2"]);
        assert_eq!(settings(&["keep=none,@list"]), ["keep=none | w=3 h=9", "keep=@list | w=3 h=9"]);
        for wrong in ["dim=w=x", "dim=3", "target=nosuch", "batch=0", "nosuch=1"] {
            assert!(sweep(&[wrong.to_string()], &Common::default()).is_err(), "{wrong}");
        }
    }
}
