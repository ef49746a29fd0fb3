//! The standard pipelines: which passes run, in which order, for which options.

use super::{AlterLayout, AmpMode, FuseMode, KeepF32, LayoutMode, OwnPass, PassContext, PassDef, ReplaceWithHostCalls};
use crate::attr::{AttrStruct, Attrs};
use crate::schedule::ScheduleOptions;

/// Options of a compilation that decide its passes and schedules.
#[derive(Clone, PartialEq, Debug)]
pub struct PipelineOptions {
    /// Opt level, 0 to 3.
    pub opt_level: u8,
    /// Fusion.
    pub fuse: FuseMode,
    /// Layout.
    pub layout: LayoutMode,
    /// Mixed precision.
    pub amp: AmpMode,
    /// Source nodes that mixed precision leaves in f32: the user's list, and what calibration found.
    pub keep_f32: Vec<KeepF32>,
    /// Callbacks that say in which layout ops have to run.
    pub alter_layouts: Vec<AlterLayout>,
    /// Options by pass name.
    pub config: Vec<(String, Attrs)>,
    /// Passes that never run.
    pub disabled: Vec<String>,
    /// A pipeline that replaces the standard one.
    pub passes: Option<Vec<String>>,
    /// Passes of one's own, which pipelines find by name.
    pub registry: Vec<PassDef>,
    /// Functions that run as passes, each at its place; their names differ.
    pub own: Vec<OwnPass>,
    /// What the user asks of the schedule rules: fusion, layouts and precision see it too.
    pub scheduling: ScheduleOptions,
    /// Options by name as the user gave them, for records and for keys of caches; nothing is decided by them.
    pub asked: Vec<(String, String)>,
}
impl Default for PipelineOptions {
    /// The command's defaults: level 3, full fusion, layout by cost, f32.
    fn default() -> PipelineOptions {
        PipelineOptions {
            opt_level: 3,
            fuse: FuseMode::Full,
            layout: LayoutMode::Auto,
            amp: AmpMode::Off,
            keep_f32: vec![],
            alter_layouts: vec![],
            config: vec![],
            disabled: vec![],
            passes: None,
            registry: vec![],
            own: vec![],
            scheduling: ScheduleOptions::default(),
            asked: vec![],
        }
    }
}
impl PipelineOptions {
    /// True when the options have some for this pass, which runs only then.
    fn asks_for(&self, name: &str) -> bool {
        self.config.iter().any(|(pass, _)| pass == name)
    }
    /// Sets level, modes, disabled passes and what is asked of the schedule rules.
    pub fn configure(&self, cx: &mut PassContext) {
        (cx.opt_level, cx.fuse, cx.layout, cx.amp) = (self.opt_level, self.fuse, self.layout, self.amp);
        cx.disabled.extend(self.disabled.iter().cloned());
        cx.config.extend(self.config.iter().cloned());
        cx.keep_f32.extend(self.keep_f32.iter().cloned());
        cx.alter_layouts.extend(self.alter_layouts.iter().cloned());
        cx.registry.extend(self.registry.iter().copied());
        cx.own.extend(self.own.iter().cloned());
        cx.scheduling.clone_from(&self.scheduling);
    }
}

/// The passes for `options`, in order. With classic fusion no pass combines, absorbs or rewrites ops, so that each
/// source node ends in exactly one group. Own passes without a place are left out ([`check_own_passes`]).
pub fn default_pipeline(options: &PipelineOptions) -> Vec<String> {
    let mut list = standard_pipeline(options);
    // A compilation refuses what has no place.
    let _ = insert_all(&options.own, &mut list);
    list
}

/// Each own pass has a place and a name of its own.
///
/// # Errors
/// The first that has not.
pub fn check_own_passes(options: &PipelineOptions) -> Result<(), String> {
    insert_all(&options.own, &mut standard_pipeline(options))
}

/// Puts passes into a pipeline, in the order given at each place; those without a place are left out.
///
/// # Errors
/// The first place that the pipeline does not have, or name that two of them share.
fn insert_all(own: &[OwnPass], pipeline: &mut Vec<String>) -> Result<(), String> {
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
                let why = format!("the pipeline has no pass `{before}` for `{name}` to run before; it has: {there}");
                done = done.and(Err(why));
                continue;
            }
        };
        pipeline.insert(place, pass.name.into());
        behind_first += usize::from(pass.before.is_none() || place < behind_first);
    }
    done
}

