//! Random tables and packets over a small world, so that they often match; and the expected result for each
//! packet ([`expected`]).

pub(crate) mod expected;

use palisade_model::{
    DenyAction, Direction, DomainPattern, Family, L4, PortRange, Prefix, Protocol, Str,
};
use palisade_nft::{
    Config, ElementKey, PacketMarkBits, RedirectConfig, Ruleset, ct_state, tcp_flag,
};
use palisade_tables::{
    AuditCell, Cell, ClassId, DnsRules, IdentityId, JudgementOptions, Point, PolicySet,
    PolicySetId, PortMap, Program, RuleId, SHARE_MIN_ELEMENTS, SourcePortMap, Tables, Verdict,
    VerdictCause,
};
use palisade_verification::{ConntrackInfo, HookPacket};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

pub(crate) const OURS: [&str; 3] = ["pal0", "pal1", "wl2"];
pub(crate) const UNKNOWN: &str = "pal9";
pub(crate) const FOREIGN: [&str; 2] = ["eth0", "pa"];

/// An address of the small world: two networks of 16 addresses in each family; one has the endpoints.
pub(crate) fn address(rng: &mut SmallRng, family: Family) -> IpAddr {
    let low: u8 = rng.random_range(0..16);
    let net: u8 = rng.random_range(0..2);
    match family {
        Family::V4 => IpAddr::from([10, 0, net, low]),
        Family::V6 => IpAddr::from([0xfd00, 0, 0, u16::from(net), 0, 0, 0, u16::from(low)]),
    }
}

fn cell(rng: &mut SmallRng) -> Cell {
    let verdict = if rng.random_bool(0.5) {
        Verdict::Allow
    } else {
        Verdict::Deny
    };
    let direction = *Direction::BOTH.choose(rng).unwrap();
    let mut causes = || -> Vec<RuleId> {
        let causes = (0..rng.random_range(1..3)).map(|_| RuleId(rng.random_range(0..20)));
        causes.collect()
    };
    let (causes, audit_causes) = (causes(), causes());
    let audit = rng.random_bool(0.25).then(|| AuditCell {
        direction,
        verdict: *[Verdict::Allow, Verdict::Deny].choose(rng).unwrap(),
        causes: audit_causes,
    });
    Cell {
        verdict,
        causes,
        log: rng.random_bool(0.25).then_some(direction),
        audit: audit.map(Box::new),
        redirect: None,
    }
}

fn cuts(rng: &mut SmallRng) -> Vec<u16> {
    const NEAR: [u16; 12] = [
        0, 1, 79, 80, 81, 90, 443, 1000, 2000, 0x0800, 0x08ff, 0x8000,
    ];
    let mut ends: Vec<u16> = (0..rng.random_range(0..4))
        .map(|_| *NEAR.choose(rng).unwrap())
        .collect();
    ends.sort_unstable();
    ends.push(u16::MAX);
    ends
}

fn values(rng: &mut SmallRng, ports: bool) -> SourcePortMap {
    let ends = if ports && rng.random_bool(0.2) {
        cuts(rng)
    } else {
        vec![u16::MAX]
    };
    PortMap::from_segments(
        ends.into_iter()
            .map(|end| (end, cell(rng)))
            .collect::<Vec<_>>(),
    )
    .unwrap()
}

pub(crate) fn program(rng: &mut SmallRng) -> Program {
    let mut protocols = BTreeMap::new();
    for number in [6, 17, 132, 1, 58, 47] {
        if !rng.random_bool(0.5) {
            continue;
        }
        let protocol = Protocol(number);
        let map = if protocol.has_ports() {
            let ends = cuts(rng);
            PortMap::from_segments(
                ends.into_iter()
                    .map(|e| (e, values(rng, true)))
                    .collect::<Vec<_>>(),
            )
        } else if protocol.is_icmp() {
            let mut ends: Vec<u16> = (0..rng.random_range(0..5))
                .map(|_| {
                    let kind = *[0u8, 3, 7, 8, 12, 13, 127, 128, 129].choose(rng).unwrap();
                    let code = *[0u8, 1, 4, 255].choose(rng).unwrap();
                    u16::from_be_bytes([kind, code])
                })
                .collect();
            ends.sort_unstable();
            ends.push(u16::MAX);
            PortMap::from_segments(
                ends.into_iter()
                    .map(|e| (e, values(rng, false)))
                    .collect::<Vec<_>>(),
            )
        } else {
            PortMap::from_segments([(u16::MAX, values(rng, false))])
        };
        protocols.insert(protocol, map.unwrap());
    }
    let program = Program::new(protocols, cell(rng));
    with_redirects(rng, program)
}

