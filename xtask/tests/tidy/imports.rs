//! Which file of a crate uses which, by the names in its code.
//!
//! A path (`super::b::Item`, or `Item` after a `use`) leads to the file that declares the item: a re-export is an
//! address, and its file is not used by those who go through it. Tests are left out. Method calls name no file, so they
//! count for none.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::{Attribute, Item, ItemMacro, ItemStatic, ItemUse, Type, UseTree, Visibility};

type Segments = Vec<String>;

/// For each file, below the crate's `src`, the files of the same crate that it uses.
pub type FileUses = BTreeMap<String, BTreeSet<String>>;

/// The uses between the product's files that the root (`lib.rs`, `main.rs`) of a crate reaches.
pub fn file_uses(src: &Path, root: &str) -> FileUses {
    let mut tree = Tree { src: src.to_path_buf(), modules: Vec::new() };
    tree.load(root.into(), None);
    let mut uses = FileUses::new();
    for (m, module) in tree.modules.iter().enumerate() {
        let used = module.named.iter().filter_map(|path| tree.resolve(m, path, 0));
        let others = used.filter(|file| *file != module.file);
        uses.entry(module.file.clone()).or_default().extend(others);
    }
    uses
}

/// The modules of one crate; the first is its root.
struct Tree {
    src: PathBuf,
    modules: Vec<Module>,
}

#[derive(Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    /// Names that `use` declares.
    aliases: BTreeMap<String, Segments>,
    globs: Vec<Segments>,
    /// The paths that its code names.
    named: BTreeSet<Segments>,
}

impl Tree {
    fn load(&mut self, file: String, parent: Option<usize>) -> usize {
        let path = self.src.join(&file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.add(file, parent, parsed.items)
    }

    fn add(&mut self, file: String, parent: Option<usize>, items: Vec<Item>) -> usize {
        let m = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        items.into_iter().for_each(|item| self.item(m, item));
        m
    }

    fn item(&mut self, m: usize, item: Item) {
        match item {
            Item::Mod(item) if is_test(&item.attrs) => {}
            Item::Mod(item) => {
                let (name, file) = (item.ident.to_string(), self.modules[m].file.clone());
                let child = match item.content {
                    Some((_, items)) => self.add(file, Some(m), items),
                    None => self.load(self.child_file(&file, &name), Some(m)),
                };
                self.modules[m].children.insert(name, child);
            }
            Item::Use(item) => self.modules[m].add_use(&item),
            Item::Macro(item) => self.modules[m].add_macro(item),
            Item::Static(item) if is_table(&item) => drop(self.modules[m].items.insert(item.ident.to_string())),
            item => self.modules[m].add_code(item.to_token_stream(), 1),
        }
    }

    /// The file of `mod name;` in `file`.
    fn child_file(&self, file: &str, name: &str) -> String {
        let root = ["lib.rs", "main.rs", "mod.rs"].iter().find_map(|r| file.strip_suffix(r));
        let folder = root.map_or_else(|| file.replace(".rs", "/"), String::from);
        let flat = format!("{folder}{name}.rs");
        if self.src.join(&flat).exists() { flat } else { format!("{folder}{name}/mod.rs") }
    }

    /// The file that declares what a path in module `m` names; `None` for other crates, locals and the prelude.
    fn resolve(&self, m: usize, path: &[String], depth: usize) -> Option<String> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.look_up(0, rest, depth),
            "self" => self.look_up(m, rest, depth),
            "super" => self.climb(m, rest, depth),
            _ => self.find(m, path, depth),
        }
    }

    fn climb(&self, m: usize, rest: &[String], depth: usize) -> Option<String> {
        let parent = self.modules[m].parent?;
        if rest.first().is_some_and(|r| r == "super") {
            return self.climb(parent, &rest[1..], depth);
        }
        self.look_up(parent, rest, depth)
    }

    /// As [`Tree::find`], of a path that certainly leads into `m`: a name that a macro made or exports is looked for
    /// below it.
    fn look_up(&self, m: usize, path: &[String], depth: usize) -> Option<String> {
        let Some(name) = path.first() else { return Some(self.modules[m].file.clone()) };
        self.find(m, path, depth).or_else(|| {
            let declared =
                self.modules.iter().enumerate().filter(|(c, d)| d.items.contains(name) && self.is_below(*c, m));
            let files: Vec<&String> = declared.map(|(_, d)| &d.file).collect();
            let foreign = self.modules[m].aliases.contains_key(name);
            let file = if let [one] = files[..] { one } else { &self.modules[m].file };
            (!foreign).then(|| file.clone())
        })
    }

    fn is_below(&self, mut m: usize, above: usize) -> bool {
        while let Some(parent) = self.modules[m].parent.filter(|_| m != above) {
            m = parent;
        }
        m == above
    }

    fn find(&self, m: usize, path: &[String], depth: usize) -> Option<String> {
        let (module, (name, rest)) = (&self.modules[m], path.split_first()?);
        if let Some(&child) = module.children.get(name) {
            return self.look_up(child, rest, depth);
        }
        if module.items.contains(name) {
            return Some(module.file.clone());
        }
        // `use other::other` would go round.
        if depth > 16 {
            return None;
        }
        let onward = |to: &Segments, rest: &[String]| self.resolve(m, &[to, rest].concat(), depth + 1);
        match module.aliases.get(name) {
            Some(to) if to.first() != Some(name) => onward(to, rest),
            Some(_) => None,
            None => module.globs.iter().find_map(|g| self.through_glob(m, g, path, depth + 1)),
        }
    }

    /// The file of a name that `use glob::*` brings, if its module has it.
    fn through_glob(&self, m: usize, glob: &[String], path: &[String], depth: usize) -> Option<String> {
        let target = self.module_at(m, glob)?;
        if target == m { None } else { self.find(target, path, depth) }
    }

    /// The module that a path of modules names.
    fn module_at(&self, m: usize, path: &[String]) -> Option<usize> {
        let Some((first, rest)) = path.split_first() else { return Some(m) };
        let next = match first.as_str() {
            "crate" => Some(0),
            "self" => Some(m),
            "super" => self.modules[m].parent,
            name => self.modules[m].children.get(name).copied(),
        };
        self.module_at(next?, rest)
    }
}

