//! The fast path of one network namespace in the kernel: started, kept equal to the decision tables, and stopped.
//!
//! Promises: each change takes effect at once, for every packet; a start lets the programs of the agent before work until
//! all interfaces have the new ones; what cannot be had is left to nftables, and said.
//!
//! Never: drops what it did not deliver before.

mod inspection;
mod loading;

use std::collections::{BTreeMap, BTreeSet};

use std::net::IpAddr;
use std::time::Duration;

use palisade_bpf::{
    BpfObject, Epoch, FastPathMaps, FastPathState, FlowCounts, FormerSlots, ProgramAttachment,
    SlotInterface, read_counter,
};
use palisade_fast_path::{CounterId, FastProtocol, MapWrite, Projection, Shortage, Word};
use palisade_layout::{
    CountAccount, CounterAccounts, CounterKey, CounterSnapshot, RetiringCounter,
};
use palisade_model::{Protocol, Str};
use palisade_sys::bpf::{BpfMap, MapShape};
use palisade_sys::fault;
use palisade_sys::grace::{GracePeriod as _, KernelGracePeriod};
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::NetNs;
use palisade_sys::notify::monotonic_micros;
use palisade_sys::random::random_u32;
use palisade_sys::xfrm::count_policies;
use palisade_tables::{CounterValue, Delta, Phase, Tables};

use super::attachments::{Attachments, InterfaceRole};
use super::config::FastPathConfig;
use super::error::FastPathError;
use super::hand_over::hand_over_flows;
use super::hooks::Hooks;
use super::pins::PinFolders;
use super::stack_flows::record_stack_flows;
use crate::counter_ledger::LedgerPart;
use crate::driver::{FastPathFigures, FastPathShortage, FlowHandOver};
pub(super) use inspection::FastPathInspector;
use loading::{load_beside, make_maps};

/// The maps that outlive agents.
const SHARED_MAPS: [&str; 4] = ["config", "flows", "lost_events", "events"];

/// The maps of a start that are pinned.
const SET_MAPS: [&str; 3] = ["endpoints", "slots", "counters"];

/// The interfaces of this namespace, by name.
pub(super) type InterfaceIndexes = BTreeMap<Str, u32>;

/// The fast path, running.
#[derive(Debug)]
pub(super) struct FastPath {
    maps: FastPathMaps,
    projection: Projection,
    attachments: Attachments,
    pins: PinFolders,
    /// The number of this start.
    set: u32,
    config: FastPathConfig,
    /// Whether packets to other hosts may have to be encrypted: then the stack sends them.
    has_ipsec: bool,
    grace: KernelGracePeriod,
    netns: NetNs,
    links: KernelLinks,
    /// From loading until all interfaces of the agent before had the programs.
    start_time: Duration,
}

impl FastPath {
    /// Loads the programs, has them judge by `tables`, and puts them in place of those of an earlier agent.
    pub(super) fn start(
        netns: &NetNs,
        attachment: ProgramAttachment,
        config: &FastPathConfig,
        tables: &Tables,
        interfaces: &InterfaceIndexes,
        ledger: &mut LedgerPart<'_>,
    ) -> Result<Self, FastPathError> {
        let began = monotonic_micros().map_err(FastPathError::Clock)?;
        let pins = PinFolders::new(netns);
        pins.create()?;
        pins.remove_other_layouts()?;
        pins.remove_forgotten_filters()?;
        let (maps, programs) = make_maps(&pins, config.proof_bit)?;
        if maps.state() == FastPathState::Off {
            // Its flows were handed over, and what the stack has done since then, no program has seen.
            pins.remove_links_of_all()?;
            pins.create()?;
            maps.clear_flows();
        }
        let epoch = maps.epoch();
        let projection = Projection::new(maps.room()?, epoch.half, &config.networks);
        let former = pins.sets()?;
        let set = former.last().map_or(1, |last| last.wrapping_add(1));
        let mut fast = FastPath {
            maps,
            projection,
            attachments: Attachments::new(Hooks::new(netns, attachment), &config.uplinks),
            pins,
            set,
            config: config.clone(),
            has_ipsec: false,
            grace: KernelGracePeriod::new()?,
            netns: netns.clone(),
            links: KernelLinks::open(netns)?,
            start_time: Duration::ZERO,
        };
        let networks = load_beside(&mut fast, programs, |fast| {
            fast.adopt_slots(&former, interfaces)?;
            fast.write_all(tables, ledger)
        })?;
        fault::reach("start-maps-written");
        fast.pin_set()?;
        fast.take_over_interfaces(interfaces)?;
        fault::reach("start-taken-over");
        let ended = monotonic_micros().map_err(FastPathError::Clock)?;
        fast.start_time = Duration::from_micros(ended.saturating_sub(began));
        fast.grace.wait()?;
        fast.enable_networks(&networks)?;
        // From here on all programs are those of this start: what was judged by others is judged again.
        fast.maps.set_epoch(Epoch {
            generation: epoch.generation.wrapping_add(1),
            half: fast.projection.half(),
        });
        fault::reach("start-epoch-stored");
        fast.retire_sets(&former, ledger)?;
        fault::reach("start-sets-retired");
        if fast.maps.state() == FastPathState::Off {
            fast.maps.set_state(FastPathState::OwnedOnly);
        }
        fast.arm(interfaces, &fast.all_interfaces())?;
        fault::reach("start-armed");
        fast.maps.set_state(FastPathState::On);
        Ok(fast)
    }

