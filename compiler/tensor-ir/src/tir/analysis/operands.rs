//! Operands: an element of a buffer, and how it becomes the number that a kernel computes with.

use crate::dtype::DType;
use crate::int::{Cond, Int};
use crate::name::Name;
use crate::tir::{BinaryOp, BufferId, Expr, Scalar};

/// An element of a buffer, converted, and replaced by a constant where conditions do not hold.
#[derive(Debug)]
pub struct Operand<'e> {
    /// The buffer.
    pub buffer: BufferId,
    /// The element.
    pub indices: &'e [Int],
    /// Conversions, the first one first.
    pub casts: Vec<DType>,
    /// Where one of these does not hold, the operand is `padding`.
    pub conditions: &'e [Cond],
    /// The constant outside; `None` without conditions.
    pub padding: Option<Scalar>,
}

impl<'e> Operand<'e> {
    /// The operand that an expression is; `None` for a computed value.
    pub fn of(e: &'e Expr) -> Option<Operand<'e>> {
        match e {
            Expr::Load(buffer, indices) => {
                Some(Operand { buffer: *buffer, indices, casts: vec![], conditions: &[], padding: None })
            }
            Expr::Cast(to, a) => {
                let mut inner = Operand::of(a)?;
                inner.casts.push(*to);
                Some(inner)
            }
            Expr::Select(condition, a, outside) => match (&**condition, Operand::of(a)?, &**outside) {
                (Expr::All(conditions), inner, Expr::Const(s, _)) if inner.padding.is_none() => {
                    Some(Operand { conditions, padding: Some(*s), ..inner })
                }
                _ => None,
            },
            _ => None,
        }
    }
    /// The element as it is stored, wherever it is.
    pub fn is_plain(&self) -> bool {
        self.casts.is_empty() && self.padding.is_none()
    }
    /// The element, converted to this type or not at all: what shorter ones become before they are computed with. A
    /// processor computes in f32 and rounds floats to shorter ones only where it stores them: it has such steps between
    /// for nothing.
    pub fn widens(&self, to: DType) -> bool {
        let short = |t: DType| to == DType::F32 && matches!(t, DType::F16 | DType::BF16);
        self.casts.iter().all(|t| *t == to || short(*t))
    }
    /// The padding of a row of a tile's left operand: 0, or any integer. `None` if tiles read no such rows.
    pub fn row_padding(&self) -> Option<i64> {
        match self.padding {
            None => Some(0),
            Some(Scalar::Float(x)) => (x == 0.0).then_some(0),
            Some(Scalar::Int(x)) => Some(x),
        }
    }
    /// The padding as a float, 0 without conditions; `None` if it is NaN or of another type.
    pub fn float_padding(&self) -> Option<f64> {
        match self.padding {
            None => Some(0.0),
            Some(Scalar::Float(x)) => Some(x).filter(|x| !x.is_nan()),
            Some(Scalar::Int(_)) => None,
        }
    }
}

/// The expression inside of all conversions.
pub fn without_casts(e: &Expr) -> &Expr {
    match e {
        Expr::Cast(_, a) => without_casts(a),
        e => e,
    }
}

/// The factors of a product, whatever it is converted to.
pub fn factors(e: &Expr) -> Option<[&Expr; 2]> {
    match without_casts(e) {
        Expr::Binary(BinaryOp::Mul, a, b) => Some([a, b]),
        _ => None,
    }
}

/// Whether a place in the expression moves with a loop.
pub fn moves_with(e: &Expr, var: Name) -> bool {
    let mut found = false;
    e.visit_ints(&mut |i| found |= i.uses(var));
    found
}

/// The factors of the products that a nest adds up: first the one that moves with its rows, then the one that moves
/// with its columns. A loop of one iteration moves nothing, so either is enough.
pub fn oriented(e: &Expr, row: Name, column: Name) -> Option<[&Expr; 2]> {
    let Expr::Binary(BinaryOp::Mul, a, b) = e else { return None };
    let only = |of: &Expr, other: &Expr, var: Name| moves_with(of, var) && !moves_with(other, var);
    Some(if only(a, b, column) || only(b, a, row) { [b, a] } else { [a, b] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Id;

    #[test]
    fn factors_are_found_in_either_order_also_where_there_is_one_row() {
        let load = |i: &str, j: &str| {
            Expr::load(BufferId::from_index(0), vec![Int::var(Name::new(i)), Int::var(Name::new(j))])
        };
        let (left, alone, right) = (load("i", "k"), load("k", "k"), load("k", "j"));
        for rows in [left, alone] {
            for e in [rows.clone() * right.clone(), right.clone() * rows.clone()] {
                assert_eq!(oriented(&e, Name::new("i"), Name::new("j")), Some([&rows, &right]));
            }
        }
        assert!(oriented(&right, Name::new("i"), Name::new("j")).is_none());
    }

    #[test]
    fn an_operand_is_an_element_with_its_conversions_and_padding() {
        let element = Expr::load(BufferId::from_index(0), vec![Int::var(Name::new("i"))]);
        let inside = vec![Cond::lt(Int::var(Name::new("i")), Int::new(3))];
        let padded =
            Expr::guarded(inside, element.clone().cast(DType::F16, DType::F32), Expr::constant(0.0, DType::F32));
        let o = Operand::of(&padded).expect("an operand");
        assert_eq!((o.casts.as_slice(), o.conditions.len(), o.float_padding()), (&[DType::F32][..], 1, Some(0.0)));
        assert!(
            !o.is_plain()
                && o.widens(DType::F32)
                && o.row_padding() == Some(0)
                && Operand::of(&element).is_some_and(|o| o.is_plain())
        );
        assert!(Operand::of(&(element.clone() + element)).is_none());
    }
}
