//! The big states with a third of their policies in the tiers of cluster-wide policies, with a third as
//! CiliumNetworkPolicies that deny and allow, with a third as policies of Calico in tiers of its own and in the default
//! one, and with everything in audit: each against the plain state, in the same process just before.

use crate::case::BenchCase;
use crate::heap;
use crate::parsed_objects::BenchObject;
use crate::report::Figure;
use crate::states::{self, BenchInput, Families};
use crate::stopwatch::Stopwatch;
use palisade_engine::{Engine, EngineOptions};
use palisade_model::{
    Action, Object, ObjectKind, Order, Policy, PolicyMode, Precedence, State, Tier, TierDefault,
    Update, tier_name,
};

/// What is made of a plain state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Plain,
    /// A third of the policies are cluster-wide ones: half of these before, half after the others.
    Tiers,
    /// A third of the policies are CiliumNetworkPolicies: the first rule of each denies, in a part of its own.
    Cilium,
    /// A third of the policies are Calico's, by order, in two tiers of its own and in the default one.
    Calico,
    /// Every policy is in audit.
    Audit,
}

/// The most that a variant may take, as a multiple of the plain state.
const AIM: f64 = 1.3;
/// The same for Calico's policies.
const CALICO_AIM: f64 = 1.5;

/// How many policies are edited.
const EDITS: usize = 400;

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    ["tags", "tenants", "tenants-differing"].map(start).into()
}

fn start(state: &'static str) -> BenchCase {
    let name = format!("engine/tiers/{state}");
    let mut figures = vec![
        Figure::of(format!("{name}/plain"), "s"),
        Figure::of(format!("{name}/plain/heap"), "MiB"),
        Figure::of(format!("{name}/plain/policy-edited"), "micros"),
    ];
    for variant in ["tiers", "cilium", "calico", "audit"] {
        for (what, baseline) in [
            ("ratio", "plain"),
            ("heap-ratio", "plain/heap"),
            ("policy-edited-ratio", "plain/policy-edited"),
        ] {
            let figure = Figure::of(format!("{name}/{variant}/{what}"), "ratio");
            let figure = figure.relative_to(&format!("{name}/{baseline}"));
            figures.push(match variant {
                "audit" => figure,
                "calico" => figure.with_reference("aim", CALICO_AIM),
                _ => figure.with_reference("aim", AIM),
            });
        }
    }
    BenchCase {
        figures,
        name,
        processes: 3,
        asks_the_oracle: true,
        limits: 8,
        measure: Box::new(move |scale, samples| {
            let input = match state {
                "tags" => states::tags::input(scale, Families::V4),
                "tenants" => states::tenants::input(scale, Families::V4, 1),
                _ => states::tenants::input(scale, Families::V4, states::tenants::BODIES),
            };
            let plain = measure(&input, Variant::Plain)?;
            plain.iter().for_each(|sample| samples(vec![*sample]));
            for variant in [
                Variant::Tiers,
                Variant::Cilium,
                Variant::Calico,
                Variant::Audit,
            ] {
                let of = measure(&input, variant)?;
                for (sample, plain) in of.iter().zip(plain) {
                    samples(vec![sample / plain]);
                }
            }
            Ok(())
        }),
    }
}

