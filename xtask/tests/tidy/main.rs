//! The house rules that the compiler does not check.

mod circles;
mod imports;
mod lengths;
mod words;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Which members a member may depend on, tests included.
const ARROWS: &[(&str, &[&str])] = &[
    ("tensor-ir", &[]),
    ("compiler", &["tensor-ir"]),
    ("shaders-gen", &["tensor-ir"]),
    ("runtime-cpu", &["tensor-ir"]),
    ("runtime-gpu", &["compiler", "shaders-gen"]),
    ("onednn", &["compiler", "c-source"]),
    ("c-source", &["tensor-ir"]),
    ("rust-source", &["tensor-ir", "shaders-gen"]),
    ("facade", &["compiler", "shaders-gen", "runtime-cpu", "runtime-gpu", "onednn", "c-source"]),
    ("benches", &["compiler", "shaders-gen", "runtime-cpu", "runtime-gpu", "c-source", "facade"]),
    ("workbench", &["compiler", "shaders-gen", "runtime-cpu", "runtime-gpu", "facade", "benches", "graphview"]),
    ("graphview", &["compiler", "shaders-gen"]),
    ("viewer", &["compiler", "shaders-gen", "graphview"]),
    (
        "cli",
        &[
            "compiler",
            "shaders-gen",
            "runtime-cpu",
            "runtime-gpu",
            "onednn",
            "c-source",
            "rust-source",
            "facade",
            "benches",
            "graphview",
            "viewer",
            "workbench",
        ],
    ),
    ("page", &["tensor-ir", "compiler", "shaders-gen", "rust-source", "graphview", "benches"]),
    ("python", &["cli", "compiler", "facade", "graphview", "workbench"]),
    ("capi", &["facade", "workbench"]),
    ("fuzz", &["compiler", "shaders-gen", "workbench"]),
    ("xtask", &[]),
];

/// Members that only the tests of a member may depend on. The emitter itself knows no graphs and no ops.
const TEST_ARROWS: &[(&str, &[&str])] = &[("shaders-gen", &["compiler"]), ("runtime-cpu", &["compiler"])];

/// Crates that only some members may use.
const CONFINED: &[(&str, &[&str])] = &[
    ("wgpu", &["shaders-gen", "runtime-gpu", "viewer"]),
    ("naga", &["shaders-gen", "runtime-gpu"]),
    ("eframe", &["viewer"]),
    ("egui", &["viewer"]),
    ("clap", &["cli"]),
    ("pyo3", &["python"]),
    ("numpy", &["python"]),
];

/// Modules in order: each row uses only rows before it, and itself. A row of several modules is circular, and says why.
type Rows = &'static [(&'static [&'static str], &'static str)];

/// The order of modules of `tensor-ir` and of `compiler`.
const MODULES: &[(&str, Rows)] = &[
    (
        "tensor-ir",
        &[
            (&["dtype"], ""),
            (&["fault"], ""),
            (&["arena"], ""),
            (&["name"], ""),
            (&["bare"], ""),
            (&["fingerprint"], ""),
            (&["registry"], ""),
            (&["recent"], ""),
            (&["profile"], ""),
            (&["tensor"], ""),
            (&["int"], ""),
            (&["attr"], ""),
            (&["tensor_type"], ""),
            (&["tir"], ""),
            (&["te"], ""),
            (&["interpreter"], ""),
            (&["verify"], ""),
            (&["check"], ""),
            (&["traffic"], ""),
            (&["schedule"], ""),
            (&["text"], ""),
            (&["plan"], ""),
        ],
    ),
    (
        "compiler",
        &[
            (&["agreement"], ""),
            (&["profile_file"], ""),
            (&["remark"], ""),
            (&["report"], ""),
            (
                &["graph", "ops", "interpreter"],
                "a node holds its op, an op sees the graph around it, and shapes follow from nodes that are run",
            ),
            (&["lowering"], ""),
            (&["verify"], ""),
            (&["text"], ""),
            (&["inspect"], ""),
            (&["onnx"], ""),
            (&["cost"], ""),
            (&["pattern"], ""),
            (&["external"], ""),
            (&["passes"], ""),
            (&["calibrate"], ""),
            (&["trace"], ""),
            (&["compile"], ""),
        ],
    ),
];

