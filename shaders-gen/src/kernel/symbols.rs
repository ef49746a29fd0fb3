//! The symbols of a function, which a run sets: immediates, or a uniform buffer on devices without them.

use super::KernelEmitter;
use crate::builder::Kind;
use naga::{AddressSpace, Expression};

impl KernelEmitter<'_> {
    /// Declares symbols as immediates, or as a uniform buffer: all of the function's, so that the offsets are the
    /// caller's.
    pub fn declare_symbols(&mut self) {
        if self.f.symbols.is_empty() {
            return;
        }
        let i32_ty = self.b.lanes_ty(Kind::I32, 1);
        let members = self
            .f
            .symbols
            .iter()
            .enumerate()
            .map(|(i, s)| naga::StructMember {
                name: Some(s.0.to_string()),
                ty: i32_ty,
                binding: None,
                offset: 4 * i as u32,
            })
            .collect();
        let span = 4 * self.f.symbols.len() as u32;
        let inner = naga::TypeInner::Struct { members, span };
        let ty = naga::Type { name: Some("Symbols".into()), inner };
        let ty = self.b.module.types.insert(ty, naga::Span::UNDEFINED);
        let space = match self.symbols_at {
            Some(_) => AddressSpace::Uniform,
            None => {
                self.b.capabilities |= naga::valid::Capabilities::IMMEDIATES;
                AddressSpace::Immediate
            }
        };
        let var = self.b.global_var("symbols", space, ty, self.symbols_at);
        self.symbols = Some(var);
        let base = self.b.global(var);
        for (i, (name, _, _)) in self.f.symbols.iter().enumerate() {
            let pointer = self.b.emit(Expression::AccessIndex { base, index: i as u32 });
            let v = self.b.load(pointer, Kind::I32, 1, Some(name.as_str()));
            self.vars.insert(*name, (v.handle, 0));
        }
    }
}
