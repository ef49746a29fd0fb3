//! Maps each line of a shader's text to its block or loop of the tensor function.
//!
//! The builder records a source for every expression and statement ([`SourceId`], kept in the statement's span until
//! the module is finished). naga's writer keeps their order: each statement is a line, or the first line of nested
//! ones, and an expression with a line of its own is called `_eN` by its number, or by its given name. So the text is
//! read once in parallel with the lists.

use naga::{Expression, Handle, Span, Statement};
use rustc_hash::FxHashMap;
use tensor_ir::name::Name;
use tensor_ir::plan::LineSpan;

/// A block or loop, by its number among the sources of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct SourceId(u32);

/// The origin of a line; the whole kernel if both are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Source {
    pub block: Option<Name>,
    pub around: Option<Name>,
}

/// The sources of a kernel while it is built.
pub(crate) struct Sources {
    list: Vec<Source>,
    current: SourceId,
    expressions: Vec<SourceId>,
}

impl Sources {
    pub fn new() -> Sources {
        Sources { list: vec![Source::default()], current: SourceId(0), expressions: vec![] }
    }
    /// Sets the current source; returns the previous one.
    pub fn enter(&mut self, source: Source) -> SourceId {
        let before = self.current;
        self.current = match self.list.iter().rposition(|s| *s == source) {
            Some(at) => SourceId(at as u32),
            None => {
                self.list.push(source);
                SourceId(self.list.len() as u32 - 1)
            }
        };
        before
    }
    /// Restores the source that `enter` returned.
    pub fn leave(&mut self, before: SourceId) {
        self.current = before;
    }
    /// The current source.
    pub fn current(&self) -> Source {
        self.list[self.current.0 as usize]
    }
    /// Notes the source of the next expression.
    pub fn note(&mut self) {
        self.expressions.push(self.current);
    }
    /// The span that carries the source of a statement; undefined for the whole kernel.
    pub fn span(&self) -> Span {
        Span::new(self.current.0, self.current.0)
    }
}

/// Statements of a finished function with their sources, in the order of the text.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Outline {
    list: Vec<Source>,
    expressions: Vec<SourceId>,
    statements: Vec<SourceId>,
    named: Vec<SourceId>,
}

impl Outline {
    /// Takes the sources out of a function's spans, which are undefined afterwards.
    pub fn take(sources: Sources, function: &mut naga::Function) -> Outline {
        let Sources { list, expressions, .. } = sources;
        let mut outline = Outline { list, expressions, statements: vec![], named: vec![] };
        let named = &function.named_expressions;
        outline.block(&mut function.body, &|h| named.contains_key(&h));
        outline
    }

    fn block(&mut self, block: &mut naga::Block, named: &dyn Fn(Handle<Expression>) -> bool) {
        for (statement, span) in block.span_iter_mut() {
            let source = match span {
                Some(span) => {
                    let source = SourceId(span.to_range().map_or(0, |r| r.start as u32));
                    *span = Span::UNDEFINED;
                    source
                }
                None => SourceId::default(),
            };
            match statement {
                Statement::Emit(range) => {
                    let list = range.clone().filter(|&h| named(h));
                    let sources: Vec<SourceId> = list.map(|h| self.expressions[h.index()]).collect();
                    self.named.extend(sources);
                }
                Statement::If { accept, reject, .. } => {
                    self.statements.push(source);
                    self.block(accept, named);
                    self.block(reject, named);
                }
                Statement::Loop { body, continuing, .. } => {
                    self.statements.push(source);
                    self.block(body, named);
                    self.block(continuing, named);
                }
                Statement::Block(inner) => {
                    self.statements.push(source);
                    self.block(inner, named);
                }
                // Their results are called by number.
                Statement::SubgroupBallot { .. }
                | Statement::SubgroupGather { .. }
                | Statement::SubgroupCollectiveOperation { .. } => {}
                _ => self.statements.push(source),
            }
        }
    }