/// Modules of members that use each other, each circle with its reason; those of `compiler` stand in [`MODULES`].
const CIRCLES: &[(&str, &[&str], &str)] = &[
    ("compiler", &["graph", "interpreter", "ops"], "a circular row of MODULES"),
    (
        "viewer",
        &["export", "keys", "panes", "state"],
        "the one state keeps what each pane keeps for itself, and each pane shows all of it; keys and exports act on it, and panes offer them",
    ),
];

/// Files that know ops by type, and which: the op that a rewrite is about, or those of an equation. The tables of
/// equations (`simplify`, `canonicalize_ops`) are rules by nature. Everything else that a pass asks of an op is a
/// property of `Op`.
const NAMED_OPS: &[(&str, &[&str], &str)] = &[
    ("inspect.rs", &["BatchNorm"], "statistics are no parameters that are learned"),
    (
        "onnx/import/trips.rs",
        &[
            "Add",
            "And",
            "Cast",
            "Greater",
            "GreaterOrEqual",
            "Identity",
            "Less",
            "LessOrEqual",
            "Reshape",
            "Squeeze",
            "Sub",
            "Unsqueeze",
        ],
        "i' = i + c; i' < n",
    ),
    ("passes/absorb_transposes.rs", &["MatMul", "PermutedMatMul", "Transpose"], "a product takes transposes over"),
    ("passes/auto_layout/propagation.rs", &["Transpose"], "transposes between the layouts dissolve"),
    ("passes/combine_parallel_conv.rs", &["Conv"], "the pass's op"),
    (
        "passes/combine_parallel_matmul.rs",
        &["DequantizeBlocks", "Gemm", "MatMul", "Transpose"],
        "the pass's ops, and what packs their weights",
    ),
    ("passes/fold_batch_norm.rs", &["BatchNorm"], "the pass's op"),
    ("passes/fold_scale_axis.rs", &["Add", "Div", "Mul"], "(x + c) * s = x * s + c * s"),
    ("passes/fuse_ops.rs", &["Concat"], "TVM's tuple: a list of operands"),
    ("passes/fuse_ops/full/concat_in_place.rs", &["Concat", "Transpose"], "the rule's op, and how it may be stored"),
    ("passes/fuse_ops/full/permuted_store.rs", &["Transpose"], "the rule's op"),
    ("passes/fuse_ops/full/row_chain.rs", &["Reduce"], "the rule's op"),
    (
        "passes/integer_products.rs",
        &["Cast", "Conv", "Gemm", "MatMul", "Mul", "Sub"],
        "sum of (x - zx) * (w - zw) = sum of x * w - zx * sum of w, where weights have no zw",
    ),
    ("passes/mixed_precision/decide.rs", &["Cast"], "reads its operand as it stands"),
    ("passes/mixed_precision/rewrite.rs", &["Cast"], "what the pass inserts"),
    (
        "passes/round_rows.rs",
        &["DequantizeBlocks", "MatMul", "Transpose"],
        "products of decoded weights, as their importer writes them",
    ),
    ("passes/concat_parts.rs", &["Concat", "Insert", "Slice"], "the pass's ops"),
    ("passes/split_to_slices.rs", &["Slice", "Split"], "the pass's ops"),
    ("passes/transposed_phases.rs", &["ConvTranspose"], "the pass's op"),
    ("passes/winograd.rs", &["Conv"], "the pass's op"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

/// The folder of a member.
fn place_of(member: &str) -> PathBuf {
    root().join(match member {
        "tensor-ir" => "compiler/tensor-ir",
        "python" => "bindings/python",
        other => other,
    })
}

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).no_deps();
    command.exec().expect("cargo metadata")
}

fn members(meta: &Metadata) -> Vec<&Package> {
    meta.packages.iter().collect()
}

/// The name of a member: its package has a name of its own, since all packages of crates.io share one list.
fn folder_of(package: &str) -> &str {
    match package {
        "weft-nn" => "facade",
        "weft-command" => "cli",
        other => other.strip_prefix("weft-").unwrap_or(other),
    }
}

