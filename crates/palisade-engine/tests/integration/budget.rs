//! The element budget bounds what policy takes, and the sets closed by it follow from the objects
//! alone.

use palisade_engine::{ElementBudget, Engine, EngineOptions, ExceededLimit, policy_cost};
use palisade_generators::line;
use palisade_model::{
    Direction, Endpoint, L4, LabelKey, Object, ObjectId, ObjectKey, Peer, Policy, PolicyId,
    PolicyMode, PortMatch, PortRange, PortSpec, Protocol, Rule, Selector, TrafficMatch, Update,
};
use palisade_tables::{Program, SHARE_MIN_ELEMENTS, Verdict, find_shared_bases};
use palisade_verification::{CanonicalTables, canonical, check};
use std::collections::BTreeSet;

fn id(name: &str, kind: &str) -> ObjectId {
    line::id(kind, &format!("shop/{name}"))
}

fn pod(name: &str, number: u8, interface: Option<&str>) -> Update {
    let written = format!("shop/{name} 10.0.0.{number} app={name}");
    Update::Upsert(Object::Endpoint(Endpoint {
        interface: interface.map(Into::into),
        ..line::endpoint(&written)
    }))
}

fn app(name: &str) -> Selector {
    Selector::equals(LabelKey::own("app"), name)
}

/// Every second port, from this one on.
fn ports(first: u16, many: u16) -> Vec<TrafficMatch> {
    let port = |n| PortSpec::Range(PortRange::single(first + 2 * n));
    let term = |n| TrafficMatch::to_port(Protocol::TCP, PortMatch::one_of([port(n)]));
    (0..many).map(term).collect()
}

fn rule(peer: Option<&str>, traffic: Vec<TrafficMatch>) -> Rule {
    Rule {
        peers: vec![peer.map_or_else(Peer::any, |peer| Peer::from_selector(app(peer)))],
        traffic,
        ..line::rule("allow")
    }
}

fn policy(name: &str, subject: &str, rules: Vec<Rule>) -> Policy {
    line::policy(&format!("shop/{name} app={subject}"), rules)
}

/// A list of ports for all peers, and peers that each have a port of their own.
fn wide(name: &str, subject: &str, list: u16, peers: u8) -> Policy {
    let mut rules = vec![rule(None, ports(1000, list))];
    for peer in 0..peers {
        let own = ports(2 + 2 * u16::from(peer), 1);
        rules.push(rule(Some(&format!("p{peer}")), own));
    }
    policy(name, subject, rules)
}

fn upsert(policy: &Policy) -> Update {
    Update::Upsert(Object::Policy(policy.clone()))
}

fn engine(set: usize, host: usize) -> Engine {
    Engine::new(EngineOptions {
        budget: ElementBudget { set, host },
        ..EngineOptions::default()
    })
}

/// The elements of all programs without sharing, and the class entries.
fn compiled(engine: &Engine) -> usize {
    let tables = engine.tables();
    let programs = tables
        .programs
        .values()
        .map(|program| program.element_count());
    programs.sum::<usize>() + tables.classes.len()
}

/// The same with the elements that large programs share counted once.
fn taken(engine: &Engine) -> usize {
    let programs = engine.tables().programs.values();
    let large = programs.filter(|program| program.element_count() >= SHARE_MIN_ELEMENTS);
    let large: Vec<&Program> = large.map(|program| &**program).collect();
    let mut taken = compiled(engine);
    for shared in find_shared_bases(&large) {
        taken += shared.base.element_count();
        for member in shared.members {
            taken -= large[member].element_count();
            taken += large[member].element_count_over(&shared.base);
        }
    }
    taken
}

fn allows(engine: &Engine, point: &str, from: &str, port: u16) -> bool {
    let tables = engine.tables();
    let of = |name: &str| engine.endpoint(&id(name, "Pod")).unwrap();
    let points = engine.points_of(&of(point).id);
    let (_, set) = points
        .iter()
        .find(|(point, _)| point.direction == Direction::Ingress)
        .unwrap();
    let identity = tables.identity(of(from).addresses[0]);
    let class = tables.class(*set, identity).unwrap();
    let l4 = L4::Ports {
        source: 40_000,
        destination: port,
    };
    let cell = tables.programs[&class].cell(Protocol::TCP, l4);
    cell.verdict == Verdict::Allow
}

/// Applies these updates and checks every intermediate state.
fn apply(engine: &mut Engine, updates: impl IntoIterator<Item = Update>) {
    let old = engine.tables().clone();
    let delta = engine.apply(updates);
    let checked = check(&old, &delta, engine.tables(), 500);
    assert!(checked.is_ok(), "{:?}", checked.err());
}

fn peers(many: u8) -> impl Iterator<Item = Update> {
    (0..many).map(|peer| pod(&format!("p{peer}"), 100 + peer, None))
}

