//! Finding, building and replacing loops and blocks, for all instructions.

use super::Refusal;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Block, BufferId, For, LoopKind, Scope, Stmt, TensorFunction};
use rustc_hash::FxHashMap;

/// A loop without its body.
#[derive(Clone, PartialEq, Debug)]
pub struct LoopHead {
    /// The variable.
    pub var: Name,
    /// Number of iterations.
    pub extent: Int,
    /// How it runs.
    pub kind: LoopKind,
}
impl LoopHead {
    /// A serial loop.
    pub fn serial(var: Name, extent: Int) -> LoopHead {
        LoopHead { var, extent, kind: LoopKind::Serial }
    }
    /// The head of a loop.
    pub fn of(l: &For) -> LoopHead {
        LoopHead { var: l.var, extent: l.extent.clone(), kind: l.kind }
    }
}

/// New indices for old ones.
pub type IndexMap = Box<dyn Fn(&[Int]) -> Vec<Int>>;

/// Values for variables, substituted at once.
pub type Substitution = FxHashMap<Name, Int>;

/// `i` with the variables of `by` replaced.
pub fn substitute(i: &Int, by: &Substitution) -> Int {
    if by.is_empty() { i.clone() } else { i.replace(&mut |v| by.get(&v).cloned()) }
}

/// Replaces variables in every block and every loop extent below `s`.
pub fn substitute_stmt(s: &mut Stmt, by: &Substitution) {
    s.visit_mut(&mut |s| match s {
        Stmt::For(l) => l.extent = substitute(&l.extent, by),
        Stmt::Block(b) => b.map_ints(&mut |i| substitute(i, by)),
        _ => {}
    });
}

/// A perfect nest of `loops` around `body`.
pub fn nest(loops: &[LoopHead], body: Stmt) -> Stmt {
    loops
        .iter()
        .rev()
        .fold(body, |body, l| Stmt::For(Box::new(For { var: l.var, extent: l.extent.clone(), kind: l.kind, body })))
}

/// The loops of the perfect chain that starts at `l`, outermost first, and the statement inside the last one.
pub fn perfect_chain(l: &For) -> (Vec<LoopHead>, &Stmt) {
    let mut heads = vec![LoopHead::of(l)];
    let mut body = &l.body;
    while let Stmt::For(inner) = body {
        heads.push(LoopHead::of(inner));
        body = &inner.body;
    }
    (heads, body)
}

/// The loop over `var`.
///
/// # Errors
/// When there is none.
pub fn find_loop(f: &TensorFunction, var: Name) -> Result<&For, Refusal> {
    let mut found = None;
    f.body.visit(&mut |s| {
        if let Stmt::For(l) = s
            && l.var == var
        {
            found = Some(&**l)
        }
    });
    found.ok_or_else(|| no_loop(f, var))
}

/// Names the loops that there are: instructions rename them, so the loop wanted is often among them.
fn no_loop(f: &TensorFunction, var: Name) -> Refusal {
    let mut there = Vec::new();
    f.body.visit(&mut |s| {
        if let Stmt::For(l) = s {
            there.push(format!("`{}`", l.var));
        }
    });
    match there.is_empty() {
        true => Refusal::new(format!("there is no loop `{var}`, and no other")),
        false => Refusal::new(format!("there is no loop `{var}`; there are {}", there.join(", "))),
    }
}

/// The loop over `var`, mutable.
///
/// # Errors
/// When there is none.
pub fn find_loop_mut(f: &mut TensorFunction, var: Name) -> Result<&mut For, Refusal> {
    fn go(s: &mut Stmt, var: Name) -> Option<&mut For> {
        match s {
            Stmt::Seq(list) => list.iter_mut().find_map(|s| go(s, var)),
            Stmt::For(l) => {
                if l.var == var {
                    Some(l)
                } else {
                    go(&mut l.body, var)
                }
            }
            Stmt::Kernel(_, s) => go(s, var),
            Stmt::Block(_) | Stmt::Barrier => None,
        }
    }
    find_loop(f, var)?;
    Ok(go(&mut f.body, var).expect("found above"))
}

/// The block `name`.
///
/// # Errors
/// When there is none.
pub fn find_block(f: &TensorFunction, name: Name) -> Result<&Block, Refusal> {
    f.body
        .blocks()
        .into_iter()
        .find(|b| b.name == name)
        .ok_or_else(|| Refusal::new(format!("there is no block `{name}`")))
}

