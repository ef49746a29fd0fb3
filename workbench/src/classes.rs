//! Results that hold a value for each class.

use compiler::tensor::Tensor;

/// The number of classes when a result holds one value for each class of each image: other dimensions of it are 1.
pub fn classes_of(t: &Tensor) -> Option<usize> {
    let batch = *t.shape().first()?;
    let wide: Vec<usize> = t.shape()[1..].iter().copied().filter(|&d| d != 1).collect();
    match wide.as_slice() {
        [classes] if batch > 0 => Some(*classes),
        [] if t.shape().len() == 1 && batch > 1 => Some(batch),
        _ => None,
    }
}

/// The class with the largest value in each row; of equal ones the first.
pub fn best_classes(t: &Tensor, classes: usize) -> Vec<usize> {
    let best = |row: &[f64]| ranked(row).first().copied().unwrap_or(0);
    t.to_f64_vec().chunks_exact(classes).map(best).collect()
}

/// Positions in a row, that of the largest value first.
pub fn ranked(row: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&i, &j| row[j].total_cmp(&row[i]).then(i.cmp(&j)));
    order
}
