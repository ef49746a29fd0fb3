//! The state of the machine at a measurement: load, clocks, power and temperature, as Linux's files say them to anyone.
//!
//! `root` is the folder in which `proc` and `sys` stand: `/`, or a recorded one. Elsewhere than on Linux there are no
//! such files, and the state has the time alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The state of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// Seconds from 1970.
    pub at: u64,
    /// Processes that ran or waited to run, the mean of the last minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// How Linux chooses the processor's clock: `performance`, `powersave` ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Values of sensors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sensors: Vec<Reading>,
}

/// The value of a sensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reading {
    /// The chip and its label: `amdgpu edge`; `cpu` for the mean clock of all cores.
    pub sensor: String,
    /// `MHz`, `W` or `C`.
    pub unit: String,
    /// In that unit.
    pub value: f64,
}

impl State {
    /// Now.
    pub fn now() -> State {
        State { at: seconds(), ..State::read(Path::new("/")) }
    }
    /// As the files below `root` say it, without the time.
    pub fn read(root: &Path) -> State {
        let cpu = root.join("sys/devices/system/cpu");
        let clocks: Vec<f64> =
            folders(&cpu, "cpu").iter().filter_map(|c| number(&c.join("cpufreq/scaling_cur_freq"))).collect();
        let mean = clocks.iter().sum::<f64>() / clocks.len().max(1) as f64;
        let own = (!clocks.is_empty()).then(|| Reading { sensor: "cpu".into(), unit: "MHz".into(), value: mean / 1e3 });
        let chips = folders(&root.join("sys/class/hwmon"), "hwmon");
        State {
            at: 0,
            load: text(&root.join("proc/loadavg")).and_then(|t| t.split(' ').next()?.parse().ok()),
            governor: text(&cpu.join("cpu0/cpufreq/scaling_governor")),
            sensors: own.into_iter().chain(chips.iter().flat_map(|c| of_chip(c))).collect(),
        }
    }
}

/// Seconds from 1970 to now.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs())
}

/// Files of Linux: the beginning of a name, its end, the unit, and how many of the file's units are one.
const QUANTITIES: [(&str, &str, &str, f64); 4] = [
    ("freq", "_input", "MHz", 1e6),
    ("power", "_average", "W", 1e6),
    ("power", "_input", "W", 1e6),
    ("temp", "_input", "C", 1e3),
];

/// The sensors of a chip of `hwmon`. Of a power the average counts, where there is one.
fn of_chip(folder: &Path) -> Vec<Reading> {
    let chip = text(&folder.join("name")).unwrap_or_default();
    let mut out: Vec<(String, Reading)> = vec![];
    for (begin, end, unit, scale) in QUANTITIES {
        for file in folders(folder, begin) {
            let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let Some(own) = name.strip_suffix(end) else { continue };
            let Some(value) = number(&file).filter(|_| !out.iter().any(|o| o.0 == own)) else { continue };
            let label = text(&folder.join(format!("{own}_label"))).unwrap_or_else(|| own.to_string());
            let reading = Reading { sensor: format!("{chip} {label}"), unit: unit.into(), value: value / scale };
            out.push((own.to_string(), reading));
        }
    }
    out.into_iter().map(|o| o.1).collect()
}

/// The entries of a folder whose name is `begin` and then a digit, in order.
fn folders(folder: &Path, begin: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let fits = |p: &PathBuf| {
        let name = p.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix(begin));
        name.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut all: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).filter(fits).collect();
    all.sort();
    all
}

fn number(file: &Path) -> Option<f64> {
    text(file)?.parse().ok()
}

/// The only line of a file.
fn text(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().to_string()).filter(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with the files of a text: a path, a colon and the content on each line.
    fn folder(files: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for (path, content) in files.lines().filter_map(|l| l.split_once(": ")) {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("it is made");
            std::fs::write(file, format!("{content}\n")).expect("it is written");
        }
        root
    }

    fn says(files: &str) -> (Option<f64>, Option<String>, Vec<String>) {
        let state = State::read(folder(files).path());
        let list = state.sensors.iter().map(|r| format!("{} {} {}", r.sensor, r.value, r.unit));
        (state.load, state.governor, list.collect())
    }

    #[test]
    fn clocks_power_and_temperature_are_read() {
        let (load, governor, sensors) = says(include_str!("state/desktop.txt"));
        assert_eq!((load, governor.as_deref()), (Some(0.42), Some("schedutil")));
        let all = [
            "cpu 3900 MHz",
            "amdgpu sclk 2304 MHz",
            "amdgpu mclk 1000 MHz",
            "amdgpu PPT 187.5 W",
            "amdgpu edge 61 C",
            "k10temp Tctl 54.375 C",
        ];
        assert_eq!(sensors, all);
    }

    #[test]
    fn what_a_machine_lacks_is_absent() {
        let (load, governor, sensors) = says(include_str!("state/board.txt"));
        assert_eq!((load, governor), (Some(1.07), None));
        assert_eq!(sensors, ["cpu_thermal temp1 48.312 C"]);
        assert_eq!(says(""), (None, None, vec![]));
    }
}
