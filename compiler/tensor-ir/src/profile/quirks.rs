//! Quirks: driver behaviour that kernels have to work around.
//!
//! A row of [`QUIRKS`] names the driver families, the measurement that shows the behaviour, and the condition under
//! which the row can be removed. A profile has the set that is in force
//! ([`DeviceProfile::quirks`](super::DeviceProfile::quirks)): the quirks of its driver, without those that were
//! switched off (`weft --quirk NAME=off`). The set is saved and compared with the profile, so kernels of different sets
//! are different cache entries. `docs/drivers.md` lists the rows with their costs and gains.

use crate::registry::Table;

/// Drivers that have a quirk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// How the name of the driver family begins.
    pub driver: &'static str,
    /// A part of the device's name, in lower case; empty for all of its devices.
    pub device: &'static str,
    /// The first major version (`lavapipe-26`) without the quirk; `None` if no version is known to be without.
    pub until: Option<u32>,
}

impl Seen {
    const fn of(driver: &'static str) -> Seen {
        Seen { driver, device: "", until: None }
    }
    fn fits(&self, driver: &str, device: &str) -> bool {
        let Some(rest) = driver.strip_prefix(self.driver) else { return false };
        let version = || rest.trim_start_matches('-').parse().unwrap_or(0);
        device.to_lowercase().contains(self.device) && self.until.is_none_or(|u| version() < u)
    }
}

/// A quirk of some drivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quirk {
    /// Its name in `--quirk NAME=off`.
    pub name: &'static str,
    /// What the driver does, and what kernels do about it.
    pub what: &'static str,
    /// The drivers.
    pub seen: &'static [Seen],
    /// Versions for which it was measured.
    pub versions: &'static str,
    /// The file that shows it.
    pub evidence: &'static str,
    /// When the row can go.
    pub goes: &'static str,
    /// Without it results are wrong or kernels are refused, not only slower.
    pub guards: bool,
}

const INTEL: &str = "intel open-source mesa";
const MESA: &str = "Mesa 25.0 to 26.2";

