//! What `GET /v1/monitor` streams: one line for each packet that was denied, dropped, or asked for
//! by a Log rule, and lines that say how many more there were.

use serde::{Deserialize, Serialize};

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum MonitorLine {
    /// A packet.
    Packet(Box<PacketEvent>),
    /// Packets that are not told one by one.
    Lost(Box<LostEvents>),
}

/// What a packet got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MonitorVerdict {
    /// It was dropped.
    Denied,
    /// The direction that is told of let it pass.
    Allowed,
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PacketEvent {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// When it was seen, RFC 3339 with microseconds.
    pub time: String,
    /// What it got in the direction that is told of.
    pub verdict: MonitorVerdict,
    /// What decided: `rule`, `default-deny`, `profile`, `encapsulated`; or why it was dropped without a judgement:
    /// `spoofed`, `unknown-interface`, `invalid`, `no-point`; or `unknown`, where the rules changed
    /// before it could be told.
    pub reason: String,
    /// `ingress` or `egress`, seen from `endpoint`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The workload that was judged, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Where it came from.
    pub source: MonitorEndpoint,
    /// Where it went.
    pub destination: MonitorEndpoint,
    /// Its protocol, by name where it has one.
    pub protocol: String,
    /// The ICMP type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// The ICMP code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// Whether it is an answer; it is judged as the first packet of its flow, the other way round.
    pub reply: bool,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<MonitorRule>,
    /// Of a default denial: the policies that isolate the endpoint in this direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<MonitorPolicy>,
    /// The Log rules that were met on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logged: Vec<MonitorRule>,
    /// Its length in bytes, network header included.
    pub length: u32,
    /// The interface of the workload that was judged, or that it came by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The revision whose rules these are; absent where they are not known any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Whether the rules have changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// One end of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MonitorEndpoint {
    /// Its address.
    pub address: String,
    /// Its port, where the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The namespace of the workload that has, or lately had, the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MonitorPolicy {
    /// Its kind.
    pub kind: String,
    /// Its namespace; absent for cluster-wide kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// File and line; absent where it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

/// A rule of a policy or profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MonitorRule {
    /// The policy it stands in; the line is the rule's own.
    #[serde(flatten)]
    pub policy: MonitorPolicy,
    /// Its index in the list of its direction, as it stands now.
    pub index: u32,
    /// Its own name, in dialects that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_name: Option<String>,
    /// `allow`, `deny`, `pass` or `log`; absent where it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// Packets that are not told one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LostEvents {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// When this was found, RFC 3339 with microseconds.
    pub time: String,
    /// Where they were left out: `kernel` (more than it reports), `agent` (more than it looks at),
    /// `rate` (more of one rule than `monitor-rate`), or `client` (this reader is too slow).
    pub cause: String,
    /// How many.
    pub count: u64,
    /// What they have in common: a packet's `reason`, or `denied` or `logged` where no more is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule they have in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<MonitorRule>,
    /// The policies whose default denial they have in common.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<MonitorPolicy>,
}

/// The query parameters of `GET /v1/monitor`: the command's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MonitorQuery {
    /// Only packets that this workload (`namespace/name`) sent or was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Only packets from or to workloads of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Only packets with this verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<MonitorVerdict>,
    /// Only packets from this workload or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Only packets to this workload or address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Begin with so many of the packets seen last.
    #[serde(default)]
    pub last: usize,
    /// End after those.
    #[serde(default)]
    pub stop: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_this_shape() {
        let policy = MonitorPolicy {
            kind: "NetworkPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "db".to_owned(),
            line: Some("db.yaml:9".to_owned()),
        };
        let rule = MonitorRule {
            policy,
            index: 0,
            rule_name: None,
            action: Some("log".to_owned()),
        };
        let end = |address: &str, name: Option<&str>| MonitorEndpoint {
            address: address.to_owned(),
            port: Some(80),
            namespace: name.map(|_| "shop".to_owned()),
            name: name.map(str::to_owned),
        };
        let packet = MonitorLine::Packet(Box::new(PacketEvent {
            api_version: crate::api_version(),
            time: "2026-11-21T07:32:05.000001Z".to_owned(),
            verdict: MonitorVerdict::Denied,
            reason: "default-deny".to_owned(),
            direction: Some("ingress".to_owned()),
            endpoint: Some("shop/db".to_owned()),
            source: end("10.0.0.9", None),
            destination: end("10.0.0.1", Some("db")),
            protocol: "TCP".to_owned(),
            icmp_type: None,
            icmp_code: None,
            reply: false,
            rule: None,
            policies: Vec::new(),
            logged: vec![rule.clone()],
            length: 60,
            interface: Some("pal1".to_owned()),
            revision: Some(3),
            stale: false,
        }));
        let text = concat!(
            r#"{"type":"packet","apiVersion":"palisade.io/v1","time":"2026-11-21T07:32:05.000001Z","#,
            r#""verdict":"denied","reason":"default-deny","direction":"ingress","endpoint":"shop/db","#,
            r#""source":{"address":"10.0.0.9","port":80},"#,
            r#""destination":{"address":"10.0.0.1","port":80,"namespace":"shop","name":"db"},"#,
            r#""protocol":"TCP","reply":false,"#,
            r#""logged":[{"kind":"NetworkPolicy","namespace":"shop","name":"db","line":"db.yaml:9","#,
            r#""index":0,"action":"log"}],"length":60,"interface":"pal1","revision":3}"#,
        );
        assert_eq!(serde_json::to_string(&packet).unwrap(), text);
        assert_eq!(serde_json::from_str::<MonitorLine>(text).unwrap(), packet);

        let lost = MonitorLine::Lost(Box::new(LostEvents {
            api_version: crate::api_version(),
            time: "2026-11-21T07:32:05.000001Z".to_owned(),
            cause: "rate".to_owned(),
            count: 9,
            reason: Some("rule".to_owned()),
            rule: Some(rule),
            policies: Vec::new(),
        }));
        let text = concat!(
            r#"{"type":"lost","apiVersion":"palisade.io/v1","time":"2026-11-21T07:32:05.000001Z","#,
            r#""cause":"rate","count":9,"reason":"rule","rule":{"kind":"NetworkPolicy","#,
            r#""namespace":"shop","name":"db","line":"db.yaml:9","index":0,"action":"log"}}"#,
        );
        assert_eq!(serde_json::to_string(&lost).unwrap(), text);
    }
}
