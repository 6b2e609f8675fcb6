//! The driver over nf_tables.
//!
//! [`netlink`] encodes the types of `palisade-nft` for the kernel and decodes them.
//!
//! Promises: exactly what `palisade-nft` plans is executed; the kernel's tables are adopted by content, so a
//! start on unchanged input writes nothing; a generation is never used while a flow still carries it, and
//! the first generation is random, so that it does not equal another program's mark.
//!
//! Never: touches another table, or continues a plan after a failed step; then the kernel is read again and
//! a new plan is made.

mod config;
mod conntrack_marks;
mod counts;
mod dns_rules;
mod error;
mod flow_listing;
mod flow_reader;
mod nat;
pub mod netlink;
mod notices;
mod packet_header;
mod preview;
mod report_reader;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use palisade_layout::{CounterAccounts, Counters, RetiringCounter, RuleCauses};
use palisade_model::Str;
use palisade_nft::{
    AttributedCounter, CounterLocation, Op, Planner, Ruleset, Transaction, TxStep, adopt,
    drop_comment, installed_points, masqueraded_addresses, raised_generation, skeleton,
};
use palisade_sys::conntrack::{Conntrack, KernelConntrack, KernelConntrackEvents, tracks_sctp};
use palisade_sys::fault;
use palisade_sys::grace::KernelGracePeriod;
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::NetNs;
use palisade_sys::nflog::KernelNflog;
use palisade_sys::nfnetlink::{KernelNfnetlink, Nfnetlink};
use palisade_sys::random;
use palisade_tables::{
    Atomicity, CounterValue, Delta, DnsRules, Phase, ReportReason, TableChange, Tables,
};

use crate::counter_ledger::{CounterLedger, LedgerPart};
use crate::driver::{
    AddressTranslation, ApplyOutcome, Dataplane, DnsRuleStore, DriverCondition, DriverStatus,
    InstalledObject, InstalledObjectKind, InstalledPolicy, MasqueradePolicy, PlanPreview,
    PolicyDriver, StepObserver, StepOutcome, TamperEvent,
};
use crate::error::DriverError;
use crate::flow_event::FlowEventBatch;
use crate::packet_report::PacketReportBatch;
use crate::subscription::Subscription;
use counts::TableCounters;
use dns_rules::StoredDnsRules;
use flow_reader::FlowReader;
use netlink::{Executor, TransactionObserver, owner};
use preview::{preview_of, take_over};
use report_reader::{KernelReportLookup, ReportReader};

pub use palisade_nft::{Config, NflogConfig, PacketMarkBits, RedirectConfig};

/// The name by which it is opened.
pub const NAME: &str = "nftables";

/// The part of the counter ledger that its keys belong to; journals have the name.
const LEDGER_PART: &str = "nftables";

/// The dataplane over nf_tables, in one network namespace.
#[derive(Debug)]
pub struct NftDataplane {
    config: Config,
    netns: NetNs,
    executor: Executor<KernelNfnetlink, KernelGracePeriod>,
    /// What the kernel holds; `None` before the first start and after a failure.
    planner: Option<Planner>,
    /// What each rule number stands for, as of the last success.
    causes: RuleCauses,
    /// The accounts of the kernel's counters while there is no planner.
    recovered_accounts: CounterAccounts,
    /// The skeleton's counters of drops that no rule decides.
    drop_counters: CounterAccounts,
    /// Whether the configuration asks for owned tables.
    wants_ownership: bool,
    /// The content of the masquerade table; `None` if it is not known.
    masquerade_table: Option<Option<Ruleset>>,
    /// The generation that was written last; 0 before the first start.
    generation: u32,
    /// The DNS rules that the proxy knows.
    dns_rules: StoredDnsRules,
    step_observer: Option<StepObserver>,
}

impl NftDataplane {
    /// The DNS rules that packets are redirected to, by the number in their mark; none before the first resync.
    pub fn dns_rules(&self) -> BTreeMap<u32, Arc<DnsRules>> {
        self.planner
            .as_ref()
            .map(Planner::dns_rules)
            .unwrap_or_default()
    }

