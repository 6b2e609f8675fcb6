//! The dataplane over nf_tables.
//!
//! Promises: exactly what `palisade-nft` plans is executed; the kernel's tables are adopted by content, so a
//! start on unchanged input writes nothing; a generation is never used while a flow still carries it, and
//! the first generation is random, so that it does not equal another program's mark.
//!
//! Never: touches another table, or continues a plan after a failed step; then the kernel is read again and
//! a new plan is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_model::Str;
use palisade_nft::{
    Config, CounterValue, CreditedCounter, NflogConfig, Op, Planner, Ruleset, Transaction, TxStep,
    adopt, print_transaction, raised_generation, skeleton, table_flag,
};
use palisade_sys::conntrack::{Conntrack, KernelConntrack, tracks_sctp};
use palisade_sys::fault;
use palisade_sys::grace::KernelGracePeriod;
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::NetNs;
use palisade_sys::nflog::KernelNflog;
use palisade_sys::nfnetlink::{
    KernelNfEvents, KernelNfnetlink, NFNLGRP_NFTABLES, NfEvent, NfEvents, NfMessage, Nfnetlink,
    nf_tables as nft,
};
use palisade_sys::random;
use palisade_tables::{Credit, Delta, Phase, RuleId, TableChange, Tables, UndoRecord};

use crate::conntrack_marks;
use crate::counter_journal::{CounterJournal, JournalEntry};
use crate::counter_ledger::{CounterLedger, RetiringCounter};
use crate::counts::{self, CounterAccounts, CounterSnapshot};
use crate::driver::{
    ApplyOutcome, Counters, Dataplane, Error, InstalledWorkloads, Masquerade, StepOutcome,
    TamperEvent, TamperWatch,
};
use crate::nat;
use crate::netlink::{CounterObserver, Executor, owner};
use crate::packet_report::PacketWatch;
use crate::report_reader::{self, KernelReportLookup, ReportReader};

/// The parameters of an [`NftDataplane`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftConfig {
    /// Name of the table of family `inet`.
    pub table: String,
    /// Prefix of the names of our interfaces.
    pub interface_prefix: String,
    /// The bits of the conntrack mark that we use: one contiguous run of at least 8.
    pub mark_mask: u32,
    /// Whether packets of this host's own stack are subject to policy.
    pub judge_host_traffic: bool,
    /// Whether the socket owns the tables, so that no other program can change them while it is open; where
    /// the kernel supports it (6.9).
    pub own_table: bool,
    /// The nflog group that denied and logged packets are sent to; `None` disables reporting.
    pub log_group: Option<u16>,
}

/// The dataplane over nf_tables, in one network namespace.
#[derive(Debug)]
pub struct NftDataplane {
    config: Config,
    netns: NetNs,
    executor: Executor<KernelNfnetlink, KernelGracePeriod>,
    /// What the kernel holds; `None` before the first start and after a failure.
    planner: Option<Planner>,
    /// The credit of each rule number, as of the last success.
    rules: BTreeMap<RuleId, Arc<Credit>>,
    /// The accounts of the kernel's counters while there is no planner.
    recovered_accounts: CounterAccounts,
    /// The skeleton's counters of drops that no rule decides.
    drop_counters: CounterAccounts,
    ledger: CounterLedger,
    /// The content of the masquerade table; `None` if it is not known.
    masquerade_table: Option<Option<Ruleset>>,
}

/// A plan that is not executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanPreview {
    /// Kernel objects and elements that it would write or delete.
    pub writes: usize,
    /// Its steps, each one transaction, in nft-like syntax.
    pub text: String,
}

impl NftDataplane {
    /// A dataplane in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel's interfaces cannot be opened or a parameter is invalid.
    pub fn new(config: NftConfig) -> Result<Self, Error> {
        Self::new_in(config, &NetNs::current()?)
    }

