//! Mutants of plain bytes.

use crate::target::Random;
use rand::RngExt;

/// Numbers at which code goes wrong.
pub const EDGES: &[i64] = &[
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    127,
    128,
    255,
    256,
    65535,
    65536,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    1 << 62,
    i64::MAX - 1,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

/// One of a list that is not empty.
pub fn one_of<'a, T>(random: &mut Random, list: &'a [T]) -> &'a T {
    &list[random.random_range(0..list.len())]
}

/// True in one of `n` cases.
pub fn one_in(random: &mut Random, n: u32) -> bool {
    random.random_range(0..n) == 0
}

/// A number near another one, or an edge.
pub fn number_near(random: &mut Random, from: i64) -> i64 {
    match random.random_range(0..6) {
        0 => from.wrapping_add(1),
        1 => from.wrapping_sub(1),
        2 => from.wrapping_mul(random.random_range(-2..5)),
        3 => random.random_range(-4..40),
        _ => *one_of(random, EDGES),
    }
}

/// Some bytes other, missing, repeated, or taken from another input.
pub fn mutate(random: &mut Random, mut bytes: Vec<u8>, others: &[Vec<u8>]) -> Vec<u8> {
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=bytes.len());
        let width = random.random_range(1..=16usize.min(bytes.len() - at).max(1)).min(bytes.len() - at);
        match random.random_range(0..8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = random.random_range(0..=255),
            2 | 3 => put_number(random, &mut bytes, at),
            4 => drop(bytes.drain(at..at + width)),
            5 => {
                let copy = bytes[at..at + width].to_vec();
                bytes.splice(at..at, copy);
            }
            6 if one_in(random, 3) => bytes.truncate(at),
            7 if !others.is_empty() => {
                let other = one_of(random, others);
                let from = random.random_range(0..=other.len());
                let to = (from + random.random_range(1..64)).min(other.len());
                bytes.splice(at..at + width, other[from..to].iter().copied());
            }
            _ => bytes.insert(at, random.random_range(0..=255)),
        }
    }
    bytes
}

/// An edge over the bytes that stand there, in either order.
fn put_number(random: &mut Random, bytes: &mut [u8], at: usize) {
    let number = *one_of(random, EDGES);
    let width = *one_of(random, &[1, 2, 4, 8]);
    let mut text = number.to_le_bytes()[..width].to_vec();
    if one_in(random, 4) {
        text.reverse();
    }
    for (to, from) in bytes[at..].iter_mut().zip(text) {
        *to = from;
    }
}
