//! The map as a value: boxes of workloads, nodes, domain names and everything outside, in groups, and edges between them
//! by verdict. The busiest are shown; what is not shown is counted.

use super::end_names::BoxName;
use super::layout::{LayoutNode, lay_out};
use palisade_api::{MonitorVerdict, ProtocolName, RecordedFlow, RecordedFlowList};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The most edges of a map.
const MOST_EDGES: usize = 2_000;
/// The most ports that an edge names.
const MOST_PORTS: usize = 6;

/// The map of workloads. Coordinates are in pixels from the upper left corner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadMap {
    /// [`palisade_api::API_VERSION`].
    pub api_version: String,
    /// The node that recorded the flows.
    pub node: String,
    /// When the record begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// How many flows and packets were not recorded.
    pub lost: u64,
    /// Whether there are more flows than the map is made of.
    pub truncated: bool,
    /// The width of the whole.
    pub width: i32,
    /// The height of the whole.
    pub height: i32,
    /// The groups.
    pub groups: Vec<MapGroup>,
    /// The boxes, ordered by group and id.
    pub nodes: Vec<MapNode>,
    /// The edges, ordered by source, destination and verdict.
    pub edges: Vec<MapEdge>,
    /// What is not shown.
    pub hidden: HiddenPart,
}

/// What a map does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HiddenPart {
    /// Boxes: those with the fewest flows.
    pub nodes: usize,
    /// Edges: those of hidden boxes, and those with the fewest flows.
    pub edges: usize,
}

/// What a group of boxes has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum MapGroupKind {
    /// Workloads of a namespace.
    Namespace,
    /// Nodes of the cluster.
    Nodes,
    /// Domain names outside of the cluster.
    Names,
    /// Other addresses.
    Outside,
}

/// A group of boxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapGroup {
    /// What its boxes have in common.
    pub kind: MapGroupKind,
    /// The namespace; empty for the others.
    pub name: String,
    /// The left edge.
    pub x: i32,
    /// The upper edge.
    pub y: i32,
    /// The width.
    pub width: i32,
    /// The height.
    pub height: i32,
}

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MapNodeKind {
    /// The workloads of a controller.
    Controller,
    /// A workload without a controller.
    Workload,
    /// A node of the cluster.
    Node,
    /// A domain name.
    Name,
    /// All other addresses.
    Outside,
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapNode {
    /// Its id, which edges refer to.
    pub id: String,
    /// What it stands for.
    pub kind: MapNodeKind,
    /// Its name: of the controller, workload, node or domain.
    pub name: String,
    /// The kind of the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The index of its group.
    pub group: usize,
    /// The left edge.
    pub x: i32,
    /// The upper edge.
    pub y: i32,
    /// The width.
    pub width: i32,
    /// The height.
    pub height: i32,
}

/// What flowed, or was denied, from one box to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MapEdge {
    /// The id of the source.
    pub source: String,
    /// The id of the destination.
    pub destination: String,
    /// The verdict.
    pub verdict: MonitorVerdict,
    /// The number of flows that began, or of denied packets.
    pub count: u64,
    /// The number of entries of the record.
    pub flows: usize,
    /// The ports and protocols, sorted; the first of them.
    pub ports: Vec<String>,
    /// The number of further ports.
    pub more_ports: usize,
    /// When the last was seen.
    pub last: String,
}

impl MapNodeKind {
    fn describe(name: &BoxName) -> (MapNodeKind, String, Option<String>) {
        match name {
            BoxName::Controller(_, kind, name) => {
                (MapNodeKind::Controller, name.clone(), Some(kind.clone()))
            }
            BoxName::Workload(_, name) => (MapNodeKind::Workload, name.clone(), None),
            BoxName::Node(name) => (MapNodeKind::Node, name.clone(), None),
            BoxName::Domain(name) => (MapNodeKind::Name, name.clone(), None),
            BoxName::Outside => (MapNodeKind::Outside, "outside".to_owned(), None),
        }
    }
}

/// The group of a box.
fn group_of(name: &BoxName) -> (MapGroupKind, String) {
    match name {
        BoxName::Controller(namespace, ..) | BoxName::Workload(namespace, _) => {
            (MapGroupKind::Namespace, namespace.clone())
        }
        BoxName::Node(_) => (MapGroupKind::Nodes, String::new()),
        BoxName::Domain(_) => (MapGroupKind::Names, String::new()),
        BoxName::Outside => (MapGroupKind::Outside, String::new()),
    }
}

/// What is summed up for an edge.
#[derive(Default)]
struct EdgeSum {
    count: u64,
    flows: usize,
    ports: BTreeSet<String>,
    last: String,
}

impl EdgeSum {
    fn add(&mut self, flow: &RecordedFlow) {
        self.count = self.count.saturating_add(flow.count);
        self.flows += 1;
        self.ports.insert(traffic_name(flow));
        if flow.last > self.last {
            self.last.clone_from(&flow.last);
        }
    }

    /// What busy edges are told by: flows that began, then entries.
    fn weight(&self) -> (u64, usize) {
        (self.count, self.flows)
    }
}

/// Port and protocol, or the ICMP message: `443/TCP`, `ICMP 8/0`.
fn traffic_name(flow: &RecordedFlow) -> String {
    let protocol = match flow.protocol {
        ProtocolName::Number(number) => format!("protocol {number}"),
        named => named.to_string(),
    };
    match (flow.port, flow.icmp) {
        (Some(port), _) => format!("{port}/{protocol}"),
        (None, Some(icmp)) => format!("{protocol} {}/{}", icmp.kind, icmp.code),
        (None, None) => protocol,
    }
}

