//! The dataplane over nf_tables.
//!
//! Promises: what `palisade-nft` plans is what is executed, nothing else; the
//! kernel is adopted by content, so a start on unchanged input writes nothing;
//! a generation is never taken up while a flow is marked with it already, and
//! the first one is random, so that it is nobody else's mark.
//!
//! Never: touches another table, or goes on with a plan after a failed step;
//! then the kernel is read back and planned for anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_model::Str;
use palisade_nft::{
    Config, Count, Harvest, LogConfig, Op, Planner, Ruleset, Transaction, TxStep, adopt,
    print_transaction, raised_generation, skeleton, table_flag,
};
use palisade_sys::conntrack::{Conntrack, KernelConntrack, tracks_sctp};
use palisade_sys::fault;
use palisade_sys::grace::KernelGracePeriod;
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::NetNs;
use palisade_sys::nflog::KernelNflog;
use palisade_sys::nfnetlink::{
    KernelNfEvents, KernelNfnetlink, NFNLGRP_NFTABLES, NfEvent, NfEvents, Nfnetlink, Object,
    nf_tables as nft,
};
use palisade_sys::random;
use palisade_tables::{Change, Credit, Delta, Phase, RuleId, Tables, Undo};

use crate::book::{Book, Going};
use crate::counts::{self, Credits, Live};
use crate::driver::{
    Counters, Dataplane, Error, Held, Masquerade, Outcome, StepOutcome, Tamper, TamperWatch,
};
use crate::flows;
use crate::ledger::{Entry, Ledger};
use crate::nat;
use crate::netlink::{Executor, Harvests, owner};
use crate::reports::{self, KernelOf, Reports};
use crate::sighting::PacketWatch;

/// The parameters of an [`NftDataplane`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftConfig {
    /// Name of the table of family `inet`.
    pub table: String,
    /// What the names of our interfaces begin with.
    pub interface_prefix: String,
    /// The bits of the conntrack mark that are ours: one run of at least 8.
    pub mark_mask: u32,
    /// Whether packets of this host's own stack are judged.
    pub judge_host_traffic: bool,
    /// Whether no other program can change the tables while this socket is open, where the kernel
    /// knows how (6.9).
    pub own_table: bool,
    /// The nflog group that denied and logged packets are reported to; `None`: they are not.
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
    /// What the numbers of rules stand for, as of the last success.
    rules: BTreeMap<RuleId, Arc<Credit>>,
    /// Whom the kernel's counts are for, while there is no planner to tell.
    found_credits: Credits,
    /// Where the skeleton counts drops that no rule decides.
    reasons: Credits,
    book: Book,
    /// What the kernel translates; `None` where that is not known.
    translated: Option<Option<Ruleset>>,
}

/// A plan that is not carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// Kernel objects and elements that it would write or delete.
    pub writes: usize,
    /// Its steps, each one transaction, in the words of `nft`.
    pub text: String,
}

impl NftDataplane {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel's interfaces cannot be reached or the parameters cannot be.
    pub fn new(config: NftConfig) -> Result<Self, Error> {
        Self::new_in(config, &NetNs::current()?)
    }

    /// In the network namespace given.
    ///
    /// # Errors
    /// As [`NftDataplane::new`].
    pub fn new_in(config: NftConfig, netns: &NetNs) -> Result<Self, Error> {
        // Before features are looked at: it has the kernel load what has them.
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
        check(&config)?;
        let mut nfnetlink = KernelNfnetlink::open(netns)?;
        config.owned = config.owned && owner::is_supported(&mut nfnetlink, &config.table)?;
        let executor = Executor::new(config.table.clone(), nfnetlink, KernelGracePeriod::new()?);
        Ok(Self {
            config,
            netns: netns.clone(),
            executor,
            planner: None,
            rules: BTreeMap::new(),
            found_credits: Credits::new(),
            reasons: Credits::new(),
            book: Book::default(),
            translated: None,
        })
    }

    /// Makes sure that no other agent has these tables, and that none gets them while this lasts. Where
    /// the kernel knows no owners, nothing can be made sure.
    ///
    /// # Errors
    /// If another one has them.
    pub fn claim(&mut self) -> Result<(), Error> {
        self.check_owner()?;
        Ok(owner::lock(
            self.executor.nfnetlink_mut(),
            &self.config.table,
        )?)
    }