    /// The sources of the lines of `text`, which naga wrote of the function `entry`; `None` when it does not fit.
    pub fn lines(&self, text: &str, entry: &str) -> Option<Vec<LineSpan>> {
        let mut reader = Reader { outline: self, statements: 0, named: 0, open: vec![] };
        let head = format!("fn {entry}(");
        let mut lines = text.lines().enumerate().skip_while(|(_, l)| !l.starts_with(&head)).skip(1);
        let mut out: Vec<LineSpan> = Vec::new();
        for (i, line) in lines.by_ref().take_while(|(_, l)| *l != "}") {
            let source = self.list[reader.line(line.trim())?.0 as usize];
            if source == Source::default() {
                continue;
            }
            match out.last_mut() {
                Some(l) if (l.first + l.count, l.block, l.r#loop) == (i as u32, source.block, source.around) => {
                    l.count += 1;
                }
                _ => out.push(LineSpan { first: i as u32, count: 1, block: source.block, r#loop: source.around }),
            }
        }
        (reader.statements == self.statements.len() && reader.named == self.named.len()).then_some(out)
    }
}

impl Outline {
    /// The sources as lines of an imagined text: number 0 is the whole kernel.
    pub fn sources(&self) -> Vec<LineSpan> {
        let span = |(i, s): (usize, &Source)| LineSpan { first: i as u32, count: 1, block: s.block, r#loop: s.around };
        self.list.iter().enumerate().map(span).collect()
    }
    /// The body with the number of its source as the span of each statement. Every expression is emitted by itself.
    pub fn spanned(&self, body: &naga::Block) -> naga::Block {
        self.spanned_from(body, &mut 0)
    }
    fn spanned_from(&self, block: &naga::Block, next: &mut usize) -> naga::Block {
        let span = |id: SourceId| Span::new(id.0, id.0);
        let of = |h: Handle<Expression>| span(self.expressions.get(h.index()).copied().unwrap_or_default());
        let of_statement = |next: &mut usize| {
            *next += 1;
            span(self.statements.get(*next - 1).copied().unwrap_or_default())
        };
        let mut out = naga::Block::with_capacity(block.len());
        for statement in block.iter() {
            match statement {
                Statement::Emit(range) => {
                    range.clone().for_each(|h| out.push(Statement::Emit(naga::Range::new_from_bounds(h, h)), of(h)));
                }
                Statement::If { condition, accept, reject } => {
                    let span = of_statement(next);
                    let [accept, reject] = [accept, reject].map(|b| self.spanned_from(b, next));
                    out.push(Statement::If { condition: *condition, accept, reject }, span);
                }
                Statement::Block(inner) => {
                    let span = of_statement(next);
                    let inner = self.spanned_from(inner, next);
                    out.push(Statement::Block(inner), span);
                }
                Statement::Loop { body, continuing, break_if } => {
                    let span = of_statement(next);
                    let [body, continuing] = [body, continuing].map(|b| self.spanned_from(b, next));
                    out.push(Statement::Loop { body, continuing, break_if: *break_if }, span);
                }
                Statement::SubgroupBallot { result, .. }
                | Statement::SubgroupGather { result, .. }
                | Statement::SubgroupCollectiveOperation { result, .. } => out.push(statement.clone(), of(*result)),
                other => out.push(other.clone(), of_statement(next)),
            }
        }
        out
    }
}

/// The sources of the lines of `text`, the kernel in another language; `wgsl` is its WGSL with the sources `known`.
/// naga's writers use the same names of values in all languages. So a line that defines a value has the source of that
/// value; any other line has the source of the last value that it uses.
pub fn lines_by_names(wgsl: &str, known: &[LineSpan], text: &str) -> Vec<LineSpan> {
    let mut sources: FxHashMap<&str, Source> = FxHashMap::default();
    let lines: Vec<&str> = wgsl.lines().collect();
    for span in known {
        let source = Source { block: span.block, around: span.r#loop };
        for line in lines.iter().skip(span.first as usize).take(span.count as usize) {
            if let Some(name) = line.trim().strip_prefix("let ").and_then(|l| l.split([' ', ':']).next()) {
                sources.insert(name, source);
            }
        }
    }
    let mut out: Vec<LineSpan> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let words = || line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let defined = line.split_once(" = ").and_then(|(left, _)| left.split(' ').next_back());
        let source =
            defined.and_then(|n| sources.get(n)).or_else(|| words().filter_map(|w| sources.get(w)).next_back());
        let Some(source) = source else { continue };
        match out.last_mut() {
            Some(l) if (l.first + l.count, l.block, l.r#loop) == (i as u32, source.block, source.around) => {
                l.count += 1
            }
            _ => out.push(LineSpan { first: i as u32, count: 1, block: source.block, r#loop: source.around }),
        }
    }
    out
}

/// Where the text is in the outline.
struct Reader<'a> {
    outline: &'a Outline,
    statements: usize,
    named: usize,
    open: Vec<SourceId>,
}

impl Reader<'_> {
    fn statement(&mut self) -> Option<SourceId> {
        self.statements += 1;
        self.outline.statements.get(self.statements - 1).copied()
    }

    fn line(&mut self, line: &str) -> Option<SourceId> {
        let whole = SourceId::default();
        if let Some(rest) = line.strip_prefix("let ") {
            let name = rest.split([' ', ':']).next()?;
            if let Some(number) = name.strip_prefix("_e").and_then(|n| n.parse::<usize>().ok()) {
                return self.outline.expressions.get(number).copied();
            }
            self.named += 1;
            return self.outline.named.get(self.named - 1).copied();
        }
        if line.starts_with("if ") || line == "loop {" || line == "{" {
            let source = self.statement()?;
            self.open.push(source);
            return Some(source);
        }
        if line == "continuing {" {
            let source = *self.open.last()?;
            self.open.push(source);
            return Some(source);
        }
        match line {
            "" => Some(whole),
            "}" => self.open.pop(),
            "} else {" => self.open.last().copied(),
            _ if line.starts_with("break if ") => self.open.last().copied(),
            _ if line.starts_with("var ") => Some(whole),
            _ => self.statement(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tensor_ir::name::Name;
    use tensor_ir::plan::EmittedKernel;
    use tensor_ir::profile::DeviceProfile;
    use tensor_ir::schedule::apply_pending;
    use tensor_ir::text::parse_tensor_function;

    const FUNCTION: &str = "tensor @f(%x: f32[8,40], out %y: f32[8]) {
  for i in 0..8 { for k in 0..40 { block y reduce sum init { %y[i] <- %x[i, k] } } }
  schedule {
    bind {loop=i, axis=local_x}
    cut-kernel
  }
}
";

    fn emitted() -> EmittedKernel {
        let mut f = parse_tensor_function(FUNCTION).expect("it parses");
        apply_pending(&mut f).expect("it schedules");
        let kernel = f.kernels()[0].0;
        crate::emit_kernel(&f, kernel, &DeviceProfile::baseline()).expect("it is emitted")
    }

    #[test]
    fn lines_lead_to_blocks_and_loops() {
        let e = emitted();
        let source = |text: &str| {
            let at =
                e.wgsl.lines().position(|l| l.contains(text)).unwrap_or_else(|| panic!("{text}: {}", e.wgsl)) as u32;
            let found = e.lines.iter().find(|l| (l.first..l.first + l.count).contains(&at));
            found.map(|l| (l.block, l.r#loop))
        };
        let name = |n: &str| Some(Name::new(n));
        let head = source("loop {").expect("the loop");
        assert_eq!(head, (name("y"), name("k")), "{}", e.wgsl);
        assert_eq!(source("break if"), Some(head));
        assert_eq!(source("y_1["), Some((name("y"), name("k"))), "{}", e.wgsl);
        assert_eq!(source("fn "), None);
        assert_eq!(source("var<storage> x"), None);
        assert!(e.lines.windows(2).all(|w| w[0].first + w[0].count <= w[1].first));
    }

    /// The block and loop of each `OpLine` of a kernel's SPIR-V with the opcode behind it.
    fn marked(e: &EmittedKernel) -> Vec<(u32, Option<Name>)> {
        let g = e.module.downcast_ref::<crate::GeneratedModule>().expect("a module");
        let (words, sources) = g.emit_spirv_with_lines().expect("SPIR-V");
        let (mut at, mut line, mut out) = (5, 0, vec![]);
        while at < words.len() {
            let (count, op) = ((words[at] >> 16) as usize, words[at] & 0xffff);
            match op {
                8 => line = words[at + 2] as usize,
                op => out.push((op, sources.get(line.wrapping_sub(1)).and_then(|s| s.block))),
            }
            at += count;
        }
        out
    }

    #[test]
    fn words_lead_to_blocks_too() {
        let list = marked(&emitted());
        const STORE: u32 = 62;
        const LOOP_MERGE: u32 = 246;
        let of = |wanted: u32| list.iter().filter(move |(op, _)| *op == wanted).map(|(_, block)| *block);
        assert!(of(LOOP_MERGE).all(|b| b == Some(Name::new("y"))), "{list:?}");
        assert!(of(STORE).any(|b| b == Some(Name::new("y"))), "{list:?}");
    }

    #[test]
    fn other_languages_have_the_same_names() {
        let e = emitted();
        let g = e.module.downcast_ref::<crate::GeneratedModule>().expect("a module");
        for text in [g.emit_msl().expect("MSL"), g.emit_hlsl().expect("HLSL")] {
            let lines = super::lines_by_names(&e.wgsl, &e.lines, &text);
            let store = text.lines().position(|l| l.contains("y_1[") && l.contains(" = ") || l.contains("y_1.Store"));
            let store = store.unwrap_or_else(|| panic!("no store: {text}")) as u32;
            let found = lines.iter().find(|l| (l.first..l.first + l.count).contains(&store));
            assert_eq!(found.map(|l| l.block), Some(Some(Name::new("y"))), "{text}");
        }
    }

    #[test]
    fn spans_are_left_undefined() {
        let e = emitted();
        let g = e.module.downcast_ref::<crate::GeneratedModule>().expect("a module");
        let body = &g.module.entry_points[0].function.body;
        assert!(body.span_iter().all(|(_, span)| !span.is_defined()));
    }
}