/// Mesa's compilers for AMD and Intel move loads behind arithmetic that does not need them.
pub static SINKS_LOADS: Quirk = Quirk {
    name: "sinks-loads",
    what: "moves loads behind arithmetic that does not need them, so that nothing is prefetched: loads of the next step stand \
           under a condition",
    seen: &[Seen::of("radv"), Seen::of(INTEL)],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "a shader can forbid it, or the compilers keep loads where they stand",
    guards: false,
};
/// Mesa's compiler for Intel unrolls every short loop.
pub static UNROLLS_LOOPS: Quirk = Quirk {
    name: "unrolls-loops",
    what: "unrolls every loop of a few rounds, and spills what it then holds: ends of loops are read from a uniform, and tiles \
           with long steps are not taken",
    seen: &[Seen::of(INTEL)],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "the compiler takes `DontUnroll` of SPIR-V, and naga writes it",
    guards: false,
};
/// Mesa's compilers for AMD and NVIDIA unroll short loops without matrix operations.
pub static UNROLLS_SCALAR_LOOPS: Quirk = Quirk {
    name: "unrolls-scalar-loops",
    what: "unrolls short loops without matrix operations to ten times their code, and spills: their ends are read from a uniform",
    seen: &[Seen::of("radv"), Seen::of("nvidia")],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "as `unrolls-loops`",
    guards: false,
};
/// Mesa's compilers unroll short loops without barriers, too.
pub static UNROLLS_LOOPS_WITHOUT_BARRIERS: Quirk = Quirk {
    name: "unrolls-loops-without-barriers",
    what: "unrolls loops of a few rounds in which no thread waits, although the schedule keeps them, and spills what all rounds \
           then hold: their ends are read from a uniform",
    seen: &[Seen::of(INTEL), Seen::of("radv"), Seen::of("nvidia")],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "as `unrolls-loops`",
    guards: false,
};
/// Mesa's compiler for AMD loads matrix operands 8 bytes at a time.
pub static LOADS_MATRICES_BY_8_BYTES: Quirk = Quirk {
    name: "loads-matrices-by-8-bytes",
    what: "loads 8 bytes of each row of a matrix operand at once, so that rows of 16 bytes more than a multiple of 32 meet in the \
           banks of workgroup memory: rows have 8 bytes more",
    seen: &[Seen::of("radv")],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "ACO loads 16 bytes of a row at once",
    guards: false,
};
/// Mesa's compiler for NVIDIA joins loads of words whose halves are taken by integer operations.
pub static HALVES_BY_INTEGERS: Quirk = Quirk {
    name: "halves-by-integers",
    what: "joins neighbouring loads of words alone: memory of halves that is only copied is declared as words, and 16-bit \
           integers take them apart",
    seen: &[Seen::of("nvidia")],
    versions: "NVK of Mesa 25.0 to 26.2",
    evidence: "benches/results/driver-quirks.md",
    goes: "neighbouring vectors of halves are joined to 16 bytes",
    guards: false,
};
/// Mesa's compilers for AMD and Intel leave out the conversions by which halves are taken from words.
pub static HALVES_BY_CONVERSION: Quirk = Quirk {
    name: "halves-by-conversion",
    what: "joins neighbouring loads of words alone: memory of halves that is only copied is declared as words, and \
           conversions that the compiler leaves out take them apart",
    seen: &[Seen::of("radv"), Seen::of(INTEL)],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "as `halves-by-integers`",
    guards: false,
};
/// Mesa emulates matrix operations on RDNA 2.
pub static EMULATES_MATRICES: Quirk = Quirk {
    name: "emulates-matrices",
    what: "lists matrix operations that RDNA 2 does not have: they are not used",
    seen: &[Seen { driver: "radv", device: "navi2", until: None }],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "the driver no longer lists them",
    guards: true,
};
/// Matrix operations of Arc A are slow.
pub static SLOW_MATRICES: Quirk = Quirk {
    name: "slow-matrices",
    what: "matrix operations of Arc A are much slower than multiply-adds: they are not used",
    seen: &[Seen { driver: INTEL, device: "dg2", until: None }],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "a measurement on the device says otherwise",
    guards: false,
};
/// Mesa loads wrong matrices on Xe3.
pub static WRONG_MATRICES: Quirk = Quirk {
    name: "wrong-matrices",
    what: "loads the wrong matrices from workgroup memory on Xe3: they are not used",
    seen: &[Seen { driver: INTEL, device: "ptl", until: None }],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "Mesa's tests of matrices from workgroup memory pass on Xe3",
    guards: true,
};
/// SwiftShader's logarithm and exponential are finite where they should not be.
pub static LOOSE_LOG_EXP: Quirk = Quirk {
    name: "loose-log-exp",
    what: "log(0) is -88 and exp(NaN) is a number: shaders select the values that the functions should have there",
    seen: &[Seen::of("swiftshader")],
    versions: "SwiftShader of Chromium 156",
    evidence: "filetests/wgsl and benches/tests/networks/random_networks",
    goes: "SwiftShader follows IEEE 754 there",
    guards: true,
};
/// Old llvmpipe ends all loops of a thread after 65,536 rounds.
pub static ENDS_LONG_LOOPS: Quirk = Quirk {
    name: "ends-long-loops",
    what: "ends all loops of a thread after 65,536 rounds without a word: kernels with more are not made",
    seen: &[Seen { driver: "lavapipe-", device: "", until: Some(26) }],
    versions: "Mesa 22.3; 23 to 25 are not known, 26.2 has no limit",
    evidence: "benches/results/driver-quirks.md",
    goes: "no Mesa before 26 is in use",
    guards: true,
};
/// Metal loads matrices from single elements.
pub static MATRICES_OF_SINGLE_ELEMENTS: Quirk = Quirk {
    name: "matrices-of-single-elements",
    what: "loads matrices from arrays of single elements: staged tiles are not declared as vectors",
    seen: &[Seen::of("metal")],
    versions: "MSL 2.3 and newer",
    evidence: "filetests/wgsl/matrices_metal.weft",
    goes: "naga writes the pointer conversion",
    guards: true,
};
/// The driver multiplies words of four bytes in one operation.
pub static MULTIPLIES_BYTES: Quirk = Quirk {
    name: "multiplies-bytes",
    what: "multiplies words of four bytes in one operation: products of integers are taken by `matmul-dot`",
    seen: &[Seen::of("radv"), Seen::of("nvidia"), Seen::of("nvk"), Seen::of("intel")],
    versions: MESA,
    evidence: "benches/results/driver-quirks.md",
    goes: "wgpu says which devices do",
    guards: false,
};
/// Old llvmpipe is faster with two vectors of columns a lane.
pub static WIDE_TILES: Quirk = Quirk {
    name: "wide-tiles",
    what: "is faster where a lane has two vectors of a product's columns",
    seen: &[Seen::of("lavapipe-22")],
    versions: "Mesa 22.3",
    evidence: "benches/results/driver-quirks.md",
    goes: "the rule compares both by their price",
    guards: false,
};
/// New llvmpipe is faster with many rows a lane.
pub static TALL_TILES: Quirk = Quirk {
    name: "tall-tiles",
    what: "is faster where a lane has 32 to 56 rows of a product",
    seen: &[Seen::of("lavapipe-26")],
    versions: "Mesa 26.2",
    evidence: "benches/results/driver-quirks.md",
    goes: "as `wide-tiles`",
    guards: false,
};

