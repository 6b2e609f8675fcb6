//! Where boxes and groups stand: groups in columns by the direction of what flows between them, boxes in columns inside
//! their group, and each column ordered so that edges are short. All in whole pixels, and a function of its input.

use super::layers::assign_layers;
use std::collections::BTreeSet;

const NODE_WIDTH: i32 = 160;
const NODE_HEIGHT: i32 = 30;
/// Between two boxes of a column.
const NODE_GAP: i32 = 12;
/// Between two columns of a group.
const COLUMN_GAP: i32 = 56;
/// Between a group's border and its boxes.
const PADDING: i32 = 12;
/// The height of a group's title.
const TITLE: i32 = 22;
/// Between two groups above each other.
const GROUP_GAP: i32 = 24;
/// Between two columns of groups.
const GROUP_COLUMN_GAP: i32 = 110;
/// Around the whole.
const MARGIN: i32 = 16;
/// The most columns of groups.
const GROUP_COLUMNS: usize = 6;
/// The most layers inside a group.
const GROUP_LAYERS: usize = 3;
/// The most boxes of a column.
const ROWS: usize = 24;
/// How often the order of the columns is improved.
const SWEEPS: usize = 4;

/// A box to be placed: the index of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayoutNode(pub(crate) usize);

/// Where something stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayoutArea {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

/// Where everything stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapLayout {
    pub(crate) nodes: Vec<LayoutArea>,
    pub(crate) groups: Vec<LayoutArea>,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

/// What is arranged: layers of boxes in each group, and columns of groups, both in an order that changes.
struct Arrangement {
    /// Of each group, its layers, each with its boxes in order.
    members: Vec<Vec<Vec<usize>>>,
    /// The columns of groups, each in order.
    columns: Vec<Vec<usize>>,
    neighbours: Vec<Vec<usize>>,
}

/// Places boxes in groups, given the pairs of boxes that have edges.
pub(crate) fn lay_out(
    nodes: &[LayoutNode],
    groups: usize,
    edges: &BTreeSet<(usize, usize)>,
) -> MapLayout {
    let mut arrangement = Arrangement::new(nodes, groups, edges);
    let mut layout = arrangement.place(nodes.len());
    for _ in 0..SWEEPS {
        arrangement.improve(&layout);
        layout = arrangement.place(nodes.len());
    }
    layout
}

impl Arrangement {
    fn new(nodes: &[LayoutNode], groups: usize, edges: &BTreeSet<(usize, usize)>) -> Self {
        let mut neighbours = vec![Vec::new(); nodes.len()];
        let mut inside = BTreeSet::new();
        let mut between = BTreeSet::new();
        for (from, to) in edges.iter().filter(|(from, to)| from != to) {
            neighbours[*from].push(*to);
            neighbours[*to].push(*from);
            let ends = (nodes[*from].0, nodes[*to].0);
            if ends.0 == ends.1 {
                inside.insert((*from, *to));
            } else {
                between.insert(ends);
            }
        }
        let layers = assign_layers(nodes.len(), &inside, GROUP_LAYERS);
        let mut members = vec![vec![Vec::new(); GROUP_LAYERS]; groups];
        for (index, node) in nodes.iter().enumerate() {
            members[node.0][layers[index]].push(index);
        }
        for layers in &mut members {
            layers.retain(|layer| !layer.is_empty());
        }
        let group_layers = assign_layers(groups, &between, GROUP_COLUMNS);
        let mut columns = vec![Vec::new(); GROUP_COLUMNS];
        for (group, layer) in group_layers.into_iter().enumerate() {
            columns[layer].push(group);
        }
        columns.retain(|column| !column.is_empty());
        Arrangement {
            members,
            columns,
            neighbours,
        }
    }

    /// Where everything stands in the present order.
    fn place(&self, nodes: usize) -> MapLayout {
        let mut layout = MapLayout {
            nodes: vec![LayoutArea::default(); nodes],
            groups: vec![LayoutArea::default(); self.members.len()],
            width: 0,
            height: 0,
        };
        let sizes: Vec<(i32, i32)> = self.members.iter().map(|layers| size(layers)).collect();
        let heights = self
            .columns
            .iter()
            .map(|column| stack_height(column, &sizes));
        let tallest = heights.max().unwrap_or_default();
        let mut x = MARGIN;
        for column in &self.columns {
            let width = column.iter().map(|group| sizes[*group].0).max();
            let width = width.unwrap_or_default();
            let mut y = MARGIN + (tallest - stack_height(column, &sizes)) / 2;
            for group in column {
                let area = LayoutArea {
                    x: x + (width - sizes[*group].0) / 2,
                    y,
                    width: sizes[*group].0,
                    height: sizes[*group].1,
                };
                layout.groups[*group] = area;
                place_members(&self.members[*group], area, &mut layout.nodes);
                y += area.height + GROUP_GAP;
            }
            x += width + GROUP_COLUMN_GAP;
        }
        layout.width = (x - GROUP_COLUMN_GAP + MARGIN).max(2 * MARGIN);
        layout.height = tallest + 2 * MARGIN;
        layout
    }