/// The program, sometimes with DNS rules for some ports, or with DNS observed at one. Draws nothing from the shared random sequence.
fn with_redirects(rng: &SmallRng, program: Program) -> Program {
    let mut rng = rng.clone();
    if rng.random_bool(0.9) {
        return program;
    }
    let plain = cell(&mut rng);
    let mut protocols = Vec::new();
    for protocol in [Protocol::TCP, Protocol::UDP] {
        let segments = cuts(&mut rng).into_iter().map(|end| {
            let redirect = rng.random_bool(0.5).then(|| {
                let name = ["a", "b", "*.c"].choose(&mut rng).unwrap();
                Arc::new(DnsRules {
                    names: [DomainPattern::glob(name).unwrap()].into(),
                    default: Verdict::Deny,
                })
            });
            let cell = Cell {
                redirect,
                ..plain.clone()
            };
            (end, PortMap::constant(cell))
        });
        protocols.push((protocol, PortMap::from_segments(segments).unwrap()));
    }
    let program = if rng.random_bool(0.6) {
        program.with_redirects(&Program::new(protocols, plain))
    } else {
        program
    };
    if rng.random_bool(0.5) {
        program.with_observed_dns(&[Protocol::TCP, Protocol::UDP], PortRange::single(80))
    } else {
        program
    }
}

/// How DNS queries reach a proxy, if there is one. Draws nothing from the shared random sequence.
pub(crate) fn redirect(rng: &SmallRng) -> Option<RedirectConfig> {
    let mut rng = rng.clone();
    // So few numbers that not every class has one.
    let number_mask = *[0x0fff_0000, 0x0003_0000].choose(&mut rng).unwrap();
    rng.random_bool(0.6).then(|| RedirectConfig {
        number_mask,
        ..RedirectConfig::default()
    })
}

pub(crate) const PROOF_BIT: u32 = 0x2000;

/// The bits of the packet mark, sometimes with the one of a fast path. Draws nothing from the shared random sequence.
pub(crate) fn packet_mark(rng: &SmallRng) -> PacketMarkBits {
    let has_fast_path = rng.clone().random_bool(0.5);
    PacketMarkBits {
        proof: has_fast_path.then_some(PROOF_BIT),
        ..PacketMarkBits::default()
    }
}

/// The element count from which programs share a base: usually 1, so that small programs do as well. Draws
/// nothing from the shared random sequence.
pub(crate) fn share_from(rng: &SmallRng) -> usize {
    *[1, 1, 4, SHARE_MIN_ELEMENTS]
        .choose(&mut rng.clone())
        .unwrap()
}

/// What denials do. Draws nothing from the shared random sequence.
pub(crate) fn deny_action(rng: &SmallRng) -> DenyAction {
    if rng.clone().random_bool(0.5) {
        DenyAction::Reject
    } else {
        DenyAction::Drop
    }
}

/// A program that contains another one, and usually more where that one has no port.
pub(crate) fn kin(rng: &mut SmallRng, program: &Program) -> Program {
    let mut protocols: BTreeMap<Protocol, PortMap<SourcePortMap>> =
        program.protocols().iter().cloned().collect();
    for number in [6, 17, 1] {
        let protocol = Protocol(number);
        if !rng.random_bool(0.5) {
            continue;
        }
        let rest = PortMap::constant(PortMap::constant(program.default().clone()));
        let map = protocols.get(&protocol).unwrap_or(&rest);
        let ports = protocol.has_ports();
        let more: Vec<(u16, Option<SourcePortMap>)> = cuts(rng)
            .into_iter()
            .map(|end| (end, rng.random_bool(0.3).then(|| values(rng, ports))))
            .collect();
        let more = PortMap::from_segments(more).unwrap();
        let both = map.zip(&more, |values, more| match more {
            Some(more) if values == map.default() => more.clone(),
            _ => values.clone(),
        });
        protocols.insert(protocol, both);
    }
    Program::new(protocols, program.default().clone())
}