    /// A dataplane in the given network namespace.
    ///
    /// # Errors
    /// As [`NftDataplane::new`].
    pub fn new_in(config: NftConfig, netns: &NetNs) -> Result<Self, Error> {
        // Before the sysctls are read: this makes the kernel load the module that has them.
        KernelConntrack::open(netns)?.count()?;
        let mut config = Config {
            table: config.table.as_str().into(),
            interface_prefix: config.interface_prefix.as_str().into(),
            ct_mark_mask: config.mark_mask,
            judge_host_traffic: config.judge_host_traffic,
            sctp_tracked: tracks_sctp(netns)?,
            log: log_config(config.log_group, netns)?,
            owned: config.own_table,
            ..Config::default()
        };
        validate_config(&config)?;
        let mut nfnetlink = KernelNfnetlink::open(netns)?;
        config.owned = config.owned && owner::is_supported(&mut nfnetlink, &config.table)?;
        let executor = Executor::new(config.table.clone(), nfnetlink, KernelGracePeriod::new()?);
        Ok(Self {
            config,
            netns: netns.clone(),
            executor,
            planner: None,
            rules: BTreeMap::new(),
            recovered_accounts: CounterAccounts::new(),
            drop_counters: CounterAccounts::new(),
            ledger: CounterLedger::default(),
            masquerade_table: None,
        })
    }

    /// Takes the lock on these tables, so that no other agent uses them while this dataplane exists. Has no
    /// effect on kernels without table owners.
    ///
    /// # Errors
    /// If another agent holds the lock or owns a table.
    pub fn acquire_lock(&mut self) -> Result<(), Error> {
        self.check_owner()?;
        Ok(owner::acquire_lock(
            self.executor.nfnetlink_mut(),
            &self.config.table,
        )?)
    }

    /// Fails if another running agent owns these tables. Changes nothing.
    ///
    /// # Errors
    /// If another agent owns a table, or the owner cannot be queried.
    pub fn check_owner(&mut self) -> Result<(), Error> {
        Ok(owner::check_owner(
            self.executor.nfnetlink_mut(),
            &self.config.table,
        )?)
    }

    /// Whether the socket owns the tables, so that other programs cannot change them.
    pub fn owns_tables(&self) -> bool {
        self.config.owned
    }

    /// Takes over tables that outlived their agent.
    fn adopt_orphaned_tables(&mut self) -> Result<(), Error> {
        for table in [self.config.table.clone(), nat::table_name(&self.config)] {
            owner::take_ownership(self.executor.nfnetlink_mut(), &table, self.config.owned)?;
        }
        Ok(())
    }

