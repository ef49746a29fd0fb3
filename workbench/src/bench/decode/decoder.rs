//! The inputs and results of a decoder that a loop over tokens needs, found by their types and by the names that
//! exporters give.
//!
//! The cache is found by types: a result is fed back to the input that has the same type but for one open size, which
//! grows by the length of the tokens (`past_key_values.0.key` and `present.0.key`). Names decide between
//! several.

use crate::error::{Error, Result};
use compiler::dtype::DType;
use compiler::graph::{Module, TensorType, input_ports};
use compiler::int::Dim;
use compiler::name::Name;

/// A named input or result.
type Port = (Name, TensorType);

/// A result that is fed back to an input.
pub struct Fed {
    /// The input.
    pub input: Name,
    /// The result.
    pub output: Name,
}

/// Tables of cosines that rotate positions.
struct Rotation {
    name: Name,
    positions: usize,
    width: usize,
}

/// The inputs and results of a decoder.
pub struct Decoder {
    /// Token ids: integers `[batch, sequence]`.
    pub tokens: Name,
    /// Their element type.
    pub ids: DType,
    /// 1 for each position in the cache and each token: `[batch, past + sequence]`.
    pub mask: Option<Name>,
    /// Positions of the tokens; the last dimension is the sequence.
    pub positions: Option<Name>,
    /// The cache.
    pub cache: Vec<Fed>,
    /// Floats `[batch, sequence, vocabulary]`.
    pub logits: Name,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Length of the tokens, and of the cache.
    sequence: Dim,
    past: Name,
    /// Length of the mask, where it has a name of its own.
    total: Option<Name>,
    /// Width of a head, where the model leaves it open.
    head: Option<Name>,
    rotation: Option<Rotation>,
}

/// Parts of the names of inputs and results.
const TOKENS: [&str; 2] = ["input_ids", "token"];
const MASK: &str = "mask";
const POSITIONS: &str = "position";
const LOGITS: &str = "logits";

impl Decoder {
    /// Of a model with its open sizes.
    ///
    /// # Errors
    /// All that the model lacks.
    pub fn of(module: &Module, model: &str) -> Result<Decoder> {
        let (inputs, outputs) = (input_ports(module), results(module));
        let tokens = tokens(&inputs);
        let sequence = tokens.map(|t| t.1.shape[1].clone());
        let cache = sequence.as_ref().map_or(vec![], |s| cache(&inputs, &outputs, s));
        let logits = logits(&outputs, &cache);
        let (Some(tokens), Some(sequence), Some(&(.., past)), Some(logits)) = (tokens, sequence, cache.first(), logits)
        else {
            return Err(lacks(model, [&inputs, &outputs], [tokens.is_none(), cache.is_empty(), logits.is_none()]));
        };
        let named = |part: &str| inputs.iter().find(|p| p.0.as_str().contains(part) && p.0 != tokens.0);
        let (mask, positions) = (named(MASK), named(POSITIONS));
        let is_own = |d: &Name| *d != past && Some(*d) != sequence.as_var();
        let batch = tokens.1.shape[0].as_var();
        let open = |p: &Port| p.1.shape.iter().filter_map(Dim::as_var).find(|d| is_own(d) && Some(*d) != batch);
        let width = cache.iter().filter_map(|c| inputs.iter().find(|p| p.0 == c.0)).find_map(open);
        Ok(Decoder {
            tokens: tokens.0,
            ids: tokens.1.dtype,
            mask: mask.map(|p| p.0),
            positions: positions.map(|p| p.0),
            logits: logits.0,
            vocabulary: logits.1.shape.last().and_then(Dim::as_const).unwrap_or(0) as usize,
            total: mask.and_then(open),
            head: width,
            rotation: rotation(module),
            cache: cache.into_iter().map(|(input, output, _)| Fed { input, output }).collect(),
            sequence,
            past,
        })
    }

    /// True for inputs that a loop over tokens has values for.
    pub fn knows(&self, input: Name) -> bool {
        input == self.tokens || self.makes(input)
    }
    /// True for inputs that follow from the tokens.
    pub fn makes(&self, input: Name) -> bool {
        let own = [self.mask, self.positions].into_iter().flatten().chain(self.cache.iter().map(|f| f.input));
        own.into_iter().any(|name| name == input)
    }

    /// Layers, by the pairs of keys and values.
    pub fn layers(&self) -> usize {
        self.cache.len().div_ceil(2)
    }