/// What may be published has the project's name before it; tools of this tree do not.
#[test]
fn packages_have_names_of_their_own() {
    let own = |p: &&Package| p.name.starts_with("weft-") != UNPUBLISHED.contains(&p.name.as_str());
    let meta = metadata();
    assert_none("names", members(&meta).into_iter().filter(|p| !own(p)).map(|p| p.name.to_string()).collect());
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every Rust file under `folder`, sorted.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|x| x == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// True for files of tests: `tests.rs`, and whatever lies in a folder `tests` or `testing`.
fn is_test(path: &Path) -> bool {
    path.iter().any(|p| p == "tests" || p == "tests.rs" || p == "testing" || p == "testing.rs")
}

/// The part of a file that goes into the product, without comments: tests stand at its end.
fn product_code(path: &Path) -> String {
    let text = read(path);
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let code = text[..end].lines().filter(|l| !l.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

/// The product's sources of some members.
fn product_files(names: &[&str]) -> Vec<PathBuf> {
    let files = names.iter().flat_map(|n| rust_files(&place_of(n).join("src")));
    files.filter(|p| !is_test(p)).collect()
}

fn assert_none(what: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "{what}:\n  {}", broken.join("\n  "));
}

/// What belongs to the command alone: its line, its streams, its end.
const OF_THE_COMMAND: &[&str] = &["clap", "println!", "eprintln!", "print!", "std::env::args", "std::process::exit"];

/// The workbench is called by programs that have no command line, and whose stdout is their own.
#[test]
fn the_workbench_knows_no_command_line() {
    let files = product_files(&["workbench"]);
    let used = |path: &PathBuf| {
        let text = read(path);
        let found = OF_THE_COMMAND.iter().filter(|word| text.contains(**word));
        found.map(|word| format!("{}: {word}", path.display())).collect::<Vec<_>>()
    };
    assert_none("words of the command in the workbench", files.iter().flat_map(used).collect());
}

/// What the command does is in the workbench; lines of Rust outside tests.
#[test]
fn the_command_stays_small() {
    const MOST: usize = 7500;
    let lines: usize = product_files(&["cli"]).iter().map(|p| lengths::product_lines(p).len()).sum();
    assert!(lines <= MOST, "cli has {lines} lines, {MOST} at most");
}

#[test]
fn dependencies_follow_the_arrows() {
    let meta = metadata();
    let names: BTreeSet<&str> = members(&meta).iter().map(|p| folder_of(&p.name)).collect();
    let known: BTreeSet<&str> = ARROWS.iter().map(|(n, _)| *n).collect();
    assert_eq!(names, known, "every member has a line in ARROWS");
    let mut broken = Vec::new();
    for p in members(&meta) {
        let own = folder_of(&p.name);
        let allowed = ARROWS.iter().find(|(n, _)| *n == own).map_or(&[][..], |(_, a)| a);
        for d in p.dependencies.iter().filter(|d| names.contains(folder_of(&d.name))) {
            let other = folder_of(&d.name);
            let of_tests = TEST_ARROWS.iter().any(|(n, list)| *n == own && list.contains(&other));
            let fits = allowed.contains(&other) || (of_tests && d.kind == DependencyKind::Development);
            if !fits {
                broken.push(format!("{own} must not depend on {other}"));
            }
        }
    }
    assert_none("dependency arrows", broken);
}

#[test]
fn outside_crates_stay_in_their_rooms() {
    let meta = metadata();
    let mut broken = Vec::new();
    for p in members(&meta) {
        for d in &p.dependencies {
            let confined = CONFINED.iter().find(|(n, _)| *n == d.name);
            if confined.is_some_and(|(_, rooms)| !rooms.contains(&folder_of(&p.name))) {
                broken.push(format!("{} must not depend on {}", p.name, d.name));
            }
        }
    }
    assert_none("crates outside their room", broken);
}

/// Licences that a dependency may have: those of `deny.toml`.
fn allowed_licences() -> Vec<spdx::Licensee> {
    let text = read(&root().join("deny.toml"));
    let list = text.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).expect("deny.toml has a list");
    let names = list.lines().filter_map(|l| l.trim().strip_prefix('"')?.strip_suffix("\","));
    names.map(|n| spdx::Licensee::parse(n).unwrap_or_else(|e| panic!("deny.toml: {n}: {e}"))).collect()
}

#[test]
fn dependencies_have_licences_that_go_with_ours() {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).features(cargo_metadata::CargoOpt::AllFeatures);
    let all = command.exec().expect("cargo metadata");
    let allowed = allowed_licences();
    let refused = |p: &Package| {
        let Some(licence) = &p.license else { return Some(format!("{} names no licence", p.name)) };
        match spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX) {
            Err(e) => Some(format!("{}: {licence}: {e}", p.name)),
            Ok(e) if e.evaluate(|r| allowed.iter().any(|a| a.satisfies(r))) => None,
            Ok(_) => Some(format!("{} has {licence}", p.name)),
        }
    };
    let foreign: Vec<&Package> = all.packages.iter().filter(|p| p.source.is_some()).collect();
    assert!(foreign.len() > 100 && allowed.len() > 10, "{} packages, {} licences", foreign.len(), allowed.len());
    assert_none("licences that deny.toml does not allow", foreign.into_iter().filter_map(refused).collect());
}