    /// The table as it is in the kernel; `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_back(&mut self) -> Result<Option<Ruleset>, Error> {
        Ok(self.executor.read_back()?)
    }

    /// How the grace period is waited for, as text for people.
    pub fn grace_method(&self) -> &'static str {
        self.executor.grace().method()
    }

    /// The names of our tables that exist in the kernel.
    ///
    /// # Errors
    /// If they cannot be queried.
    pub fn present_tables(&mut self) -> Result<Vec<String>, Error> {
        let mut present = Vec::new();
        if self.executor.read_back()?.is_some() {
            present.push(self.config.table.to_string());
        }
        let translating = nat::table_name(&self.config);
        let found = self
            .executor
            .with_table(translating.clone(), BTreeMap::new(), |of| of.read_back());
        if found?.is_some() {
            present.push(translating.to_string());
        }
        Ok(present)
    }

    /// What [`Dataplane::start`] would write now. Reads only.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    pub fn preview(&mut self, tables: &Tables) -> Result<PlanPreview, Error> {
        let mut observed = self.executor.read_back()?;
        // Taking over the table does not change its content.
        if let Some(observed) = &mut observed
            && self.config.owned
            && observed.flags == table_flag::PERSIST
        {
            observed.flags = table_flag::OWNED;
        }
        let (planner, mut transaction) = adopt(&self.config, observed.as_ref(), tables, 0);
        if planner.generation() == 0 {
            // A start uses a random generation; the preview must print the same text each time.
            let first = self.config.least_generation();
            transaction = adopt(&self.config, observed.as_ref(), tables, first).1;
        }
        let there = |name: &str| {
            let set = observed.as_ref()?.sets.get(name)?;
            Some(set.decl.clone())
        };
        Ok(PlanPreview {
            writes: transaction.steps.iter().map(|step| step.ops.len()).sum(),
            text: print_transaction(&transaction, there),
        })
    }

    /// Drops the plan but keeps the accounts of all counters, those that it would have deleted included.
    fn discard_plan(&mut self, transaction: Transaction) {
        let steps = transaction.steps.into_iter();
        let going = steps.flat_map(|step| step.retiring_counters).collect();
        let mut credits = counts::counter_accounts(going, &self.rules);
        credits.retain(|_, to| !to.is_empty());
        credits.extend(self.counter_accounts());
        self.recovered_accounts = credits;
        self.planner = None;
    }

    /// The accounts of the kernel's counters.
    fn counter_accounts(&self) -> CounterAccounts {
        let mut credits = match &self.planner {
            Some(planner) => counts::counter_accounts(planner.credited_counters(), &self.rules),
            None => self.recovered_accounts.clone(),
        };
        let reasons = self.drop_counters.iter();
        credits.extend(reasons.map(|(place, to)| (place.clone(), to.clone())));
        credits
    }

    /// Changes the kernel from `observed` to `tables`.
    fn adopt(&mut self, observed: Option<Ruleset>, tables: &Tables) -> Result<ApplyOutcome, Error> {
        let (mut planner, mut transaction) = adopt(&self.config, observed.as_ref(), tables, 0);
        let is_fresh = planner.generation() == 0;
        if is_fresh {
            let mut conntrack = KernelConntrack::open(&self.netns)?;
            conntrack_marks::mark_existing_flows(&mut conntrack, &self.config, tables)?;
            let first = self.config.first_generation(random::random_u32()?);
            (planner, transaction) = adopt(&self.config, observed.as_ref(), tables, first);
        }
        let snapshot = observed.map(CounterSnapshot::from).unwrap_or_default();
        let accounts = self.reconcile_counters(&snapshot);
        let reasons = counts::drop_counters(&skeleton(&self.config, planner.generation()).chains);
        let all_accounts = || {
            let mut all = counts::counter_accounts(planner.credited_counters(), &tables.rules);
            all.extend(reasons.clone());
            all.extend(accounts.clone());
            all
        };
        self.ledger.compact(true, &all_accounts);
        let steps = self.execute(&mut transaction, &accounts, &snapshot, &tables.rules);
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                self.recovered_accounts = all_accounts();
                self.planner = None;
                return Err(error);
            }
        };
        self.rules.clone_from(&tables.rules);
        self.recovered_accounts.clear();
        self.drop_counters = reasons;
        let generation = planner.generation();
        self.planner = Some(planner);
        if is_fresh {
            let mut conntrack = KernelConntrack::open(&self.netns)?;
            conntrack_marks::reset_stale_marks(&mut conntrack, &self.config, generation)?;
        }
        Ok(apply_outcome(steps, generation))
    }

    /// Retires counters that are not in the kernel any more; returns the accounts of the others.
    fn reconcile_counters(&mut self, snapshot: &CounterSnapshot) -> CounterAccounts {
        let mut credits = self.counter_accounts();
        credits.extend(snapshot.drop_counters());
        self.ledger.reconcile(&credits, snapshot);
        credits
    }

    /// Executes a transaction and retires every counter that it deletes: those in `old` are credited to the
    /// accounts given there, others to the accounts of their rule numbers.
    fn execute(
        &mut self,
        transaction: &mut Transaction,
        accounts: &CounterAccounts,
        snapshot: &CounterSnapshot,
        rules: &BTreeMap<RuleId, Arc<Credit>>,
    ) -> Result<Vec<StepOutcome>, Error> {
        self.clear_reused_marks(transaction)?;
        if fault::is_injected("spoofed-source-passes") {
            let checks = |op: &Op| matches!(op, Op::AddRule { rule, .. } if rule.comment.as_deref() == Some("spoofed source"));
            for step in &mut transaction.steps {
                step.ops.retain(|op| !checks(op));
            }
        }
        counts::add_retiring_counters(transaction, accounts, snapshot);
        let book = &mut self.ledger;
        let mut observer = LedgerObserver {
            ledger: book,
            accounts,
            rules,
        };
        Ok(self.executor.execute(transaction, &mut observer)?)
    }

    /// Restores in place what another program changed; `None` if that is not possible.
    fn repair(&mut self, observed: &Ruleset) -> Option<ApplyOutcome> {
        let plain = observed.clone().without_counts();
        let mut planner = self.planner.clone()?;
        let mut transaction = planner.repair(&plain)?;
        if fault::is_injected("repair-keeps-generation") {
            transaction.steps.retain(|step| step.phase != Phase::Revoke);
        }
        let generation = planner.generation();
        if transaction.is_empty() {
            return Some(apply_outcome(Vec::new(), generation));
        }
        let snapshot = CounterSnapshot::from(observed.clone());
        let accounts = self.reconcile_counters(&snapshot);
        let rules = std::mem::take(&mut self.rules);
        let steps = self.execute(&mut transaction, &accounts, &snapshot, &rules);
        self.rules = rules;
        // Otherwise the kernel is read again, and the table is rebuilt.
        let steps = steps.ok()?;
        self.planner = Some(planner);
        Some(apply_outcome(steps, generation))
    }

    /// Before a transaction that raises the generation: no flow may already carry the new one.
    fn clear_reused_marks(&self, transaction: &Transaction) -> Result<(), Error> {
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

impl Dataplane for NftDataplane {
    fn start(&mut self, tables: &Tables) -> Result<ApplyOutcome, Error> {
        self.masquerade_table = None;
        self.adopt_orphaned_tables()?;
        let observed = self.executor.read_back()?;
        self.adopt(observed, tables)
    }

    fn apply(&mut self, delta: &Delta, tables: &Tables) -> Result<ApplyOutcome, Error> {
        let Some(planner) = &mut self.planner else {
            return self.start(tables);
        };
        let transaction = planner.plan(delta);
        let generation = planner.generation();
        if let Err(error) = self.clear_reused_marks(&transaction) {
            self.discard_plan(transaction);
            return Err(error);
        }
        let Some(planner) = &self.planner else {
            return self.start(tables);
        };
        let changes = || delta.steps.iter().flat_map(|step| &step.changes);
        // Rules that this delta deletes are still credited while it is executed.
        for change in changes() {
            if let TableChange::Rule(rule, Some(credit)) = change {
                self.rules.insert(*rule, credit.clone());
            }
        }
        if self.ledger.has_journal() {
            let new = changes().filter_map(|change| match change {
                TableChange::Program(class, Some(_)) => Some(*class),
                _ => None,
            });
            let places = new
                .flat_map(|class| planner.class_counters(class))
                .collect();
            self.ledger
                .record_accounts(&counts::counter_accounts(places, &self.rules));
        }
        let (old, rules, book) = (&CounterAccounts::new(), &self.rules, &mut self.ledger);
        let mut observer = LedgerObserver {
            ledger: book,
            accounts: old,
            rules,
        };
        let steps = match self.executor.execute(&transaction, &mut observer) {
            Ok(steps) => steps,
            Err(error) => {
                self.discard_plan(transaction);
                return Err(error.into());
            }
        };
        for change in changes() {
            if let TableChange::Rule(rule, None) = change {
                self.rules.remove(rule);
            }
        }
        if self.ledger.has_journal() {
            let (planner, rules, reasons) = (&self.planner, &self.rules, &self.drop_counters);
            let all = || {
                let places = planner
                    .as_ref()
                    .map(Planner::credited_counters)
                    .unwrap_or_default();
                let mut all = counts::counter_accounts(places, rules);
                all.extend(reasons.clone());
                all
            };
            self.ledger.compact(false, &all);
        }
        Ok(apply_outcome(steps, generation))
    }

    fn verify(&mut self, tables: &Tables) -> Result<ApplyOutcome, Error> {
        self.masquerade_table = None;
        let observed = self.executor.read_back()?;
        if let Some(outcome) = observed.as_ref().and_then(|observed| self.repair(observed)) {
            return Ok(outcome);
        }
        // A repair step may have been applied.
        let observed = self.executor.read_back()?;
        self.adopt(observed, tables)
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        let credits = self.counter_accounts();
        let mut snapshot = CounterSnapshot {
            chains: self.executor.chains()?,
            ..CounterSnapshot::default()
        };
        for place in credits.keys() {
            if let palisade_nft::CounterLocation::Element { set, .. } = place
                && !snapshot.elements.contains_key(set)
            {
                let elements = self.executor.elements(set)?.unwrap_or_default();
                snapshot.elements.insert(set.clone(), elements);
            }
        }
        Ok(self.ledger.update_totals(&credits, &snapshot))
    }

    fn masquerade(&mut self, wanted: &Masquerade) -> Result<usize, Error> {
        let translated = self.masquerade_table.take();
        let flags = self.config.table_flags();
        let (content, writes) = nat::sync(&mut self.executor, wanted, translated, flags)?;
        self.masquerade_table = Some(content);
        Ok(writes)
    }

    fn installed_workloads(&mut self) -> Result<InstalledWorkloads, Error> {
        let judged = self.executor.read_back()?;
        Ok(nat::installed_workloads(
            judged.as_ref(),
            self.masquerade_table.as_ref(),
        ))
    }

    fn remove(&mut self) -> Result<(), Error> {
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
            let transaction = Transaction {
                table: self.config.table.clone(),
                steps: vec![step],
            };
            self.executor
                .execute(&transaction, &mut |_: &CreditedCounter, _: CounterValue| {})?;
        }
        Ok(())
    }

    fn tamper_watch(&self) -> Result<TamperWatch, Error> {
        let port = self.executor.nfnetlink().portid();
        let mut events = KernelNfEvents::open(&self.netns, &[NFNLGRP_NFTABLES], Some(port))?;
        let table = self.config.table.clone();
        let nat = nat::table_name(&self.config);
        Ok(TamperWatch::new(move |timeout| {
            loop {
                match events.next_event(Some(timeout))? {
                    None => return Ok(None),
                    Some(NfEvent::Overrun) => return Ok(Some(TamperEvent::EventsLost)),
                    Some(NfEvent::Changed { object, .. }) => {
                        let found = describe_tampering(&object, &table)
                            .or_else(|| describe_tampering(&object, &nat));
                        if let Some(what) = found {
                            return Ok(Some(TamperEvent::Changed { description: what }));
                        }
                    }
                }
            }
        }))
    }

    fn packet_watch(&self) -> Result<Option<PacketWatch>, Error> {
        let Some(log) = self.config.log else {
            return Ok(None);
        };
        let kernel = KernelReportLookup {
            table: self.config.table.clone(),
            nfnetlink: KernelNfnetlink::open(&self.netns)?,
            links: KernelLinks::open(&self.netns)?,
        };
        let nflog = KernelNflog::open(&self.netns, log.group, report_reader::SNAP_LEN)?;
        let mut reports = ReportReader::new(nflog, kernel)?;
        Ok(Some(PacketWatch::new(move |timeout| reports.next(timeout))))
    }

    fn undo(&self, delta: &Delta) -> Option<UndoRecord> {
        let planner = self.planner.as_ref()?;
        Some(UndoRecord::new(delta, planner.tables()))
    }

    fn set_journal(&mut self, ledger: Box<dyn CounterJournal>, entries: Vec<JournalEntry>) {
        let found = self.ledger.restore(ledger, entries);
        self.recovered_accounts.extend(found);
    }

    fn retain_counts(&mut self, keep: &dyn Fn(&Credit) -> bool) {
        self.ledger.retain(keep);
    }

    fn take_journal_error(&mut self) -> Option<std::io::Error> {
        self.ledger.take_error()
    }
}

