//! Samples of a measurement.

use benches::statistics::Statistics;
use schemars::JsonSchema;
use serde::Serialize;

/// Samples, in milliseconds or tokens a second, and their statistics.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Sampled {
    /// The statistics.
    #[serde(flatten)]
    pub of: Statistics,
    /// Each run, in order; absent where the figure is a sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<Vec<f64>>,
}

impl Sampled {
    /// Of runs.
    pub fn of(samples: Vec<f64>) -> Sampled {
        Sampled { of: Statistics::of(&samples), samples: Some(samples) }
    }
    /// Of a sum.
    pub fn sum(ms: f64) -> Sampled {
        Sampled { of: Statistics::of(&[ms]), samples: None }
    }
}
