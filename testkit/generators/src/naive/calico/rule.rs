//! The rules of Calico: everything that one says must hold, of the packet and of both of its ends.

use super::super::{
    NaiveFlow, at, in_cidr, is_kind, labels, list, named_port, names, namespace, pod_at, present,
    text,
};
use super::holder::NaiveHolder;
use super::selector::{NaiveSubject, selects};
use super::{NaiveOutcome, filled};
use serde_json::Value;
use std::net::IpAddr;

/// Where rules stand.
pub(super) struct NaiveRuleScope<'a> {
    pub(super) objects: &'a [Value],
    /// The namespace of their policy; nothing for a policy of the cluster and for a profile.
    pub(super) namespace: Option<&'a str>,
    pub(super) egress: bool,
    /// Whose named ports are those of the own end, if that is the host itself.
    pub(super) host: Option<&'a Value>,
}

/// One end of a packet.
struct NaiveEnd {
    address: IpAddr,
    port: Option<u16>,
    protocol: u8,
    is_destination: bool,
}

impl NaiveRuleScope<'_> {
    /// Asks rules in their order.
    pub(super) fn ask(&self, rules: &[Value], flow: &NaiveFlow) -> NaiveOutcome {
        for rule in rules.iter().filter(|rule| self.matches(rule, flow)) {
            match text(rule, "/action") {
                Some("Allow") => return NaiveOutcome::Decides(true),
                Some("Deny") => return NaiveOutcome::Decides(false),
                Some("Pass") => return NaiveOutcome::Passes,
                _ => {}
            }
        }
        NaiveOutcome::NoMatch
    }

    fn matches(&self, rule: &Value, flow: &NaiveFlow) -> bool {
        // What is inside of connections is not known here.
        if present(rule.get("http")).is_some() || !is_packet(rule, flow) {
            return false;
        }
        let source = NaiveEnd {
            address: flow.source,
            port: flow.ports.map(|(source, _)| source),
            protocol: flow.protocol,
            is_destination: false,
        };
        let destination = NaiveEnd {
            address: flow.destination,
            port: flow.ports.map(|(_, destination)| destination),
            protocol: flow.protocol,
            is_destination: true,
        };
        [("source", source), ("destination", destination)]
            .iter()
            .all(|(field, end)| {
                present(rule.get(*field)).is_none_or(|entity| self.is_end(entity, end))
            })
    }

    fn is_end(&self, entity: &Value, end: &NaiveEnd) -> bool {
        let service = present(entity.get("services"));
        let domains = list(entity.get("domains"));
        if !domains.is_empty() && !self.is_domain(domains, end) {
            return false;
        }
        self.is_selected(entity, end.address)
            && in_nets(entity, end.address)
            && self.in_ports(entity, end)
            && service.is_none_or(|service| self.is_of_service(service, end))
    }

    /// Whether an end is an answer for one of these names; of names that are not understood there are none.
    fn is_domain(&self, domains: &[Value], end: &NaiveEnd) -> bool {
        let written = || domains.iter().filter_map(Value::as_str);
        let is_understood = |name: &str| !name.strip_prefix("*.").unwrap_or(name).contains('*');
        let is_named = |name: &str| written().any(|written| names::is_domain(written, name));
        self.egress
            && end.is_destination
            && written().all(is_understood)
            && names::is_answer(self.objects, end.address, is_named)
    }

    /// What the selectors say of an address, by what holds it.
    fn is_selected(&self, entity: &Value, address: IpAddr) -> bool {
        let selector = filled(entity, "/selector");
        let not_selector = filled(entity, "/notSelector");
        let of_namespace = filled(entity, "/namespaceSelector");
        let names = list(at(entity, "/serviceAccounts/names"));
        let of_account = filled(entity, "/serviceAccounts/selector");
        let asks_account = !names.is_empty() || of_account.is_some();
        let texts = [selector, not_selector, of_namespace];
        if texts.iter().all(Option::is_none) && !asks_account {
            return true;
        }
        let holders = NaiveHolder::all_at(self.objects, address);

        let is_account = |holder: &NaiveHolder| {
            let name = holder.labels.get("projectcalico.org/serviceaccount");
            let is_named = names.is_empty()
                || name.is_some_and(|name| names.iter().any(|other| other == name.as_str()));
            let of = NaiveSubject::ServiceAccount;
            is_named && of_account.is_none_or(|text| selects(text, of, holder))
        };
        let is_it = |holder: &NaiveHolder| {
            selector.is_none_or(|text| selects(text, NaiveSubject::Holder, holder))
                && is_account(holder)
        };
        let asks_holder = selector.is_some() || asks_account;
        let known = match (of_namespace, self.namespace) {
            (Some(text), _) => holders
                .iter()
                .any(|holder| selects(text, NaiveSubject::Namespace, holder) && is_it(holder)),
            (None, Some(own)) if asks_holder || not_selector.is_some() => holders
                .iter()
                .any(|holder| holder.namespace.as_deref() == Some(own) && is_it(holder)),
            (None, None) if asks_holder => holders.iter().any(is_it),
            _ => true,
        };
        let excluded = not_selector.is_some_and(|text| {
            let mut all = holders.iter();
            all.any(|holder| selects(text, NaiveSubject::Holder, holder))
        });
        known && !excluded
    }

    fn in_ports(&self, entity: &Value, end: &NaiveEnd) -> bool {
        let is_in = |listed: &[Value]| {
            end.port
                .is_some_and(|number| listed.iter().any(|port| self.is_port(port, number, end)))
        };
        let (ports, not_ports) = (list(entity.get("ports")), list(entity.get("notPorts")));
        (ports.is_empty() || is_in(ports)) && (not_ports.is_empty() || !is_in(not_ports))
    }

    /// A number, a range of them, or the name of a port of what is at this end.
    fn is_port(&self, port: &Value, number: u16, end: &NaiveEnd) -> bool {
        let number = u64::from(number);
        let Some(written) = port.as_str() else {
            return port.as_u64() == Some(number);
        };
        if let Ok(single) = written.parse::<u64>() {
            return single == number;
        }
        let bounds = written
            .split_once(':')
            .map(|(first, last)| (first.parse::<u64>(), last.parse::<u64>()));
        if let Some((Ok(first), Ok(last))) = bounds {
            return (first..=last).contains(&number);
        }
        let is_own = end.is_destination != self.egress;
        let pod = || pod_at(self.objects, end.address).map(|pod| &self.objects[pod]);
        let holder = self.host.filter(|_| is_own).or_else(pod);
        holder.and_then(|holder| named_port(holder, written, end.protocol)) == Some(number)
    }

    /// Whether an end is an endpoint of a Service: to which packets go by address, protocol and port, and from
    /// which they come by address.
    fn is_of_service(&self, service: &Value, end: &NaiveEnd) -> bool {
        let name = text(service, "/name").unwrap_or_default();
        let of = filled(service, "/namespace").or(self.namespace);
        let slices = self.objects.iter().filter(|slice| {
            is_kind(slice, "discovery.k8s.io", "EndpointSlice")
                && Some(namespace(slice)) == of
                && labels(slice)
                    .get("kubernetes.io/service-name")
                    .is_some_and(|label| label == name)
        });
        let mut slices = slices.filter(|slice| {
            list(slice.get("endpoints"))
                .iter()
                .flat_map(|endpoint| list(endpoint.get("addresses")))
                .any(|address| address.as_str().and_then(|a| a.parse().ok()) == Some(end.address))
        });
        if self.egress && end.is_destination {
            slices.any(|slice| {
                list(slice.get("ports"))
                    .iter()
                    .any(|port| is_slice_port(port, end))
            })
        } else {
            slices.next().is_some()
        }
    }
}

