//! `weft inspect` of a bundle.

use crate::args::Common;
use crate::output::{print_text, show_table, table, write_json};
use serde_json::Value;
use weft::Bundle;
use workbench::Result;
use workbench::figures::si;

/// Names the profiles whose kernels another build made in another form.
fn print_unread(entries: &[Value]) -> Result<()> {
    for e in entries.iter().filter(|e| e["is_read"] == false) {
        let text = |key: &str| e[key].as_str().unwrap_or_default();
        print_text(&format!(
            "{}: this build does not read its kernels ({}), and compiles the network anew",
            text("profile"),
            text("form")
        ))?;
    }
    Ok(())
}

/// Shows what is in a bundle.
pub fn inspect(bundle: &Bundle, path: &str, common: &Common) -> Result<()> {
    bundle.check()?;
    let json = bundle.to_json();
    if write_json(common, &json)? {
        return Ok(());
    }
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let bytes = |v: &Value| match v.as_u64() {
        Some(0) | None => String::new(),
        Some(n) => format!("{}B", si(n as f64)),
    };
    let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();
    print_text(&format!(
        "{path}: {}, {}, made by Weft {}",
        text(&json["network"]),
        bytes(&json["bytes"]),
        text(&json["weft"])
    ))?;
    let mut ports = table(&["", "name", "type"]);
    for (kind, key) in [("input", "inputs"), ("output", "outputs")] {
        for p in list(key) {
            ports.add_row([kind.into(), text(&p["name"]), text(&p["type"])]);
        }
    }
    show_table(&ports)?;
    for name in list("native") {
        print_text(&format!("runs code of the machine through {}: --allow-native", text(&name)))?;
    }
    if let Some(first) = json["licence"].as_str().and_then(|l| l.lines().find(|l| !l.trim().is_empty())) {
        print_text(&format!("licence: {} (--json has the text)", first.trim()))?;
    }
    for d in list("dims") {
        print_text(&format!("open: {} {}..{} in steps of {}", text(&d["name"]), d["low"], d["high"], d["step"]))?;
    }
    let mut entries =
        table(&["profile", "plan", "kernels", "weights", "own weights", "network", "trace", "tuned", "form"]);
    for e in list("entries") {
        entries.add_row([
            text(&e["profile"]),
            bytes(&e["plan"]),
            bytes(&e["kernels"]),
            bytes(&e["weights"]),
            bytes(&e["own_weights"]),
            bytes(&e["network"]),
            bytes(&e["trace"]),
            e["tuning"].as_array().map_or(0, Vec::len).to_string(),
            text(&e["form"]),
        ]);
    }
    show_table(&entries)?;
    print_unread(&list("entries"))?;
    if common.verbose > 0 {
        let mut parts = table(&["part", "of", "offset", "bytes", "crc32"]);
        for p in list("parts") {
            let sum = p["crc32"].as_u64().map_or(String::new(), |c| format!("{c:08x}"));
            parts.add_row([text(&p["kind"]), text(&p["name"]), p["offset"].to_string(), p["bytes"].to_string(), sum]);
        }
        show_table(&parts)?;
    }
    Ok(())
}