/// The block `name`, mutable.
///
/// # Errors
/// When there is none.
pub fn find_block_mut(f: &mut TensorFunction, name: Name) -> Result<&mut Block, Refusal> {
    fn go(s: &mut Stmt, name: Name) -> Option<&mut Block> {
        match s {
            Stmt::Seq(list) => list.iter_mut().find_map(|s| go(s, name)),
            Stmt::For(l) => go(&mut l.body, name),
            Stmt::Kernel(_, s) => go(s, name),
            Stmt::Block(b) if b.name == name => Some(b),
            Stmt::Block(_) | Stmt::Barrier => None,
        }
    }
    go(&mut f.body, name).ok_or_else(|| Refusal::new(format!("there is no block `{name}`")))
}

/// The buffer `name`.
///
/// # Errors
/// When there is none.
pub fn find_buffer(f: &TensorFunction, name: Name) -> Result<BufferId, Refusal> {
    f.buffers
        .iter()
        .find(|(_, b)| b.name == name)
        .map(|(id, _)| id)
        .ok_or_else(|| Refusal::new(format!("there is no buffer `{name}`")))
}

fn loops_to(s: &Stmt, target: &dyn Fn(&Stmt) -> bool, path: &mut Vec<LoopHead>) -> bool {
    if target(s) {
        return true;
    }
    match s {
        Stmt::Seq(list) => list.iter().any(|s| loops_to(s, target, path)),
        Stmt::Kernel(_, s) => loops_to(s, target, path),
        Stmt::For(l) => {
            path.push(LoopHead::of(l));
            let found = loops_to(&l.body, target, path);
            if !found {
                path.pop();
            }
            found
        }
        Stmt::Block(_) | Stmt::Barrier => false,
    }
}

/// The loops around block `name`, outermost first.
///
/// # Errors
/// When there is no such block.
pub fn loops_around_block(f: &TensorFunction, name: Name) -> Result<Vec<LoopHead>, Refusal> {
    let mut path = Vec::new();
    if loops_to(&f.body, &|s| matches!(s, Stmt::Block(b) if b.name == name), &mut path) {
        Ok(path)
    } else {
        Err(Refusal::new(format!("there is no block `{name}`")))
    }
}

/// The loops around the loop over `var`, outermost first, without itself.
///
/// # Errors
/// When there is no such loop.
pub fn loops_around_loop(f: &TensorFunction, var: Name) -> Result<Vec<LoopHead>, Refusal> {
    let mut path = Vec::new();
    if loops_to(&f.body, &|s| matches!(s, Stmt::For(l) if l.var == var), &mut path) {
        Ok(path)
    } else {
        Err(no_loop(f, var))
    }
}

/// Position of the loop over `var` among the loops around `block`.
///
/// # Errors
/// When it is not among them.
pub fn position_around(path: &[LoopHead], var: Name, block: Name) -> Result<usize, Refusal> {
    path.iter()
        .position(|l| l.var == var)
        .ok_or_else(|| Refusal::at(block, format!("loop `{var}` is not around block `{block}`")))
}

/// Replaces the loop over `var` by the result of `rewrite`.
///
/// # Errors
/// When there is no such loop, or `rewrite` refuses.
pub fn replace_loop(
    f: &mut TensorFunction,
    var: Name,
    rewrite: impl FnOnce(For) -> Result<Stmt, Refusal>,
) -> Result<(), Refusal> {
    fn go(s: &mut Stmt, var: Name) -> Option<&mut Stmt> {
        match s {
            Stmt::For(l) if l.var == var => Some(s),
            Stmt::Seq(list) => list.iter_mut().find_map(|s| go(s, var)),
            Stmt::For(l) => go(&mut l.body, var),
            Stmt::Kernel(_, s) => go(s, var),
            Stmt::Block(_) | Stmt::Barrier => None,
        }
    }
    find_loop(f, var)?;
    let place = go(&mut f.body, var).expect("found above");
    let Stmt::For(l) = std::mem::replace(place, Stmt::Barrier) else { unreachable!("found as a loop") };
    *place = rewrite(*l)?;
    flatten_sequences(&mut f.body);
    Ok(())
}

/// Removes nested and one-element sequences.
pub fn flatten_sequences(s: &mut Stmt) {
    match s {
        Stmt::Seq(list) => {
            list.iter_mut().for_each(flatten_sequences);
            *s = Stmt::seq(std::mem::take(list));
        }
        Stmt::For(l) => flatten_sequences(&mut l.body),
        Stmt::Kernel(_, s) => flatten_sequences(s),
        Stmt::Block(_) | Stmt::Barrier => {}
    }
}

