//! Networks of kinds that were wrong once: products with several results and residuals, in sizes that matrix units take;
//! positions of computed values; branches and loops that capture weights and constants of every rank; ops of which a
//! pass treats all members alike (resize, local normalisation, einsum), with channels of 1.
//!
//! They are compiled for every profile that Weft knows, since users have those devices and the tests have none of them,
//! and run on the device at hand and on the processor. A network follows from its seed: `PROPTEST_CASES` draws more, `WEFT_SEED` others.

use super::control::Draw;
use super::native::{check_native, isas};
use super::targets::Target;
use super::{check_compiled, inputs_of, rounding};
use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::graph::Module;
use compiler::interpreter::run_function;
use compiler::passes::{AmpMode, FuseMode, LayoutMode, PipelineOptions};
use compiler::profile::DeviceProfile;
use compiler::text::parse_module;
use shaders_gen::{Emitter, GeneratedModule};
use std::fmt::Write;

/// Elements of a value, at most: the interpreter is slow.
const LARGEST: usize = 20_000;

/// Numbers of channels.
const CHANNELS: [usize; 6] = [1, 5, 16, 24, 32, 64];

/// The operands of products.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operands {
    /// f32, as the model has them.
    Float,
    /// f16, as the model has them.
    Half,
    /// Bytes with a scale.
    Bytes,
}

impl Operands {
    fn word(self) -> &'static str {
        if self == Operands::Half { "f16" } else { "f32" }
    }
}

/// A value and its shape, `[1, channels, height, width]`.
#[derive(Clone, Debug)]
struct Value(String, [usize; 4]);

/// The text of a network while it is written.
struct Text {
    draw: Draw,
    operands: Operands,
    /// Branches and loops are drawn, else positions.
    regions: bool,
    head: String,
    body: String,
    depth: usize,
    names: usize,
    results: Vec<(String, String)>,
}

