//! A simulator of the kernel's evaluation of a ruleset for a packet.
//!
//! Tests compare it with [`Tables::judge`](palisade_tables::Tables::judge), so a plan is checked without a
//! kernel; since a packet can start on one ruleset and end on the next, packets in flight during a step are
//! checked as well.

use crate::hook_packet::{ConntrackInfo, HookPacket};
use crate::set_lookup::find_element;
use palisade_model::{Family, L4, PreDnat, Protocol, Str};
use palisade_nft::{
    Chain, CmpOp, CounterLocation, CtKey, Expr, Hook, LookupMode, MetaKey, PayloadBase, Ruleset,
};
use palisade_nft::{ElementKey, MapValue, NftVerdict, ct_state, ct_status};
use std::net::IpAddr;

/// The result of simulating a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationOutcome {
    /// Whether it passed every hook.
    pub accepted: bool,
    /// The connection's mark afterwards.
    pub mark: u32,
    /// Whether the packet's own mark, which other programs use, is unchanged.
    pub packet_mark_kept: bool,
    /// The packet's own mark afterwards.
    pub packet_mark: u32,
    /// Whether a rule left the packet out of connection tracking.
    pub is_left_out: bool,
    /// The counters that counted it, in order.
    pub counters_hit: Vec<CounterLocation>,
    /// The prefixes under which it was logged, in order. Rate limits are never reached here.
    pub log_prefixes: Vec<Str>,
    /// The number of rules evaluated and lookups made.
    pub cost: EvaluationCost,
}

/// The cost of evaluating a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvaluationCost {
    /// Rules of which at least one expression was evaluated.
    pub rules: usize,
    /// Set lookups.
    pub lookups: usize,
}

/// Why a ruleset cannot be simulated; [`lint`](palisade_nft::lint) refuses the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimulationError {
    /// A chain that does not exist.
    NoChain(Str),
    /// A set that does not exist.
    NoSet(Str),
    /// An expression that Palisade never writes.
    Unknown(Str),
    /// A loop of chains.
    Loop,
}

/// The priority of connection tracking in its hooks.
pub(crate) const CONNTRACK_PRIORITY: i32 = -200;

/// The mark of a packet on arrival, set by another program, unless a test says otherwise.
const PACKET_MARK: u32 = 0x8000_8001;

/// Simulates packets.
pub struct RulesetSimulator<'a> {
    first: &'a Ruleset,
    second: &'a Ruleset,
    /// The number of evaluated expressions after which the second ruleset applies.
    switch_after: usize,
    /// Whether the flow has destination NAT, and the packet's output interface before it.
    translated: Option<Option<Str>>,
    /// The destination of the flow before destination NAT.
    pre_dnat: Option<PreDnat>,
    /// The packet's own mark on arrival.
    packet_mark: u32,
    /// The ends of the packet that an ICMP error is about.
    quoted: Option<(IpAddr, IpAddr)>,
}

enum ExprOutcome {
    Next,
    EndOfRule(bool),
}

struct PacketRun<'a> {
    simulator: &'a RulesetSimulator<'a>,
    packet: &'a HookPacket,
    hook: Hook,
    registers: [u8; 64],
    mark: u32,
    packet_mark: u32,
    /// Whether connection tracking has looked at the packet yet.
    is_tracked: bool,
    /// Whether it is to leave the packet out.
    is_left_out: bool,
    counters_hit: Vec<CounterLocation>,
    log_prefixes: Vec<Str>,
    cost: EvaluationCost,
    evaluated: usize,
}

impl<'a> RulesetSimulator<'a> {
    /// A simulator for one ruleset.
    pub fn new(ruleset: &'a Ruleset) -> Self {
        RulesetSimulator {
            first: ruleset,
            second: ruleset,
            switch_after: 0,
            translated: None,
            pre_dnat: None,
            packet_mark: PACKET_MARK,
            quoted: None,
        }
    }

    /// A simulator that uses the first ruleset for this many expressions, and then the second.
    pub fn with_switch(first: &'a Ruleset, second: &'a Ruleset, switch: usize) -> Self {
        RulesetSimulator {
            first,
            second,
            switch_after: switch,
            translated: None,
            pre_dnat: None,
            packet_mark: PACKET_MARK,
            quoted: None,
        }
    }

