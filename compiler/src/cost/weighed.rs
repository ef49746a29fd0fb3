use super::{CostModel, NodeForm, TIME_NOISE};
use crate::schedule::estimate::Estimate;

/// Nanoseconds of two ways to compute the same: both measured, or both estimated.
#[derive(Clone, Copy, Debug)]
pub struct Weighed {
    /// The first way.
    pub one: f64,
    /// The other way.
    pub other: f64,
    /// True if all of both was measured.
    pub measured: bool,
}

impl Weighed {
    /// By estimates and, where both are known, measured times.
    fn by(estimated: [f64; 2], measured: Option<(f64, f64)>) -> Weighed {
        match measured {
            Some((one, other)) => Weighed { one, other, measured: true },
            None => Weighed { one: estimated[0], other: estimated[1], measured: false },
        }
    }
    /// One function against several. If measured times differ by no more than their noise, the estimate decides.
    pub fn functions(model: &dyn CostModel, one: &Estimate, others: &[Estimate]) -> Weighed {
        let measured = measured(model, std::slice::from_ref(one), others);
        let measured = measured.filter(|(one, others)| (one / others - 1.0).abs() > TIME_NOISE);
        Weighed::by([one.total(), others.iter().map(Estimate::total).sum()], measured)
    }
    /// Some nodes, each alone, against others.
    pub fn nodes(model: &dyn CostModel, one: &[NodeForm], other: &[NodeForm]) -> Weighed {
        let estimated = |forms: &[NodeForm]| forms.iter().map(|f| model.node(f) as f64).sum();
        let functions =
            |forms: &[NodeForm]| forms.iter().map(|f| model.function_of_node(f)).collect::<Option<Vec<_>>>();
        let measured = functions(one).zip(functions(other)).and_then(|(one, other)| measured(model, &one, &other));
        Weighed::by([estimated(one), estimated(other)], measured)
    }
    /// How both costs were found, and the change that flips the choice:
    /// `estimated; flips if one kernel takes 7 % longer`. See [`Weighed::flips`].
    pub fn verdict(&self, limit: f64, first: &str) -> String {
        let how = if self.measured { "measured" } else { "estimated" };
        format!("{how}; {}", self.flips(limit, first))
    }
    /// The change of the first way that flips the choice, where the first way is chosen if it takes less than `limit`
    /// times the other. `first` names it: `flips if one kernel takes 7 % longer`.
    pub fn flips(&self, limit: f64, first: &str) -> String {
        let percent = 1e2 * (limit * self.other / self.one - 1.0);
        let way = if percent < 0.0 { "less time" } else { "longer" };
        format!("flips if {first} takes {:.0} % {way}", percent.abs())
    }
}

/// The measured times of both sides, if all functions have one. Reports the comparison to the model.
fn measured(model: &dyn CostModel, one: &[Estimate], other: &[Estimate]) -> Option<(f64, f64)> {
    model.compares([one, other]);
    let sum = |side: &[Estimate]| side.iter().map(|e| e.measured).sum::<Option<f64>>();
    sum(one).zip(sum(other))
}
