//! Scales of colours: heat, and errors by quantiles, with outliers and what is beyond the tolerance marked.

use compiler::trace::{Errors, NodeError};
use egui::Color32;

pub(super) fn parse(hex: &str) -> Color32 {
    Color32::from_hex(hex).unwrap_or(Color32::GRAY)
}

/// A colour of the heat scale, for 0 to 1.
pub fn heat(share: f32, dark: bool) -> Color32 {
    const LIGHT: [&str; 5] = ["#fff7ec", "#fdd49e", "#fc8d59", "#d7301f", "#7f0000"];
    const DARK: [&str; 5] = ["#22335f", "#6a2c7a", "#b63a5a", "#ee7a34", "#ffd97a"];
    let stops = if dark { DARK } else { LIGHT };
    let at = share.clamp(0.0, 1.0) * (stops.len() - 1) as f32;
    let i = (at as usize).min(stops.len() - 2);
    parse(stops[i]).lerp_to_gamma(parse(stops[i + 1]), at - i as f32)
}

/// A colour between faster (-1), as fast (0) and slower (1).
pub fn diverging(share: f32, dark: bool) -> Color32 {
    let [faster, same, slower] = match dark {
        true => ["#3aa0ff", "#34343a", "#ff5a3c"],
        false => ["#1664c8", "#f4f4f4", "#c8201a"],
    }
    .map(parse);
    let end = if share < 0.0 { faster } else { slower };
    same.lerp_to_gamma(end, share.abs().min(1.0))
}

/// A scale by quantiles: each colour has as many nodes. Errors of a network lie within few decades, and a scale of
/// decades would give most of them one colour.
#[derive(Clone, PartialEq, Debug)]
pub struct ErrorScale {
    /// Base-10 logarithms of errors at even shares, from the least to the largest that is no outlier.
    stops: [f64; STOPS],
    /// The largest error that counts as agreement.
    pub tolerance: f64,
    /// The median, and the largest error that is no outlier.
    median: f64,
    usual: f64,
}

/// Stops of a scale: the least, the quartiles, and the largest that is no outlier.
const STOPS: usize = 5;
/// Beyond the upper quartile by so many times the range of the middle half, in decades, is an outlier (J. Tukey,
/// *Exploratory Data Analysis*, 1977).
const FENCE: f64 = 1.5;
/// Less than that, in decades, is no outlier: twice the error of what is usual.
const LEAST_FENCE: f64 = 0.3;

impl ErrorScale {
    /// Of the errors of nodes: of each alone, or with those of the nodes before it. `None` if these were not measured.
    pub fn of(errors: &Errors, accumulated: bool) -> Option<ErrorScale> {
        let known: Vec<f64> = errors.nodes.iter().filter_map(|n| error(errors, n, accumulated)).collect();
        if known.is_empty() {
            return None;
        }
        let finite = known.iter().copied().filter(|e| *e > 0.0 && e.is_finite());
        let mut sorted: Vec<f64> = finite.map(f64::log10).collect();
        sorted.sort_by(f64::total_cmp);
        if sorted.is_empty() {
            sorted.push(-8.0);
        }
        let quantile = |share: f64, list: &[f64]| list[((list.len() - 1) as f64 * share).round() as usize];
        let [low, high] = [0.25, 0.75].map(|s| quantile(s, &sorted));
        let fence = high + (FENCE * (high - low)).max(LEAST_FENCE);
        let usual = sorted.partition_point(|e| *e <= fence).max(1);
        let of = |k: usize| quantile(k as f64 / (STOPS - 1) as f64, &sorted[..usual]);
        let stops = std::array::from_fn(of);
        let [median, usual] = [quantile(0.5, &sorted), sorted[usual - 1]].map(|e| 10f64.powf(e));
        Some(ErrorScale { stops, tolerance: errors.tolerance, median, usual })
    }
    /// The place of an error among the others, from 0 to 1.
    pub fn share(&self, error: f64) -> f32 {
        let at = error.max(f64::MIN_POSITIVE).log10();
        // Between two stops of one error the upper one counts.
        let above = self.stops.partition_point(|s| *s <= at);
        let (Some(&high), Some(below)) = (self.stops.get(above), above.checked_sub(1)) else {
            return if above == 0 { 0.0 } else { 1.0 };
        };
        let low = self.stops[below];
        ((below as f64 + (at - low) / (high - low)) / (STOPS - 1) as f64) as f32
    }
    /// The colour of an error: of another scale beyond the tolerance.
    pub fn colour(&self, error: f64, dark: bool) -> Color32 {
        match error > self.tolerance || error.is_nan() {
            true => beyond(self.share(if error.is_nan() { f64::INFINITY } else { error }), dark),
            false => heat(self.share(error), dark),
        }
    }
    /// How an error stands out, in words; `None` for a usual one.
    pub fn outlier(&self, error: f64) -> Option<String> {
        let above = error.is_nan() || error > self.usual * 1.000_001;
        above.then(|| match error.is_finite() {
            true => format!("outlier: {:.0} times the median", error / self.median),
            false => "outlier: not finite".into(),
        })
    }
    /// The stops with their colours: the least error, the quartiles, and the largest that is no outlier.
    pub fn stops(&self, dark: bool) -> Vec<(Color32, String)> {
        const WORDS: [&str; STOPS] = ["least ", "1/4 below ", "median ", "3/4 below ", "largest usual "];
        let one = |(stop, word): (&f64, &str)| {
            let error = 10f64.powf(*stop);
            (self.colour(error, dark), format!("{word}{error:.1e}"))
        };
        self.stops.iter().zip(WORDS).map(one).collect()
    }
    /// The meaning of the colours of a list.
    pub fn about(&self) -> String {
        format!(
            "Colours by rank among all nodes; violet is beyond the tolerance {:.0e}, a ring marks an outlier.",
            self.tolerance
        )
    }
}