/// Whether a key of a class map belongs to a base.
pub(crate) fn is_of_base(key: &ElementKey) -> bool {
    match key {
        ElementKey::Exact(bytes) | ElementKey::Range(bytes, _) => {
            let number = bytes
                .get(4..8)
                .map(|b| u32::from_ne_bytes(b.try_into().unwrap()));
            number.is_some_and(|number| number >= 1 << 31)
        }
        ElementKey::CatchAll => false,
    }
}

/// The number of bases in a table.
pub(crate) fn bases(ruleset: &Ruleset) -> usize {
    let any = ruleset.sets["p_any"].elements.keys();
    any.filter(|key| is_of_base(key)).count()
}

pub(crate) fn judgement(rng: &mut SmallRng) -> JudgementOptions {
    JudgementOptions {
        judge_host_traffic: rng.random_bool(0.3),
        judge_hairpin: rng.random_bool(0.3),
        ..JudgementOptions::default()
    }
}

pub(crate) fn tables(rng: &mut SmallRng, config: &Config) -> Tables {
    let mut tables = Tables {
        judgement: config.judgement.clone(),
        ..Tables::default()
    };
    for rule in 0..20 {
        let cause = VerdictCause::MissingProfile {
            profile: format!("p{rule}").into(),
            direction: Direction::Egress,
        };
        tables.rules.insert(RuleId(rule), Arc::new(cause));
    }
    let classes = rng.random_range(2..6);
    for class in 0..classes {
        let of = match tables.programs.values().next().cloned() {
            Some(first)
                if config.min_shared_elements < SHARE_MIN_ELEMENTS && rng.random_bool(0.6) =>
            {
                kin(rng, &first)
            }
            _ => program(rng),
        };
        tables.programs.insert(ClassId(100 + class), Arc::new(of));
    }
    let class = |rng: &mut SmallRng| ClassId(100 + rng.random_range(0..classes));
    for set in 0..4 {
        let default = class(rng);
        tables
            .sets
            .insert(PolicySetId(200 + set), PolicySet { default });
    }
    let identities = rng.random_range(1..6);
    for set in 0..4 {
        for identity in 0..identities {
            if rng.random_bool(0.6) {
                let key = (PolicySetId(200 + set), IdentityId(300 + identity));
                let class = class(rng);
                tables.classes.insert(key, class);
            }
        }
    }
    for family in Family::BOTH {
        for _ in 0..rng.random_range(0..24) {
            let length = family.bits() - *[0, 0, 0, 1, 2, 3, 4].choose(rng).unwrap();
            let prefix = Prefix::new(address(rng, family), length);
            // A prefix without identity can be inside one with an identity.
            let id = if rng.random_bool(0.1) {
                0
            } else {
                300 + rng.random_range(0..identities)
            };
            tables.addresses.insert(prefix, IdentityId(id));
        }
        if rng.random_bool(0.3) {
            let id = IdentityId(300 + rng.random_range(0..identities));
            tables.addresses.insert(Prefix::all(family), id);
        }
    }
    for name in OURS {
        if !rng.random_bool(0.85) {
            continue;
        }
        tables.interfaces.insert(name.into());
        for family in Family::BOTH {
            for _ in 0..rng.random_range(0..6) {
                let address = address(rng, family);
                for direction in Direction::BOTH {
                    let interface: Str = name.into();
                    let set = PolicySetId(200 + rng.random_range(0..4));
                    tables.points.insert(
                        Point::of_workload(interface.clone(), address, direction),
                        set,
                    );
                    if !config.judgement.judge_hairpin && rng.random_bool(0.3) {
                        let set = PolicySetId(200 + rng.random_range(0..4));
                        let point = Point::of_hairpin(interface, address, direction);
                        tables.points.insert(point, set);
                    }
                }
            }
        }
    }
    tables
}

