//! The dataplane over nf_tables.
//!
//! Promises: what `palisade-nft` plans is what is executed, nothing else; the
//! kernel is adopted by content, so a start on unchanged input writes nothing;
//! a new table never takes up a generation that a flow is marked with already.
//!
//! Never: touches another table, or goes on with a plan after a failed step;
//! then the kernel is read back and planned for anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use palisade_model::Str;
use palisade_nft::{Config, LogConfig, Op, Planner, Ruleset, Transaction, TxStep, adopt};
use palisade_sys::conntrack::{Conntrack, FlowFilter, KernelConntrack, tracks_sctp};
use palisade_sys::grace::KernelGracePeriod;
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::NetNs;
use palisade_sys::nflog::KernelNflog;
use palisade_sys::nfnetlink::{
    KernelNfEvents, KernelNfnetlink, NFNLGRP_NFTABLES, NfEvent, NfEvents, Nfnetlink, Object,
    nf_tables as nft,
};
use palisade_tables::{Change, Credit, Delta, Phase, RuleId, Tables, Undo};

use crate::counts::{self, Credits, Gone, Live};
use crate::driver::{Counters, Dataplane, Error, Harvested, Outcome, Tamper, TamperWatch};
use crate::netlink::Executor;
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
    /// Whom the places that count are credited to, as of the last success.
    rules: BTreeMap<RuleId, Arc<Credit>>,
    /// Kept over a failure, until the next start has taken the counts over.
    lost_credits: Option<Credits>,
    gone: Gone,
    /// The live counts last read, should the table vanish.
    seen: Counters,
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
        let config = Config {
            table: config.table.as_str().into(),
            interface_prefix: config.interface_prefix.as_str().into(),
            ct_mark_mask: config.mark_mask,
            judge_host_traffic: config.judge_host_traffic,
            sctp_tracked: tracks_sctp(netns)?,
            log: log_config(config.log_group, netns)?,
            ..Config::default()
        };
        check(&config)?;
        let nfnetlink = KernelNfnetlink::open(netns)?;
        let executor = Executor::new(config.table.clone(), nfnetlink, KernelGracePeriod::new()?);
        Ok(Self {
            config,
            netns: netns.clone(),
            executor,
            planner: None,
            rules: BTreeMap::new(),
            lost_credits: None,
            gone: Gone::default(),
            seen: Counters::default(),
        })
    }

    /// The table as it is in the kernel; `None` if it is not there.
    ///
    /// # Errors
    /// What could not be read.
    pub fn read_back(&mut self) -> Result<Option<Ruleset>, Error> {
        Ok(self.executor.read_back()?)
    }

    /// Forgets the plan but not whom the counts are credited to, what was
    /// planned to go included.
    fn fail(&mut self, transaction: Transaction) {
        let steps = transaction.steps.into_iter();
        let going = steps.flat_map(|step| step.harvest).collect();
        let mut credits = counts::credits(going, &self.rules);
        credits.extend(self.credits().unwrap_or_default());
        self.lost_credits = Some(credits);
        self.planner = None;
    }

    fn credits(&self) -> Option<Credits> {
        match &self.planner {
            Some(planner) => Some(counts::credits(planner.credits(), &self.rules)),
            None => self.lost_credits.clone(),
        }
    }

    /// From whatever the kernel holds to `tables`.
    fn adopt(&mut self, observed: Option<Ruleset>, tables: &Tables) -> Result<Outcome, Error> {
        let (mut planner, mut transaction) = adopt(&self.config, observed.as_ref(), tables, 0);
        if planner.generation() == 0 {
            let fresh = self.unused_generation()?;
            (planner, transaction) = adopt(&self.config, observed.as_ref(), tables, fresh);
        }
        let old_credits = self.credits().unwrap_or_default();
        // What goes without being handed over, and what is handed over.
        let (mut silent, mut gone) = (Gone::default(), Gone::default());
        match observed {
            None => silent.add_all(&self.seen),
            Some(observed) => {
                let live = live_of(observed);
                if counts::replaces_table(&transaction) {
                    silent.add_all(&Counters {
                        by_rule: live.by_rule(&old_credits),
                        reasons: live.reasons(),
                    });
                } else {
                    let places = counts::removed_silently(&transaction, &old_credits);
                    silent.add_places(&places, &old_credits, &live);
                }
            }
        }
        let new_rules = &tables.rules;
        let steps = self
            .executor
            .execute(
                &transaction,
                &mut |harvest, count| match old_credits.get(&harvest.place) {
                    Some(to) => gone.add(to, count),
                    None => {
                        let rules = harvest.rules.iter();
                        let to: Vec<_> = rules.filter_map(|r| new_rules.get(r).cloned()).collect();
                        gone.add(&to, count);
                    }
                },
            );
        self.gone.merge(&gone);
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                self.lost_credits = Some(old_credits);
                self.planner = None;
                return Err(error.into());
            }
        };
        self.gone.merge(&silent);
        self.seen = Counters::default();
        self.rules.clone_from(&tables.rules);
        self.lost_credits = None;
        let generation = planner.generation();
        self.planner = Some(planner);
        Ok(outcome(steps, generation))
    }

    /// A generation that no tracked flow is marked with.
    fn unused_generation(&self) -> Result<u32, Error> {
        let mut conntrack = KernelConntrack::open(&self.netns)?;
        let used: BTreeSet<u32> = conntrack
            .flows(&FlowFilter::default())?
            .iter()
            .map(|flow| self.config.generation(flow.mark))
            .collect();
        let first = self.config.next_generation(0);
        let mut generation = first;
        while used.contains(&generation) {
            generation = self.config.next_generation(generation);
            if generation == first {
                return Err(Error::Config(
                    "every generation is in use by a tracked flow: give the conntrack mark more bits",
                ));
            }
        }
        Ok(generation)
    }
}