    /// A dataplane in the network namespace of the calling thread. What the kernel decides replaces the parameters:
    /// whether SCTP is tracked, and whether tables can be owned and packets reported, where they are to be.
    ///
    /// # Errors
    /// If the kernel's interfaces cannot be opened or a parameter is invalid.
    pub fn new(config: Config) -> Result<Self, DriverError> {
        Self::new_in(config, &NetNs::current()?)
    }

    /// A dataplane in the given network namespace.
    ///
    /// # Errors
    /// As [`NftDataplane::new`].
    pub fn new_in(mut config: Config, netns: &NetNs) -> Result<Self, DriverError> {
        // Before the sysctls are read: this makes the kernel load the module that has them.
        KernelConntrack::open(netns)?.count()?;
        let wants_ownership = config.owned;
        config.sctp_tracked = tracks_sctp(netns)?;
        config.log = config::reachable_log(config.log, netns)?;
        config::validate(&config)?;
        let mut nfnetlink = KernelNfnetlink::open(netns)?;
        config.owned = config.owned && owner::is_supported(&mut nfnetlink, &config.table)?;
        let mut executor =
            Executor::new(config.table.clone(), nfnetlink, KernelGracePeriod::new()?);
        let wants_redirect = config.redirect.is_some();
        if wants_redirect && !dns_rules::can_redirect(&mut executor, &config.table) {
            config.redirect = None;
        }
        Ok(Self {
            config,
            netns: netns.clone(),
            executor,
            planner: None,
            causes: RuleCauses::default(),
            recovered_accounts: CounterAccounts::new(),
            drop_counters: CounterAccounts::new(),
            wants_ownership,
            masquerade_table: None,
            generation: 0,
            dns_rules: StoredDnsRules::new(wants_redirect),
            step_observer: None,
        })
    }

    /// Takes over tables that outlived their agent.
    fn adopt_orphaned_tables(&mut self) -> Result<(), DriverError> {
        for table in [self.config.table.clone(), nat::table_name(&self.config)] {
            owner::take_ownership(self.executor.nfnetlink_mut(), &table, self.config.owned)?;
        }
        Ok(())
    }