/// A random packet; `live` is the mark of the live generation.
pub(crate) fn frame(rng: &mut SmallRng, tables: &Tables, live: u32) -> HookPacket {
    let family = *Family::BOTH.choose(rng).unwrap();
    let end = |rng: &mut SmallRng| -> (Option<Str>, IpAddr) {
        let points: Vec<(&Str, IpAddr)> = tables
            .points
            .keys()
            .filter_map(Point::workload)
            .filter(|(_, own)| Family::of(*own) == family)
            .collect();
        match points.choose(rng).filter(|_| rng.random_bool(0.7)) {
            Some((interface, own)) if rng.random_bool(0.95) => (Some((*interface).clone()), *own),
            Some((interface, _)) => (Some((*interface).clone()), address(rng, family)),
            None => {
                let names = [
                    OURS[0], OURS[2], UNKNOWN, FOREIGN[0], FOREIGN[0], FOREIGN[1], "lo",
                ];
                let name = names.choose(rng).map(|name| Str::from(*name));
                (name.filter(|_| rng.random_bool(0.75)), address(rng, family))
            }
        }
    };
    let (mut iif, mut source) = end(rng);
    let (mut oif, mut destination) = end(rng);
    if iif.is_none() && oif.is_none() {
        iif = Some(FOREIGN[0].into());
    }
    let port = |rng: &mut SmallRng| {
        *[
            0, 1, 79, 80, 81, 85, 90, 91, 443, 1000, 1001, 1500, 2000, 2001, 0x8000, 65535,
        ]
        .choose(rng)
        .unwrap()
    };
    let own_icmp = if family == Family::V4 { 1 } else { 58 };
    let protocol = Protocol(
        *[6, 6, 17, 17, 132, own_icmp, own_icmp, 47, 50]
            .choose(rng)
            .unwrap(),
    );
    let mut l4 = if protocol.has_ports() {
        L4::Ports {
            source: port(rng),
            destination: port(rng),
        }
    } else if protocol.is_icmp() {
        let kinds: [u8; 7] = match family {
            Family::V4 => [8, 8, 8, 13, 3, 11, 0],
            Family::V6 => [128, 128, 128, 139, 1, 3, 129],
        };
        let kind = *kinds.choose(rng).unwrap();
        L4::Icmp {
            kind,
            code: *[0, 0, 1, 4].choose(rng).unwrap(),
        }
    } else {
        L4::None
    };
    let older = Config::default().midstream_bit();
    let mark = match rng.random_range(0..10) {
        0 => live | 5,
        1 => rng.random(),
        2 => live | older | 5,
        3 => older | 0x700,
        _ => 7,
    };
    let flags = [
        tcp_flag::SYN,
        tcp_flag::SYN,
        tcp_flag::ACK,
        tcp_flag::ACK,
        tcp_flag::SYN | tcp_flag::ACK,
    ];
    let tcp_flags = *flags.choose(rng).unwrap();
    let mut ct = ConntrackInfo {
        state: ct_state::NEW,
        reply: false,
        mark,
    };
    match rng.random_range(0..10) {
        0 => ct.state = ct_state::INVALID,
        1 => (ct.state, ct.reply) = (ct_state::RELATED, rng.random_bool(0.5)),
        2 => ct.state = ct_state::UNTRACKED,
        3 => ct.state = ct_state::ESTABLISHED,
        4..7 => {
            let answered = match &mut l4 {
                L4::Ports {
                    source,
                    destination,
                } => {
                    core::mem::swap(source, destination);
                    true
                }
                L4::Icmp { kind, .. } => {
                    let answer = answer(protocol, *kind);
                    *kind = answer.unwrap_or(*kind);
                    answer.is_some()
                }
                L4::None => true,
            };
            if answered {
                core::mem::swap(&mut iif, &mut oif);
                core::mem::swap(&mut source, &mut destination);
                (ct.state, ct.reply) = (ct_state::ESTABLISHED, true);
            }
        }
        _ => {}
    }
    HookPacket {
        iif,
        oif,
        source,
        destination,
        protocol,
        l4,
        tcp_flags,
        conntrack: ct,
    }
}

fn answer(protocol: Protocol, request: u8) -> Option<u8> {
    match (protocol.0, request) {
        (1, 8) => Some(0),
        (1, 13) => Some(14),
        (1, 15) => Some(16),
        (1, 17) => Some(18),
        (58, 128) => Some(129),
        (58, 139) => Some(140),
        _ => None,
    }
}

