//! Round trips, error places, and mutations of valid text.

use super::*;
use crate::graph::{Constant, FunctionBuilder, Module, TensorType};
use crate::int::Int;
use crate::name::Name;
use crate::ops::control::{Call, CallHost, If, Let};
use crate::tensor::Tensor;
use crate::verify::verify_module;

/// Text in canonical form that uses every construct.
const MODULE: &str = r#"entry @main

const @conv1.weight : f32[64,64,3,3]
const @flags : bool[3] = [true, false, true]
const @"odd name/0" : f16[2] = [-0.0, 65504.0]
const @limits : u64[2] = [0, 18446744073709551615]
const @nans : f32[2] = hex("0100c07f0000c07f")
const @ones : f32[40] = splat(1.0)
const @scalar : f64[] = [inf]
const @weights : i8[3] = [-128, 0, 127]

graph @helper(%x: f32[n,4], %c: bool[]) -> f32[n,4] primitive {
  %0 = call @helper %x, %c : f32[n,4]
  return %0
}

graph @main(%x: f32[n,4], %"a/b:0": bool[]) -> (y: f32[n,4], "odd\"\n": i64[(n + 1)/2,min(n, 4)]) {
  %w = const @conv1.weight : f32[64,64,3,3]
  %0, %1 = call_host @"f g" %x, _, %w {dtypes=[f32,i64], shapes=[[`n`,4],[`(n + 1)/2`,`min(n, 4)`]]} : f32[n,4], i64[(n + 1)/2,min(n, 4)] !from("Conv_3")
  %2("x") = if %"a/b:0" : f32[n,4] !name("branch") !from("If_1", "If_2") {
    %inner = call @helper %x, %"a/b:0" : f32[n,4]
    yield %inner
  } {
    %3 = let : f32[n,4] {
      yield %x
    }
    yield %3
  }
  call_host @log %2 : ()
  return %2, %1
}

tensor @mm(%A: f32[64,64], %idx: i64[m] narrow, out %C: f32[64,64]) {
  symbol m in 1..=4096
  buffer %acc: f32[4,4] register
  buffer %tile: f16[8,32] subgroup(1, 32)
  buffer %half: f16[128] global half_pair
  prepack %A = tensor @mm.pack(%src: f32[64,64], out %dst: f32[64,64]) {
    for a in 0..64 {
      for b in 0..64 {
        block pack { %dst[a, b] <- %src[b, a] }
      }
    }
  }
  kernel mm {
    group_x for i in 0..16 {
      local_y for j in 0..64 {
        barrier
        unroll for k in 0..m {
          vectorize for v in 0..4 {
            block mm reduce sum init where (i*4 + v < 30, j >= 2, k == 0) { %C[i*4 + v, j] <- %A[i*4 + v, %idx[k] % 64] * select(all(j < k), 0.5, exp(f32(%half[j]))) }
          }
        }
      }
    }
  }
  kernel "second one" {
    for i2 in 0..64 {
      block "odd block" { %C[i2, (i2 + 3) % 8] <- %A[i2, 0] - (%A[0, i2] - 1.0) * (-2.0) + floormod(idx(i2*2):f32, f32(3:i64)) }
    }
    block flags { %C[0, 0] <- select(and(not(true), (1.0 < nan) == false), inf, pow(-1e-30, max(2.5, f32(1.5:f64)))) }
  }
}
"#;

