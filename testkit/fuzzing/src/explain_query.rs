//! Questions about any two ends and any traffic, in words no user would write.

use palisade_analysis::explain;
use palisade_api::ExplainQuery;
use palisade_dialects::lower_object;
use palisade_manifest::{Limits, extract_objects, parse};
use palisade_model::{FailsafePorts, Object, Prefix, Protocol, State, Update};
use palisade_oracle::OracleOptions;

const WORLD: &str = "
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: n}, status: {podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: n}, spec: {containers: [{ports: [{name: p, containerPort: 80}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s, namespace: n}, spec: {selector: {x: y}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: h}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
---
{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {name: e}, spec: {node: h, interfaceName: eth0}}
---
{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {name: f}, spec: {node: h, expectedIPs: [192.0.2.2]}}
";

/// Asks with the lines of a text as the words of the question.
pub fn explain_query(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let limits = Limits::default();
    let read = extract_objects(parse("fuzz.yaml", WORLD.as_bytes(), &limits), &limits);
    let objects = read
        .objects
        .iter()
        .flat_map(|raw| lower_object(raw).objects);
    let state = State::from_updates(
        objects
            .filter_map(Object::into_effective)
            .map(Update::Upsert),
    );
    let mut words = text.split('\n').map(str::to_owned);
    let mut word = || words.next().unwrap_or_default();
    let query = ExplainQuery {
        from: word(),
        to: word(),
        port: Some(word()).filter(|word| !word.is_empty()),
        protocol: Some(word()).filter(|word| !word.is_empty()),
        icmp_type: Some(word()).filter(|word| !word.is_empty()),
        source_port: word().parse().ok(),
        input_interface: Some(word()).filter(|word| !word.is_empty()),
        output_interface: Some(word()).filter(|word| !word.is_empty()),
        node: Some(word()).filter(|word| !word.is_empty()),
        original_destination: Some(word()).filter(|word| !word.is_empty()),
    };
    let (options, failsafe) = (OracleOptions::default(), FailsafePorts::default());
    let explanation = explain(&state, &query, &options, &failsafe);
    let _ = explanation.map(|explanation| explanation.to_string());
    let _ = text.parse::<Prefix>();
    let _ = Protocol::parse(text);
}