impl Dataplane for NftDataplane {
    fn start(&mut self, tables: &Tables) -> Result<Outcome, Error> {
        let observed = self.executor.read_back()?;
        self.adopt(observed, tables)
    }

    fn apply(&mut self, delta: &Delta, tables: &Tables) -> Result<Outcome, Error> {
        let Some(planner) = &mut self.planner else {
            return self.start(tables);
        };
        let transaction = planner.plan(delta);
        let generation = planner.generation();
        let changes = || delta.steps.iter().flat_map(|step| &step.changes);
        // What goes with this delta is still credited while it is executed.
        for change in changes() {
            if let Change::Rule(rule, Some(credit)) = change {
                self.rules.insert(*rule, credit.clone());
            }
        }
        let (rules, gone) = (&self.rules, &mut self.gone);
        let steps = self.executor.execute(&transaction, &mut |harvest, count| {
            let of = harvest.rules.iter();
            let to: Vec<_> = of.filter_map(|rule| rules.get(rule).cloned()).collect();
            gone.add(&to, count);
        });
        let steps = match steps {
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
        Ok(outcome(steps, generation))
    }

    fn verify(&mut self, tables: &Tables) -> Result<Outcome, Error> {
        let observed = self.executor.read_back()?;
        if let (Some(planner), Some(observed)) = (&self.planner, &observed)
            && planner.ruleset() == observed.clone().without_counts()
        {
            return Ok(outcome(Vec::new(), planner.generation()));
        }
        self.adopt(observed, tables)
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        let credits = self.credits().unwrap_or_default();
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
        self.seen = Counters {
            by_rule: live.by_rule(&credits),
            reasons: live.reasons(),
        };
        Ok(self.gone.with(&self.seen))
    }

    fn remove(&mut self) -> Result<(), Error> {
        self.planner = None;
        if self.executor.read_back()?.is_some() {
            let step = TxStep {
                phase: Phase::Delete,
                harvest: Vec::new(),
                ops: vec![Op::DeleteTable],
            };
            let transaction = Transaction {
                table: self.config.table.clone(),
                steps: vec![step],
            };
            self.executor.execute(&transaction, &mut |_, _| {})?;
        }
        Ok(())
    }

    fn tamper_watch(&self) -> Result<TamperWatch, Error> {
        let port = self.executor.nfnetlink().portid();
        let mut events = KernelNfEvents::open(&self.netns, &[NFNLGRP_NFTABLES], Some(port))?;
        let table = self.config.table.clone();
        Ok(TamperWatch::new(move |timeout| {
            loop {
                match events.next_event(Some(timeout))? {
                    None => return Ok(None),
                    Some(NfEvent::Lost) => return Ok(Some(Tamper::Unknown)),
                    Some(NfEvent::Changed { object, .. }) => {
                        if let Some(what) = tampered(&object, &table) {
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

    fn harvested(&self) -> Harvested {
        self.gone.harvested()
    }

    fn restore_harvested(&mut self, harvested: Harvested) {
        for (credit, count) in harvested {
            self.gone.add(&[Arc::new(credit)], count);
        }
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

fn outcome(steps: Vec<crate::driver::StepOutcome>, generation: u32) -> Outcome {
    Outcome {
        writes: steps.iter().map(|step| step.ops).sum(),
        steps,
        generation,
    }
}

fn live_of(ruleset: Ruleset) -> Live {
    let sets = ruleset.sets.into_iter();
    Live {
        elements: sets.map(|(name, set)| (name, set.elements)).collect(),
        chains: ruleset.chains,
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