impl Module {
    /// A re-export is an address alone, an import a use.
    fn add_use(&mut self, item: &ItemUse) {
        if is_test(&item.attrs) {
            return;
        }
        let mut names = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut names);
        for (name, path) in names {
            let Some(name) = name else {
                self.globs.push(path);
                continue;
            };
            if matches!(item.vis, Visibility::Inherited) {
                self.named.insert(path.clone());
            }
            self.aliases.insert(name, path);
        }
    }

    /// A call of a macro at the level of items declares some, or is a table.
    fn add_macro(&mut self, item: ItemMacro) {
        let table = item.mac.path.get_ident().is_some_and(|name| TABLES.iter().any(|t| name == t));
        self.items.extend(item.ident.map(|name| name.to_string()));
        if !table {
            self.add_code(item.mac.tokens, 1);
        }
    }

    /// Adds the paths that code names, and the items that it declares in so many levels of brackets.
    fn add_code(&mut self, tokens: TokenStream, levels: usize) {
        let mut tokens = tokens.into_iter().peekable();
        let mut before = String::new();
        while let Some(token) = tokens.next() {
            before = match token {
                TokenTree::Group(group) => {
                    self.add_code(group.stream(), levels.saturating_sub(1));
                    String::new()
                }
                TokenTree::Ident(word) if word == "use" => {
                    self.add_inner_use(&mut tokens);
                    String::new()
                }
                TokenTree::Ident(word) => {
                    let path = path_at(word.to_string(), &mut tokens);
                    if levels > 0 && DECLARES.contains(&before.as_str()) {
                        self.items.insert(path[0].clone());
                    } else if ![".", "::"].contains(&before.as_str()) && is_item(&path, tokens.peek()) {
                        self.named.insert(path);
                    }
                    word.to_string()
                }
                TokenTree::Punct(p) if p.as_char() == ':' && before == ":" => "::".into(),
                other => other.to_string(),
            };
        }
    }

    /// A `use` inside a function counts as one of its module.
    fn add_inner_use(&mut self, tokens: &mut Tokens) {
        let tokens = std::iter::from_fn(|| tokens.next_if(|t| t.to_string() != ";"));
        let item: TokenStream = tokens.collect();
        if let Ok(item) = syn::parse2::<ItemUse>(quote::quote!(use #item;)) {
            self.add_use(&item);
        }
    }
}

type Tokens = std::iter::Peekable<proc_macro2::token_stream::IntoIter>;

const DECLARES: &[&str] = &["struct", "enum", "trait", "type", "const", "static", "fn", "union"];

/// A word alone may be a local variable: one in lower case names an item where it is called.
fn is_item(path: &[String], next: Option<&TokenTree>) -> bool {
    let called = match next {
        Some(TokenTree::Group(g)) => g.delimiter() == Delimiter::Parenthesis,
        Some(TokenTree::Punct(p)) => p.as_char() == '!',
        _ => false,
    };
    path.len() > 1 || called || path[0].starts_with(char::is_uppercase)
}

/// The path that begins with a word: the `::name`s behind it.
fn path_at(first: String, tokens: &mut Tokens) -> Segments {
    let mut path = vec![first];
    let mut ahead = tokens.clone();
    while [":", ":"].iter().all(|c| ahead.next().is_some_and(|t| t.to_string() == *c)) {
        let Some(TokenTree::Ident(word)) = ahead.next() else { break };
        path.push(word.to_string());
        *tokens = ahead.clone();
    }
    path
}

/// The names that a `use` declares, each with its path; globs have no name.
fn flatten(tree: &UseTree, before: &mut Segments, out: &mut Vec<(Option<String>, Segments)>) {
    let with = |name: String, before: &Segments| {
        let path = if name == "self" { before.clone() } else { [before.as_slice(), &[name]].concat() };
        (path.last().cloned(), path)
    };
    match tree {
        UseTree::Path(p) => {
            before.push(p.ident.to_string());
            flatten(&p.tree, before, out);
            before.pop();
        }
        UseTree::Name(n) => out.push(with(n.ident.to_string(), before)),
        UseTree::Rename(r) => out.push((Some(r.rename.to_string()), with(r.ident.to_string(), before).1)),
        UseTree::Glob(_) => out.push((None, before.clone())),
        UseTree::Group(g) => g.items.iter().for_each(|t| flatten(t, before, out)),
    }
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|a| {
        let text = a.to_token_stream().to_string();
        text.contains("cfg") && text.split(|c: char| !c.is_alphanumeric()).any(|w| w == "test" || w == "doctest")
    })
}

/// Tables that macros make, which name their rows. Nothing goes through them, so they are no uses: a row that one adds
/// grows no circle.
const TABLES: &[&str] = &["ops", "passes", "instructions"];

/// A table that is a static: `static RULES: Table<Rule> = ...`.
fn is_table(item: &ItemStatic) -> bool {
    let Type::Path(path) = &*item.ty else { return false };
    path.path.segments.last().is_some_and(|s| s.ident == "Table")
}