    /// Simulates flows with destination NAT. `before` is the output interface of a packet of this host's own
    /// stack when it entered the output hook: rules there see this interface, although the addresses are
    /// already the new ones. Packets without a connection are never translated.
    #[must_use]
    pub fn with_nat(mut self, before: Option<Str>) -> Self {
        self.translated = Some(before);
        self
    }

    /// Simulates flows that had another destination before destination NAT. Packets begin with the destination that
    /// they have after it, as in the hooks after prerouting.
    #[must_use]
    pub fn with_pre_dnat(mut self, before: Option<PreDnat>) -> Self {
        self.pre_dnat = before;
        self
    }

    /// Simulates packets that have these bits of their own mark set on arrival, beside those that another program sets.
    #[must_use]
    pub fn with_packet_mark(mut self, bits: u32) -> Self {
        self.packet_mark |= bits;
        self
    }

    /// Simulates ICMP errors about a packet from an address to another.
    #[must_use]
    pub fn with_quoted(mut self, source: IpAddr, destination: IpAddr) -> Self {
        self.quoted = Some((source, destination));
        self
    }

    /// Simulates a packet through all hooks that it passes.
    ///
    /// # Errors
    ///
    /// If the ruleset cannot be simulated.
    pub fn run(&self, packet: &HookPacket) -> Result<SimulationOutcome, SimulationError> {
        let mut run = PacketRun {
            simulator: self,
            packet,
            hook: Hook::Prerouting,
            registers: [0xa5; 64],
            mark: packet.conntrack.mark,
            packet_mark: self.packet_mark,
            is_tracked: false,
            is_left_out: false,
            counters_hit: Vec::new(),
            log_prefixes: Vec::new(),
            cost: EvaluationCost::default(),
            evaluated: 0,
        };
        let hooks: &[Hook] = match (&packet.iif, &packet.oif) {
            (Some(_), Some(_)) => &[Hook::Prerouting, Hook::Forward, Hook::Postrouting],
            (Some(_), None) => &[Hook::Prerouting, Hook::Input],
            (None, Some(_)) => &[Hook::Output, Hook::Postrouting],
            (None, None) => &[],
        };
        let mut accepted = true;
        for hook in hooks {
            run.hook = *hook;
            let mut bases: Vec<(i32, &Str)> = Vec::new();
            for (name, chain) in &run.ruleset().chains {
                if let Some(base) = chain.base_chain.filter(|base| base.hook == *hook) {
                    bases.push((base.priority, name));
                }
            }
            bases.sort();
            let names = bases.into_iter();
            let names: Vec<(i32, Str)> = names.map(|(at, name)| (at, name.clone())).collect();
            for (priority, name) in names {
                run.is_tracked |= priority > CONNTRACK_PRIORITY;
                accepted = accepted && run.run_base_chain(&name)?;
            }
        }
        Ok(SimulationOutcome {
            accepted,
            mark: run.mark,
            packet_mark_kept: run.packet_mark == self.packet_mark,
            packet_mark: run.packet_mark,
            is_left_out: run.is_left_out,
            counters_hit: run.counters_hit,
            log_prefixes: run.log_prefixes,
            cost: run.cost,
        })
    }
}

impl<'a> PacketRun<'a> {
    /// What connection tracking knows of the packet at this place.
    fn conntrack(&self) -> ConntrackInfo {
        let state = match (self.is_left_out, self.is_tracked) {
            (true, _) => ct_state::UNTRACKED,
            (false, true) => return self.packet.conntrack,
            (false, false) => ct_state::INVALID,
        };
        ConntrackInfo {
            state,
            ..ConntrackInfo::NEW
        }
    }

    /// The first packet's tuple before NAT: source, destination and its port.
    fn original_tuple(&self) -> (IpAddr, IpAddr, u16) {
        let packet = self.packet;
        let (source_port, port) = match packet.l4 {
            L4::Ports {
                source,
                destination,
            } => (source, destination),
            L4::Icmp { .. } | L4::None => (0, 0),
        };
        let (source, destination, port) = if packet.conntrack.reply {
            (packet.destination, packet.source, source_port)
        } else {
            (packet.source, packet.destination, port)
        };
        match self.simulator.pre_dnat {
            Some(before) => (source, before.destination, before.port),
            None => (source, destination, port),
        }
    }