    /// The table as it is in the kernel; `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_back(&mut self) -> Result<Option<Ruleset>, DriverError> {
        Ok(self.executor.read_back()?)
    }

    /// The mark of a connection that was tracked before the table existed: it is judged at its next packet, in the
    /// direction in which it began.
    pub(crate) fn stale_mark(&mut self) -> u32 {
        let generation = if fault::is_injected("fast-path-hand-over-current-mark") {
            let table = self.executor.read_back().ok().flatten();
            adopt(&self.config, table.as_ref(), &Tables::default(), 0)
                .0
                .generation()
        } else {
            self.config.stale_generation()
        };
        self.config.mark(generation)
    }

    /// Drops the plan but keeps the accounts of all counters, those that it would have deleted included.
    fn discard_plan(&mut self, transaction: Transaction) {
        let steps = transaction.steps.into_iter();
        let retiring = steps.flat_map(|step| step.retiring_counters).collect();
        let mut accounts = counts::counter_accounts(retiring, &self.causes);
        accounts.retain(|_, accounts| !accounts.is_empty());
        accounts.extend(self.counter_accounts());
        self.recovered_accounts = accounts;
        self.planner = None;
    }

    /// The accounts of the kernel's counters.
    fn counter_accounts(&self) -> CounterAccounts {
        let mut accounts = match &self.planner {
            Some(planner) => counts::counter_accounts(planner.attributed_counters(), &self.causes),
            None => self.recovered_accounts.clone(),
        };
        accounts.extend(self.drop_counters.clone());
        accounts
    }

    /// Changes the kernel from `observed` to `tables`.
    fn adopt(
        &mut self,
        observed: Option<Ruleset>,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        let (mut planner, mut transaction) = adopt(&self.config, observed.as_ref(), tables, 0);
        self.dns_rules.add(planner.dns_rules())?;
        let is_fresh = planner.generation() == 0;
        if is_fresh {
            let mut conntrack = KernelConntrack::open(&self.netns)?;
            conntrack_marks::mark_existing_flows(&mut conntrack, &self.config, tables)?;
            let first = self.config.first_generation(random::random_u32()?);
            (planner, transaction) = adopt(&self.config, observed.as_ref(), tables, first);
        }
        let snapshot = observed.map(TableCounters::from).unwrap_or_default();
        let accounts = self.reconcile_counters(&snapshot, ledger);
        let reasons = counts::drop_counters(&skeleton(&self.config, planner.generation()).chains);
        let causes = RuleCauses::of(tables);
        let all_accounts = || {
            let mut all = counts::counter_accounts(planner.attributed_counters(), &causes);
            all.extend(reasons.clone());
            all.extend(accounts.clone());
            all
        };
        ledger.part(LEDGER_PART).compact(true, &all_accounts);
        let steps = self.execute_adoption(&mut transaction, &accounts, &snapshot, &causes, ledger);
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                self.recovered_accounts = all_accounts();
                self.planner = None;
                return Err(error);
            }
        };
        self.causes = causes;
        self.recovered_accounts.clear();
        self.drop_counters = reasons;
        self.generation = planner.generation();
        self.dns_rules.retain(planner.dns_rules());
        self.planner = Some(planner);
        if is_fresh {
            let mut conntrack = KernelConntrack::open(&self.netns)?;
            conntrack_marks::reset_stale_marks(&mut conntrack, &self.config, self.generation)?;
        }
        Ok(apply_outcome(steps))
    }

    /// Retires counters that are not in the kernel any more; returns the accounts of the others.
    fn reconcile_counters(
        &self,
        snapshot: &TableCounters,
        ledger: &mut CounterLedger,
    ) -> CounterAccounts {
        let mut accounts = self.counter_accounts();
        accounts.extend(counts::drop_counters(&snapshot.chains));
        ledger.part(LEDGER_PART).reconcile(snapshot);
        accounts
    }

    /// Executes a transaction and retires every counter that it deletes: those in `accounts` count for
    /// the accounts given there, others for the accounts of their rule numbers.
    fn execute_adoption(
        &mut self,
        transaction: &mut Transaction,
        accounts: &CounterAccounts,
        snapshot: &TableCounters,
        causes: &RuleCauses,
        ledger: &mut CounterLedger,
    ) -> Result<Vec<StepOutcome>, DriverError> {
        self.clear_reused_marks(transaction)?;
        if fault::is_injected("spoofed-source-passes") {
            let comment = drop_comment(ReportReason::Spoofed);
            let checks = |op: &Op| matches!(op, Op::AddRule { rule, .. } if rule.comment.as_deref() == Some(comment));
            for step in &mut transaction.steps {
                step.ops.retain(|op| !checks(op));
            }
        }
        counts::add_retiring_counters(transaction, accounts, snapshot);
        let mut observer = LedgerObserver {
            part: ledger.part(LEDGER_PART),
            accounts,
            causes,
            step_observer: self.step_observer.as_mut(),
        };
        Ok(self.executor.execute(transaction, &mut observer)?)
    }

    /// Journals the accounts of the counters that a delta creates, before they are in the kernel.
    fn record_new_accounts(&self, delta: &Delta, ledger: &mut CounterLedger) {
        let Some(planner) = self.planner.as_ref().filter(|_| ledger.has_journal()) else {
            return;
        };
        let changes = delta.steps.iter().flat_map(|step| &step.changes);
        let created = changes.filter_map(|change| match change {
            TableChange::Program(class, Some(_)) => Some(*class),
            _ => None,
        });
        let counters = created.flat_map(|class| planner.class_counters(class));
        let accounts = counts::counter_accounts(counters.collect(), &self.causes);
        ledger.part(LEDGER_PART).record_accounts(&accounts);
    }

    /// Restores in place what another program changed; `None` if that is not possible.
    fn repair(&mut self, observed: &Ruleset, ledger: &mut CounterLedger) -> Option<ApplyOutcome> {
        let plain = observed.clone().without_counts();
        let mut planner = self.planner.clone()?;
        let mut transaction = planner.repair(&plain)?;
        if fault::is_injected("repair-keeps-generation") {
            transaction.steps.retain(|step| step.phase != Phase::Revoke);
        }
        if transaction.is_empty() {
            return Some(ApplyOutcome::default());
        }
        let snapshot = TableCounters::from(observed.clone());
        let accounts = self.reconcile_counters(&snapshot, ledger);
        let causes = std::mem::take(&mut self.causes);
        let steps = self.execute_adoption(&mut transaction, &accounts, &snapshot, &causes, ledger);
        self.causes = causes;
        // Otherwise the kernel is read again, and the table is rebuilt.
        let steps = steps.ok()?;
        self.generation = planner.generation();
        self.planner = Some(planner);
        Some(apply_outcome(steps))
    }

    /// Before a transaction that raises the generation: no flow may already carry the new one.
    fn clear_reused_marks(&self, transaction: &Transaction) -> Result<(), DriverError> {
        let raised = raised_generation(&self.config, transaction);
        if let Some(next) =
            raised.filter(|next| conntrack_marks::enters_quarter(&self.config, *next))
        {
            let mut conntrack = KernelConntrack::open(&self.netns)?;
            conntrack_marks::reset_quarter_marks(&mut conntrack, &self.config, next)?;
        }
        Ok(())
    }
}

