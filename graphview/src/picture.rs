//! The picture of a module: a graph of boxes with details of each.
//!
//! [`Picture::of`] takes a module at one stage of a compilation. Constants are folded into the nodes that read them;
//! the parameters and results of a function are boxes; the regions of control flow, and the functions that fused groups
//! call, are pictures inside a box. The content of a box comes from properties of ops, never from a list of op names.
//!
//! Always holds: [`Node::key`] is the same for the same node in every stage that has it, and different nodes of one
//! picture have different keys.

pub use crate::category::Category;
use crate::category::category;
use crate::data_layout::{Infos, Layouts};
use crate::meaning::meaning;
use compiler::graph::{BlockId, Function, Module, Node as GraphNode, NodeId, TensorType, ValueId};
use compiler::name::Name;
use compiler::ops::control::{Call, CallHost, CallTensor, Const};
use compiler::ops::external_scope::{Composite, External};
use compiler::passes::fusion_kind::describe_module;
use compiler::text::{parse_module, print_attrs, print_type};
use compiler::trace::{name_in_part, texts_of_parts};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::sync::Arc;

/// A constant that a node reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weight {
    /// Position among the node's operands.
    pub operand: usize,
    /// Global name.
    pub name: String,
    /// Its type, as text.
    pub ty: String,
}

/// A box.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Its key, unique in this stage and equal in other stages.
    pub key: String,
    /// Its op; `input` and `output` for the function's own values; for a group the ops in it.
    pub op: String,
    /// Its name.
    pub name: String,
    /// Its kind of work.
    pub category: Category,
    /// For a group the heaviest kind of work in it, else its category: colours go by it.
    pub work: Category,
    /// Source nodes.
    pub origins: Vec<String>,
    /// Attributes as text, without braces.
    pub attrs: String,
    /// Constants it reads.
    pub weights: Vec<Weight>,
    /// Types of its results, as text.
    pub outputs: Vec<String>,
    /// Element type of its first result.
    pub dtype: String,
    /// Data layout of its first result that has one.
    pub layout: Option<&'static str>,
    /// The graph or tensor function that it calls.
    pub callee: Option<String>,
    /// Pictures inside: the regions of control flow, or the function of a fused group. Copies of a box share them.
    pub inside: Vec<Arc<Picture>>,
}

/// An edge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Index of the box that makes the value.
    pub from: usize,
    /// Index of the box that reads it.
    pub to: usize,
    /// Which result of `from` it is.
    pub result: usize,
    /// Which operand of `to` it is.
    pub operand: usize,
    /// The type, as text.
    pub ty: String,
    /// Data layout of the value, where it has one.
    pub layout: Option<&'static str>,
}
impl Edge {
    /// The type with the data layout, as edges are labelled.
    pub fn label(&self) -> String {
        with_layout(&self.ty, self.layout)
    }
}

/// A type with its data layout.
pub fn with_layout(ty: &str, layout: Option<&str>) -> String {
    layout.map_or_else(|| ty.to_string(), |l| format!("{ty} {l}"))
}

/// A graph of boxes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Picture {
    /// Its subject: the function, `then`, `else`, `body`.
    pub title: String,
    /// Boxes, those that make a value before those that read it.
    pub nodes: Vec<Node>,
    /// Edges.
    pub edges: Vec<Edge>,
}