/// The elements of the egress direction, which no policy governs: one class that allows everything
/// but encapsulation.
const UNGOVERNED: usize = 8;

/// The denial of encapsulations that rules would allow counts too: all traffic to 40 peers.
#[test]
fn what_is_denied_of_what_rules_allow_is_counted() {
    let each = |peer: u8| {
        let traffic = vec![TrafficMatch::default()];
        rule(Some(&format!("p{peer}")), traffic)
    };
    let mut policy = policy("open", "web", (0..40).map(each).collect());
    policy.egress = policy.ingress.take();
    let mut engine = engine(usize::MAX, usize::MAX);
    apply(&mut engine, peers(40));
    apply(&mut engine, [upsert(&policy), pod("web", 1, Some("pal0"))]);
    let taken = taken(&engine) - 1;
    assert!(taken > 40 * 8, "{taken}");
    let told = policy_cost(&policy).elements;
    assert!((taken..taken + 41 * 5).contains(&told), "{told} of {taken}");
}

#[test]
fn what_is_counted_is_what_a_policy_alone_takes() {
    for (list, of) in [(3000, 10), (700, 0), (2000, 1), (1, 40)] {
        let policy = wide("wide", "web", list, of);
        let mut engine = engine(usize::MAX, usize::MAX);
        apply(&mut engine, peers(of));
        apply(&mut engine, [upsert(&policy), pod("web", 1, Some("pal0"))]);
        let told = policy_cost(&policy);
        let taken = taken(&engine) - UNGOVERNED;
        let exact = usize::from(list) * (usize::from(of) + 1) > 1024;
        assert!(told.elements >= taken, "{} of {taken}", told.elements);
        let spare = if exact { 2 } else { 3 * (usize::from(of) + 1) };
        assert!(
            told.elements <= taken + spare,
            "{} of {taken}",
            told.elements
        );
        assert_eq!(
            told.rules[0].index, 0,
            "the list is the most expensive rule"
        );
        let list = usize::from(list);
        let times = if exact { 1 } else { usize::from(of) + 1 };
        assert_eq!(told.rules[0].elements, list * times);
        let whole = list * (usize::from(of) + 1);
        assert!((whole..whole + 400).contains(&told.compiled));
        assert!(compiled(&engine) - UNGOVERNED <= told.compiled);
        // The engine counts the default of each set as an entry too.
        let counted = engine.counts().elements;
        assert!(
            (taken..taken + 7).contains(&(counted - UNGOVERNED)),
            "{counted} of {taken}"
        );
        assert_eq!(
            told.required_elements(),
            told.elements.max(told.compiled.div_ceil(8))
        );
    }
}

/// A list for all peers counts once, as long as at most eight times the elements that may be
/// written are compiled for it.
#[test]
fn a_list_that_every_peer_shares_counts_once() {
    let wide = wide("wide", "web", 1000, 20);
    let told = policy_cost(&wide);
    assert!(told.elements < 1200 && told.compiled > 21_000, "{told:?}");
    let pods = || peers(20).chain([pod("web", 1, Some("pal0"))]);
    for (most, is_open) in [
        (told.required_elements(), true),
        (told.required_elements() - 100, false),
        (1500, false),
    ] {
        let mut engine = engine(most, 1_000_000);
        apply(&mut engine, pods());
        apply(&mut engine, [upsert(&wide)]);
        assert_eq!(allows(&engine, "web", "p3", 1000), is_open, "{most}");
        assert_eq!(engine.over_budget().is_empty(), is_open, "{most}");
        // The same if peers are added one by one and removed.
        let mut engine = self::engine(most, 1_000_000);
        apply(&mut engine, [upsert(&wide), pod("web", 1, Some("pal0"))]);
        for peer in peers(20) {
            apply(&mut engine, [peer]);
            assert!(engine.counts().elements <= 1200);
            assert!(compiled(&engine) <= 8 * most + 1100);
        }
        assert_eq!(allows(&engine, "web", "p3", 1000), is_open, "{most}");
        let gone =
            (0..15).map(|n| Update::Delete(ObjectKey::Endpoint(id(&format!("p{n}"), "Pod"))));
        apply(&mut engine, gone);
        assert!(engine.over_budget().is_empty() && allows(&engine, "web", "p17", 1000));
    }
}

#[test]
fn counting_does_not_take_what_it_counts() {
    // 400 peers, each with a list of its own and one for all: 26 million elements; what the
    // compiled programs share is counted once.
    let mut rules = vec![rule(None, ports(1, 32_000))];
    rules.extend((1..400).map(|n| rule(Some(&format!("p{n}")), ports(2, 32_000))));
    let told = policy_cost(&policy("wide", "web", rules));
    assert!(
        told.compiled > 20_000_000 && told.compiled < 30_000_000,
        "{}",
        told.compiled
    );
    assert!(told.required_elements() > 15_000_000);
    assert_eq!(told.rules[0].index, 0);
    assert!(told.rules[0].elements > 11_000_000);
}

