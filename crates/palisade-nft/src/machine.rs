//! A model of what the kernel does with a ruleset and a packet.
//!
//! Tests compare it with [`Tables::judge`](palisade_tables::Tables::judge), so a plan's meaning is
//! checked without a kernel; and since it can begin a packet on one ruleset and end it on the next,
//! so are packets that are on their way while a step is made.

use crate::names::ifname;
use crate::{Chain, CmpOp, CtKey, Expr, Hook, LookupTo, MetaKey, PayloadBase, Place, Ruleset};
use crate::{Datum, Key, Verdict, ct_state, ct_status};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{Family, L4, Protocol, Str};

/// A packet as the hooks see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The interface it came in by; `None` if this host's own stack made it.
    pub iif: Option<Str>,
    /// The interface it leaves by; `None` if it is for this host.
    pub oif: Option<Str>,
    /// Its own source address.
    pub source: IpAddr,
    /// Its own destination address.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// What stands in its own transport header.
    pub l4: L4,
    /// The flags in it, if it is TCP: see [`tcp_flag`](crate::tcp_flag).
    pub tcp_flags: u8,
    /// What connection tracking says.
    pub ct: Ct,
}

/// What connection tracking says about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ct {
    /// One of the bits of [`ct_state`].
    pub state: u32,
    /// Whether it runs against the first packet of its connection.
    pub reply: bool,
    /// The connection's mark.
    pub mark: u32,
}

impl Ct {
    /// The first packet of a flow.
    pub const NEW: Ct = Ct {
        state: ct_state::NEW,
        reply: false,
        mark: 0,
    };

    fn exists(self) -> bool {
        self.state & (ct_state::INVALID | ct_state::UNTRACKED) == 0
    }
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it passed every hook.
    pub accepted: bool,
    /// The connection's mark afterwards.
    pub mark: u32,
    /// Whether the packet's own mark, which belongs to others, is what it was.
    pub packet_mark_kept: bool,
    /// The counters that counted it, in order.
    pub counted: Vec<Place>,
    /// The prefixes under which it was logged, in order. No limit is ever reached here.
    pub logged: Vec<Str>,
    /// Rules evaluated and lookups made: what it cost.
    pub cost: Cost,
}

/// The work for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Rules of which at least one expression was evaluated.
    pub rules: usize,
    /// Set lookups.
    pub lookups: usize,
}

/// Why a ruleset cannot be run: what [`lint`](crate::lint) refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// A chain that is not there.
    NoChain(Str),
    /// A set that is not there.
    NoSet(Str),
    /// An expression that Palisade never writes.
    Unknown(Str),
    /// Chains that go to each other without end.
    Loop,
}

/// The mark that every packet comes with: somebody else's.
const PACKET_MARK: u32 = 0x4000_8001;

/// Runs packets.
pub struct Machine<'a> {
    first: &'a Ruleset,
    second: &'a Ruleset,
    /// The number of steps (of rules evaluated) after which the second ruleset counts.
    switch: usize,
    /// Whether the flow is translated, and by which interface its packet was to leave before it was.
    translated: Option<Option<Str>>,
}

enum Flow {
    Next,
    End(bool),
}

struct Run<'a> {
    machine: &'a Machine<'a>,
    frame: &'a Frame,
    hook: Hook,
    registers: [u8; 64],
    mark: u32,
    packet_mark: u32,
    counted: Vec<Place>,
    logged: Vec<Str>,
    cost: Cost,
    steps: usize,
}

impl<'a> Machine<'a> {
    /// Packets that see one ruleset.
    pub fn new(ruleset: &'a Ruleset) -> Self {
        Machine {
            first: ruleset,
            second: ruleset,
            switch: 0,
            translated: None,
        }
    }

    /// Packets that see the first ruleset for this many expressions, and then the second.
    pub fn between(first: &'a Ruleset, second: &'a Ruleset, switch: usize) -> Self {
        Machine {
            first,
            second,
            switch,
            translated: None,
        }
    }

    /// Packets of flows whose destination is translated. One that this host's own stack makes was to
    /// leave by `before` when its way through the output hook began: that is what rules there see,
    /// though its addresses are the new ones. What belongs to no connection is never translated.
    #[must_use]
    pub fn translated(mut self, before: Option<Str>) -> Self {
        self.translated = Some(before);
        self
    }

    /// Runs a packet through all hooks that it passes.
    ///
    /// # Errors
    ///
    /// The ruleset cannot be run.
    pub fn run(&self, frame: &Frame) -> Result<Outcome, Stuck> {
        let mut run = Run {
            machine: self,
            frame,
            hook: Hook::Prerouting,
            registers: [0xa5; 64],
            mark: frame.ct.mark,
            packet_mark: PACKET_MARK,
            counted: Vec::new(),
            logged: Vec::new(),
            cost: Cost::default(),
            steps: 0,
        };
        let hooks: &[Hook] = match (&frame.iif, &frame.oif) {
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
                if let Some(base) = chain.base.filter(|base| base.hook == *hook) {
                    bases.push((base.priority, name));
                }
            }
            bases.sort();
            let names: Vec<Str> = bases.into_iter().map(|(_, name)| name.clone()).collect();
            for name in names {
                accepted = accepted && run.base(&name)?;
            }
        }
        Ok(Outcome {
            accepted,
            mark: run.mark,
            packet_mark_kept: run.packet_mark == PACKET_MARK,
            counted: run.counted,
            logged: run.logged,
            cost: run.cost,
        })
    }
}

