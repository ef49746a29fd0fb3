//! Minimum cuts: the cheapest two-colouring of a graph in which each edge between different colours has a cost.
//!
//! Dinic's algorithm (1970): breadth-first levels, then blocking flows along them.

/// Larger than any sum of costs.
pub const INFINITE: u64 = u64::MAX / 8;

/// A directed graph with capacities between two terminals.
#[derive(Clone, Debug)]
pub struct CutGraph {
    heads: Vec<Vec<usize>>,
    to: Vec<usize>,
    capacity: Vec<u64>,
}

/// The terminal of colour 0.
pub const ZERO: usize = 0;
/// The terminal of colour 1.
pub const ONE: usize = 1;

impl CutGraph {
    /// The two terminals and nothing else.
    pub fn new() -> CutGraph {
        CutGraph { heads: vec![vec![]; 2], to: vec![], capacity: vec![] }
    }
    /// A new node.
    pub fn add_node(&mut self) -> usize {
        self.heads.push(vec![]);
        self.heads.len() - 1
    }
    /// Costs `cost` when `a` has colour 0 and `b` has colour 1.
    pub fn add_cost(&mut self, a: usize, b: usize, cost: u64) {
        if a == b || cost == 0 {
            return;
        }
        for (from, to, capacity) in [(a, b, cost), (b, a, 0)] {
            self.heads[from].push(self.to.len());
            self.to.push(to);
            self.capacity.push(capacity);
        }
    }
    /// The colour of each node (true for 1) at the least total cost, and that cost. Ties take colour 1.
    pub fn solve(mut self) -> (Vec<bool>, u64) {
        let mut flow = 0;
        loop {
            let level = self.levels();
            if level[ONE] == usize::MAX {
                return (level.iter().map(|&l| l == usize::MAX).collect(), flow);
            }
            let mut next = vec![0; self.heads.len()];
            while let Some(more) = self.augment(&level, &mut next) {
                flow += more;
            }
        }
    }
    fn levels(&self) -> Vec<usize> {
        let mut level = vec![usize::MAX; self.heads.len()];
        let mut queue = std::collections::VecDeque::from([ZERO]);
        level[ZERO] = 0;
        while let Some(x) = queue.pop_front() {
            for &e in &self.heads[x] {
                if self.capacity[e] > 0 && level[self.to[e]] == usize::MAX {
                    level[self.to[e]] = level[x] + 1;
                    queue.push_back(self.to[e]);
                }
            }
        }
        level
    }
    /// Pushes flow along one path of the level graph, without recursion: paths are as long as the network is deep.
    fn augment(&mut self, level: &[usize], next: &mut [usize]) -> Option<u64> {
        let mut path: Vec<usize> = Vec::new();
        let mut at = ZERO;
        while at != ONE {
            let step = self.heads[at][next[at]..]
                .iter()
                .position(|&e| self.capacity[e] > 0 && level[self.to[e]] == level[at] + 1);
            match step {
                Some(s) => {
                    next[at] += s;
                    let e = self.heads[at][next[at]];
                    path.push(e);
                    at = self.to[e];
                }
                None => {
                    next[at] = self.heads[at].len();
                    let e = path.pop()?;
                    at = self.to[e ^ 1];
                    next[at] += 1;
                }
            }
        }
        let amount = path.iter().map(|&e| self.capacity[e]).min()?;
        for e in path {
            self.capacity[e] -= amount;
            self.capacity[e ^ 1] = self.capacity[e ^ 1].saturating_add(amount);
        }
        Some(amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_brute_force() {
        let mut seed = 5u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let n = 2 + below(6) as usize;
            let mut g = CutGraph::new();
            for _ in 2..n + 2 {
                g.add_node();
            }
            let edges: Vec<(usize, usize, u64)> = (0..3 * n)
                .map(|_| (below(n as u64 + 2) as usize, below(n as u64 + 2) as usize, below(20)))
                .filter(|e| e.0 != e.1)
                .collect();
            edges.iter().for_each(|&(a, b, c)| g.add_cost(a, b, c));
            let cost = |one: &dyn Fn(usize) -> bool| -> u64 {
                edges.iter().filter(|e| !one(e.0) && one(e.1)).map(|e| e.2).sum()
            };
            let best = (0..1usize << n)
                .map(|bits| cost(&|x| if x < 2 { x == ONE } else { bits >> (x - 2) & 1 == 1 }))
                .min()
                .unwrap();
            let (colours, found) = g.solve();
            assert_eq!(found, best);
            assert_eq!(cost(&|x| colours[x]), best);
        }
    }
}