/// True when a block below `s` satisfies `test`.
pub fn any_block(s: &Stmt, test: impl Fn(&Block) -> bool) -> bool {
    s.blocks().into_iter().any(test)
}

/// Puts `new` into the body of loop `at`, before the first statement there that holds one of the blocks `users`.
///
/// # Errors
/// When a buffer of `reads` is written in that statement or later in the body.
pub fn insert_before_users(
    f: &mut TensorFunction,
    at: Name,
    new: Stmt,
    reads: &[BufferId],
    users: &[Name],
) -> Result<(), Refusal> {
    let l = find_loop_mut(f, at)?;
    let mut list = match std::mem::replace(&mut l.body, Stmt::Barrier) {
        Stmt::Seq(list) => list,
        one => vec![one],
    };
    let position = list.iter().position(|s| any_block(s, |b| users.contains(&b.name))).unwrap_or(list.len());
    if list[position..].iter().any(|s| any_block(s, |b| reads.contains(&b.buffer))) {
        return Err(Refusal::at(at, format!("what the new block reads is written deeper inside loop `{at}`")));
    }
    list.insert(position, new);
    l.body = Stmt::seq(list);
    Ok(())
}

/// Takes the top-level statement that is a perfect nest of serial loops around block `name` out of the body.
///
/// # Errors
/// When the block is not in such a nest of its own.
pub fn take_stage(f: &mut TensorFunction, name: Name) -> Result<(Vec<LoopHead>, Block), Refusal> {
    find_block(f, name)?;
    let mut list = match std::mem::replace(&mut f.body, Stmt::Seq(vec![])) {
        Stmt::Seq(list) => list,
        one => vec![one],
    };
    let position = list.iter().position(|s| any_block(s, |b| b.name == name));
    let mut taken = None;
    if let Some(p) = position {
        let mut loops = Vec::new();
        let mut s = &list[p];
        while let Stmt::For(l) = s
            && l.kind == LoopKind::Serial
        {
            loops.push(LoopHead::of(l));
            s = &l.body;
        }
        if let Stmt::Block(b) = s {
            taken = Some((loops, (**b).clone()));
            list.remove(p);
        }
    }
    f.body = Stmt::seq(list);
    taken
        .ok_or_else(|| Refusal::at(name, format!("block `{name}` is not in a perfect nest of serial loops of its own")))
}

/// The loop variable of every store index of an unscheduled block; `None` if the index is 0 in a dimension of extent 1.
///
/// # Errors
/// When an index is anything else, or a variable occurs twice.
pub fn plain_store(f: &TensorFunction, b: &Block) -> Result<Vec<Option<Name>>, Refusal> {
    let shape = &f.buffers[b.buffer].shape;
    let mut out: Vec<Option<Name>> = Vec::new();
    for (i, d) in b.indices.iter().zip(shape) {
        match i.as_var() {
            Some(v) if !out.contains(&Some(v)) => out.push(Some(v)),
            None if i.is(0) && d.is(1) => out.push(None),
            _ => {
                let text = format!("block `{}` must store at plain loop variables; `{i}` is not one", b.name);
                return Err(Refusal::at(b.name, text));
            }
        }
    }
    Ok(out)
}

/// Refuses the name of a new loop when a loop or symbol has it already.
///
/// # Errors
/// Names the clash.
pub fn check_new_loop(f: &TensorFunction, var: Name) -> Result<(), Refusal> {
    if var.as_str().is_empty() {
        return Err(Refusal::new("a new loop needs a name"));
    }
    if f.symbols.iter().any(|s| s.0 == var) || find_loop(f, var).is_ok() {
        return Err(Refusal::at(var, format!("the name `{var}` is taken by another loop or symbol")));
    }
    Ok(())
}

/// Refuses the name of a new block and buffer when another has it already.
///
/// # Errors
/// Names the clash.
pub fn check_new_block(f: &TensorFunction, name: Name) -> Result<(), Refusal> {
    if name.as_str().is_empty() {
        return Err(Refusal::new("a new block needs a name"));
    }
    if find_block(f, name).is_ok() || find_buffer(f, name).is_ok() {
        return Err(Refusal::at(name, format!("the name `{name}` is taken by another block or buffer")));
    }
    Ok(())
}

