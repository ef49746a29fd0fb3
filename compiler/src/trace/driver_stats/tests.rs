use super::*;

/// What the drivers said of one kernel each, recorded.
fn recorded() -> Vec<(String, Executable, Vec<String>)> {
    let list: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).expect("JSON");
    let text = |v: &Value| v.as_str().expect("text").to_string();
    let one = |r: &Value| {
        let statistic = |s: &Value| Statistic {
            name: text(&s[0]),
            meaning: String::new(),
            value: StatisticValue::Uint(s[1].as_u64().expect("a count")),
        };
        let executable = Executable {
            name: text(&r["name"]),
            subgroup_size: r["subgroup_size"].as_u64().expect("a size") as u32,
            statistics: r["statistics"].as_array().expect("a list").iter().map(statistic).collect(),
            isa: None,
        };
        let representations = r["representations"].as_array().expect("a list").iter().map(text).collect();
        (text(&r["device"]), executable, representations)
    };
    list.iter().map(one).collect()
}

fn figures(device: &str) -> Figures {
    recorded().into_iter().find(|r| r.0 == device).expect("recorded").1.figures()
}

#[test]
fn what_radv_counts() {
    let want = Figures {
        registers: Some(60),
        scalar_registers: Some(108),
        spills: Some(0),
        scratch_bytes: Some(0),
        shared_bytes: Some(5120),
        occupancy: Some(24),
        occupancy_of: Some("SIMD"),
        code_bytes: Some(18788),
        instructions: Some(3721),
        latency_cycles: Some(6124),
        ..Figures::default()
    };
    assert_eq!(figures("navi31"), want);
}

/// ANV assigns no registers one by one on this device: its 0 is not a count.
#[test]
fn what_anv_counts() {
    let want = Figures {
        live_registers: Some(95),
        spills: Some(0),
        fills: Some(0),
        scratch_bytes: Some(0),
        shared_bytes: Some(4352),
        code_bytes: Some(15264),
        instructions: Some(810),
        latency_cycles: Some(19976),
        ..Figures::default()
    };
    assert_eq!(figures("bmg"), want);
}

#[test]
fn what_nvk_counts() {
    let want = Figures {
        registers: Some(144),
        spills: Some(0),
        fills: Some(0),
        scratch_bytes: Some(0),
        occupancy: Some(12),
        occupancy_of: Some("SM"),
        code_bytes: Some(27008),
        instructions: Some(1688),
        latency_cycles: Some(39036),
        ..Figures::default()
    };
    assert_eq!(figures("ada"), want);
}

/// Registers of both kinds spill on AMD; and a number that is none is left to the list.
#[test]
fn spills_of_both_kinds_are_one_figure() {
    let statistic = |name: &str, value| Statistic { name: name.into(), meaning: String::new(), value };
    let e = Executable {
        statistics: vec![
            statistic("Spilled SGPRs", StatisticValue::Uint(3)),
            statistic("Spilled VGPRs", StatisticValue::Int(4)),
            statistic("Code size", StatisticValue::Int(-1)),
            statistic("Latency", StatisticValue::Float(20.0)),
            statistic("no one knows this", StatisticValue::Uint(9)),
        ],
        ..Executable::default()
    };
    let want = Figures { spills: Some(7), latency_cycles: Some(20), ..Figures::default() };
    assert_eq!(e.figures(), want);
}

#[test]
fn one_representation_of_each_driver_is_its_instructions() {
    let mut found = Vec::new();
    for (device, _, names) in recorded() {
        let isa: Vec<&String> = names.iter().filter(|n| names_isa(n)).collect();
        assert_eq!(isa.len(), 1, "{device}: {names:?}");
        found.push(isa[0].clone());
    }
    assert_eq!(found, ["Assembly", "GEN Assembly", "NAK assembly"]);
    assert!(names_isa("ISA") && names_isa("RDNA ISA text") && !names_isa("Visa") && !names_isa("Final NIR"));
}

#[test]
fn several_executables_are_one_text() {
    let e = |size: u32, isa: Option<&str>| Executable {
        name: format!("SIMD{size}"),
        subgroup_size: size,
        isa: isa.map(str::to_string),
        ..Executable::default()
    };
    let list = vec![vec![e(8, Some("mov")), e(16, Some("add\n"))], vec![e(8, Some("mov"))], vec![e(8, None)], vec![]];
    let stats = DriverStats { device: "d".into(), kernels: list };
    assert_eq!(stats.isa(0).as_deref(), Some("; SIMD8, subgroups of 8\nmov\n; SIMD16, subgroups of 16\nadd\n"));
    assert_eq!(stats.isa(1).as_deref(), Some("mov"));
    assert_eq!((stats.isa(2), stats.isa(3), stats.isa(4)), (None, None, None));
}

#[test]
fn json_has_the_list_and_the_figures() {
    let kernels = recorded().into_iter().map(|r| vec![r.1]).collect();
    let stats = DriverStats { device: "d".into(), kernels };
    let kernels = [("a", "000_a".to_string()), ("b", "001_b".into()), ("c", "002_c".into())];
    let v = serde_json::to_value(stats.record(kernels.into_iter())).expect("JSON");
    let e = &v["kernels"][0]["executables"][0];
    assert_eq!((&v["kernels"][2]["file"], &e["registers"], &e["fills"]), (&"002_c".into(), &60.into(), &Value::Null));
    assert_eq!(e["statistics"][0]["name"], "Driver pipeline hash");
    assert_eq!(e["statistics"][0]["value"], 16919852096387343761u64);
}