impl PolicyDriver for NftDataplane {
    fn atomicity(&self) -> Atomicity {
        Atomicity::Step
    }

    fn set_step_observer(&mut self, observer: Option<StepObserver>) {
        self.step_observer = observer;
    }

    fn status(&self) -> DriverStatus {
        DriverStatus {
            generation: Some(self.generation),
            grace_duration: self.executor.grace_duration(),
            grace_method: Some(self.executor.grace().method()),
        }
    }

    fn observe(&mut self) -> Result<InstalledPolicy, DriverError> {
        let table = self.executor.read_back()?;
        let (interfaces, points) = table.as_ref().map(installed_points).unwrap_or_default();
        Ok(InstalledPolicy { interfaces, points })
    }

    fn preview(&mut self, tables: &Tables) -> Result<PlanPreview, DriverError> {
        let mut observed = self.executor.read_back()?;
        if let Some(observed) = &mut observed {
            take_over(observed, &self.config);
        }
        let (planner, mut transaction) = adopt(&self.config, observed.as_ref(), tables, 0);
        if planner.generation() == 0 {
            // A start uses a random generation; the preview must print the same text each time.
            let first = self.config.least_generation();
            transaction = adopt(&self.config, observed.as_ref(), tables, first).1;
        }
        Ok(preview_of(&transaction, observed.as_ref()))
    }

    fn resync(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        self.masquerade_table = None;
        let restored = ledger.part(LEDGER_PART).take_restored();
        self.recovered_accounts.extend(restored);
        self.adopt_orphaned_tables()?;
        let observed = self.executor.read_back()?;
        self.adopt(observed, tables, ledger)
    }

    fn execute(
        &mut self,
        delta: &Delta,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        let Some(planner) = &mut self.planner else {
            return self.resync(tables, ledger);
        };
        let transaction = planner.plan(delta);
        let generation = planner.generation();
        let changes_rules = StoredDnsRules::are_changed_by(delta);
        let stored = if changes_rules {
            self.dns_rules.add(planner.dns_rules())
        } else {
            Ok(())
        };
        if let Err(error) = stored.and_then(|()| self.clear_reused_marks(&transaction)) {
            self.discard_plan(transaction);
            return Err(error);
        }
        self.causes.begin(delta);
        self.record_new_accounts(delta, ledger);
        let mut observer = LedgerObserver {
            part: ledger.part(LEDGER_PART),
            accounts: &CounterAccounts::new(),
            causes: &self.causes,
            step_observer: self.step_observer.as_mut(),
        };
        let steps = match self.executor.execute(&transaction, &mut observer) {
            Ok(steps) => steps,
            Err(error) => {
                self.discard_plan(transaction);
                return Err(error.into());
            }
        };
        self.causes.finish(delta);
        self.generation = generation;
        if changes_rules {
            let rules = self.dns_rules();
            self.dns_rules.retain(rules);
        }
        let mut part = ledger.part(LEDGER_PART);
        part.compact(false, &|| self.counter_accounts());
        Ok(apply_outcome(steps))
    }

