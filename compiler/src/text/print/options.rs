//! Options of printing.

/// Parts that are left out of the text.
#[derive(Clone, Copy, Debug)]
pub struct PrintOptions {
    /// Constants of at most this many elements are printed with their values.
    pub inline_elements: usize,
    /// Print origins and node names (`!from`, `!name`).
    pub origins: bool,
}
impl Default for PrintOptions {
    fn default() -> Self {
        PrintOptions { inline_elements: 32, origins: true }
    }
}