    fn ruleset(&self) -> &'a Ruleset {
        if self.evaluated < self.simulator.switch_after {
            self.simulator.first
        } else {
            self.simulator.second
        }
    }

    fn run_base_chain(&mut self, name: &Str) -> Result<bool, SimulationError> {
        let Some(chain) = self.ruleset().chains.get(name) else {
            return Ok(true);
        };
        let accept = chain
            .base_chain
            .is_none_or(|base| base.policy == palisade_nft::ChainPolicy::Accept);
        // A chain stays as it was when the packet entered it, as in the kernel.
        let mut stack: Vec<(&'a Chain, Str, usize)> = vec![(chain, name.clone(), 0)];
        let mut entered = 0;
        while let Some((chain, name, index)) = stack.pop() {
            let Some(rule) = chain.rules.get(index) else {
                continue;
            };
            stack.push((chain, name.clone(), index + 1));
            let verdict = self.evaluate_rule(&rule.exprs, &name, index)?;
            match verdict {
                None | Some(NftVerdict::Continue) => {}
                Some(NftVerdict::Accept) => return Ok(true),
                Some(NftVerdict::Drop) => return Ok(false),
                Some(NftVerdict::Return) => drop(stack.pop()),
                Some(to @ (NftVerdict::Jump(_) | NftVerdict::Goto(_))) => {
                    if matches!(to, NftVerdict::Goto(_)) {
                        stack.pop();
                    }
                    let Some(to) = to.chain() else { continue };
                    // A packet that was in a chain of the first ruleset goes on in its chains, which the kernel
                    // keeps until no packet is in them.
                    let chains = [self.ruleset(), self.simulator.first];
                    let chain = chains.iter().find_map(|ruleset| ruleset.chains.get(to));
                    let chain = chain.ok_or_else(|| SimulationError::NoChain(to.clone()))?;
                    stack.push((chain, to.clone(), 0));
                    entered += 1;
                    if entered > 1000 {
                        return Err(SimulationError::Loop);
                    }
                }
            }
        }
        Ok(accept)
    }

    /// Evaluates a rule; `None` if it broke or ended without a verdict.
    fn evaluate_rule(
        &mut self,
        exprs: &[Expr],
        chain: &Str,
        rule_index: usize,
    ) -> Result<Option<NftVerdict>, SimulationError> {
        self.cost.rules += 1;
        for expr in exprs {
            self.evaluated += 1;
            match self.evaluate_expr(expr, chain, rule_index)? {
                ExprOutcome::Next => {}
                ExprOutcome::EndOfRule(false) => return Ok(None),
                ExprOutcome::EndOfRule(true) => return Ok(self.verdict_of(expr)),
            }
        }
        Ok(None)
    }

    /// The verdict of an expression that ended a rule.
    fn verdict_of(&self, expr: &Expr) -> Option<NftVerdict> {
        match expr {
            Expr::Verdict(verdict) => Some(verdict.clone()),
            Expr::Reject(_) => Some(NftVerdict::Drop),
            Expr::Lookup { set, sreg, .. } => {
                let set = self.ruleset().sets.get(set)?;
                let key = self.load_register(sreg.0, set.decl.key_len());
                match &find_element(set, &key)?.1.data {
                    Some(MapValue::Verdict(verdict)) => Some(verdict.clone()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn load_register(&self, register: u8, len: usize) -> Vec<u8> {
        let at = usize::from(register) * 4;
        self.registers[at..at + len].to_vec()
    }

    fn load_mark(&self, register: u8) -> u32 {
        let at = usize::from(register) * 4;
        u32::from_ne_bytes(std::array::from_fn(|byte| self.registers[at + byte]))
    }

    /// Writes a value; the rest of its last register is zeroed.
    fn store_register(&mut self, register: u8, value: &[u8]) {
        let at = usize::from(register) * 4;
        self.registers[at..at + value.len().div_ceil(4) * 4].fill(0);
        self.registers[at..at + value.len()].copy_from_slice(value);
    }

    fn evaluate_expr(
        &mut self,
        expr: &Expr,
        chain: &Str,
        rule_index: usize,
    ) -> Result<ExprOutcome, SimulationError> {
        let outcome_if = |holds| {
            if holds {
                ExprOutcome::Next
            } else {
                ExprOutcome::EndOfRule(false)
            }
        };
        Ok(match expr {
            Expr::Meta { key, dreg } => {
                let value = self.meta_value(*key);
                self.store_register(dreg.0, &value);
                ExprOutcome::Next
            }
            Expr::Payload {
                base,
                offset,
                len,
                dreg,
            } => {
                let bytes = self.header_bytes(*base);
                let range = *offset as usize..(*offset + *len) as usize;
                match bytes.get(range) {
                    Some(value) => {
                        self.store_register(dreg.0, value);
                        ExprOutcome::Next
                    }
                    None => ExprOutcome::EndOfRule(false),
                }
            }
            Expr::CtLoad { key, dreg } => {
                let ct = self.conntrack();
                if *key != CtKey::State && !ct.exists() {
                    return Ok(ExprOutcome::EndOfRule(false));
                }
                match key {
                    CtKey::State => self.store_register(dreg.0, &ct.state.to_ne_bytes()),
                    CtKey::Direction => self.store_register(dreg.0, &[u8::from(ct.reply)]),
                    CtKey::Mark => self.store_register(dreg.0, &self.mark.to_ne_bytes()),
                    CtKey::Zone => self.store_register(dreg.0, &[0; 2]),
                    CtKey::OriginalPort => {
                        let (.., port) = self.original_tuple();
                        self.store_register(dreg.0, &port.to_be_bytes());
                    }
                    CtKey::OriginalSource4 | CtKey::OriginalDestination4 => {
                        let (source, destination, _) = self.original_tuple();
                        let end = if *key == CtKey::OriginalSource4 {
                            source
                        } else {
                            destination
                        };
                        let IpAddr::V4(address) = end else {
                            return Ok(ExprOutcome::EndOfRule(false));
                        };
                        self.store_register(dreg.0, &address.octets());
                    }
                    CtKey::OriginalSource6 | CtKey::OriginalDestination6 => {
                        let (source, destination, _) = self.original_tuple();
                        let end = if *key == CtKey::OriginalSource6 {
                            source
                        } else {
                            destination
                        };
                        let IpAddr::V6(address) = end else {
                            return Ok(ExprOutcome::EndOfRule(false));
                        };
                        self.store_register(dreg.0, &address.octets());
                    }
                    CtKey::Status => {
                        let is_translated = self.simulator.translated.is_some();
                        let status = u32::from(is_translated) * ct_status::TRANSLATED;
                        self.store_register(dreg.0, &status.to_ne_bytes());
                    }
                }
                ExprOutcome::Next
            }
            Expr::MetaSet { key, sreg } => {
                if *key == MetaKey::Mark {
                    self.packet_mark = self.load_mark(sreg.0);
                }
                ExprOutcome::Next
            }
            Expr::CtSet { key, sreg } => {
                if *key == CtKey::Mark && self.conntrack().exists() {
                    self.mark = self.load_mark(sreg.0);
                }
                ExprOutcome::Next
            }
            Expr::Bitwise {
                sreg,
                dreg,
                mask,
                xor,
            } => {
                let mut value = self.load_register(sreg.0, mask.len());
                for (byte, (mask, xor)) in value.iter_mut().zip(mask.iter().zip(xor)) {
                    *byte = *byte & mask ^ xor;
                }
                self.store_register(dreg.0, &value);
                ExprOutcome::Next
            }
            Expr::Cmp { sreg, op, value } => {
                let order = self
                    .load_register(sreg.0, value.len())
                    .as_slice()
                    .cmp(value);
                outcome_if(match op {
                    CmpOp::Eq => order.is_eq(),
                    CmpOp::Neq => order.is_ne(),
                    CmpOp::Lt => order.is_lt(),
                    CmpOp::Lte => order.is_le(),
                    CmpOp::Gt => order.is_gt(),
                    CmpOp::Gte => order.is_ge(),
                })
            }
            Expr::Lookup {
                set,
                sreg,
                mode: to,
            } => return self.lookup(set, sreg.0, *to),
            Expr::Immediate { dreg, value } => {
                self.store_register(dreg.0, value);
                ExprOutcome::Next
            }
            // Nobody listens.
            Expr::Tproxy { .. } => ExprOutcome::EndOfRule(false),
            Expr::Notrack => {
                self.is_left_out |= !self.is_tracked;
                ExprOutcome::Next
            }
            Expr::Counter(_) => {
                let chain = chain.clone();
                self.counters_hit.push(CounterLocation::Rule {
                    chain,
                    index: rule_index,
                });
                ExprOutcome::Next
            }
            Expr::Limit { .. } => ExprOutcome::Next,
            Expr::Log { prefix, .. } => {
                self.log_prefixes.push(prefix.clone());
                ExprOutcome::Next
            }
            Expr::Verdict(_) | Expr::Reject(_) => ExprOutcome::EndOfRule(true),
            // The policy table never translates.
            Expr::Masquerade => return Err(SimulationError::Unknown("masq".into())),
            Expr::Unknown(name) => return Err(SimulationError::Unknown(name.clone())),
        })
    }

    fn lookup(
        &mut self,
        name: &Str,
        from: u8,
        to: LookupMode,
    ) -> Result<ExprOutcome, SimulationError> {
        self.cost.lookups += 1;
        let set = self.ruleset().sets.get(name);
        let set = set.ok_or_else(|| SimulationError::NoSet(name.clone()))?;
        let key = self.load_register(from, set.decl.key_len());
        let found = find_element(set, &key);
        if to == LookupMode::NotMember {
            return Ok(match found {
                Some(_) => ExprOutcome::EndOfRule(false),
                None => ExprOutcome::Next,
            });
        }
        let Some((key, element)) = found else {
            return Ok(ExprOutcome::EndOfRule(false));
        };
        if element.counter.is_some() && *key != ElementKey::CatchAll {
            let (set, key) = (name.clone(), key.clone());
            self.counters_hit
                .push(CounterLocation::Element { set, key });
        }
        Ok(match (to, &element.data) {
            (LookupMode::Register(to), Some(MapValue::Value(value))) => {
                let value = value.clone();
                self.store_register(to.0, &value);
                ExprOutcome::Next
            }
            (LookupMode::Verdict, Some(MapValue::Verdict(NftVerdict::Continue))) => {
                ExprOutcome::Next
            }
            (LookupMode::Verdict, Some(MapValue::Verdict(_))) => ExprOutcome::EndOfRule(true),
            (LookupMode::Member, _) => ExprOutcome::Next,
            _ => ExprOutcome::EndOfRule(false),
        })
    }

    fn meta_value(&self, key: MetaKey) -> Vec<u8> {
        // The kernel compares 16 bytes, the last of them zero.
        let name = |name: &Option<Str>| {
            let mut bytes = name.as_deref().unwrap_or("").as_bytes().to_vec();
            bytes.truncate(15);
            bytes.resize(16, 0);
            bytes
        };
        match key {
            MetaKey::IifName => name(&self.packet.iif),
            MetaKey::OifName => match (&self.simulator.translated, self.hook) {
                (Some(before), Hook::Output) if self.packet.conntrack.exists() => name(before),
                _ => name(&self.packet.oif),
            },
            MetaKey::L4Proto => vec![self.packet.protocol.0],
            MetaKey::Mark => self.packet_mark.to_ne_bytes().to_vec(),
            MetaKey::NfProto => match Family::of(self.packet.source) {
                Family::V4 => vec![2],
                Family::V6 => vec![10],
            },
        }
    }

    /// Destination and header of the packet at this place: before connection tracking it is not translated.
    fn destination_and_header(&self) -> (IpAddr, L4) {
        let packet = self.packet;
        let is_translated = self.hook != Hook::Prerouting || self.is_tracked;
        match self.simulator.pre_dnat {
            Some(before) if !is_translated && !packet.conntrack.reply => {
                (before.destination, before.header(packet.l4))
            }
            _ => (packet.destination, packet.l4),
        }
    }

    /// The header's bytes, as far as rules read them.
    fn header_bytes(&self, base: PayloadBase) -> Vec<u8> {
        let frame = self.packet;
        let (destination, l4) = self.destination_and_header();
        match base {
            PayloadBase::Network => network_header(frame.source, destination),
            PayloadBase::Transport => match l4 {
                L4::Ports {
                    source,
                    destination,
                } => {
                    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
                    if frame.protocol == Protocol::TCP {
                        bytes.resize(20, 0);
                        bytes[13] = frame.tcp_flags;
                    }
                    bytes
                }
                L4::Icmp { kind, code } => {
                    let mut bytes = vec![kind, code, 0, 0];
                    if let Some((source, destination)) = self.simulator.quoted {
                        bytes.resize(8, 0);
                        bytes.extend(network_header(source, destination));
                    }
                    bytes
                }
                L4::None => Vec::new(),
            },
        }
    }
}

/// The header's bytes up to the end of the addresses.
fn network_header(source: IpAddr, destination: IpAddr) -> Vec<u8> {
    let octets = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let before_source = match Family::of(source) {
        Family::V4 => vec![0; 12],
        Family::V6 => vec![0; 8],
    };
    [before_source, octets(source), octets(destination)].concat()
}