fn is_slice_port(port: &Value, end: &NaiveEnd) -> bool {
    let protocol = match text(port, "/protocol") {
        None | Some("TCP") => 6,
        Some("UDP") => 17,
        Some("SCTP") => 132,
        Some(_) => return false,
    };
    let number = port.get("port").and_then(Value::as_u64);
    protocol == end.protocol && number.is_some() && number == end.port.map(u64::from)
}

/// In one of the networks and in none of those that are left out; where no network of the address' family is
/// left out, but one of the other is, the rule says nothing of this family.
fn in_nets(entity: &Value, address: IpAddr) -> bool {
    let is_in = |nets: &[Value]| {
        nets.iter()
            .filter_map(Value::as_str)
            .any(|net| in_cidr(net, address))
    };
    let is_family = |net: &Value| {
        net.as_str()
            .is_some_and(|n| n.contains(':') == address.is_ipv6())
    };
    let (nets, not_nets) = (list(entity.get("nets")), list(entity.get("notNets")));
    let left_out = !not_nets.is_empty() && (is_in(not_nets) || !not_nets.iter().any(is_family));
    (nets.is_empty() || is_in(nets)) && !left_out
}

/// Family, protocol and message.
fn is_packet(rule: &Value, flow: &NaiveFlow) -> bool {
    let version = if flow.source.is_ipv6() { 6 } else { 4 };
    let field = |name: &str| present(rule.get(name));
    field("ipVersion").is_none_or(|wanted| *wanted == version)
        && field("protocol").is_none_or(|wanted| number(wanted) == Some(flow.protocol))
        && field("notProtocol").is_none_or(|wanted| number(wanted) != Some(flow.protocol))
        && field("icmp").is_none_or(|wanted| is_message(wanted, flow))
        && field("notICMP").is_none_or(|wanted| !is_message(wanted, flow))
}

fn number(protocol: &Value) -> Option<u8> {
    if let Some(number) = protocol.as_u64() {
        return u8::try_from(number).ok();
    }
    let name = protocol.as_str()?;
    match name.to_lowercase().as_str() {
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" => Some(1),
        "icmpv6" => Some(58),
        "sctp" => Some(132),
        "udplite" => Some(136),
        other => other.parse().ok(),
    }
}

fn is_message(wanted: &Value, flow: &NaiveFlow) -> bool {
    let Some((kind, code)) = flow.icmp else {
        return false;
    };
    let is = |name: &str, found: u8| present(wanted.get(name)).is_none_or(|w| *w == found);
    is("type", kind) && is("code", code)
}