/// Passes the counters that a step deletes to the ledger.
struct LedgerObserver<'a> {
    ledger: &'a mut CounterLedger,
    accounts: &'a CounterAccounts,
    rules: &'a BTreeMap<RuleId, Arc<Credit>>,
}

impl CounterObserver for LedgerObserver<'_> {
    fn before_delete(&mut self, counts: &[(&CreditedCounter, CounterValue)]) {
        let going = counts.iter().map(|(harvest, count)| RetiringCounter {
            location: harvest.location.clone(),
            accounts: match self.accounts.get(&harvest.location) {
                Some(to) => to.clone(),
                None => counts::rule_accounts(&harvest.rules, self.rules),
            },
            count: *count,
        });
        self.ledger.begin_retirement(going.collect());
    }

    fn after_delete(&mut self, _: &[(&CreditedCounter, CounterValue)]) {
        self.ledger.finish_retirement();
    }
}

/// The nflog parameters; `None` if the kernel has no nflog, since it would then refuse the whole table.
fn log_config(group: Option<u16>, netns: &NetNs) -> Result<Option<NflogConfig>, Error> {
    let Some(group) = group else {
        return Ok(None);
    };
    match KernelNflog::open(netns, group, report_reader::SNAP_LEN) {
        Err(error) if error.is_unsupported() => return Ok(None),
        Err(error) if !error.is_in_use() => return Err(error.into()),
        Ok(_) | Err(_) => {}
    }
    let rest = NflogConfig::default();
    Ok(Some(NflogConfig { group, ..rest }))
}

