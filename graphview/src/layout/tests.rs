use super::*;
use proptest::prelude::*;

fn boxes(count: usize) -> Vec<[f32; 2]> {
    (0..count).map(|i| [60.0 + 20.0 * (i % 4) as f32, 24.0]).collect()
}

fn lay(count: usize, edges: &[(usize, usize)]) -> GraphLayout {
    layout(&Graph { sizes: boxes(count), edges: edges.to_vec(), ..Graph::default() }, &Options::default())
}

/// Nothing overlaps, every edge goes down, all is within the size.
fn check(sizes: &[[f32; 2]], edges: &[(usize, usize)], l: &GraphLayout) {
    for a in 0..sizes.len() {
        for b in 0..a {
            let apart =
                |i: usize| (l.centers[a][i] - l.centers[b][i]).abs() >= (sizes[a][i] + sizes[b][i]) / 2.0 - 0.01;
            assert!(apart(0) || apart(1), "{a} and {b} overlap");
        }
        let ends = l.centers[a].iter().zip(sizes[a]).zip(l.size);
        for ((center, length), whole) in ends {
            assert!(center - length / 2.0 >= -0.01, "{a} sticks out");
            assert!(center + length / 2.0 <= whole + 0.01, "{a} sticks out");
        }
    }
    for (route, &(from, to)) in l.routes.iter().zip(edges) {
        assert!(l.ranks[from] < l.ranks[to]);
        if let Route::Line(points) = route {
            assert!(points.windows(2).all(|p| p[0][1] <= p[1][1]), "an edge goes up");
        }
    }
}

#[test]
fn a_chain_is_a_straight_line() {
    let edges = [(0, 1), (1, 2), (2, 3)];
    let l = lay(4, &edges);
    check(&boxes(4), &edges, &l);
    assert!(l.centers.iter().all(|c| (c[0] - l.centers[0][0]).abs() < 0.01));
    assert_eq!(l.ranks, [0, 1, 2, 3]);
}

#[test]
fn a_long_edge_runs_straight_beside_the_boxes() {
    let edges = [(0, 1), (1, 2), (2, 3), (0, 3)];
    let l = lay(4, &edges);
    check(&boxes(4), &edges, &l);
    let Route::Line(points) = &l.routes[3] else { panic!("a portal") };
    let bends = &points[1..points.len() - 1];
    assert_eq!(bends.len(), 4);
    assert!(bends.iter().all(|p| (p[0] - bends[0][0]).abs() < 0.01), "{points:?}");
    for v in [1, 2] {
        assert!((bends[0][0] - l.centers[v][0]).abs() >= boxes(4)[v][0] / 2.0);
    }
}

#[test]
fn an_edge_does_not_cross_the_higher_box_beside_its_end() {
    // 1 and 2 stand side by side, 2 is a frame; 3 reads 1, 4 stands below 2.
    let edges = [(0, 1), (0, 2), (1, 3), (1, 4), (2, 4), (2, 3)];
    let mut sizes = boxes(5);
    sizes[2] = [200.0, 300.0];
    let l = layout(&Graph { sizes: sizes.clone(), edges: edges.to_vec(), ..Graph::default() }, &Options::default());
    check(&sizes, &edges, &l);
    let frame = [0, 1].map(|i| [l.centers[2][i] - sizes[2][i] / 2.0, l.centers[2][i] + sizes[2][i] / 2.0]);
    for (route, &(from, to)) in l.routes.iter().zip(&edges).filter(|(_, e)| e.0 == 1 || e.1 == 1) {
        let Route::Line(points) = route else { panic!("a portal") };
        let inside = |p: &[f32; 2]| [0, 1].iter().all(|&i| p[i] > frame[i][0] + 0.01 && p[i] < frame[i][1] - 0.01);
        assert!(!Route::pieces(points, Direction::Down).iter().any(inside), "{from} to {to}: {points:?}");
    }
}

#[test]
fn a_value_made_early_stands_where_it_is_used() {
    let l = lay(5, &[(0, 1), (1, 2), (2, 3), (4, 3)]);
    assert_eq!(l.ranks[4], 2);
}

#[test]
fn very_long_edges_and_many_long_ones_are_portals() {
    let count = 40;
    let mut edges: Vec<(usize, usize)> = (1..count).map(|i| (i - 1, i)).collect();
    edges.push((0, count - 1));
    edges.extend((2..12).map(|i| (0, i)));
    let l = lay(count, &edges);
    check(&boxes(count), &edges, &l);
    assert!(matches!(l.routes[count - 1], Route::Portal(..)));
    let cut = l.routes[count..].iter().filter(|r| matches!(r, Route::Portal(..))).count();
    assert_eq!(cut, 5);
}