fn round_trip(text: &str) -> Module {
    let m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let printed = print_module(&m);
    let again = parse_module(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    compare_modules(&m, &again).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(printed, print_module(&again));
    m
}

#[test]
fn canonical_text_prints_as_it_was() {
    let m = round_trip(MODULE);
    assert_eq!(print_module(&m), MODULE);
}

#[test]
fn built_modules_round_trip_with_dead_nodes_and_odd_buffer_order() {
    let mut m = Module::new("main");
    let x_type = TensorType::new(crate::dtype::DType::F32, vec![Int::var("n"), Int::new(3)]);
    let mut b = FunctionBuilder::new(&mut m, "main");
    let x = b.param("x", x_type.clone());
    let dead = b.constant("w", &Tensor::ints(&[1, 2]));
    b.set_source(Some(Name::new("Host_7")));
    let op = CallHost {
        callee: Name::new("h"),
        dtypes: vec![x_type.dtype],
        shapes: vec![x_type.shape.clone()],
        ..CallHost::default()
    };
    let y = b.add(op, &[x]).expect("built");
    b.name_value(y, "x");
    let dead_node = b.function.def_node(dead).expect("a node");
    b.function.remove_nodes(&[dead_node].into_iter().collect());
    b.finish(&[(Name::new(""), y)]);
    let text = print_module(&m);
    assert!(text.contains("%0(\"x\") = call_host @h %x"), "{text}");
    assert!(!text.contains("!name"), "{text}");
    let again = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
    compare_modules(&m, &again).unwrap_or_else(|e| panic!("{e}"));
    verify_module(&again).expect("valid");
}

#[test]
fn parses_types_left_out_and_initialisers() {
    let m = round_trip(
        "const @w : f32[64] = random(3)\nconst @z : i64[40] = zeros\n\
         graph @f(%x: f32[2], %c: bool) -> (f32[2], f32[64], f32[2]) {\n  %a = const @w\n  %b = call @f2 %x : f32[2]\n\
           return %x, %a, %b\n}\ngraph @f2(%x: f32[2]) -> f32[2] {\n  return %x\n}\n",
    );
    verify_module(&m).expect("valid");
    assert_eq!(m.entry, Name::new("f"));
    let w: &Constant = &m.constants[&Name::new("w")];
    assert_eq!(w.load().expect("data"), random_tensor(w.dtype, &[64], 3));
}

#[test]
fn pipelines_have_options() {
    let list = parse_pipeline("fold-constants,fuse-ops {mode=classic, size=3}, x").expect("parses");
    let names: Vec<&str> = list.iter().map(|p| p.0.as_str()).collect();
    assert_eq!(names, ["fold-constants", "fuse-ops", "x"]);
    assert_eq!(print_attrs(&list[1].1), " {mode=classic, size=3}");
    assert!(parse_pipeline("").expect("empty").is_empty());
    assert!(parse_pipeline("a b").is_err());
    assert!(parse_pipeline("a - b").is_err());
}

#[test]
fn errors_have_places() {
    let cases = [
        ("graph @f(%x: f32[2]) -> f32[2] {\n  return %y\n}", 2, 10, "there is no value %y"),
        ("graph @f() -> f32[2] {\n  %x = cal @g : f32[2]\n  return %x\n}", 2, 8, "did you mean `call`?"),
        ("graph @f(%x: g32[2]) -> () {\n return\n}", 1, 14, "element type"),
        ("const @w : f32[3] = [1, 2]", 1, 21, "3 elements"),
        ("const @w : u8[1] = [256]", 1, 21, "out of range"),
        ("const @w : f32[n]", 1, 12, "numbers"),
        ("const @w : f32[2]\nconst @w : f32[2]", 2, 7, "defined twice"),
        ("tensor @f(out %C: f32[2]) {\n block C { %C[0] <- %D[0] }\n}", 2, 21, "no buffer `%D`"),
        ("tensor @f(out %C: f32[2]) {\n block C { %C[0] <- 1.0 < 2.0 < 3.0 }\n}", 2, 31, "parentheses"),
        ("tensor @f() {\n for i in 1..3 { }\n}", 2, 11, "start at 0"),
        ("graph @f() -> () {\n  call @f {callee=3} : ()\n", 3, 1, "expected"),
        ("tensor @f(out %C: f32[n/0]) { }", 1, 24, "positive"),
        ("entry", 1, 6, "expected a global name"),
    ];
    for (text, line, column, message) in cases {
        let e = parse_module(text).expect_err(text);
        assert!(e.message.contains(message), "{e}");
        assert_eq!((e.line, e.column), (line, column), "{e}");
    }
}

#[test]
fn deep_text_is_refused_not_overflowed() {
    let deep = |open: &str, n: usize| format!("tensor @f(out %C: f32[1]) {{ block C {{ %C[{}", open.repeat(n));
    for open in ["(", "min(", "%C[", "1+(", "-"] {
        assert!(parse_module(&deep(open, 100_000)).is_err());
    }
    assert!(parse_module(&format!("tensor @f(out %C: f32[{}1]) {{ }}", "n+".repeat(100_000))).is_err());
    let value = |v: String| format!("tensor @f(out %C: f32[1]) {{ block C {{ %C[0] <- {v} }} }}");
    assert!(parse_module(&value("1.0 + ".repeat(100_000) + "1.0")).is_err());
    assert!(parse_module(&value("exp(".repeat(100_000))).is_err());
    assert!(parse_module(&value("1.0 + ".repeat(1000) + "1.0")).is_ok());
    assert!(parse_module(&format!("tensor @f() {{ {}", "for i in 0..1 { ".repeat(100_000))).is_err());
    assert!(parse_module(&format!("graph @f() -> () {{ {}", "let : () { ".repeat(100_000))).is_err());
    assert!(parse_module(&format!("graph @f() -> () {{ call @f {{callee={}", "[".repeat(100_000))).is_err());
    let big = "9223372036854775807";
    assert!(parse_module(&format!("tensor @f(out %C: f32[{big}+{big}]) {{ }}")).is_err());
}

/// Numbers for mutations; the same in every run.
struct Random(u64);
impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n.max(1)
    }
}

