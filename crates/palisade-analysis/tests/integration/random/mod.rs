//! Compares connections, diff and explain with the oracle, flow by flow, on random states.
//!
//! Every case generates a small state over the whole model and computes its connections (or the diff of
//! two states). Then it generates flows between any two ends and compares the listing with the oracle's
//! verdict for each.

mod flows;
mod generate;
mod hosts;
mod lint;

use generate::{Dice, put_in_audit};
use palisade_analysis::{
    Connection, ConnectionEnd, ConnectionFilter, StateView, connections, diff, explain,
    grouped_connections, grouped_diff,
};
use palisade_api::{DecisionReport, ExplainQuery, ProtocolName, VerdictWord, WorkloadRef};
use palisade_generators::case_seeds;
use palisade_model::{
    Encapsulations, Endpoint, FailsafePorts, Family, FlowOrigin, L4, PolicyView, Protocol, State,
};
use palisade_oracle::{FlowEnd, OracleOptions, PreparedState, Question};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One end of a random flow: the input of the oracle, and the names that a listing may have for it.
struct Side {
    end: FlowEnd,
    family: Option<Family>,
    names: Vec<WorkloadRef>,
    address: Option<IpAddr>,
}

fn sides(state: &State, dice: &mut Dice) -> Vec<Side> {
    let prepared = PreparedState::new(state);
    let mut sides = Vec::new();
    let owned = |e: &Endpoint| {
        let mut names = vec![WorkloadRef::from_endpoint(e)];
        names.extend(e.metadata.owner.as_ref().map(|owner| WorkloadRef {
            namespace: e.id.namespace.clone(),
            name: owner.name.clone(),
            kind: owner.kind.clone(),
            address: None,
        }));
        names
    };
    for endpoint in state.endpoints.values().filter(|e| !e.is_host()) {
        if endpoint.addresses.is_empty() {
            sides.push(Side {
                end: FlowEnd::Endpoint(endpoint.id.clone()),
                family: None,
                names: owned(endpoint),
                address: None,
            });
        }
    }
    let mut addresses: Vec<IpAddr> = prepared.claims().keys().copied().collect();
    addresses.extend((0..12).map(|_| dice.address()));
    for address in addresses {
        let holder = prepared.address_holder(address).filter(|e| !e.is_host());
        let mut names = holder.map(owned).unwrap_or_default();
        let at = |name: &WorkloadRef| WorkloadRef {
            address: Some(address),
            ..name.clone()
        };
        names.extend(names.iter().map(at).collect::<Vec<_>>());
        sides.push(Side {
            end: FlowEnd::Address(address),
            family: Some(Family::of(address)),
            names,
            address: Some(address),
        });
    }
    sides
}

fn covers(party: &ConnectionEnd, side: &Side) -> bool {
    match party {
        ConnectionEnd::Workload(workload) => side.names.contains(workload),
        ConnectionEnd::Outside(prefix) => {
            side.names.is_empty() && side.address.is_some_and(|a| prefix.contains(a))
        }
        ConnectionEnd::Group(group) => group.iter().any(|w| side.names.contains(w)),
        ConnectionEnd::Networks(networks) => {
            side.names.is_empty() && side.address.is_some_and(|a| networks.contains(a))
        }
        // Known addresses are listed as addresses.
        ConnectionEnd::Names(_) => false,
    }
}

fn listed(list: &[Connection], from: &Side, to: &Side, q: &Question) -> bool {
    list.iter().any(|c| {
        covers(&c.src, from)
            && covers(&c.dst, to)
            && c.family.is_none_or(|f| f == q.family)
            && c.connections.contains(q.protocol, q.l4)
    })
}

fn question(from: &Side, to: &Side, dice: &mut Dice) -> Option<Question> {
    let family = match (from.family, to.family) {
        (Some(a), Some(b)) if a != b => return None,
        (Some(family), _) | (_, Some(family)) => family,
        (None, None) => Family::BOTH[dice.below(2)],
    };
    let (protocol, l4) = dice.traffic();
    Some(Question {
        source: from.end.clone(),
        destination: to.end.clone(),
        family,
        protocol,
        l4,
        origin: FlowOrigin::Network,
        path: palisade_oracle::HostPath::default(),
    })
}

/// Whether policy allows a flow. Listings do not include the effect of configuration.
fn allowed(prepared: &PreparedState<'_>, question: &Question) -> bool {
    allowed_in(PolicyView::Enforced, prepared, question)
}

fn allowed_in(view: PolicyView, prepared: &PreparedState<'_>, question: &Question) -> bool {
    let options = OracleOptions {
        view,
        allowed_encapsulation: Encapsulations::ALL,
        ..OracleOptions::default()
    };
    let (egress, ingress) = prepared.verdict(question, &options);
    egress && ingress
}