impl Picture {
    /// The picture of a module's entry function.
    pub fn of(module: &Module) -> Picture {
        let infos = describe_module(module);
        let layouts = Layouts::of(module, &infos);
        let types = RefCell::default();
        Drawing { module, infos, layouts, open: FxHashSet::default(), types }.function(module.main())
    }
    /// The picture of a stage of a trace. In a network that runs in parts each part is a frame, in the order they run.
    ///
    /// # Errors
    /// When the text does not parse.
    pub fn of_stage(text: &str) -> Result<Picture, String> {
        let parts = texts_of_parts(text);
        let of = |text: &str| parse_module(text).map(|m| Picture::of(&m)).map_err(|e| e.to_string());
        if let [("", text)] = parts[..] {
            return of(text);
        }
        let mut out = Picture { title: "parts".into(), ..Picture::default() };
        for (name, text) in parts {
            let mut inside = of(text)?;
            inside.walk_mut(&mut |n| {
                n.key = format!("{name}/{}", n.key);
                n.callee = n.callee.take().map(|c| name_in_part(name, &c));
            });
            out.nodes.push(part(name, inside));
        }
        let order = |to: usize| Edge { from: to - 1, to, result: 0, operand: 0, ty: "then".into(), layout: None };
        out.edges = (1..out.nodes.len()).map(order).collect();
        Ok(out)
    }
    fn walk_mut(&mut self, visit: &mut dyn FnMut(&mut Node)) {
        for n in &mut self.nodes {
            visit(n);
            n.inside.iter_mut().for_each(|p| Arc::make_mut(p).walk_mut(visit));
        }
    }
    /// The box with this key, at any depth.
    pub fn find(&self, key: &str) -> Option<&Node> {
        self.nodes.iter().find_map(|n| if n.key == key { Some(n) } else { n.inside.iter().find_map(|p| p.find(key)) })
    }
    /// Every box at any depth, without what is in fused groups.
    pub fn outer(&self) -> Vec<&Node> {
        let mut out = Vec::new();
        for n in &self.nodes {
            out.push(n);
            if n.category != Category::Group {
                n.inside.iter().for_each(|p| out.extend(p.outer()));
            }
        }
        out
    }
    /// Every box at any depth, outer ones first.
    pub fn walk(&self) -> Vec<&Node> {
        let mut out = Vec::new();
        for n in &self.nodes {
            out.push(n);
            n.inside.iter().for_each(|p| out.extend(p.walk()));
        }
        out
    }
}

/// The function that a node calls, or that it runs on an external target.
fn called(node: &GraphNode) -> Option<Name> {
    let external = node.op.downcast::<CallHost>().filter(|c| c.external_target().is_some());
    node.op.callee().or_else(|| external.and_then(CallHost::reference_function))
}

/// The external target that runs the nodes inside a node.
fn target(node: &GraphNode) -> Option<Name> {
    let scope = node.op.downcast::<External>().map(|e| e.target);
    scope.or_else(|| node.op.downcast::<CallHost>()?.external_target())
}

/// The label of a region: its target, and the kinds of its nodes, the frequent ones first.
fn region(target: Name, inside: &Picture) -> String {
    const SHOWN: usize = 2;
    let mut kinds: Vec<(&str, usize)> = vec![];
    for n in inside.nodes.iter().filter(|n| n.category != Category::Terminal) {
        let kind = n.op.strip_prefix(&format!("{target}.")).unwrap_or(&n.op);
        match kinds.iter_mut().find(|k| k.0 == kind) {
            Some(k) => k.1 += 1,
            None => kinds.push((kind, 1)),
        }
    }
    kinds.sort_by_key(|k| std::cmp::Reverse(k.1));
    let text = |&(kind, n): &(&str, usize)| if n == 1 { kind.to_string() } else { format!("{kind} x{n}") };
    let more = if kinds.len() > SHOWN { ", ..." } else { "" };
    format!("{target}: {}{more}", kinds.iter().take(SHOWN).map(text).collect::<Vec<_>>().join(", "))
}

/// The frame of a part of a network. It has no source nodes of its own: choosing it selects none.
fn part(name: &str, inside: Picture) -> Node {
    Node {
        key: format!("part {name}"),
        op: format!("part: {name}"),
        name: name.into(),
        category: Category::Control,
        work: Category::Control,
        origins: vec![],
        attrs: String::new(),
        weights: vec![],
        outputs: vec![],
        dtype: String::new(),
        layout: None,
        callee: None,
        inside: vec![Arc::new(inside)],
    }
}

struct Drawing<'a> {
    module: &'a Module,
    infos: Infos,
    layouts: Layouts,
    /// Functions that are being drawn: recursion ends at them.
    open: FxHashSet<Name>,
    /// The texts of types: a network has few.
    types: RefCell<FxHashMap<TensorType, String>>,
}

