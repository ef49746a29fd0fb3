//! Templates of schedules: see [`Template`].

use super::{Parser, Result, describe, suggest};
use crate::attr::Attr;
use crate::name::Name;
use crate::schedule::template::{EXTENT, MOST_INSTANCES, NestPattern, Piece, Template, TemplateLine, TemplateValue};
use crate::schedule::{INSTRUCTIONS, find_instruction};
use crate::text::ParseError;
use crate::text::lexer::Tok;

/// Parses a file of templates.
///
/// # Errors
/// The first thing that is wrong, with its place: also an instruction that could take none of the values.
pub fn parse_templates(source: &str) -> Result<Vec<Template>, ParseError> {
    let mut p = Parser::new(source)?;
    let mut out: Vec<Template> = Vec::new();
    while *p.peek() != Tok::End {
        let at = p.at;
        let template = p.template()?;
        if out.iter().any(|t| t.name == template.name) {
            return p.error_at(at, format!("there are two templates `{}`", template.name));
        }
        out.push(template);
    }
    if out.is_empty() { p.expected("`template`") } else { Ok(out) }
}

/// The kinds of variables that are known so far.
#[derive(Default)]
struct Variables {
    loops: Vec<Name>,
    blocks: Vec<Name>,
    domains: Vec<(Name, Vec<Attr>)>,
    used: Vec<String>,
}

impl Variables {
    fn names(&self) -> impl Iterator<Item = Name> + '_ {
        self.loops.iter().chain(&self.blocks).copied().chain(self.domains.iter().map(|d| d.0))
    }
    fn has(&self, name: &str) -> bool {
        self.names().any(|n| n.as_str() == name)
    }
    /// A value of the right kind; of the `n`th domain, counted through all of them, another one.
    fn sample(&self, name: &str, pick: (usize, usize)) -> Option<Attr> {
        if let Some(of) = name.strip_suffix(EXTENT) {
            return self.loops.iter().any(|l| l.as_str() == of).then_some(Attr::Int(1));
        }
        match self.domains.iter().position(|d| d.0.as_str() == name) {
            Some(n) => self.domains[n].1.get(if n == pick.0 { pick.1 } else { 0 }).cloned(),
            None => self.has(name).then(|| Attr::Str(name.to_string())),
        }
    }
}

