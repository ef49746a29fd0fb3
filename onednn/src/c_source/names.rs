//! Names, shapes and numbers as C has them.

use crate::graph::Graph;
use std::collections::HashMap;

/// The version whose interface the C calls.
pub const VERSION: i32 = 2;

/// A name of the model in a comment, which it must not end.
pub fn comment(name: &str) -> String {
    name.chars().filter(|c| *c != '*' && *c != '\\' && !c.is_control()).collect()
}

/// A name as part of an identifier.
pub fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(40).collect()
}

pub fn elements(shape: &[i64]) -> i64 {
    shape.iter().product()
}

pub fn list(values: &[i64]) -> String {
    values.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

/// Dimensions as the library takes them: a scalar is a tensor of one element.
pub fn dims(shape: &[i64]) -> &[i64] {
    if shape.is_empty() { &[1] } else { shape }
}

/// `RANK, (const int64_t[]){...}`
pub fn sized(shape: &[i64]) -> String {
    let shape = dims(shape);
    format!("{}, (const int64_t[]){{{}}}", shape.len(), list(shape))
}

/// Every tensor with its shape, in the order in which they are made.
pub fn ports(graph: &Graph) -> impl Iterator<Item = (&str, &[i64])> {
    let given = graph.inputs.iter().chain(&graph.constants).map(|p| (p.name.as_str(), p.shape.as_slice()));
    given.chain(graph.nodes.iter().map(|n| (n.output.as_str(), n.shape.as_slice())))
}

/// What the functions of nodes refer to.
pub struct Names<'g> {
    /// The constant of the enumeration and the shape of each tensor.
    pub tensors: HashMap<&'g str, (String, &'g [i64])>,
    /// Names of the constants.
    pub constants: Vec<&'g str>,
}

impl Names<'_> {
    pub fn of(&self, name: &str) -> Result<String, String> {
        Ok(format!("t[{}]", self.find(name)?.0))
    }
    pub fn shape(&self, name: &str) -> Result<&[i64], String> {
        Ok(self.find(name)?.1)
    }
    pub fn find(&self, name: &str) -> Result<&(String, &[i64]), String> {
        self.tensors.get(name).ok_or_else(|| format!("no tensor is called `{name}` before it is read"))
    }
    pub fn is_constant(&self, name: &str) -> u8 {
        u8::from(self.constants.contains(&name))
    }
}