impl Text {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.body, "{}{text}", "  ".repeat(self.depth + 1));
    }
    fn ty(&self, shape: &[usize]) -> String {
        let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
        format!("{}[{}]", self.operands.word(), dims.join(","))
    }
    /// A line that defines one value.
    fn value(&mut self, text: &str) -> String {
        self.names += 1;
        let name = format!("%n{}", self.names);
        self.line(&format!("{name} = {text}"));
        name
    }
    fn made(&mut self, text: &str, shape: [usize; 4]) -> Value {
        let text = format!("{text} : {}", self.ty(&shape));
        Value(self.value(&text), shape)
    }
    /// A constant, defined where the text is: in a branch it is one of the outer graph or of the branch.
    fn constant(&mut self, ty: &str) -> String {
        self.names += 1;
        let _ = writeln!(self.head, "const @k{} : {ty} = random({})", self.names, self.names);
        let text = format!("const @k{}", self.names);
        self.value(&text)
    }
    /// A constant that broadcasts with the shape, of any rank.
    fn operand(&mut self, [_, c, h, w]: [usize; 4]) -> String {
        let shapes: [&[usize]; 6] = [&[], &[w], &[c, 1, 1], &[1, c, 1, 1], &[c, h, w], &[1, c, h, w]];
        let shape = shapes[self.draw.below(6)];
        let ty = self.ty(shape);
        self.constant(&ty)
    }
    /// A convolution of 1 x 1 or 3 x 3, scaled so that sums are about as large as their terms.
    fn product(&mut self, v: &Value) -> Value {
        let [_, c, h, w] = v.1;
        let (k, pad) = if self.draw.one_in(3) { (3, 1) } else { (1, 0) };
        let out = CHANNELS[self.draw.below(CHANNELS.len())];
        let out = if out * h * w > LARGEST { c } else { out };
        let (data, weights) = self.operands_of(v, [out, c, k, k]);
        let text = format!("conv {data}, {weights} {{pads=[{pad},{pad},{pad},{pad}]}}");
        let sum = self.made(&text, [1, out, h, w]);
        let scale = self.number(1.0 / ((c * k * k) as f64 / 3.0).sqrt());
        self.made(&format!("mul {}, {scale}", sum.0), sum.1)
    }
    fn operands_of(&mut self, v: &Value, of: [usize; 4]) -> (String, String) {
        if self.operands != Operands::Bytes {
            let ty = self.ty(&of);
            return (v.0.clone(), self.constant(&ty));
        }
        let [n, c, h, w] = v.1;
        let bytes = format!("u8[{n},{c},{h},{w}]");
        let (step, zero) = (self.number(0.03125), self.number(128.0));
        let scaled = self.made(&format!("div {}, {step}", v.0), v.1);
        let moved = self.made(&format!("add {}, {zero}", scaled.0), v.1);
        let near = self.made(&format!("round {}", moved.0), v.1);
        let clipped = self.made(&format!("clip {} {{min=0.0, max=255.0}}", near.0), v.1);
        let byte = self.value(&format!("cast {} {{to=u8}} : {bytes}", clipped.0));
        let wide = self.made(&format!("cast {byte} {{to=f32}}"), v.1);
        let centred = self.made(&format!("sub {}, {zero}", wide.0), v.1);
        let data = self.made(&format!("mul {}, {step}", centred.0), v.1);
        let whole = self.constant(&format!("i8[{},{},{},{}]", of[0], of[1], of[2], of[3]));
        let wide = self.made(&format!("cast {whole} {{to=f32}}"), of);
        let small = self.number(1.0 / 127.0);
        (data.0, self.made(&format!("mul {}, {small}", wide.0), of).0)
    }
    fn number(&mut self, value: f64) -> String {
        self.names += 1;
        let _ = writeln!(self.head, "const @k{} : {}[] = [{value:?}]", self.names, self.operands.word());
        let text = format!("const @k{}", self.names);
        self.value(&text)
    }
    fn activation(&mut self, v: &Value) -> Value {
        let op = ["relu", "sigmoid", "tanh", "hard_swish", "relu", "gelu", "sigmoid"][self.draw.below(7)];
        self.made(&format!("{op} {}", v.0), v.1)
    }
    /// The network's result, beside those that the values give at the end.
    fn result(&mut self, name: &str, ty: &str) {
        self.results.push((name.into(), ty.into()));
    }
    fn positions(&mut self, v: &Value) {
        let axis = 1 + self.draw.below(3);
        let mut shape: Vec<usize> = v.1.to_vec();
        shape.remove(axis);
        let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
        let ty = format!("i64[{}]", dims.join(","));
        let (kind, last) = (["max", "min"][self.draw.below(2)], self.draw.one_in(2));
        let name = self.value(&format!("arg_reduce {} {{kind={kind}, axis={axis}, select_last={last}}} : {ty}", v.0));
        self.result(&name, &ty);
    }
    /// A maximum over windows, and where it is.
    fn pool(&mut self, v: &Value) -> Value {
        let [n, c, h, w] = v.1;
        let of = [n, c, h / 2, w / 2];
        let (data, places) = (self.ty(&of), format!("i64[{n},{c},{},{}]", h / 2, w / 2));
        self.names += 2;
        let [pooled, at] = [self.names - 1, self.names].map(|n| format!("%n{n}"));
        let text = format!("max_pool {} {{kernel=[2,2], strides=[2,2], indices=true}}", v.0);
        self.line(&format!("{pooled}, {at} = {text} : {data}, {places}"));
        if self.depth == 0 {
            self.result(&at, &places);
        }
        Value(pooled, of)
    }
    fn member(&mut self, v: &Value) -> Value {
        let [n, c, h, w] = v.1;
        match self.draw.below(if self.regions { 5 } else { 6 }) {
            0 => self.made(&format!("lrn {} {{size=3}}", v.0), v.1),
            1 => {
                let ty = self.ty(&[c, c]);
                let k = self.constant(&ty);
                self.made(&format!("einsum {}, {k} {{equation=\"nchw,cd->ndhw\"}}", v.0), v.1)
            }
            2 if h * w * c * 4 <= LARGEST => {
                let mode = ["nearest", "linear"][self.draw.below(2)];
                let text = format!("resize {} {{mode={mode}, scales=[1.0,1.0,2.0,2.0]}}", v.0);
                self.made(&text, [n, c, 2 * h, 2 * w])
            }
            3 => self.made(&format!("softmax {} {{axes=[1]}}", v.0), v.1),
            4 => self.made(&format!("reduce {} {{kind=max, axes=[2], keepdims=true}}", v.0), [n, c, 1, w]),
            _ => self.made(&format!("hardmax {} {{axes=[1]}}", v.0), v.1),
        }
    }
    /// A branch, or a loop of two iterations, over values and constants of outside.
    fn region(&mut self, scope: &[Value]) -> Value {
        let v = scope[scope.len() - 1].clone();
        let ty = self.ty(&v.1);
        let outer = self.operand(v.1);
        self.names += 1;
        let name = format!("%n{}", self.names);
        let repeats = self.draw.one_in(3);
        let carried = Value(format!("{name}_x"), v.1);
        match repeats {
            true => self.line(&format!(
                "{name} = loop _, _, {} {{trips=2}} : {ty} ({name}_i: i64[], {}: {ty}) {{",
                v.0, carried.0
            )),
            false => self.line(&format!("{name} = if %c : {ty} {{")),
        }
        self.depth += 1;
        let first = if repeats { carried } else { v.clone() };
        let added = self.made(&format!("add {}, {outer}", first.0), v.1);
        let mut inner = self.product(&added);
        if inner.1 != v.1 {
            inner = added;
        }
        let yielded = self.activation(&inner);
        self.line(&format!("yield {}", yielded.0));
        self.depth -= 1;
        if !repeats {
            self.line("} {");
            self.depth += 1;
            let other = self.operand(v.1);
            let yielded = self.made(&format!("mul {}, {other}", v.0), v.1);
            self.line(&format!("yield {}", yielded.0));
            self.depth -= 1;
        }
        self.line("}");
        Value(name, v.1)
    }
    fn step(&mut self, scope: &mut Vec<Value>) {
        let v = scope[scope.len() - 1].clone();
        let made = match self.draw.below(10) {
            0..3 => self.product(&v),
            3 | 4 => self.activation(&v),
            5 => {
                let k = self.operand(v.1);
                self.made(&format!("add {}, {k}", v.0), v.1)
            }
            6 => match scope.iter().rev().skip(1).find(|o| o.1 == v.1).cloned() {
                Some(o) => self.made(&format!("add {}, {}", v.0, o.0), v.1),
                None => self.product(&v),
            },
            7 | 8 if self.regions => self.region(scope),
            7 | 8 => match v.1[2] > 1 && v.1[3] > 1 && self.draw.one_in(2) {
                true => self.pool(&v),
                false => return self.positions(&v),
            },
            _ => self.member(&v),
        };
        // The value before an activation, say, is a result too.
        if self.draw.one_in(4) {
            let ty = self.ty(&made.1);
            self.result(&made.0, &ty);
        }
        scope.push(made);
    }
}

