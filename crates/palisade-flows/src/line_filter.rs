//! Which lines of the monitor a query selects.
//!
//! Promises: the same for every reader, whether it follows an agent or a relay. Never: selects lines that tell of losses;
//! every reader has those.

use palisade_api::{
    FlowRecord, MonitorEndpoint, MonitorLine, MonitorQuery, MonitorVerdict, PacketEvent,
};

/// Whether a query selects a line.
pub fn matches_line(query: &MonitorQuery, line: &MonitorLine) -> bool {
    match line {
        MonitorLine::Packet(packet) => matches_packet(query, packet),
        MonitorLine::Flow(record) => matches_flow(query, record),
        MonitorLine::Lost(_) => true,
    }
}

/// Whether an end of a packet or flow is this workload; without a namespace, of the namespace `default`.
fn is_named(end: &MonitorEndpoint, name: &str) -> bool {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    end.namespace.as_deref() == Some(namespace) && end.name.as_deref() == Some(name)
}

/// Whether an end of a packet or flow is this workload or address.
fn is_endpoint(end: &MonitorEndpoint, wanted: &str) -> bool {
    end.address == wanted || is_named(end, wanted)
}

/// Whether a query asks for a flow.
pub fn matches_flow(query: &MonitorQuery, record: &FlowRecord) -> bool {
    let (source, destination) = (&record.source, &record.destination);
    let has_end =
        |is_wanted: &dyn Fn(&MonitorEndpoint) -> bool| is_wanted(source) || is_wanted(destination);
    let would_be_denied = || {
        let ends = [&record.egress, &record.ingress].into_iter().flatten();
        let mut audits = ends.filter_map(|end| end.audit.as_ref());
        audits.any(|audit| audit.verdict == MonitorVerdict::Denied)
    };
    let is_named_end = |wanted: &str| has_end(&|end| is_named(end, wanted));
    let is_in = |wanted: &str| has_end(&|end| end.namespace.as_deref() == Some(wanted));
    query.flows
        && query.verdict != Some(MonitorVerdict::Denied)
        && (!query.audit || would_be_denied())
        && query.endpoint.as_deref().is_none_or(is_named_end)
        && query.namespace.as_deref().is_none_or(is_in)
        && (query.from.as_deref()).is_none_or(|from| is_endpoint(source, from))
        && (query.to.as_deref()).is_none_or(|to| is_endpoint(destination, to))
}

/// Whether a packet matches a query.
pub fn matches_packet(query: &MonitorQuery, event: &PacketEvent) -> bool {
    let (source, destination) = (&event.source, &event.destination);
    let judged = event.endpoint.as_deref();
    let endpoint = query.endpoint.as_deref().is_none_or(|wanted| {
        let judged = judged.is_some_and(|judged| {
            judged == wanted || judged.strip_prefix("default/") == Some(wanted)
        });
        judged || is_named(source, wanted) || is_named(destination, wanted)
    });
    let namespace = query.namespace.as_deref().is_none_or(|wanted| {
        let ends = [source, destination];
        let of_end = |end: &&MonitorEndpoint| end.namespace.as_deref() == Some(wanted);
        let judged = judged.and_then(|name| name.split_once('/'));
        judged.is_some_and(|(namespace, _)| namespace == wanted) || ends.iter().any(of_end)
    });
    endpoint
        && namespace
        && query.verdict.is_none_or(|wanted| wanted == event.verdict)
        && (!query.audit
            || event
                .audit
                .as_ref()
                .is_some_and(|a| a.verdict != event.verdict))
        && query
            .from
            .as_deref()
            .is_none_or(|from| is_endpoint(source, from))
        && query
            .to
            .as_deref()
            .is_none_or(|to| is_endpoint(destination, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> PacketEvent {
        let event = serde_json::json!({
            "apiVersion": palisade_api::api_version(), "time": "t", "verdict": "Denied", "reason": "Rule",
            "endpoint": "shop/db", "source": {"address": "10.0.0.9"},
            "destination": {"address": "10.0.0.1", "namespace": "shop", "name": "db"},
            "protocol": "UDP", "reply": false, "length": 1,
        });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn filters() {
        let text = |text: &str| Some(text.to_owned());
        let none = MonitorQuery::default;
        let event = event();
        for (query, fits) in [
            (none(), true),
            (
                MonitorQuery {
                    endpoint: text("shop/db"),
                    ..none()
                },
                true,
            ),
            (
                MonitorQuery {
                    endpoint: text("db"),
                    ..none()
                },
                false,
            ),
            (
                MonitorQuery {
                    namespace: text("shop"),
                    ..none()
                },
                true,
            ),
            (
                MonitorQuery {
                    namespace: text("default"),
                    ..none()
                },
                false,
            ),
            (
                MonitorQuery {
                    verdict: Some(MonitorVerdict::Denied),
                    ..none()
                },
                true,
            ),
            (
                MonitorQuery {
                    verdict: Some(MonitorVerdict::Allowed),
                    ..none()
                },
                false,
            ),
            (
                MonitorQuery {
                    from: text("10.0.0.9"),
                    ..none()
                },
                true,
            ),
            (
                MonitorQuery {
                    from: text("shop/db"),
                    ..none()
                },
                false,
            ),
            (
                MonitorQuery {
                    to: text("shop/db"),
                    ..none()
                },
                true,
            ),
            (
                MonitorQuery {
                    to: text("shop/db"),
                    namespace: text("x"),
                    ..none()
                },
                false,
            ),
        ] {
            assert_eq!(matches_packet(&query, &event), fits, "{query:?}");
        }
    }
}