    fn verify(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        self.masquerade_table = None;
        let observed = self.executor.read_back()?;
        if let Some(outcome) = observed
            .as_ref()
            .and_then(|observed| self.repair(observed, ledger))
        {
            return Ok(outcome);
        }
        // A repair step may have been applied.
        let observed = self.executor.read_back()?;
        self.adopt(observed, tables, ledger)
    }

    fn counters(&mut self, ledger: &mut CounterLedger) -> Result<Counters, DriverError> {
        let restored = ledger.part(LEDGER_PART).take_restored();
        self.recovered_accounts.extend(restored);
        let accounts = self.counter_accounts();
        let mut snapshot = TableCounters {
            chains: self.executor.chains()?,
            ..TableCounters::default()
        };
        for key in accounts.keys() {
            if let Some(CounterLocation::Element { set, .. }) = counts::parse_key(key)
                && !snapshot.elements.contains_key(&set)
            {
                let elements = self.executor.elements(&set)?.unwrap_or_default();
                snapshot.elements.insert(set, elements);
            }
        }
        ledger.part(LEDGER_PART).update(accounts, &snapshot);
        Ok(ledger.totals())
    }

    fn written_tables(&self) -> Option<&Tables> {
        self.planner.as_ref().map(Planner::tables)
    }

    fn installed_objects(&mut self) -> Result<Vec<InstalledObject>, DriverError> {
        let mut present = Vec::new();
        let table = |name: &Str| InstalledObject {
            kind: InstalledObjectKind::Table,
            name: format!("inet {name}"),
        };
        if self.executor.read_back()?.is_some() {
            present.push(table(&self.config.table));
        }
        let translating = nat::table_name(&self.config);
        let found = self
            .executor
            .with_table(translating.clone(), BTreeMap::new(), |executor| {
                executor.read_back()
            });
        if found?.is_some() {
            present.push(table(&translating));
        }
        Ok(present)
    }

    fn remove(&mut self) -> Result<(), DriverError> {
        self.planner = None;
        self.recovered_accounts.clear();
        self.masquerade_table = None;
        nat::remove(&mut self.executor, &self.config)?;
        if self.executor.read_back()?.is_some() {
            let step = TxStep {
                phase: Phase::Delete,
                retiring_counters: Vec::new(),
                ops: vec![Op::DeleteTable],
                needs_grace_period: true,
            };
            let transaction = Transaction::new(self.config.table.clone(), vec![step]);
            self.executor.execute(
                &transaction,
                &mut |_: &AttributedCounter, _: CounterValue| {},
            )?;
        }
        Ok(())
    }
}

impl AddressTranslation for NftDataplane {
    fn masquerade(&mut self, wanted: &MasqueradePolicy) -> Result<usize, DriverError> {
        let observed = self.masquerade_table.take();
        let (content, writes) = nat::sync(&mut self.executor, &self.config, wanted, observed)?;
        self.masquerade_table = Some(content);
        Ok(writes)
    }

    fn preview(&mut self, wanted: &MasqueradePolicy) -> Result<PlanPreview, DriverError> {
        nat::preview(&mut self.executor, &self.config, wanted)
    }

    fn masqueraded_addresses(&mut self) -> BTreeSet<IpAddr> {
        let table = self.masquerade_table.iter().flatten().next();
        table.map(masqueraded_addresses).unwrap_or_default()
    }
}