/// Every quirk; [`register`] adds one.
pub static QUIRKS: Table<&Quirk> = Table::new(&[
    &SINKS_LOADS,
    &UNROLLS_LOOPS,
    &UNROLLS_SCALAR_LOOPS,
    &UNROLLS_LOOPS_WITHOUT_BARRIERS,
    &LOADS_MATRICES_BY_8_BYTES,
    &HALVES_BY_INTEGERS,
    &HALVES_BY_CONVERSION,
    &EMULATES_MATRICES,
    &SLOW_MATRICES,
    &WRONG_MATRICES,
    &LOOSE_LOG_EXP,
    &ENDS_LONG_LOOPS,
    &MATRICES_OF_SINGLE_ELEMENTS,
    &MULTIPLIES_BYTES,
    &WIDE_TILES,
    &TALL_TILES,
]);

/// Adds a quirk of another crate, for its rules. Call it before a device is opened.
///
/// # Errors
/// When there is a quirk of this name.
pub fn register(quirk: Quirk) -> Result<(), String> {
    let name = quirk.name;
    QUIRKS.add(Box::leak(Box::new(quirk)), |q| q.name == name).map_err(|_| format!("there is a quirk `{name}`"))
}

fn rows() -> impl Iterator<Item = &'static Quirk> {
    QUIRKS.iter().copied()
}

/// The quirks in force, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Quirks(Vec<String>);

impl Quirks {
    /// Those of a device of this name with this driver family.
    pub fn of(driver: &str, device: &str) -> Quirks {
        let has = |q: &&'static Quirk| q.seen.iter().any(|s| s.fits(driver, device));
        Quirks(rows().filter(has).map(|q| q.name.to_string()).collect())
    }
    /// Whether this one is in force.
    pub fn has(&self, quirk: &Quirk) -> bool {
        self.0.iter().any(|n| n == quirk.name)
    }
    /// Those in force, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = &'static Quirk> + '_ {
        rows().filter(|q| self.has(q))
    }
    /// Switches one on or off.
    ///
    /// # Errors
    /// When there is none of this name; says which there are.
    pub fn set(&mut self, name: &str, on: bool) -> Result<(), String> {
        if !rows().any(|q| q.name == name) {
            let names: Vec<&str> = rows().map(|q| q.name).collect();
            return Err(format!("there is no quirk `{name}`, only {}", names.join(", ")));
        }
        self.0.retain(|n| n != name);
        if on {
            self.0.push(name.into());
        }
        let all = std::mem::take(&mut self.0);
        self.0 = rows().filter(|q| all.iter().any(|n| n == q.name)).map(|q| q.name.to_string()).collect();
        Ok(())
    }
    /// The quirks for compiling for this profile and running on `device`: this profile's quirks that steer choices, and
    /// the quirks of both that guard results.
    pub(super) fn limited_to(&self, device: &Quirks) -> Quirks {
        let in_force = |q: &&'static Quirk| self.has(q) || q.guards && device.has(q);
        Quirks(rows().filter(in_force).map(|q| q.name.to_string()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_and_names_unique() {
        for q in rows() {
            assert_eq!(rows().filter(|o| o.name == q.name).count(), 1, "{}", q.name);
            let texts = [q.what, q.versions, q.evidence, q.goes];
            assert!(texts.iter().all(|t| !t.is_empty()) && !q.seen.is_empty(), "{}", q.name);
        }
    }

    #[test]
    fn versions_and_devices_decide() {
        let has = |driver: &str, device: &str, q: &Quirk| Quirks::of(driver, device).has(q);
        assert!(has("lavapipe-22", "llvmpipe", &ENDS_LONG_LOOPS) && has("lavapipe-", "llvmpipe", &ENDS_LONG_LOOPS));
        assert!(!has("lavapipe-26", "llvmpipe", &ENDS_LONG_LOOPS));
        assert!(has("radv", "AMD Radeon RX 6800 (RADV NAVI21)", &EMULATES_MATRICES));
        assert!(!has("radv", "AMD Radeon RX 7900 XTX (RADV NAVI31)", &EMULATES_MATRICES));
        assert!(has("intel open-source mesa driver", "Intel(R) Arc(TM) A770 (DG2)", &SLOW_MATRICES));
    }

    #[test]
    fn what_guards_results_is_taken_from_the_device_that_runs() {
        let on = Quirks::of("radv", "navi31").limited_to(&Quirks::of("lavapipe-22", "llvmpipe"));
        assert!(on.has(&SINKS_LOADS) && on.has(&ENDS_LONG_LOOPS) && !on.has(&WIDE_TILES));
    }

    #[test]
    fn switching_keeps_the_order() {
        let all = Quirks::of("radv", "navi31");
        let mut some = all.clone();
        some.set("sinks-loads", false).unwrap();
        assert!(!some.has(&SINKS_LOADS) && some != all);
        some.set("sinks-loads", true).unwrap();
        assert_eq!(some, all);
        assert!(some.set("loops", false).unwrap_err().contains("`loops`, only sinks-loads, "));
    }
}
