//! Files of the tuning database: the lines of a device, and several writers and readers of one file.

use std::collections::BTreeSet;
use weft::{Line, TuningDatabase, TuningLine};

const ROWS: &str = "choose {unit=conv_0, point=rows, value=24}";

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

#[test]
fn lines_of_a_device_are_found_without_parsing_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tuning.jsonl");
    let names = ["one", "llvmpipe (LLVM 15, 256 bits) | \"x\\y\"", "m\u{fc}ller", "one more"];
    let lines: Vec<TuningLine> =
        (0..40).map(|n| TuningLine { device: names[n % 4].into(), ..line(&format!("f{n}"), 0.5, &[ROWS]) }).collect();
    let text: Vec<String> = lines.iter().map(|l| serde_json::to_string(&Line::from(l)).expect("JSON")).collect();
    // Other programs may escape more, and this is a line of the first device and of no kind.
    let escaped = text[2].replace('\u{fc}', "\\u00fc");
    let odd = "{\"kind\":\"function\",\"device\":\"one\"}";
    let mut bytes = [text.join("\n").as_str(), &escaped, odd, "garbage", "{\"half", ""].join("\n").into_bytes();
    bytes.extend(b"\xff\xfe{}\n{\"not\":\"whole");
    std::fs::write(&path, bytes).expect("writes");
    for (n, device) in names.iter().enumerate() {
        let read = TuningDatabase::read_for(&path, &[device]).expect("reads");
        let own: Vec<TuningLine> = lines.iter().filter(|l| l.device == *device).cloned().collect();
        let twice = if n == 2 { vec![lines[2].clone()] } else { vec![] };
        assert_eq!(read.lines, [own, twice].concat(), "{device}");
        assert_eq!(read.bad.len(), if n == 0 { 4 } else { 3 }, "{:?}", read.bad);
        assert!(read.skipped >= 30 && !read.has_only_bad_lines());
    }
    let all = TuningDatabase::read(&path).expect("reads");
    assert_eq!((all.lines.len(), all.bad.len()), (41, 4), "{:?}", all.bad);
    assert!(TuningDatabase::read_for(&folder.path().join("none"), &["one"]).is_ok_and(|db| db.lines.is_empty()));
}

/// Two append, a third reads, and a fourth drops bad lines.
#[test]
fn no_line_is_lost_among_writers_and_readers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tuning.jsonl");
    std::fs::write(&path, "garbage\n").expect("writes");
    let write = |from: usize| {
        for n in from..from + 60 {
            TuningDatabase::append(&path, &line(&format!("f{n}"), 0.5, &[ROWS])).expect("it is written");
        }
    };
    let mend = || {
        for _ in 0..20 {
            let _held = TuningDatabase::lock(&path).expect("locks");
            let (good, _) = TuningDatabase::good_lines(&path).expect("reads");
            let new = folder.path().join("new");
            std::fs::write(&new, good).expect("writes");
            std::fs::rename(new, &path).expect("renames");
        }
    };
    std::thread::scope(|s| {
        let writers = [s.spawn(|| write(0)), s.spawn(|| write(60)), s.spawn(mend)];
        let mut seen = 0;
        while !writers.iter().all(|w| w.is_finished()) {
            let read = TuningDatabase::read_for(&path, &["a device"]).expect("reads");
            assert!(read.lines.len() >= seen && read.bad.len() <= 1, "{:?}", read.bad);
            seen = read.lines.len();
        }
    });
    let all = TuningDatabase::read(&path).expect("reads");
    let functions: BTreeSet<&str> = all.lines.iter().map(|l| l.function.as_str()).collect();
    assert_eq!((all.lines.len(), functions.len(), all.bad.len()), (120, 120, 0));
}