/// Whether listings cover a flow: not one between two outside ends, nor inside one workload.
/// Pods of one owner are several workloads only where the listing names them separately.
fn is_listable(lists: &[&[Connection]], from: &Side, to: &Side) -> bool {
    let (Some(a), Some(b)) = (from.names.first(), to.names.first()) else {
        return !from.names.is_empty() || !to.names.is_empty();
    };
    let shared = from.names.iter().any(|name| to.names.contains(name));
    let named = |party: &ConnectionEnd| match party {
        ConnectionEnd::Workload(w) => [a, b].contains(&&WorkloadRef {
            address: None,
            ..w.clone()
        }),
        _ => false,
    };
    let mut all = lists.iter().copied().flatten();
    !shared || (a != b && all.any(|c| named(&c.src) || named(&c.dst)))
}

/// Counts the forms of rows in a listing.
fn count(connection: &Connection, features: &mut BTreeMap<&str, usize>) {
    let mut seen = |feature| *features.entry(feature).or_default() += 1;
    for party in [&connection.src, &connection.dst] {
        match party {
            ConnectionEnd::Workload(w) if w.address.is_some() => seen("one address of a pod"),
            ConnectionEnd::Workload(w) if &*w.kind == "ReplicaSet" => seen("an owner's pods"),
            ConnectionEnd::Workload(_) => seen("a pod"),
            ConnectionEnd::Names(_) => seen("addresses of names"),
            ConnectionEnd::Group(_) | ConnectionEnd::Outside(_) | ConnectionEnd::Networks(_) => {}
        }
    }
    if connection.family.is_some() {
        seen("families that differ");
    }
    for entry in connection.connections.entries() {
        match entry.protocol {
            ProtocolName::Number(_) => seen("a protocol by number"),
            ProtocolName::Other => seen("every other protocol"),
            _ => {}
        }
        match (entry.source_ports, entry.codes, entry.types.is_some()) {
            (Some(_), _, _) => seen("source ports"),
            (_, Some(_), _) => seen("ICMP codes"),
            (_, _, true) => seen("ICMP types"),
            _ => {}
        }
    }
}

#[test]
fn connections_say_what_the_oracle_says() {
    let mut features: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut asked, mut passed) = (0, 0);
    for seed in case_seeds(0, 600) {
        let mut dice = Dice::new(seed);
        let mut state = dice.state();
        put_in_audit(&mut state, seed);
        // Every third as if nothing were in audit.
        let view = PolicyView::BOTH[usize::from(seed.is_multiple_of(3))];
        let list = connections(StateView {
            state: &state,
            view,
        });
        list.iter().for_each(|c| count(c, &mut features));
        let prepared = PreparedState::new(&state);
        let sides = sides(&state, &mut dice);
        for from in &sides {
            for to in &sides {
                let Some(q) =
                    question(from, to, &mut dice).filter(|_| is_listable(&[&list], from, to))
                else {
                    continue;
                };
                let expected = allowed_in(view, &prepared, &q);
                assert_eq!(
                    listed(&list, from, to, &q),
                    expected,
                    "seed {seed}: {q:?}\n{state:#?}"
                );
                asked += 1;
                passed += usize::from(expected);
            }
        }
    }
    println!("{asked} flows, {passed} allowed, {features:?}");
    assert_eq!(features.len(), 10, "a form that no case had: {features:?}");
    assert!(passed * 4 > asked && passed * 4 < asked * 3);
}

#[test]
fn diff_says_where_the_oracle_changes_its_mind() {
    let (mut asked, mut changed) = (0, 0);
    for seed in case_seeds(10_000, 400) {
        let mut dice = Dice::new(seed);
        let mut old = dice.state();
        let mut new = dice.edited(&old);
        put_in_audit(&mut old, seed);
        put_in_audit(&mut new, seed.wrapping_add(1));
        let diff = diff(&old, &new);
        let lists: [&[Connection]; 2] = [&diff.opened, &diff.closed];
        let (before, after) = (PreparedState::new(&old), PreparedState::new(&new));
        let old_sides = sides(&old, &mut dice);
        let new_sides = sides(&new, &mut dice);
        let twin = |side: &Side| {
            let same = |other: &&Side| other.end == side.end && other.names == side.names;
            new_sides.iter().any(|other| same(&other)) || {
                let outside =
                    |p: &PreparedState<'_>, a| p.address_holder(a).is_none_or(|e| e.is_host());
                side.names.is_empty() && side.address.is_some_and(|a| outside(&after, a))
            }
        };
        for from in old_sides.iter().filter(|side| twin(side)) {
            for to in old_sides.iter().filter(|side| twin(side)) {
                let Some(q) =
                    question(from, to, &mut dice).filter(|_| is_listable(&lists, from, to))
                else {
                    continue;
                };
                let expected = (allowed(&before, &q), allowed(&after, &q));
                let opened = listed(&diff.opened, from, to, &q);
                let closed = listed(&diff.closed, from, to, &q);
                let said = (expected == (false, true), expected == (true, false));
                assert_eq!((opened, closed), said, "seed {seed}: {q:?}");
                asked += 1;
                changed += usize::from(expected.0 != expected.1);
            }
        }
    }
    println!("{asked} flows, {changed} changed");
    assert!(changed * 50 > asked);
}