    /// Refuses if another agent that runs has these tables. Changes nothing.
    ///
    /// # Errors
    /// If another one has them, or it cannot be told.
    pub fn check_owner(&mut self) -> Result<(), Error> {
        Ok(owner::check(
            self.executor.nfnetlink_mut(),
            &self.config.table,
        )?)
    }

    /// Whether others cannot change the tables.
    pub fn is_owner(&self) -> bool {
        self.config.owned
    }

    /// Takes over what outlived an agent before.
    fn take_over(&mut self) -> Result<(), Error> {
        for table in [self.config.table.clone(), nat::table_of(&self.config)] {
            owner::claim(self.executor.nfnetlink_mut(), &table, self.config.owned)?;
        }
        Ok(())
    }

    /// The table as it is in the kernel; `None` if it is not there.
    ///
    /// # Errors
    /// What could not be read.
    pub fn read_back(&mut self) -> Result<Option<Ruleset>, Error> {
        Ok(self.executor.read_back()?)
    }

    /// How packets under way are waited for, for people.
    pub fn grace_method(&self) -> &'static str {
        self.executor.grace().method()
    }

    /// The tables of ours that are in the kernel, by name.
    ///
    /// # Errors
    /// What could not be read.
    pub fn present(&mut self) -> Result<Vec<String>, Error> {
        let mut present = Vec::new();
        if self.executor.read_back()?.is_some() {
            present.push(self.config.table.to_string());
        }
        let translating = nat::table_of(&self.config);
        let found = self
            .executor
            .on_table(translating.clone(), BTreeMap::new(), |of| of.read_back());
        if found?.is_some() {
            present.push(translating.to_string());
        }
        Ok(present)
    }

    /// What [`Dataplane::start`] would write from here: reads, and writes nothing.
    ///
    /// # Errors
    /// What could not be read.
    pub fn preview(&mut self, tables: &Tables) -> Result<Preview, Error> {
        let mut observed = self.executor.read_back()?;
        // Taking it over is no change of what it holds.
        if let Some(observed) = &mut observed
            && self.config.owned
            && observed.flags == table_flag::PERSIST
        {
            observed.flags = table_flag::OWNED;
        }
        let (planner, mut transaction) = adopt(&self.config, observed.as_ref(), tables, 0);
        if planner.generation() == 0 {
            // A start begins with a random one; what is printed must not differ each time.
            let first = self.config.least_generation();
            transaction = adopt(&self.config, observed.as_ref(), tables, first).1;
        }
        let there = |name: &str| {
            let set = observed.as_ref()?.sets.get(name)?;
            Some(set.decl.clone())
        };
        Ok(Preview {
            writes: transaction.steps.iter().map(|step| step.ops.len()).sum(),
            text: print_transaction(&transaction, there),
        })
    }

    /// Forgets the plan but not whom the counts are for, what was planned to go included.
    fn fail(&mut self, transaction: Transaction) {
        let steps = transaction.steps.into_iter();
        let going = steps.flat_map(|step| step.harvest).collect();
        let mut credits = counts::credits(going, &self.rules);
        credits.retain(|_, to| !to.is_empty());
        credits.extend(self.credits());
        self.found_credits = credits;
        self.planner = None;
    }

    /// Whom the kernel's counts are for.
    fn credits(&self) -> Credits {
        let mut credits = match &self.planner {
            Some(planner) => counts::credits(planner.credits(), &self.rules),
            None => self.found_credits.clone(),
        };
        let reasons = self.reasons.iter();
        credits.extend(reasons.map(|(place, to)| (place.clone(), to.clone())));
        credits
    }

    /// From whatever the kernel holds to `tables`.
    fn adopt(&mut self, observed: Option<Ruleset>, tables: &Tables) -> Result<Outcome, Error> {
        let (mut planner, mut transaction) = adopt(&self.config, observed.as_ref(), tables, 0);
        let is_fresh = planner.generation() == 0;
        if is_fresh {
            let mut conntrack = KernelConntrack::open(&self.netns)?;
            flows::before_table(&mut conntrack, &self.config, tables)?;
            let first = self.config.first_generation(random::number()?);
            (planner, transaction) = adopt(&self.config, observed.as_ref(), tables, first);
        }
        let live = observed.map(Live::from).unwrap_or_default();
        let old = self.take_stock(&live);
        let reasons = counts::reasons(&skeleton(&self.config, planner.generation()).chains);
        let all = || {
            let mut all = counts::credits(planner.credits(), &tables.rules);
            all.extend(reasons.clone());
            all.extend(old.clone());
            all
        };
        self.book.snapshot(true, &all);
        let steps = self.execute(&mut transaction, &old, &live, &tables.rules);
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                self.found_credits = all();
                self.planner = None;
                return Err(error);
            }
        };
        self.rules.clone_from(&tables.rules);
        self.found_credits.clear();
        self.reasons = reasons;
        let generation = planner.generation();
        self.planner = Some(planner);
        if is_fresh {
            let mut conntrack = KernelConntrack::open(&self.netns)?;
            flows::after_table(&mut conntrack, &self.config, generation)?;
        }
        Ok(outcome(steps, generation))
    }

    /// Takes over what is not in the kernel any more; says whom the rest is for.
    fn take_stock(&mut self, live: &Live) -> Credits {
        let mut credits = self.credits();
        credits.extend(live.reasons());
        self.book.reconcile(&credits, live);
        credits
    }

    /// Executes, and takes over every count that goes: what is in `old` is for whom that says, the
    /// rest for what the rules' numbers stand for.
    fn execute(
        &mut self,
        transaction: &mut Transaction,
        old: &Credits,
        live: &Live,
        rules: &BTreeMap<RuleId, Arc<Credit>>,
    ) -> Result<Vec<StepOutcome>, Error> {
        self.clear_the_way(transaction)?;
        if fault::is_on("spoofed-source-passes") {
            let checks = |op: &Op| matches!(op, Op::AddRule { rule, .. } if rule.comment.as_deref() == Some("spoofed source"));
            for step in &mut transaction.steps {
                step.ops.retain(|op| !checks(op));
            }
        }
        counts::harvest_all(transaction, old, live);
        let book = &mut self.book;
        let mut taking = Taking { book, old, rules };
        Ok(self.executor.execute(transaction, &mut taking)?)
    }

    /// Puts back what somebody changed, where that can be done in place.
    fn mend(&mut self, observed: &Ruleset) -> Option<Outcome> {
        let plain = observed.clone().without_counts();
        let mut planner = self.planner.clone()?;
        let mut transaction = planner.mend(&plain)?;
        if fault::is_on("repair-keeps-generation") {
            transaction.steps.retain(|step| step.phase != Phase::Revoke);
        }
        let generation = planner.generation();
        if transaction.is_empty() {
            return Some(outcome(Vec::new(), generation));
        }
        let live = Live::from(observed.clone());
        let old = self.take_stock(&live);
        let rules = std::mem::take(&mut self.rules);
        let steps = self.execute(&mut transaction, &old, &live, &rules);
        self.rules = rules;
        // Otherwise the kernel is read back, and the table made anew.
        let steps = steps.ok()?;
        self.planner = Some(planner);
        Some(outcome(steps, generation))
    }

    /// Before a transaction that raises the generation: no flow may be marked with what comes.
    fn clear_the_way(&self, transaction: &Transaction) -> Result<(), Error> {
        let raised = raised_generation(&self.config, transaction);
        if let Some(next) = raised.filter(|next| flows::opens_quarter(&self.config, *next)) {
            let mut conntrack = KernelConntrack::open(&self.netns)?;
            flows::before_quarter(&mut conntrack, &self.config, next)?;
        }
        Ok(())
    }
}

