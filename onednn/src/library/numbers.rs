//! Numbers of the library's functions of elements.

use crate::graph::{BinaryFunction, Function};

/// The number of a function of one element in version 2, and in version 3.
const ELTWISE: &[(Function, i32, i32)] = &[
    (Function::Relu, 0x1f, 0x20),
    (Function::Clip, 0xff, 0x2e),
    (Function::Tanh, 0x2f, 0x21),
    (Function::Elu, 0x3f, 0x22),
    (Function::Abs, 0x5f, 0x24),
    (Function::Sqrt, 0x6f, 0x25),
    (Function::Linear, 0x7f, 0x26),
    (Function::SoftRelu, 0x9f, 0x27),
    (Function::Logistic, 0xaf, 0x29),
    (Function::Exp, 0xbf, 0x2a),
    (Function::Log, 0xef, 0x2d),
    (Function::GeluTanh, 0xcf, 0x2b),
    (Function::GeluErf, 0x30, 0x31),
    (Function::Swish, 0xdf, 0x2c),
    (Function::Round, 0x40, 0x32),
    (Function::Mish, 0x60, 0x33),
    (Function::Hardswish, 0x70, 0x34),
];

/// The number of a function of one element in a version of the library.
pub fn eltwise_number(function: Function, major: i32) -> i32 {
    let row = ELTWISE.iter().find(|row| row.0 == function);
    row.map_or(0, |row| if major >= 3 { row.2 } else { row.1 })
}

/// The number of a function of two elements.
pub fn binary_number(function: BinaryFunction) -> i32 {
    0x1fff0
        + match function {
            BinaryFunction::Add => 0,
            BinaryFunction::Mul => 1,
            BinaryFunction::Max => 2,
            BinaryFunction::Min => 3,
            BinaryFunction::Div => 4,
            BinaryFunction::Sub => 5,
        }
}
