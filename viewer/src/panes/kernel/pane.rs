//! The state of the kernel pane.

use super::editing::Edit;
use super::fold::ListRow;
use super::forms::{Deriver, Forms};
use super::part::KernelPart;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// A form of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Form {
    /// The tensor function before its schedule.
    Lowered,
    /// The scheduled tensor function.
    Tensor,
    /// The instructions that made it.
    Schedule,
    /// WGSL, as it is in the trace.
    #[default]
    Wgsl,
    /// WGSL of the edited schedule.
    Edited,
    /// SPIR-V.
    Spirv,
    /// MSL.
    Msl,
    /// HLSL.
    Hlsl,
    /// The device's own instructions.
    Isa,
}
impl Form {
    /// Every form with its word on the command line and its title.
    pub const ALL: [(Form, &'static str, &'static str); 9] = [
        (Form::Lowered, "lowered", "Unscheduled"),
        (Form::Tensor, "tensor", "Tensor IR"),
        (Form::Schedule, "schedule", "Schedule"),
        (Form::Wgsl, "wgsl", "WGSL"),
        (Form::Edited, "edited", "Edited"),
        (Form::Spirv, "spirv", "SPIR-V"),
        (Form::Msl, "msl", "MSL"),
        (Form::Hlsl, "hlsl", "HLSL"),
        (Form::Isa, "isa", "ISA"),
    ];
    /// Its title.
    pub fn title(self) -> &'static str {
        Form::ALL.iter().find(|f| f.0 == self).map_or("", |f| f.2)
    }
}

/// The state of the kernel pane.
pub struct KernelPane {
    /// The form beside the graph.
    pub form: Form,
    /// Several forms stand in the place of the graph.
    pub wide: bool,
    /// These forms, from left to right.
    pub columns: Vec<Form>,
    /// The forms were asked for by name.
    asked: bool,
    /// Runs of unrolled lines are one row.
    pub folded: bool,
    /// The chosen place, and its kernel.
    pub(super) place: Option<(usize, KernelPart)>,
    /// The place under the pointer in the last frame, and in this one.
    pub(super) pointed: [Option<KernelPart>; 2],
    pub(super) deriver: Option<Deriver>,
    /// The forms of the kernel that is shown, once they are made.
    pub(super) forms: Option<(usize, Arc<Forms>)>,
    /// What is known of the lines of each form.
    pub(super) own: FxHashMap<Form, Own>,
    /// First lines of runs that were opened.
    pub(super) opened: FxHashSet<(Form, usize)>,
    /// The schedule as it is being changed.
    pub edit: Edit,
    /// Lines to bring into sight.
    pub(super) go: FxHashMap<Form, usize>,
    /// The form in which the selection was made: it need not scroll to it.
    pub(super) here: Option<Form>,
}
impl Default for KernelPane {
    fn default() -> Self {
        KernelPane {
            form: Form::default(),
            wide: false,
            columns: vec![Form::Tensor, Form::Wgsl],
            asked: false,
            folded: true,
            place: None,
            pointed: [None; 2],
            deriver: None,
            forms: None,
            own: FxHashMap::default(),
            opened: FxHashSet::default(),
            edit: Edit::default(),
            go: FxHashMap::default(),
            here: None,
        }
    }
}
impl KernelPane {
    /// Whether forms are being made.
    pub fn busy(&mut self) -> bool {
        self.deriver.as_mut().is_some_and(Deriver::busy) || self.edit.busy()
    }
    /// The chosen place of a kernel.
    pub(super) fn place(&self, kernel: usize) -> KernelPart {
        self.place.filter(|p| p.0 == kernel).map_or(KernelPart::default(), |p| p.1)
    }
    /// Shows these forms besides those that were asked for before; the first ones take the place of the default.
    pub fn ask_columns(&mut self, forms: impl Iterator<Item = Form>) {
        if !std::mem::replace(&mut self.asked, true) {
            self.columns.clear();
        }
        forms.for_each(|f| self.columns.push(f));
    }
    /// Shows a form beside the others, or takes it away; one always stays.
    pub fn turn_column(&mut self, form: Form) {
        match self.columns.iter().position(|c| *c == form) {
            Some(i) if self.columns.len() > 1 => {
                self.columns.remove(i);
            }
            Some(_) => {}
            None => {
                self.columns.push(form);
                let order = |f: &Form| Form::ALL.iter().position(|a| a.0 == *f);
                self.columns.sort_by_key(order);
            }
        }
    }
}

/// The kernel, the number of the selection, whether the forms were there, the edited schedule whose shader was, and for
/// a schedule its text.
pub(super) type OwnKey = (usize, u64, bool, Option<String>, String);

/// Lines of a form with their places, and whether each belongs to the selection.
#[derive(Default)]
pub(super) struct Own {
    pub(super) key: Option<OwnKey>,
    pub(super) lines: Vec<(KernelPart, bool)>,
    /// The lines as text, and the characters of the longest.
    pub(super) texts: Arc<Vec<String>>,
    pub(super) longest: usize,
    pub(super) rows: Arc<Vec<ListRow>>,
    /// Lines that the other one of two shaders has not.
    pub(super) differs: Vec<bool>,
}