    /// Fills the maps, which no program uses yet; what has flows with other hosts begin is left, and returned.
    fn write_all(
        &mut self,
        tables: &Tables,
        ledger: &mut LedgerPart<'_>,
    ) -> Result<Vec<MapWrite>, FastPathError> {
        // So the half that is in force for the former programs may be written.
        let mut writes = self.projection.update(tables, None).unwrap_or_default();
        self.record_counters(&writes, ledger);
        let networks = writes.extract_if(.., |write| matches!(write, MapWrite::Networks { .. }));
        let networks: Vec<MapWrite> = networks.collect();
        self.maps.write(&writes)?;
        if !networks.is_empty() {
            let complete = [false; 2];
            self.maps.write(&[MapWrite::Networks { complete }])?;
        }
        Ok(networks)
    }

    /// Has flows with other hosts begin. The programs remember those that the stack has from now on, or did before.
    fn enable_networks(&self, networks: &[MapWrite]) -> Result<(), FastPathError> {
        if networks.is_empty() {
            return Ok(());
        }
        self.record_stack_flows()?;
        Ok(self.maps.write(networks)?)
    }

    /// Keeps the numbers of slots that addresses had in the maps of earlier starts.
    fn adopt_slots(
        &mut self,
        former: &[u32],
        interfaces: &InterfaceIndexes,
    ) -> Result<(), FastPathError> {
        let names: BTreeMap<u32, &Str> = interfaces
            .iter()
            .map(|(name, index)| (*index, name))
            .collect();
        let random = random_u32()? as u16;
        let endpoints_shape = shape_of(&self.maps, "endpoints")?;
        let slots_shape = shape_of(&self.maps, "slots")?;
        // The last start that pinned both has what the flows name.
        let mut last = former.iter().rev().filter_map(|set| {
            let folder = self.pins.set(*set);
            let endpoints = BpfMap::open_pinned(&folder.join("endpoints"), endpoints_shape);
            let slots = BpfMap::open_pinned(&folder.join("slots"), slots_shape);
            Some((endpoints.ok()?, slots.ok()?))
        });
        let last = last.next();
        let last = last.filter(|_| !fault::is_injected("fast-path-slots-renumbered"));
        let Some((endpoints, slots)) = last else {
            return Ok(());
        };
        let slots = FormerSlots::new(endpoints, &slots)?;
        let known = slots.held()?;
        self.maps.adopt_incarnations(&slots, &known, random);
        for slot in known {
            if let Some(name) = names.get(&slot.interface) {
                let name = (*name).clone();
                self.projection
                    .reserve_slot(slot.address, name, slot.number);
            }
        }
        Ok(())
    }

    /// Puts the programs in place of those of the agent before. Slots are armed first: flows go on meanwhile.
    fn take_over_interfaces(&mut self, interfaces: &InterfaceIndexes) -> Result<(), FastPathError> {
        let mut armed = Vec::new();
        for index in self.pins.linked_interfaces()? {
            let Some(link) = self.links.link_by_index(index)? else {
                continue;
            };
            let slots = self
                .projection
                .slots()
                .filter(|slot| slot.number != 0 && interfaces.get(&slot.interface) == Some(&index));
            for slot in slots {
                let interface = SlotInterface {
                    index,
                    mtu: link.mtu,
                };
                self.maps.arm(slot.number, interface);
                armed.push((slot.number, index));
            }
        }
        self.attachments
            .take_over(&mut self.links, &self.pins, &self.maps)?;
        for (number, index) in armed {
            if self.attachments.armed(index).is_none() {
                self.maps.disarm(number);
            }
        }
        Ok(())
    }

