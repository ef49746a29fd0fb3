//! Animates the change from one scene to the next: boxes that stay move to their new positions, new ones appear.

use crate::drawing::Drawn;
use crate::once::visit;
use egui::Vec2;
use std::sync::Arc;

/// Seconds that it takes.
const DURATION: f32 = 0.28;

/// A scene coming in place of another.
pub struct Change {
    /// The previous position of each box, relative to the new one; `None` for a new box.
    from: Vec<Option<Vec2>>,
    passed: f32,
}

/// The box of `old` that should keep its position on the screen, and the corresponding box of `new`.
pub fn anchor(old: &Drawn, new: &Drawn, preferred: Option<usize>, center: [f32; 2]) -> Option<(usize, usize)> {
    let there = |i: usize| new.counterpart(&old.scene.boxes[i].node).map(|j| (i, j));
    if let Some(found) = preferred.and_then(there) {
        return Some(found);
    }
    let distance = |i: usize| {
        let [x, y, w, h] = old.scene.boxes[i].rect;
        (x + w / 2.0 - center[0]).abs() + (y + h / 2.0 - center[1]).abs()
    };
    // Of thousands, in every frame of two linked views: only those around the middle are looked at.
    const NEAREST: usize = 24;
    let longest = old.scene.size[0].max(old.scene.size[1]);
    let mut reach = 300.0;
    let mut near = loop {
        let [x, y] = center;
        let mut near = old.near.boxes([x - reach, y - reach, x + reach, y + reach]);
        visit(near.len());
        near.retain(|&i| !old.scene.boxes[i].open);
        if near.len() >= NEAREST || reach > longest {
            break near;
        }
        reach *= 2.0;
    };
    near.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
    near.into_iter().find_map(there)
}

/// The middle of a box.
pub fn middle(drawn: &Drawn, i: usize) -> Vec2 {
    let [x, y, w, h] = drawn.scene.boxes[i].rect;
    Vec2::new(x + w / 2.0, y + h / 2.0)
}

impl Change {
    /// The change from `old`, whose positions are moved by `shift` so that the anchor box stays.
    pub fn new(old: &Arc<Drawn>, new: &Arc<Drawn>, shift: Vec2) -> Change {
        let from = (0..new.scene.boxes.len()).map(|i| {
            let same = old.counterpart(&new.scene.boxes[i].node)?;
            Some(middle(old, same) + shift - middle(new, i))
        });
        Change { from: from.collect(), passed: 0.0 }
    }
    /// Goes on; true while it lasts.
    pub fn step(&mut self, dt: f32) -> bool {
        self.passed += dt;
        self.passed < DURATION
    }
    /// How far a box is from its place.
    pub fn offset(&self, i: usize) -> Vec2 {
        let left = 1.0 - self.share();
        self.from.get(i).copied().flatten().map_or(Vec2::ZERO, |by| by * left)
    }
    /// How much of a box is to be seen, from 0 to 1.
    pub fn opacity(&self, i: usize) -> f32 {
        if self.from.get(i).copied().flatten().is_some() { 1.0 } else { self.share() }
    }
    fn share(&self) -> f32 {
        let t = (self.passed / DURATION).clamp(0.0, 1.0);
        t * t * (3.0 - 2.0 * t)
    }
}
