//! Tiles of neighbouring results that are computed from tiles of elements by constant matrices.

use super::LARGE;
use crate::int::{Int, IntNode};
use crate::name::Name;
use crate::tir::Block;

/// Elements of a tile along a loop at most.
const LONGEST: i64 = 8;

/// The loops of a function's output, by what they do for a thread.
pub(in crate::schedule) struct TransformTile {
    /// The reduction.
    pub reduce: Name,
    /// Its loops that tell elements apart which the output reads at once, and those that choose coefficients only.
    pub varies: Vec<Name>,
    pub chosen: Vec<Name>,
    /// Loops of the output inside a tile, with their iterations: all of a loop, or some in a row of it.
    pub inside: Vec<(Name, i64)>,
    /// Elements that are combined, and those results of the reduction that a thread keeps.
    pub taps: i64,
    pub kept: i64,
}

/// Elements of a vector that leave a third of a thread's registers for addresses and the results on their way.
pub(in crate::schedule) fn widest(registers: u32, live: i64) -> i64 {
    let all = if registers == 0 { LARGE } else { registers };
    [4, 2].into_iter().find(|w| w * live * 3 <= i64::from(all) * 2).unwrap_or(1)
}

/// The tile of a thread, where the blocks are of this kind: an output that reads the elements `reads` of the reduction
/// `r`. `own` and `loops` are the loops of the reduction and of the output.
pub(in crate::schedule) fn tile_of(
    r: &Block,
    reads: &[&[Int]],
    own: &[(Name, i64)],
    loops: &[(Name, i64)],
) -> Option<TransformTile> {
    let first = *reads.first()?;
    if reads.iter().all(|ix| *ix == first) {
        return None;
    }
    let stored: Vec<Option<Name>> = r.indices.iter().map(Int::as_var).collect();
    let extent = |v: Name| own.iter().find(|l| l.0 == v).map(|l| l.1);
    // Dimensions in which the elements differ, by constants, and those whose variable chooses coefficients only.
    let (mut varying, mut choosing, mut kept) = (Vec::new(), Vec::new(), 1);
    let mut chosen = vec![false; first.len()];
    for (d, v) in stored.iter().enumerate() {
        let Some(v) = *v else { continue };
        let varies = reads.iter().any(|ix| ix[d] != first[d]);
        if varies && !reads.iter().all(|ix| ix[d].as_const().is_some()) {
            return None;
        }
        chosen[d] = !varies && !loads_use(r, v);
        if varies {
            varying.push(v);
        }
        if chosen[d] {
            choosing.push(v);
        }
        if varies || chosen[d] {
            kept *= extent(v).filter(|n| *n <= LONGEST)?;
        }
    }
    let taps: i64 = own.iter().filter(|l| !stored.contains(&Some(l.0))).map(|l| l.1).product();
    if taps > LONGEST {
        return None;
    }
    let mut inside = Vec::new();
    for &(v, n) in loops {
        let uses: Vec<(usize, &Int)> = first.iter().enumerate().filter(|(_, i)| i.uses(v)).collect();
        let plain = uses.iter().all(|(d, i)| chosen[*d] && i.as_var() == Some(v));
        let length = if plain { Some(n) } else { period(first, v) };
        // Rows of the tile: the coefficients' index is `v % m`, whatever else uses `v` uses `v / m`.
        let rows =
            |m: i64| uses.iter().all(|(d, i)| if chosen[*d] { is_rest(i, v, m) } else { only_quotients(i, v, m) });
        if let Some(m) = length.filter(|m| *m <= LONGEST && n > 1 && (plain || rows(*m))) {
            inside.push((v, m));
        }
    }
    (!inside.is_empty()).then_some(TransformTile {
        reduce: r.name,
        varies: varying,
        chosen: choosing,
        inside,
        taps,
        kept,
    })
}

fn loads_use(r: &Block, v: Name) -> bool {
    r.value.loads().iter().any(|(_, ix)| ix.iter().any(|i| i.uses(v)))
}

/// The `m` of the first `v % m` or `v / m` in an index.
fn period(index: &[Int], v: Name) -> Option<i64> {
    let mut found = None;
    for i in index {
        i.visit(&mut |n| {
            if let IntNode::Mod(a, m) | IntNode::Div(a, m) = n.node()
                && a.as_var() == Some(v)
            {
                found = found.or(m.as_const());
            }
        });
    }
    found
}

fn is_rest(i: &Int, v: Name, m: i64) -> bool {
    matches!(i.node(), IntNode::Mod(a, n) if a.as_var() == Some(v) && n.is(m))
}

/// True when `v` stands in `i` as `v / m` only.
fn only_quotients(i: &Int, v: Name, m: i64) -> bool {
    match i.node() {
        IntNode::Div(a, n) if a.as_var() == Some(v) => n.is(m),
        IntNode::Var(w) => *w != v,
        IntNode::Const(_) => true,
        IntNode::Load(_, ix) => ix.iter().all(|i| only_quotients(i, v, m)),
        IntNode::Add(a, b)
        | IntNode::Sub(a, b)
        | IntNode::Mul(a, b)
        | IntNode::Div(a, b)
        | IntNode::Mod(a, b)
        | IntNode::Min(a, b)
        | IntNode::Max(a, b) => only_quotients(a, v, m) && only_quotients(b, v, m),
    }
}