fn standard_pipeline(options: &PipelineOptions) -> Vec<String> {
    if let Some(own) = &options.passes {
        return own.clone();
    }
    let classic = options.fuse == FuseMode::Classic;
    let mut list: Vec<&str> = match classic {
        true => vec![
            "infer-types",
            "lift-lambdas",
            "specialize-functions",
            "inline-functions",
            "to-a-normal-form",
            "fold-constants",
            "fold-batch-norm",
            "eliminate-dead",
        ],
        false => vec![
            "infer-types",
            "lift-lambdas",
            "specialize-functions",
            "inline-functions",
            "to-a-normal-form",
            "remove-unused-functions",
            "round-rows",
            "integer-products",
            "simplify",
            "fold-constants",
            "canonicalize-ops",
            "eliminate-dead",
            "fold-batch-norm",
            "fold-scale-axis",
            "simplify",
            "eliminate-common-subexpr",
            "eliminate-dead",
            "combine-parallel-conv",
            "combine-parallel-matmul",
            "eliminate-dead",
        ],
    };
    if options.asks_for("annotate-target") {
        // Before passes that make forms for Weft's own kernels.
        let place = list.iter().position(|p| *p == "combine-parallel-conv").unwrap_or(list.len());
        list.splice(place..place, EXTERNAL);
    }
    if options.asks_for(ReplaceWithHostCalls::NAME) {
        list.insert(1, ReplaceWithHostCalls::NAME);
    }
    if options.amp != AmpMode::Off {
        list.extend(["mixed-precision", "eliminate-dead"]);
    }
    if options.layout != LayoutMode::None {
        list.push("auto-layout");
        list.extend(tidy_layouts(options.fuse));
    }
    list.extend(make_kernels(options.fuse));
    list.into_iter().map(String::from).collect()
}

/// The passes that give parts of the graph to external targets.
const EXTERNAL: [&str; 6] =
    ["merge-composite", "annotate-target", "merge-regions", "partition-graph", "inline-external", "eliminate-dead"];

/// What follows layouts: transforms are joined, constants laid out again.
fn tidy_layouts(fuse: FuseMode) -> Vec<&'static str> {
    match fuse {
        FuseMode::Classic => vec!["fold-constants", "eliminate-dead"],
        _ => vec!["simplify", "fold-constants", "eliminate-common-subexpr", "eliminate-dead"],
    }
}

/// The last passes: nodes become those that kernels are of, and groups.
fn make_kernels(fuse: FuseMode) -> Vec<&'static str> {
    match fuse {
        FuseMode::Classic => vec!["fuse-ops"],
        FuseMode::Off => vec!["transposed-phases", "winograd", "absorb-transposes", "eliminate-dead", "fuse-ops"],
        FuseMode::Full => {
            let nodes = ["transposed-phases", "winograd", "absorb-transposes", "eliminate-dead", "split-to-slices"];
            [nodes.as_slice(), &["fuse-ops", "concat-parts"]].concat()
        }
    }
}

/// The passes behind `auto-layout`, in order.
pub(super) fn behind_layout(fuse: FuseMode) -> Vec<&'static str> {
    [tidy_layouts(fuse), make_kernels(fuse)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::find_pass;

    #[test]
    fn every_pass_of_the_pipelines_exists() {
        for fuse in FuseMode::ALL {
            for (layout, amp) in LayoutMode::ALL.iter().flat_map(|l| AmpMode::ALL.iter().map(move |a| (l, a))) {
                let options = PipelineOptions { fuse: *fuse, layout: *layout, amp: *amp, ..PipelineOptions::default() };
                let list = default_pipeline(&options);
                let last = if *fuse == FuseMode::Full { "concat-parts" } else { "fuse-ops" };
                assert_eq!(list.last().map(String::as_str), Some(last));
                assert!(list.iter().all(|p| find_pass(p).is_some()), "{list:?}");
                assert_eq!(list.iter().any(|p| p == "mixed-precision"), *amp != AmpMode::Off);
            }
        }
    }

    #[test]
    fn passes_stand_where_they_ask_to() {
        let own = |name: &str, before: Option<&str>| {
            let pass = OwnPass::new(name, |_, _| Ok(false));
            before.map_or(pass.clone(), |before| pass.before(before))
        };
        let mut list: Vec<String> = ["infer-types", "simplify", "fuse-ops", "simplify"].map(String::from).to_vec();
        let passes = [own("a", None), own("b", Some("simplify")), own("c", Some("infer-types")), own("d", None)];
        insert_all(&passes, &mut list).expect("places");
        assert_eq!(list, ["c", "infer-types", "a", "d", "b", "simplify", "fuse-ops", "simplify"]);
        let why = insert_all(&[own("e", Some("simplfy"))], &mut list).expect_err("no such place");
        assert_eq!(list.len(), 8);
        let twice = [own("f", None), own("f", None)];
        assert_eq!(insert_all(&twice, &mut list).expect_err("twice"), "two own passes have the name `f`");
        assert!(
            why.starts_with("the pipeline has no pass `simplfy` for `e` to run before; it has: c, infer-types"),
            "{why}"
        );
    }
}