impl Dataplane for NftDataplane {
    fn start(&mut self, tables: &Tables) -> Result<Outcome, Error> {
        self.translated = None;
        self.take_over()?;
        let observed = self.executor.read_back()?;
        self.adopt(observed, tables)
    }

    fn apply(&mut self, delta: &Delta, tables: &Tables) -> Result<Outcome, Error> {
        let Some(planner) = &mut self.planner else {
            return self.start(tables);
        };
        let transaction = planner.plan(delta);
        let generation = planner.generation();
        if let Err(error) = self.clear_the_way(&transaction) {
            self.fail(transaction);
            return Err(error);
        }
        let Some(planner) = &self.planner else {
            return self.start(tables);
        };
        let changes = || delta.steps.iter().flat_map(|step| &step.changes);
        // What goes with this delta is still credited while it is executed.
        for change in changes() {
            if let Change::Rule(rule, Some(credit)) = change {
                self.rules.insert(*rule, credit.clone());
            }
        }
        if self.book.is_kept() {
            let new = changes().filter_map(|change| match change {
                Change::Program(class, Some(_)) => Some(*class),
                _ => None,
            });
            let places = new.flat_map(|class| planner.credits_of(class)).collect();
            self.book.expect(&counts::credits(places, &self.rules));
        }
        let (old, rules, book) = (&Credits::new(), &self.rules, &mut self.book);
        let mut taking = Taking { book, old, rules };
        let steps = match self.executor.execute(&transaction, &mut taking) {
            Ok(steps) => steps,
            Err(error) => {
                self.fail(transaction);
                return Err(error.into());
            }
        };
        for change in changes() {
            if let Change::Rule(rule, None) = change {
                self.rules.remove(rule);
            }
        }
        if self.book.is_kept() {
            let (planner, rules, reasons) = (&self.planner, &self.rules, &self.reasons);
            let all = || {
                let places = planner.as_ref().map(Planner::credits).unwrap_or_default();
                let mut all = counts::credits(places, rules);
                all.extend(reasons.clone());
                all
            };
            self.book.snapshot(false, &all);
        }
        Ok(outcome(steps, generation))
    }

