//! The nftables driver with a fast path above it: BPF programs deliver what they can prove allowed to its peer, and
//! nftables judges everything else.
//!
//! The tables are complete in nftables at all times. A change takes effect in the fast path at once, and in nftables step by
//! step, each state with the verdicts of before or after; a packet is let through where either allows it, so no order
//! between the two is needed, and a kill between them is harmless.
//!
//! Promises: whatever the fast path cannot have (a feature of the kernel, room, an interface) is a condition, never a
//! failure of enforcement; without the fast path nothing of it stays attached.
//!
//! Never: decides a verdict; drops a packet of a flow that it did not deliver before.

mod attachments;
mod config;
mod denial_reader;
mod error;
mod fast_path;
mod flow_table_reader;
mod hand_over;
mod hooks;
mod pins;
mod stack_flows;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use palisade_bpf::FastPathSupport;
pub use palisade_bpf::{FlowCounts, ProgramAttachment};
use palisade_layout::Counters;
use palisade_model::{Protocol, Str};
use palisade_nft::Ruleset;
use palisade_sys::netns::NetNs;
use palisade_tables::{Atomicity, Delta, DnsRules, Tables};

use crate::counter_ledger::CounterLedger;
use crate::driver::{
    AddressTranslation, ApplyOutcome, Dataplane, DnsRuleStore, DriverCondition, DriverStatus,
    FastPathFigures, FlowHandOver, InstalledObject, InstalledObjectKind, InstalledPolicy,
    Interface, InterfaceChange, PlanPreview, PolicyDriver, StepObserver, TamperEvent,
};
use crate::error::{DriverError, DriverErrorKind};
use crate::fast_path_view::FastPathReader;
use crate::flow_event::FlowEventBatch;
use crate::nftables::{Config, NftDataplane};
use crate::packet_report::PacketReportBatch;
use crate::subscription::Subscription;
pub use config::FastPathConfig;
use denial_reader::DenialReader;
use fast_path::{FastPath, FastPathInspector, InterfaceIndexes};
use flow_table_reader::FlowTableReader;
use hand_over::hand_over_former_networks;
pub use pins::PIN_ROOT;
use pins::PinFolders;

/// The name by which it is opened.
pub const NAME: &str = "ebpf";

/// The name of its part of the counter ledger.
const LEDGER_PART: &str = "ebpf";

/// The folder with what the fast path of a namespace has pinned.
pub fn pin_folder(netns: &NetNs) -> PathBuf {
    PinFolders::new(netns).path().to_owned()
}

/// Whether the fast path is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastPathMode {
    /// It is not, and what an earlier agent attached is removed.
    Off,
    /// It is.
    On(FastPathConfig),
}

/// The nftables driver with or without the fast path, in one network namespace.
#[derive(Debug)]
pub struct EbpfDataplane {
    nft: NftDataplane,
    netns: NetNs,
    mode: FastPathMode,
    /// How programs are attached; `None`: as the kernel does it best.
    attachment: Option<ProgramAttachment>,
    /// The interfaces of the namespace.
    interfaces: InterfaceIndexes,
    fast: Option<Box<FastPath>>,
    /// Why the fast path does not run although it is to.
    failure: Option<DriverCondition>,
    /// What became of the flows of a fast path that was removed, until it is asked for.
    hand_over: Option<FlowHandOver>,
}

impl EbpfDataplane {
    /// A dataplane in the network namespace of the calling thread. Nothing is loaded before the first resync.
    ///
    /// # Errors
    /// As [`NftDataplane::new`].
    pub fn new(config: Config, mode: FastPathMode) -> Result<Self, DriverError> {
        Self::new_in(config, mode, &NetNs::current()?)
    }

    /// A dataplane in the given network namespace.
    ///
    /// # Errors
    /// As [`EbpfDataplane::new`].
    pub fn new_in(
        mut config: Config,
        mode: FastPathMode,
        netns: &NetNs,
    ) -> Result<Self, DriverError> {
        if let FastPathMode::On(fast) = &mode {
            config.packet_mark.proof = Some(fast.proof_bit);
            config.packet_mark.uplinks.clone_from(&fast.uplinks);
        } else {
            config.packet_mark.proof = None;
            config.packet_mark.uplinks.clear();
        }
        Ok(EbpfDataplane {
            nft: NftDataplane::new_in(config, netns)?,
            netns: netns.clone(),
            mode,
            attachment: None,
            interfaces: InterfaceIndexes::new(),
            fast: None,
            failure: None,
            hand_over: None,
        })
    }

    /// Has programs be attached in this way from the next start of the fast path on, also where the kernel has a better
    /// one: for tests.
    pub fn set_attachment(&mut self, attachment: ProgramAttachment) {
        self.attachment = Some(attachment);
    }

