//! Structural hashes: two values with the same fingerprint are equal, in this process and in any other.
//!
//! A fingerprint is the first half of a SHA-256 over a self-delimiting encoding: every text and list is preceded by its
//! length, every variant by a tag. Names count by their text, never by their number in the interner.

use sha2::{Digest, Sha256};
use std::fmt;

/// 128 bits that stand for a structure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The fingerprint of the data that `write` writes.
    pub fn of(write: impl FnOnce(&mut Fingerprinter)) -> Fingerprint {
        let mut f = Fingerprinter(Sha256::new());
        write(&mut f);
        let digest = f.0.finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Fingerprint(first)
    }
}

/// In hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Takes the parts of a structure, in order.
pub struct Fingerprinter(Sha256);

impl Fingerprinter {
    /// Which variant of an enum follows.
    pub fn tag(&mut self, tag: u8) {
        self.0.update([tag]);
    }
    /// A number.
    pub fn number(&mut self, n: i64) {
        self.0.update(n.to_le_bytes());
    }
    /// A text of any length.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
    /// Bytes of any length.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        self.0.update(bytes);
    }
    /// A list: its length, then each element.
    pub fn list<T>(&mut self, items: impl ExactSizeIterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        self.number(items.len() as i64);
        items.for_each(|item| each(self, item));
    }
    /// Another structure by its fingerprint.
    pub fn part(&mut self, part: Fingerprint) {
        self.0.update(part.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let texts = |list: &[&str]| Fingerprint::of(|f| f.list(list.iter(), |f, t| f.text(t)));
        assert_eq!(texts(&["ab", "c"]), texts(&["ab", "c"]));
        let all = [texts(&["ab", "c"]), texts(&["a", "bc"]), texts(&["abc"]), texts(&["abc", ""]), texts(&[])];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b));
        }
        assert_eq!(Fingerprint::of(|_| ()).to_string(), "e3b0c44298fc1c149afbf4c8996fb924");
    }
}