#[test]
fn a_list_written_port_by_port_costs_its_ranges() {
    let port = |n| PortSpec::Range(PortRange::single(n));
    let term = |n| TrafficMatch::to_port(Protocol::TCP, PortMatch::one_of([port(n)]));
    let adjacent = (1..=30_000).map(term).collect();
    let policy = policy("wide", "web", vec![rule(None, adjacent)]);
    assert!(
        policy_cost(&policy).elements < 8,
        "{:?}",
        policy_cost(&policy)
    );
    let mut engine = engine(16, 16);
    apply(
        &mut engine,
        [
            upsert(&policy),
            pod("web", 1, Some("pal0")),
            pod("p0", 2, None),
        ],
    );
    assert_eq!(engine.over_budget(), []);
    assert!(allows(&engine, "web", "p0", 30_000) && !allows(&engine, "web", "p0", 30_001));
}

#[test]
fn a_set_past_its_budget_is_closed_whole_and_opens_again() {
    let mut engine = engine(2000, 1_000_000);
    apply(&mut engine, peers(10).chain([pod("web", 1, Some("pal0"))]));
    apply(&mut engine, [upsert(&wide("wide", "web", 100, 10))]);
    assert!(allows(&engine, "web", "p3", 1000) && engine.over_budget().is_empty());
    apply(&mut engine, [upsert(&wide("wide", "web", 2500, 10))]);
    assert!(!allows(&engine, "web", "p3", 1000), "closed");
    assert!(taken(&engine) < 10, "{}", taken(&engine));
    let over = engine.over_budget();
    assert_eq!(over.len(), 1);
    let (bound, budget, elements) = (over[0].exceeded, over[0].budget, over[0].elements);
    assert_eq!((bound, budget), (ExceededLimit::Set, 2000));
    assert!((2500..2600).contains(&elements), "{elements}");
    assert_eq!(
        (over[0].rules[0].index, over[0].rules[0].elements),
        (0, 2500)
    );
    // Too large even without most of its peers: the list alone exceeds the limit.
    let gone = (1..10).map(|n| Update::Delete(ObjectKey::Endpoint(id(&format!("p{n}"), "Pod"))));
    apply(&mut engine, gone);
    assert!(
        engine.over_budget().len() == 1,
        "2500 ports, with any peers"
    );
    engine.set_budget(ElementBudget {
        set: 2600,
        host: 1_000_000,
    });
    apply(&mut engine, []);
    assert_eq!(engine.over_budget(), []);
    assert!(allows(&engine, "web", "p0", 5998));
    engine.set_budget(ElementBudget {
        set: 50,
        host: 1_000_000,
    });
    apply(&mut engine, []);
    assert!(!allows(&engine, "web", "p0", 5998));
    apply(&mut engine, [upsert(&wide("wide", "web", 10, 1))]);
    assert!(allows(&engine, "web", "p0", 1000) && engine.over_budget().is_empty());
}

#[test]
fn policies_that_are_small_alone_are_bounded_together() {
    let mut engine = engine(2000, 1_000_000);
    apply(&mut engine, peers(20).chain([pod("web", 1, Some("pal0"))]));
    let list = policy("list", "web", vec![rule(None, ports(1000, 900))]);
    let many = policy(
        "many",
        "web",
        (0..20)
            .map(|n| rule(Some(&format!("p{n}")), ports(2, 1)))
            .collect(),
    );
    assert!(policy_cost(&list).elements < 2000 && policy_cost(&many).elements < 2000);
    apply(&mut engine, [upsert(&list), upsert(&many)]);
    let over = engine.over_budget();
    assert_eq!(over.len(), 1);
    assert_eq!(over[0].policies, [list.id.clone(), many.id.clone()]);
    assert_eq!(over[0].rules[0].policy, list.id);
    assert!(taken(&engine) < 10);
}