    fn pin_set(&self) -> Result<(), FastPathError> {
        let folder = self.pins.create_set(self.set)?;
        for name in SET_MAPS {
            let map = self.maps.loaded().map(name);
            map.ok_or(FastPathError::Missing(name))?
                .pin(&folder.join(name))?;
            fault::reach("start-set-pinned");
        }
        Ok(())
    }

    /// Adds what the programs of earlier starts counted to the ledger, and removes their pins.
    fn retire_sets(
        &self,
        former: &[u32],
        ledger: &mut LedgerPart<'_>,
    ) -> Result<(), FastPathError> {
        let shape = shape_of(&self.maps, "counters")?;
        retire_sets(&self.pins, former, shape, ledger)
    }

    /// Makes the fast path judge by the tables after a delta; the interfaces that are to be armed, which may take as long
    /// as nftables takes.
    pub(super) fn apply(
        &mut self,
        delta: &Delta,
        tables: &Tables,
        ledger: &mut LedgerPart<'_>,
    ) -> Result<BTreeSet<Str>, FastPathError> {
        let revokes = delta.steps.iter().any(|step| step.phase == Phase::Revoke);
        self.update(Some(delta), revokes, tables, ledger)
    }

    /// Compares all that the fast path has with the tables, and what is attached with what should be. The number of
    /// interfaces whose programs were missing.
    pub(super) fn sync(
        &mut self,
        tables: &Tables,
        interfaces: &InterfaceIndexes,
        ledger: &mut LedgerPart<'_>,
    ) -> Result<usize, FastPathError> {
        let detached = self.attachments.detached(&mut self.links, &self.maps)?;
        for index in &detached {
            let names = interfaces.iter().filter(|(_, known)| *known == index);
            for (name, _) in names {
                self.disarm(name);
            }
            self.forget(*index)?;
        }
        self.update(None, true, tables, ledger)?;
        self.arm(interfaces, &self.all_interfaces())?;
        Ok(detached.len())
    }

