//! Scales of colours: heat, and errors in decades between the least and the largest of the data, with the tolerance
//! marked.

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

/// From the least to the largest error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ErrorScale {
    /// Base-10 logarithm of the least error above zero.
    low: f64,
    /// Of the largest.
    high: f64,
    /// The largest error that counts as agreement.
    pub tolerance: f64,
}

impl ErrorScale {
    /// Of the errors of nodes: of each alone, or with those of the nodes before it. `None` if these were not measured.
    pub fn of(errors: &Errors, accumulated: bool) -> Option<ErrorScale> {
        let known: Vec<f64> = errors.nodes.iter().filter_map(|n| error(errors, n, accumulated)).collect();
        if known.is_empty() {
            return None;
        }
        let finite = || known.iter().copied().filter(|e| *e > 0.0 && e.is_finite()).map(f64::log10);
        let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        // Less than a third of a decade is no scale.
        let (low, high) = if low > high { (-8.0, 0.0) } else { (low, high.max(low + 0.33)) };
        Some(ErrorScale { low, high, tolerance: errors.tolerance })
    }
    /// The place of an error, from 0 to 1.
    pub fn share(&self, error: f64) -> f32 {
        ((error.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0) as f32
    }
    /// The colour of an error: one of its own beyond the tolerance.
    pub fn colour(&self, error: f64, dark: bool) -> Color32 {
        match error > self.tolerance || error.is_nan() {
            true if dark => Color32::from_rgb(230, 60, 200),
            true => Color32::from_rgb(170, 0, 150),
            false => heat(self.share(error), dark),
        }
    }
    /// Five errors from the least to the largest with their colours; the one next to the tolerance is the tolerance, if
    /// it is on the scale.
    pub fn stops(&self, dark: bool) -> Vec<(Color32, String)> {
        const STOPS: usize = 5;
        let step = (self.high - self.low) / (STOPS - 1) as f64;
        let at = (self.tolerance.log10() - self.low) / step;
        let marked = (0.0..=(STOPS - 1) as f64).contains(&at).then(|| at.round() as usize);
        let one = |i: usize| match marked == Some(i) {
            true => (heat(self.share(self.tolerance), dark), format!("{:.0e}  the tolerance", self.tolerance)),
            false => {
                let error = 10f64.powf(self.low + step * i as f64);
                (self.colour(error, dark), format!("{error:.0e}"))
            }
        };
        (0..STOPS).map(one).collect()
    }
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
    fn the_scale_runs_over_the_data_and_has_the_tolerance() {
        let e = errors(&[0.0, 1e-6, 1e-4, 1e-2], 1e-3);
        let s = ErrorScale::of(&e, false).expect("errors");
        assert_eq!([s.share(1e-6), s.share(1e-4), s.share(1e-2), s.share(0.0)], [0.0, 0.5, 1.0, 0.0]);
        let stops: Vec<String> = s.stops(false).into_iter().map(|t| t.1).collect();
        assert_eq!(stops, ["1e-6", "1e-5", "1e-4", "1e-3  the tolerance", "1e-2"]);
        assert_ne!(s.colour(1.1e-3, false), s.colour(1e-3, false));
        assert_eq!(ErrorScale::of(&e, true).expect("accumulated").share(2e-4), 0.5);
    }

    #[test]
    fn errors_that_were_not_measured_have_no_scale() {
        let only = Errors { cumulative: true, ..errors(&[1e-3], 1e-2) };
        assert!(ErrorScale::of(&only, false).is_none() && ErrorScale::of(&only, true).is_some());
        assert!(ErrorScale::of(&errors(&[], 1e-2), true).is_none());
    }
}
