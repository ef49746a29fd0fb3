//! Nests that `tensorize` made one operation: rows x columns of sums over a depth.
//!
//! The sums of a row are GNU vectors that stay in registers while the depth runs; each element is summed in the order
//! of the nest. A compiler without vectors gets the nest as it stands, with the depth outside.

use crate::expr::{buffer_name, variable};
use crate::left::factors;
use crate::products::Products;
use crate::statements::Statements;
use tensor_ir::int::Int;
use tensor_ir::name::Name;
use tensor_ir::tir::intrinsic::Nest;
use tensor_ir::tir::{Block, BufferId, For};

pub(crate) fn print(p: &mut Statements<'_>, l: &For) -> Result<(), String> {
    let nest = Nest::under(l).map_err(|m| m.message)?;
    match Products::of(p, &nest) {
        None => plain(p, &nest),
        Some(found) => {
            p.directive("#ifdef WEFT_VECTORS");
            p.block("", |p| vectors(p, &found))?;
            p.directive("#else");
            plain(p, &nest)?;
            p.directive("#endif");
            Ok(())
        }
    }
}

/// The loops as they stand, but with the innermost outside: next iterations then change next elements.
fn plain(p: &mut Statements<'_>, nest: &Nest<'_>) -> Result<(), String> {
    let mut loops = nest.sizes().ok_or("a loop has an open length")?;
    loops.rotate_right(1);
    around(p, &loops, nest.block)
}

fn around(p: &mut Statements<'_>, loops: &[(Name, i64)], b: &Block) -> Result<(), String> {
    match loops.split_first() {
        None => p.leaf(b),
        Some((&(var, count), rest)) => p.each(var, count, |p| around(p, rest, b)),
    }
}

fn vectors(p: &mut Statements<'_>, t: &Products<'_>) -> Result<(), String> {
    let [(row, rows), (column, columns), (depth, count)] = t.loops;
    let (b, w) = (t.block, t.width);
    let f = p.values.f;
    let at = |ix: &[Int], row_at: i64, lane: i64| -> Vec<Int> {
        let fixed = |i: &Int| i.substitute(row, &Int::new(row_at)).substitute(column, &Int::new(lane * w));
        ix.iter().map(fixed).collect()
    };
    let parts = columns / w;
    let vector = |p: &Statements<'_>, constant: &str, buffer: BufferId, ix: &[Int]| {
        let place = p.values.place(buffer, ix)?;
        Ok::<_, String>(format!("*({constant}weft_v{w} *)&{}[{place}]", buffer_name(buffer, &f.buffers[buffer])))
    };
    for r in 0..rows {
        for c in 0..parts {
            let from = vector(p, "const ", b.buffer, &at(&b.indices, r, c))?;
            p.line(&format!("weft_v{w} s{r}_{c} = {from};"));
        }
    }
    let (shared, lefts) = factors(p, t)?;
    shared.iter().chain(lefts.iter().flat_map(|l| &l.before)).for_each(|line| p.line(line));
    let inside = |p: &mut Statements<'_>| {
        for c in 0..parts {
            let from = vector(p, "const ", t.right.0, &at(t.right.1, 0, c))?;
            p.line(&format!("const weft_v{w} r{c} = {from};"));
        }
        for (r, left) in (0..rows).zip(&lefts) {
            let number = Int::new(r);
            let guards: Vec<_> = b.guards.iter().map(|g| g.map(&mut |i| i.substitute(row, &number))).collect();
            let head =
                if guards.is_empty() { String::new() } else { format!("if ({})", p.values.conditions(&guards)?) };
            p.block(&head, |p| {
                p.line(&format!("const float l = {};", left.value));
                (0..parts).for_each(|c| p.line(&format!("s{r}_{c} += l * r{c};")));
                Ok(())
            })?;
        }
        Ok(())
    };
    let v = variable(depth);
    p.block(&format!("for (int64_t {v} = 0; {v} < {count}; ++{v})"), inside)?;
    for r in 0..rows {
        for c in 0..parts {
            let to = vector(p, "", b.buffer, &at(&b.indices, r, c))?;
            p.line(&format!("{to} = s{r}_{c};"));
        }
    }
    Ok(())
}
