//! The map as a function of recorded flows. After an intended change run with `PALISADE_BLESS=1` and review the
//! difference.

use crate::fixtures::{IMAGE, many_flows, recorded_flows};
use palisade_api::RecordedFlowList;
use palisade_page::{MapQuery, map_of_flows};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/map.json");

fn list() -> RecordedFlowList {
    serde_json::from_value(recorded_flows()).unwrap()
}

#[test]
fn the_map_of_a_shop_is_this() {
    let map = map_of_flows(&list(), 400);
    let text = serde_json::to_string_pretty(&map).unwrap() + "\n";
    if std::env::var_os("PALISADE_BLESS").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    assert_eq!(
        text, golden,
        "run this with PALISADE_BLESS=1 and read the difference"
    );
}

#[test]
fn the_order_of_flows_does_not_matter() {
    for mut list in [list(), many_flows(300)] {
        // An edge has flows of several times.
        let earlier = list.flows.clone().into_iter().map(|mut flow| {
            flow.last = "2026-11-20T07:00:00Z".to_owned();
            flow
        });
        let both: Vec<_> = earlier.chain(list.flows.clone()).collect();
        list.flows = both;
        let map = map_of_flows(&list, 400);
        let mut reversed = list;
        reversed.flows.reverse();
        assert_eq!(map_of_flows(&reversed, 400), map);
    }
}

#[test]
fn every_flow_is_on_an_edge_or_counted_as_hidden() {
    let list = many_flows(1_000);
    let all = map_of_flows(&list, 1_000);
    assert_eq!(all.nodes.len(), 1_000);
    assert_eq!((all.hidden.nodes, all.hidden.edges), (0, 0));
    let flows: usize = all.edges.iter().map(|edge| edge.flows).sum();
    assert_eq!(flows, list.flows.len());
    let count: u64 = list.flows.iter().map(|flow| flow.count).sum();
    assert_eq!(all.edges.iter().map(|edge| edge.count).sum::<u64>(), count);
    let some = map_of_flows(&list, 100);
    assert_eq!((some.nodes.len(), some.hidden.nodes), (100, 900));
    assert_eq!(some.edges.len() + some.hidden.edges, all.edges.len());
    for edge in &some.edges {
        assert!(all.edges.contains(edge));
    }
    let none = map_of_flows(&list, 0);
    assert_eq!(
        (none.nodes.len(), none.edges.len(), none.hidden.nodes),
        (0, 0, 1_000)
    );
}

#[test]
fn many_edges_are_bounded() {
    let mut list = list();
    let flow = list.flows[4].clone();
    list.flows = (0..100_u8)
        .flat_map(|from| (0..100_u8).map(move |to| (from, to)))
        .map(|(from, to)| {
            let mut flow = flow.clone();
            flow.source.names = vec![format!("a{from}.example.org")];
            flow.destination.controller = None;
            flow.destination.name = Some(format!("pod-{to}"));
            flow.count = u64::from(from) * u64::from(to);
            flow
        })
        .collect();
    let map = map_of_flows(&list, 400);
    assert_eq!(
        (map.nodes.len(), map.edges.len(), map.hidden.edges),
        (200, 2_000, 8_000)
    );
    let least = map.edges.iter().map(|edge| edge.count).min().unwrap();
    assert!(least > 4_000, "the busiest are shown: {least}");
}

#[test]
fn ends_are_told_apart() {
    let map = map_of_flows(&list(), 400);
    let ids: Vec<&str> = map.nodes.iter().map(|node| &*node.id).collect();
    let image = format!("workload/shop/{IMAGE}");
    assert_eq!(
        ids,
        [
            "controller/shop/Deployment/db",
            "controller/shop/Deployment/web",
            &*image,
            "controller/tools/Deployment/prometheus",
            "node/worker-2",
            "name/api.example.org",
            "outside",
        ]
    );
}

#[test]
fn parameters_that_the_map_does_not_have_are_refused() {
    assert!(MapQuery::parse("since=1h&nodes=5&verdict=Denied&source=a&destination=b").is_ok());
    for query in ["limit=5", "nodes=many", "nodes=-1", "x"] {
        assert!(MapQuery::parse(query).is_err(), "{query}");
    }
}
