//! The view of a function for `candidates` and `price`, which change nothing.

use super::decline::Decline;
use super::unit::{Unit, block_of};
use crate::int::Int;
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::schedule::ScheduleTarget;
use crate::schedule::estimate::Stages;
use crate::schedule::loops::{LoopHead, loops_around_block};
use crate::tir::{Block, Buffer, BufferId, Encoding, Scope, Stmt, TensorFunction};
use rustc_hash::FxHashMap;
use std::any::{Any, TypeId};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

/// A tensor function whose units wait for a rule, and what is known of the device. Open sizes are at typical values
/// here; their ranges are in [`TensorFunction::symbols`].
pub struct View<'a> {
    /// The function.
    pub f: &'a TensorFunction,
    /// Parameters that may be prepacked.
    pub constants: &'a [BufferId],
    /// The device.
    pub profile: &'a DeviceProfile,
    /// The same with what the user asks for.
    pub target: ScheduleTarget<'a>,
    /// The rule at work was asked for by name: it takes what it can, whether or not that suits the device.
    pub asked: bool,
    stages: OnceCell<Stages<'a>>,
    /// Results of [`View::once`], by their type and the unit's blocks.
    known: RefCell<FxHashMap<(TypeId, [Option<Name>; 3]), Rc<dyn Any>>>,
}

impl<'a> View<'a> {
    /// A view of a function.
    pub fn new(f: &'a TensorFunction, constants: &'a [BufferId], target: ScheduleTarget<'a>, asked: bool) -> View<'a> {
        let profile = target.profile;
        View { f, constants, profile, target, asked, stages: OnceCell::new(), known: RefCell::default() }
    }
    /// A view of another function, for the same device.
    pub fn with<'b>(&self, f: &'b TensorFunction) -> View<'b>
    where
        'a: 'b,
    {
        View::new(f, self.constants, self.target, self.asked)
    }
    /// The stages of the function that are not scheduled, as the estimate counts them.
    pub(in crate::schedule) fn stages(&self) -> &Stages<'a> {
        self.stages.get_or_init(|| Stages::of(self.f, self.constants, self.target))
    }
    /// What `find` says of the unit, which is asked once for each type of answer: a rule looks at a unit once for all
    /// of its candidates.
    pub fn once<T: 'static>(&self, unit: &Unit, find: impl FnOnce(&Self) -> T) -> Rc<T> {
        let blocks = [unit.reduce, unit.window.as_ref().map(|w| w.block), Some(unit.output)];
        let key = (TypeId::of::<T>(), blocks);
        let known = self.known.borrow().get(&key).cloned();
        if let Some(Ok(found)) = known.map(Rc::downcast::<T>) {
            return found;
        }
        let found = Rc::new(find(self));
        self.known.borrow_mut().insert(key, found.clone());
        found
    }
    /// The block of that name.
    pub fn block(&self, name: Name) -> Option<&'a Block> {
        block_of(self.f, name)
    }
    /// Loops around a block, outermost first.
    ///
    /// # Errors
    /// When there is no such block.
    pub fn loops(&self, block: Name) -> Result<Vec<LoopHead>, Decline> {
        loops_around_block(self.f, block).map_err(|r| Decline(r.message))
    }
    /// Elements of a storage word of the buffer that `block` stores to.
    pub fn elements_per_word(&self, block: Name) -> i64 {
        self.block(block).map_or(1, |b| elements_per_word(&self.f.buffers[b.buffer]))
    }
    /// Constant extent of a loop.
    pub fn extent_of(&self, var: Name) -> Option<i64> {
        let mut found = None;
        self.f.body.visit(&mut |s| {
            if let Stmt::For(l) = s
                && l.var == var
            {
                found = l.extent.as_const();
            }
        });
        found
    }
    /// Iterations of these loops, as far as they are constant.
    pub fn product(&self, loops: &[Name]) -> i64 {
        loops.iter().filter_map(|v| self.extent_of(*v)).product()
    }
    /// A constant extent or a decline.
    ///
    /// # Errors
    /// For symbolic extents.
    pub fn constant_extent(&self, e: &Int) -> Result<i64, Decline> {
        e.as_const().ok_or_else(|| Decline(format!("the extent {e} is not a constant")))
    }
}

/// Elements of a storage word.
pub(super) fn elements_per_word(buffer: &Buffer) -> i64 {
    match buffer.encoding {
        Encoding::HalfPair if buffer.scope == Scope::Global => 2,
        Encoding::ByteQuad => 4,
        _ => 1,
    }
}
