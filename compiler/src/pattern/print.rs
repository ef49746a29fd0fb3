//! The printed form of patterns.

use super::{Kind, Operands, Pattern};
use std::fmt;

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}
impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

impl Pattern {
    /// Writes the pattern; `mark` follows the outermost op's name.
    fn write(&self, f: &mut fmt::Formatter<'_>, mark: &str) -> fmt::Result {
        match &*self.0 {
            Kind::Any => f.write_str("*"),
            Kind::Constant => f.write_str("const"),
            Kind::Number(v, off) => write!(f, "{}{v}", if *off > 0.0 { "~" } else { "" }),
            Kind::Param => f.write_str("param"),
            Kind::Op { name, operands, .. } => {
                write!(f, "{name}{mark}")?;
                write_operands(f, operands)
            }
            Kind::AnyOp(operands) => {
                write!(f, "f{mark}")?;
                write_operands(f, operands)
            }
            Kind::Either(list) => {
                f.write_str("(")?;
                for (i, p) in list.iter().enumerate() {
                    f.write_str(if i == 0 { "" } else { " | " })?;
                    p.write(f, "")?;
                }
                f.write_str(")")
            }
            Kind::Optional { with, .. } => with.write(f, "?"),
            Kind::When { inner, text, .. } => {
                inner.write(f, mark)?;
                write!(f, "[{text}]")
            }
            Kind::Result { inner, index } => {
                inner.write(f, mark)?;
                write!(f, ".{index}")
            }
            Kind::Named { inner, name } => {
                f.write_str(name)?;
                if matches!(&*inner.0, Kind::Any) {
                    return Ok(());
                }
                f.write_str(":")?;
                inner.write(f, mark)
            }
            Kind::Dominator { parent, path, child } => {
                parent.write(f, "")?;
                f.write_str(" => ")?;
                path.write(f, "")?;
                f.write_str("* => ")?;
                child.write(f, mark)
            }
        }
    }
}

fn write_operands(f: &mut fmt::Formatter<'_>, operands: &Operands) -> fmt::Result {
    match operands {
        Operands::Exactly(list) => write_list(f, "(", list, ")"),
        Operands::From(list) if list.is_empty() => f.write_str("(..)"),
        Operands::From(list) => write_list(f, "(", list, ", ..)"),
        Operands::Commuted(list) => write_list(f, "{", list, "}"),
        Operands::Free => f.write_str("(..)"),
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, open: &str, list: &[Pattern], close: &str) -> fmt::Result {
    f.write_str(open)?;
    for (i, p) in list.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        p.write(f, "")?;
    }
    f.write_str(close)
}
