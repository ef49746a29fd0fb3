//! Appends expressions and statements to a naga function, and keeps track of nested scopes.
//!
//! An expression may be emitted into any open scope: if it depends on outer variables only, it is emitted in the outer
//! scope, before the loop that is being built.

use crate::lines::Sources;
use naga::{
    AddressSpace, BinaryOperator, Expression, Handle, Literal, LocalVariable, MathFunction, ScalarKind, Span,
    Statement, Type, TypeInner, VectorSize,
};
use rustc_hash::FxHashMap;
use tensor_ir::int::Int;
use tensor_ir::name::Name;
use tensor_ir::profile::Nan;
use tensor_ir::tir::{BufferId, Cond};

/// Type class of a value in registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    F32,
    F16,
    I32,
    U32,
    /// Only on the way from a word to its halves.
    U16,
    Bool,
}

impl Kind {
    pub fn scalar(self) -> naga::Scalar {
        let (kind, width) = match self {
            Kind::F32 => (ScalarKind::Float, 4),
            Kind::F16 => (ScalarKind::Float, 2),
            Kind::I32 => (ScalarKind::Sint, 4),
            Kind::U32 => (ScalarKind::Uint, 4),
            Kind::U16 => (ScalarKind::Uint, 2),
            Kind::Bool => (ScalarKind::Bool, 1),
        };
        naga::Scalar { kind, width }
    }
}

/// An evaluated expression: a scalar (1 lane) or a vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub handle: Handle<Expression>,
    pub kind: Kind,
    pub lanes: u8,
}

/// The key of a loaded value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum LoadKey {
    /// A word or unit of memory.
    Memory { unit: Int },
    /// A decoded element or run of packed memory.
    Decoded { base: Int, count: u8 },
    /// An element fetched from another lane of the subgroup.
    Gather { slot: Int, lane: Int, count: u8 },
}

/// An open block.
#[derive(Default)]
pub(crate) struct ScopeBlock {
    block: naga::Block,
    pub ints: FxHashMap<Int, Handle<Expression>>,
    pub conds: FxHashMap<Vec<Cond>, Handle<Expression>>,
    pub loads: FxHashMap<(BufferId, LoadKey), Value>,
    splats: FxHashMap<(Handle<Expression>, u8), Handle<Expression>>,
}

impl ScopeBlock {
    /// The statements.
    pub fn into_block(self) -> naga::Block {
        self.block
    }
}

/// A naga function under construction.
pub(crate) struct Builder {
    pub module: naga::Module,
    pub function: naga::Function,
    pub scopes: Vec<ScopeBlock>,
    literals: FxHashMap<(u64, Kind), Handle<Expression>>,
    locals: FxHashMap<Handle<LocalVariable>, Handle<Expression>>,
    globals: FxHashMap<Handle<naga::GlobalVariable>, Handle<Expression>>,
    bits: FxHashMap<u32, Handle<LocalVariable>>,
    /// The f16 operands of conversions to f32.
    halves: FxHashMap<Handle<Expression>, Value>,
    /// The sources of the expressions and statements being built.
    pub sources: Sources,
    pub capabilities: naga::valid::Capabilities,
    /// As in the profile of the device.
    pub loose_log_exp: bool,
    /// As in the profile of the device.
    pub nan: Nan,
}