/// The host budget is allocated to sets by the names of their policies, whatever the order of
/// updates.
#[test]
fn room_on_the_host_does_not_depend_on_order() {
    let subjects = ["a", "b", "c", "d"];
    let lists = [900, 1200, 300, 900];
    let mut updates: Vec<Update> = Vec::new();
    for ((number, subject), list) in (1..).zip(subjects).zip(lists) {
        let interface = format!("pal{subject}");
        updates.push(pod(subject, number, Some(&interface)));
        updates.push(upsert(&wide(subject, subject, list, 0)));
    }
    let mut seen: Option<(CanonicalTables, Vec<PolicyId>)> = None;
    for turn in 0..updates.len() {
        for backwards in [false, true] {
            let mut order = updates.clone();
            order.rotate_left(turn);
            if backwards {
                order.reverse();
            }
            let mut engine = engine(1500, 1600);
            for update in order {
                apply(&mut engine, [update]);
                assert!(taken(&engine) <= 1600 + 20);
            }
            let over = engine.over_budget();
            assert!(
                over.iter()
                    .all(|over| over.exceeded == ExceededLimit::Host && over.budget == 1600)
            );
            let closed = over.into_iter().flat_map(|over| over.policies).collect();
            let now = (canonical(engine.tables()), closed);
            match &seen {
                None => seen = Some(now),
                Some(before) => assert_eq!(*before, now, "turn {turn}, backwards {backwards}"),
            }
        }
    }
    let closed: Vec<String> = seen
        .unwrap()
        .1
        .iter()
        .map(|p| p.object.name.to_string())
        .collect();
    assert_eq!(
        closed,
        ["b", "d"],
        "first by name, then those that still fit"
    );
}

/// A policy in audit that would exceed a limit is not enforced either: what it would decide is left out, by
/// the names of policies where they exceed the host's limit together, whatever the order of updates.
#[test]
fn what_is_in_audit_closes_nothing() {
    let audited = |name: &str, list| {
        let mut policy = wide(name, name, list, 3);
        policy.mode = PolicyMode::Audit;
        policy
    };
    let mut updates: Vec<Update> = peers(3).collect();
    for (number, name) in (1..).zip(["a", "b", "c"]) {
        updates.push(pod(name, number, Some(&format!("pal{name}"))));
        updates.push(upsert(&audited(name, if name == "a" { 3000 } else { 900 })));
    }
    let mut seen: Option<CanonicalTables> = None;
    for turn in 0..updates.len() {
        let mut order = updates.clone();
        order.rotate_left(turn);
        let mut engine = engine(2000, 1600);
        for update in order {
            apply(&mut engine, [update]);
        }
        assert_eq!(engine.over_budget(), []);
        assert!(
            ["a", "b", "c"]
                .iter()
                .all(|name| allows(&engine, name, "p0", 7))
        );
        let lacking = engine.unaudited_policies().into_iter();
        let lacking: Vec<String> = lacking
            .flat_map(|(_, policies)| policies)
            .map(|id| id.object.name.to_string())
            .collect();
        assert_eq!(lacking, ["a", "c"], "turn {turn}");
        let now = canonical(engine.tables());
        match &seen {
            None => seen = Some(now),
            Some(before) => assert_eq!(*before, now, "turn {turn}"),
        }
    }
    // With room for it, it is told again.
    let mut engine = engine(2000, 1600);
    apply(&mut engine, updates);
    apply(
        &mut engine,
        [Update::Delete(ObjectKey::Endpoint(id("b", "Pod")))],
    );
    let lacking = engine.unaudited_policies();
    assert!(lacking.len() == 1 && &*lacking[0].1[0].object.name == "a");
}

/// Whatever was left out or closed for the host's limit, and came back: the outcome is that of a fresh start.
#[test]
fn what_is_left_out_for_the_host_follows_from_the_objects_alone() {
    let names = ["a", "b", "c", "d", "e"];
    let numbered = || (1..).zip(names);
    let mut engine = engine(400, 260);
    apply(&mut engine, peers(3));
    let lists = [6, 60, 140, 220, 500];
    let mut outcomes = BTreeSet::new();
    for step in 0..60_usize {
        let (number, name) = numbered().nth(step * 7 % names.len()).unwrap();
        let mut policy = wide(name, name, lists[(step * 3 + step / 5) % lists.len()], 3);
        if step * 5 % 7 < 4 {
            policy.mode = PolicyMode::Audit;
        }
        let update = match step % 8 {
            3 => Update::Delete(ObjectKey::Endpoint(id(name, "Pod"))),
            5 => pod(&format!("q{}", step % 3), 200, None),
            _ => pod(name, number, Some(&format!("pal{name}"))),
        };
        engine.apply([upsert(&policy)]);
        engine.apply([update]);
        let mut fresh = self::engine(400, 260);
        fresh.apply(engine.state().objects().map(Update::Upsert));
        let closed = engine.over_budget();
        assert_eq!(closed, fresh.over_budget(), "step {step}");
        let lacking = engine.unaudited_policies();
        assert_eq!(lacking, fresh.unaudited_policies(), "step {step}");
        assert_eq!(
            canonical(engine.tables()),
            canonical(fresh.tables()),
            "step {step}"
        );
        let for_host = closed
            .iter()
            .filter(|set| set.exceeded == ExceededLimit::Host);
        outcomes.insert((for_host.count(), lacking.len()));
    }
    // With and without each, and several of them.
    assert!(outcomes.len() > 4, "{outcomes:?}");
}
