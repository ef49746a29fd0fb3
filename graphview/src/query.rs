//! Finding boxes: `op:conv dtype:f16 time>0.1ms fused:no name:layer3`.
//!
//! A query is a list of terms that must all hold. A term is `field:text` (the field contains the text, ignoring case),
//! `field=text` (it equals the text), a comparison with a number (`time>0.1ms`, `error<=1e-3`, `flops>1G`), or a word,
//! which is searched in op, name and source nodes. `-` before a term negates it; `"..."` quotes spaces.

use crate::picture::Node;

/// The properties of a box that a query may test.
pub struct Subject<'a> {
    /// The box.
    pub node: &'a Node,
    /// Milliseconds on a device.
    pub time: Option<f64>,
    /// Relative error.
    pub error: Option<f64>,
    /// Floating-point operations of its groups.
    pub flops: Option<f64>,
    /// Bytes that its groups read and write.
    pub bytes: Option<f64>,
    /// It is in a kernel with other ops.
    pub fused: bool,
    /// `kernel`, `view` or `host`; empty before fusion.
    pub runs: &'a str,
    /// Names of its kernels.
    pub kernels: &'a [String],
}

/// Fields, and what they are.
pub const FIELDS: &[(&str, &str)] = &[
    ("op", "name of the op"),
    ("name", "name of the node"),
    ("from", "source nodes"),
    ("dtype", "element type of the result"),
    ("shape", "type of a result, as f32[1,64,56,56]"),
    ("layout", "data layout"),
    ("attr", "attributes"),
    ("weight", "constants that it reads"),
    ("kind", "kind of work, as in the legend"),
    ("kernel", "names of its kernels"),
    ("runs", "kernel, view or host"),
    ("fused", "yes or no"),
    ("time", "on the device, as 0.1ms or 50us"),
    ("error", "relative, as 1e-3"),
    ("flops", "as 1M or 2.5G"),
    ("bytes", "as 1M or 2.5G"),
];

/// How a term compares.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Relation {
    Has,
    Is,
    Less(bool),
    More(bool),
}

#[derive(Clone, PartialEq, Debug)]
struct Term {
    turned: bool,
    field: Option<&'static str>,
    relation: Relation,
    text: String,
    number: f64,
}

/// A query.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Query {
    terms: Vec<Term>,
}

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// A field that there is not, or a number that is none.
    pub fn parse(text: &str) -> Result<Query, String> {
        Ok(Query { terms: words(text).iter().map(|w| term(w)).collect::<Result<_, _>>()? })
    }
    /// True if it has no terms.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
    /// Whether all terms hold.
    pub fn finds(&self, s: &Subject<'_>) -> bool {
        self.terms.iter().all(|t| t.holds(s) != t.turned)
    }
}

/// Parts between spaces, those in quotes left out.
fn words(text: &str) -> Vec<String> {
    let (mut out, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (quoted, any) = (!quoted, true),
            c if c.is_whitespace() && !quoted => {
                if any {
                    out.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    if any {
        out.push(word);
    }
    out
}

fn term(word: &str) -> Result<Term, String> {
    let (turned, body) = match word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let end = body.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(body.len());
    let (field, rest) = body.split_at(end);
    let relations = [
        ("<=", Relation::Less(true)),
        (">=", Relation::More(true)),
        ("<", Relation::Less(false)),
        (">", Relation::More(false)),
        (":", Relation::Has),
        ("=", Relation::Is),
    ];
    let found = relations.iter().find_map(|(sign, r)| rest.strip_prefix(sign).map(|text| (*r, text)));
    let Some((relation, text)) = found.filter(|_| !field.is_empty()) else {
        let text = body.to_lowercase();
        return Ok(Term { turned, field: None, relation: Relation::Has, text, number: 0.0 });
    };
    let known = FIELDS.iter().find(|(f, _)| f.eq_ignore_ascii_case(field)).map(|(f, _)| *f);
    let Some(field) = known else {
        let all: Vec<&str> = FIELDS.iter().map(|(f, _)| *f).collect();
        return Err(format!("there is no field `{field}`; there are {}", all.join(", ")));
    };
    let numeric = matches!(field, "time" | "error" | "flops" | "bytes");
    let compares = matches!(relation, Relation::Less(_) | Relation::More(_));
    let number = match numeric {
        true => number(field, text)?,
        false if compares => return Err(format!("`{field}` is no number: write {field}:{text}")),
        false => 0.0,
    };
    Ok(Term { turned, field: Some(field), relation, text: text.to_lowercase(), number })
}

fn number(field: &str, text: &str) -> Result<f64, String> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || ".+-eE".contains(c))).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let scale = match (field, unit) {
        ("time", "" | "ms") | (_, "") => 1.0,
        ("time", "us" | "µs") => 1e-3,
        ("time", "s") => 1e3,
        ("flops" | "bytes", "k" | "K") => 1e3,
        ("flops" | "bytes", "M") => 1e6,
        ("flops" | "bytes", "G") => 1e9,
        ("flops" | "bytes", "T") => 1e12,
        _ => return Err(format!("`{unit}` is no unit of {field}")),
    };
    let value: f64 = digits.parse().map_err(|_| format!("`{text}` is no number for {field}"))?;
    Ok(value * scale)
}

