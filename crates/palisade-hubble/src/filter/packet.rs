//! Filters by what a packet has: verdict, event, protocol, ports, flags, interface.
//!
//! Promises: numbers of enumerations are compared as they came, so that those of later versions match nothing.
//!
//! Never: refuses a number.

use super::TestBuilder;
use crate::proto::flow::layer4::Protocol;
use crate::proto::flow::layer7::Record;
use crate::proto::flow::{Flow, FlowFilter, TcpFlags, Verdict};

pub(super) fn add_tests(builder: &mut TestBuilder, filter: &FlowFilter) -> Result<(), String> {
    builder.add("uuid", &filter.uuid, |_, uuids| {
        let uuids = uuids.to_vec();
        Ok(move |flow: &Flow| uuids.contains(&flow.uuid))
    })?;
    builder.add("event type", &filter.event_type, |_, types| {
        let types = types.to_vec();
        Ok(move |flow: &Flow| {
            let event = flow.event_type.as_ref();
            event.is_some_and(|event| {
                types.iter().any(|wanted| {
                    (wanted.r#type == 0 || wanted.r#type == event.r#type)
                        && (!wanted.match_sub_type || wanted.sub_type == event.sub_type)
                })
            })
        })
    })?;
    builder.add("verdict", &filter.verdict, |_, verdicts| {
        let verdicts = verdicts.to_vec();
        Ok(move |flow: &Flow| verdicts.contains(&flow.verdict))
    })?;
    builder.add("drop reason", &filter.drop_reason_desc, |_, reasons| {
        let reasons = reasons.to_vec();
        Ok(move |flow: &Flow| {
            flow.verdict == Verdict::Dropped as i32 && reasons.contains(&flow.drop_reason_desc)
        })
    })?;
    builder.add("reply", &filter.reply, |_, replies| {
        let replies = replies.to_vec();
        Ok(move |flow: &Flow| match flow.is_reply {
            // What was dropped and may be a reply is none, as clients know it.
            None => flow.verdict == Verdict::Dropped as i32 && replies.contains(&false),
            Some(reply) => replies.contains(&reply),
        })
    })?;
    builder.add(
        "traffic direction",
        &filter.traffic_direction,
        |_, directions| {
            let directions = directions.to_vec();
            Ok(move |flow: &Flow| directions.contains(&flow.traffic_direction))
        },
    )?;
    builder.add("interface", &filter.interface, |_, interfaces| {
        let interfaces = interfaces.to_vec();
        Ok(move |flow: &Flow| {
            flow.interface.as_ref().is_some_and(|interface| {
                interfaces.iter().any(|wanted| {
                    (wanted.index == 0 || wanted.index == interface.index)
                        && (wanted.name.is_empty() || wanted.name == interface.name)
                })
            })
        })
    })?;
    builder.add("trace id", &filter.trace_id, |_, ids| {
        let ids = ids.to_vec();
        Ok(move |flow: &Flow| {
            let parent = flow
                .trace_context
                .as_ref()
                .and_then(|trace| trace.parent.as_ref());
            let id = parent.map_or("", |parent| &parent.trace_id);
            ids.iter().any(|wanted| wanted == id)
        })
    })?;
    add_transport_tests(builder, filter)
}

fn add_transport_tests(builder: &mut TestBuilder, filter: &FlowFilter) -> Result<(), String> {
    builder.add("protocol", &filter.protocol, |_, names| {
        let matchers = names.iter().map(|name| protocol(name));
        let matchers: Vec<fn(&Flow) -> bool> = matchers.collect::<Result<_, _>>()?;
        Ok(move |flow: &Flow| matchers.iter().any(|matches| matches(flow)))
    })?;
    builder.add("source port", &filter.source_port, |_, texts| {
        let wanted = ports(texts)?;
        Ok(move |flow: &Flow| flow_ports(flow).is_some_and(|[port, _]| wanted.contains(&port)))
    })?;
    builder.add("destination port", &filter.destination_port, |_, texts| {
        let wanted = ports(texts)?;
        Ok(move |flow: &Flow| flow_ports(flow).is_some_and(|[_, port]| wanted.contains(&port)))
    })?;
    builder.add("tcp flags", &filter.tcp_flags, |_, flags| {
        let wanted = flags.to_vec();
        Ok(move |flow: &Flow| {
            let flags = match layer4(flow) {
                Some(Protocol::Tcp(tcp)) => tcp.flags.as_ref(),
                _ => None,
            };
            flags.is_some_and(|flags| wanted.iter().any(|wanted| has_flags(flags, wanted)))
        })
    })
}

fn layer4(flow: &Flow) -> Option<&Protocol> {
    flow.l4.as_ref()?.protocol.as_ref()
}

pub(super) fn layer7(flow: &Flow) -> Option<&Record> {
    flow.l7.as_ref()?.record.as_ref()
}

/// Whether a flow has the protocol of a name.
#[allow(
    deprecated,
    reason = "the filter knows Kafka, as long as flows may have it"
)]
fn protocol(name: &str) -> Result<fn(&Flow) -> bool, String> {
    Ok(match name.to_lowercase().as_str() {
        "icmp" => |flow| {
            matches!(
                layer4(flow),
                Some(Protocol::IcmPv4(_) | Protocol::IcmPv6(_))
            )
        },
        "icmpv4" => |flow| matches!(layer4(flow), Some(Protocol::IcmPv4(_))),
        "icmpv6" => |flow| matches!(layer4(flow), Some(Protocol::IcmPv6(_))),
        "tcp" => |flow| matches!(layer4(flow), Some(Protocol::Tcp(_))),
        "udp" => |flow| matches!(layer4(flow), Some(Protocol::Udp(_))),
        "sctp" => |flow| matches!(layer4(flow), Some(Protocol::Sctp(_))),
        "dns" => |flow| matches!(layer7(flow), Some(Record::Dns(_))),
        "http" => |flow| matches!(layer7(flow), Some(Record::Http(_))),
        "kafka" => |flow| matches!(layer7(flow), Some(Record::Kafka(_))),
        _ => return Err(format!("unknown protocol: {name:?}")),
    })
}

fn ports(texts: &[String]) -> Result<Vec<u32>, String> {
    let port = |text: &String| {
        // Digits alone: a sign is no part of a port.
        let number = text.parse::<u16>().ok().filter(|_| !text.starts_with('+'));
        number
            .map(u32::from)
            .ok_or_else(|| format!("invalid port {text:?}"))
    };
    texts.iter().map(port).collect()
}

/// The ports of a flow, source first.
fn flow_ports(flow: &Flow) -> Option<[u32; 2]> {
    match layer4(flow)? {
        Protocol::Tcp(tcp) => Some([tcp.source_port, tcp.destination_port]),
        Protocol::Udp(udp) => Some([udp.source_port, udp.destination_port]),
        Protocol::Sctp(sctp) => Some([sctp.source_port, sctp.destination_port]),
        Protocol::IcmPv4(_) | Protocol::IcmPv6(_) => None,
    }
}

/// Whether all wanted flags are set.
fn has_flags(flags: &TcpFlags, wanted: &TcpFlags) -> bool {
    let list = |flags: &TcpFlags| {
        [
            flags.fin, flags.syn, flags.rst, flags.psh, flags.ack, flags.urg, flags.ece, flags.cwr,
            flags.ns,
        ]
    };
    let pairs = list(flags).into_iter().zip(list(wanted));
    pairs.into_iter().all(|(set, wanted)| set || !wanted)
}
