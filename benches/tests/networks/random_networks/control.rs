//! Networks with control flow: branches and loops inside each other, with conditions and numbers of iterations that the
//! device computes, several carried values, collected rows, values captured from outside, loops that run zero times.
//!
//! A network follows from its seed alone. `PROPTEST_CASES` draws more than every run of the tests does, `WEFT_SEED`
//! others.
//!
//! A difference of values that are equal but for their rounding (`a - a` computed in two ways) is all rounding, `tanh`
//! of tiny values is nothing but the error that shaders may make in it, and a condition may stand at its bound. Such a
//! result says nothing about the device, so a network is drawn a second time with computed values moved by [`NOISE`]
//! and [`TANH_NOISE`]; results of the interpreter that this moves past half of the tolerance are left out. Where none
//! is left, another seed takes its place.

use super::targets::Target;
use super::{check_compiled, inputs_of};
use compiler::agreement::{Tolerance, agree_in_slices};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::interpreter::run_function;
use compiler::passes::{FuseMode, PipelineOptions};
use compiler::tensor::Tensor;
use compiler::text::parse_module;
use std::fmt::Write;

/// Every value is of this type, but for conditions and numbers.
const TYPE: &str = "f32[3,4]";

/// Relative error that a device may make in one operation: four roundings of f32.
const NOISE: f32 = 4.0 * f32::EPSILON / 2.0;
/// Absolute error that a device may make in `tanh`: WGSL bounds it by an absolute error (of 1e-5), and devices make it
/// from `exp`, which rounds near 1.
const TANH_NOISE: f32 = f32::EPSILON;
/// The largest share of results that may be left out.
const MOST_SILENT: f64 = 0.25;

/// Random numbers: splitmix64 (Steele, Lea and Flood, 2014).
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    fn of<'t>(&mut self, list: &'t [String]) -> &'t str {
        // Mostly one of the newest, so that chains arise.
        let back = if self.one_in(3) { self.below(list.len()) } else { self.below(list.len().min(3)) };
        &list[list.len() - 1 - back]
    }
}

/// What was drawn, over all networks.
#[derive(Default, Debug)]
struct Drawn {
    branches: usize,
    loops: usize,
    nested: usize,
    computed_trips: usize,
    conditions: usize,
    grown: usize,
}

/// The text of a network while it is written.
struct Text<'d> {
    draw: Draw,
    drawn: &'d mut Drawn,
    /// Computed values are moved by [`NOISE`], up and down in turn.
    noise: bool,
    body: String,
    names: usize,
    /// Names and types of results whose rows only a run counts.
    grown: Vec<(String, String)>,
}