/// A colour for what is beyond a tolerance, for 0 to 1.
pub fn beyond(share: f32, dark: bool) -> Color32 {
    let [low, high] = match dark {
        true => ["#7b3294", "#f0b0ff"],
        false => ["#e3b7ea", "#5b0070"],
    }
    .map(parse);
    low.lerp_to_gamma(high, share.clamp(0.0, 1.0))
}

/// The error of a node: alone, or with those of the nodes before it.
pub fn error(errors: &Errors, n: &NodeError, accumulated: bool) -> Option<f64> {
    match accumulated {
        true if errors.cumulative => Some(n.rel_l2),
        true => n.accumulated,
        false => (!errors.cumulative).then_some(n.rel_l2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(list: &[f64], tolerance: f64) -> Errors {
        let node = |&rel_l2: &f64| NodeError { rel_l2, accumulated: Some(2.0 * rel_l2), ..NodeError::default() };
        Errors { nodes: list.iter().map(node).collect(), tolerance, ..Errors::default() }
    }

    #[test]
    fn each_colour_has_as_many_nodes_and_outliers_are_marked() {
        // 52 of 54 errors are within a third of a decade.
        let list: Vec<f64> = (0..52).map(|i| 1e-4 * (1.0 + f64::from(i) / 52.0)).chain([1e-6, 3e-2]).collect();
        let e = errors(&list, 1e-3);
        let s = ErrorScale::of(&e, false).expect("errors");
        let shares: Vec<f32> = list.iter().map(|e| s.share(*e)).collect();
        for quarter in 0..4 {
            let (low, high) = (quarter as f32 / 4.0, (quarter + 1) as f32 / 4.0);
            let count = shares.iter().filter(|s| (low..high).contains(*s)).count();
            assert!((11..=16).contains(&count), "{count} of {} from {low} to {high}", list.len());
        }
        assert_eq!(s.outlier(3e-2).as_deref(), Some("outlier: 200 times the median"));
        assert!(list[..52].iter().all(|e| s.outlier(*e).is_none()));
        assert!(s.outlier(f64::NAN).is_some() && s.outlier(f64::INFINITY).is_some());
        // Beyond the tolerance, colours are of another scale, and differ among each other.
        assert_ne!(s.colour(1.1e-3, false), s.colour(1e-3, false));
        let wrong = ErrorScale::of(&errors(&list, 1e-5), false).expect("errors");
        assert_ne!(wrong.colour(1.1e-4, false), wrong.colour(1.9e-4, false));
        assert_eq!(s.stops(false).len(), STOPS);
    }

    #[test]
    fn one_error_and_none_have_a_scale() {
        for list in [vec![], vec![0.0], vec![1e-4], vec![1e-4, 1e-4]] {
            let scale = ErrorScale::of(&errors(&list, 1e-3), false);
            assert_eq!(scale.is_some(), !list.is_empty());
            assert!(scale.is_none_or(|s| s.outlier(1e-4).is_none() || !list.contains(&1e-4)));
        }
    }

    #[test]
    fn errors_that_were_not_measured_have_no_scale() {
        let only = Errors { cumulative: true, ..errors(&[1e-3], 1e-2) };
        assert!(ErrorScale::of(&only, false).is_none() && ErrorScale::of(&only, true).is_some());
        assert!(ErrorScale::of(&errors(&[], 1e-2), true).is_none());
    }
}
