//! The cost of a kernel: nanoseconds, by part.

use crate::profile::CostFactors;
use std::fmt;

/// Time in nanoseconds, by part.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Cost {
    /// Scalar operations.
    pub arithmetic: f64,
    /// Loads and stores.
    pub issue: f64,
    /// Accesses of workgroup memory.
    pub shared_passes: f64,
    /// Pieces of device memory.
    pub sectors: f64,
    /// Idle cores.
    pub waves: f64,
    /// Fixed prices.
    pub launch: f64,
    /// Nanoseconds that overlap with the other parts; subtracted from the sum.
    pub hidden: f64,
}

impl Cost {
    /// The total.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|p| p.1).sum::<f64>() - self.hidden
    }
    /// With factors on the parts. What overlaps shrinks with the smallest of them, so that the total is not negative.
    pub fn scaled(&self, f: &CostFactors) -> Cost {
        let [arithmetic, issue, shared_passes, sectors, waves, launch] =
            std::array::from_fn(|at| self.parts()[at].1 * f.to_array()[at]);
        Cost { arithmetic, issue, shared_passes, sectors, waves, launch, hidden: self.hidden * overlap(f).1 }
    }
    /// By how much the total grows with each factor, at these factors.
    pub fn by_factor(&self, f: &CostFactors) -> [f64; CostFactors::COUNT] {
        let smallest = overlap(f).0;
        let parts = self.parts();
        std::array::from_fn(|at| parts[at].1 - if at == smallest { self.hidden } else { 0.0 })
    }
    /// The name of the largest part.
    pub fn bound(&self) -> &'static str {
        self.parts().into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("nothing", |p| p.0)
    }
    /// The parts that add up, by name.
    pub fn parts(&self) -> [(&'static str, f64); 6] {
        [
            ("arithmetic", self.arithmetic),
            ("issue", self.issue),
            ("shared passes", self.shared_passes),
            ("sectors", self.sectors),
            ("waves", self.waves),
            ("launch", self.launch),
        ]
    }
}

/// The smallest factor of a part that may overlap, with its place.
fn overlap(f: &CostFactors) -> (usize, f64) {
    let all = f.to_array().into_iter().enumerate().take(CostFactors::COUNT - 1);
    all.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 1.0))
}

impl std::ops::Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            arithmetic: self.arithmetic + other.arithmetic,
            issue: self.issue + other.issue,
            shared_passes: self.shared_passes + other.shared_passes,
            sectors: self.sectors + other.sectors,
            waves: self.waves + other.waves,
            launch: self.launch + other.launch,
            hidden: self.hidden + other.hidden,
        }
    }
}

/// `12.3 us (arithmetic 4.0 us, sectors 6.2 us, launch 5.0 us, hidden -2.9 us)`; parts below a hundredth are left out.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let shown = self.parts().into_iter().chain([("hidden", -self.hidden)]).filter(|p| p.1.abs() > total / 1e2);
        let list: Vec<String> = shown.map(|(name, ns)| format!("{name} {:.1} us", ns / 1e3)).collect();
        write!(f, "{:.1} us ({})", total / 1e3, list.join(", "))
    }
}