impl<'a> Run<'a> {
    fn ruleset(&self) -> &'a Ruleset {
        if self.steps < self.machine.switch {
            self.machine.first
        } else {
            self.machine.second
        }
    }

    fn base(&mut self, name: &Str) -> Result<bool, Stuck> {
        let Some(chain) = self.ruleset().chains.get(name) else {
            return Ok(true);
        };
        let accept = chain
            .base
            .is_none_or(|base| base.policy == crate::Policy::Accept);
        // A chain that the packet is in stays as it was when it was entered, as in the kernel.
        let mut stack: Vec<(&'a Chain, Str, usize)> = vec![(chain, name.clone(), 0)];
        let mut entered = 0;
        while let Some((chain, name, index)) = stack.pop() {
            let Some(rule) = chain.rules.get(index) else {
                continue;
            };
            stack.push((chain, name.clone(), index + 1));
            let verdict = self.rule(&rule.exprs, &name, index)?;
            match verdict {
                None | Some(Verdict::Continue) => {}
                Some(Verdict::Accept) => return Ok(true),
                Some(Verdict::Drop) => return Ok(false),
                Some(Verdict::Return) => drop(stack.pop()),
                Some(to @ (Verdict::Jump(_) | Verdict::Goto(_))) => {
                    if matches!(to, Verdict::Goto(_)) {
                        stack.pop();
                    }
                    let Some(to) = to.chain() else { continue };
                    let chain = self.ruleset().chains.get(to);
                    let chain = chain.ok_or_else(|| Stuck::NoChain(to.clone()))?;
                    stack.push((chain, to.clone(), 0));
                    entered += 1;
                    if entered > 1000 {
                        return Err(Stuck::Loop);
                    }
                }
            }
        }
        Ok(accept)
    }

    /// Evaluates a rule; `None` if it broke or ended without a verdict.
    fn rule(&mut self, exprs: &[Expr], chain: &Str, at: usize) -> Result<Option<Verdict>, Stuck> {
        self.cost.rules += 1;
        for expr in exprs {
            self.steps += 1;
            match self.expr(expr, chain, at)? {
                Flow::Next => {}
                Flow::End(false) => return Ok(None),
                Flow::End(true) => return Ok(self.verdict(expr)),
            }
        }
        Ok(None)
    }

    /// The verdict that an expression which ended a rule gave.
    fn verdict(&self, expr: &Expr) -> Option<Verdict> {
        match expr {
            Expr::Verdict(verdict) => Some(verdict.clone()),
            Expr::Lookup { set, sreg, .. } => {
                let set = self.ruleset().sets.get(set)?;
                let key = self.read(sreg.0, set.decl.key_len());
                match &set.find(&key)?.1.data {
                    Some(Datum::Verdict(verdict)) => Some(verdict.clone()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn read(&self, register: u8, len: usize) -> Vec<u8> {
        let at = usize::from(register) * 4;
        self.registers[at..at + len].to_vec()
    }

    /// Writes a value; what is left of its last register is zeroed.
    fn write(&mut self, register: u8, value: &[u8]) {
        let at = usize::from(register) * 4;
        self.registers[at..at + value.len().div_ceil(4) * 4].fill(0);
        self.registers[at..at + value.len()].copy_from_slice(value);
    }

    fn expr(&mut self, expr: &Expr, chain: &Str, at: usize) -> Result<Flow, Stuck> {
        let go = |holds| if holds { Flow::Next } else { Flow::End(false) };
        Ok(match expr {
            Expr::Meta { key, dreg } => {
                let value = self.meta(*key);
                self.write(dreg.0, &value);
                Flow::Next
            }
            Expr::Payload {
                base,
                offset,
                len,
                dreg,
            } => {
                let bytes = self.header(*base);
                let range = *offset as usize..(*offset + *len) as usize;
                match bytes.get(range) {
                    Some(value) => {
                        self.write(dreg.0, value);
                        Flow::Next
                    }
                    None => Flow::End(false),
                }
            }
            Expr::CtLoad { key, dreg } => {
                let ct = self.frame.ct;
                if *key != CtKey::State && !ct.exists() {
                    return Ok(Flow::End(false));
                }
                match key {
                    CtKey::State => self.write(dreg.0, &ct.state.to_ne_bytes()),
                    CtKey::Direction => self.write(dreg.0, &[u8::from(ct.reply)]),
                    CtKey::Mark => self.write(dreg.0, &self.mark.to_ne_bytes()),
                    CtKey::Status => {
                        let is_translated = self.machine.translated.is_some();
                        let status = u32::from(is_translated) * ct_status::TRANSLATED;
                        self.write(dreg.0, &status.to_ne_bytes());
                    }
                }
                Flow::Next
            }
            Expr::MetaSet { key, sreg } => {
                if *key == MetaKey::Mark {
                    let value = self.read(sreg.0, 4);
                    self.packet_mark = crate::names::number(&value).unwrap_or_default();
                }
                Flow::Next
            }
            Expr::CtSet { key, sreg } => {
                if *key == CtKey::Mark && self.frame.ct.exists() {
                    let value = self.read(sreg.0, 4);
                    self.mark = crate::names::number(&value).unwrap_or_default();
                }
                Flow::Next
            }
            Expr::Bitwise {
                sreg,
                dreg,
                mask,
                xor,
            } => {
                let mut value = self.read(sreg.0, mask.len());
                for (byte, (mask, xor)) in value.iter_mut().zip(mask.iter().zip(xor)) {
                    *byte = *byte & mask ^ xor;
                }
                self.write(dreg.0, &value);
                Flow::Next
            }
            Expr::Cmp { sreg, op, value } => {
                let order = self.read(sreg.0, value.len()).as_slice().cmp(value);
                go(match op {
                    CmpOp::Eq => order.is_eq(),
                    CmpOp::Neq => order.is_ne(),
                    CmpOp::Lt => order.is_lt(),
                    CmpOp::Lte => order.is_le(),
                    CmpOp::Gt => order.is_gt(),
                    CmpOp::Gte => order.is_ge(),
                })
            }
            Expr::Lookup { set, sreg, to } => return self.lookup(set, sreg.0, *to),
            Expr::Immediate { dreg, value } => {
                self.write(dreg.0, value);
                Flow::Next
            }
            Expr::Counter(_) => {
                let chain = chain.clone();
                self.counted.push(Place::Rule { chain, index: at });
                Flow::Next
            }
            Expr::Limit { .. } => Flow::Next,
            Expr::Log { prefix, .. } => {
                self.logged.push(prefix.clone());
                Flow::Next
            }
            Expr::Verdict(_) => Flow::End(true),
            // What judges never translates.
            Expr::Masquerade => return Err(Stuck::Unknown("masq".into())),
            Expr::Unknown(name) => return Err(Stuck::Unknown(name.clone())),
        })
    }

    fn lookup(&mut self, name: &Str, from: u8, to: LookupTo) -> Result<Flow, Stuck> {
        self.cost.lookups += 1;
        let set = self.ruleset().sets.get(name);
        let set = set.ok_or_else(|| Stuck::NoSet(name.clone()))?;
        let key = self.read(from, set.decl.key_len());
        let found = set.find(&key);
        if to == LookupTo::NotMember {
            return Ok(match found {
                Some(_) => Flow::End(false),
                None => Flow::Next,
            });
        }
        let Some((key, element)) = found else {
            return Ok(Flow::End(false));
        };
        if element.counter.is_some() && *key != Key::CatchAll {
            let (set, key) = (name.clone(), key.clone());
            self.counted.push(Place::Element { set, key });
        }
        Ok(match (to, &element.data) {
            (LookupTo::Register(to), Some(Datum::Value(value))) => {
                let value = value.clone();
                self.write(to.0, &value);
                Flow::Next
            }
            (LookupTo::Verdict, Some(Datum::Verdict(Verdict::Continue))) => Flow::Next,
            (LookupTo::Verdict, Some(Datum::Verdict(_))) => Flow::End(true),
            (LookupTo::Member, _) => Flow::Next,
            _ => Flow::End(false),
        })
    }

    fn meta(&self, key: MetaKey) -> Vec<u8> {
        let name = |name: &Option<Str>| ifname(name.as_deref().unwrap_or("")).to_vec();
        match key {
            MetaKey::IifName => name(&self.frame.iif),
            MetaKey::OifName => match (&self.machine.translated, self.hook) {
                (Some(before), Hook::Output) if self.frame.ct.exists() => name(before),
                _ => name(&self.frame.oif),
            },
            MetaKey::L4Proto => vec![self.frame.protocol.0],
            MetaKey::Mark => self.packet_mark.to_ne_bytes().to_vec(),
            MetaKey::NfProto => match Family::of(self.frame.source) {
                Family::V4 => vec![2],
                Family::V6 => vec![10],
            },
        }
    }

    /// The header's bytes, as far as they matter.
    fn header(&self, base: PayloadBase) -> Vec<u8> {
        let frame = self.frame;
        match base {
            PayloadBase::Network => {
                let mut bytes = match Family::of(frame.source) {
                    Family::V4 => vec![0u8; 12],
                    Family::V6 => vec![0u8; 8],
                };
                bytes.extend_from_slice(&crate::names::address(frame.source));
                bytes.extend_from_slice(&crate::names::address(frame.destination));
                bytes
            }
            PayloadBase::Transport => match frame.l4 {
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
                L4::Icmp { kind, code } => vec![kind, code, 0, 0],
                L4::None => Vec::new(),
            },
        }
    }
}