/// Expands grouped rows to (source, destination, family, traffic); the outside is compared separately.
fn taken_apart(rows: &[Connection]) -> Vec<(WorkloadRef, WorkloadRef, String, String)> {
    let mut pairs = Vec::new();
    for row in rows {
        for src in row.src.workloads() {
            for dst in row.dst.workloads().iter().filter(|dst| *dst != src) {
                let pod = |w: &WorkloadRef| WorkloadRef {
                    address: None,
                    ..w.clone()
                };
                let apart = src.address.is_some() && dst.address.is_some();
                if apart && pod(src) == pod(dst) {
                    continue;
                }
                let family = format!("{:?}", row.family);
                let set = row.connections.to_string();
                pairs.push((src.clone(), dst.clone(), family, set));
            }
        }
    }
    pairs.sort();
    pairs
}

/// The traffic between an outside address and a workload, according to grouped rows.
fn outside(rows: &[Connection], address: IpAddr, name: &WorkloadRef, out: bool) -> Vec<String> {
    let is = |party: &ConnectionEnd| match party {
        ConnectionEnd::Outside(prefix) => prefix.contains(address),
        ConnectionEnd::Networks(networks) => networks.contains(address),
        _ => false,
    };
    let found = rows.iter().filter(|row| {
        let (own, other) = if out {
            (&row.src, &row.dst)
        } else {
            (&row.dst, &row.src)
        };
        is(other) && own.workloads().contains(name)
    });
    found.map(|row| row.connections.to_string()).collect()
}

/// Expanded grouped rows are equal to the rows of single pairs, which are compared with the oracle.
#[test]
fn groups_say_what_their_members_do() {
    let mut groups = 0;
    for seed in 30_000..30_600 {
        let mut dice = Dice::new(seed);
        let state = dice.state();
        let new = dice.edited(&state);
        let scope = ConnectionFilter::default();
        let single = [
            connections(&state),
            diff(&state, &new).opened,
            diff(&state, &new).closed,
        ];
        let change = grouped_diff(&state, &new, &scope).unwrap();
        let grouped = [
            grouped_connections(&state, &scope).unwrap(),
            change.opened,
            change.closed,
        ];
        let before = PreparedState::new(&state);
        let after = PreparedState::new(&new);
        for (at, (single, grouped)) in single.iter().zip(&grouped).enumerate() {
            assert_eq!(
                taken_apart(grouped),
                taken_apart(single),
                "seed {seed}, list {at}"
            );
            let parties = grouped.iter().flat_map(|row| [&row.src, &row.dst]);
            groups += parties
                .filter(|party| matches!(party, ConnectionEnd::Group(_)))
                .count();
            let names: std::collections::BTreeSet<&WorkloadRef> = single
                .iter()
                .flat_map(|c| c.src.workloads().iter().chain(c.dst.workloads()))
                .collect();
            for _ in 0..6 {
                let address = dice.address();
                let held =
                    |p: &PreparedState<'_>| p.address_holder(address).is_some_and(|e| !e.is_host());
                if held(&before) || (at > 0 && held(&after)) {
                    continue;
                }
                for name in &names {
                    for out in [true, false] {
                        let told = outside(grouped, address, name, out);
                        let expected = outside(single, address, name, out);
                        assert_eq!(
                            told, expected,
                            "seed {seed}, list {at}: {name} {address} {out}"
                        );
                    }
                }
            }
        }
    }
    println!("{groups} groups");
    assert!(groups > 300, "{groups}");
}

