//! A variant of a kernel that reports the subgroup size that the driver chose for it.

use crate::error::EmitError;
use crate::generated::{GeneratedModule, validated};
use naga::{AddressSpace, Binding, BuiltIn, Expression, Scalar, Span, Statement, StorageAccess, TypeInner};

impl GeneratedModule {
    /// The same kernel, which also stores the number of threads in its subgroups: one word, in a buffer of its own at
    /// this binding.
    ///
    /// # Errors
    /// [`EmitError::Invalid`], which is a bug.
    pub fn reporting_subgroup_size(&self, binding: u32) -> Result<naga::Module, EmitError> {
        let mut module = self.module.clone();
        let inner = TypeInner::Scalar(Scalar::U32);
        let ty = module.types.insert(naga::Type { name: None, inner }, Span::UNDEFINED);
        let access = StorageAccess::LOAD | StorageAccess::STORE;
        let report = naga::GlobalVariable {
            name: Some("reported_subgroup_size".into()),
            space: AddressSpace::Storage { access },
            binding: Some(naga::ResourceBinding { group: 0, binding }),
            ty,
            init: None,
            memory_decorations: naga::MemoryDecorations::empty(),
        };
        let report = module.global_variables.append(report, Span::UNDEFINED);
        let function = &mut module.entry_points[0].function;
        let builtin = Some(Binding::BuiltIn(BuiltIn::SubgroupSize));
        let arguments = &mut function.arguments;
        let index = arguments.iter().position(|a| a.binding == builtin).unwrap_or(arguments.len());
        if index == arguments.len() {
            let name = Some("reported_size".into());
            arguments.push(naga::FunctionArgument { name, ty, binding: builtin });
        }
        let value = function.expressions.append(Expression::FunctionArgument(index as u32), Span::UNDEFINED);
        let pointer = function.expressions.append(Expression::GlobalVariable(report), Span::UNDEFINED);
        // All threads store the same.
        let store = naga::Block::from_vec(vec![Statement::Store { pointer, value }]);
        function.body.splice(0..0, store);
        validated(&module, self.capabilities | naga::valid::Capabilities::SUBGROUP)
            .map_err(|message| EmitError::Invalid { kernel: self.entry.clone(), message })?;
        Ok(module)
    }
}
