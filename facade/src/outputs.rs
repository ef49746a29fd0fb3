//! Results by name.

use compiler::tensor::Tensor;
use std::ops::Index;

/// The results of a run, in the model's order, by the names that the model gives them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outputs {
    pub(crate) list: Vec<(String, Tensor)>,
}

impl Outputs {
    /// The result of that name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.list.iter().find(|o| o.0 == name).map(|o| &o.1)
    }
    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|o| o.0.as_str())
    }
    /// Names and tensors in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.list.iter().map(|o| (o.0.as_str(), &o.1))
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }
    /// True when the model has no results.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl Index<&str> for Outputs {
    type Output = Tensor;
    /// # Panics
    /// The model has no such result; [`Outputs::get`] asks.
    fn index(&self, name: &str) -> &Tensor {
        self.get(name).unwrap_or_else(|| {
            panic!("there is no result `{name}`; there are: {}", self.names().collect::<Vec<_>>().join(", "))
        })
    }
}

impl Index<usize> for Outputs {
    type Output = Tensor;
    /// # Panics
    /// There are not that many.
    fn index(&self, n: usize) -> &Tensor {
        &self.list[n].1
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
