//! What the running fast path has, read from the kernel and from the projection.
//!
//! Promises: what is told of the kernel was read from it.
//!
//! Never: changes anything.

use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;
use std::time::Duration;

use palisade_bpf::{ExpectedConfig, FlowTableEntry};
use palisade_fast_path::{CounterId, EndJudgement, FastProtocol, SlotRow, proven_ports};
use palisade_model::{Protocol, Str};
use palisade_sys::bpf::BpfMap;
use palisade_sys::notify::monotonic_micros;

use super::{FastPath, InterfaceIndexes, SET_MAPS, SHARED_MAPS, shape_of};
use crate::ebpf::error::FastPathError;
use crate::error::{DriverError, DriverErrorKind};
use crate::fast_path_view::{
    FastPathCheck, FastPathCounter, FastPathDifference, FastPathEnd, FastPathEndpoint,
    FastPathFlow, FastPathFlowFilter, FastPathFlows, FastPathObstacle, FastPathPair, FastPathPart,
    FastPathPolicy, FastPathPolicyQuery, FastPathProven, FastPathReader, FastPathUplink,
};

/// Reads a running fast path.
#[derive(Debug)]
pub(in crate::ebpf) struct FastPathInspector<'a> {
    pub(in crate::ebpf) fast: &'a FastPath,
    /// The interfaces of the namespace.
    pub(in crate::ebpf) interfaces: &'a InterfaceIndexes,
}

impl FastPathReader for FastPathInspector<'_> {
    fn endpoints(&self) -> Vec<FastPathEndpoint> {
        // One that is leaving has no interface.
        let slots = self.fast.projection.slots();
        let slots = slots.filter(|slot| !slot.interface.is_empty());
        slots.map(|slot| self.endpoint(slot)).collect()
    }

    fn uplinks(&self) -> Vec<FastPathUplink> {
        let names = self.fast.attachments.uplinks().iter();
        names.map(|name| self.uplink(name)).collect()
    }

    fn flows(&self, filter: &FastPathFlowFilter) -> Result<FastPathFlows, DriverError> {
        let now = monotonic_micros().map_err(|error| read_error("the clock", error))?;
        let generation = self.fast.maps.epoch().generation;
        // The oldest one of those that are listed is the greatest.
        let mut youngest: BinaryHeap<FlowTableEntry> = BinaryHeap::new();
        let mut matching = 0_u64;
        let counts = self
            .fast
            .maps
            .read_flows(Duration::from_micros(now), |entry| {
                if !matches_filter(filter, entry) {
                    return;
                }
                matching += 1;
                youngest.push(*entry);
                if youngest.len() > filter.limit {
                    youngest.pop();
                }
            });
        let entries = youngest.into_sorted_vec().into_iter();
        let flows: Vec<FastPathFlow> = entries.map(|entry| flow(&entry, generation)).collect();
        Ok(FastPathFlows {
            owned: counts.owned,
            via_stack: counts.via_stack,
            evictions: counts.evictions,
            left_out: matching - flows.len() as u64,
            flows,
        })
    }

    fn policy(&self, query: &FastPathPolicyQuery) -> Result<FastPathPolicy, DriverError> {
        let mut policy = FastPathPolicy::default();
        let slots = self.fast.projection.slots();
        let slots = slots.filter(|slot| slot.number != 0 && !slot.interface.is_empty());
        let slots: Vec<&SlotRow> = slots.collect();
        let is_asked = |slot: &SlotRow| {
            let wanted = query.addresses.as_ref();
            wanted.is_none_or(|wanted| wanted.contains(&slot.address))
        };
        for from in &slots {
            for to in &slots {
                let is_pair = from.interface != to.interface
                    && from.address.is_ipv4() == to.address.is_ipv4()
                    && (is_asked(from) || is_asked(to));
                if !is_pair {
                    continue;
                }
                if policy.pairs.len() == query.limit {
                    policy.left_out += 1;
                    continue;
                }
                policy.pairs.extend(self.pair(from.address, to.address));
            }
        }
        let proven = policy.pairs.iter().flat_map(|pair| &pair.proven);
        let named = proven.flat_map(|proven| proven.counters);
        policy.counters = named
            .map(|number| (number, FastPathCounter::default()))
            .collect();
        self.read_counters(&mut policy.counters)
            .map_err(|error| read_error("the counters of the fast path", error))?;
        Ok(policy)
    }

    fn check(&self) -> Result<FastPathCheck, DriverError> {
        self.compare()
            .map_err(|error| read_error("the fast path", error))
    }
}