    /// Writes what differs, and puts it in force; the interfaces whose slots were written, which are to be armed.
    fn update(
        &mut self,
        delta: Option<&Delta>,
        revokes: bool,
        tables: &Tables,
        ledger: &mut LedgerPart<'_>,
    ) -> Result<BTreeSet<Str>, FastPathError> {
        if fault::is_injected("fast-path-not-updated") {
            return Ok(BTreeSet::new());
        }
        // The half that is written now was in force before the last update.
        self.grace.finish()?;
        let Some(writes) = self.projection.update(tables, delta) else {
            return Ok(BTreeSet::new());
        };
        self.record_counters(&writes, ledger);
        self.maps.write(&writes)?;
        fault::reach("flush-maps-written");
        self.free_counters(&writes, ledger)?;
        fault::reach("flush-counters-freed");
        let half = self.projection.half();
        let begins =
            |write: &MapWrite| matches!(write, MapWrite::Networks { complete } if complete[half]);
        if writes.iter().any(begins) {
            // From here on the programs remember all flows that the stack has with other hosts.
            self.grace.wait()?;
            self.record_stack_flows()?;
        }
        let mut epoch = self.maps.epoch();
        epoch.half = self.projection.half();
        // Without a delta nothing is revoked if nothing differs.
        let revokes = revokes && !writes.is_empty();
        if revokes && !fault::is_injected("fast-path-keeps-generation") {
            epoch.generation = epoch.generation.wrapping_add(1);
        }
        self.maps.set_epoch(epoch);
        fault::reach("flush-epoch-stored");
        self.grace.begin()?;
        let rows = writes.into_iter().filter_map(|write| match write {
            MapWrite::Slot(row) => Some(row.interface),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Journals what new counters count for, before they count.
    fn record_counters(&self, writes: &[MapWrite], ledger: &mut LedgerPart<'_>) {
        let counters = writes.iter().filter_map(|write| match write {
            MapWrite::Counter { number, accounts } => {
                Some((counter_key(self.set, *number), accounts.clone()))
            }
            _ => None,
        });
        ledger.record_accounts(&counters.collect());
    }

    /// Adds what counters have that are not used any more to the ledger, and sets them to 0.
    fn free_counters(
        &self,
        writes: &[MapWrite],
        ledger: &mut LedgerPart<'_>,
    ) -> Result<(), FastPathError> {
        let mut retiring = Vec::new();
        let mut numbers = Vec::new();
        for write in writes {
            if let MapWrite::FreeCounter { number, accounts } = write {
                retiring.push(RetiringCounter {
                    key: counter_key(self.set, *number),
                    accounts: accounts.clone(),
                    count: self.maps.counter(*number)?,
                });
                numbers.push(*number);
            }
        }
        ledger.begin_retirement(retiring);
        for number in numbers {
            self.maps.clear_counter(number)?;
        }
        ledger.finish_retirement();
        Ok(())
    }

    /// The interfaces of workloads, and those to other hosts.
    fn all_interfaces(&self) -> BTreeSet<Str> {
        let slots = self.projection.slots();
        let workloads = slots.map(|slot| slot.interface.clone());
        let uplinks = self.attachments.uplinks().iter().cloned();
        workloads.chain(uplinks).collect()
    }

    /// Has the programs know the flows that the stack delivers already.
    fn record_stack_flows(&self) -> Result<(), FastPathError> {
        let projection = &self.projection;
        record_stack_flows(&self.maps, &self.netns, |source, destination| {
            let ends = [source, destination];
            ends.iter().all(|end| projection.is_known(*end))
                && ends.iter().any(|end| projection.slot(*end).is_some())
        })
    }

    /// An interface has no programs any more.
    fn forget(&mut self, index: u32) -> Result<(), FastPathError> {
        self.maps.remove_uplink(index)?;
        self.attachments.forget(&self.pins, index)
    }

    /// Has flows begin to other hosts where that may be: not where packets may have to be encrypted, which the fast path
    /// would pass by.
    fn update_uplinks(&mut self) -> Result<(), FastPathError> {
        if self.config.uplinks.is_empty() {
            return Ok(());
        }
        self.has_ipsec = count_policies(&self.netns)? > 0;
        for index in self.attachments.armed_uplinks() {
            if self.has_ipsec {
                self.maps.remove_uplink(index)?;
            } else {
                self.maps.add_uplink(index)?;
            }
        }
        Ok(())
    }

    /// The interfaces by which flows to other hosts may begin.
    fn uplinks_in_force(&self) -> Vec<u32> {
        let armed = self.attachments.armed_uplinks();
        armed.filter(|_| !self.has_ipsec).collect()
    }

    /// Whether packets to other hosts are left to the stack, since they may have to be encrypted.
    pub(super) fn has_ipsec(&self) -> bool {
        self.has_ipsec
    }

    /// Whether packets to other hosts are left to the stack, since the host judges them.
    pub(super) fn judges_host(&self) -> bool {
        self.projection.judges_host()
    }

    /// Has packets of the workloads at these interfaces be delivered, where the interfaces exist and can have programs.
    pub(super) fn arm(
        &mut self,
        interfaces: &InterfaceIndexes,
        names: &BTreeSet<Str>,
    ) -> Result<(), FastPathError> {
        let known = names
            .iter()
            .filter_map(|name| Some((name.clone(), *interfaces.get(name)?)));
        let known: BTreeMap<Str, u32> = known.collect();
        let mut added = Vec::new();
        let mut has_flows = false;
        for (name, index) in &known {
            if self.attachments.armed(*index).is_some() {
                continue;
            }
            // One that fails is left to nftables, and is no matter of the others.
            match self.attach_egress(name, *index) {
                Ok(None) => {}
                Ok(Some(is_up)) => {
                    has_flows |= is_up;
                    added.push(*index);
                    fault::reach("arm-egress-attached");
                }
                Err(error) => self.attachments.refuse(&self.pins, (name, *index), &error),
            }
        }
        if has_flows && !fault::is_injected("fast-path-flows-unread") {
            // From here on the programs see every flow that the stack delivers to a workload.
            self.grace.wait()?;
            self.record_stack_flows()?;
            fault::reach("arm-flows-read");
        }
        for (name, index) in &known {
            if !added.contains(index) {
                continue;
            }
            let attached =
                self.attachments
                    .attach_ingress(&mut self.links, &self.pins, &self.maps, *index);
            if let Err(error) = attached {
                self.attachments.refuse(&self.pins, (name, *index), &error);
            }
            fault::reach("arm-ingress-attached");
        }
        for slot in self.projection.slots() {
            if let Some(index) = known.get(&slot.interface)
                && let Some(interface) = self.attachments.armed(*index)
                && slot.number != 0
            {
                self.maps.arm(slot.number, interface);
            }
        }
        self.update_uplinks()
    }

    /// Attaches the program that sees what goes to an interface, as [`Attachments::attach_egress`].
    fn attach_egress(&mut self, name: &Str, index: u32) -> Result<Option<bool>, FastPathError> {
        // What is left of a former attempt goes.
        self.pins.remove_links(index)?;
        self.attachments
            .attach_egress(&mut self.links, &self.pins, &self.maps, (name, index))
    }

    /// An interface exists, or changed: its workload's packets may be delivered.
    pub(super) fn interface_present(
        &mut self,
        name: &Str,
        interfaces: &InterfaceIndexes,
    ) -> Result<(), FastPathError> {
        let Some(index) = interfaces.get(name) else {
            return Ok(());
        };
        let is_armed = self.attachments.armed(*index).is_some();
        let is_changed = self
            .attachments
            .refresh(&mut self.links, &self.pins, *index)?;
        let takes_part = self.attachments.role(name) == InterfaceRole::Uplink
            || self.projection.slots().any(|slot| slot.interface == *name);
        if takes_part && (!is_armed || is_changed) {
            self.arm(interfaces, &BTreeSet::from([name.clone()]))?;
        }
        if self.attachments.armed(*index).is_none() {
            self.disarm(name);
            self.maps.remove_uplink(*index)?;
        }
        Ok(())
    }

    /// The interface with this index is gone, or has another name; its name, unless another interface has it now.
    pub(super) fn interface_gone(
        &mut self,
        name: Option<&Str>,
        index: u32,
    ) -> Result<(), FastPathError> {
        if let Some(name) = name {
            self.disarm(name);
        }
        self.forget(index)
    }

    /// Has packets of the workload at an interface pass.
    pub(super) fn disarm(&self, name: &Str) {
        let slots = self.projection.slots();
        for slot in slots.filter(|slot| slot.interface == *name) {
            self.maps.disarm(slot.number);
        }
    }

    /// The counters, and their values.
    pub(super) fn counters(&self) -> Result<FastPathCounters, FastPathError> {
        let mut counters = FastPathCounters::default();
        for (number, accounts) in self.projection.counters() {
            let key = counter_key(self.set, number);
            counters
                .values
                .insert(key.clone(), self.maps.counter(number)?);
            counters.accounts.insert(key, accounts.to_vec());
        }
        Ok(counters)
    }

    /// The accounts of the counters in the kernel.
    pub(super) fn counter_accounts(&self) -> CounterAccounts {
        let counters = self.projection.counters();
        counters
            .map(|(number, accounts)| (counter_key(self.set, number), accounts.to_vec()))
            .collect()
    }

    /// What had no room.
    pub(super) fn shortage(&self) -> Shortage {
        self.projection.shortage()
    }

    /// The interfaces of workloads that cannot have programs.
    pub(super) fn refused(&self) -> impl Iterator<Item = &(Str, String)> {
        self.attachments.refused()
    }

    /// What it has, for people and metrics.
    pub(super) fn figures(&self) -> FastPathFigures {
        let FlowCounts {
            owned,
            via_stack,
            evictions,
        } = self.maps.flow_counts();
        let slots = self.projection.slots();
        let shortage = self.projection.shortage();
        FastPathFigures {
            addresses: slots.filter(|slot| self.maps.is_armed(slot.number)).count(),
            rows: self.projection.row_count(),
            flows: owned,
            flows_via_stack: via_stack,
            evictions,
            refused_interfaces: self.attachments.refused().count(),
            shortage: FastPathShortage {
                addresses: shortage.slots,
                sets: shortage.sets,
                classes: shortage.classes,
                prefixes: shortage.prefixes,
            },
        }
    }

    /// How long the start took, from loading until all interfaces of the agent before had the programs.
    pub(super) fn start_time(&self) -> Duration {
        self.start_time
    }

    /// What is in the table of flows.
    pub(super) fn flow_counts(&self) -> FlowCounts {
        self.maps.flow_counts()
    }

    /// Forgets all flows.
    pub(super) fn forget_flows(&self) {
        self.maps.clear_flows();
    }

    /// Whether the first packet of a flow is delivered.
    pub(super) fn is_proven(
        &self,
        from: IpAddr,
        to: IpAddr,
        protocol: Protocol,
        port: u16,
    ) -> bool {
        let mut known = FastProtocol::ALL.into_iter();
        let Some(protocol) = known.find(|known| known.protocol() == protocol) else {
            return false;
        };
        let slots = [from, to].map(|address| self.projection.slot(address));
        let mut known = slots.into_iter().flatten();
        if !known.all(|slot| self.maps.is_armed(slot.number)) {
            return false;
        }
        let is_outside = slots.contains(&None);
        if is_outside && self.uplinks_in_force().is_empty() {
            return false;
        }
        let is_local = slots[0].map(|slot| &slot.interface) == slots[1].map(|slot| &slot.interface);
        let words = self.projection.words(from, to, protocol, port);
        !is_local
            && words.is_some_and(|words| {
                let mut words = words.into_iter().flatten();
                words.all(|word| matches!(word, Word::Allow(_)))
            })
    }

    /// Hands the flows over, and has every packet pass from here on; the programs are detached. The counters stay for the
    /// next start.
    pub(super) fn stop(self, mark: u32) -> Option<FlowHandOver> {
        let outcome = hand_over_flows(&self.netns, &self.pins, mark);
        // Where that fails: flows end, or go on by the rules for connections seen in their middle.
        self.maps.set_state(FastPathState::Off);
        // What is left attached has every packet pass, and goes with the next start.
        let _ = self.pins.remove_links_of_all();
        outcome
    }
}

/// Counters that were read.
#[derive(Debug, Default)]
pub(super) struct FastPathCounters {
    pub(super) accounts: CounterAccounts,
    values: BTreeMap<CounterKey, CounterValue>,
}

impl CounterSnapshot for FastPathCounters {
    fn value(&self, key: &CounterKey, _: &[CountAccount]) -> Option<CounterValue> {
        self.values.get(key).copied()
    }
}

fn shape_of(maps: &FastPathMaps, name: &'static str) -> Result<MapShape, FastPathError> {
    let map = maps.loaded().map(name);
    Ok(map.ok_or(FastPathError::Missing(name))?.shape())
}

fn counter_key(set: u32, number: CounterId) -> CounterKey {
    CounterKey::new(format!("{set}/{}", number.0))
}

fn parse_key(key: &CounterKey) -> Option<(u32, CounterId)> {
    let (set, number) = key.as_str().split_once('/')?;
    Some((set.parse().ok()?, CounterId(number.parse().ok()?)))
}

/// Adds what the programs of these starts counted to the ledger, and removes their pins.
fn retire_sets(
    pins: &PinFolders,
    sets: &[u32],
    shape: MapShape,
    ledger: &mut LedgerPart<'_>,
) -> Result<(), FastPathError> {
    let restored = ledger.take_restored();
    for set in sets {
        let counters = BpfMap::open_pinned(&pins.set(*set).join("counters"), shape);
        let mut retiring = Vec::new();
        for (key, accounts) in &restored {
            let Some((_, number)) = parse_key(key).filter(|(known, _)| known == set) else {
                continue;
            };
            let count = match &counters {
                Ok(counters) if !fault::is_injected("fast-path-counts-lost") => {
                    read_counter(counters, number)?
                }
                _ => CounterValue::default(),
            };
            retiring.push(RetiringCounter {
                key: key.clone(),
                accounts: accounts.clone(),
                count,
            });
        }
        ledger.begin_retirement(retiring);
        ledger.finish_retirement();
        pins.remove_set(*set)?;
    }
    Ok(())
}

/// What was removed of a fast path.
#[derive(Debug, Default)]
pub(super) struct FastPathRemoval {
    /// Whether there was anything.
    pub(super) is_removed: bool,
    /// What became of its flows; `None` if it delivered none.
    pub(super) hand_over: Option<FlowHandOver>,
}

/// Takes what an earlier agent attached out of the kernel, where none is to be, after its flows were handed over to
/// connection tracking with this mark, and adds what it counted to the ledger.
pub(super) fn remove(
    netns: &NetNs,
    mark: u32,
    ledger: Option<&mut LedgerPart<'_>>,
) -> Result<FastPathRemoval, FastPathError> {
    let pins = PinFolders::new(netns);
    let mut removal = FastPathRemoval::default();
    if !pins.exist()? || fault::is_injected("fast-path-left-attached") {
        return Ok(removal);
    }
    removal.hand_over = hand_over_flows(netns, &pins, mark);
    pins.remove_links_of_all()?;
    fault::reach("links-removed");
    // What is counted now is all.
    KernelGracePeriod::new()?.wait()?;
    if let Some(ledger) = ledger {
        let shape = BpfObject::FAST_PATH.map_shape("counters")?;
        retire_sets(&pins, &pins.sets()?, shape, ledger)?;
    }
    fault::reach("remove-sets-retired");
    pins.remove_all()?;
    removal.is_removed = true;
    Ok(removal)
}
