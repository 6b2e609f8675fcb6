//! Layers of a directed graph: sources first, with few edges against the direction, and always the same for the same
//! graph. Cycles are opened by the rule of Eades, Lin and Smyth: sinks go last, sources first, and between them the
//! vertex with the most edges out over edges in.

use std::collections::BTreeSet;

/// The layer of each vertex, from 0, of at most `most` layers.
pub(crate) fn assign_layers(
    vertices: usize,
    edges: &BTreeSet<(usize, usize)>,
    most: usize,
) -> Vec<usize> {
    let edges: Vec<(usize, usize)> = edges
        .iter()
        .copied()
        .filter(|(from, to)| from != to)
        .collect();
    let mut successors = vec![Vec::new(); vertices];
    let mut predecessors = vec![Vec::new(); vertices];
    for (from, to) in &edges {
        successors[*from].push(*to);
        predecessors[*to].push(*from);
    }
    let order = sequence(&successors, &predecessors);
    let mut rank = vec![0; vertices];
    for (position, vertex) in order.iter().enumerate() {
        rank[*vertex] = position;
    }
    let mut layers = vec![0; vertices];
    for vertex in &order {
        for next in &successors[*vertex] {
            if rank[*next] > rank[*vertex] {
                layers[*next] = layers[*next].max(layers[*vertex] + 1);
            }
        }
    }
    let deepest = layers.iter().copied().max().unwrap_or_default();
    if deepest >= most {
        // A long chain is folded, so that the map stays as wide as a screen or two.
        for layer in &mut layers {
            *layer = *layer * most / (deepest + 1);
        }
    }
    layers
}

/// An order of the vertices in which few edges lead backwards.
fn sequence(successors: &[Vec<usize>], predecessors: &[Vec<usize>]) -> Vec<usize> {
    let count = successors.len();
    let mut outward: Vec<usize> = successors.iter().map(Vec::len).collect();
    let mut inward: Vec<usize> = predecessors.iter().map(Vec::len).collect();
    let mut left: BTreeSet<usize> = (0..count).collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let sink = left.iter().copied().find(|vertex| outward[*vertex] == 0);
        let source = || left.iter().copied().find(|vertex| inward[*vertex] == 0);
        // The lower number wins between equals.
        let surplus = |vertex: usize| outward[vertex].cast_signed() - inward[vertex].cast_signed();
        let best = || {
            let candidates = left.iter().copied();
            candidates.max_by_key(|vertex| (surplus(*vertex), std::cmp::Reverse(*vertex)))
        };
        let (vertex, is_sink) = match sink {
            Some(vertex) => (vertex, true),
            None => match source().or_else(best) {
                Some(vertex) => (vertex, false),
                None => break,
            },
        };
        left.remove(&vertex);
        if is_sink {
            last.push(vertex);
        } else {
            first.push(vertex);
        }
        for next in &successors[vertex] {
            inward[*next] = inward[*next].saturating_sub(1);
        }
        for previous in &predecessors[vertex] {
            outward[*previous] = outward[*previous].saturating_sub(1);
        }
    }
    first.extend(last.into_iter().rev());
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(vertices: usize, edges: &[(usize, usize)], most: usize) -> Vec<usize> {
        assign_layers(vertices, &edges.iter().copied().collect(), most)
    }

    #[test]
    fn sources_come_first() {
        assert_eq!(layers(4, &[(2, 1), (1, 0), (2, 3)], 9), [2, 1, 0, 1]);
        assert_eq!(layers(0, &[], 9), [0; 0]);
        assert_eq!(layers(2, &[(0, 0)], 9), [0, 0]);
    }

    #[test]
    fn a_cycle_is_opened_at_one_edge() {
        assert_eq!(layers(3, &[(0, 1), (1, 2), (2, 0)], 9), [0, 1, 2]);
        // One edge of the cycle leads backwards, and none of the others.
        let entered = layers(4, &[(3, 1), (0, 1), (1, 2), (2, 0)], 9);
        assert_eq!(entered, [0, 1, 2, 0]);
    }

    #[test]
    fn a_long_chain_is_folded() {
        let chain: Vec<_> = (0..9).map(|vertex| (vertex, vertex + 1)).collect();
        assert_eq!(layers(10, &chain, 5), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    }
}