    fn verify(&mut self, tables: &Tables) -> Result<Outcome, Error> {
        self.translated = None;
        let observed = self.executor.read_back()?;
        if let Some(outcome) = observed.as_ref().and_then(|observed| self.mend(observed)) {
            return Ok(outcome);
        }
        // A step of mending may have been done.
        let observed = self.executor.read_back()?;
        self.adopt(observed, tables)
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        let credits = self.credits();
        let mut live = Live {
            chains: self.executor.chains()?,
            ..Live::default()
        };
        for place in credits.keys() {
            if let palisade_nft::Place::Element { set, .. } = place
                && !live.elements.contains_key(set)
            {
                let elements = self.executor.elements(set)?.unwrap_or_default();
                live.elements.insert(set.clone(), elements);
            }
        }
        Ok(self.book.tell(&credits, &live))
    }

    fn masquerade(&mut self, wanted: &Masquerade) -> Result<usize, Error> {
        let translated = self.translated.take();
        let flags = self.config.table_flags();
        let (held, writes) = nat::bring_in_line(&mut self.executor, wanted, translated, flags)?;
        self.translated = Some(held);
        Ok(writes)
    }

    fn held(&mut self) -> Result<Held, Error> {
        let judged = self.executor.read_back()?;
        Ok(nat::held(judged.as_ref(), self.translated.as_ref()))
    }

    fn remove(&mut self) -> Result<(), Error> {
        self.planner = None;
        self.found_credits.clear();
        self.translated = None;
        nat::remove(&mut self.executor, &self.config)?;
        if self.executor.read_back()?.is_some() {
            let step = TxStep {
                phase: Phase::Delete,
                harvest: Vec::new(),
                ops: vec![Op::DeleteTable],
                waits: true,
            };
            let transaction = Transaction {
                table: self.config.table.clone(),
                steps: vec![step],
            };
            self.executor
                .execute(&transaction, &mut |_: &Harvest, _: Count| {})?;
        }
        Ok(())
    }

