//! `weft.h` declares what the code has: functions with their parameters, codes, types, and the layout of structures.

use quote::ToTokens;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;
use weft::dlpack::{DLDataType, DLDevice, DLTensor};
use weft::{Code, DType};
use weft_c::{DLManagedTensor, WeftBuffer, WeftPort, WeftTensor};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The header without comments, its blanks as one each.
fn header() -> String {
    let text = std::fs::read_to_string(folder().join("include/weft.h")).expect("weft.h");
    let mut parts = text.split("/*");
    let mut out = parts.next().unwrap_or_default().to_string();
    parts.for_each(|p| out += p.split_once("*/").expect("a comment ends").1);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The C type of a Rust type.
fn c_type(ty: &str) -> String {
    if let Some(inner) = ty.strip_prefix("* const ").filter(|inner| inner.starts_with("* mut ")) {
        return format!("{}const *", c_type(inner));
    }
    if let Some(inner) = ty.strip_prefix("* const ") {
        return format!("const {} *", c_type(inner)).replace("* *", "**").replace("const const ", "const ");
    }
    if let Some(inner) = ty.strip_prefix("* mut ") {
        return format!("{} *", c_type(inner)).replace("* *", "**");
    }
    let plain = ty.rsplit("::").next().unwrap_or(ty).trim();
    match plain {
        "c_char" => "char".into(),
        "c_void" => "void".into(),
        "usize" => "size_t".into(),
        name if name.starts_with("DL") => name.into(),
        name => {
            let name = name.strip_prefix("Weft").unwrap_or_else(|| panic!("no C type for {ty}"));
            let word = |c: char| if c.is_uppercase() { format!("_{}", c.to_lowercase()) } else { c.to_string() };
            format!("weft{}", name.chars().map(word).collect::<String>())
        }
    }
}

/// The declarations of all functions that the library exports.
fn declarations() -> Vec<String> {
    let mut out = vec![];
    for file in std::fs::read_dir(folder().join("src")).expect("sources").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("a source");
        for item in syn::parse_file(&text).expect("Rust").items {
            let syn::Item::Fn(f) = item else { continue };
            if f.sig.abi.is_none() || !matches!(f.vis, syn::Visibility::Public(_)) {
                continue;
            }
            let parameter = |p: &syn::FnArg| {
                let syn::FnArg::Typed(p) = p else { panic!("a method") };
                let (name, ty) = (p.pat.to_token_stream().to_string(), c_type(&p.ty.to_token_stream().to_string()));
                if ty.ends_with('*') { format!("{ty}{name}") } else { format!("{ty} {name}") }
            };
            let list: Vec<String> = f.sig.inputs.iter().map(parameter).collect();
            let list = if list.is_empty() { "void".to_string() } else { list.join(", ") };
            let result = match &f.sig.output {
                syn::ReturnType::Default => "void ".to_string(),
                syn::ReturnType::Type(_, ty) => match c_type(&ty.to_token_stream().to_string()) {
                    pointer if pointer.ends_with('*') => pointer,
                    plain => plain + " ",
                },
            };
            out.push(format!("{result}{}({list});", f.sig.ident));
        }
    }
    out
}

#[test]
fn functions_are_those_of_the_code() {
    let (header, declared) = (header(), declarations());
    assert!(declared.len() > 15, "{declared:#?}");
    let missing: Vec<&String> = declared.iter().filter(|d| !header.contains(d.as_str())).collect();
    assert!(missing.is_empty(), "weft.h does not have {missing:#?}");
    let there = header.matches("weft_").count();
    let functions = header.split(';').filter(|d| d.contains('(') && d.contains("weft_") && !d.contains("typedef"));
    let functions = functions.count();
    assert_eq!(functions, declared.len(), "{there} names: weft.h declares a function that the code does not have");
}

#[test]
fn codes_and_types_are_those_of_the_library() {
    let header = header();
    let codes = [
        ("CHECK", Code::Check),
        ("USAGE", Code::Usage),
        ("INPUT", Code::Input),
        ("UNSUPPORTED", Code::Unsupported),
        ("DEVICE", Code::Device),
        ("BUG", Code::Bug),
    ];
    let codes = codes.map(|(name, code)| (name.to_string(), code as usize));
    let types = DType::ALL.iter().enumerate().map(|(n, t)| (t.name().to_uppercase(), n));
    for (name, n) in types.chain(codes) {
        let found = [",", " }"].iter().any(|end| header.contains(&format!("WEFT_{name} = {n}{end}")));
        assert!(found, "weft.h has no WEFT_{name} = {n}");
    }
}

#[test]
fn structures_have_the_layout_of_the_code() {
    macro_rules! layout {
        ($rust:ident, $c:literal, [$($field:ident / $name:literal),*]) => {
            [vec![format!("sizeof({}) == {}", $c, size_of::<$rust>())],
             vec![$(format!("offsetof({}, {}) == {}", $c, $name, offset_of!($rust, $field))),*]].concat()
        };
    }
    let all = [
        layout!(WeftPort, "weft_port", [name / "name", r#type / "type", rank / "rank", shape / "shape"]),
        layout!(
            WeftTensor,
            "weft_tensor",
            [name / "name", r#type / "type", rank / "rank", shape / "shape", data / "data"]
        ),
        layout!(WeftBuffer, "weft_buffer", [name / "name", data / "data", bytes / "bytes"]),
        layout!(DLDevice, "DLDevice", [device_type / "device_type", device_id / "device_id"]),
        layout!(DLDataType, "DLDataType", [code / "code", bits / "bits", lanes / "lanes"]),
        layout!(
            DLTensor,
            "DLTensor",
            [
                data / "data",
                device / "device",
                ndim / "ndim",
                dtype / "dtype",
                shape / "shape",
                strides / "strides",
                byte_offset / "byte_offset"
            ]
        ),
        layout!(
            DLManagedTensor,
            "DLManagedTensor",
            [dl_tensor / "dl_tensor", manager_ctx / "manager_ctx", deleter / "deleter"]
        ),
    ];
    let lines: Vec<String> = all.concat().iter().map(|c| format!("_Static_assert({c}, \"{c}\");\n")).collect();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layout.c");
    std::fs::write(&source, format!("#include <weft.h>\n{}", lines.concat())).expect("writes");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"]);
    match compiler.arg(folder().join("include")).arg(&source).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        Err(e) => eprintln!("LEFT OUT: no C compiler `cc` checks the structures of weft.h: {e}"),
    }
}