fn validate_config(config: &Config) -> Result<(), Error> {
    let mask = config.ct_mark_mask;
    let run = mask >> mask.trailing_zeros().min(31);
    if mask.count_ones() < 8 || run & run.wrapping_add(1) != 0 {
        return Err(Error::Config(
            "the conntrack mark mask must be one contiguous run of at least 8 bits",
        ));
    }
    if !(1..=14).contains(&config.interface_prefix.len()) {
        return Err(Error::Config(
            "the interface prefix must be 1 to 14 bytes long",
        ));
    }
    Ok(())
}

fn apply_outcome(steps: Vec<StepOutcome>, generation: u32) -> ApplyOutcome {
    ApplyOutcome {
        writes: steps.iter().map(|step| step.ops).sum(),
        steps,
        generation,
    }
}

/// Describes a notification as text, if it is about `table`.
fn describe_tampering(object: &NfMessage, table: &Str) -> Option<String> {
    const INET: u8 = 1;
    // `NFTA_*_TABLE` has the same number in every kind of object.
    let of = object.attrs().find(nft::NFTA_TABLE_NAME).ok()??;
    if object.kind == nft::NFT_MSG_NEWGEN || object.family != INET || of.text().ok()? != &**table {
        return None;
    }
    let what = match object.kind {
        nft::NFT_MSG_NEWTABLE => "the table was created or changed",
        nft::NFT_MSG_DELTABLE => "the table was deleted",
        nft::NFT_MSG_NEWCHAIN => "a chain was created or changed",
        nft::NFT_MSG_DELCHAIN => "a chain was deleted",
        nft::NFT_MSG_NEWRULE => "a rule was added",
        nft::NFT_MSG_DELRULE => "a rule was deleted",
        nft::NFT_MSG_NEWSET => "a set was added",
        nft::NFT_MSG_DELSET => "a set was deleted",
        nft::NFT_MSG_NEWSETELEM => "an element was added",
        nft::NFT_MSG_DELSETELEM => "an element was deleted",
        _ => "an object was changed",
    };
    Some(what.to_owned())
}