/// A filter leaves out the rows that it does not select, and nothing else.
#[test]
fn a_scope_takes_its_part() {
    let mut some = 0;
    for seed in 31_000..31_200 {
        let mut dice = Dice::new(seed);
        let state = dice.state();
        let whole = taken_apart(&connections(&state));
        let Some((src, dst, _, _)) = whole.get(dice.below(whole.len().max(1))) else {
            continue;
        };
        let name = |w: &WorkloadRef| format!("{}/{}", w.namespace.as_deref().unwrap_or(""), w.name);
        let same =
            |a: &WorkloadRef, b: &WorkloadRef| (&a.namespace, &a.name) == (&b.namespace, &b.name);
        let scopes = [
            ConnectionFilter {
                from: Some(name(src)),
                ..ConnectionFilter::default()
            },
            ConnectionFilter {
                to: Some(name(dst)),
                ..ConnectionFilter::default()
            },
            ConnectionFilter {
                from: Some(name(src)),
                to: Some(name(dst)),
                ..ConnectionFilter::default()
            },
        ];
        for scope in scopes {
            let part = taken_apart(&grouped_connections(&state, &scope).unwrap());
            let mut expected = whole.clone();
            expected.retain(|(a, b, _, _)| {
                scope.from.as_ref().is_none_or(|_| same(a, src))
                    && scope.to.as_ref().is_none_or(|_| same(b, dst))
            });
            // A name can be that of an owner and of a pod.
            for pair in &expected {
                assert!(part.contains(pair), "seed {seed}: {scope:?} {pair:?}");
            }
            assert!(part.iter().all(|pair| whole.contains(pair)));
            some += part.len();
        }
        if let Some(namespace) = &dst.namespace {
            let namespace = Some(namespace.clone());
            let scope = ConnectionFilter {
                namespace: namespace.as_ref().map(ToString::to_string),
                ..ConnectionFilter::default()
            };
            let part = taken_apart(&grouped_connections(&state, &scope).unwrap());
            let mut expected = whole.clone();
            expected.retain(|(a, b, _, _)| a.namespace == namespace || b.namespace == namespace);
            assert_eq!(part, expected, "seed {seed}: {scope:?}");
        }
    }
    assert!(some > 300);
}

#[test]
fn nothing_changes_from_a_state_to_itself() {
    for seed in case_seeds(0, 50) {
        let state = Dice::new(seed).state();
        assert!(diff(&state, &state).is_empty(), "seed {seed}");
    }
}

/// An explanation has the oracle's verdict, names the rule where one decides, and has a nearest miss
/// where a tier with default deny has an allow rule.
#[test]
fn explanations_agree_with_the_oracle() {
    let (mut rules, mut defaults, mut misses) = (0, 0, 0);
    for seed in case_seeds(20_000, 500) {
        let mut dice = Dice::new(seed);
        let state = dice.state();
        let prepared = PreparedState::new(&state);
        let sides = sides(&state, &mut dice);
        let text = |side: &Side| match &side.end {
            FlowEnd::Address(address) => address.to_string(),
            FlowEnd::Endpoint(id) => {
                format!("{}/{}", id.namespace.as_deref().unwrap_or(""), id.name)
            }
        };
        for from in &sides {
            let to = &sides[dice.below(sides.len())];
            let Some(q) = question(from, to, &mut dice) else {
                continue;
            };
            if q.protocol.is_icmp() && (q.protocol == Protocol::ICMP) != (q.family == Family::V4) {
                // A query for a protocol of one family covers only that family, where possible.
                continue;
            }
            let query = query(text(from), text(to), &q);
            let explanation = explain(
                &state,
                &query,
                &OracleOptions::default(),
                &FailsafePorts::default(),
            );
            let explanation = explanation.map_err(|error| format!("seed {seed}: {error}"));
            let cases = match explanation {
                Ok(e) => {
                    assert!(e.to_string().contains(&e.case.verdict.to_string()));
                    [vec![e.case], e.others].concat()
                }
                Err(error) => panic!("{error}"),
            };
            let (egress, ingress) = prepared.verdict(&q, &OracleOptions::default());
            let passes = egress && ingress;
            let word = if passes {
                VerdictWord::Allow
            } else {
                VerdictWord::Deny
            };
            let told = cases.iter().any(|case| case.verdict == word);
            assert!(told, "seed {seed}: {q:?} is {word}, not {cases:?}");
            for side in cases.iter().flat_map(|case| [&case.egress, &case.ingress]) {
                match side.decided_by {
                    DecisionReport::Rule(_) => rules += 1,
                    DecisionReport::TierDefault { .. } => defaults += 1,
                    _ => {}
                }
                misses += usize::from(side.nearest_miss.is_some());
            }
        }
    }
    println!("{rules} by rules, {defaults} by default, {misses} with a nearest miss");
    assert!(rules > 100 && defaults > 100 && misses > 100);
}

fn query(from: String, to: String, q: &Question) -> ExplainQuery {
    let mut query = ExplainQuery {
        from,
        to,
        ..ExplainQuery::default()
    };
    match q.l4 {
        L4::Ports {
            source,
            destination,
        } => {
            query.port = Some(format!("{destination}/{}", q.protocol));
            query.source_port = Some(source);
        }
        L4::Icmp { kind, code } => {
            query.protocol = Some(q.protocol.to_string());
            query.icmp_type = Some(format!("{kind}/{code}"));
        }
        L4::None => query.protocol = Some(q.protocol.to_string()),
    }
    query
}