    /// `--dim` for runs of `length` tokens with `past` to `most` positions in the cache.
    ///
    /// # Errors
    /// A width of heads that nothing says; an open size that is given twice; a fixed length that is another one.
    pub fn dims(&self, given: &[String], length: usize, (past, most): (usize, usize)) -> Result<Vec<String>> {
        let range = |least: usize, most: usize| match least == most {
            true => least.to_string(),
            false => format!("{least}..{most}"),
        };
        let given: Vec<&str> = given.iter().filter_map(|d| Some(d.rsplit_once('=')?.0)).collect();
        let mut dims = vec![(self.past, range(past, most))];
        dims.extend(self.total.map(|t| (t, range(past + length, most + length))));
        match (self.sequence.as_var(), self.sequence.as_const()) {
            (Some(name), _) => dims.push((name, length.to_string())),
            (None, Some(fixed)) if fixed != length as i64 => {
                let text = format!("the model takes {fixed} tokens at once, and this would be {length}");
                return Err(Error::usage(text).help("export it with an open sequence length"));
            }
            _ => {}
        }
        if let Some((name, _)) = dims.iter().find(|d| given.contains(&d.0.as_str())) {
            return Err(Error::usage(format!("--dim {name}: with --decode, --prefill and --past say this size")));
        }
        if let Some(name) = self.head.filter(|h| !given.contains(&h.as_str())) {
            let width = self.rotation.as_ref().map(|r| 2 * r.width).ok_or_else(|| {
                Error::usage(format!(
                    "the model leaves `{name}`, the width of a head, open, and has no rotation tables"
                ))
                .help(format!("give it, for example --dim {name}=64"))
            })?;
            dims.push((name, width.to_string()));
        }
        Ok(dims.into_iter().map(|(name, size)| format!("{name}={size}")).collect())
    }

    /// The rotation tables have as many positions, or sizes can be as large.
    ///
    /// # Errors
    /// They have fewer.
    pub fn check_positions(&self, [past, prefill, decode]: [usize; 3]) -> Result<()> {
        let total = past.saturating_add(prefill).saturating_add(decode);
        let (most, of) = match &self.rotation {
            Some(r) => {
                (r.positions, format!("the model has {} (rows of its rotation table `{}`)", r.positions, r.name))
            }
            None => (i32::MAX as usize, format!("a size is at most {}", i32::MAX)),
        };
        if total <= most {
            return Ok(());
        }
        let text = format!("--past {past}, --prefill {prefill} and --decode {decode} are {total} positions, and {of}");
        Err(Error::usage(text).help("ask for fewer"))
    }
}

/// The error of a model that is no decoder.
fn lacks(model: &str, [inputs, outputs]: [&[Port]; 2], missing: [bool; 3]) -> Error {
    let wanted = [
        "no token ids (an input of integers [batch, sequence], such as `input_ids`)",
        "no cache (an input with an open length, such as `past_key_values.0.key`, and a result that is longer by the \
         tokens, such as `present.0.key`)",
        "no logits (a result of floats [batch, sequence, vocabulary], such as `logits`)",
    ];
    let missing: Vec<&str> = wanted.into_iter().zip(missing).filter(|m| m.1).map(|m| m.0).collect();
    let list = |ports: &[Port]| ports.iter().map(|(n, t)| format!("{n} {t:?}")).collect::<Vec<_>>().join(", ");
    Error::input(format!("--decode: {model} is no decoder with a cache: it has {}", missing.join(", and ")))
        .at(format!("inputs {}; results {}", list(inputs), list(outputs)))
        .help("`weft bench` without --decode times a run of any model")
}

fn results(module: &Module) -> Vec<Port> {
    let main = module.main();
    main.result_names.iter().zip(main.results()).map(|(n, &v)| (*n, main.ty(v).clone())).collect()
}

/// The input of token ids: by its name, else the only one of its type.
fn tokens(inputs: &[Port]) -> Option<&Port> {
    let fits = |p: &&Port| p.1.dtype.is_int() && p.1.rank() == 2;
    let other = |p: &&Port| [MASK, POSITIONS].iter().any(|other| p.0.as_str().contains(other));
    let all: Vec<&Port> = inputs.iter().filter(fits).filter(|p| !other(p)).collect();
    let named = all.iter().find(|p| TOKENS.iter().any(|t| p.0.as_str().contains(t)));
    named.or(if all.len() == 1 { all.first() } else { None }).copied()
}