/// The network of a seed; every second one has branches and loops.
fn network(seed: u64, operands: Operands) -> String {
    let (head, body, regions) = (String::new(), String::new(), has_regions(seed));
    let mut text = Text { draw: Draw(seed), operands, regions, head, body, depth: 0, names: 0, results: vec![] };
    let side = [4, 8, 16][text.draw.below(3)];
    let shape = [1, CHANNELS[text.draw.below(CHANNELS.len())], side, side];
    let mut scope = vec![Value("%x".into(), shape)];
    for _ in 0..3 + text.draw.below(6) {
        text.step(&mut scope);
    }
    let last = scope[scope.len() - 1].clone();
    if last.0 == "%x" || !text.results.iter().any(|r| r.0 == last.0) {
        let last = if last.0 == "%x" { text.activation(&last) } else { last };
        let ty = text.ty(&last.1);
        text.result(&last.0, &ty);
    }
    let types: Vec<String> = text.results.iter().enumerate().map(|(i, r)| format!("r{i}: {}", r.1)).collect();
    let names: Vec<&str> = text.results.iter().map(|r| r.0.as_str()).collect();
    let parameters = format!("%x: {}, %c: bool[]", text.ty(&shape));
    format!(
        "{}graph @main({parameters}) -> ({}) {{\n{}  return {}\n}}\n",
        text.head,
        types.join(", "),
        text.body,
        names.join(", ")
    )
}

