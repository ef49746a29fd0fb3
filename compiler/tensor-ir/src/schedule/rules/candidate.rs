//! A candidate: one way for a rule to schedule a unit, as the values of the rule's choices.

use super::decline::Decline;
use super::unit::Unit;
use crate::attr::Attr;
use crate::attr::print::print_value;
use crate::name::Name;
use crate::schedule::Choose;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// The choices that a rule makes for a unit, a field for each point. [`candidate!`](crate::candidate) declares such
/// structs.
pub trait Choices: Any + fmt::Debug + Send + Sync {
    /// The points with their values, in the order in which they are chosen.
    fn points(&self) -> Vec<(&'static str, Attr)>;
    /// For downcasts.
    fn as_any(&self) -> &dyn Any;
}

/// Declares the candidates of a rule: a struct whose fields are the rule's choices, by the names that `choose` lines
/// have.
///
/// `candidate! { /// doc  pub struct Threads { /// doc  pub threads: i64 } }`
#[macro_export]
macro_rules! candidate {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($(#[$fdoc:meta])* pub $field:ident : $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug)]
        $vis struct $name { $($(#[$fdoc])* pub $field: $ty),* }
        impl $crate::schedule::rules::Choices for $name {
            fn points(&self) -> Vec<(&'static str, $crate::attr::Attr)> {
                vec![$((stringify!($field), $crate::attr::AttrValue::to_attr(&self.$field))),*]
            }
            fn as_any(&self) -> &dyn ::std::any::Any {
                self
            }
        }
    };
}

/// One of the ways in which a rule may schedule a unit.
#[derive(Clone, Debug)]
pub struct Candidate {
    choices: Arc<dyn Choices>,
    on_request: bool,
}

impl Candidate {
    /// A candidate that the estimate compares.
    pub fn new(choices: impl Choices) -> Candidate {
        Candidate { choices: Arc::new(choices), on_request: false }
    }
    /// The same, but considered only if one of its values is requested.
    pub fn on_request(self) -> Candidate {
        Candidate { on_request: true, ..self }
    }
    /// Whether it must be requested.
    pub fn is_on_request(&self) -> bool {
        self.on_request
    }
    /// The choices.
    ///
    /// # Errors
    /// Declines candidates of another rule.
    pub fn choices<T: Choices>(&self) -> Result<&T, Decline> {
        self.choices.as_any().downcast_ref().ok_or_else(Decline::other_kind)
    }
    /// The points with their values, in the order in which they are chosen.
    pub fn points(&self) -> Vec<(&'static str, Attr)> {
        self.choices.points()
    }
    /// The same, with the values in text.
    pub fn printed(&self) -> Vec<(&'static str, String)> {
        self.points().into_iter().map(|(p, v)| (p, print_value(&v))).collect()
    }
    /// The value of a point.
    pub fn value(&self, point: &str) -> Option<Attr> {
        self.points().into_iter().find(|p| p.0 == point).map(|p| p.1)
    }
    /// Its lines in a schedule, without the domains.
    pub fn lines(&self, unit: &Unit) -> Vec<Choose> {
        let line = |(point, value): (&str, Attr)| {
            let (unit, point, of) = (unit.name(), Name::new(point), vec![value.clone()]);
            Choose { unit, point, value, of }
        };
        self.points().into_iter().map(line).collect()
    }
}

/// `tile=[16,16,1,1,4], depth=16, slices=1`
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.printed().iter().map(|(p, v)| format!("{p}={v}")).collect();
        f.write_str(&list.join(", "))
    }
}

candidate! {
    /// A rule chooses nothing, or all as it goes.
    pub(super) struct NoChoice {}
}