    /// Orders boxes and groups by the mean height of their neighbours.
    fn improve(&mut self, layout: &MapLayout) {
        let heights: Vec<i64> = self
            .neighbours
            .iter()
            .enumerate()
            .map(|(node, neighbours)| {
                let sum: i64 = neighbours
                    .iter()
                    .map(|neighbour| i64::from(layout.nodes[*neighbour].y))
                    .sum();
                match i64::try_from(neighbours.len()) {
                    Ok(count) if count > 0 => sum / count,
                    _ => i64::from(layout.nodes[node].y),
                }
            })
            .collect();
        for layer in self.members.iter_mut().flatten() {
            layer.sort_by_key(|node| (heights[*node], *node));
        }
        let members = &self.members;
        for column in &mut self.columns {
            column.sort_by_key(|group| {
                let nodes: Vec<usize> = members[*group].iter().flatten().copied().collect();
                let sum: i64 = nodes.iter().map(|node| heights[*node]).sum();
                let count = i64::try_from(nodes.len()).unwrap_or(1).max(1);
                (sum / count, *group)
            });
        }
    }
}

/// A number of boxes as a number of pixels.
fn pixels(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX / 1_000)
}

/// The columns of a layer: several where it has many boxes.
fn columns(layer: &[usize]) -> std::slice::Chunks<'_, usize> {
    let count = layer.len().div_ceil(ROWS).max(1);
    layer.chunks(layer.len().div_ceil(count).max(1))
}

/// The size of a group with these layers.
fn size(layers: &[Vec<usize>]) -> (i32, i32) {
    let lengths: Vec<usize> = layers
        .iter()
        .flat_map(|layer| columns(layer).map(<[usize]>::len))
        .collect();
    let rows = pixels(lengths.iter().copied().max().unwrap_or_default());
    (
        2 * PADDING + pixels(lengths.len()) * (NODE_WIDTH + COLUMN_GAP) - COLUMN_GAP,
        2 * PADDING + TITLE + rows * (NODE_HEIGHT + NODE_GAP) - NODE_GAP,
    )
}

fn stack_height(column: &[usize], sizes: &[(i32, i32)]) -> i32 {
    let heights: i32 = column.iter().map(|group| sizes[*group].1).sum();
    heights + (pixels(column.len()) - 1) * GROUP_GAP
}

/// Places the boxes of a group inside its area.
fn place_members(layers: &[Vec<usize>], area: LayoutArea, nodes: &mut [LayoutArea]) {
    let mut x = area.x + PADDING;
    for layer in layers {
        for column in columns(layer) {
            let used = pixels(column.len()) * (NODE_HEIGHT + NODE_GAP) - NODE_GAP;
            let mut y = area.y + TITLE + (area.height - TITLE - used) / 2;
            for node in column {
                nodes[*node] = LayoutArea {
                    x,
                    y,
                    width: NODE_WIDTH,
                    height: NODE_HEIGHT,
                };
                y += NODE_HEIGHT + NODE_GAP;
            }
            x += NODE_WIDTH + COLUMN_GAP;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(one: LayoutArea, other: LayoutArea) -> bool {
        one.x < other.x + other.width
            && other.x < one.x + one.width
            && one.y < other.y + other.height
            && other.y < one.y + one.height
    }

    fn contains(outer: LayoutArea, inner: LayoutArea) -> bool {
        outer.x < inner.x
            && outer.y < inner.y
            && outer.x + outer.width > inner.x + inner.width
            && outer.y + outer.height > inner.y + inner.height
    }

    #[test]
    fn nothing_overlaps_and_boxes_are_in_their_group() {
        for (count, groups) in [(1, 1), (7, 3), (60, 1), (300, 9), (1_000, 40)] {
            let nodes: Vec<_> = (0..count).map(|node| LayoutNode(node % groups)).collect();
            let edges = (0..3 * count)
                .map(|edge| (edge * 7 % count, (edge * edge + 3) % count))
                .collect();
            let layout = lay_out(&nodes, groups, &edges);
            for (index, area) in layout.nodes.iter().enumerate() {
                assert!(contains(layout.groups[index % groups], *area), "{index}");
                for other in &layout.nodes[..index] {
                    assert!(!overlaps(*area, *other), "{index}");
                }
            }
            for (index, area) in layout.groups.iter().enumerate() {
                assert!(area.x + area.width < layout.width && area.y + area.height < layout.height);
                for other in &layout.groups[..index] {
                    assert!(!overlaps(*area, *other), "{index}");
                }
            }
        }
        assert_eq!(lay_out(&[], 0, &BTreeSet::new()).nodes, []);
    }
}
