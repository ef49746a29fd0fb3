//! Draws random edits of traces, and random instructions that may or may not apply to a function.

use compiler::attr::{Attr, Attrs};
use compiler::schedule::{INSTRUCTIONS, InstrRef, InstructionDef, find_instruction};
use compiler::tir::{Stmt, TensorFunction};

/// A random number generator (splitmix64).
pub struct Draw(u64);

const AXES: &[&str] = &["group_x", "group_y", "group_z", "local_x", "local_y", "local_z"];
const SCOPES: &[&str] = &["register", "shared", "global"];
const OPERANDS: &[&str] = &["", "0", "1", "0.0", "0.1", "1.0", "1.1"];

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for none.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        list.get(self.below(list.len())).cloned()
    }

    /// Changes one thing in a trace; `donor` lends instructions.
    pub fn edit(&mut self, trace: &mut Vec<InstrRef>, donor: &[InstrRef]) {
        let (n, m) = (self.below(trace.len()), self.below(trace.len()));
        match self.below(8) {
            0 => drop(trace.remove(n)),
            1 => trace.swap(n, m),
            2 if n + 1 < trace.len() => trace.swap(n, n + 1),
            3 => {
                let moved = trace.remove(n);
                trace.insert(m.min(trace.len()), moved);
            }
            4 => trace.insert(m, trace[n].clone()),
            5 => trace.insert(m, donor[self.below(donor.len())].clone()),
            _ => {
                if let Some(changed) = self.changed(&trace[n], trace) {
                    trace[n] = changed;
                }
            }
        }
    }

    /// Drops, repeats or swaps lines of a schedule; the last lines, which make kernels, as often as all others
    /// together.
    pub fn edit_lines(&mut self, lines: &mut Vec<InstrRef>) {
        let late = lines.len().saturating_sub(3);
        let n = if self.below(2) == 0 { late + self.below(lines.len() - late) } else { self.below(lines.len()) };
        let m = self.below(lines.len());
        match self.below(4) {
            _ if lines.is_empty() => {}
            0 | 1 => drop(lines.remove(n)),
            2 => lines.insert(m, lines[n].clone()),
            _ => lines.swap(n, m),
        }
    }

    /// The instruction with another value of one of its attributes.
    fn changed(&mut self, i: &InstrRef, trace: &[InstrRef]) -> Option<InstrRef> {
        let mut attrs = i.attrs();
        let key = self.pick(&attrs.keys().cloned().collect::<Vec<_>>())?;
        // Values of the same attribute elsewhere in the schedule are names that exist.
        let mut pool: Vec<Attr> = trace.iter().filter_map(|i| i.attrs().get(&key).cloned()).collect();
        let words: &[&str] = match key.as_str() {
            "axis" => AXES,
            "scope" => SCOPES,
            "operand" => OPERANDS,
            _ => &[],
        };
        pool.extend(words.iter().map(|w| Attr::Str((*w).into())));
        let old = attrs[&key].clone();
        let new = if self.below(2) == 0 { self.pick(&pool)? } else { self.mutated(&old, &pool) };
        attrs.insert(key, new);
        (find_instruction(i.name())?.from_attrs)(&attrs).ok()
    }

    fn mutated(&mut self, a: &Attr, pool: &[Attr]) -> Attr {
        match a {
            Attr::Int(v) => Attr::Int(self.number(*v)),
            Attr::Bool(b) => Attr::Bool(!b),
            Attr::List(list) if !list.is_empty() => {
                let (n, m) = (self.below(list.len()), self.below(list.len()));
                let mut list = list.clone();
                match self.below(5) {
                    0 => drop(list.remove(n)),
                    1 => list.swap(n, m),
                    2 => list.insert(m, list[n].clone()),
                    _ => {
                        let inner: Vec<Attr> = pool
                            .iter()
                            .filter_map(|p| if let Attr::List(l) = p { Some(l.clone()) } else { None })
                            .flatten()
                            .collect();
                        list[n] = self.mutated(&list[n], &inner);
                    }
                }
                Attr::List(list)
            }
            other => self.pick(pool).unwrap_or_else(|| other.clone()),
        }
    }

    fn number(&mut self, v: i64) -> i64 {
        let small = [0, 1, 2, 3, 4, 5, 7, 8, 16];
        match self.below(8) {
            0 => v.wrapping_add(1),
            1 => v.wrapping_sub(1),
            2 => v.wrapping_mul(2),
            3 => v / 2,
            4 => self.pick(&[i64::MAX, i64::MIN, -1, 1 << 31, i64::from(i32::MAX), 1 << 32]).unwrap_or(v),
            _ => self.pick(&small).unwrap_or(v),
        }
    }

    /// An instruction with attributes from what the function has.
    pub fn instruction(&mut self, f: &TensorFunction) -> Option<InstrRef> {
        let def = &INSTRUCTIONS.own()[self.below(INSTRUCTIONS.own().len())];
        let mut attrs = Attrs::new();
        let loops = loops_of(f);
        for key in attributes(def) {
            if let Some(value) = self.value(def.name, &key, f, &loops) {
                attrs.insert(key, value);
            }
        }
        (def.from_attrs)(&attrs).ok()
    }

    fn fresh(&mut self) -> Attr {
        Attr::Str(format!("e{}", self.below(1000)))
    }

    fn value(&mut self, instruction: &str, key: &str, f: &TensorFunction, loops: &[String]) -> Option<Attr> {
        let text = |s: Option<String>| s.map(Attr::Str);
        let blocks: Vec<String> = f.body.blocks().iter().map(|b| b.name.to_string()).collect();
        let buffers: Vec<String> = f.buffers.iter().map(|b| b.1.name.to_string()).collect();
        let words = |w: &[&str]| w.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        match (instruction, key) {
            ("partition-loop", "at") => Some(Attr::List(vec![Attr::Int(1 + self.below(6) as i64)])),
            ("merge-nests", "into") => text(self.pick(&blocks)),
            ("rfactor", "at") if self.below(2) == 0 => None,
            ("split", "into") => Some(Attr::List(vec![self.fresh(), self.fresh()])),
            ("split", "factors") => {
                let factor = Attr::Int(self.number(4));
                Some(Attr::List(if self.below(4) == 0 {
                    vec![factor, Attr::Int(0)]
                } else {
                    vec![Attr::Int(0), factor]
                }))
            }
            (_, "into") => Some(self.fresh()),
            (_, "loop" | "at" | "lane" | "dim") => text(self.pick(loops)),
            (_, "loops") => {
                let start = self.below(loops.len());
                let mut list: Vec<Attr> =
                    loops[start..].iter().take(2 + self.below(2)).map(|l| Attr::Str(l.clone())).collect();
                if instruction == "reorder" {
                    let (a, b) = (self.below(list.len()), self.below(list.len()));
                    list.swap(a, b);
                }
                Some(Attr::List(list))
            }
            (_, "block") => text(self.pick(&blocks)),
            (_, "buffer") => text(self.pick(&buffers)),
            (_, "buffers") => text(self.pick(&buffers)).map(|b| Attr::List(vec![b])),
            (_, "axis") => text(self.pick(&words(AXES))),
            (_, "scope") => text(self.pick(&words(SCOPES))),
            (_, "operand") => text(self.pick(&words(OPERANDS))),
            (_, "double_buffer") => Some(Attr::Bool(self.below(2) == 0)),
            (_, "dims") => Some(Attr::List((0..2 + self.below(3) as i64).map(Attr::Int).collect())),
            (_, "splits") => {
                Some(Attr::List((0..1 + self.below(3)).map(|_| Attr::Int(self.below(5) as i64)).collect()))
            }
            (_, "together") if blocks.len() > 1 && self.below(2) == 0 => {
                let n = self.below(blocks.len() - 1);
                Some(Attr::List(vec![Attr::List(blocks[n..n + 2].iter().map(|b| Attr::Str(b.clone())).collect())]))
            }
            _ => None,
        }
    }
}

/// The attributes of an instruction: what its refusal of an unknown one lists.
fn attributes(def: &InstructionDef) -> Vec<String> {
    let mut unknown = Attrs::new();
    unknown.insert("?".into(), Attr::Bool(true));
    let message = (def.from_attrs)(&unknown).expect_err("an unknown attribute");
    let list = message.split_once("known: ").map_or("", |m| m.1);
    list.split(", ").filter(|s| !s.is_empty()).map(String::from).collect()
}

/// Variables of all loops, in order.
fn loops_of(f: &TensorFunction) -> Vec<String> {
    let mut out = Vec::new();
    f.body.visit(&mut |s| {
        if let Stmt::For(l) = s {
            out.push(l.var.to_string());
        }
    });
    out
}
