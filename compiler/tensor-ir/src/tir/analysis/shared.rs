//! Values that several others are made of, and where they may be computed once.
//!
//! An emitter lists the values of an expression, each once, operands before what is made of them. A select computes one
//! of its sides only: such a side may load an element that must not be read otherwise.

/// A value in a list.
pub trait Part {
    /// The positions of its operands.
    fn operands(&self) -> Vec<usize>;
    /// How many of them, from the first, are computed in any case.
    fn sure_operands(&self) -> usize;
    /// It is read from memory.
    fn is_load(&self) -> bool;
}

/// How the values of a list are used by the one at `root`.
#[derive(Debug)]
pub struct Uses {
    /// How many operands each is, and one for the root.
    pub count: Vec<usize>,
    /// It is computed whatever conditions say.
    pub sure: Vec<bool>,
    /// It may be computed whatever conditions say: it loads only elements that are loaded in any case.
    pub safe: Vec<bool>,
}

impl Uses {
    /// The uses of each value of `list`, of which `root` is the result.
    pub fn of(list: &[impl Part], root: usize) -> Uses {
        let n = list.len();
        let (mut count, mut sure, mut safe) = (vec![0; n], vec![false; n], vec![true; n]);
        (count[root], sure[root]) = (1, true);
        for i in (0..=root).rev() {
            if count[i] == 0 {
                continue;
            }
            for (k, o) in list[i].operands().into_iter().enumerate() {
                count[o] += 1;
                sure[o] |= sure[i] && k < list[i].sure_operands();
            }
        }
        for i in 0..n {
            safe[i] = (sure[i] || !list[i].is_load()) && list[i].operands().iter().all(|o| safe[*o]);
        }
        Uses { count, sure, safe }
    }
}
