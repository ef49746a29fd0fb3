//! The tables of docs/json.md: made of the schemas of the records, and outputs held against these schemas.

use serde_json::Value;
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");

/// The schema of the record below a heading.
fn schema(heading: &str) -> Value {
    let found = cli::schemas().into_iter().find(|s| s.0 == heading);
    found.unwrap_or_else(|| panic!("no record `{heading}`")).1.to_value()
}

/// A schema without the reference or the choice of null around it; whether it may be null; the name of its type.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> (&'s Value, bool, Option<&'s str>) {
    if let Some(name) = schema["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
        let (inner, null, _) = resolved(root, &root["$defs"][name]);
        return (inner, null, Some(name));
    }
    let any = schema["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
    match any.iter().partition::<Vec<_>, _>(|s| s["type"] == "null") {
        (null, others) if !null.is_empty() && others.len() == 1 => {
            let (inner, _, name) = resolved(root, others[0]);
            (inner, true, name)
        }
        _ => (schema, false, None),
    }
}

/// The types of a value of the schema, in the words of the page.
fn words(root: &Value, schema: &Value) -> Vec<&'static str> {
    let (inner, null, _) = resolved(root, schema);
    let types = match &inner["type"] {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one.as_str()],
        _ if inner["oneOf"].is_array() || inner["enum"].is_array() => vec!["string"],
        _ => panic!("{inner} has no type"),
    };
    let word = |t: &str| match t {
        "integer" | "number" => "number",
        "string" => "text",
        "boolean" => "bool",
        "array" => "list",
        "object" => "object",
        _ => "null",
    };
    let mut words: Vec<&str> = types.into_iter().map(word).chain(null.then_some("null")).collect();
    words.dedup();
    words
}

/// Values of an enumeration, as code.
fn values(schema: &Value) -> Vec<String> {
    let some = schema["oneOf"].as_array().into_iter().flatten().map(|s| &s["const"]);
    let all = some.chain(schema["enum"].as_array().into_iter().flatten());
    all.filter_map(Value::as_str).map(|v| format!("`{v}`")).collect()
}

/// The rows of the fields of an object. Types that have a table of their own are named there.
fn rows(root: &Value, schema: &Value, path: &str, shared: &[(String, &str)], out: &mut String) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array().is_some_and(|r| r.iter().any(|r| r == name));
        let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let mut words = words(root, field);
        words.extend((!required).then_some("absent"));
        let (mut inner, _, mut ty) = resolved(root, field);
        let what = field["description"].as_str().or(inner["description"].as_str()).unwrap_or_default();
        let mut what = what.replace('\n', " ").trim_end_matches('.').to_string();
        if !values(inner).is_empty() && !what.contains('`') {
            write!(what, ": {}", values(inner).join(", ")).expect("a text");
        }
        let (mut below, list) = (place.clone(), inner["type"] == "array");
        while inner["type"] == "array" && inner["items"].is_object() {
            (inner, _, ty) = resolved(root, &inner["items"]);
            below += "[]";
        }
        let link = shared.iter().find(|s| Some(s.0.as_str()) == ty).map(|s| s.1);
        if let Some(link) = link {
            let each = if list { "each " } else { "" };
            write!(what, "; {each}as in [{link}](#{link})").expect("a text");
        }
        writeln!(out, "| `{place}` | {} | {what} |", words.join(" or ")).expect("a text");
        match &inner["additionalProperties"] {
            more @ Value::Object(_) if link.is_none() => {
                let types = self::words(root, more).join(" or ");
                writeln!(out, "| `{below}.*` | {types} | |").expect("a text");
            }
            _ if link.is_none() => rows(root, inner, &below, shared, out),
            _ => {}
        }
    }
}

/// The table below a heading.
fn table(heading: &str) -> String {
    let root = schema(heading);
    let title = |heading: &str| schema(heading)["title"].as_str().unwrap_or_default().to_string();
    let shared: Vec<(String, &str)> = cli::SHARED.iter().filter(|s| **s != heading).map(|s| (title(s), *s)).collect();
    let mut out = "| field | type | what |\n|---|---|---|\n".to_string();
    rows(&root, &root, "", &shared, &mut out);
    out
}

/// Each table of the page is made of its record. `WEFT_BLESS=1` writes them.
#[test]
fn the_page_has_the_tables_of_the_records() {
    let page = std::fs::read_to_string(PAGE).expect("the page");
    let mut blessed = page.clone();
    for (heading, _) in cli::schemas() {
        let from = blessed.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no heading `{heading}`"));
        let at = from + blessed[from..].find("\n| field |").expect("a table") + 1;
        let end = blessed[at..].find("\n\n").map_or(blessed.len(), |end| at + end + 1);
        blessed.replace_range(at..end, &table(heading));
    }
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(PAGE, &blessed).expect("writes the page");
        return;
    }
    assert!(page == blessed, "docs/json.md does not have the fields of the records; WEFT_BLESS=1 writes them");
}

/// Holds a value against a schema: types, fields that must be there, and no others.
fn check(root: &Value, schema: &Value, v: &Value, place: &str) {
    let words = words(root, schema);
    let (inner, ..) = resolved(root, schema);
    let word = match v {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    assert!(words.contains(&word), "{place} is {v}, not {}", words.join(" or "));
    if let (Some(text), values @ [_, ..]) = (v.as_str(), &values(inner)[..]) {
        assert!(values.contains(&format!("`{text}`")), "{place} is {text}, none of {}", values.join(", "));
    }
    if inner["items"].is_object() {
        let each = |x| check(root, &inner["items"], x, &format!("{place}[]"));
        v.as_array().into_iter().flatten().for_each(each);
    }
    let Some(map) = v.as_object() else { return };
    for name in inner["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(map.contains_key(name), "{place} has no field {name}: {v}");
    }
    for (name, x) in map {
        match (&inner["properties"][name], &inner["additionalProperties"]) {
            (Value::Null, Value::Null) if inner["properties"].is_object() => {
                panic!("{place}.{name} is not on the page")
            }
            (Value::Null, more @ Value::Object(_)) => check(root, more, x, &format!("{place}.{name}")),
            (Value::Null, _) => {}
            (field, _) => check(root, field, x, &format!("{place}.{name}")),
        }
    }
}

/// Holds an output against the record whose table has this heading.
pub fn holds(heading: &str, v: &Value) {
    let root = schema(heading);
    check(&root, &root, v, heading);
}

#[test]
fn a_wrong_output_is_seen() {
    let fails = |v: Value| std::panic::catch_unwind(|| holds("error", &v)).is_err();
    let right = serde_json::json!({ "schema": 1, "error": { "code": 2, "message": "m", "where": null, "help": null } });
    assert!(!fails(right.clone()));
    for (path, v) in [("/error/code", "2".into()), ("/error", Value::Null), ("/error/message", Value::Null)] {
        let mut wrong = right.clone();
        *wrong.pointer_mut(path).expect("a field") = v;
        assert!(fails(wrong), "{path}");
    }
    let mut more = right.clone();
    more["error"]["more"] = 1.into();
    assert!(fails(more));
    let mut less = right;
    less["error"].as_object_mut().expect("an object").remove("help");
    assert!(fails(less));
}
