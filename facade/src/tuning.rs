//! The tuning database: a file of JSON lines for everything that is measured. A line is a tuned function
//! ([`TuningLine`]), a refused schedule ([`RefusedLine`]), the time of a function
//! in a network ([`FunctionLine`]), that of a region of an external target ([`RegionLine`]), that of a schedule beside
//! its estimate ([`SampleLine`]), or factors on the estimate ([`CalibrationLine`]).
//!
//! Each line is self-contained, so concatenating files merges them. If a workload has several lines with schedules, the
//! one that a user kept last wins, else the smallest ratio, and of several times the smallest, independently of their
//! order. A line without choices and schedule records a search that found nothing. A withdrawn line cancels the lines
//! with the same workload and schedule. A line that does not parse is skipped.

mod bytes;
mod lines;

pub use lines::{
    BY_HAND, CalibrationLine, CeilingsLine, DeviceLine, FunctionLine, Line, RefusedLine, RegionLine, SampleLine,
    TuningLine, describe_choices, parse_choices,
};

use bytes::{Filter, MOST_BYTES, bytes_of, bytes_of_whole_lines, is_at, open, whole_lines};
use compiler::cost::{Measurements, RegionTimes};
use compiler::schedule::estimate;
use compiler::schedule::{FamilyMember, ScheduleProvider, Tuned, Workload};
use compiler::trace::Ceilings;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// The kinds of lines that this version knows.
const KINDS: [&str; 8] = ["choices", "refused", "function", "region", "sample", "calibration", "ceilings", "device"];

/// True for a line of a kind that a later version of Weft writes.
fn is_of_later_kind(line: &str) -> bool {
    let parsed: Option<serde_json::Value> = serde_json::from_str(line).ok();
    let kind = parsed.as_ref().and_then(|v| v["kind"].as_str());
    kind.is_some_and(|kind| !KINDS.contains(&kind))
}

/// Lines of a tuning database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TuningDatabase {
    /// Tuned functions, in the order of the file.
    pub lines: Vec<TuningLine>,
    /// Refused schedules.
    pub refused: Vec<RefusedLine>,
    /// Times of functions in networks.
    pub functions: Vec<FunctionLine>,
    /// Times of regions of external targets.
    pub regions: Vec<RegionLine>,
    /// Times of schedules.
    pub samples: Vec<SampleLine>,
    /// Factors on the estimate.
    pub calibrations: Vec<CalibrationLine>,
    /// Peak rates of devices, the last ones last.
    pub ceilings: Vec<CeilingsLine>,
    /// Devices.
    pub devices: Vec<DeviceLine>,
    /// Lines of kinds that later versions of Weft write.
    pub others: Vec<String>,
    /// Lines that do not parse: the number of each, and why.
    pub bad: Vec<String>,
    /// Lines of other devices than those that were asked for, which were not parsed.
    pub skipped: usize,
}

