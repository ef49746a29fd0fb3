//! `weft inspect` of a bundle.

use crate::args::Common;
use crate::output::{print_text, show_table, table, write_json};
use weft::{Bundle, EntryContents};
use workbench::Result;
use workbench::figures::si;
use workbench::record::Versioned;

/// Names the profiles whose kernels another build made in another form.
fn print_unread(entries: &[EntryContents<'_>]) -> Result<()> {
    for e in entries.iter().filter(|e| !e.is_read) {
        print_text(&format!(
            "{}: this build does not read its kernels ({}), and compiles the network anew",
            e.profile, e.form
        ))?;
    }
    Ok(())
}

/// Shows what is in a bundle.
pub fn inspect(bundle: &Bundle, path: &str, common: &Common) -> Result<()> {
    bundle.check()?;
    let contents = bundle.contents();
    if write_json(common, &Versioned::new(&contents))? {
        return Ok(());
    }
    let bytes = |n: u64| if n == 0 { String::new() } else { format!("{}B", si(n as f64)) };
    print_text(&format!("{path}: {}, {}, made by Weft {}", contents.network, bytes(contents.bytes), contents.weft))?;
    let mut ports = table(&["", "name", "type"]);
    for (kind, list) in [("input", contents.inputs), ("output", contents.outputs)] {
        for p in list {
            ports.add_row([kind, &p.name, &p.r#type]);
        }
    }
    show_table(&ports)?;
    for name in contents.native {
        print_text(&format!("runs code of the machine through {name}: --allow-native"))?;
    }
    if let Some(first) = contents.licence.and_then(|l| l.lines().find(|l| !l.trim().is_empty())) {
        print_text(&format!("licence: {} (--json has the text)", first.trim()))?;
    }
    for d in contents.dims {
        print_text(&format!("open: {} {}..{} in steps of {}", d.name, d.low, d.high, d.step))?;
    }
    let mut entries =
        table(&["profile", "plan", "kernels", "weights", "own weights", "network", "trace", "tuned", "form"]);
    for e in &contents.entries {
        let sizes = [e.plan, e.kernels, e.weights, e.own_weights, e.network, e.trace].map(bytes);
        let last = [e.tuning.len().to_string(), e.form.to_string()];
        entries.add_row([e.profile.to_string()].into_iter().chain(sizes).chain(last));
    }
    show_table(&entries)?;
    print_unread(&contents.entries)?;
    if common.verbose > 0 {
        let mut parts = table(&["part", "of", "offset", "bytes", "crc32"]);
        for p in contents.parts {
            let [offset, bytes, sum] = [p.offset.to_string(), p.bytes.to_string(), format!("{:08x}", p.crc32)];
            parts.add_row([p.kind.clone(), p.name.clone(), offset, bytes, sum]);
        }
        show_table(&parts)?;
    }
    Ok(())
}
