//! Graph functions.

use super::constants::MissingData;
use super::{ModuleParser, Parser, Result};
use crate::arena::Id;
use crate::attr::Attr;
use crate::graph::{Block, BlockId, Constant, Function, Module, Node, NodeId, Origins, TensorType, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::control::Const;
use crate::ops::{InferContext, OPS, OpRef, find_op};
use crate::tensor::ConstData;
use crate::text::print::{default_node_name, symbol_attr};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use tensor_ir::text::lexer::Tok;
use tensor_ir::text::parse::suggest;

/// A function under construction.
struct Scope<'m> {
    module: &'m mut Module,
    f: Function,
    /// Values by what follows `%`; numbers and names never collide.
    values: FxHashMap<Key, ValueId>,
    /// Nodes begun so far, in text order.
    nodes: usize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Key {
    Number(String),
    Named(Name),
}

/// A value where it is defined: `%x` or `%3("x")`.
struct Definition {
    key: Key,
    name: Option<Name>,
    at: usize,
}

/// What stands after the types: `!name("x") !from("a", "b")`, or `!for("a", "b")`.
#[derive(Default)]
struct Metadata {
    name: Option<Name>,
    origins: Origins,
}

impl Definition {
    fn parse(p: &mut Parser<'_>) -> Result<Definition> {
        let at = p.at();
        match p.peek().clone() {
            Tok::Value(n) => {
                p.skip();
                let name = Name::new(&n);
                Ok(Definition { key: Key::Named(name), name: Some(name), at })
            }
            Tok::Number(n) => {
                p.skip();
                let mut name = None;
                if p.eat_punct("(") {
                    name = Some(Name::new(&p.string()?));
                    p.expect_punct(")")?;
                }
                Ok(Definition { key: Key::Number(n), name, at })
            }
            _ => p.expected("a value `%...`"),
        }
    }
}

impl Scope<'_> {
    fn define(&mut self, p: &Parser<'_>, d: &Definition, ty: TensorType, def: ValueDef) -> Result<ValueId> {
        let v = self.f.fresh_value(ty, def, d.name);
        if self.values.insert(d.key.clone(), v).is_some() {
            return p.error_at(d.at, "this value is defined twice");
        }
        Ok(v)
    }
    fn value_use(&self, p: &mut Parser<'_>) -> Result<ValueId> {
        let (key, text) = match p.peek() {
            Tok::Value(n) => (Key::Named(Name::new(n)), n),
            Tok::Number(n) => (Key::Number(n.clone()), n),
            _ => return p.expected("a value `%...`"),
        };
        match self.values.get(&key) {
            Some(&v) => {
                p.skip();
                Ok(v)
            }
            None => p.error(format!("there is no value %{text} before this line")),
        }
    }
}