impl Dataplane for NftDataplane {
    fn name(&self) -> &'static str {
        NAME
    }

    fn acquire_lock(&mut self) -> Result<(), DriverError> {
        self.check_owner()?;
        Ok(owner::acquire_lock(
            self.executor.nfnetlink_mut(),
            &self.config.table,
        )?)
    }

    fn check_owner(&mut self) -> Result<(), DriverError> {
        Ok(owner::check_owner(
            self.executor.nfnetlink_mut(),
            &self.config.table,
        )?)
    }

    fn conditions(&self) -> Vec<DriverCondition> {
        let is_unowned = self.wants_ownership && !self.config.owned;
        let unowned = DriverCondition {
            kind: "TablesNotOwned",
            reason: "KernelTooOld",
            message: "other programs can change the nftables tables (owned tables need Linux 6.9); changes are repaired".to_owned(),
        };
        let unredirected = DriverCondition {
            kind: "DnsNotRedirected",
            reason: "KernelTooOld",
            message: "DNS queries that policy judges by name are denied, and names have no addresses: this kernel has no transparent proxy for nftables (nft_tproxy, nft_socket)".to_owned(),
        };
        let is_unredirected = self.dns_rules.wants_redirect && self.config.redirect.is_none();
        let unredirected = is_unredirected.then_some(unredirected);
        is_unowned
            .then_some(unowned)
            .into_iter()
            .chain(unredirected)
            .collect()
    }

    fn address_translation(&mut self) -> Option<&mut dyn AddressTranslation> {
        Some(self)
    }

    fn set_dns_rule_store(&mut self, store: Box<dyn DnsRuleStore>) {
        self.dns_rules.set_store(store);
    }

    fn redirects_dns(&self) -> bool {
        self.config.redirect.is_some()
    }

    fn notices_changes(&self) -> bool {
        true
    }

    fn tamper_events(&self) -> Result<Vec<Subscription<TamperEvent>>, DriverError> {
        let port = self.executor.nfnetlink().portid();
        let tables = [self.config.table.clone(), nat::table_name(&self.config)];
        Ok(vec![notices::watch(&self.netns, port, tables)?])
    }

    fn packet_reports(&self) -> Result<Vec<Subscription<PacketReportBatch>>, DriverError> {
        let Some(log) = self.config.log else {
            return Ok(Vec::new());
        };
        let kernel = KernelReportLookup {
            table: self.config.table.clone(),
            nfnetlink: KernelNfnetlink::open(&self.netns)?,
            links: KernelLinks::open(&self.netns)?,
        };
        let nflog = KernelNflog::open(&self.netns, log.group, report_reader::SNAP_LEN)?;
        let mut reports = ReportReader::new(nflog, kernel)?;
        let reports = Subscription::new(move |timeout| reports.next(timeout));
        Ok(vec![reports])
    }

    fn flow_events(&self) -> Result<Vec<Subscription<FlowEventBatch>>, DriverError> {
        let events = KernelConntrackEvents::open(&self.netns)?;
        let mut flows = FlowReader::new(events, &self.netns, self.config.clone());
        Ok(vec![Subscription::new(move |timeout| flows.next(timeout))])
    }
}

/// Passes the counters that a step deletes to the ledger, and each step that is written to its observer.
struct LedgerObserver<'a> {
    part: LedgerPart<'a>,
    accounts: &'a CounterAccounts,
    causes: &'a RuleCauses,
    step_observer: Option<&'a mut StepObserver>,
}

impl TransactionObserver for LedgerObserver<'_> {
    fn before_delete(&mut self, counts: &[(&AttributedCounter, CounterValue)]) {
        let retiring = counts.iter().map(|(counter, count)| {
            let key = counts::counter_key(&counter.location);
            let accounts = match self.accounts.get(&key) {
                Some(accounts) => accounts.clone(),
                None => self.causes.accounts(&counter.rules, counter.audit),
            };
            RetiringCounter {
                key,
                accounts,
                count: *count,
            }
        });
        self.part.begin_retirement(retiring.collect());
    }

    fn after_delete(&mut self, _: &[(&AttributedCounter, CounterValue)]) {
        self.part.finish_retirement();
    }

    fn after_step(&mut self, step: usize, phase: Phase) -> Result<(), DriverError> {
        match &mut self.step_observer {
            Some(observer) => observer.step_written(step, phase),
            None => Ok(()),
        }
    }
}

fn apply_outcome(steps: Vec<StepOutcome>) -> ApplyOutcome {
    ApplyOutcome {
        writes: steps.iter().map(|step| step.ops).sum(),
        steps,
    }
}