    fn tamper_watch(&self) -> Result<TamperWatch, Error> {
        let port = self.executor.nfnetlink().portid();
        let mut events = KernelNfEvents::open(&self.netns, &[NFNLGRP_NFTABLES], Some(port))?;
        let table = self.config.table.clone();
        let nat = nat::table_of(&self.config);
        Ok(TamperWatch::new(move |timeout| {
            loop {
                match events.next_event(Some(timeout))? {
                    None => return Ok(None),
                    Some(NfEvent::Lost) => return Ok(Some(Tamper::Unknown)),
                    Some(NfEvent::Changed { object, .. }) => {
                        let found = tampered(&object, &table).or_else(|| tampered(&object, &nat));
                        if let Some(what) = found {
                            return Ok(Some(Tamper::Changed { what }));
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
        let kernel = KernelOf {
            table: self.config.table.clone(),
            nfnetlink: KernelNfnetlink::open(&self.netns)?,
            links: KernelLinks::open(&self.netns)?,
        };
        let nflog = KernelNflog::open(&self.netns, log.group, reports::COPY)?;
        let mut reports = Reports::new(nflog, kernel)?;
        Ok(Some(PacketWatch::new(move |timeout| reports.next(timeout))))
    }

    fn undo(&self, delta: &Delta) -> Option<Undo> {
        let planner = self.planner.as_ref()?;
        Some(Undo::new(delta, planner.tables()))
    }

    fn keep_counts(&mut self, ledger: Box<dyn Ledger>, entries: Vec<Entry>) {
        let found = self.book.restore(ledger, entries);
        self.found_credits.extend(found);
    }

    fn retain_counts(&mut self, keep: &dyn Fn(&Credit) -> bool) {
        self.book.retain(keep);
    }

    fn ledger_failure(&mut self) -> Option<std::io::Error> {
        self.book.failure()
    }
}

/// Takes counts over as they go.
struct Taking<'a> {
    book: &'a mut Book,
    old: &'a Credits,
    rules: &'a BTreeMap<RuleId, Arc<Credit>>,
}

impl Harvests for Taking<'_> {
    fn going(&mut self, counts: &[(&Harvest, Count)]) {
        let going = counts.iter().map(|(harvest, count)| Going {
            place: harvest.place.clone(),
            to: match self.old.get(&harvest.place) {
                Some(to) => to.clone(),
                None => counts::accounts(&harvest.rules, self.rules),
            },
            count: *count,
        });
        self.book.going(going.collect());
    }

    fn gone(&mut self, _: &[(&Harvest, Count)]) {
        self.book.gone();
    }
}

/// How packets are reported in this kernel. One without nflog would refuse the whole table.
fn log_config(group: Option<u16>, netns: &NetNs) -> Result<Option<LogConfig>, Error> {
    let Some(group) = group else {
        return Ok(None);
    };
    match KernelNflog::open(netns, group, reports::COPY) {
        Err(error) if error.is_unsupported() => return Ok(None),
        Err(error) if !error.is_taken() => return Err(error.into()),
        Ok(_) | Err(_) => {}
    }
    let rest = LogConfig::default();
    Ok(Some(LogConfig { group, ..rest }))
}

fn check(config: &Config) -> Result<(), Error> {
    let mask = config.ct_mark_mask;
    let run = mask >> mask.trailing_zeros().min(31);
    if mask.count_ones() < 8 || run & run.wrapping_add(1) != 0 {
        return Err(Error::Config(
            "the bits of the conntrack mark must be one run of at least 8",
        ));
    }
    if !(1..=14).contains(&config.interface_prefix.len()) {
        return Err(Error::Config(
            "the prefix of interface names must be 1 to 14 bytes long",
        ));
    }
    Ok(())
}

fn outcome(steps: Vec<StepOutcome>, generation: u32) -> Outcome {
    Outcome {
        writes: steps.iter().map(|step| step.ops).sum(),
        steps,
        generation,
    }
}

/// What happened, if it happened to `table`.
fn tampered(object: &Object, table: &Str) -> Option<String> {
    const INET: u8 = 1;
    // The table's name has the same number in every kind of object.
    let of = object.attrs().find(nft::NFTA_TABLE_NAME).ok()??;
    if object.kind == nft::NFT_MSG_NEWGEN || object.family != INET || of.text().ok()? != &**table {
        return None;
    }
    let what = match object.kind {
        nft::NFT_MSG_NEWTABLE => "the table was changed",
        nft::NFT_MSG_DELTABLE => "the table was deleted",
        nft::NFT_MSG_NEWCHAIN => "a chain was changed",
        nft::NFT_MSG_DELCHAIN => "a chain was deleted",
        nft::NFT_MSG_NEWRULE => "a rule was added",
        nft::NFT_MSG_DELRULE => "a rule was deleted",
        nft::NFT_MSG_NEWSET => "a set was added",
        nft::NFT_MSG_DELSET => "a set was deleted",
        nft::NFT_MSG_NEWSETELEM => "an element was added",
        nft::NFT_MSG_DELSETELEM => "an element was deleted",
        _ => "something was changed",
    };
    Some(what.to_owned())
}
