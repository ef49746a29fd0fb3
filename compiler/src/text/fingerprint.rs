//! The fingerprint of a module: its text and its constants.

use super::print_module;
use crate::fault::Fault;
use crate::fingerprint::{Fingerprint, Fingerprinter};
use crate::graph::{Constant, Module};
use crate::tensor::ConstData;

/// The structural hash of a module: its text, which has everything except the data of large constants, and the data of
/// every constant. For data that are not in memory, the identity of their source is used if there is one
/// ([`crate::tensor::DataSource::identity`]), so that nothing is read.
///
/// # Errors
/// A constant whose data has to be read and cannot be.
pub fn module_fingerprint(m: &Module) -> Result<Fingerprint, Fault> {
    let mut fault = None;
    let fingerprint = Fingerprint::of(|w| {
        w.text(&print_module(m));
        w.list(m.constants.iter(), |w, (name, c)| {
            w.text(name.as_str());
            if let Err(e) = constant(w, c) {
                fault.get_or_insert(e);
            }
        });
    });
    fault.map_or(Ok(fingerprint), Err)
}

fn constant(w: &mut Fingerprinter, c: &Constant) -> Result<(), Fault> {
    let identity = match &c.data {
        ConstData::Inline(_) => None,
        ConstData::Lazy(source) => source.identity(),
    };
    match identity {
        Some(identity) => {
            w.tag(0);
            w.text(&identity);
        }
        None => {
            w.tag(1);
            w.bytes(c.load()?.bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse_module;

    #[test]
    fn structure_and_data_count() {
        let text = "const @w : f32[3] = [1, 2, 3]\n\ngraph @main(%x: f32[3]) -> (y: f32[3]) {\n  %w = const @w : f32[3]\n  %y = mul %x, %w : f32[3]\n  return %y\n}\n";
        let of = |text: &str| module_fingerprint(&parse_module(text).expect("text")).expect("has data");
        assert_eq!(of(text), of(text));
        for (from, to) in [("mul", "add"), ("[1, 2, 3]", "[1, 2, 4]"), ("(y:", "(z:")] {
            assert!(text.contains(from), "{from}");
            assert_ne!(of(text), of(&text.replace(from, to)), "{from}");
        }
    }
}