/// Seconds of the first flush, live heap in MiB, and microseconds of an edit of one policy, the median of many.
fn measure(input: &BenchInput, variant: Variant) -> Result<[f64; 3], String> {
    let before = heap::live();
    let mut engine = Engine::new(EngineOptions::default());
    let watch = Stopwatch::start();
    let mut number = 0;
    let changed = |update| variant.of(update, &mut number);
    let changed = input.updates(&watch).flat_map(changed).flatten();
    let delta = engine.apply(variant.tiers().into_iter().chain(changed));
    let seconds = watch.elapsed().as_secs_f64();
    drop(delta);
    let live = heap::live().saturating_sub(before) as u64;
    let mut number = 0;
    let objects = input.objects().map(|object: BenchObject| object.update());
    let changed = objects
        .flat_map(|update| variant.of(update, &mut number))
        .flatten();
    let mut state = State::from_updates(variant.tiers().into_iter().chain(changed));
    let mut times = Vec::new();
    // Of the whole list: cluster-wide ones are its beginning.
    let step = (state.policies.len() / EDITS).max(1);
    let policies = state.policies.values().step_by(step).take(EDITS);
    let policies: Vec<Policy> = policies.cloned().collect();
    for policy in policies {
        let edited = without_last_rule(policy);
        let watch = Stopwatch::start();
        let delta = engine.apply([Update::Upsert(Object::Policy(edited.clone()))]);
        times.push(watch.elapsed().as_secs_f64() * 1e6);
        drop(delta);
        state.apply(Update::Upsert(Object::Policy(edited)));
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    crate::engine::check_engine_agreement(&state, &engine)?;
    Ok([seconds, heap::mebibytes(live), median])
}

fn without_last_rule(mut policy: Policy) -> Policy {
    for rules in [&mut policy.ingress, &mut policy.egress]
        .into_iter()
        .flatten()
    {
        rules.rules.pop();
    }
    policy
}

/// Calico's tiers: one that passes on, one that denies.
const CALICO_TIERS: [(&str, f64, TierDefault); 2] = [
    ("security", 100.0, TierDefault::Pass),
    ("platform", 2_000_000.0, TierDefault::Deny),
];

impl Variant {
    /// The tiers of this variant.
    fn tiers(self) -> Vec<Update> {
        let tier = |(name, order, default): (&str, f64, TierDefault)| {
            Update::Upsert(Object::Tier(Tier {
                name: name.into(),
                order: Order::At(order),
                default,
            }))
        };
        match self {
            Variant::Calico => CALICO_TIERS.map(tier).into(),
            _ => Vec::new(),
        }
    }

    /// What an update is in this variant: one or two updates. `number` counts the policies.
    fn of(self, update: Update, number: &mut usize) -> [Option<Update>; 2] {
        match update {
            Update::Upsert(Object::Policy(policy)) => {
                *number += 1;
                self.of_policy(policy, *number)
                    .map(|policy| policy.map(|policy| Update::Upsert(Object::Policy(policy))))
            }
            other => [Some(other), None],
        }
    }

    fn of_policy(self, mut policy: Policy, number: usize) -> [Option<Policy>; 2] {
        match self {
            Variant::Audit => policy.mode = PolicyMode::Audit,
            Variant::Tiers if number.is_multiple_of(3) => policy = cluster_wide(policy, number),
            Variant::Cilium if number.is_multiple_of(3) => return cilium(policy).map(Some),
            Variant::Calico if number.is_multiple_of(3) => policy = calico(policy, number),
            Variant::Tiers | Variant::Cilium | Variant::Calico | Variant::Plain => {}
        }
        [Some(policy), None]
    }
}

/// The same rules as those of a cluster-wide policy, with each of its actions.
fn cluster_wide(mut policy: Policy, number: usize) -> Policy {
    let admin = number.is_multiple_of(2);
    policy.tier = if admin {
        tier_name::KUBE_ADMIN.into()
    } else {
        tier_name::KUBE_BASELINE.into()
    };
    let object = &mut policy.id.object;
    let namespace = object.namespace.take().unwrap_or_default();
    object.name = format!("{namespace}-{}", object.name).into();
    object.kind = ObjectKind::new("policy.networking.k8s.io", "ClusterNetworkPolicy");
    policy.precedence.order =
        Order::from_number(f64::from(u32::try_from(number % 1_000).unwrap_or(0)));
    let actions = if admin {
        [Action::Allow, Action::Deny, Action::Pass]
    } else {
        [Action::Allow, Action::Allow, Action::Deny]
    };
    for rules in [&mut policy.ingress, &mut policy.egress]
        .into_iter()
        .flatten()
    {
        rules.default_deny = false;
        for (place, rule) in rules.rules.iter_mut().enumerate() {
            rule.action = actions[place % actions.len()];
        }
    }
    policy
}

/// The same rules as those of a policy of Calico, with each of its actions that decides.
fn calico(mut policy: Policy, number: usize) -> Policy {
    policy.tier = match number % 9 {
        0 => CALICO_TIERS[0].0.into(),
        3 => CALICO_TIERS[1].0.into(),
        _ => tier_name::DEFAULT.into(),
    };
    policy.id.object.kind = ObjectKind::new("projectcalico.org", "NetworkPolicy");
    policy.precedence = Precedence {
        order: Order::from_number(f64::from(u32::try_from(number % 2_000).unwrap_or(0))),
        rank: 0,
    };
    let actions = [Action::Allow, Action::Deny, Action::Pass];
    for rules in [&mut policy.ingress, &mut policy.egress]
        .into_iter()
        .flatten()
    {
        for (place, rule) in rules.rules.iter_mut().enumerate() {
            rule.action = actions[place % actions.len()];
        }
    }
    policy
}

/// The parts of a CiliumNetworkPolicy with the same rules, the first of which denies: the part that denies, before
/// every policy of its tier, and the part that allows.
fn cilium(mut policy: Policy) -> [Policy; 2] {
    policy.tier = tier_name::DEFAULT.into();
    policy.id.object.kind = ObjectKind::new("cilium.io", "CiliumNetworkPolicy");
    let mut deny = policy.clone();
    deny.precedence = Precedence {
        order: Order::At(f64::MIN),
        rank: 0,
    };
    policy.id.part = 1;
    policy.precedence = Precedence {
        order: Order::At(1000.0),
        rank: 1,
    };
    let directions = [
        (&mut deny.ingress, &mut policy.ingress),
        (&mut deny.egress, &mut policy.egress),
    ];
    for (deny, allow) in directions {
        let (Some(deny), Some(allow)) = (deny, allow) else {
            continue;
        };
        deny.default_deny = false;
        deny.rules.truncate(1);
        allow.rules = allow.rules.split_off(allow.rules.len().min(1));
        deny.rules
            .iter_mut()
            .for_each(|rule| rule.action = Action::Deny);
        allow
            .rules
            .iter_mut()
            .for_each(|rule| rule.action = Action::Allow);
    }
    [deny, policy]
}
