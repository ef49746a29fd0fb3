//! Which lines of a shader's text come from which block or loop of the tensor function.
//!
//! The builder notes a source for every expression and statement ([`SourceId`], kept in the statement's span until the module is
//! finished). naga's writer keeps their order: each statement is a line, or the head of nested lines, and an expression that
//! gets a line of its own is called `_eN` after its number or by the name that it was given. So the text is read once beside the lists.

use compiler::name::Name;
use compiler::plan::LineSpan;
use naga::{Expression, Handle, Span, Statement};

/// A block or loop, by its number among the sources of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SourceId(u32);

/// What a line comes from; nothing in particular for both `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    /// What follows comes from `source`; returns what it came from so far.
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
    /// What follows comes from what `enter` returned.
    pub fn leave(&mut self, before: SourceId) {
        self.current = before;
    }
    /// What comes now.
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
#[derive(Debug)]
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
        if line.starts_with("if ") || line == "loop {" {
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
    use compiler::name::Name;
    use compiler::plan::EmittedKernel;
    use compiler::profile::DeviceProfile;
    use compiler::schedule::apply_pending;
    use compiler::text::parse_module;

    const FUNCTION: &str = "graph @main() -> () {
  return
}
tensor @f(%x: f32[8,40], out %y: f32[8]) {
  for i in 0..8 { for k in 0..40 { block y reduce sum init { %y[i] <- %x[i, k] } } }
  schedule {
    bind {loop=i, axis=local_x}
    cut-kernel
  }
}
";

    fn emitted() -> EmittedKernel {
        let m = parse_module(FUNCTION).expect("it parses");
        let mut f = m.tensor_functions.values().next().expect("a tensor function").clone();
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

    #[test]
    fn spans_are_left_undefined() {
        let e = emitted();
        let g = e.module.downcast_ref::<crate::GeneratedModule>().expect("a module");
        let body = &g.module.entry_points[0].function.body;
        assert!(body.span_iter().all(|(_, span)| !span.is_defined()));
    }
}
