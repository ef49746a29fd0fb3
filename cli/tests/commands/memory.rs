//! Networks that need more memory than the process may have end in words before they run; those that just fit run.
#![cfg(target_os = "linux")]

use crate::command::{PROGRAM, Ran, Weft, has_adapter};
use std::path::Path;

/// A network: its parameters, and nodes that make `%2` of them. `N` is a size.
struct Network {
    name: &'static str,
    parameters: &'static str,
    body: &'static str,
    /// Element type and rank of `%2`.
    result: (&'static str, usize),
}

const fn of(name: &'static str, parameters: &'static str, body: &'static str) -> Network {
    Network { name, parameters, body, result: ("f32", 2) }
}

const GRID: &str = "%a: f32[N,1], %b: f32[1,N]";

/// Networks of small inputs and results, with values of N x N elements that no fusion removes.
const NETWORKS: &[Network] = &[
    of(
        "matmul",
        "%a: f32[N,4], %b: f32[4,N]",
        "%0 = matmul %a, %b; %1 = softmax %0 {axes=[0]}; %2 = softmax %1 {axes=[1]}",
    ),
    of("attention", "%a: f32[N,8], %b: f32[8,N]", "%0 = matmul %a, %b; %1 = softmax %0 {axes=[1]}; %2 = matmul %1, %a"),
    of("expand", "%a: f32[1,N]", "%0 = expand %a {shape=[N,N]}; %2 = cumsum %0 {axis=0}"),
    of("tile", "%a: f32[N,1]", "%0 = tile %a {repeats=[1,N]}; %2 = cumsum %0 {axis=1}"),
    of("cumsum", GRID, "%0 = add %a, %b; %2 = cumsum %0 {axis=1}"),
    of("cumsum twice", GRID, "%0 = add %a, %b; %1 = cumsum %0 {axis=1}; %2 = cumsum %1 {axis=0}"),
    of("softmax", GRID, "%0 = mul %a, %b; %1 = softmax %0 {axes=[1]}; %2 = softmax %1 {axes=[0]}"),
    of("top_k", GRID, "%0 = add %a, %b; %2, %3 = top_k %0 {k=3}"),
    Network { result: ("i64", 2), ..of("non_zero", GRID, "%0 = add %a, %b; %2 = non_zero %0 {count=found}") },
    Network {
        result: ("f32", 4),
        ..of(
            "conv",
            "%a: f32[1,1,N,1], %w: f32[N,1,1,1]",
            "%0 = conv %a, %w; %1 = softmax %0 {axes=[1]}; %2 = softmax %1 {axes=[2]}",
        )
    },
    Network {
        result: ("f32", 4),
        ..of(
            "conv of pads",
            "%a: f32[1,1,4,4], %w: f32[2,1,1,1]",
            "%0 = pad %a {pads=[0,0,N,N,0,0,0,0]}; %1 = conv %0, %w; %2 = cumsum %1 {axis=2}",
        )
    },
    of(
        "concat",
        GRID,
        "%0 = add %a, %b; %1 = cumsum %0 {axis=1}; %3 = concat %1, %0 {axis=0}; %2 = cumsum %3 {axis=0}",
    ),
    of("gather", "%a: f32[16,N], %i: i64[N]", "%0 = gather %a, %i {axis=0}; %2 = cumsum %0 {axis=0}"),
    of("einsum", "%a: f32[N], %b: f32[N]", "%0 = einsum %a, %b {equation=\"i,j->ij\"}; %2 = cumsum %0 {axis=0}"),
    Network {
        result: ("f32", 4),
        ..of("resize", "%a: f32[1,1,N,1]", "%0 = resize %a {sizes=[1,1,N,N]}; %2 = cumsum %0 {axis=2}")
    },
    of("pad", "%a: f32[4,4]", "%0 = pad %a {pads=[0,0,N,N]}; %2 = cumsum %0 {axis=1}"),
    of(
        "transpose",
        GRID,
        "%0 = add %a, %b; %1 = cumsum %0 {axis=0}; %3 = transpose %1 {perm=[1,0]}; %2 = cumsum %3 {axis=0}",
    ),
    of("where", "%c: bool[N,1], %a: f32[1,N], %b: f32[N,1]", "%0 = where %c, %a, %b; %2 = cumsum %0 {axis=0}"),
    of(
        "scatter",
        "%a: f32[1,N], %i: i64[3,1], %u: f32[3,N]",
        "%0 = expand %a {shape=[N,N]}; %1 = scatter_nd %0, %i, %u; %2 = cumsum %1 {axis=0}",
    ),
    of(
        "rows of a loop",
        "%a: f32[N]",
        "%v, %r = loop _, _, %a {trips=N} : f32[N], f32[N,N] (%i: i64[], %x: f32[N]) {; %1 = sin %x; yield %1, %1; }; %2 = cumsum %r {axis=0}",
    ),
    of(
        "loop",
        GRID,
        "%0 = add %a, %b; %2 = loop _, _, %0 {trips=2} : f32[N,N] (%i: i64[], %x: f32[N,N]) {; %1 = cumsum %x {axis=0}; yield %1; }",
    ),
    of("call", GRID, "%0 = call @f %a, %b : f32[N,N]; %2 = cumsum %0 {axis=0}"),
    of(
        "branch",
        "%a: f32[N,1], %b: f32[1,N], %c: bool[]",
        "%0 = if %c : f32[N,N] {; %1 = add %a, %b; yield %1; } {; %3 = mul %a, %b; yield %3; }; %2 = cumsum %0 {axis=0}",
    ),
    Network {
        result: ("f64", 2),
        ..of("doubles", "%a: f64[N,1], %b: f64[1,N]", "%0 = add %a, %b; %2 = cumsum %0 {axis=1}")
    },
    Network {
        result: ("f16", 2),
        ..of("halves", "%a: f16[N,1], %b: f16[1,N]", "%0 = add %a, %b; %2 = cumsum %0 {axis=1}")
    },
    Network {
        result: ("i64", 2),
        ..of("integers", "%a: i64[N,1], %b: i64[1,N]", "%0 = add %a, %b; %2 = cumsum %0 {axis=1}")
    },
    of("input", "%a: f32[N,N]", "%2 = neg %a"),
];

/// Those that run by a plan whose peak is known before, so that one that is a little smaller than the memory runs.
const FIT: [&str; 20] = [
    "matmul",
    "attention",
    "expand",
    "tile",
    "cumsum",
    "cumsum twice",
    "softmax",
    "conv",
    "conv of pads",
    "concat",
    "gather",
    "einsum",
    "resize",
    "pad",
    "transpose",
    "where",
    "scatter",
    "rows of a loop",
    "loop",
    "call",
];

impl Network {
    fn text(&self, n: usize) -> String {
        let (dtype, rank) = self.result;
        let axes = (0..rank).map(|a| a.to_string()).collect::<Vec<_>>().join(",");
        let text = format!(
            "graph @main({}) -> (y: {dtype}[]) {{;{}; %y = reduce %2 {{axes=[{axes}], kind=max}}; return %y; }};\
             graph @f(%a: f32[N,1], %b: f32[1,N]) -> f32[N,N] {{; %0 = add %a, %b; %1 = cumsum %0 {{axis=1}}; return %1; }};",
            self.parameters, self.body
        );
        let text = if self.name == "call" { &text[..] } else { text.split_once(";graph").map_or("", |t| t.0) };
        // `Network` and other words have no N of their own.
        text.replace(';', "\n").replace('N', &n.to_string())
    }
    /// Runs it with so many KiB of address space.
    fn run(&self, folder: &Path, n: usize, device: &str, limit: usize) -> Ran {
        self.command("run", folder, n, device, limit)
    }
    /// Runs or times it.
    fn command(&self, verb: &str, folder: &Path, n: usize, device: &str, limit: usize) -> Ran {
        let file = folder.join(format!("{}.weft", self.name.replace(' ', "-")));
        std::fs::write(&file, self.text(n)).expect("writes");
        let script = format!("ulimit -v {limit}; exec \"$@\"");
        let command = Weft::of("sh").args(["-c", &script, "sh", PROGRAM, verb]).args([&file]);
        let threads = if device == "cpu" { &["--threads", "1"][..] } else { &[] };
        let command = command.args(["--device", device, "--cache", "off", "-q"]).args(threads);
        command.env("RAYON_NUM_THREADS", "1").run()
    }
    /// It ends with exit code 5 and one line that names sizes.
    fn is_refused(&self, ran: Ran, device: &str) -> String {
        let ran = ran.refused(5, "");
        assert!(ran.error().contains(" MiB") || ran.error().contains(" bytes"), "{}", ran.stderr);
        let lines = ran.stderr.lines().filter(|l| !l.starts_with("  ")).count();
        assert_eq!(lines, 1, "{} on {device}:\n{}", self.name, ran.stderr);
        ran.error().into()
    }
}

#[test]
fn networks_beyond_the_memory_end_in_words() {
    assert_eq!(NETWORKS.len(), 27);
    let folder = tempfile::tempdir().expect("a folder");
    let devices = if has_adapter() { &["cpu", "interpreter", "0"][..] } else { &["cpu", "interpreter"] };
    for network in NETWORKS {
        for device in devices {
            for verb in ["run", "bench"] {
                network.is_refused(network.command(verb, folder.path(), 60_000, device, 4_000_000), device);
            }
        }
    }
}

/// The number before ` MiB` behind these words.
fn mebibytes(text: &str, words: &str) -> f64 {
    let rest = text.split_once(words).unwrap_or_else(|| panic!("`{text}` has no `{words}`")).1;
    rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("`{text}` has no number"))
}

#[test]
fn networks_that_just_fit_run() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in FIT {
        let network = NETWORKS.iter().find(|n| n.name == name).expect("a network of this name");
        let limit = 400_000;
        let n = 12_000;
        let error = network.is_refused(network.run(folder.path(), n, "cpu", limit), "cpu");
        let sized = |n: usize, error: &str, share: f64| {
            let (need, free) = (mebibytes(error, "takes "), mebibytes(error, "has "));
            (n as f64 * (share * free / need).sqrt()) as usize
        };
        let (mut n, mut error) = (n, error);
        let ran = network.run(folder.path(), sized(n, &error, 0.85), "cpu", limit);
        if ran.code == Some(5) {
            // What is fused, and so what a size takes, differs between sizes.
            n = sized(n, &error, 0.85);
            error = network.is_refused(ran, "cpu");
            network.run(folder.path(), sized(n, &error, 0.85), "cpu", limit).succeeded();
        } else {
            ran.succeeded();
        }
        network.is_refused(network.run(folder.path(), sized(n, &error, 1.2), "cpu", limit), "cpu");
    }
}
