//! The steps of a plan as statements of `network_run`: calls of kernels, copies, branches and loops.

use crate::kernel::{Kernel, Parameter};
use crate::places::{Places, view_type};
use tensor_ir::plan::{Branch, BufferView, Dispatch, Loop, Plan, Step, Trips};

/// Prints steps.
pub(crate) struct Steps<'p> {
    plan: &'p Plan,
    places: &'p Places,
    /// The C function of each kernel of the plan.
    names: &'p [(String, &'p Kernel)],
    out: String,
    /// Blocks around the next line.
    depth: usize,
}

impl<'p> Steps<'p> {
    /// All steps of a plan.
    ///
    /// # Errors
    /// What has no C, by name.
    pub fn print(plan: &'p Plan, places: &'p Places, names: &'p [(String, &'p Kernel)]) -> Result<String, String> {
        let mut p = Steps { plan, places, names, out: String::new(), depth: 1 };
        p.steps(&plan.steps)?;
        Ok(p.out)
    }
    fn line(&mut self, text: &str) {
        (0..self.depth).for_each(|_| self.out.push_str("    "));
        self.out.push_str(text);
        self.out.push('\n');
    }
    fn inner(&mut self, steps: &[Step]) -> Result<(), String> {
        self.depth += 1;
        self.steps(steps)?;
        self.depth -= 1;
        Ok(())
    }
    fn steps(&mut self, list: &[Step]) -> Result<(), String> {
        list.iter().try_for_each(|s| match s {
            Step::Gpu(dispatches) => dispatches.iter().try_for_each(|d| self.dispatch(d)),
            Step::Copy { from, to } => self.copy(*from, *to),
            Step::Branch(b) => self.branch(b),
            Step::Loop(l) => self.r#loop(l),
            Step::Host(h) => Err(format!("`{}` runs on the host, step by step", h.name)),
            Step::Call(_) => Err("a function of the network is called in a run".into()),
        })
    }
    fn dispatch(&mut self, d: &Dispatch) -> Result<(), String> {
        let (name, kernel) = &self.names[d.kernel];
        let argument = |(p, (buffer, _)): (&Parameter, &(usize, u32))| {
            let constant = if p.written { "" } else { "const " };
            Ok(format!("({constant}{} *)({})", p.ty, self.places.of(*buffer, &p.name)?))
        };
        let list = kernel.parameters.iter().zip(&d.buffers).map(argument).collect::<Result<Vec<_>, String>>()?;
        self.line(&format!("{name}({});", list.join(", ")));
        Ok(())
    }
    fn copy(&mut self, from: usize, to: usize) -> Result<(), String> {
        let bytes = self.plan.buffers[from].bytes.min(self.plan.buffers[to].bytes);
        let (to, from) = (self.places.of(to, "a copy")?, self.places.of(from, "a copy")?);
        self.line(&format!("memmove({to}, {from}, {bytes});"));
        Ok(())
    }
    /// The one element of a view.
    fn element(&self, v: &BufferView) -> Result<String, String> {
        let place = self.places.of(v.buffer, v.name.as_str())?;
        Ok(format!("*(const {} *)({place})", view_type(self.plan, v)))
    }
    fn branch(&mut self, b: &Branch) -> Result<(), String> {
        self.line(&format!("if ({}) {{", self.element(&b.condition)?));
        self.inner(&b.then)?;
        self.line("} else {");
        self.inner(&b.otherwise)?;
        self.line("}");
        Ok(())
    }
    /// A loop. Its last act in an iteration is to carry values over: whether to go on may be one of them.
    fn r#loop(&mut self, l: &Loop) -> Result<(), String> {
        let d = self.depth;
        if let (Trips::Fixed(n), None, None) = (&l.trips, &l.begin, &l.go_on) {
            self.line(&format!("for (int64_t n{d} = 0; n{d} < {n}; ++n{d}) {{"));
            self.depth += 1;
            self.iteration(l, d)?;
            l.carried.iter().try_for_each(|c| self.copy(c.next, c.now))?;
            self.depth -= 1;
            self.line("}");
            return Ok(());
        }
        let (trips, below) = match &l.trips {
            Trips::Fixed(n) => (n.to_string(), Some(format!(" < trips{d}"))),
            Trips::Read(view) => (self.element(view)?, Some(format!(" < trips{d}"))),
            Trips::Unlimited => (String::new(), None),
        };
        let more = |p: &Self, condition: &Option<BufferView>, at: &str| {
            let wanted = condition.as_ref().map(|v| Ok::<_, String>(format!("{} != 0", p.element(v)?))).transpose()?;
            let all: Vec<String> = below.iter().map(|b| format!("{at}{b}")).chain(wanted).collect();
            Ok::<_, String>(if all.is_empty() { "1".to_string() } else { all.join(" && ") })
        };
        let (begin, go_on) = (more(self, &l.begin, "0")?, more(self, &l.go_on, &format!("n{d}"))?);
        self.line("{");
        self.depth += 1;
        if below.is_some() {
            self.line(&format!("const int64_t trips{d} = {trips};"));
        }
        self.line(&format!("int more{d} = {begin};"));
        self.line(&format!("for (int64_t n{d} = 0; more{d};) {{"));
        self.depth += 1;
        self.iteration(l, d)?;
        self.line(&format!("++n{d};"));
        self.line(&format!("more{d} = {go_on};"));
        l.carried.iter().try_for_each(|c| self.copy(c.next, c.now))?;
        self.depth -= 1;
        self.line("}");
        self.depth -= 1;
        self.line("}");
        Ok(())
    }
    /// What each iteration does. `n{d}` is its number.
    fn iteration(&mut self, l: &Loop, d: usize) -> Result<(), String> {
        if let Some(view) = &l.index {
            let (ty, place) = (view_type(self.plan, view), self.places.of(view.buffer, view.name.as_str())?);
            self.line(&format!("*({ty} *)({place}) = ({ty})n{d};"));
        }
        self.steps(&l.body)?;
        for c in &l.collected {
            if c.grows {
                return Err(format!("data decide how many rows `{}` has", c.row.name));
            }
            let (row, all) = (self.places.of(c.row.buffer, c.row.name.as_str())?, self.places.of(c.all, "a copy")?);
            self.line(&format!("memcpy({all} + n{d} * {bytes}, {row}, {bytes});", bytes = c.row_bytes));
        }
        Ok(())
    }
}