/// A piece of `text` removed, repeated, replaced or swapped, at character boundaries.
fn mutate(text: &str, random: &mut Random) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(3) {
        let at = random.below(chars.len());
        let end = (at + 1 + random.below(12)).min(chars.len());
        let piece: Vec<char> = chars[at..end].to_vec();
        let to = random.below(chars.len());
        match random.below(5) {
            0 => drop(chars.drain(at..end)),
            1 => drop(chars.splice(to..to, piece)),
            2 => {
                chars[at] =
                    *b"{}()[],:%@!\"0-9;`<.= \n".get(random.below(22)).map(|&b| b as char).as_ref().unwrap_or(&'x')
            }
            3 => chars.swap(at, to),
            _ => drop(chars.splice(at..end, "9223372036854775807".chars())),
        }
        if chars.is_empty() {
            break;
        }
    }
    chars.into_iter().collect()
}

#[test]
fn mutated_text_never_panics_and_what_parses_round_trips() {
    let mut random = Random(1);
    let mut accepted = 0;
    for _ in 0..1500 {
        let text = mutate(MODULE, &mut random);
        let Ok(m) = parse_module(&text) else { continue };
        accepted += 1;
        let _ = verify_module(&m);
        let printed = print_module(&m);
        let again = parse_module(&printed).unwrap_or_else(|e| panic!("{e}\nfrom\n{text}"));
        assert_eq!(print_module(&again), printed);
    }
    assert!(accepted > 30, "{accepted}");
}

#[test]
fn comparison_sees_differences() {
    let a = parse_module(MODULE).expect("parses");
    for (from, to) in [
        ("call @helper %x, %c : f32", "call @helper %x, _ : f32"),
        ("yield %inner", "yield %x"),
        ("Conv_3", "Conv_4"),
        ("unroll for", "for"),
        ("i*4 + v < 30", "i*4 + v < 31"),
        ("[-128, 0, 127]", "[-128, 0, 126]"),
        (" primitive", ""),
        ("(y: ", "(z: "),
    ] {
        assert!(MODULE.contains(from));
        let b = parse_module(&MODULE.replace(from, to)).expect("parses");
        assert!(compare_modules(&a, &b).is_err(), "{from}");
    }
}

#[test]
fn regions_print_and_infer() {
    let mut m = Module::new("main");
    let scalar = TensorType::fixed(crate::dtype::DType::Bool, &[]);
    let mut b = FunctionBuilder::new(&mut m, "main");
    let (c, x) = (b.param("c", scalar), b.param("x", TensorType::fixed(crate::dtype::DType::F32, &[2])));
    b.function.result_types = vec![TensorType::fixed(crate::dtype::DType::F32, &[2])];
    let (then, otherwise, inner) = (b.new_block(), b.new_block(), b.new_block());
    b.set_block_results(inner, vec![x]);
    b.in_block(then, |b| {
        let v = b.add_multi(Let {}, vec![], vec![inner]).expect("let");
        b.set_block_results(then, v);
    });
    b.in_block(otherwise, |b| {
        let v = b.add(Call { callee: Name::new("main") }, &[c, x]).expect("recursion");
        b.set_block_results(otherwise, vec![v]);
    });
    let y = b.add_multi(If::default(), vec![Some(c)], vec![then, otherwise]).expect("if");
    b.finish(&[(Name::new("y"), y[0])]);
    verify_module(&m).unwrap_or_else(|e| panic!("{e:?}"));
    let again = round_trip(&print_module(&m));
    compare_modules(&m, &again).unwrap_or_else(|e| panic!("{e}"));
}