fn has_regions(seed: u64) -> bool {
    seed % 2 == 1
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

fn module(seed: u64, operands: Operands) -> (String, Module) {
    let text = network(seed, operands);
    let module = parse_module(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
    (text, module)
}

/// Reads every kernel as WGSL with the features that it asks for, and writes it as SPIR-V. Returns the lines of the
/// longest one.
fn read_back(c: &Compiled) -> Result<usize, String> {
    let mut longest = 0;
    for k in &c.plan.kernels {
        let g = k.emitted.module.downcast_ref::<GeneratedModule>().ok_or_else(|| format!("{}: no shader", k.name))?;
        g.reads_back().map_err(|e| format!("{}: {e}", k.name))?;
        g.emit_spirv().map_err(|e| format!("{}: {e}", k.name))?;
        longest = longest.max(g.emit_wgsl().map_err(|e| format!("{}: {e}", k.name))?.lines().count());
    }
    Ok(longest)
}

/// All operands, and mixed precision where the model is in f32.
const FORMS: [(Operands, AmpMode); 4] = [
    (Operands::Float, AmpMode::Off),
    (Operands::Float, AmpMode::Fp16),
    (Operands::Half, AmpMode::Off),
    (Operands::Bytes, AmpMode::Off),
];

#[test]
fn every_profile_compiles() {
    let (first, cases) = (number("WEFT_SEED").unwrap_or(0), number("PROPTEST_CASES").unwrap_or(10));
    let profiles = DeviceProfile::all();
    let (mut failed, mut kernels, mut matrices, mut longest) = (vec![], 0, 0, 0);
    for (seed, (operands, amp)) in (first..first + cases).flat_map(|seed| FORMS.map(|form| (seed, form))) {
        let (text, module) = module(seed, operands);
        for profile in &profiles {
            let pipeline = PipelineOptions { amp, ..PipelineOptions::default() };
            let options = CompileOptions { pipeline, verify: true, ..CompileOptions::default() };
            let made = compile(module.clone(), &options, profile, &Emitter, &mut |_, _, _| ());
            match made.map_err(|e| e.to_string()).and_then(|c| Ok((read_back(&c)?, c))) {
                Ok((lines, c)) => {
                    kernels += c.plan.kernels.len();
                    longest = longest.max(lines);
                    matrices += c.groups.iter().filter(|g| g.rule.contains("matrix")).count();
                }
                Err(e) => {
                    println!("seed {seed}, {operands:?} --amp {amp} --target {}: {e}\n{text}", profile.name);
                    failed.push((seed, profile.name.clone()));
                }
            }
        }
    }
    println!(
        "{cases} networks from seed {first} on: {kernels} kernels of {longest} lines at most, {matrices} on matrix units"
    );
    assert!(failed.is_empty(), "{} compilations fail: {failed:?}", failed.len());
    assert!(matrices > 0, "no product was on matrix units");
}

#[test]
fn kinds_agree() {
    let (first, cases) = (number("WEFT_SEED").unwrap_or(0), number("PROPTEST_CASES").unwrap_or(60));
    let (mut failed, mut silent) = (vec![], 0);
    for seed in first..first + cases {
        let operands = [Operands::Float, Operands::Float, Operands::Bytes][seed as usize % 3];
        let (text, module) = module(seed, operands);
        let inputs = inputs_of(&module, seed);
        let want = run_function(&module, module.entry, &inputs).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        let half = operands == Operands::Float && seed % 4 == 0;
        // Node by node, which branches and loops are not; they have no positions, which rounding moves most.
        let bears = match half {
            _ if has_regions(seed) => Ok(true),
            true => rounding::bears_rounding(&module, &inputs, &want),
            false => rounding::bears_reordering(&module, &inputs, &want),
        };
        if !bears.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}")) {
            silent += 1;
            continue;
        }
        let layout = [LayoutMode::Auto, LayoutMode::Nhwc, LayoutMode::None][seed as usize % 3];
        let fuse = [FuseMode::Full, FuseMode::Full, FuseMode::Classic, FuseMode::Off][seed as usize % 4];
        let amp = if half { AmpMode::Fp16 } else { AmpMode::Off };
        let options = PipelineOptions { layout, fuse, amp, ..PipelineOptions::default() };
        let isa = isas()[seed as usize % isas().len()];
        let on_device = check_compiled(&module, options.clone(), &Target::device(), &inputs, &want);
        for e in
            [on_device, check_native(&module, options, (isa, None), &inputs, &want)].into_iter().filter_map(Result::err)
        {
            println!("seed {seed}: {e}\n{text}");
            failed.push(seed);
        }
    }
    println!("{cases} networks from seed {first} on; rounding alone moves the results of {silent}");
    assert!(failed.is_empty(), "{} networks fail: seeds {failed:?}", failed.len());
    assert!(cases < 60 || silent < cases / 2, "too few bear rounding: {silent} of {cases} do not");
}