#[test]
fn versions_stand_once() {
    let mut broken = Vec::new();
    for p in members(&metadata()) {
        let manifest = read(p.manifest_path.as_std_path());
        for line in manifest.lines().filter(|l| !l.starts_with("version") && !l.starts_with('#')) {
            if line.contains("version = \"") {
                broken.push(format!("{}: `{line}` belongs into [workspace.dependencies]", p.name));
            }
        }
    }
    assert_none("versions in members", broken);
}

/// An application that has another patch version of a dependency can use the libraries: they take ranges, and
/// Cargo.lock pins.
#[test]
fn libraries_take_ranges_of_versions() {
    let manifest = read(&root().join("Cargo.toml"));
    let exact = manifest.lines().filter(|l| l.contains("\"="));
    assert_none("exact versions", exact.map(String::from).collect());
    assert!(root().join("Cargo.lock").exists(), "the lock file pins versions");
}

/// Tools of this tree stay in it.
const UNPUBLISHED: &[&str] = &["capi", "fuzz", "page", "python", "xtask"];

/// Everything that an application or the command needs can be published: cargo refuses packages without a description
/// and a licence, and the others are what one finds them by.
#[test]
fn packages_say_what_they_are() {
    let mut broken = Vec::new();
    for p in members(&metadata()) {
        let stays = UNPUBLISHED.contains(&p.name.as_str());
        let published = p.publish.as_ref().is_none_or(|registries| !registries.is_empty());
        let described = [p.description.is_some(), p.license.is_some(), p.readme.is_some()];
        let whole = described == [true; 3] && !p.keywords.is_empty() && !p.categories.is_empty();
        if stays == published || published && !whole {
            broken
                .push(format!("{}: publish = false, or description, licence, readme, keywords and categories", p.name));
        }
    }
    assert_none("packages", broken);
}

/// crates.io takes five keywords of 20 characters, which begin with a letter. Crates of one project that have all in
/// common are found by none of them.
#[test]
fn each_package_has_keywords_of_its_own() {
    let (mut seen, mut broken) = (BTreeMap::new(), Vec::new());
    for p in members(&metadata()).into_iter().filter(|p| !UNPUBLISHED.contains(&p.name.as_str())) {
        let fine = |k: &String| k.len() <= 20 && k.starts_with(|c: char| c.is_ascii_alphabetic());
        if p.keywords.len() > 5 || !p.keywords.iter().all(fine) {
            broken.push(format!("{}: {:?}", p.name, p.keywords));
        }
        if let Some(other) = seen.insert(p.keywords.clone(), p.name.clone()) {
            broken.push(format!("{} has the keywords of {other}", p.name));
        }
    }
    assert_none("keywords", broken);
}