/// Inputs with the results that are fed back to them, and the open size of each pair.
fn cache(inputs: &[Port], outputs: &[Port], sequence: &Dim) -> Vec<(Name, Name, Name)> {
    let mut out: Vec<(Name, Name, Name)> = vec![];
    for (input, ty) in inputs {
        let free = outputs.iter().filter(|o| !out.iter().any(|taken| taken.1 == o.0));
        let fits = free.filter_map(|o| Some((o.0, grows(ty, &o.1, sequence)?)));
        // Of equal names the first: `max_by_key` takes the last.
        let best = fits.rev().max_by_key(|o| common_end(input.as_str(), o.0.as_str()));
        out.extend(best.map(|(output, past)| (*input, output, past)));
    }
    out
}

/// The size in which the types differ, if there is one that is open and grows by the length of the tokens.
fn grows(input: &TensorType, output: &TensorType, sequence: &Dim) -> Option<Name> {
    if input.dtype != output.dtype || input.rank() != output.rank() {
        return None;
    }
    let mut differ = input.shape.iter().zip(&output.shape).filter(|(a, b)| a != b);
    let (Some((before, after)), None) = (differ.next(), differ.next()) else { return None };
    let past = before.as_var().filter(|&past| after.uses(past))?;
    sequence.as_var().is_none_or(|s| after.uses(s)).then_some(past)
}

fn common_end(a: &str, b: &str) -> usize {
    a.bytes().rev().zip(b.bytes().rev()).take_while(|(a, b)| a == b).count()
}

fn logits<'p>(outputs: &'p [Port], cache: &[(Name, Name, Name)]) -> Option<&'p Port> {
    let fits = |p: &&Port| {
        let known = p.1.shape.last().is_some_and(|d| d.as_const().is_some());
        p.1.dtype.is_float() && matches!(p.1.rank(), 2 | 3) && known && !cache.iter().any(|c| c.1 == p.0)
    };
    let all: Vec<&Port> = outputs.iter().filter(fits).collect();
    let named = all.iter().find(|p| p.0.as_str().contains(LOGITS));
    named.or(if all.len() == 1 { all.first() } else { None }).copied()
}

/// The table of cosines `[positions, half of the width]`.
fn rotation(module: &Module) -> Option<Rotation> {
    module.constants.iter().find_map(|(name, c)| {
        let (ty, shape) = (c.ty(), c.ty().const_shape()?);
        let fits = name.as_str().contains("cos") && ty.dtype.is_float() && shape.len() == 2;
        fits.then(|| Rotation { name: *name, positions: shape[0], width: shape[1] })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    /// Names that no exporter gives, and two caches of one type.
    const OWN: &str = "const @t : f32[8,4] = random(1)
const @w : f32[4,8] = random(2)
graph @main(%ids: i64[1,n], %k_in: f32[1,p,4], %v_in: f32[1,p,4])
    -> (v_out: f32[1,p + n,4], k_out: f32[1,p + n,4], s: f32[1,n,8]) {
  %t = const @t : f32[8,4]
  %w = const @w : f32[4,8]
  %x = gather %t, %ids {axis=0} : f32[1,n,4]
  %k = concat %k_in, %x {axis=1} : f32[1,p + n,4]
  %y = neg %x : f32[1,n,4]
  %v = concat %v_in, %y {axis=1} : f32[1,p + n,4]
  %s = matmul %x, %w : f32[1,n,8]
  return %v, %k, %s
}
";

    #[test]
    fn inputs_are_found_by_types() {
        let m = parse_module(OWN).unwrap_or_else(|e| panic!("{e}"));
        let d = Decoder::of(&m, "own").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((d.tokens.as_str(), d.logits.as_str(), d.vocabulary, d.layers()), ("ids", "s", 8, 1));
        assert_eq!(d.cache.len(), 2);
        let dims = d.dims(&[], 1, (5, 9)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(dims, ["p=5..9", "n=1"]);
        let twice = d.dims(&["p=3".into()], 1, (5, 9)).err().map(|e| e.to_string());
        assert!(twice.is_some_and(|e| e.contains("--dim p")));
    }

    #[test]
    fn all_that_is_missing_is_said() {
        let text = OWN.replace("i64[1,n]", "i64[1,2]").replace("f32[1,n", "f32[1,2").replace("p + n", "p + 2");
        let m = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
        let fixed = Decoder::of(&m, "fixed").unwrap_or_else(|e| panic!("{e}"));
        assert!(fixed.dims(&[], 1, (5, 9)).is_err_and(|e| e.to_string().contains("takes 2 tokens at once")));
        let none = "graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %y = neg %x : f32[2]\n  return %y\n}\n";
        let m = parse_module(none).unwrap_or_else(|e| panic!("{e}"));
        let why = Decoder::of(&m, "none").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(["no token ids", "no cache", "no logits"].iter().all(|w| why.contains(w)), "{why}");
    }
}