impl Drawing<'_> {
    /// The type of a value as text.
    fn type_of(&self, f: &Function, v: ValueId) -> String {
        let ty = f.ty(v);
        let mut known = self.types.borrow_mut();
        if let Some(text) = known.get(ty) {
            return text.clone();
        }
        known.entry(ty.clone()).or_insert_with(|| print_type(ty)).clone()
    }
    fn function(&mut self, f: &Function) -> Picture {
        self.open.insert(f.name);
        let mut p = self.block(f, f.body, &f.name.to_string(), f.name.as_str());
        let results = &f.blocks[f.body].results;
        let made = makers(f, f.body, &p);
        for (i, &v) in results.iter().enumerate() {
            let name = f.result_names.get(i).map_or_else(|| format!("result {i}"), |n| n.to_string());
            p.nodes.push(self.terminal(&format!("{}>{name}", f.name), "output", &name, (f, v)));
            let to = p.nodes.len() - 1;
            p.edges.extend(self.edge(f, &made, v, to, 0));
        }
        self.open.remove(&f.name);
        p
    }

    /// The nodes of a block with its arguments; `scope` makes keys of what has no name of its own.
    fn block(&mut self, f: &Function, block: BlockId, title: &str, scope: &str) -> Picture {
        let b = &f.blocks[block];
        let mut p = Picture { title: title.into(), ..Picture::default() };
        for (i, &v) in b.args.iter().enumerate() {
            let name = f.values[v].name.map_or_else(|| format!("argument {i}"), |n| n.to_string());
            p.nodes.push(self.terminal(&format!("{scope}<{name}"), "input", &name, (f, v)));
        }
        let mut used: FxHashMap<String, usize> = FxHashMap::default();
        let shown: Vec<NodeId> = b.nodes.iter().copied().filter(|&n| !f.nodes[n].op.is::<Const>()).collect();
        for &n in &shown {
            let base = format!("{scope}:{}", f.nodes[n].name);
            let count = used.entry(base.clone()).and_modify(|c| *c += 1).or_insert(0);
            let key = if *count == 0 { base } else { format!("{base}#{count}") };
            let node = self.node(f, n, key);
            p.nodes.push(node);
        }
        let made = makers(f, block, &p);
        for (i, &n) in shown.iter().enumerate() {
            let to = b.args.len() + i;
            for (operand, &v) in f.nodes[n].inputs.iter().enumerate() {
                p.edges.extend(v.and_then(|v| self.edge(f, &made, v, to, operand)));
            }
            // A value that a region reads from outside is an edge to the box of the region.
            for v in captured(f, &f.nodes[n]) {
                p.edges.extend(self.edge(f, &made, v, to, f.nodes[n].inputs.len()));
            }
        }
        p
    }

    fn node(&mut self, f: &Function, n: NodeId, key: String) -> Node {
        let node = &f.nodes[n];
        let outputs: Vec<String> = node.outputs.iter().map(|&v| self.type_of(f, v)).collect();
        let callee = called(node);
        let inside = self.inside(f, node, &key);
        let group = node.op.is::<Call>() && callee.is_some_and(|c| self.is_primitive(c)) || node.op.is::<CallTensor>();
        let op = match (inside.first().filter(|_| group), node.op.downcast::<Composite>()) {
            (Some(p), _) => {
                let own = p.nodes.iter().filter(|n| n.category != Category::Terminal);
                let ops: Vec<(Category, &str)> = own.map(|n| (n.category, n.op.as_str())).collect();
                meaning(callee.and_then(|c| self.module.functions.get(&c)), &ops)
            }
            (None, Some(composite)) => composite.name.to_string(),
            (None, None) => match (target(node), inside.first()) {
                (Some(target), Some(p)) => region(target, p),
                _ => node.op.name().to_string(),
            },
        };
        let own = category(f, node, self.infos.get(&f.name).and_then(|i| i.get(&n)));
        Node {
            key,
            op,
            name: node.name.to_string(),
            category: if group { Category::Group } else { own },
            work: if group { heaviest(&inside) } else { own },
            origins: origins_of(node, &inside),
            attrs: print_attrs(&node.op.attrs()).trim().trim_matches(['{', '}']).to_string(),
            weights: self.weights(f, node),
            dtype: node.outputs.first().map_or_else(String::new, |&v| f.ty(v).dtype.to_string()),
            outputs,
            layout: node.outputs.iter().find_map(|&v| self.layouts.get(f, v)),
            callee: callee.map(|c| c.to_string()),
            inside,
        }
    }

    fn is_primitive(&self, name: Name) -> bool {
        self.module.functions.get(&name).is_some_and(|f| f.primitive)
    }

    fn inside(&mut self, f: &Function, node: &GraphNode, key: &str) -> Vec<Arc<Picture>> {
        let callee = called(node).and_then(|c| self.module.functions.get(&c));
        if let Some(callee) = callee
            && !self.open.contains(&callee.name)
        {
            let mut p = self.function(callee);
            // The same function may be called twice: keys go by the call.
            rekey(&mut p, key);
            return vec![Arc::new(p)];
        }
        let count = node.regions.len();
        let title = |i: usize| match (count, i) {
            (1, _) => "body".to_string(),
            (2, 0) => "then".to_string(),
            (2, _) => "else".to_string(),
            (_, i) => format!("region {i}"),
        };
        node.regions
            .iter()
            .enumerate()
            .map(|(i, &r)| {
                let scope = format!("{key}/{i}");
                let mut p = self.block(f, r, &title(i), &scope);
                let made = makers(f, r, &p);
                for (k, &v) in f.blocks[r].results.iter().enumerate() {
                    let name = format!("result {k}");
                    p.nodes.push(self.terminal(&format!("{scope}>{k}"), "output", &name, (f, v)));
                    let to = p.nodes.len() - 1;
                    p.edges.extend(self.edge(f, &made, v, to, 0));
                }
                Arc::new(p)
            })
            .collect()
    }

    /// The box of a parameter or a result.
    fn terminal(&self, key: &str, op: &str, name: &str, (f, v): (&Function, ValueId)) -> Node {
        Node {
            key: key.into(),
            op: op.into(),
            name: name.into(),
            category: Category::Terminal,
            work: Category::Terminal,
            origins: vec![],
            attrs: String::new(),
            weights: vec![],
            outputs: vec![self.type_of(f, v)],
            dtype: f.ty(v).dtype.to_string(),
            layout: self.layouts.get(f, v),
            callee: None,
            inside: vec![],
        }
    }

    fn edge(&self, f: &Function, made: &Makers, v: ValueId, to: usize, operand: usize) -> Option<Edge> {
        let &(from, result) = made.get(&v)?;
        Some(Edge { from, to, result, operand, ty: self.type_of(f, v), layout: self.layouts.get(f, v) })
    }

    fn weights(&self, f: &Function, node: &GraphNode) -> Vec<Weight> {
        let constant = |(operand, v): (usize, &Option<ValueId>)| {
            let v = (*v)?;
            let (_, c) = f.def_op::<Const>(v)?;
            Some(Weight { operand, name: c.name.to_string(), ty: self.type_of(f, v) })
        };
        node.inputs.iter().enumerate().filter_map(constant).collect()
    }
}