impl Text<'_> {
    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("%n{}", self.names)
    }
    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.body, "{}{text}", "  ".repeat(depth + 1));
    }
    /// A line that defines one value.
    fn value(&mut self, depth: usize, text: &str) -> String {
        let name = self.fresh();
        self.line(depth, &format!("{name} = {text}"));
        name
    }
    /// The value as a device with other rounding may have it, where that is wanted.
    fn moved(&mut self, depth: usize, name: String, op: &str, by: &str) -> String {
        if self.noise { self.value(depth, &format!("{op} {name}, {by} : {TYPE}")) } else { name }
    }
    /// A bool that follows from a value: mostly computed on the device, sometimes always or never true.
    fn condition(&mut self, depth: usize, scope: &[String]) -> String {
        let kind = ["max", "min", "mean"][self.draw.below(3)];
        let bound = ["%never", "%always", "%low", "%high", "%zero", "%low"][self.draw.below(6)];
        let value = self.draw.of(scope).to_string();
        let number = self.value(depth, &format!("reduce {value} {{kind={kind}, axes=[0,1]}} : f32[]"));
        self.value(depth, &format!("less {number}, {bound} : bool[]"))
    }
    fn compute(&mut self, depth: usize, scope: &mut Vec<String>) {
        let (a, b) = (self.draw.of(scope).to_string(), self.draw.of(scope).to_string());
        let text = match self.draw.below(9) {
            0 => format!("tanh {a}"),
            1 => format!("neg {a}"),
            2 => format!("softmax {a} {{axes=[1]}}"),
            3 => format!("matmul {a}, %w"),
            4 => format!("max {a}, {b}"),
            5 => format!("mul {a}, {b}"),
            _ => format!("{} {a}, {b}", ["add", "sub"][self.draw.below(2)]),
        };
        let mut name = self.value(depth, &format!("{text} : {TYPE}"));
        if !text.starts_with("softmax") && !text.starts_with("neg") {
            // Values stay small however often a loop runs.
            name = self.value(depth, &format!("tanh {name} : {TYPE}"));
            name = self.moved(depth, name, "add", ["%more", "%less"][scope.len() % 2]);
        }
        name = self.moved(depth, name, "mul", ["%up", "%down"][scope.len() % 2]);
        scope.push(name);
    }
    fn yields(&mut self, count: usize, scope: &[String]) -> Vec<String> {
        (0..count).map(|_| self.draw.of(scope).to_string()).collect()
    }
    fn statements(&mut self, depth: usize, scope: &mut Vec<String>) {
        for _ in 0..1 + self.draw.below(if depth == 0 { 5 } else { 3 }) {
            match self.draw.below(if depth < 3 { 6 } else { 3 }) {
                0..3 => self.compute(depth, scope),
                3 => self.branch(depth, scope),
                _ => self.repeat(depth, scope),
            }
        }
    }
    fn branch(&mut self, depth: usize, scope: &mut Vec<String>) {
        self.drawn.branches += 1;
        self.drawn.nested += usize::from(depth > 0);
        let condition = self.condition(depth, scope);
        let results: Vec<String> = (0..1 + self.draw.below(3)).map(|_| self.fresh()).collect();
        let types = vec![TYPE; results.len()].join(", ");
        self.line(depth, &format!("{} = if {condition} : {types} {{", results.join(", ")));
        for side in 0..2 {
            let mut inside = scope.clone();
            if !self.draw.one_in(4) {
                self.statements(depth + 1, &mut inside);
            }
            let yields = self.yields(results.len(), &inside);
            self.line(depth + 1, &format!("yield {}", yields.join(", ")));
            self.line(depth, if side == 0 { "} {" } else { "}" });
        }
        scope.extend(results);
    }
    fn repeat(&mut self, depth: usize, scope: &mut Vec<String>) {
        self.drawn.loops += 1;
        self.drawn.nested += usize::from(depth > 0);
        let known = self.draw.below(4);
        let (goes_on, begins) = (self.draw.one_in(2), self.draw.one_in(3));
        let computed = self.draw.one_in(3);
        self.drawn.conditions += usize::from(goes_on || begins);
        let trips = match (computed, goes_on && self.draw.one_in(2)) {
            (true, _) => {
                self.drawn.computed_trips += 1;
                let value = self.draw.of(scope).to_string();
                let most = self.value(depth, &format!("reduce {value} {{kind=max, axes=[0,1]}} : f32[]"));
                let moved = self.value(depth, &format!("add {most}, %two : f32[]"));
                self.value(depth, &format!("cast {moved} {{to=i64}} : i64[]"))
            }
            // The body counts its iterations.
            _ => "_".into(),
        };
        let endless = trips == "_" && goes_on && self.draw.one_in(2);
        let begin = if begins { self.condition(depth, scope) } else { "_".into() };
        let counted = trips == "_" && !goes_on && !begins;
        let rows = if counted || depth == 0 { self.draw.below(3) } else { 0 };
        // A loop has a result.
        let carried = if rows > 0 { self.draw.below(4) } else { 1 + self.draw.below(3) };
        let first = self.yields(carried, scope);
        let results: Vec<String> = (0..carried + rows).map(|_| self.fresh()).collect();
        let mut attrs = vec![];
        if trips == "_" && !endless {
            attrs.push(format!("trips={known}"));
        }
        if goes_on {
            attrs.push("while=true".into());
        }
        let count = if counted { known.to_string() } else { format!("c{}", self.names) };
        if rows > 0 && !counted {
            attrs.push(format!("count={count}"));
        }
        let all = format!("f32[{count},3,4]");
        let types = [vec![TYPE; carried], vec![all.as_str(); rows]].concat().join(", ");
        let index = self.fresh();
        let args: Vec<String> = (0..carried).map(|_| self.fresh()).collect();
        let typed = args.iter().map(|a| format!("{a}: {TYPE}"));
        let parameters: Vec<String> = [format!("{index}: i64[]")].into_iter().chain(typed).collect();
        let operands: Vec<&str> =
            [trips.as_str(), &begin].into_iter().chain(first.iter().map(String::as_str)).collect();
        let head = format!(
            "{} = loop {} {{{}}} : {types} ({}) {{",
            results.join(", "),
            operands.join(", "),
            attrs.join(", "),
            parameters.join(", ")
        );
        self.line(depth, &head);
        let mut inside: Vec<String> = scope.iter().chain(&args).cloned().collect();
        self.statements(depth + 1, &mut inside);
        let mut yields = vec![];
        if goes_on {
            let data = self.condition(depth + 1, &inside);
            let early = self.value(depth + 1, &format!("less {index}, %most : bool[]"));
            yields.push(self.value(depth + 1, &format!("and {data}, {early} : bool[]")));
        }
        yields.extend(self.yields(carried + rows, &inside));
        self.line(depth + 1, &format!("yield {}", yields.join(", ")));
        self.line(depth, "}");
        scope.extend(results[..carried].iter().cloned());
        for name in &results[carried..] {
            if counted && known > 0 {
                let sum = self.value(depth, &format!("reduce {name} {{kind=mean, axes=[0]}} : {TYPE}"));
                scope.push(sum);
            } else if depth == 0 && !counted {
                self.drawn.grown += 1;
                self.grown.push((name.clone(), all.clone()));
            }
        }
    }
}