/// The same tables with other numbers.
pub(crate) fn renumbered(rng: &mut SmallRng, tables: &Tables) -> Tables {
    use rand::seq::SliceRandom;
    let mut shuffled = |first: u32| {
        let mut numbers: Vec<u32> = (first..first + 100).collect();
        numbers.shuffle(rng);
        move |old: u32| numbers[old as usize % 100]
    };
    let (class, set, id, rule) = (shuffled(500), shuffled(600), shuffled(700), shuffled(800));
    let id = |old: IdentityId| match old {
        IdentityId::UNKNOWN => old,
        IdentityId(old) => IdentityId(id(old)),
    };
    let class = |old: ClassId| ClassId(class(old.0));
    let set = |old: PolicySetId| PolicySetId(set(old.0));
    let rule = |old: RuleId| RuleId(rule(old.0));
    let programs = tables.programs.iter();
    Tables {
        judgement: tables.judgement.clone(),
        interfaces: tables.interfaces.clone(),
        host_interfaces: tables.host_interfaces.clone(),
        addresses: tables.addresses.iter().map(|(k, v)| (k, id(*v))).collect(),
        points: tables
            .points
            .iter()
            .map(|(k, v)| (k.clone(), set(*v)))
            .collect(),
        sets: tables
            .sets
            .iter()
            .map(|(k, v)| {
                (
                    set(*k),
                    PolicySet {
                        default: class(v.default),
                    },
                )
            })
            .collect(),
        classes: tables
            .classes
            .iter()
            .map(|(k, v)| ((set(k.0), id(k.1)), class(*v)))
            .collect(),
        programs: programs
            .map(|(k, v)| (class(*k), Arc::new(v.renumber_rules(rule))))
            .collect(),
        rules: tables
            .rules
            .iter()
            .map(|(k, v)| (rule(*k), v.clone()))
            .collect(),
    }
}

/// Applies a few changes of any kind.
pub(crate) fn mutate(rng: &mut SmallRng, config: &Config, tables: &mut Tables) {
    use rand::seq::IteratorRandom;
    for _ in 0..rng.random_range(1..4) {
        let class = *tables.programs.keys().choose(rng).unwrap();
        let id = tables
            .addresses
            .values()
            .choose(rng)
            .copied()
            .unwrap_or(IdentityId(799));
        match rng.random_range(0..7) {
            0 => {
                let family = *Family::BOTH.choose(rng).unwrap();
                let length = family.bits() - rng.random_range(0..4);
                tables
                    .addresses
                    .insert(Prefix::new(address(rng, family), length), id);
            }
            1 => {
                let prefix = tables.addresses.keys().choose(rng);
                prefix.map(|prefix| tables.addresses.remove(&prefix));
            }
            2 => {
                let set = *tables.sets.keys().choose(rng).unwrap();
                tables.sets.insert(set, PolicySet { default: class });
            }
            3 if id != IdentityId::UNKNOWN => {
                let set = *tables.sets.keys().choose(rng).unwrap();
                tables.classes.insert((set, id), class);
            }
            4 => {
                let program =
                    if config.min_shared_elements < SHARE_MIN_ELEMENTS && rng.random_bool(0.5) {
                        kin(rng, &tables.programs[&class].clone())
                    } else {
                        program(rng)
                    };
                let rules: Vec<RuleId> = tables.rules.keys().copied().collect();
                let program = program.renumber_rules(|rule| rules[rule.0 as usize % rules.len()]);
                tables.programs.insert(class, Arc::new(program));
            }
            5 => {
                let set = *tables.sets.keys().choose(rng).unwrap();
                if let Some(point) = tables.points.keys().choose(rng).cloned() {
                    tables.points.insert(point, set);
                }
            }
            _ => {
                let gone = tables.interfaces.iter().choose(rng).cloned();
                if let Some(gone) = gone {
                    tables.interfaces.remove(&gone);
                    tables.points.retain(|point, _| {
                        point
                            .workload()
                            .or(point.hairpin())
                            .is_none_or(|(interface, _)| *interface != gone)
                    });
                }
            }
        }
    }
}