fn rekey(p: &mut Picture, scope: &str) {
    for n in &mut p.nodes {
        n.key = format!("{scope}/{}", n.key);
        n.inside.iter_mut().for_each(|p| rekey(Arc::make_mut(p), scope));
    }
}

/// The box that makes each value of a block, and which result of it the value is.
type Makers = FxHashMap<ValueId, (usize, usize)>;

fn makers(f: &Function, block: BlockId, p: &Picture) -> Makers {
    let b = &f.blocks[block];
    let mut made: Makers = b.args.iter().enumerate().map(|(i, &v)| (v, (i, 0))).collect();
    let shown = b.nodes.iter().filter(|&&n| !f.nodes[n].op.is::<Const>());
    for (i, &n) in shown.enumerate().take(p.nodes.len()) {
        made.extend(f.nodes[n].outputs.iter().enumerate().map(|(k, &v)| (v, (b.args.len() + i, k))));
    }
    made
}

/// Values from outside that the regions of a node read.
fn captured(f: &Function, node: &GraphNode) -> Vec<ValueId> {
    let (mut inner, mut read) = (FxHashSet::default(), Vec::new());
    let mut regions = node.regions.clone();
    while let Some(r) = regions.pop() {
        let b = &f.blocks[r];
        inner.extend(b.args.iter().copied());
        read.extend(&b.results);
        for &n in &b.nodes {
            inner.extend(f.nodes[n].outputs.iter().copied());
            read.extend(f.nodes[n].inputs.iter().flatten());
            regions.extend(&f.nodes[n].regions);
        }
    }
    let mut seen = FxHashSet::default();
    read.into_iter().filter(|v| !inner.contains(v) && seen.insert(*v)).collect()
}

fn origins_of(node: &GraphNode, inside: &[Arc<Picture>]) -> Vec<String> {
    let mut names: Vec<String> = node.origins.names().iter().map(|n| n.to_string()).collect();
    for p in inside {
        p.nodes.iter().for_each(|n| names.extend(n.origins.iter().cloned()));
    }
    names.sort();
    names.dedup();
    names
}

/// The kind of work in a group that costs most: categories are listed from the heaviest on.
fn heaviest(inside: &[Arc<Picture>]) -> Category {
    let works = inside.iter().flat_map(|p| &p.nodes).map(|n| n.work).filter(|w| *w != Category::Terminal);
    works.min().unwrap_or(Category::Group)
}