impl Parser<'_> {
    fn template(&mut self) -> Result<Template> {
        self.expect_word("template")?;
        let name = self.dashed("the template's name")?;
        self.expect_punct("{")?;
        let mut known = Variables::default();
        let mut nests = Vec::new();
        while self.eat_word("for") {
            nests.push(self.nest_pattern(&mut known)?);
        }
        if nests.is_empty() {
            return self.expected("`for`, which begins the pattern of the functions");
        }
        let at = self.at;
        let conditions = if self.eat_word("where") {
            self.expect_punct("(")?;
            self.variables = true;
            let list = self.list(")", |p| p.cond());
            self.variables = false;
            list?
        } else {
            vec![]
        };
        let end = self.at;
        while matches!(self.peek(), Tok::Template(_)) {
            let name = self.new_variable(&known)?;
            self.expect_word("in")?;
            let at = self.at;
            let domain = match self.attr()? {
                Attr::List(list) if !list.is_empty() => list,
                _ => return self.error_at(at, "a domain is a list of values: `[4, 8, 16]`"),
            };
            known.domains.push((name, domain));
        }
        let instances = known.domains.iter().try_fold(1usize, |n, d| n.checked_mul(d.1.len()));
        if instances.is_none_or(|n| n > MOST_INSTANCES) {
            return self.error(format!("the domains have more than {MOST_INSTANCES} lists of values"));
        }
        self.check_conditions(at..end, &mut known)?;
        self.expect_word("schedule")?;
        self.expect_punct("{")?;
        let at = self.at;
        let mut lines = Vec::new();
        while !self.eat_punct("}") {
            lines.push(self.template_line(&mut known)?);
        }
        if lines.is_empty() {
            return self.error_at(at, "the schedule has no instruction");
        }
        if let Some((unused, _)) = known.domains.iter().find(|d| !known.used.iter().any(|u| d.0.as_str() == u)) {
            return self.error_at(at, format!("`${unused}` has a domain and is not used in the schedule"));
        }
        self.expect_punct("}")?;
        Ok(Template { name, nests, conditions, domains: known.domains, lines })
    }

    /// After `for`: `$i, $j { block $y reduce sum }`.
    fn nest_pattern(&mut self, known: &mut Variables) -> Result<NestPattern> {
        let mut loops = Vec::new();
        while !self.is_punct("{") {
            let name = self.variable("a loop `$name`")?;
            if known.blocks.contains(&name) {
                return self.error_at(self.at - 1, format!("`${name}` is a block already"));
            }
            loops.push(name);
            if !self.eat_punct(",") {
                break;
            }
        }
        self.expect_punct("{")?;
        self.expect_word("block")?;
        known.loops.extend(&loops);
        let block = self.variable("a block `$name`")?;
        if known.loops.contains(&block) {
            return self.error_at(self.at - 1, format!("`${block}` is a loop already"));
        }
        known.blocks.push(block);
        let reduce = if self.eat_word("reduce") { Some(self.combiner()?) } else { None };
        self.expect_punct("}")?;
        Ok(NestPattern { loops, block, reduce })
    }

    /// `$name`.
    fn variable(&mut self, what: &str) -> Result<Name> {
        match self.peek() {
            Tok::Template(pieces) => match pieces.as_slice() {
                [Piece::Variable(v)] => {
                    let name = Name::new(v);
                    self.skip();
                    Ok(name)
                }
                _ => self.expected(what),
            },
            _ => self.expected(what),
        }
    }
    fn new_variable(&mut self, known: &Variables) -> Result<Name> {
        let at = self.at;
        let name = self.variable("a variable `$name`")?;
        match known.has(name.as_str()) {
            true => self.error_at(at, format!("`${name}` stands for something else already")),
            false => Ok(name),
        }
    }

    /// The variables of `where`, whose tokens are given: loops, and variables with domains of whole numbers.
    fn check_conditions(&self, tokens: std::ops::Range<usize>, known: &mut Variables) -> Result<()> {
        for at in tokens {
            match &self.tokens[at].tok {
                Tok::Template(pieces) => {
                    let [Piece::Variable(v)] = pieces.as_slice() else {
                        return self.error_at(at, "a condition is about extents `$loop` and values `$name`");
                    };
                    let of_numbers =
                        |d: &(Name, Vec<Attr>)| d.0.as_str() == v && d.1.iter().all(|a| matches!(a, Attr::Int(_)));
                    let is_loop = known.loops.iter().any(|l| l.as_str() == v);
                    if !is_loop && !known.domains.iter().any(of_numbers) {
                        let why = "is neither a loop nor a variable with whole numbers";
                        return self.error_at(at, format!("`${v}` {why}"));
                    }
                }
                Tok::Word(w) if !matches!(w.as_str(), "where" | "min" | "max") => {
                    return self.error_at(at, format!("`{w}` means nothing here; a loop's extent is `$loop`"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn template_line(&mut self, known: &mut Variables) -> Result<TemplateLine> {
        let at = self.at;
        let name = self.dashed("a schedule instruction or `}`")?;
        let Some(def) = find_instruction(&name) else {
            let near = suggest(&name, INSTRUCTIONS.iter().map(|d| d.name));
            return self.error_at(at, format!("there is no schedule instruction `{name}`{near}"));
        };
        let mut attrs: Vec<(String, TemplateValue)> = Vec::new();
        if self.is_punct("{") && !self.at_line_start() {
            self.skip();
            self.list("}", |p| {
                let at = p.at;
                let key = p.name("an attribute")?.to_string();
                p.expect_punct("=")?;
                let value = p.template_value(known)?;
                if attrs.iter().any(|a| a.0 == key) {
                    return p.error_at(at, format!("attribute `{key}` is given twice"));
                }
                attrs.push((key, value));
                Ok(())
            })?;
        }
        let line = TemplateLine { line: self.line_of(at), def, attrs };
        // With every value once, so that a value of the wrong kind is found here.
        let mut picks = vec![(usize::MAX, 0)];
        picks.extend(known.domains.iter().enumerate().flat_map(|(n, d)| (1..d.1.len()).map(move |v| (n, v))));
        for pick in picks {
            if let Err(message) = line.fill(&|v| known.sample(v, pick)) {
                return self.error_at(at, message);
            }
        }
        Ok(line)
    }

    fn template_value(&mut self, known: &mut Variables) -> Result<TemplateValue> {
        match self.peek().clone() {
            Tok::Template(pieces) => {
                for piece in &pieces {
                    let Piece::Variable(v) = piece else { continue };
                    let extent = v.strip_suffix(EXTENT).is_some_and(|of| known.loops.iter().any(|l| l.as_str() == of));
                    if !extent && !known.has(v) {
                        let all: Vec<String> = known.names().map(|n| format!("${n}")).collect();
                        let found = describe(self.peek());
                        return self
                            .error(format!("{found}: there is no variable `${v}`; there are {}", all.join(", ")));
                    }
                    known.used.push(v.clone());
                }
                self.skip();
                Ok(TemplateValue::Word(pieces))
            }
            Tok::Punct("[") => self.nested(|p| {
                p.skip();
                Ok(TemplateValue::List(p.list("]", |p| p.template_value(known))?))
            }),
            _ => Ok(TemplateValue::Plain(self.attr()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::DeviceProfile;
    use crate::schedule::testing::{assert_same, matmul};

    const TILE: &str = "; A tile of results for each thread.
template tile {
  for $i, $j, $k { block $mm reduce sum }
  for $p, $q { block $y }
  where ($q % $columns == 0, $k >= 4)
  $rows in [2, 4]
  $columns in [2, 4]
  schedule {
    split {loop=$p, factors=[0,$rows], into=[p_o,p_i]}
    split {loop=$q, factors=[0,$columns], into=[q_o,q_v]}
    reorder {loops=[p_o,q_o,p_i,q_v]}
    bind {loop=p_o, axis=group_x}
    bind {loop=q_o}
    compute-at {block=$mm, at=q_o}
    reorder {loops=[$k,${mm}_p_i,${mm}_q_v]}
    decompose-reduction {block=$mm, at=$k}
    vectorize {loop=${mm}_q_v}
    cut-kernel
  }
}
";

    fn one(text: &str) -> Template {
        parse_templates(text).unwrap_or_else(|e| panic!("{e}")).remove(0)
    }

    #[test]
    fn each_instance_schedules_what_it_takes() {
        let (f, profile) = (matmul(8, 12, 6), DeviceProfile::lavapipe());
        let template = one(TILE);
        let found = template.matches(&f, &[], (&profile).into()).expect("it takes a product");
        let all: Vec<Vec<usize>> = template.instances(&found).collect();
        assert_eq!(all.len(), 4);
        for at in &all {
            let done = template.schedule(&found, at, &[], (&profile).into()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(done.function.kernels().len(), 1);
            assert_same(&f, &done.function);
        }
        assert_eq!(template.describe(&all[1]), "rows 2, columns 4");
        assert_eq!(template.neighbours(&found, &all[0]), [vec![0, 1], vec![1, 0]]);
        // 10 columns are no multiple of 4.
        let found = template.matches(&matmul(8, 10, 6), &[], (&profile).into()).expect("a product");
        assert_eq!(template.instances(&found).collect::<Vec<_>>(), [[0, 0], [1, 0]]);
        assert!(template.matches(&matmul(8, 12, 3), &[], (&profile).into()).is_none());
    }

    #[test]
    fn an_extent_may_be_a_part_of_a_name() {
        let (f, profile) = (matmul(8, 12, 6), DeviceProfile::lavapipe());
        let template =
            one(&TILE.replace("into=[p_o,p_i]", "into=[p_o,tile_${k.extent}]").replace("q_o,p_i,", "q_o,tile_6,"));
        let template = Template { lines: template.lines.into_iter().take(3).collect(), ..template };
        let found = template.matches(&f, &[], (&profile).into()).expect("it takes a product");
        let e = template.schedule(&found, &[0, 0], &[], (&profile).into()).expect_err("there are no kernels");
        assert!(e.to_string().contains("for tile_6 in 2") && e.to_string().contains("no kernels"), "{e}");
    }

    #[test]
    fn choices_alone_are_for_the_rules() {
        let (f, profile) = (matmul(8, 12, 6), DeviceProfile::lavapipe());
        let template = one("template by-rule {
  for $i, $j, $k { block $mm reduce sum }
  for $p, $q { block $y }
  $vector in [1, 2]
  schedule {
    choose {unit=$mm, point=rule, value=direct}
    choose {unit=$mm, point=vector, value=$vector}
  }
}");
        let found = template.matches(&f, &[], (&profile).into()).expect("it takes a product");
        for at in template.instances(&found) {
            let done = template.schedule(&found, &at, &[], (&profile).into()).unwrap_or_else(|e| panic!("{e}"));
            assert_same(&f, &done.function);
        }
    }

    #[test]
    fn an_instruction_that_does_not_apply_is_named_by_its_line() {
        let (f, profile) = (matmul(8, 12, 6), DeviceProfile::lavapipe());
        let template = one(&TILE.replace("vectorize {loop=${mm}_q_v}", "vectorize {loop=${mm}_q}"));
        let found = template.matches(&f, &[], (&profile).into()).expect("it takes a product");
        let e = template.schedule(&found, &[0, 0], &[], (&profile).into()).expect_err("no such loop");
        assert_eq!(e.line, Some(17));
        assert!(e.to_string().starts_with("line 17: vectorize {loop=mm_q}: "), "{e}");
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        let broken = |from: &str, to: &str| {
            let text = TILE.replace(from, to);
            assert_ne!(text, TILE, "{from}");
            let e = parse_templates(&text).expect_err(to);
            format!("{}:{}: {}", e.line, e.column, e.message)
        };
        for (from, to, want) in [
            ("factors=[0,$rows]", "factors=[0,$rose]", "9:32: `$rose`: there is no variable `$rose`; there are $i"),
            (
                "bind {loop=q_o}",
                "bond {loop=q_o}",
                "13:5: there is no schedule instruction `bond` (did you mean `bind`",
            ),
            ("$rows in [2, 4]", "$rows in [2, wide]", "9:5: "),
            ("factors=[0,$rows]", "factors=[0,$rows,$y.extent]", "9:38: `$y.extent`: there is no variable `$y.extent`"),
            ("$rows in [2, 4]", "$rows in 2", "6:12: a domain is a list of values"),
            ("$rows in", "$k in", "6:3: `$k` stands for something else already"),
            ("$k >= 4", "$kk >= 4", "5:30: `$kk` is neither a loop nor a variable with whole numbers"),
            ("$k >= 4", "k >= 4", "5:30: `k` means nothing here"),
            ("block $y", "block y", "4:22: expected a block `$name`, found `y`"),
            ("$mm reduce sum", "$mm reduce mean", "3:37: expected `sum`, `prod`, `max` or `min`"),
            ("for $i", "fur $i", "3:3: expected `for`, which begins the pattern"),
            ("factors=[0,$rows]", "factors=[0,2]", "9:5: `$rows` has a domain and is not used in the schedule"),
            ("template tile", "tile", "2:1: expected `template`, found `tile`"),
        ] {
            let got = broken(from, to);
            assert!(got.starts_with(want), "{got}\n{want}");
        }
        assert!(parse_templates("").is_err());
        assert!(parse_templates(&format!("{TILE}{TILE}")).is_err());
        let many = "$rows in [".to_string() + &"2, ".repeat(5000) + "4]";
        assert!(broken("$rows in [2, 4]", &many).contains("more than 4096 lists of values"));
    }
}