impl Term {
    fn holds(&self, s: &Subject<'_>) -> bool {
        let n = s.node;
        let measured = match self.field {
            Some("time") => s.time,
            Some("error") => s.error,
            Some("flops") => s.flops,
            Some("bytes") => s.bytes,
            _ => return self.finds_text(s, n),
        };
        measured.is_some_and(|x| match self.relation {
            Relation::Less(equal) => x < self.number || equal && x == self.number,
            Relation::More(equal) => x > self.number || equal && x == self.number,
            Relation::Has | Relation::Is => x == self.number,
        })
    }
    fn finds_text(&self, s: &Subject<'_>, n: &Node) -> bool {
        let one = |t: &str| match self.relation {
            Relation::Is => t.to_lowercase() == self.text,
            _ => t.to_lowercase().contains(&self.text),
        };
        match self.field {
            None => one(&n.op) || one(&n.name) || n.origins.iter().any(|o| one(o)),
            Some("op") => one(&n.op),
            Some("name") => one(&n.name),
            Some("from") => n.origins.iter().any(|o| one(o)),
            Some("dtype") => one(&n.dtype),
            Some("shape") => n.outputs.iter().any(|o| one(o)),
            Some("layout") => n.layout.is_some_and(one),
            Some("attr") => one(&n.attrs),
            Some("weight") => n.weights.iter().any(|w| one(&w.name) || one(&w.ty)),
            Some("kind") => one(n.work.title()),
            Some("kernel") => s.kernels.iter().any(|k| one(k)),
            Some("runs") => one(s.runs),
            Some("fused") => s.fused == matches!(self.text.as_str(), "yes" | "true" | "1"),
            Some(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::Category;

    fn conv() -> Node {
        Node {
            key: "main:layer3".into(),
            op: "conv".into(),
            name: "layer3.0.conv1".into(),
            category: Category::Contraction,
            work: Category::Contraction,
            origins: vec!["Conv_7".into()],
            attrs: "pads=[1,1,1,1]".into(),
            weights: vec![],
            outputs: vec!["f16[1,64,56,56]".into()],
            dtype: "f16".into(),
            layout: Some("nhwc"),
            callee: None,
            inside: vec![],
        }
    }

    fn finds(text: &str) -> bool {
        let node = conv();
        let kernels = ["layer3_conv_relu".to_string()];
        let s = Subject {
            node: &node,
            time: Some(0.25),
            error: None,
            flops: Some(2e9),
            bytes: None,
            fused: true,
            runs: "kernel",
            kernels: &kernels,
        };
        Query::parse(text).expect("a query").finds(&s)
    }

    #[test]
    fn all_terms_have_to_hold() {
        assert!(finds("op:conv dtype:f16 time>0.1ms fused:yes name:layer3"));
        assert!(!finds("op:conv dtype:f16 time>0.1ms fused:no name:layer3"));
        assert!(finds("time>=250us time<=250us -time>1s flops>1G"));
        assert!(finds("CONV_7") && finds("layer3 -relu") && !finds("relu"));
        assert!(finds("op=conv") && !finds("op=con") && finds("op:con"));
        assert!(!finds("error<1") && finds("-error<1"), "nothing is known of its error");
        assert!(finds("kernel:relu runs:kernel layout:NHWC \"attr:pads=[1,1\" from:conv_7 shape:[1,64"));
        assert!(finds(""));
    }

    #[test]
    fn mistakes_are_named() {
        let fault = |t: &str| Query::parse(t).unwrap_err();
        assert!(fault("colour:red").contains("there are op, name"));
        assert!(fault("time>fast").contains("`fast` is no unit of time"));
        assert!(fault("time>1.2.3ms").contains("`1.2.3ms` is no number for time"));
        assert!(fault("op>3").contains("op:3"));
        assert!(fault("time>3kg").contains("`kg` is no unit"));
    }
}