#[test]
fn two_crossing_pairs_are_untangled() {
    let edges = [(0, 3), (1, 2), (2, 5), (3, 4)];
    let l = lay(6, &edges);
    check(&boxes(6), &edges, &l);
    let left = |a: usize, b: usize| l.centers[a][0] < l.centers[b][0];
    assert!(left(0, 1) == left(3, 2) && left(3, 2) == left(4, 5));
}

#[test]
fn nothing_and_cycles_are_survived() {
    assert_eq!(lay(0, &[]).size, [0.0, 0.0]);
    let l = lay(3, &[(0, 1), (1, 2), (2, 1)]);
    assert_eq!(l.centers.len(), 3);
}

proptest! {
    #[test]
    fn random_graphs_keep_the_invariants(
        count in 1usize..40,
        draws in prop::collection::vec((0usize..1000, 0usize..1000), 0..90),
    ) {
        let edges: Vec<(usize, usize)> = draws
            .into_iter()
            .map(|(a, b)| (a % count, b % count))
            .filter(|(a, b)| a != b)
            .map(|(a, b)| (a.min(b), a.max(b)))
            .collect();
        let l = lay(count, &edges);
        check(&boxes(count), &edges, &l);
        prop_assert_eq!(&l, &lay(count, &edges));
    }
}

#[test]
fn a_long_chain_folds_into_columns_cut_where_few_edges_cross() {
    // Diamonds in a row: a cut inside one crosses two edges, a cut between two crosses one.
    let mut edges = Vec::new();
    for d in 0..30 {
        let top = 3 * d;
        edges.extend([(top, top + 1), (top, top + 2), (top + 1, top + 3), (top + 2, top + 3)]);
    }
    let graph = Graph { sizes: boxes(91), edges: edges.clone(), ..Graph::default() };
    let options = Options { fold: Some(1.5), ..Options::default() };
    let l = layout(&graph, &options);
    check(&graph.sizes, &edges, &l);
    let portals = l.routes.iter().filter(|r| matches!(r, Route::Portal(..))).count();
    let long = layout(&graph, &Options::default());
    assert!(l.size[1] < long.size[1] / 3.0 && l.size[0] / l.size[1] > 0.8, "{:?}", l.size);
    // Each cut is crossed by the two edges that enter or leave a diamond's middle, or fewer.
    assert!((1..=24).contains(&portals), "{portals}");
    assert_eq!(layout(&graph, &options), l);
}

#[test]
fn a_picture_to_the_right_is_the_one_downwards_turned() {
    let graph = Graph {
        sizes: vec![[80.0, 20.0], [60.0, 30.0], [90.0, 25.0], [70.0, 20.0]],
        edges: vec![(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)],
        ..Graph::default()
    };
    let right = layout(&graph, &Options { direction: Direction::Right, ..Options::default() });
    check(&graph.sizes, &[], &GraphLayout { routes: vec![], ..right.clone() });
    for (route, &(from, to)) in right.routes.iter().zip(&graph.edges) {
        let Route::Line(points) = route else { panic!("a portal") };
        // From the right side of its source to the left side of its target.
        assert_eq!(points[0][0], right.centers[from][0] + graph.sizes[from][0] / 2.0);
        assert_eq!(points[points.len() - 1][0], right.centers[to][0] - graph.sizes[to][0] / 2.0);
        assert!(points.windows(2).all(|p| p[0][0] <= p[1][0]), "{points:?}");
    }
}

#[test]
fn the_distance_of_an_edge_is_that_of_the_drawn_line() {
    let line = Route::Line(vec![[0.0, 0.0], [40.0, 100.0]]);
    // The curve leaves and enters downwards, and has its middle half way.
    assert_eq!(line.distance([0.0, 0.0], Direction::Down, 5.0), Some(0.0));
    assert!(line.distance([20.0, 50.0], Direction::Down, 5.0).is_some_and(|d| d < 0.5));
    assert!(line.distance([1.0, 15.0], Direction::Down, 5.0).is_some_and(|d| d < 2.0));
    assert_eq!(line.distance([20.0, 10.0], Direction::Down, 5.0), None);
    assert_eq!(line.distance([60.0, 50.0], Direction::Down, 5.0), None);
    let portal = Route::Portal([0.0, 0.0], [100.0, 300.0]);
    assert_eq!(portal.distance([0.0, STUB / 2.0], Direction::Down, 5.0), Some(0.0));
    assert_eq!(portal.distance([50.0, 150.0], Direction::Down, 5.0), None);
}