/// `tensor-ir` and `compiler` get time, files and environment through their traits, so that they run anywhere and are
/// reproducible.
#[test]
fn the_compiler_touches_nothing_outside() {
    let mut broken = Vec::new();
    for path in product_files(&["tensor-ir", "compiler"]) {
        let code = product_code(&path);
        for word in ["std::fs", "std::env", "std::time", "std::net", "std::process", "wgpu::"] {
            if code.contains(word) {
                broken.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert_none("compiler reaches outside", broken);
}

/// Of what passes and rules may ask, the estimate alone knows what a device does in a second, so that its prices are
/// nobody else's.
#[test]
fn rates_are_known_to_the_estimate_alone() {
    let mut readers = Vec::new();
    for path in product_files(&["tensor-ir", "compiler"]) {
        let name = path.display().to_string();
        let asks = ["src/passes", "src/schedule", "src/cost"].iter().any(|m| name.contains(m));
        let code = product_code(&path);
        if asks && !name.ends_with("estimate/rates.rs") && (code.contains(".gflops") || code.contains(".gb_s")) {
            readers.push(name);
        }
    }
    assert_none("rates of a device are read beside the estimate", readers);
}

#[test]
fn modules_of_the_compiler_use_those_before_them() {
    let mut broken = Vec::new();
    let uses: usize = MODULES.iter().map(|(member, rows)| check_order(member, rows, &mut broken)).sum();
    assert!(uses > 900, "{uses} uses were found");
    assert_none("modules that use what stands above them", broken);
}

/// Adds the uses of later rows to `broken`; returns the number of uses.
fn check_order(member: &str, rows: Rows, broken: &mut Vec<String>) -> usize {
    let lib = read(&place_of(member).join("src/lib.rs"));
    let declared = lib.lines().filter_map(|l| l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let declared: BTreeSet<&str> = declared.collect();
    let known: BTreeSet<&str> = rows.iter().flat_map(|(row, _)| row.iter().copied()).collect();
    assert_eq!(declared, known, "every module of {member} has a row in MODULES");
    assert!(rows.iter().all(|(row, why)| row.len() == 1 || !why.is_empty()), "a circular row says why");
    let row_of = |file: &str| rows.iter().position(|(row, _)| row.contains(&module_of(file)));
    let uses = circles::uses_of(member);
    let pairs = uses.iter().flat_map(|(file, used)| used.iter().map(move |u| (file, u)));
    let pairs: Vec<_> = pairs.filter(|(file, used)| row_of(file).is_some() && row_of(used).is_some()).collect();
    let later = pairs.iter().filter(|(file, used)| row_of(used) > row_of(file));
    broken.extend(later.map(|(file, used)| format!("{member}: {file} uses {used}, which stands above it")));
    pairs.len()
}

/// The module of the crate's root that a file belongs to.
fn module_of(file: &str) -> &str {
    file.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// The modules that each module of a member uses, tests left out.
fn uses_of(member: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, used) in circles::uses_of(member) {
        if !["lib", "main"].contains(&module_of(file)) {
            let used = used.iter().map(|u| module_of(u).to_string());
            uses.entry(module_of(file).into()).or_default().extend(used);
        }
    }
    uses
}

/// What a module reaches through others.
fn reached<'a>(uses: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut out, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(m) = open.pop() {
        let next = uses.get(m).into_iter().flatten().map(String::as_str).filter(|n| uses.contains_key(*n) && *n != m);
        open.extend(next.filter(|n| out.insert(*n)));
    }
    out
}

#[test]
fn circles_of_modules_are_known() {
    let mut found: BTreeSet<(&str, Vec<String>)> = BTreeSet::new();
    for member in MEMBERS {
        let uses = uses_of(member);
        for module in uses.keys() {
            let reached_from = reached(&uses, module);
            let circle = reached_from.iter().filter(|m| reached(&uses, m).contains(module.as_str()));
            let circle: Vec<String> = circle.map(|m| m.to_string()).collect();
            if circle.len() > 1 {
                found.insert((member, circle));
            }
        }
    }
    let known = CIRCLES.iter().map(|(member, list, _)| (*member, list.iter().map(|m| m.to_string()).collect()));
    assert_eq!(found, known.collect(), "circles of modules: undo a new one, and take one that is gone out of CIRCLES");
}

/// The ops of the table but the IR's own (`ops/control.rs` and the like): constants, calls, regions,
/// functions as values.
fn op_types() -> BTreeSet<String> {
    let text = read(&root().join("compiler/src/ops/mod.rs"));
    let table = text.split("\nops! {").nth(1).and_then(|t| t.split("\n}").next()).expect("the table of ops");
    let own = |family: &str| ["control", "external_scope", "function_values", "trap"].contains(&family.trim());
    let rows = table.split('}').filter_map(|row| row.split_once('{')).filter(|(family, _)| !own(family));
    let names = rows.flat_map(|(_, ops)| ops.split(',').map(|o| o.trim().to_string()));
    names.filter(|o| !o.is_empty()).collect()
}

/// The ops that code asks for by type: `is::<Conv>`, `op::<Relu>([...])`.
fn ops_asked(code: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    const ASK: &[&str] = &["is", "downcast", "op", "op_from", "commuted", "attr", "def_op", "made_by"];
    let asks = |before: &str| {
        ASK.contains(&before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
    };
    let types = code.match_indices("::<").filter(|(i, _)| asks(&code[..*i]));
    let types = types.filter_map(|(i, m)| code[i + m.len()..].split('>').next()?.rsplit("::").next());
    types.filter(|t| known.contains(*t)).map(String::from).collect()
}

#[test]
fn passes_ask_ops_for_properties() {
    let (folder, known) = (root().join("compiler/src"), op_types());
    assert!(known.len() > 100, "{} ops were found", known.len());
    let files = product_files(&["compiler"]);
    let tests = test_modules(&files);
    let mut broken = Vec::new();
    let mut named = 0;
    for path in files.iter().filter(|p| !tests.contains(*p)) {
        let place = path.strip_prefix(&folder).unwrap_or(path).to_string_lossy().replace('\\', "/");
        if ["ops/", "passes/simplify/", "passes/canonicalize_ops/"].iter().any(|f| place.starts_with(f)) {
            continue;
        }
        let asked = ops_asked(&product_code(path), &known);
        let allowed = NAMED_OPS.iter().find(|(file, ..)| *file == place).map_or(&[][..], |(_, ops, _)| ops);
        named += asked.len();
        let allowed: BTreeSet<String> = allowed.iter().map(|o| o.to_string()).collect();
        if asked != allowed {
            broken.push(format!("{place} asks for {asked:?}, NAMED_OPS has {allowed:?}"));
        }
    }
    assert_eq!(
        named,
        NAMED_OPS.iter().map(|(_, ops, _)| ops.len()).sum::<usize>(),
        "every row is of a file that is there"
    );
    assert_none("ops by type: say it in the op's file as a property of `Op`, or list the rule", broken);
}

/// A shader depends on the tensor function alone.
#[test]
fn shaders_gen_knows_no_rules() {
    let mut broken = Vec::new();
    for path in product_files(&["shaders-gen"]) {
        let code: String = product_code(&path).split_whitespace().collect();
        let uses = code.split("usetensor_ir::").skip(1).filter_map(|u| u.split(';').next());
        let imported = uses.flat_map(|u| u.split(['{', '}', ',']).map(String::from).collect::<Vec<_>>());
        for item in imported
            .chain(code.match_indices("tensor_ir::").map(|(i, m)| code[i + m.len()..].chars().take(24).collect()))
        {
            if item.contains("schedule::rules") || item.starts_with("rules") {
                broken.push(format!("{}: {item}", path.display()));
            }
        }
    }
    assert_none("shaders-gen imports rules", broken);
}

/// Every kernel comes out of tensor IR, a trace and the one lowering.
#[test]
fn the_product_holds_no_shader_text() {
    let mut broken = Vec::new();
    let members =
        ["tensor-ir", "compiler", "shaders-gen", "runtime-cpu", "runtime-gpu", "benches", "cli", "graphview", "viewer"];
    for path in product_files(&members) {
        let code = product_code(&path);
        for word in ["@compute", "@workgroup_size", "var<storage", "#version 4"] {
            if code.contains(word) {
                broken.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert_none("shader text in the product", broken);
}

/// Files that a `mod` line under `cfg(test)` makes.
fn test_modules(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut out = BTreeSet::new();
    for path in files {
        let own = path.file_stem().is_some_and(|n| n == "mod" || n == "lib" || n == "main");
        let folder = if own { path.parent().map(Path::to_path_buf) } else { Some(path.with_extension("")) };
        let text = read(path);
        for after in text.split("#[cfg(test)]\n").skip(1) {
            let line = after.lines().next().unwrap_or_default();
            let name = line.rsplit("mod ").next().and_then(|n| n.strip_suffix(';'));
            out.extend(name.zip(folder.as_ref()).map(|(n, folder)| folder.join(format!("{n}.rs"))));
        }
    }
    out
}

const MEMBERS: &[&str] = &[
    "tensor-ir",
    "compiler",
    "shaders-gen",
    "runtime-cpu",
    "runtime-gpu",
    "onednn",
    "c-source",
    "rust-source",
    "facade",
    "graphview",
    "viewer",
    "benches",
    "workbench",
    "page",
    "cli",
    "python",
    "capi",
    "fuzz",
    "xtask",
];

/// The folder of ops, passes or schedule instructions.
fn source_of(folder: &str) -> PathBuf {
    place_of(if folder == "schedule" { "tensor-ir" } else { "compiler" }).join("src").join(folder)
}

/// Outside its own file an op, a pass, an instruction and a rule each have a `mod` line and a row of a table.
#[test]
fn what_is_added_has_a_file_and_a_row() {
    let mut broken = Vec::new();
    let tables = [("ops", "ops", 50), ("passes", "passes", 15), ("schedule", "instructions", 20)];
    for (folder, table, at_least) in tables {
        let place = source_of(folder).join("mod.rs");
        let modules = table_modules(&place, table);
        assert!(modules.len() >= at_least, "the {table}! table was not read: {modules:?}");
        let text = read(&place);
        for m in &modules {
            let rows = text.lines().filter(|l| {
                let code = l.trim_start();
                // Declarations and rows; what functions call stands deeper.
                !code.starts_with("//")
                    && l.len() - code.len() <= 4
                    && code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == m)
            });
            let declared = |l: &&str| l.ends_with(&format!("mod {m};"));
            // Types that stand in the same file beside the pass or instruction are exported by a line of their own.
            let exports = |l: &&str| l.starts_with("pub") && l.contains(" use ");
            let rows: Vec<&str> = rows.filter(|l| !exports(l)).collect();
            let other = rows.iter().filter(|l| !declared(l)).count();
            if rows.len() - other != 1 || other != 1 {
                broken.push(format!("{m} stands in {} lines of {}: {rows:?}", rows.len(), place.display()));
            }
        }
    }
    let rules = read(&source_of("schedule").join("rules/mod.rs"));
    for row in rules.lines().filter(|l| l.trim_start().starts_with("rule!(\"")) {
        let name = row.split('"').nth(1).unwrap_or_default().replace('-', "_");
        if !rules.contains(&format!("mod {name};")) || !row.contains(&format!(", {name})")) {
            broken.push(format!("the rule in `{row}` does not live in {name}.rs"));
        }
    }
    assert_none("places", broken);
}

#[test]
fn files_are_named_after_what_they_hold() {
    let mut broken = Vec::new();
    for (member, _) in ARROWS {
        for path in rust_files(&place_of(member)) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if ["utils.rs", "util.rs", "common.rs", "helpers.rs", "helper.rs", "misc.rs"].contains(&name.as_str()) {
                broken.push(path.display().to_string());
            }
        }
    }
    assert_none("files that say nothing", broken);
}

/// The modules named in the rows `module::Type` (or `family { ... }`) of the call of a table macro.
fn table_modules(file: &Path, table: &str) -> BTreeSet<String> {
    let text = read(file);
    let start = text.find(&format!("\n{table}! {{")).unwrap_or_else(|| panic!("{} has no {table}!", file.display()));
    let body = text[start..].split("\n}").next().unwrap_or_default();
    let rows = body.lines().skip(2).map(str::trim);
    let rows = rows.filter(|l| l.contains("::") || l.contains('{'));
    rows.filter_map(|l| l.split([':', ' ']).next()).map(String::from).collect()
}

/// A row's file opens with a module comment that says what the thing does.
fn check_headers(folder: &str, table: &str, at_least: usize) {
    let folder = source_of(folder);
    let modules = table_modules(&folder.join("mod.rs"), table);
    assert!(modules.len() >= at_least, "the {table}! table was not read: {modules:?}");
    let mut broken = Vec::new();
    for m in modules {
        let path = folder.join(format!("{m}.rs"));
        let path = if path.exists() { path } else { folder.join(&m).join("mod.rs") };
        if !read(&path).starts_with("//! ") {
            broken.push(format!("{} has no header comment", path.display()));
        }
    }
    assert_none(table, broken);
}

#[test]
fn passes_instructions_and_ops_have_headers() {
    check_headers("passes", "passes", 8);
    check_headers("schedule", "instructions", 15);
    check_headers("ops", "ops", 30);
}

/// A pass shows what it does as text, has filetests, and a row in its document.
#[test]
fn passes_are_shown_tested_and_documented() {
    let folder = root().join("compiler/src/passes");
    let document = read(&root().join("docs/passes.md"));
    let mut broken = Vec::new();
    for m in table_modules(&folder.join("mod.rs"), "passes") {
        let name = m.replace('_', "-");
        let header: Vec<String> = read(&folder.join(format!("{m}.rs")))
            .lines()
            .take_while(|l| l.starts_with("//!"))
            .map(String::from)
            .collect();
        if !header.iter().any(|l| l.contains("```text")) {
            broken.push(format!("the header of {m}.rs shows no before and after"));
        }
        // Instructions are applied by the filetests of the instructions.
        let tested = if name == "apply-schedules" { "schedule" } else { &name };
        if !root().join("filetests").join(tested).is_dir() {
            broken.push(format!("{name} has no folder of filetests"));
        }
        if !document.contains(&format!("| `{name}` |")) {
            broken.push(format!("{name} has no row in docs/passes.md"));
        }
    }
    assert_none("passes", broken);
}

/// A rule for devices shows the shader that comes of it.
#[test]
fn rules_have_filetests_of_their_shaders() {
    let rules = read(&source_of("schedule").join("rules/mod.rs"));
    let rows = rules.lines().filter(|l| l.trim_start().starts_with("rule!(\"") && l.contains(", Devices, "));
    let names: Vec<&str> = rows.filter_map(|row| row.split('"').nth(1)).collect();
    let shaders: Vec<String> = std::fs::read_dir(root().join("filetests/wgsl"))
        .expect("filetests of shaders")
        .flatten()
        .map(|f| read(&f.path()))
        .collect();
    assert!(names.len() > 5 && shaders.len() > 60, "{} rules, {} shaders", names.len(), shaders.len());
    let shown = |name: &&str| shaders.iter().any(|s| s.contains(&format!("rule `{name}`")));
    let missing = names.into_iter().filter(|n| !shown(n)).map(String::from).collect();
    assert_none("rules without a filetest in filetests/wgsl that names them", missing);
}

/// One word everywhere: the pass `fuse-ops` lives in `fuse_ops.rs`.
#[test]
fn files_of_passes_and_instructions_bear_their_names() {
    let mut broken = Vec::new();
    for (folder, table) in [("passes", "passes"), ("schedule", "instructions")] {
        let folder = source_of(folder);
        for m in table_modules(&folder.join("mod.rs"), table) {
            let text = read(&folder.join(format!("{m}.rs")));
            if !text.contains(&format!("(\"{}\")", m.replace('_', "-"))) && !text.contains(&format!("(\"{m}\")")) {
                broken.push(format!("{m}.rs declares nothing called {}", m.replace('_', "-")));
            }
        }
    }
    assert_none("names", broken);
}

/// The documents' Rust is run as doctests; the README shows a part of it.
#[test]
fn the_readme_shows_code_that_is_tested() {
    let (readme, tested) = (read(&root().join("README.md")), read(&root().join("docs/build-a-model.md")));
    let blocks: Vec<&str> =
        readme.split("```rust\n").skip(1).filter_map(|b| b.split_once("```")).map(|b| b.0).collect();
    assert!(!blocks.is_empty(), "the README shows no Rust");
    let other = blocks.into_iter().filter(|b| !tested.contains(b));
    assert_none("code of the README that docs/build-a-model.md does not have", other.map(String::from).collect());
}

#[test]
fn every_chore_and_document_is_there() {
    let files = [
        ".ci/run",
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        ".github/workflows/check.yml",
        "LICENSE",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/ir.md",
        "docs/build-a-model.md",
        "docs/add-an-op.md",
        "docs/add-a-pass.md",
        "docs/passes.md",
        "docs/add-a-rule.md",
        "docs/add-an-instruction.md",
    ];
    let missing = files.iter().filter(|f| !root().join(f).exists());
    assert_none("missing", missing.map(|f| f.to_string()).collect());
}

/// Without a GPU `auto` is the CPU. The tests of the command run shaders all the same: it is started in one place, and
/// for transcripts, and both name the first adapter. So do the checks of `xtask test`.
#[test]
fn checks_still_dispatch_shaders() {
    let folder = place_of("cli").join("tests");
    let starts = |text: &str| text.contains("CARGO_BIN_EXE_weft") && text.contains("Command::new");
    let tests = rust_files(&folder).into_iter().map(|f| (read(&f), f)).map(|(text, f)| (f, text));
    let starting: Vec<(PathBuf, String)> = tests.filter(|t| starts(&t.1)).collect();
    let places: BTreeSet<&Path> = starting.iter().map(|t| t.0.strip_prefix(&folder).expect("a test")).collect();
    assert_eq!(places, BTreeSet::from(["commands/command.rs", "transcripts.rs"].map(Path::new)));
    let silent = starting.iter().filter(|t| !t.1.contains("\"WEFT_DEVICE\", \"0\""));
    let mut broken: Vec<String> = silent.map(|t| format!("{} sets no WEFT_DEVICE", t.0.display())).collect();
    for file in ["networks.rs", "demo.rs", "conformance/ledger.rs"] {
        if !read(&root().join("xtask/src").join(file)).contains("\"0\"") {
            broken.push(format!("xtask/src/{file} names no adapter"));
        }
    }
    assert_none("checks that run no shaders", broken);
}
