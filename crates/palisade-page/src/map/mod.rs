//! The map of workloads: which boxes there are, where they stand, and what flowed or was denied between them.
//!
//! Promises: a function of the recorded flows and of a bound; what is left out is counted. Never: reads the agent.

mod end_names;
mod graph;
mod layers;
mod layout;

pub use graph::{
    HiddenPart, MapEdge, MapGroup, MapGroupKind, MapNode, MapNodeKind, WorkloadMap, map_of_flows,
};

use end_names::end_id;
use palisade_api::{RecordedFlowList, path};

/// The most recorded flows of which a map is made.
const MAP_FLOWS: usize = 20_000;
/// The most flows of an edge that are listed.
const EDGE_FLOWS: usize = 1_000;
/// The boxes of a map where a query has no number.
const USUAL_NODES: usize = 400;
/// The most boxes of a map.
const MOST_NODES: usize = 1_000;

/// The parameters of a map, and of the flows of one of its edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapQuery {
    /// The parameters that the agent filters by, as they were written.
    filters: Vec<(String, String)>,
    nodes: Option<usize>,
    source: Option<String>,
    destination: Option<String>,
}

impl MapQuery {
    /// The parameters of a URI's query: `nodes`, `source` and `destination` are of the map, `since`, `until`,
    /// `namespace`, `endpoint`, `from`, `to`, `verdict`, `protocol` and `port` as those of recorded flows.
    ///
    /// # Errors
    /// If there is another one, or `nodes` is no number.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut parsed = MapQuery::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "since" | "until" | "namespace" | "endpoint" | "from" | "to" | "verdict"
                | "protocol" | "port" => {
                    parsed.filters.push((name.into_owned(), value.into_owned()));
                }
                "nodes" => {
                    let number = value.parse();
                    parsed.nodes = Some(number.map_err(|_| "nodes: not a number".to_owned())?);
                }
                "source" => parsed.source = Some(value.into_owned()),
                "destination" => parsed.destination = Some(value.into_owned()),
                other => return Err(format!("{other}: the map has no such parameter")),
            }
        }
        Ok(parsed)
    }

    /// The request to the agent.
    pub(crate) fn target(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.filters);
        query.append_pair("limit", &MAP_FLOWS.to_string());
        format!("{}?{}", path::FLOWS, query.finish())
    }

    /// The most boxes.
    pub(crate) fn most_nodes(&self) -> usize {
        self.nodes.unwrap_or(USUAL_NODES).min(MOST_NODES)
    }
}

/// The flows between two boxes, and of the verdict that the query has.
pub(crate) fn edge_flows(mut list: RecordedFlowList, query: &MapQuery) -> RecordedFlowList {
    let is_end = |wanted: &Option<String>, id: &str| wanted.as_deref().is_none_or(|end| end == id);
    list.flows.retain(|flow| {
        is_end(&query.source, &end_id(&flow.source))
            && is_end(&query.destination, &end_id(&flow.destination))
    });
    list.truncated |= list.flows.len() > EDGE_FLOWS;
    list.flows.truncate(EDGE_FLOWS);
    list
}