    /// Whether the fast path runs.
    pub fn is_fast(&self) -> bool {
        self.fast.is_some()
    }

    /// The nftables table as it is in the kernel; `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_back(&mut self) -> Result<Option<Ruleset>, DriverError> {
        self.nft.read_back()
    }

    /// The DNS rules that packets are redirected to, by the number in their mark; none before the first resync.
    pub fn dns_rules(&self) -> BTreeMap<u32, Arc<DnsRules>> {
        self.nft.dns_rules()
    }

    /// What is in the fast path's table of flows; `None` if it does not run.
    pub fn flow_counts(&self) -> Option<FlowCounts> {
        self.fast.as_ref().map(|fast| fast.flow_counts())
    }

    /// How long the last start of the fast path took, from loading until all interfaces of the agent before had its
    /// programs; `None` if it does not run.
    pub fn start_time(&self) -> Option<Duration> {
        self.fast.as_ref().map(|fast| fast.start_time())
    }

    /// Forgets the flows of the fast path: their next packets go by the stack.
    pub fn forget_flows(&self) {
        if let Some(fast) = &self.fast {
            fast.forget_flows();
        }
    }

    /// Whether the fast path delivers the first packet of a flow from one address to another.
    pub fn is_proven(&self, from: IpAddr, to: IpAddr, protocol: Protocol, port: u16) -> bool {
        let fast = self.fast.as_ref();
        fast.is_some_and(|fast| fast.is_proven(from, to, protocol, port))
    }

    /// Starts the fast path, or compares what it has with the tables; the number of repairs.
    fn sync_fast_path(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<usize, DriverError> {
        let FastPathMode::On(config) = &self.mode else {
            return self.remove_fast_path(Some(ledger));
        };
        let mut part = ledger.part(LEDGER_PART);
        let result = match &mut self.fast {
            Some(fast) => fast.sync(tables, &self.interfaces, &mut part),
            None => {
                let support = FastPathSupport::probe();
                let attachment = self.attachment.or(support.attachment);
                let (None, Some(attachment)) = (support.missing.first(), attachment) else {
                    let missing = support.missing.first();
                    self.failure = missing.map(|missing| DriverCondition {
                        kind: "FastPathOff",
                        reason: missing.feature,
                        message: format!(
                            "the fast path is off, nftables delivers every packet: {missing}"
                        ),
                    });
                    return self.remove_fast_path(Some(ledger));
                };
                let pins = PinFolders::new(&self.netns);
                let mark = self.nft.stale_mark();
                let outcome = hand_over_former_networks(&self.netns, &pins, mark, config);
                self.hand_over = outcome.or(self.hand_over.take());
                let started = FastPath::start(
                    &self.netns,
                    attachment,
                    config,
                    tables,
                    &self.interfaces,
                    &mut part,
                );
                started.map(|fast| {
                    self.fast = Some(Box::new(fast));
                    0
                })
            }
        };
        match result {
            Ok(repairs) => {
                self.failure = None;
                Ok(repairs)
            }
            Err(error) => {
                self.stop_fast_path(&error);
                self.remove_fast_path(Some(ledger))
            }
        }
    }

    /// Ends the fast path, after its flows were handed over: packets pass from here on.
    fn stop_fast_path(&mut self, error: &dyn std::error::Error) {
        if let Some(fast) = self.fast.take() {
            let outcome = fast.stop(self.nft.stale_mark());
            self.hand_over = outcome.or(self.hand_over.take());
        }
        self.failure = Some(DriverCondition {
            kind: "FastPathOff",
            reason: "Failed",
            message: format!("the fast path is off, nftables delivers every packet: {error}"),
        });
    }

    /// Hands over the flows and detaches what is attached; an earlier agent may have left it. Whether there was anything, as a number.
    fn remove_fast_path(
        &mut self,
        ledger: Option<&mut CounterLedger>,
    ) -> Result<usize, DriverError> {
        self.fast = None;
        let mut part = ledger.map(|ledger| ledger.part(LEDGER_PART));
        let mark = self.nft.stale_mark();
        let removal = fast_path::remove(&self.netns, mark, part.as_mut()).map_err(|error| {
            DriverError::new(
                DriverErrorKind::Retryable,
                "detaching",
                "the programs of the fast path",
                error,
            )
        })?;
        self.hand_over = removal.hand_over.or(self.hand_over.take());
        Ok(usize::from(removal.is_removed))
    }

    /// An interface that has another name now is not that of the former name's workload any more.
    fn forget_former_name(&mut self, name: &Str, index: u32) {
        let mut others = self.interfaces.iter();
        let former = others.find(|(known, number)| **number == index && *known != name);
        let former = former.map(|(former, _)| former.clone());
        let Some(former) = former else {
            return;
        };
        self.interfaces.remove(&former);
        if let Some(fast) = &self.fast {
            fast.disarm(&former);
        }
    }

    /// Has the fast path judge by the tables after a delta; the interfaces that are to be armed.
    fn apply_to_fast_path(
        &mut self,
        delta: &Delta,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> BTreeSet<Str> {
        let Some(fast) = &mut self.fast else {
            return BTreeSet::new();
        };
        let mut part = ledger.part(LEDGER_PART);
        match fast.apply(delta, tables, &mut part) {
            Ok(names) => names,
            Err(error) => {
                self.stop_fast_path(&error);
                BTreeSet::new()
            }
        }
    }
}

impl PolicyDriver for EbpfDataplane {
    fn atomicity(&self) -> Atomicity {
        self.nft.atomicity()
    }

    fn interfaces_listed(&mut self, interfaces: &[Interface]) -> Result<(), DriverError> {
        let listed: InterfaceIndexes = interfaces
            .iter()
            .map(|interface| (interface.name.clone(), interface.index))
            .collect();
        let before = std::mem::replace(&mut self.interfaces, listed);
        let mut changes = Vec::new();
        for (name, index) in before {
            if self.interfaces.get(&name) != Some(&index) {
                changes.push(InterfaceChange::Gone(Interface { name, index }));
            }
        }
        let present = interfaces.iter().cloned().map(InterfaceChange::Present);
        changes.extend(present);
        self.interfaces_changed(&changes)
    }

    fn interfaces_changed(&mut self, changes: &[InterfaceChange]) -> Result<(), DriverError> {
        for change in changes {
            let result = match change {
                InterfaceChange::Present(Interface { name, index }) => {
                    self.forget_former_name(name, *index);
                    let former = self.interfaces.insert(name.clone(), *index);
                    let former = former.filter(|former| former != index);
                    match &mut self.fast {
                        Some(fast) => former
                            .map_or(Ok(()), |former| fast.interface_gone(Some(name), former))
                            .and_then(|()| fast.interface_present(name, &self.interfaces)),
                        None => Ok(()),
                    }
                }
                InterfaceChange::Gone(Interface { name, index }) => {
                    let is_free = self.interfaces.get(name) == Some(index);
                    if is_free {
                        self.interfaces.remove(name);
                    }
                    match &mut self.fast {
                        Some(fast) => fast.interface_gone(is_free.then_some(name), *index),
                        None => Ok(()),
                    }
                }
            };
            if let Err(error) = result {
                self.stop_fast_path(&error);
            }
        }
        Ok(())
    }

    fn set_step_observer(&mut self, observer: Option<StepObserver>) {
        self.nft.set_step_observer(observer);
    }

    fn status(&self) -> DriverStatus {
        self.nft.status()
    }

    fn observe(&mut self) -> Result<InstalledPolicy, DriverError> {
        self.nft.observe()
    }

    fn preview(&mut self, tables: &Tables) -> Result<PlanPreview, DriverError> {
        PolicyDriver::preview(&mut self.nft, tables)
    }

    fn resync(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        // The rules for proven packets are there before programs mark any, and until none does.
        if self.mode == FastPathMode::Off {
            self.remove_fast_path(Some(ledger))?;
        }
        let outcome = self.nft.resync(tables, ledger)?;
        self.sync_fast_path(tables, ledger)?;
        Ok(outcome)
    }

    fn execute(
        &mut self,
        delta: &Delta,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        let names = self.apply_to_fast_path(delta, tables, ledger);
        let (fast, nft, interfaces) = (&mut self.fast, &mut self.nft, &self.interfaces);
        let fast = fast.as_mut().filter(|_| !names.is_empty());
        let Some(fast) = fast else {
            return nft.execute(delta, tables, ledger);
        };
        // Attaching waits for the kernel as nftables does: a pod that is added waits for both at once.
        let (outcome, armed) = std::thread::scope(|scope| {
            let arming = scope.spawn(|| fast.arm(interfaces, &names));
            let outcome = nft.execute(delta, tables, ledger);
            (outcome, arming.join())
        });
        match armed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.stop_fast_path(&error),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        outcome
    }

    fn verify(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        let mut outcome = self.nft.verify(tables, ledger)?;
        outcome.writes += self.sync_fast_path(tables, ledger)?;
        Ok(outcome)
    }

    fn counters(&mut self, ledger: &mut CounterLedger) -> Result<Counters, DriverError> {
        if let Some(fast) = &self.fast {
            let counters = fast.counters().map_err(|error| {
                DriverError::new(
                    DriverErrorKind::Retryable,
                    "reading",
                    "the counters of the fast path",
                    error,
                )
            })?;
            let mut part = ledger.part(LEDGER_PART);
            part.update(counters.accounts.clone(), &counters);
            part.compact(false, &|| fast.counter_accounts());
        }
        self.nft.counters(ledger)
    }

    fn written_tables(&self) -> Option<&Tables> {
        self.nft.written_tables()
    }

    fn installed_objects(&mut self) -> Result<Vec<InstalledObject>, DriverError> {
        let mut objects = self.nft.installed_objects()?;
        let pins = pin_folder(&self.netns);
        if pins.exists() {
            objects.push(InstalledObject {
                kind: InstalledObjectKind::Pins,
                name: pins.display().to_string(),
            });
        }
        Ok(objects)
    }

    fn remove(&mut self) -> Result<(), DriverError> {
        self.remove_fast_path(None)?;
        self.nft.remove()
    }
}

impl Dataplane for EbpfDataplane {
    fn name(&self) -> &'static str {
        match self.mode {
            FastPathMode::Off => self.nft.name(),
            FastPathMode::On(_) => NAME,
        }
    }

    fn check_owner(&mut self) -> Result<(), DriverError> {
        self.nft.check_owner()
    }

    fn acquire_lock(&mut self) -> Result<(), DriverError> {
        self.nft.acquire_lock()
    }

    fn conditions(&self) -> Vec<DriverCondition> {
        let mut conditions = self.nft.conditions();
        conditions.extend(self.failure.clone());
        if let Some(fast) = &self.fast {
            let shortage = fast.shortage();
            if !shortage.is_empty() {
                conditions.push(DriverCondition {
                    kind: "FastPathPartial",
                    reason: "NoRoom",
                    message: format!(
                        "nftables delivers what the maps of the fast path have no room for: {} addresses, {} policy sets, {} classes, {} prefixes of other networks",
                        shortage.slots, shortage.sets, shortage.classes, shortage.prefixes
                    ),
                });
            }
            if fast.has_ipsec() {
                conditions.push(DriverCondition {
                    kind: "FastPathPartial",
                    reason: "IpsecPolicies",
                    message: "nftables delivers the packets to other hosts, since this host has IPsec policies".to_owned(),
                });
            }
            if fast.judges_host() {
                conditions.push(DriverCondition {
                    kind: "FastPathPartial",
                    reason: "HostPolicies",
                    message: "nftables delivers the packets to other hosts, since policy of a host endpoint judges packets of this host".to_owned(),
                });
            }
            let mut refused = fast.refused();
            if let Some((interface, reason)) = refused.next() {
                conditions.push(DriverCondition {
                    kind: "FastPathPartial",
                    reason: "InterfaceNotAttached",
                    message: format!(
                        "nftables delivers the packets of {} interfaces, among them {interface}: {reason}",
                        refused.count() + 1
                    ),
                });
            }
        }
        conditions
    }

    fn fast_path(&self) -> Option<FastPathFigures> {
        self.fast.as_ref().map(|fast| fast.figures())
    }

    fn take_hand_over(&mut self) -> Option<FlowHandOver> {
        self.hand_over.take()
    }

    fn fast_path_reader(&self) -> Option<Box<dyn FastPathReader + '_>> {
        let fast = self.fast.as_deref()?;
        Some(Box::new(FastPathInspector {
            fast,
            interfaces: &self.interfaces,
        }))
    }

    fn address_translation(&mut self) -> Option<&mut dyn AddressTranslation> {
        self.nft.address_translation()
    }

    fn set_dns_rule_store(&mut self, store: Box<dyn DnsRuleStore>) {
        self.nft.set_dns_rule_store(store);
    }

    fn redirects_dns(&self) -> bool {
        self.nft.redirects_dns()
    }

    fn notices_changes(&self) -> bool {
        self.nft.notices_changes()
    }

    fn tamper_events(&self) -> Result<Vec<Subscription<TamperEvent>>, DriverError> {
        self.nft.tamper_events()
    }

    fn packet_reports(&self) -> Result<Vec<Subscription<PacketReportBatch>>, DriverError> {
        let mut subscriptions = self.nft.packet_reports()?;
        // Without a group of nflog nobody is to be told.
        if self.mode != FastPathMode::Off && !subscriptions.is_empty() {
            let mut reader = DenialReader::new(PinFolders::new(&self.netns), &self.netns)?;
            let reports = move |timeout| reader.next(timeout);
            subscriptions.push(Subscription::new(reports));
        }
        Ok(subscriptions)
    }

    fn flow_events(&self) -> Result<Vec<Subscription<FlowEventBatch>>, DriverError> {
        let mut subscriptions = self.nft.flow_events()?;
        if self.mode != FastPathMode::Off {
            let mut reader = FlowTableReader::new(PinFolders::new(&self.netns))?;
            let events = move |timeout| reader.next(timeout);
            subscriptions.push(Subscription::new(events));
        }
        Ok(subscriptions)
    }
}
