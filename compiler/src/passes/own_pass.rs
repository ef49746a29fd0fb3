//! Passes that a program gives as functions, at a place of the standard pipeline.

use super::{Pass, PassBase, PassContext, PassError};
use crate::attr::Attrs;
use crate::graph::Module;
use crate::name::Name;
use std::fmt;
use std::sync::Arc;

type Run = dyn Fn(&mut Module, &mut PassContext) -> Result<bool, PassError> + Send + Sync;

/// A function as a pass, for [`PipelineOptions::own`](super::PipelineOptions::own). It runs at any opt level. It may run
/// several times in a compilation (calibration, a second try for a driver), so it must do the same each time.
///
/// ```
/// use compiler::passes::{OwnPass, PipelineOptions, default_pipeline};
///
/// let count = OwnPass::new("count-nodes", |module, _| {
///     println!("{}", module.main().walk().len());
///     Ok(false)
/// });
/// let options = PipelineOptions { own: vec![count.before("fuse-ops")], ..PipelineOptions::default() };
/// assert_eq!(default_pipeline(&options).iter().rev().nth(1).unwrap(), "count-nodes");
/// ```
#[derive(Clone)]
pub struct OwnPass {
    name: &'static str,
    before: Option<String>,
    run: Arc<Run>,
}

impl OwnPass {
    /// A pass that runs on the model as it was read: right behind `infer-types`, after those given before it.
    pub fn new(
        name: impl Into<Name>,
        run: impl Fn(&mut Module, &mut PassContext) -> Result<bool, PassError> + Send + Sync + 'static,
    ) -> OwnPass {
        OwnPass { name: name.into().as_str(), before: None, run: Arc::new(run) }
    }
    /// The same, right before the first pass of this name.
    pub fn before(self, pass: impl Into<String>) -> OwnPass {
        OwnPass { before: Some(pass.into()), ..self }
    }

    /// Puts passes into a pipeline, in the order given at each place; those without a place are left out.
    ///
    /// # Errors
    /// The first place that the pipeline does not have, or name that two of them share.
    pub(super) fn insert_all(own: &[OwnPass], pipeline: &mut Vec<String>) -> Result<(), String> {
        let standard = pipeline.clone();
        let mut behind_first = usize::from(!standard.is_empty());
        let mut done = Ok(());
        for (i, pass) in own.iter().enumerate() {
            if own[..i].iter().any(|other| other.name == pass.name) {
                done = done.and_then(|()| Err(format!("two own passes have the name `{}`", pass.name)));
            }
            let place = match &pass.before {
                None => behind_first,
                Some(before) if standard.contains(before) => {
                    pipeline.iter().position(|p| p == before).unwrap_or(behind_first)
                }
                Some(before) => {
                    let (name, there) = (pass.name, standard.join(", "));
                    let why =
                        format!("the pipeline has no pass `{before}` for `{name}` to run before; it has: {there}");
                    done = done.and(Err(why));
                    continue;
                }
            };
            pipeline.insert(place, pass.name.into());
            behind_first += usize::from(place <= behind_first);
        }
        done
    }
}

impl PassBase for OwnPass {
    fn name(&self) -> &'static str {
        self.name
    }
    fn options(&self) -> Attrs {
        Attrs::new()
    }
}

impl Pass for OwnPass {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        (self.run)(module, cx)
    }
}

impl fmt::Debug for OwnPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} before {:?}", self.name, self.before)
    }
}
/// The same function at the same place, not merely one of the same name.
impl PartialEq for OwnPass {
    fn eq(&self, other: &OwnPass) -> bool {
        Arc::ptr_eq(&self.run, &other.run) && self.before == other.before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_stand_where_they_ask_to() {
        let own = |name: &str, before: Option<&str>| {
            let pass = OwnPass::new(name, |_, _| Ok(false));
            before.map_or(pass.clone(), |before| pass.before(before))
        };
        let mut list: Vec<String> = ["infer-types", "simplify", "fuse-ops", "simplify"].map(String::from).to_vec();
        let passes = [own("a", None), own("b", Some("simplify")), own("c", Some("infer-types")), own("d", None)];
        OwnPass::insert_all(&passes, &mut list).expect("places");
        assert_eq!(list, ["c", "infer-types", "a", "d", "b", "simplify", "fuse-ops", "simplify"]);
        let why = OwnPass::insert_all(&[own("e", Some("simplfy"))], &mut list).expect_err("no such place");
        assert_eq!(list.len(), 8);
        let twice = [own("f", None), own("f", None)];
        assert_eq!(OwnPass::insert_all(&twice, &mut list).expect_err("twice"), "two own passes have the name `f`");
        assert!(
            why.starts_with("the pipeline has no pass `simplfy` for `e` to run before; it has: c, infer-types"),
            "{why}"
        );
    }
}