impl TuningDatabase {
    /// Reads a file. A missing file is an empty database. Lines that do not parse are skipped, and named in
    /// [`TuningDatabase::bad`].
    ///
    /// # Errors
    /// A file that cannot be read, or is no plain file.
    pub fn read(path: &Path) -> Result<TuningDatabase, String> {
        let mut out = TuningDatabase::parse(&bytes_of(path)?);
        out.bad.iter_mut().for_each(|b| *b = format!("{}: {b}", path.display()));
        Ok(out)
    }
    /// As [`TuningDatabase::read`], the lines of these devices alone: all others are skipped without parsing them, and
    /// named in [`TuningDatabase::bad`] only if they do not look like lines at all.
    ///
    /// # Errors
    /// As there.
    pub fn read_for(path: &Path, devices: &[&str]) -> Result<TuningDatabase, String> {
        let mut out = TuningDatabase::default();
        let Some(file) = open(path)? else { return Ok(out) };
        let fail = |e: &dyn Display| format!("{}: {e}", path.display());
        let mut from = BufReader::with_capacity(1 << 20, file.take(MOST_BYTES));
        let (filter, mut line) = (Filter::new(devices), vec![]);
        for n in 1.. {
            line.clear();
            from.read_until(b'\n', &mut line).map_err(|e| fail(&e))?;
            // The last one is incomplete if it does not end.
            let Some(line) = line.strip_suffix(b"\n") else { break };
            if !filter.takes(line) {
                out.skipped += 1;
            } else if let Err(e) = out.push_line(line) {
                out.bad.push(fail(&format!("line {n}: {e}")));
            }
        }
        out.retain_devices(|device| devices.contains(&device));
        Ok(out)
    }
    /// True for a file without a byte, and for a missing one.
    ///
    /// # Errors
    /// A file that cannot be read, or is no plain file.
    pub fn is_empty_file(path: &Path) -> Result<bool, String> {
        let bytes = open(path)?.map_or(Ok(0), |f| f.metadata().map(|m| m.len()));
        bytes.map(|n| n == 0).map_err(|e| format!("{}: {e}", path.display()))
    }
    /// True if there are lines, and none parses.
    pub fn has_only_bad_lines(&self) -> bool {
        !self.bad.is_empty() && *self == (TuningDatabase { bad: self.bad.clone(), ..Default::default() })
    }
    /// Parses the bytes of a file. Lines that do not parse are skipped.
    pub fn parse(bytes: &[u8]) -> TuningDatabase {
        let mut out = TuningDatabase::default();
        for (n, line) in whole_lines(bytes).enumerate() {
            if let Err(e) = out.push_line(line) {
                out.bad.push(format!("line {}: {e}", n + 1));
            }
        }
        out
    }
    /// The lines of a file that parse, as they stand there, and the number of those that do not.
    ///
    /// # Errors
    /// A file that cannot be read, or is no plain file.
    pub fn good_lines(path: &Path) -> Result<(Vec<u8>, usize), String> {
        let (bytes, mut good, mut bad) = (bytes_of(path)?, vec![], 0);
        for line in whole_lines(&bytes) {
            match TuningDatabase::default().push_line(line) {
                Ok(()) => good.extend([line, b"\n"].concat()),
                Err(_) => bad += 1,
            }
        }
        Ok((good, bad))
    }
    fn push_line(&mut self, line: &[u8]) -> Result<(), String> {
        let line = std::str::from_utf8(line).map_err(|e| e.to_string())?;
        match serde_json::from_str(line) {
            _ if line.trim().is_empty() => Ok(()),
            Ok(parsed) => self.push(parsed),
            Err(_) if is_of_later_kind(line) => {
                self.others.push(line.into());
                Ok(())
            }
            Err(e) => Err(e.to_string()),
        }
    }
    fn push(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Choices(line) => {
                line.tuned_schedule()?;
                self.lines.push(line);
            }
            Line::Refused(line) => {
                parse_choices(&line.choices)?;
                self.refused.push(line);
            }
            Line::Function(line) => self.functions.push(line),
            Line::Region(line) => self.regions.push(line),
            Line::Sample(line) => self.samples.push(line),
            Line::Calibration(line) => self.calibrations.push(line),
            Line::Ceilings(line) => self.ceilings.push(line),
            Line::Device(line) => self.devices.push(*line),
        }
        Ok(())
    }
    /// Adds the lines of another database.
    pub fn extend(&mut self, other: TuningDatabase) {
        self.lines.extend(other.lines);
        self.refused.extend(other.refused);
        self.functions.extend(other.functions);
        self.regions.extend(other.regions);
        self.samples.extend(other.samples);
        self.calibrations.extend(other.calibrations);
        self.ceilings.extend(other.ceilings);
        self.devices.extend(other.devices);
        self.others.extend(other.others);
        self.bad.extend(other.bad);
        self.skipped += other.skipped;
    }
    /// Drops the lines of devices for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.retain_devices(keep);
        self.others.clear();
        self.bad.clear();
    }
    fn retain_devices(&mut self, keep: impl Fn(&str) -> bool) {
        self.lines.retain(|l| keep(&l.device));
        self.refused.retain(|l| keep(&l.device));
        self.functions.retain(|l| keep(&l.device));
        self.regions.retain(|l| keep(&l.device));
        self.samples.retain(|l| keep(&l.device));
        self.calibrations.retain(|l| keep(&l.device));
        self.ceilings.retain(|l| keep(&l.device));
        self.devices.retain(|l| keep(&l.device));
    }
    /// The lines that count, each once: the best choices of each workload, refused schedules, the smallest time of each
    /// function. Their order depends on neither the order nor the repetition of the lines that were read.
    pub fn merged(&self) -> Vec<Line> {
        let refused: BTreeSet<&RefusedLine> = self.refused.iter().collect();
        let choices = self.best().into_values().map(Line::from);
        let refused = refused.into_iter().map(|l| Line::Refused(l.clone()));
        let functions = self.best_functions().into_values().map(|l| Line::Function(l.clone()));
        let regions = self.best_regions().into_values().map(|l| Line::Region(l.clone()));
        let samples = self.best_samples().into_values().map(|l| Line::Sample(l.clone()));
        let devices: BTreeSet<&str> = self.calibrations.iter().map(|l| l.device.as_str()).collect();
        let calibrations = devices.into_iter().filter_map(|d| self.calibration(d).map(Line::from));
        let devices: BTreeSet<&str> = self.ceilings.iter().map(|l| l.device.as_str()).collect();
        let ceilings = devices.into_iter().filter_map(|d| Some(Line::Ceilings(self.best_ceilings(d)?.clone())));
        let times = choices.chain(refused).chain(functions).chain(regions).chain(samples);
        let devices: BTreeMap<(&str, &str), &DeviceLine> =
            self.devices.iter().map(|l| ((l.device.as_str(), l.weft.as_str()), l)).collect();
        let devices = devices.into_values().map(|l| Line::Device(Box::new(l.clone())));
        times.chain(calibrations).chain(ceilings).chain(devices).collect()
    }
    /// The peak rates of a device, as [`CeilingsLine::device`] names it.
    pub fn ceilings_of(&self, device: &str) -> Option<Ceilings> {
        self.best_ceilings(device).map(|l| l.ceilings)
    }
    /// A quiet measurement of its own if there is one, so that the first of these replaces all others; of several the
    /// one with the highest rates, since other work on the machine makes rates lower.
    fn best_ceilings(&self, device: &str) -> Option<&CeilingsLine> {
        let own = self.ceilings.iter().filter(|l| l.device == device);
        let rates = |l: &CeilingsLine| (l.ceilings.fma_gflops, l.ceilings.copy_gb_s);
        own.max_by(|a, b| {
            let quiet = [a, b].map(|l| l.ceilings.taken.is_quiet());
            let ((a, b), (c, d)) = (rates(a), rates(b));
            quiet[0].cmp(&quiet[1]).then(a.total_cmp(&c)).then(b.total_cmp(&d))
        })
    }
    /// The calibration of a device by the most schedules.
    pub fn calibration(&self, device: &str) -> Option<&CalibrationLine> {
        let own = self.calibrations.iter().filter(|l| l.device == device && l.estimator == estimate::digest());
        own.max_by_key(|l| (l.schedules, l.functions, l.factors.to_array().map(f64::to_bits)))
    }
    /// The smallest time of each schedule beside each estimate.
    pub(crate) fn best_samples(&self) -> BTreeMap<[&str; 4], &SampleLine> {
        let mut best: BTreeMap<[&str; 4], &SampleLine> = BTreeMap::new();
        for l in &self.samples {
            let place = best.entry([&l.device, &l.function, &l.schedule, &l.estimator]).or_insert(l);
            if l.us.total_cmp(&place.us).then(l.name.cmp(&place.name)).is_lt() {
                *place = l;
            }
        }
        best
    }
    /// For each region on each device the line with the smallest sum of both times.
    fn best_regions(&self) -> BTreeMap<(&str, &str), &RegionLine> {
        let mut best: BTreeMap<(&str, &str), &RegionLine> = BTreeMap::new();
        for l in &self.regions {
            let place = best.entry((&l.device, &l.region)).or_insert(l);
            let sum = |l: &RegionLine| l.target_us + l.weft_us;
            let order = sum(l).total_cmp(&sum(place)).then(l.target_us.total_cmp(&place.target_us));
            if order.then(l.name.cmp(&place.name)).is_lt() {
                *place = l;
            }
        }
        best
    }
    /// The smallest time of each form on each device that was not withdrawn; where all were, a withdrawn one, so that
    /// merged files agree.
    fn best_functions(&self) -> BTreeMap<(&str, &str), &FunctionLine> {
        let key = |l: &FunctionLine| (l.device.clone(), l.form.clone(), l.us.to_bits());
        let withdrawn: BTreeSet<_> = self.functions.iter().filter(|l| l.withdrawn).map(key).collect();
        let mut best: BTreeMap<(&str, &str), &FunctionLine> = BTreeMap::new();
        let counts = |l: &FunctionLine| !withdrawn.contains(&key(l));
        for l in self.functions.iter().filter(|l| l.withdrawn || counts(l)) {
            let place = best.entry((&l.device, &l.form)).or_insert(l);
            let order =
                (l.withdrawn.cmp(&place.withdrawn)).then(l.us.total_cmp(&place.us)).then(l.name.cmp(&place.name));
            if order.is_lt() {
                *place = l;
            }
        }
        best
    }
    /// Times of functions and regions, for the cost model.
    pub fn measurements(&self) -> Measurements {
        let mut out = Measurements::default();
        for line in self.best_functions().into_values().filter(|l| !l.withdrawn) {
            out.functions.entry(line.device.clone()).or_default().insert(line.form.clone(), line.us * 1e3);
        }
        for line in self.best_regions().into_values() {
            let times = RegionTimes { target_ns: line.target_us * 1e3, weft_ns: line.weft_us * 1e3 };
            out.regions.entry(line.device.clone()).or_default().insert(line.region.clone(), times);
        }
        out
    }
    /// The file, which other processes do not change until it is dropped; it is made if it is missing. On a file system
    /// without locks nobody waits.
    ///
    /// # Errors
    /// A file that cannot be written, or is no plain file.
    pub fn lock(path: &Path) -> Result<File, String> {
        let fail = |e: &dyn Display| format!("{}: {e}", path.display());
        loop {
            open(path)?;
            let mut options = std::fs::OpenOptions::new();
            let options = options.create(true).read(true).write(true).truncate(false);
            let file = options.open(path).map_err(|e| fail(&e))?;
            if file.lock().is_err() || is_at(&file, path) {
                return Ok(file);
            }
        }
    }
    /// Appends a line and syncs the file, while no other process does. An incomplete last line is removed first.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn append(path: &Path, line: impl Into<Line>) -> Result<(), String> {
        let fail = |e: &dyn Display| format!("{}: {e}", path.display());
        if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| fail(&e))?;
        }
        let mut text = serde_json::to_string(&line.into()).map_err(|e| fail(&e))?;
        text.push('\n');
        let mut file = TuningDatabase::lock(path)?;
        let write = |file: &mut File| {
            let whole = bytes_of_whole_lines(file)?;
            file.set_len(whole)?;
            file.seek(SeekFrom::Start(whole))?;
            file.write_all(text.as_bytes())?;
            file.sync_data()
        };
        write(&mut file).map_err(|e| fail(&e))
    }
    /// The winning line of each workload that has a tuned schedule.
    pub fn best(&self) -> BTreeMap<Workload, &TuningLine> {
        let withdrawn: BTreeSet<_> = self.lines.iter().filter(|l| l.withdrawn).map(TuningLine::key).collect();
        let mut best: BTreeMap<Workload, &TuningLine> = BTreeMap::new();
        for line in self.lines.iter().filter(|l| l.is_tuned() && !withdrawn.contains(&l.key())) {
            let place = best.entry(line.workload()).or_insert(line);
            let order = (place.kept_at.cmp(&line.kept_at)).then(line.ratio.total_cmp(&place.ratio));
            if order.then_with(|| line.key().cmp(&place.key())).is_lt() {
                *place = line;
            }
        }
        best
    }
    /// A provider of these schedules; `rest` schedules all other functions.
    pub fn provider(&self, rest: Arc<dyn ScheduleProvider>) -> Tuned {
        let schedules = self.best().into_iter().filter_map(|(w, line)| Some((w, line.tuned_schedule().ok()?)));
        let members = self.best().into_values().filter(|l| l.schedule.is_empty() && !l.family.is_empty());
        let member = |l: &TuningLine| {
            let (device, family) = (l.device.clone(), l.family.clone());
            let (constants, extents) = (l.constants.clone(), l.extents.clone());
            Some(FamilyMember { device, constants, family, extents, choices: l.parse_choices().ok()? })
        };
        Tuned::new(schedules, rest).with_families(members.filter_map(member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(function: &str, ratio: f64, choices: &[&str]) -> TuningLine {
        TuningLine {
            device: "a device".into(),
            function: function.into(),
            constants: vec![1],
            name: "t_conv".into(),
            family: String::new(),
            extents: vec![],
            choices: choices.iter().map(|c| c.to_string()).collect(),
            schedule: vec![],
            withdrawn: false,
            ratio,
            rounds: [15, 14],
            us: [10.0, 10.0 * ratio],
            estimated_us: [9.0, 9.5],
            seed: 0,
            by: "tune".into(),
            kept_at: 0,
            weft: "0.1.0".into(),
        }
    }

    const ROWS: &str = "choose {unit=conv_0, point=rows, value=24}";

    #[test]
    fn lines_come_back_and_merge_in_any_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/tuning.jsonl");
        assert_eq!(TuningDatabase::read(&path), Ok(TuningDatabase::default()));
        let all = [line("f", 0.9, &[ROWS]), line("f", 0.8, &[&ROWS.replace("24", "16")]), line("g", 0.7, &[ROWS])];
        all.iter().for_each(|l| TuningDatabase::append(&path, l).expect("it is written"));
        let read = TuningDatabase::read(&path).expect("it is read");
        assert_eq!(read.lines, all);
        let mut other = read.clone();
        other.lines.reverse();
        assert_eq!(read.best(), other.best());
        assert_eq!(read.best()[&all[0].workload()].ratio, 0.8);
        let values = all[1].parse_choices().expect("choices");
        assert_eq!(TuningLine::print_choices(&values), all[1].choices);
        assert_eq!(describe_choices(&values), "rows 16 of conv_0");
    }

    #[test]
    fn a_line_that_was_being_written_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tuning.jsonl");
        let [first, second] = [line("f", 0.9, &[ROWS]), line("g", 0.8, &[ROWS])];
        TuningDatabase::append(&path, &first).expect("it is written");
        let mut bytes = std::fs::read(&path).expect("it is read");
        let torn = bytes[..20].to_vec();
        bytes.extend(torn);
        std::fs::write(&path, bytes).expect("it is written");
        assert_eq!(TuningDatabase::read(&path).expect("it is read").lines, std::slice::from_ref(&first));
        TuningDatabase::append(&path, &second).expect("it is written");
        assert_eq!(TuningDatabase::read(&path).expect("it is read").lines, [first, second]);
    }

    #[test]
    fn a_withdrawn_line_cancels_its_choices_alone() {
        let other = ROWS.replace("24", "16");
        let [good, better] = [line("f", 0.8, &[&other]), line("f", 0.7, &[ROWS])];
        let withdrawn = TuningLine { withdrawn: true, ..better.clone() };
        let nothing_found = line("f", 1.0, &[]);
        let lines = vec![withdrawn, nothing_found, better, good.clone()];
        let mut db = TuningDatabase { lines, ..TuningDatabase::default() };
        for _ in 0..4 {
            db.lines.rotate_left(1);
            assert_eq!(db.best().into_values().collect::<Vec<_>>(), [&good]);
        }
    }

    #[test]
    fn merged_times_and_refused_schedules_do_not_depend_on_the_order_of_lines() {
        let time = |form: &str, us: f64| {
            let (device, name, weft) = ("a device".into(), "conv".into(), "0.1.0".into());
            Line::Function(FunctionLine { device, form: form.into(), name, us, withdrawn: false, weft })
        };
        let tuned = line("f", 0.9, &[ROWS]);
        let refused = Line::Refused(RefusedLine {
            device: tuned.device.clone(),
            function: tuned.function.clone(),
            constants: vec![],
            choices: vec![ROWS.into()],
            schedule: vec![],
            why: "wrong results".into(),
            weft: "0.1.0".into(),
        });
        let all = [time("a", 7.0), refused.clone(), time("b", 3.0), time("a", 5.0), refused, Line::from(&tuned)];
        let text: Vec<String> = all.iter().map(|l| serde_json::to_string(l).expect("JSON") + "\n").collect();
        let forward = TuningDatabase::parse(text.concat().as_bytes());
        let backward = TuningDatabase::parse(text.iter().rev().cloned().collect::<String>().as_bytes());
        assert_eq!(forward.merged(), backward.merged());
        assert_eq!(forward.merged().len(), 4);
        assert_eq!(forward.measurements().functions["a device"]["a"], 5e3);
    }

    #[test]
    fn lines_of_later_versions_are_kept_and_not_read() {
        let later = "{\"kind\":\"other\",\"us\":1}";
        let text = format!(
            "{later}\n{}\n{later}\n",
            serde_json::to_string(&Line::from(&line("f", 0.9, &[ROWS]))).expect("JSON")
        );
        let db = TuningDatabase::parse(text.as_bytes());
        assert_eq!((db.lines.len(), db.others.as_slice()), (1, &[later.to_string(), later.to_string()][..]));
        for kind in KINDS {
            let bad = TuningDatabase::parse(format!("{{\"kind\":\"{kind}\"}}\n").as_bytes()).bad;
            let [e] = &bad[..] else { panic!("{bad:?}") };
            assert!(e.starts_with("line 1: missing field"), "{kind}: {e}");
        }
        let bad = TuningDatabase::parse(b"{\"us\":1}\n").bad;
        assert!(bad.len() == 1 && bad[0].starts_with("line 1: "), "{bad:?}");
    }

    #[test]
    fn what_a_user_kept_last_precedes_what_a_search_found() {
        let [fast, slow] = [line("f", 0.5, &[ROWS]), line("f", 0.8, &[&ROWS.replace("24", "16")])];
        let kept = |line: &TuningLine, kept_at| TuningLine { by: BY_HAND.into(), kept_at, ..line.clone() };
        let written = TuningLine { choices: vec![], schedule: vec!["cut-kernel".into()], ..kept(&slow, 8) };
        let mut lines = vec![fast.clone(), kept(&slow, 7), written.clone(), kept(&fast, 6)];
        for _ in 0..4 {
            lines.rotate_left(1);
            let db = TuningDatabase { lines: lines.clone(), ..TuningDatabase::default() };
            assert_eq!(db.best().into_values().collect::<Vec<_>>(), [&written]);
        }
        let text = serde_json::to_string(&Line::from(&written)).expect("JSON") + "\n";
        assert_eq!(TuningDatabase::parse(text.as_bytes()).lines, [written]);
        assert!(!serde_json::to_string(&fast).expect("JSON").contains("kept_at"));
        let bad = TuningDatabase::parse(text.replace("cut-kernel", "cut-kernels").as_bytes()).bad;
        assert!(bad.len() == 1 && bad[0].starts_with("line 1: ") && bad[0].contains("cut-kernels"), "{bad:?}");
    }

    #[test]
    fn a_bad_line_is_skipped_and_named_by_its_number() {
        let good = serde_json::to_string(&Line::from(&line("f", 0.8, &[ROWS]))).expect("JSON");
        let half = &good[..good.len() / 2];
        let other = serde_json::to_string(&Line::from(&line("f", 0.8, &["unroll {loop=i}"]))).expect("JSON");
        let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).filter(|b| *b != b'\n').collect();
        let bad = [half.as_bytes(), b"\xff\xfe garbage", other.as_bytes(), b"null", &utf16];
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tuning.jsonl");
        for bad in bad {
            for at in 0..3 {
                let mut lines = vec![good.as_bytes(), b"", good.as_bytes()];
                lines.insert(at, bad);
                let bytes = [lines.join(&b'\n'), vec![b'\n']].concat();
                let db = TuningDatabase::parse(&bytes);
                assert_eq!(db.lines.len(), 2, "{bad:?} at {at}");
                assert!(db.bad.len() == 1 && db.bad[0].starts_with(&format!("line {}: ", at + 1)), "{:?}", db.bad);
                std::fs::write(&path, &bytes).expect("writes");
                let kept = TuningDatabase::good_lines(&path).expect("reads");
                lines.remove(at);
                assert_eq!(kept, ([lines.join(&b'\n'), vec![b'\n']].concat(), 1));
            }
        }
    }

    /// The plan of a small network with the choices of a database, byte for byte.
    fn plan_with(db: &TuningDatabase, module: &compiler::graph::Module) -> Vec<u8> {
        let profile = compiler::profile::DeviceProfile::lavapipe();
        let schedules: Arc<dyn ScheduleProvider> = Arc::new(db.provider(Arc::new(compiler::schedule::Rules)));
        let options = compiler::compile::CompileOptions { schedules: Some(schedules), ..Default::default() };
        let emitter = crate::emitter(&profile);
        let compiled = compiler::compile::compile(module.clone(), &options, &profile, emitter, &mut |_, _, _| ());
        serde_json::to_vec(&compiled.expect("compiles").plan).expect("JSON")
    }

    #[test]
    fn files_merged_in_any_order_give_the_same_plan() {
        let text = "graph @main(%x: f32[64,32], %w: f32[32,48]) -> (y: f32[64,48]) {
  %0 = matmul %x, %w : f32[64,48]
  %y = relu %0 : f32[64,48]
  return %y
}
";
        let module = compiler::text::parse_module(text).expect("it parses");
        let profile = compiler::profile::DeviceProfile::lavapipe();
        let options = compiler::compile::CompileOptions::default();
        let emitter = crate::emitter(&profile);
        let c = compiler::compile::compile(module.clone(), &options, &profile, emitter, &mut |_, _, _| ());
        let c = c.expect("compiles");
        let before = c.unscheduled.values().next().expect("a function").clone();
        let plain = compiler::tir::TensorFunction { pending: vec![], ..before.clone() };
        let near = compiler::schedule::rules::neighbours(&plain, &[], &profile, &before.pending);
        let of = |n: usize, ratio: f64| TuningLine {
            device: profile.identity(),
            function: plain.fingerprint().to_string(),
            constants: vec![],
            choices: TuningLine::print_choices(&compiler::schedule::rules::values(&near[n].scheduled.function.trace)),
            ..line("", ratio, &[])
        };
        let [a, b, c] = [of(0, 0.8), of(1, 0.7), TuningLine { withdrawn: true, ..of(2, 0.5) }];
        let mut lines = vec![a, b, c.clone(), TuningLine { withdrawn: false, ..c }];
        let plans: BTreeSet<Vec<u8>> = (0..4)
            .map(|_| {
                lines.rotate_left(1);
                plan_with(&TuningDatabase { lines: lines.clone(), ..TuningDatabase::default() }, &module)
            })
            .collect();
        assert_eq!(plans.len(), 1);
        assert!(!plans.contains(&plan_with(&TuningDatabase::default(), &module)), "the lines count");
    }
}