type EdgeKey = (BoxName, BoxName, MonitorVerdict);

/// The map of recorded flows with at most so many boxes.
#[must_use]
pub fn map_of_flows(list: &RecordedFlowList, most_nodes: usize) -> WorkloadMap {
    let mut sums: BTreeMap<EdgeKey, EdgeSum> = BTreeMap::new();
    for flow in &list.flows {
        let key = (
            BoxName::of_end(&flow.source),
            BoxName::of_end(&flow.destination),
            flow.verdict,
        );
        sums.entry(key).or_default().add(flow);
    }
    let (all_edges, names) = (sums.len(), box_names(&sums));
    let (shown, hidden_nodes) = busiest_boxes(&names, most_nodes);
    sums.retain(|(source, destination, _), _| {
        shown.contains(source) && shown.contains(destination)
    });
    keep_busiest_edges(&mut sums);
    let hidden = HiddenPart {
        nodes: hidden_nodes,
        edges: all_edges - sums.len(),
    };
    draw(list, &shown, sums, hidden)
}

/// Every box with the sum of its edges.
fn box_names(sums: &BTreeMap<EdgeKey, EdgeSum>) -> BTreeMap<BoxName, (u64, usize)> {
    let mut names: BTreeMap<BoxName, (u64, usize)> = BTreeMap::new();
    for ((source, destination, _), sum) in sums {
        for end in [source, destination] {
            let (count, flows) = names.entry(end.clone()).or_default();
            *count = count.saturating_add(sum.count);
            *flows += sum.flows;
        }
    }
    names
}

/// The boxes with the most flows, and the number of the others.
fn busiest_boxes(
    names: &BTreeMap<BoxName, (u64, usize)>,
    most: usize,
) -> (BTreeSet<BoxName>, usize) {
    let mut order: Vec<_> = names.iter().collect();
    order.sort_by_key(|(_, weight)| Reverse(**weight));
    let hidden = order.len().saturating_sub(most);
    let shown = order.into_iter().take(most).map(|(name, _)| name.clone());
    (shown.collect(), hidden)
}

fn keep_busiest_edges(sums: &mut BTreeMap<EdgeKey, EdgeSum>) {
    if sums.len() <= MOST_EDGES {
        return;
    }
    let mut order: Vec<_> = std::mem::take(sums).into_iter().collect();
    order.sort_by_key(|(_, sum)| Reverse(sum.weight()));
    order.truncate(MOST_EDGES);
    sums.extend(order);
}

/// The map of these boxes and edges.
fn draw(
    list: &RecordedFlowList,
    shown: &BTreeSet<BoxName>,
    sums: BTreeMap<EdgeKey, EdgeSum>,
    hidden: HiddenPart,
) -> WorkloadMap {
    let groups: BTreeSet<_> = shown.iter().map(group_of).collect();
    let groups: Vec<_> = groups.into_iter().collect();
    let mut boxes: Vec<(usize, &BoxName)> = shown
        .iter()
        .filter_map(|name| Some((groups.binary_search(&group_of(name)).ok()?, name)))
        .collect();
    boxes.sort();
    let index: BTreeMap<&BoxName, usize> = boxes
        .iter()
        .enumerate()
        .map(|(index, (_, name))| (*name, index))
        .collect();
    let placed: Vec<LayoutNode> = boxes.iter().map(|(group, _)| LayoutNode(*group)).collect();
    let pairs: BTreeSet<(usize, usize)> = sums
        .keys()
        .filter_map(|(source, destination, _)| {
            Some((*index.get(source)?, *index.get(destination)?))
        })
        .collect();
    let layout = lay_out(&placed, groups.len(), &pairs);
    let nodes = boxes
        .iter()
        .zip(&layout.nodes)
        .map(|((group, name), area)| {
            let (kind, text, controller) = MapNodeKind::describe(name);
            MapNode {
                id: name.id(),
                kind,
                name: text,
                controller,
                group: *group,
                x: area.x,
                y: area.y,
                width: area.width,
                height: area.height,
            }
        });
    let drawn_groups = groups.iter().zip(&layout.groups);
    WorkloadMap {
        api_version: palisade_api::api_version().into(),
        node: list.node.clone(),
        since: list.since.clone(),
        lost: list.lost,
        truncated: list.truncated,
        width: layout.width,
        height: layout.height,
        groups: drawn_groups
            .map(|((kind, name), area)| MapGroup {
                kind: *kind,
                name: name.clone(),
                x: area.x,
                y: area.y,
                width: area.width,
                height: area.height,
            })
            .collect(),
        nodes: nodes.collect(),
        edges: sums.into_iter().map(edge).collect(),
        hidden,
    }
}

fn edge(((source, destination, verdict), sum): (EdgeKey, EdgeSum)) -> MapEdge {
    let more_ports = sum.ports.len().saturating_sub(MOST_PORTS);
    MapEdge {
        source: source.id(),
        destination: destination.id(),
        verdict,
        count: sum.count,
        flows: sum.flows,
        ports: sum.ports.into_iter().take(MOST_PORTS).collect(),
        more_ports,
        last: sum.last,
    }
}