impl Builder {
    pub fn new() -> Builder {
        Builder {
            module: naga::Module::default(),
            function: naga::Function::default(),
            scopes: vec![ScopeBlock::default()],
            literals: FxHashMap::default(),
            halves: FxHashMap::default(),
            locals: FxHashMap::default(),
            globals: FxHashMap::default(),
            bits: FxHashMap::default(),
            sources: Sources::new(),
            capabilities: naga::valid::Capabilities::empty(),
            loose_log_exp: false,
            nan: Nan::Keep,
        }
    }
    /// Depth of the innermost scope.
    pub fn top(&self) -> usize {
        self.scopes.len() - 1
    }
    pub fn scope(&mut self) -> &mut ScopeBlock {
        self.scopes.last_mut().expect("a scope is open")
    }
    pub fn open(&mut self) {
        self.scopes.push(ScopeBlock::default());
    }
    /// Closes the innermost scope and hands out its statements.
    pub fn close(&mut self) -> naga::Block {
        self.scopes.pop().expect("a scope is open").block
    }
    pub fn statement(&mut self, s: Statement) {
        let span = self.sources.span();
        self.scope().block.push(s, span);
    }
    /// Appends an expression and emits it in scope `level`.
    pub fn emit_at(&mut self, level: usize, e: Expression) -> Handle<Expression> {
        let h = self.declare(e);
        let block = &mut self.scopes[level].block;
        if let Some(Statement::Emit(range)) = block.last_mut()
            && let Some((first, last)) = range.first_and_last()
            && last.index() + 1 == h.index()
        {
            *range = naga::Range::new_from_bounds(first, h);
            return h;
        }
        block.push(Statement::Emit(naga::Range::new_from_bounds(h, h)), Span::UNDEFINED);
        h
    }
    /// Appends an expression and emits it here.
    pub fn emit(&mut self, e: Expression) -> Handle<Expression> {
        let top = self.top();
        self.emit_at(top, e)
    }
    /// Appends an expression that is no part of an `Emit`.
    pub fn declare(&mut self, e: Expression) -> Handle<Expression> {
        self.sources.note();
        self.function.expressions.append(e, Span::UNDEFINED)
    }
    /// Names a value in the shader's text.
    pub fn name(&mut self, h: Handle<Expression>, name: &str) {
        self.function.named_expressions.insert(h, name.to_string());
    }

    pub fn ty(&mut self, inner: TypeInner) -> Handle<Type> {
        self.module.types.insert(Type { name: None, inner }, Span::UNDEFINED)
    }
    /// A scalar or vector type.
    pub fn lanes_ty(&mut self, kind: Kind, lanes: u8) -> Handle<Type> {
        let inner = match vector_size(lanes) {
            Some(size) => TypeInner::Vector { size, scalar: kind.scalar() },
            None => TypeInner::Scalar(kind.scalar()),
        };
        match kind {
            Kind::F16 => self.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16,
            Kind::U16 => self.capabilities |= naga::valid::Capabilities::SHADER_INT16,
            _ => {}
        }
        self.ty(inner)
    }
    pub fn array_ty(&mut self, base: Handle<Type>, stride: u32, len: Option<u32>) -> Handle<Type> {
        let size = match len.and_then(std::num::NonZeroU32::new) {
            Some(n) => naga::ArraySize::Constant(n),
            None => naga::ArraySize::Dynamic,
        };
        self.ty(TypeInner::Array { base, size, stride })
    }
    pub fn global_var(
        &mut self,
        name: &str,
        space: AddressSpace,
        ty: Handle<Type>,
        binding: Option<u32>,
    ) -> Handle<naga::GlobalVariable> {
        let binding = binding.map(|binding| naga::ResourceBinding { group: 0, binding });
        let var = naga::GlobalVariable {
            name: Some(name.to_string()),
            space,
            binding,
            ty,
            init: None,
            memory_decorations: naga::MemoryDecorations::empty(),
        };
        self.module.global_variables.append(var, Span::UNDEFINED)
    }
    pub fn local_var(&mut self, name: &str, ty: Handle<Type>) -> Handle<LocalVariable> {
        let var = LocalVariable { name: Some(name.to_string()), ty, init: None };
        self.function.local_variables.append(var, Span::UNDEFINED)
    }
    /// Pointer to a local variable.
    pub fn local(&mut self, v: Handle<LocalVariable>) -> Handle<Expression> {
        if let Some(&h) = self.locals.get(&v) {
            return h;
        }
        let h = self.declare(Expression::LocalVariable(v));
        self.locals.insert(v, h);
        h
    }
    /// Pointer to a global variable.
    pub fn global(&mut self, v: Handle<naga::GlobalVariable>) -> Handle<Expression> {
        if let Some(&h) = self.globals.get(&v) {
            return h;
        }
        let h = self.declare(Expression::GlobalVariable(v));
        self.globals.insert(v, h);
        h
    }