impl ModuleParser<'_> {
    /// After `graph`.
    pub(super) fn graph_function(&mut self, m: &mut Module) -> Result<()> {
        let at = self.at();
        let name = self.global()?;
        self.check_fresh(m, name, at)?;
        let mut s = Scope { module: m, f: Function::new(name), values: FxHashMap::default(), nodes: 0 };
        let body = s.f.body;
        self.block_args(&mut s, body)?;
        self.expect_punct("->")?;
        self.result_types(&mut s.f)?;
        s.f.primitive = self.eat_word("primitive");
        // A function that this one calls may call it: then the declared types are enough.
        s.module.functions.insert(name, s.f.clone());
        self.expect_punct("{")?;
        self.block(&mut s, body, "return")?;
        if s.f.blocks[body].results.len() != s.f.result_types.len() {
            let (declared, got) = (s.f.result_types.len(), s.f.blocks[body].results.len());
            return self.error_at(at, format!("@{name} declares {declared} results and returns {got}"));
        }
        let f = s.f;
        m.functions.insert(name, f);
        Ok(())
    }
    /// `f32[4]`, or `(y: f32[4], f32[2])`.
    fn result_types(&mut self, f: &mut Function) -> Result<()> {
        let list = if self.eat_punct("(") {
            self.list(")", |p| {
                let named = *p.peek_second() == Tok::Punct(":");
                let name = if named { p.name("a result's name")? } else { Name::new("") };
                if named {
                    p.expect_punct(":")?;
                }
                Ok((name, p.tensor_type()?))
            })?
        } else {
            vec![(Name::new(""), self.tensor_type()?)]
        };
        (f.result_names, f.result_types) = list.into_iter().unzip();
        Ok(())
    }
    /// `(%x: f32[4], %y: i64[])`
    fn block_args(&mut self, s: &mut Scope<'_>, block: BlockId) -> Result<()> {
        self.expect_punct("(")?;
        self.list(")", |p| {
            let def = Definition::parse(p)?;
            p.expect_punct(":")?;
            let ty = p.tensor_type()?;
            let index = s.f.blocks[block].args.len();
            let v = s.define(p, &def, ty, ValueDef::Arg(block, index))?;
            s.f.blocks[block].args.push(v);
            Ok(())
        })?;
        Ok(())
    }
    /// Statements up to the terminator and the closing brace.
    fn block(&mut self, s: &mut Scope<'_>, block: BlockId, terminator: &str) -> Result<()> {
        loop {
            if self.eat_word(terminator) {
                let mut results = Vec::new();
                if !self.is_punct("}") && !self.at_line_start() {
                    results = self.comma_separated(|p| s.value_use(p))?;
                }
                s.f.blocks[block].results = results;
                return self.expect_punct("}");
            }
            if self.is_punct("}") {
                return self.expected(&format!("`{terminator}`"));
            }
            self.node(s, block)?;
        }
    }
    fn node(&mut self, s: &mut Scope<'_>, block: BlockId) -> Result<()> {
        let place = s.nodes;
        s.nodes += 1;
        let mut outputs = Vec::new();
        if matches!(self.peek(), Tok::Value(_) | Tok::Number(_)) {
            outputs = self.comma_separated(Definition::parse)?;
            self.expect_punct("=")?;
        }
        let at = self.at();
        let op = self.op_name()?;
        let symbol =
            if matches!(self.peek(), Tok::Global(_)) && !self.at_line_start() { Some(self.global()?) } else { None };
        let inputs = self.operands(s)?;
        let op = self.op(at, &op, symbol)?;
        if let (Some(symbol), false) = (symbol, self.is_punct(":")) {
            self.item_ahead(s.module, symbol)?;
        }
        let types = self.node_types(s, at, &op, &inputs, outputs.len())?;
        let meta = self.metadata()?;
        let mut regions = Vec::new();
        while !self.at_line_start() && (self.is_punct("(") || self.is_punct("{")) {
            regions.push(self.region(s)?);
        }
        self.declare_constant(s, &op, &types);
        let id = NodeId::from_index(s.f.nodes.len());
        let mut values = Vec::new();
        for (i, (def, ty)) in outputs.iter().zip(types).enumerate() {
            values.push(s.define(self, def, ty, ValueDef::Result(id, i))?);
        }
        for &r in &regions {
            s.f.blocks[r].owner = Some(id);
        }
        let name = meta.name.unwrap_or_else(|| default_node_name(op.name(), meta.origins.names(), place));
        s.f.nodes.push(Node { op, inputs, outputs: values, regions, name, origins: meta.origins, block: Some(block) });
        s.f.blocks[block].nodes.push(id);
        Ok(())
    }
    fn op_name(&mut self) -> Result<String> {
        match self.peek().clone() {
            Tok::Word(w) => {
                self.skip();
                Ok(w)
            }
            _ => self.expected("an op"),
        }
    }
    fn operands(&mut self, s: &Scope<'_>) -> Result<Vec<Option<ValueId>>> {
        let starts = matches!(self.peek(), Tok::Value(_) | Tok::Number(_)) || self.is_word("_");
        if !starts || self.at_line_start() {
            return Ok(vec![]);
        }
        self.comma_separated(|p| if p.eat_word("_") { Ok(None) } else { s.value_use(p).map(Some) })
    }
    fn op(&mut self, at: usize, name: &str, symbol: Option<Name>) -> Result<OpRef> {
        let Some(def) = find_op(name) else {
            return self.error_at(at, format!("there is no op `{name}`{}", suggest(name, OPS.iter().map(|d| d.name))));
        };
        let mut attrs = self.attrs()?;
        if let Some(symbol) = symbol {
            let Some(key) = symbol_attr(name) else {
                return self.error_at(at, format!("`{name}` takes no global name"));
            };
            attrs.insert(key.to_string(), Attr::Str(symbol.to_string()));
        }
        match (def.from_attrs)(&attrs) {
            Ok(op) => Ok(op),
            Err(message) => self.error_at(at, message),
        }
    }
    /// `: f32[4], f32[2]`, or inferred where nothing is written.
    fn node_types(
        &mut self,
        s: &Scope<'_>,
        at: usize,
        op: &OpRef,
        inputs: &[Option<ValueId>],
        outputs: usize,
    ) -> Result<Vec<TensorType>> {
        let types = if !self.eat_punct(":") {
            infer(s, op, inputs).or_else(|message| {
                self.error_at(at, format!("the result types cannot be inferred, write them after `:` ({message})"))
            })?
        } else if self.eat_punct("(") {
            self.expect_punct(")")?;
            vec![]
        } else {
            self.comma_separated(|p| p.tensor_type())?
        };
        if types.len() != outputs {
            return self.error_at(at, format!("{} result types for {outputs} results", types.len()));
        }
        Ok(types)
    }
    fn metadata(&mut self) -> Result<Metadata> {
        let mut out = Metadata::default();
        while self.eat_punct("!") {
            if self.eat_word("name") {
                self.expect_punct("(")?;
                out.name = Some(Name::new(&self.string()?));
                self.expect_punct(")")?;
            } else if self.eat_word("from") {
                out.origins = self.origins()?;
            } else if self.eat_word("for") {
                out.origins = self.origins()?.serving();
            } else {
                return self.expected("`name`, `from` or `for`");
            }
        }
        Ok(out)
    }
    fn origins(&mut self) -> Result<Origins> {
        self.expect_punct("(")?;
        let names = self.list(")", |p| p.string())?;
        Ok(Origins::from_names(names.iter().map(|n| Name::new(n))))
    }
    fn region(&mut self, s: &mut Scope<'_>) -> Result<BlockId> {
        let block = s.f.blocks.push(Block::default());
        self.nested(|p| {
            if p.is_punct("(") {
                p.block_args(s, block)?;
            }
            p.expect_punct("{")?;
            p.block(s, block, "yield")
        })?;
        Ok(block)
    }
    /// A constant that only a node names is declared by it, without data.
    fn declare_constant(&self, s: &mut Scope<'_>, op: &OpRef, types: &[TensorType]) {
        let Some(c) = op.downcast::<Const>() else { return };
        let [ty] = types else { return };
        let m = &mut *s.module;
        let known = m.constants.contains_key(&c.name)
            || m.functions.contains_key(&c.name)
            || m.tensor_functions.contains_key(&c.name)
            || self.constant_follows(c.name);
        if let (false, Some(shape)) = (known, ty.const_shape()) {
            let data = ConstData::Lazy(Arc::new(MissingData(c.name)));
            m.constants.insert(c.name, Constant { dtype: ty.dtype, shape, data });
        }
    }
    /// True when a declaration of `name` stands further down.
    fn constant_follows(&self, name: Name) -> bool {
        self.tokens()[self.at()..].windows(3).any(|w| {
            w[0].first
                && w[0].tok == Tok::Word("const".to_string())
                && w[1].tok == Tok::Global(name.to_string())
                && w[2].tok == Tok::Punct(":")
        })
    }
}

/// Inference where the text leaves types out. Only over operands of a sane size: inference may multiply dimensions.
fn infer(s: &Scope<'_>, op: &OpRef, inputs: &[Option<ValueId>]) -> std::result::Result<Vec<TensorType>, String> {
    if let Some(v) = inputs.iter().flatten().find(|v| !s.f.ty(**v).is_sane()) {
        return Err(format!("{:?} is no type", s.f.ty(*v)));
    }
    let (low, high) = op.arity();
    if inputs.len() < low || inputs.len() > high {
        return Err(format!("{} operands", inputs.len()));
    }
    Ok(op.infer(&InferContext::new(s.module, &s.f, inputs, &[]))?)
}