impl FastPathInspector<'_> {
    fn endpoint(&self, slot: &SlotRow) -> FastPathEndpoint {
        let half = self.fast.projection.half();
        let index = self.interfaces.get(&slot.interface);
        let place = index.and_then(|index| self.fast.attachments.armed(*index));
        let refusal = index.and_then(|index| self.fast.attachments.refusal_of(*index));
        let is_armed = slot.number != 0 && self.fast.maps.is_armed(slot.number);
        let obstacle = if is_armed {
            None
        } else if slot.number == 0 {
            Some(FastPathObstacle::NoRoom)
        } else if index.is_none() {
            Some(FastPathObstacle::NoInterface)
        } else if let Some(reason) = refusal {
            Some(FastPathObstacle::Refused(reason.to_owned()))
        } else {
            Some(FastPathObstacle::NotAttached)
        };
        FastPathEndpoint {
            address: slot.address,
            interface: slot.interface.clone(),
            slot: slot.number,
            identity: slot.identities[half],
            sets: slot.sets[half],
            mtu: place.map(|place| place.mtu),
            obstacle,
        }
    }

    fn uplink(&self, name: &Str) -> FastPathUplink {
        let fast = self.fast;
        let index = self.interfaces.get(name);
        let place = index.and_then(|index| fast.attachments.armed(*index));
        let refusal = index.and_then(|index| fast.attachments.refusal_of(*index));
        let obstacle = if index.is_none() {
            Some(FastPathObstacle::NoInterface)
        } else if let Some(reason) = refusal {
            Some(FastPathObstacle::Refused(reason.to_owned()))
        } else if place.is_none() {
            Some(FastPathObstacle::NotAttached)
        } else if fast.judges_host() {
            Some(FastPathObstacle::HostPolicies)
        } else if fast.has_ipsec() {
            Some(FastPathObstacle::IpsecPolicies)
        } else if fast.shortage().prefixes > 0 {
            Some(FastPathObstacle::NoRoomForNetworks)
        } else {
            None
        };
        FastPathUplink {
            interface: name.clone(),
            mtu: place.map(|place| place.mtu),
            obstacle,
        }
    }

    fn pair(&self, from: IpAddr, to: IpAddr) -> Option<FastPathPair> {
        let ends = self.fast.projection.judgements(from, to)?;
        let mut proven = Vec::new();
        if let [Some(egress), Some(ingress)] = ends.map(|end| end.content) {
            for (at, protocol) in FastProtocol::ALL.into_iter().enumerate() {
                let is_other_family = match protocol {
                    FastProtocol::Icmp => from.is_ipv6(),
                    FastProtocol::Icmpv6 => from.is_ipv4(),
                    FastProtocol::Tcp | FastProtocol::Udp => false,
                };
                if is_other_family {
                    continue;
                }
                let rows = proven_ports(&egress[at], &ingress[at]);
                proven.extend(rows.into_iter().map(|row| FastPathProven {
                    protocol: protocol.protocol(),
                    ports: row.ports,
                    counters: row.counters.map(|counter| counter.0),
                }));
            }
        }
        let end = |end: EndJudgement<'_>| FastPathEnd {
            set: end.set,
            identity: end.identity.0,
            class: end.class,
        };
        Some(FastPathPair {
            from,
            to,
            ends: ends.map(end),
            proven,
        })
    }

    fn read_counters(
        &self,
        counters: &mut BTreeMap<u32, FastPathCounter>,
    ) -> Result<(), FastPathError> {
        for (number, accounts) in self.fast.projection.counters() {
            if let Some(counter) = counters.get_mut(&number.0) {
                counter.accounts = accounts.to_vec();
            }
        }
        for (number, counter) in counters {
            counter.count = self.fast.maps.counter(CounterId(*number))?;
        }
        Ok(())
    }

    fn compare(&self) -> Result<FastPathCheck, FastPathError> {
        let fast = self.fast;
        let expected = ExpectedConfig {
            half: fast.projection.half(),
            proof_bit: fast.config.proof_bit,
            uplinks: fast.uplinks_in_force(),
        };
        let maps = fast
            .maps
            .compare(&fast.projection.listing(), expected, |slot| {
                // One that is leaving may be armed or not.
                let is_leaving = slot.interface.is_empty();
                let index = self.interfaces.get(&slot.interface);
                let place = index.and_then(|index| fast.attachments.armed(*index));
                (!is_leaving).then_some(place)
            })?;
        let differences = maps.differences.into_iter();
        let differences = differences.map(|difference| FastPathDifference {
            part: FastPathPart::Map,
            object: format!("{}: {}", difference.map, difference.element),
            address: difference.address,
            expected: difference.expected,
            found: difference.found,
        });
        let mut check = FastPathCheck {
            elements: maps.elements,
            differences: differences.collect(),
            left_out: maps.left_out,
            ..FastPathCheck::default()
        };
        self.compare_pins(&mut check)?;
        let name = |index: u32| {
            let mut known = self.interfaces.iter();
            let known = known.find(|(_, number)| **number == index);
            known.map_or_else(
                || format!("interface {index}"),
                |(name, _)| name.to_string(),
            )
        };
        fast.attachments
            .compare(&fast.pins, &fast.maps, name, &mut check)?;
        Ok(check)
    }

    /// Compares the pins of maps.
    fn compare_pins(&self, check: &mut FastPathCheck) -> Result<(), FastPathError> {
        let fast = self.fast;
        let shared = SHARED_MAPS.map(|name| (name, fast.pins.map(name)));
        let set = fast.pins.set(fast.set);
        let of_set = SET_MAPS.map(|name| (name, set.join(name)));
        for (name, path) in shared.into_iter().chain(of_set) {
            let shape = shape_of(&fast.maps, name)?;
            let map = fast.maps.loaded().map(name);
            let expected = map.ok_or(FastPathError::Missing(name))?.id()?;
            let pinned = BpfMap::open_pinned(&path, shape);
            let found = match &pinned {
                Ok(pinned) => match pinned.id()? {
                    id if id == expected => None,
                    id => Some(format!("map {id}")),
                },
                Err(error) => Some(error.to_string()),
            };
            check.pins += 1;
            if let Some(found) = found {
                check.differences.push(FastPathDifference {
                    part: FastPathPart::Pin,
                    object: path.display().to_string(),
                    address: None,
                    expected: format!("map {expected} ({name})"),
                    found,
                });
            }
        }
        let others = fast.pins.sets()?.into_iter();
        for other in others.filter(|set| *set != fast.set) {
            check.differences.push(FastPathDifference {
                part: FastPathPart::Pin,
                object: fast.pins.set(other).display().to_string(),
                address: None,
                expected: "nothing".to_owned(),
                found: "maps of another start".to_owned(),
            });
        }
        Ok(())
    }
}

fn matches_filter(filter: &FastPathFlowFilter, entry: &FlowTableEntry) -> bool {
    let ends = [entry.source.address, entry.destination.address];
    let addresses = filter.addresses.as_ref();
    let protocol = filter.protocol;
    protocol.is_none_or(|protocol| protocol.0 == entry.protocol)
        && addresses.is_none_or(|wanted| ends.iter().any(|end| wanted.contains(end)))
}

fn flow(entry: &FlowTableEntry, generation: u32) -> FastPathFlow {
    FastPathFlow {
        protocol: Protocol(entry.protocol),
        source: (entry.source.address, entry.source.port),
        destination: (entry.destination.address, entry.destination.port),
        is_via_stack: entry.is_via_stack,
        is_closing: entry.is_closing,
        is_answered: entry.is_answered,
        is_judged_again: !entry.is_via_stack && entry.generation != generation,
        age: entry.age,
        remaining: entry.remaining(),
    }
}

fn read_error(
    object: &'static str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> DriverError {
    DriverError::new(DriverErrorKind::Retryable, "reading", object, error)
}