    fn literal(&mut self, bits: u64, kind: Kind, l: Literal) -> Handle<Expression> {
        if let Some(&h) = self.literals.get(&(bits, kind)) {
            return h;
        }
        let h = self.declare(Expression::Literal(l));
        self.literals.insert((bits, kind), h);
        h
    }
    pub fn i32(&mut self, v: i32) -> Handle<Expression> {
        self.literal(v as u32 as u64, Kind::I32, Literal::I32(v))
    }
    pub fn u32(&mut self, v: u32) -> Handle<Expression> {
        self.literal(u64::from(v), Kind::U32, Literal::U32(v))
    }
    pub fn bool(&mut self, v: bool) -> Handle<Expression> {
        self.literal(u64::from(v), Kind::Bool, Literal::Bool(v))
    }
    /// A f32 constant. Infinities and NaN have no literal: they come as bits through a variable, out of reach of
    /// constant folding, which would refuse them.
    pub fn f32(&mut self, v: f32) -> Handle<Expression> {
        if v.is_finite() {
            return self.literal(u64::from(v.to_bits()), Kind::F32, Literal::F32(v));
        }
        let u32_ty = self.lanes_ty(Kind::U32, 1);
        let var = match self.bits.get(&v.to_bits()) {
            Some(&var) => var,
            None => {
                let init = self.declare(Expression::Literal(Literal::U32(v.to_bits())));
                let name = if v.is_nan() {
                    "nan_bits"
                } else if v > 0.0 {
                    "inf_bits"
                } else {
                    "minus_inf_bits"
                };
                let var = LocalVariable { name: Some(name.into()), ty: u32_ty, init: Some(init) };
                let var = self.function.local_variables.append(var, Span::UNDEFINED);
                self.bits.insert(v.to_bits(), var);
                var
            }
        };
        let pointer = self.local(var);
        let bits = self.emit(Expression::Load { pointer });
        self.emit(Expression::As { expr: bits, kind: ScalarKind::Float, convert: None })
    }
    /// A constant of any kind with all lanes equal.
    pub fn constant(&mut self, kind: Kind, lanes: u8, v: f64) -> Value {
        let handle = match kind {
            Kind::F32 => self.f32(v as f32),
            Kind::F16 | Kind::U16 => unreachable!("arithmetic is never in 16 bits"),
            Kind::I32 => self.i32(v as i32),
            Kind::U32 => self.u32(v as u32),
            Kind::Bool => self.bool(v != 0.0),
        };
        self.splat(Value { handle, kind, lanes: 1 }, lanes)
    }
    /// `v` in `lanes` lanes.
    pub fn splat(&mut self, v: Value, lanes: u8) -> Value {
        let Some(size) = vector_size(lanes).filter(|_| v.lanes == 1) else { return v };
        let key = (v.handle, lanes);
        let handle = match self.scopes.iter().rev().find_map(|s| s.splats.get(&key)) {
            Some(&h) => h,
            None => {
                let h = self.emit(Expression::Splat { size, value: v.handle });
                self.scope().splats.insert(key, h);
                h
            }
        };
        Value { handle, lanes, ..v }
    }
    /// A vector of scalars.
    pub fn compose(&mut self, parts: &[Value]) -> Value {
        let kind = parts[0].kind;
        if parts.len() == 1 {
            return parts[0];
        }
        let lanes = parts.len() as u8;
        let ty = self.lanes_ty(kind, lanes);
        let components = parts.iter().map(|p| p.handle).collect();
        let handle = self.emit(Expression::Compose { ty, components });
        Value { handle, kind, lanes }
    }
    /// Lane `i` of a vector; a scalar is the same in all lanes.
    pub fn component(&mut self, v: Value, i: u32) -> Value {
        if v.lanes == 1 {
            return v;
        }
        let handle = self.emit(Expression::AccessIndex { base: v.handle, index: i });
        Value { handle, lanes: 1, ..v }
    }
    /// `count` lanes of a vector from `first` on.
    pub fn slice(&mut self, v: Value, first: u32, count: u8) -> Value {
        if count == v.lanes {
            return v;
        }
        let Some(size) = vector_size(count) else { return self.component(v, first) };
        use naga::SwizzleComponent::{W, X, Y, Z};
        let mut pattern = [X; 4];
        for (k, p) in pattern.iter_mut().enumerate().take(count as usize) {
            *p = [X, Y, Z, W][(first as usize + k).min(3)];
        }
        let handle = self.emit(Expression::Swizzle { size, vector: v.handle, pattern });
        Value { handle, lanes: count, ..v }
    }
    /// Brings two values to the same number of lanes.
    pub fn widen(&mut self, a: Value, b: Value) -> (Value, Value) {
        let lanes = a.lanes.max(b.lanes);
        (self.splat(a, lanes), self.splat(b, lanes))
    }
    pub fn binary(&mut self, op: BinaryOperator, a: Value, b: Value) -> Value {
        use BinaryOperator as B;
        let (a, b) = self.widen(a, b);
        let handle = self.emit(Expression::Binary { op, left: a.handle, right: b.handle });
        let test = matches!(op, B::Equal | B::NotEqual | B::Less | B::LessEqual | B::Greater | B::GreaterEqual);
        Value { handle, kind: if test { Kind::Bool } else { a.kind }, lanes: a.lanes }
    }
    pub fn unary(&mut self, op: naga::UnaryOperator, a: Value) -> Value {
        Value { handle: self.emit(Expression::Unary { op, expr: a.handle }), ..a }
    }
    pub fn math(&mut self, fun: MathFunction, args: &[Value]) -> Value {
        let lanes = args.iter().map(|a| a.lanes).max().unwrap_or(1);
        let args: Vec<Value> = args.iter().map(|a| self.splat(*a, lanes)).collect();
        let at = |i: usize| args.get(i).map(|a| a.handle);
        let handle = self.emit(Expression::Math { fun, arg: args[0].handle, arg1: at(1), arg2: at(2), arg3: at(3) });
        Value { handle, ..args[0] }
    }
    /// `if cond { a } else { b }`, both evaluated.
    pub fn select(&mut self, cond: Value, a: Value, b: Value) -> Value {
        let (a, b) = self.widen(a, b);
        let lanes = a.lanes.max(cond.lanes);
        let (a, b) = (self.splat(a, lanes), self.splat(b, lanes));
        let condition = cond.handle;
        Value { handle: self.emit(Expression::Select { condition, accept: a.handle, reject: b.handle }), ..a }
    }
    /// Numeric conversion.
    pub fn convert(&mut self, a: Value, kind: Kind) -> Value {
        if a.kind == kind {
            return a;
        }
        if kind == Kind::F16 {
            self.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16;
            // A conversion of a value that came from a half gives that half: not every driver removes the two
            // conversions.
            if let Some(half) = self.halves.get(&a.handle) {
                return *half;
            }
        }
        let s = kind.scalar();
        let handle = self.emit(Expression::As { expr: a.handle, kind: s.kind, convert: Some(s.width) });
        if a.kind == Kind::F16 {
            self.halves.insert(handle, a);
        }
        Value { handle, kind, lanes: a.lanes }
    }
    /// The same bits as another kind as wide.
    pub fn bitcast(&mut self, a: Value, kind: Kind) -> Value {
        if a.kind == kind {
            return a;
        }
        let handle = self.emit(Expression::As { expr: a.handle, kind: kind.scalar().kind, convert: None });
        Value { handle, kind, lanes: a.lanes }
    }
    /// Reads through a pointer.
    pub fn load(&mut self, pointer: Handle<Expression>, kind: Kind, lanes: u8, name: Option<&str>) -> Value {
        let handle = self.emit(Expression::Load { pointer });
        if let Some(name) = name {
            self.name(handle, name);
        }
        Value { handle, kind, lanes }
    }
    pub fn store(&mut self, pointer: Handle<Expression>, value: Handle<Expression>) {
        self.statement(Statement::Store { pointer, value });
    }
    /// A remembered load.
    pub fn remembered(&self, buffer: BufferId, key: &LoadKey) -> Option<Value> {
        let key = (buffer, key.clone());
        self.scopes.iter().rev().find_map(|s| s.loads.get(&key).copied())
    }
    pub fn remember(&mut self, buffer: BufferId, key: LoadKey, v: Value) {
        self.scope().loads.insert((buffer, key), v);
    }
    /// Forgets values that were loaded from the `changed` buffers.
    pub fn forget(&mut self, changed: &dyn Fn(BufferId) -> bool) {
        for s in &mut self.scopes {
            s.loads.retain(|(b, _), _| !changed(*b));
        }
    }
    /// A fresh local variable named after a loop.
    pub fn counter(&mut self, var: Name) -> Handle<LocalVariable> {
        let ty = self.lanes_ty(Kind::I32, 1);
        self.local_var(var.as_str(), ty)
    }
}

/// The vector type of so many lanes; none for a scalar.
pub(crate) fn vector_size(lanes: u8) -> Option<VectorSize> {
    match lanes {
        2 => Some(VectorSize::Bi),
        3 => Some(VectorSize::Tri),
        4 => Some(VectorSize::Quad),
        _ => None,
    }
}
