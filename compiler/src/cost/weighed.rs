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
    pub fn functions(one: &Estimate, others: &[Estimate]) -> Weighed {
        let measured = one.measured.zip(others.iter().map(|e| e.measured).sum::<Option<f64>>());
        let measured = measured.filter(|(one, others)| (one / others - 1.0).abs() > TIME_NOISE);
        Weighed::by([one.total(), others.iter().map(Estimate::total).sum()], measured)
    }
    /// Some nodes, each alone, against others.
    pub fn nodes(model: &dyn CostModel, one: &[NodeForm], other: &[NodeForm]) -> Weighed {
        let estimated = |forms: &[NodeForm]| forms.iter().map(|f| model.node(f) as f64).sum();
        // Each is asked for, so that what is missing is measured.
        let measured = |forms: &[NodeForm]| {
            let all: Vec<Option<f64>> = forms.iter().map(|f| model.measured_node(f)).collect();
            all.into_iter().sum::<Option<f64>>()
        };
        Weighed::by([estimated(one), estimated(other)], measured(one).zip(measured(other)))
    }
    /// `, measured` where it is.
    pub fn how(&self) -> &'static str {
        if self.measured { ", measured" } else { "" }
    }
}