/// The reduction loops of every reduce block that stores to `buffer`, without loops of one iteration.
pub fn reductions_into(f: &TensorFunction, buffer: BufferId) -> Vec<(Name, Vec<Name>)> {
    let several = |v: &Name| find_loop(f, *v).is_ok_and(|l| !l.extent.is(1));
    let blocks = f.body.blocks().into_iter().filter(|b| b.buffer == buffer && b.reduce.is_some());
    blocks.map(|b| (b.name, f.reduction_loops(b.name).into_iter().filter(several).collect())).collect()
}

/// Refuses when another block than `block` stores to its buffer: moving one of them would change which store is last.
///
/// # Errors
/// Names the other block.
pub fn only_writer(f: &TensorFunction, block: &Block) -> Result<(), Refusal> {
    match f.body.blocks().into_iter().find(|b| b.buffer == block.buffer && b.name != block.name) {
        Some(other) => {
            let text = format!("block `{}` stores to `{}` too", other.name, f.buffers[block.buffer].name);
            Err(Refusal::at(block.name, text))
        }
        None => Ok(()),
    }
}

/// Largest number of threads of a workgroup along one axis: far above the limit of any device.
const MAX_LOCAL: i64 = 1 << 16;

/// The first loop that is too long, with the reason: more iterations than a 32-bit index, a number beyond 64 bits (an
/// unfolded product of constants), or more threads than a workgroup of any device.
pub fn too_long(f: &TensorFunction) -> Option<(Name, String)> {
    let mut found = None;
    f.body.visit(&mut |s| {
        let Stmt::For(l) = s else { return };
        if found.is_some() || !l.extent.vars().is_empty() {
            return;
        }
        let (text, n) = (format!("loop `{}` would have {}", l.var, l.extent), l.extent.as_const());
        if n.is_none_or(|n| n > i64::from(i32::MAX)) {
            found = Some((l.var, format!("{text} iterations, more than 32 bits count")));
        } else if matches!(l.kind, LoopKind::Local(_) | LoopKind::Subgroup(_)) && n.is_some_and(|n| n > MAX_LOCAL) {
            found = Some((l.var, format!("{text} threads, which no workgroup has")));
        }
    });
    found
}

/// Largest size in bytes of a buffer of a workgroup or subgroup: a hundred times the memory of any GPU.
const MAX_SHARED_BYTES: i64 = 16 << 20;
/// The most bytes of a buffer of one thread.
const MAX_REGISTER_BYTES: i64 = 1 << 20;

/// A buffer of a workgroup, subgroup or thread that no device has room for, with its bytes.
pub fn too_large(f: &TensorFunction) -> Option<(Name, i64)> {
    f.buffers.iter().find_map(|(_, b)| {
        let most = match b.scope {
            Scope::Global => return None,
            Scope::Shared | Scope::Subgroup { .. } | Scope::Fragment(_) => MAX_SHARED_BYTES,
            Scope::Register => MAX_REGISTER_BYTES,
        };
        let mut sizes = b.shape.iter().map(Int::as_const);
        let bytes = sizes.try_fold(b.dtype.size() as i64, |n, d| Some(n.saturating_mul(d?)))?;
        (bytes > most).then_some((b.name, bytes))
    })
}

/// `prefix_var` as a name.
pub fn derived_name(prefix: Name, var: Name) -> Name {
    Name::new(&format!("{prefix}_{var}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::testing::parsed;

    #[test]
    fn extents_are_replaced_with_the_variables_that_they_use() {
        let text = "tensor @f(%x: f32[4,4], out %y: f32[4,4]) {
  for i in 0..4 { for j in 0..i + 1 { block y { %y[i, j] <- %x[i, j] } } }
}";
        let Stmt::For(mut l) = parsed(text).body else { panic!("a loop") };
        substitute_stmt(&mut l.body, &[(l.var, Int::new(2))].into_iter().collect());
        let Stmt::For(inner) = &l.body else { panic!("a loop") };
        assert_eq!(inner.extent.eval(&|_| None), Some(3));
    }

    #[test]
    fn a_workgroup_has_65536_threads_along_an_axis_at_most() {
        let of = |kind: &str, n: i64| {
            too_long(&parsed(&format!(
                "tensor @f(%x: f32[{n}], out %y: f32[{n}]) {{\n  kernel k {{ {kind} t in 0..{n} {{ block y {{ %y[t] <- %x[t] }} }} }}\n}}"
            )))
        };
        assert_eq!(of("local_x for", 65536), None);
        assert_eq!(of("for", 65537), None);
        let (_, why) = of("local_x for", 65537).expect("too long");
        assert_eq!(why, "loop `t` would have 65537 threads, which no workgroup has");
    }
}
