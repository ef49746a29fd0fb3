//! What a target is.

use rand_chacha::ChaCha8Rng;

/// The seeded source of random numbers of one case.
pub type Random = ChaCha8Rng;

/// How far a case got (`refused`, `compiled`, ...), or what is a bug.
pub type Outcome = Result<&'static str, String>;

/// A way into Weft for bytes from outside.
pub struct Target {
    /// Name, also of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// Inputs to start from beside the files of its folder.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Changes an input; the other seeds lend parts.
    pub mutate: fn(&mut Random, Vec<u8>, &[Vec<u8>]) -> Vec<u8>,
    /// Runs an input through the functions that the command calls.
    pub run: fn(&[u8]) -> Outcome,
}