/// The network of a seed, with those of its results that `kept` has.
fn network(seed: u64, noise: bool, kept: &dyn Fn(usize) -> bool, drawn: &mut Drawn) -> String {
    let mut text = Text { draw: Draw(seed), drawn, noise, body: String::new(), names: 0, grown: vec![] };
    let numbers = [("never", -9.0), ("always", 9.0), ("low", 0.2), ("high", 0.6), ("zero", 0.0), ("two", 2.3)];
    let moved = [("up", 1.0 + NOISE), ("down", 1.0 - NOISE), ("more", TANH_NOISE), ("less", -TANH_NOISE)];
    let mut head = String::new();
    for (name, number) in numbers.into_iter().chain(moved.into_iter().filter(|_| noise)) {
        let _ = writeln!(head, "const @{name} : f32[] = [{number:?}]");
        text.line(0, &format!("%{name} = const @{name}"));
    }
    let _ = writeln!(head, "const @most : i64[] = [2]");
    text.line(0, "%most = const @most");
    let weights: Vec<String> = (0..16).map(|i| format!("{:?}", f64::from((i * 7) % 16 - 8) / 10.0)).collect();
    let _ = writeln!(head, "const @w : f32[4,4] = [{}]", weights.join(", "));
    text.line(0, "%w = const @w");
    let _ = writeln!(head, "const @k : {TYPE} = [{}]", weights[..12].join(", "));
    text.line(0, "%k = const @k");
    let mut scope = vec!["%k".to_string(), "%x".into(), "%y".into()];
    text.statements(0, &mut scope);
    text.repeat(0, &mut scope);
    text.branch(0, &mut scope);
    text.statements(0, &mut scope);
    let newest = scope.iter().rev().take(5).map(|v| (v.clone(), TYPE.to_string()));
    let results = newest.chain(text.grown.clone()).enumerate().filter(|(i, _)| kept(*i)).map(|(_, r)| r);
    let results: Vec<(String, String)> = results.collect();
    let types: Vec<String> = results.iter().enumerate().map(|(i, r)| format!("r{i}: {}", r.1)).collect();
    let names: Vec<&str> = results.iter().map(|r| r.0.as_str()).collect();
    let body = &text.body;
    format!(
        "{head}graph @main(%x: {TYPE}, %y: {TYPE}) -> ({}) {{\n{body}  return {}\n}}\n",
        types.join(", "),
        names.join(", ")
    )
}

/// The results of a text in the interpreter, with the module and the inputs.
fn run(seed: u64, text: &str) -> (Module, Vec<Tensor>, Vec<Tensor>) {
    let module = parse_module(text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
    let inputs = inputs_of(&module, seed);
    let results = run_function(&module, module.entry, &inputs).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
    (module, inputs, results)
}

/// Which results of the network of a seed follow from more than rounding.
fn bearing(seed: u64, drawn: &mut Drawn) -> Vec<bool> {
    let all = |_| true;
    let want = run(seed, &network(seed, false, &all, drawn)).2;
    let moved = run(seed, &network(seed, true, &all, &mut Drawn::default())).2;
    let whole = Tolerance::new(DType::F32, None, None);
    let half = Tolerance { rtol: whole.rtol / 2.0, atol: whole.atol / 2.0 };
    moved.iter().zip(&want).map(|(m, w)| agree_in_slices(m, w, &half).pass).collect()
}

#[test]
fn control_flow_agrees() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let (first, cases) = (number("WEFT_SEED").unwrap_or(0), number("PROPTEST_CASES").unwrap_or(60));
    let mut drawn = Drawn::default();
    let (mut silent, mut failed, mut left_out, mut compared) = (vec![], vec![], 0, 0);
    for seed in first.. {
        if seed - first - silent.len() as u64 == cases {
            break;
        }
        let bears = bearing(seed, &mut drawn);
        let count = bears.iter().filter(|b| **b).count();
        (compared, left_out) = (compared + count, left_out + bears.len() - count);
        if count == 0 {
            silent.push(seed);
            continue;
        }
        let text = network(seed, false, &|i| bears[i], &mut Drawn::default());
        let (module, inputs, want) = run(seed, &text);
        let fuse = [FuseMode::Full, FuseMode::Classic, FuseMode::Off][seed as usize % 3];
        let options = PipelineOptions { fuse, ..PipelineOptions::default() };
        if let Err(e) = check_compiled(&module, options, &Target::device(), &inputs, &want) {
            println!("seed {seed}: {e}\n{text}");
            failed.push(seed);
        }
    }
    println!("control flow: {cases} networks from seed {first} on, {drawn:?}");
    println!("{compared} results compared, {left_out} left out; nothing to compare: seeds {silent:?}");
    assert!(failed.is_empty(), "{} of {cases} networks fail: seeds {failed:?}", failed.len());
    let least = [drawn.branches, drawn.loops, drawn.nested, drawn.computed_trips, drawn.conditions, drawn.grown];
    assert!(cases < 60 || least.iter().all(|&n| n > 5), "too few of some kind were drawn: {drawn:?}");
    let share = f64::from(left_out as u32) / f64::from((compared + left_out) as u32);
    assert!(cases < 60 || share < MOST_SILENT, "{left_out} results are rounding alone, {compared} are not");
}
