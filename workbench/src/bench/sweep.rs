//! `weft bench --sweep`: every combination of some settings.

use super::record::SettingRecord;
use crate::error::{Error, Result};
use crate::options::{Heading, Opt, Tabled};
use crate::settings::Settings;

/// The options of some rows of the table.
#[derive(Clone)]
pub struct Setting {
    /// The options.
    pub settings: Settings,
    /// The swept keys and values in order.
    pub swept: Vec<(String, String)>,
}

impl Setting {
    /// `settings` of the record.
    pub fn record(&self) -> SettingRecord {
        let Settings { amp, layout, fuse, opt_level, seed, device, target, dim, keep_f32, .. } = self.settings.clone();
        let swept = self.swept.iter().cloned().collect();
        SettingRecord { amp, layout, fuse, opt_level, seed, device, target, dim, keep_f32, swept }
    }
    /// The value of a swept option.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.swept.iter().find(|s| s.0 == key).map(|s| s.1.as_str())
    }
    /// Swept options beside those that have a column of their own: `device=0 n=64`.
    pub fn others(&self, with_columns: &[&str]) -> String {
        let others = self.swept.iter().filter(|s| !with_columns.contains(&s.0.as_str()));
        others.map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    }
    /// All that was swept, for messages.
    pub fn text(&self) -> String {
        self.swept.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    }
}

/// Names of options for `--sweep` alone.
const ALSO: [(&str, &str); 1] = [("keep", "keep_f32")];
/// Takes back what an option was given.
const NONE: &str = "none";

/// The option of that name that a sweep can vary: one that changes how a model is sized, compiled or run, and of whose
/// values none holds a comma.
fn swept(key: &str) -> Option<&'static Opt<Settings>> {
    let name = ALSO.iter().find(|a| a.0 == key).map_or(key, |a| a.1);
    Settings::row(name).filter(|row| is_swept(row))
}

/// Whether a sweep can vary the option of that name.
pub fn can_sweep(key: &str) -> bool {
    swept(key).is_some()
}

fn is_swept(row: &Opt<Settings>) -> bool {
    !row.listed && !row.flag && matches!(row.heading, Heading::Device | Heading::Compiler | Heading::Model)
}

/// Every combination of the swept settings.
pub fn sweep(list: &[String], settings: &Settings) -> Result<Vec<Setting>> {
    let mut out = vec![Setting { settings: settings.clone(), swept: vec![] }];
    for s in list {
        let (key, values) = s.split_once('=').ok_or_else(|| Error::usage(format!("--sweep {s}: needs KEY=A,B")))?;
        let row = swept(key).ok_or_else(|| {
            let keys: Vec<String> = Settings::rows().iter().filter(|row| is_swept(row)).map(Opt::long_name).collect();
            Error::usage(format!("--sweep {key}: can sweep {}", keys.join(", ")))
        })?;
        // Of `dim=height=320,640` each value has the name.
        let named = row.value.contains('=');
        let (name, values) = if named { values.rsplit_once('=').unwrap_or(("", values)) } else { ("", values) };
        let mut next = Vec::new();
        for base in &out {
            for v in values.split(',') {
                let mut setting = base.clone();
                set(&mut setting.settings, row, name, v)
                    .map_err(|why| Error::usage(format!("--sweep {key}={v}: {why}")))?;
                setting.swept.push((if name.is_empty() { key } else { name }.to_string(), v.to_string()));
                next.push(setting);
            }
        }
        out = next;
    }
    let unknown = out.iter().filter_map(|s| s.settings.target.as_deref()).find(|t| weft::named_profile(t).is_err());
    match unknown {
        Some(t) if !list.is_empty() => {
            let why = format!("--sweep target={t}: no such profile");
            Err(Error::usage(why).help("`weft devices --profiles` lists them"))
        }
        _ => Ok(out),
    }
}

/// Gives a swept option a value, in the place of what it has; of one whose values have names, of that of this name.
fn set(to: &mut Settings, row: &Opt<Settings>, name: &str, v: &str) -> Result<(), String> {
    if name.is_empty() {
        if row.value.contains('=') {
            return Err(format!("takes {}", row.value));
        }
        if v.is_empty() {
            let takes = row.set(&mut to.clone(), v).err();
            return Err(takes.unwrap_or_else(|| "needs a value".into()));
        }
        (row.reset)(to);
        return if v == NONE && row.default.is_empty() { Ok(()) } else { row.set(to, v) };
    }
    let others: Vec<String> =
        row.given(to).into_iter().filter(|t| t.rsplit_once('=').is_none_or(|t| t.0 != name)).collect();
    (row.reset)(to);
    others.iter().try_for_each(|t| row.set(to, t))?;
    row.set(to, &format!("{name}={v}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(list: &[&str]) -> Vec<String> {
        let list: Vec<String> = list.iter().map(|s| s.to_string()).collect();
        let settings = Settings { dim: vec!["w=3".into(), "h=9".into()], ..Settings::default() };
        let all = sweep(&list, &settings).unwrap_or_else(|e| panic!("{}", e.message));
        all.iter()
            .map(|s| format!("{} | {}", s.others(&["amp", "layout", "fuse", "batch"]), s.settings.dim.join(" ")))
            .collect()
    }

    #[test]
    fn every_combination_once() {
        assert_eq!(settings(&["device=0,cpu", "batch=1,2"]).len(), 4);
        assert_eq!(settings(&["dim=w=1,2", "target=ada"]), ["w=1 target=ada | h=9 w=1", "w=2 target=ada | h=9 w=2"]);
        assert_eq!(settings(&["keep=none,@list"]), ["keep=none | w=3 h=9", "keep=@list | w=3 h=9"]);
        for wrong in ["dim=w=x", "dim=3", "target=nosuch", "batch=0", "batch=", "amp=", "device=", "amp", "nosuch=1"] {
            assert!(sweep(&[wrong.to_string()], &Settings::default()).is_err(), "{wrong}");
        }
        let said = |text: &str| sweep(&[text.into()], &Settings::default()).err().expect("wrong").message;
        assert_eq!(said("amp"), "--sweep amp: needs KEY=A,B");
        assert_eq!(said("amp="), "--sweep amp=: takes off, fp16, auto");
        assert!(said("x=1").contains("opt-level"), "{}", said("x=1"));
    }
}
