//! Whether a peer matches only what another matches, whatever objects there are.
//!
//! Rules of one policy with one action may match the same here and be meant for different pods to come. Only if
//! the peers of one are among those of the other by their text is it surely a repetition. The test is
//! conservative: it never claims an implication that does not hold.

use palisade_model::{Peer, Prefix, Rule, Selector};

/// Whether each peer of a rule matches only what a peer of one of the others matches, for the same local address.
pub(super) fn peers_are_among(rule: &Rule, others: &[&Rule]) -> bool {
    let own = |other: &&&Rule| other.local.is_none() || other.local == rule.local;
    let others: Vec<&Rule> = others.iter().filter(own).copied().collect();
    rule.peers.iter().all(|peer| {
        let mut all = others.iter().flat_map(|other| &other.peers);
        all.any(|other| implies(peer, other))
    })
}

fn implies(peer: &Peer, other: &Peer) -> bool {
    let by_selector = match (&peer.selector, &other.selector) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(own), Some(other)) => implies_selector(own, other),
    };
    let excluded = other.not_selector.is_none() || other.not_selector == peer.not_selector;
    let is_in = |net: &Prefix, nets: &[Prefix]| nets.iter().any(|wide| wide.covers(*net));
    let by_nets = match (&peer.nets, &other.nets) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(own), Some(other)) => own.iter().all(|net| is_in(net, other)),
    };
    let by_exceptions = other.not_nets.iter().all(|not| is_in(not, &peer.not_nets));
    by_selector && excluded && by_nets && by_exceptions
}

fn implies_selector(selector: &Selector, other: &Selector) -> bool {
    conjuncts(other).iter().all(|wanted| {
        let mut parts = conjuncts(selector).iter();
        parts.any(|part| implies_part(part, wanted))
    })
}

fn conjuncts(selector: &Selector) -> &[Selector] {
    match selector {
        Selector::And(parts) => parts,
        one => std::slice::from_ref(one),
    }
}

fn implies_part(part: &Selector, wanted: &Selector) -> bool {
    match (part, wanted) {
        (Selector::In(key, values), Selector::In(other, wanted)) => {
            key == other && values.iter().all(|value| wanted.contains(value))
        }
        (Selector::In(key, _), Selector::Has(other)) => key == other,
        _ => part == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::LabelKey;

    /// `KEY=VALUE|VALUE,KEY in NET|NET not NET|NET`, each part optional.
    fn peer(text: &str) -> Peer {
        let (text, not_nets) = text.split_once(" not ").unwrap_or((text, ""));
        let (text, nets) = text.split_once(" in ").unwrap_or((text, ""));
        let list = |text: &str| -> Vec<Prefix> {
            let nets = text.split('|').filter(|net| !net.is_empty());
            nets.map(|net| net.parse().unwrap()).collect()
        };
        let test = |part: &str| match part.split_once('=') {
            Some((key, values)) => {
                Selector::is_in(LabelKey::own(key), values.split('|').map(Into::into))
            }
            None => Selector::has(LabelKey::own(part)),
        };
        Peer {
            selector: (text != "any").then(|| Selector::and(text.split(',').map(test))),
            not_selector: None,
            nets: (!nets.is_empty()).then(|| list(nets)),
            not_nets: list(not_nets),
        }
    }

    #[test]
    fn peers_imply_each_other_by_their_text() {
        let cases = [
            ("app=a", "any", true),
            ("any", "app=a", false),
            ("app=a", "app=a|b", true),
            ("app=a|b", "app=a", false),
            ("app=a,env", "app=a", true),
            ("app=a", "app=a,env", false),
            ("app=a", "app", true),
            ("app", "app=a", false),
            ("any in 10.1.0.0/16", "any in 10.0.0.0/8", true),
            ("any in 10.1.0.0/16", "any", true),
            ("any", "any in 0.0.0.0/0", false),
            ("any in 10.0.0.0/8", "any in 10.1.0.0/16", false),
            ("app=a in 10.1.0.0/16", "app=a", true),
            ("app=a", "app=a in 10.1.0.0/16", false),
            (
                "any in 10.0.0.0/8",
                "any in 10.0.0.0/8 not 10.1.0.0/16",
                false,
            ),
            (
                "any in 10.0.0.0/8 not 10.0.0.0/9",
                "any in 10.0.0.0/8 not 10.1.0.0/16",
                true,
            ),
        ];
        for (a, b, expected) in cases {
            assert_eq!(implies(&peer(a), &peer(b)), expected, "{a} -> {b}");
        }
        let not = |peer: Peer| Peer {
            not_selector: Some(Selector::has(LabelKey::own("x"))),
            ..peer
        };
        assert!(implies(&not(peer("app=a")), &peer("app=a")));
        assert!(!implies(&peer("app=a"), &not(peer("app=a"))));
        assert!(implies(&not(peer("app=a")), &not(peer("app=a"))));
    }
}
