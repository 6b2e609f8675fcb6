//! A packet's event: names, rules and lines in place of addresses and numbers.
//!
//! Promises: a line is that of the same rule as it stands now; a rule that is gone has none.

use super::attribute::Judgement;
use crate::clock::rfc3339_micros;
use crate::core::Core;
use palisade_api::{MonitorEnd, MonitorPolicy, MonitorRule, MonitorVerdict, PacketEvent};
use palisade_dataplane::{Sighting, Why};
use palisade_model::{Action, Direction, L4, PolicyId, Rule, RuleOrigin};
use palisade_tables::{Credit, Packet};
use std::net::IpAddr;
use std::time::Duration;

/// What decided, for people and programs.
pub(super) struct Decided {
    pub(super) reason: &'static str,
    pub(super) rule: Option<MonitorRule>,
    pub(super) policies: Vec<MonitorPolicy>,
}

impl Core {
    /// The event of a packet. `found`: how it was judged, by which revision, and whether that is past.
    pub(super) fn event(
        &self,
        sighting: &Sighting,
        judged: &Packet,
        found: Option<(Judgement, u64, bool)>,
        at: Duration,
    ) -> PacketEvent {
        let packet = &sighting.packet;
        let direction = match (&found, sighting.why) {
            (Some((judgement, ..)), _) => Some(judgement.direction),
            (None, Why::Logged(direction)) => Some(direction),
            (None, Why::Spoofed | Why::UnknownInterface) => Some(Direction::Egress),
            (None, Why::Denied | Why::Invalid | Why::NoPoint) => None,
        };
        let interface = match direction {
            Some(Direction::Egress) => judged.from.as_ref(),
            Some(Direction::Ingress) => judged.to.as_ref(),
            None => packet.from.as_ref().or(packet.to.as_ref()),
        };
        let hits = found.as_ref().map_or(&[][..], |(of, ..)| &of.hits);
        let decided = self.decided(sighting.why, hits.last().map(|credit| &**credit));
        let logged = hits.iter().filter_map(|credit| {
            let rule = self.rule_of(credit)?;
            (rule.action.as_deref() == Some(&*Action::Log.to_string())).then_some(rule)
        });
        let (ports, icmp) = match packet.l4 {
            L4::Ports {
                source,
                destination,
            } => (Some((source, destination)), None),
            L4::Icmp { kind, code } => (None, Some((kind, code))),
            L4::None => (None, None),
        };
        PacketEvent {
            api_version: palisade_api::api_version(),
            time: rfc3339_micros(at),
            verdict: match sighting.why {
                Why::Logged(_) => MonitorVerdict::Allowed,
                _ => MonitorVerdict::Denied,
            },
            reason: decided.reason.to_owned(),
            direction: direction.map(|direction| direction.to_string()),
            endpoint: interface.and_then(|name| {
                let mut all = self.registry.iter();
                let (id, _) = all.find(|(_, w)| w.record.interface == *name)?;
                let namespace = id.namespace.as_deref().unwrap_or_default();
                Some(format!("{namespace}/{}", id.name))
            }),
            source: self.end(packet.source, ports.map(|(port, _)| port), at),
            destination: self.end(packet.destination, ports.map(|(_, port)| port), at),
            protocol: packet.protocol.to_string(),
            icmp_type: icmp.map(|(kind, _)| kind),
            icmp_code: icmp.map(|(_, code)| code),
            reply: sighting.reply,
            rule: decided.rule,
            policies: decided.policies,
            logged: logged.collect(),
            length: sighting.length,
            interface: interface.map(|name| name.to_string()),
            revision: found.as_ref().map(|(_, revision, _)| *revision),
            stale: found.as_ref().is_some_and(|(.., past)| *past),
        }
    }

    fn end(&self, address: IpAddr, port: Option<u16>, at: Duration) -> MonitorEnd {
        let retired = &self.monitor.retired;
        let holder = retired.holder(address, at).cloned();
        let holder = holder.or_else(|| self.engine.owner(address));
        let holder = holder.or_else(|| retired.last(address).cloned());
        MonitorEnd {
            address: address.to_string(),
            port,
            namespace: holder
                .as_ref()
                .and_then(|id| Some(id.namespace.as_deref()?.to_owned())),
            name: holder.map(|id| id.name.to_string()),
        }
    }

    /// What decided about a packet that is reported so and credited to this.
    pub(super) fn decided(&self, why: Why, credit: Option<&Credit>) -> Decided {
        let of = |reason| Decided {
            reason,
            rule: None,
            policies: Vec::new(),
        };
        match (why, credit) {
            (Why::Denied | Why::Logged(_), None) => of("unknown"),
            (Why::Denied | Why::Logged(_), Some(credit)) => match credit {
                Credit::Rule { .. } => Decided {
                    rule: self.rule_of(credit),
                    ..of("rule")
                },
                Credit::ProfileRule { .. } => Decided {
                    rule: self.rule_of(credit),
                    ..of("profile")
                },
                Credit::TierDefault { policies, .. } => Decided {
                    policies: policies.iter().map(|id| self.policy_of(id)).collect(),
                    ..of("default-deny")
                },
                Credit::MissingProfile { .. } | Credit::NoProfileMatch { .. } => of("profile"),
                Credit::Encapsulated => of("encapsulated"),
            },
            (other, _) => of(other.name()),
        }
    }

    fn policy_of(&self, id: &PolicyId) -> MonitorPolicy {
        let now = self.engine.policy(id);
        let line = now.as_ref().and_then(|policy| policy.line.as_ref());
        MonitorPolicy {
            kind: id.object.kind.to_string(),
            namespace: id.object.namespace.as_deref().map(str::to_owned),
            name: id.object.name.to_string(),
            line: line.map(ToString::to_string),
        }
    }

    /// The rule that a credit stands for, with its place as it is now.
    fn rule_of(&self, credit: &Credit) -> Option<MonitorRule> {
        let of_policy;
        let (policy, origin, rules): (_, &RuleOrigin, &[Rule]) = match credit {
            Credit::Rule {
                policy,
                direction,
                origin,
            } => {
                of_policy = self.engine.policy(policy);
                let rules = of_policy.as_ref().and_then(|now| now.rules(*direction));
                (
                    self.policy_of(policy),
                    origin,
                    rules.map_or(&[], |of| &of.rules),
                )
            }
            Credit::ProfileRule {
                profile,
                direction,
                origin,
            } => {
                let policy = MonitorPolicy {
                    kind: "Profile".to_owned(),
                    namespace: None,
                    name: profile.to_string(),
                    line: None,
                };
                let now = self.engine.profile(profile);
                let rules = now.map(|now| match direction {
                    Direction::Ingress => now.ingress.as_slice(),
                    Direction::Egress => now.egress.as_slice(),
                });
                (policy, origin, rules.unwrap_or_default())
            }
            _ => return None,
        };
        let now = rules.iter().find(|rule| rule.origin.is_same_rule(origin));
        let line = now.and_then(|rule| rule.origin.line.as_ref());
        Some(MonitorRule {
            policy: MonitorPolicy {
                line: line.map(ToString::to_string),
                ..policy
            },
            index: now.map_or(origin.index, |rule| rule.origin.index),
            rule_name: origin.name.as_deref().map(str::to_owned),
            action: now.map(|rule| rule.action.to_string()),
        })
    }
}
