//! Offers in order, merged, offered again, and bounded.

use super::*;
use std::time::Duration;

fn origin(client: u8, name: &str) -> AnswerOrigin {
    AnswerOrigin {
        client: IpAddr::from([10, 0, 0, client]),
        server: SocketAddr::from(([192, 0, 2, 1], 53)),
        name: name.parse().unwrap(),
    }
}

fn address(last: u8, seconds: u64) -> AnsweredAddress {
    AnsweredAddress {
        address: IpAddr::from([198, 51, 100, last]),
        ttl: Duration::from_secs(seconds),
    }
}

/// The number, the name, and the last bytes of the addresses of an offer with their TTLs.
type SentOffer = (u64, String, Vec<(u8, u64)>);

/// Each offer that can be sent.
fn drain(queue: &mut OfferQueue, now: u64) -> Vec<SentOffer> {
    let offers = std::iter::from_fn(|| queue.next_offer(now));
    offers
        .map(|offer| {
            let addresses = offer.addresses.iter().map(|offered| match offered.address {
                IpAddr::V4(v4) => (v4.octets()[3], offered.ttl_seconds),
                IpAddr::V6(_) => panic!("an address of another family"),
            });
            (offer.id, offer.name.to_string(), addresses.collect())
        })
        .collect()
}

fn is_released(receiver: &mut oneshot::Receiver<()>) -> bool {
    receiver.try_recv() != Err(oneshot::error::TryRecvError::Empty)
}

#[test]
fn what_is_withdrawn_waits_again() {
    let mut queue = OfferQueue::new(TeachingLimits::default());
    queue.connect();
    let mut offer = |client: u8| {
        let origin = origin(client, "a.example");
        queue.offer(origin, &[address(1, 60)], 0).is_some()
    };
    assert!(offer(1) && offer(2));
    for (number, ..) in drain(&mut queue, 0) {
        assert!(queue.confirm(number));
    }
    queue.withdraw(IpAddr::from([10, 0, 0, 1]));
    let mut waits = |client: u8| {
        let origin = origin(client, "a.example");
        queue.offer(origin, &[address(1, 60)], 0).is_some()
    };
    assert_eq!((waits(1), waits(2)), (true, false));
    assert_eq!(queue.confirmed.names.len(), queue.confirmed.ages.len());
}

#[test]
fn an_answer_waits_for_its_confirmation() {
    let mut queue = OfferQueue::new(TeachingLimits::default());
    queue.connect();
    let mut first = queue
        .offer(origin(1, "a.example"), &[address(1, 60)], 0)
        .unwrap();
    let sent = drain(&mut queue, 0);
    assert_eq!(sent, [(0, "a.example".to_owned(), vec![(1, 60)])]);
    assert!(!is_released(&mut first));
    assert!(!queue.confirm(9), "another number");
    assert!(!is_released(&mut first));
    assert!(queue.confirm(0) && !queue.confirm(0));
    assert_eq!(first.try_recv(), Ok(()));
    // Known until the TTL is over, for this client alone, and offered all the same.
    let again = queue.offer(origin(1, "a.example"), &[address(1, 60)], 59_999);
    assert!(again.is_none());
    assert_eq!(drain(&mut queue, 59_999).len(), 1);
    for (origin, addresses, now) in [
        (origin(1, "a.example"), vec![address(1, 60)], 60_000),
        (
            origin(1, "a.example"),
            vec![address(1, 60), address(2, 60)],
            0,
        ),
        (origin(2, "a.example"), vec![address(1, 60)], 0),
        (origin(1, "b.example"), vec![address(1, 60)], 0),
    ] {
        assert!(queue.offer(origin, &addresses, now).is_some());
    }
}

#[test]
fn what_says_nothing_new_is_offered_once_in_a_while() {
    let mut queue = OfferQueue::new(TeachingLimits::default());
    queue.connect();
    let offered = |queue: &mut OfferQueue, last: u8, now: u64| {
        let receiver = queue.offer(origin(1, "a.example"), &[address(last, 60)], now);
        let sent = drain(queue, now);
        for (number, _, _) in &sent {
            assert!(queue.confirm(*number));
        }
        (receiver.is_some(), sent.len())
    };
    assert_eq!(offered(&mut queue, 1, 0), (true, 1));
    // The agent is told of the later end of the TTL, and then not for a second.
    for (now, expected) in [(10, 1), (20, 0), (1_009, 0), (1_010, 1), (1_011, 0)] {
        assert_eq!(offered(&mut queue, 1, now), (false, expected), "{now}");
    }
    assert_eq!(offered(&mut queue, 2, 1_012), (true, 1), "a new address");
    assert_eq!(offered(&mut queue, 1, 60_999), (false, 1));
    assert_eq!(
        offered(&mut queue, 2, 61_013),
        (true, 1),
        "its time was over"
    );
    // Another agent is told all.
    queue.disconnect();
    queue.connect();
    assert_eq!(offered(&mut queue, 2, 61_014), (true, 1));
}

#[test]
fn without_the_agent_nothing_waits_and_all_is_offered_later() {
    let mut queue = OfferQueue::new(TeachingLimits::default());
    for (name, last, now) in [
        ("a.example", 1, 0),
        ("b.example", 2, 0),
        ("a.example", 3, 5_000),
    ] {
        let receiver = queue.offer(origin(1, name), &[address(last, 10)], now);
        assert!(receiver.is_none());
    }
    assert_eq!(drain(&mut queue, 0), []);
    queue.connect();
    let expected = [
        (0, "a.example".to_owned(), vec![(1, 4), (3, 9)]),
        (1, "b.example".to_owned(), vec![(2, 4)]),
    ];
    assert_eq!(drain(&mut queue, 6_000), expected);
    assert!(queue.confirm(1));
    // The agent goes with one offer that it read; one that waits is of the same name.
    let mut later = queue
        .offer(origin(1, "a.example"), &[address(4, 10)], 6_000)
        .unwrap();
    queue.disconnect();
    assert!(is_released(&mut later));
    assert_eq!(drain(&mut queue, 6_000), []);
    queue.connect();
    let sent = drain(&mut queue, 6_000);
    assert_eq!(sent.len(), 1, "one offer for a name: {sent:?}");
    assert_eq!(sent[0].2, [(1, 4), (3, 9), (4, 10)]);
    // What the former agent confirmed is not known to this one.
    let known = queue.offer(origin(1, "b.example"), &[address(2, 10)], 6_000);
    assert!(known.is_some());
}

#[test]
fn the_agent_has_a_bounded_number_of_offers() {
    let mut queue = OfferQueue::new(TeachingLimits {
        unconfirmed_offers: 2,
        ..TeachingLimits::default()
    });
    queue.connect();
    for name in ["a.example", "b.example", "c.example"] {
        assert!(queue.offer(origin(1, name), &[address(1, 10)], 0).is_some());
    }
    assert_eq!(drain(&mut queue, 0).len(), 2);
    assert!(queue.confirm(1));
    assert_eq!(drain(&mut queue, 0).len(), 1);
}

#[test]
fn the_newest_offers_stay() {
    let limits = TeachingLimits {
        waiting_offers: 3,
        waiting_addresses: 4,
        confirmed_names: 1,
        ..TeachingLimits::default()
    };
    let mut queue = OfferQueue::new(limits);
    for (name, last) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        queue.offer(origin(1, name), &[address(last, 10)], 0);
    }
    assert_eq!(queue.dropped(), 1, "one offer too many");
    queue.offer(origin(1, "d"), &[address(5, 10), address(6, 10)], 0);
    assert_eq!(queue.dropped(), 2, "one address too many");
    queue.connect();
    let names: Vec<_> = drain(&mut queue, 0)
        .into_iter()
        .map(|sent| sent.1)
        .collect();
    assert_eq!(names, ["c", "d"]);
    // Of two confirmed names the later is remembered.
    assert!(queue.confirm(2) && queue.confirm(3));
    assert!(queue.offer(origin(1, "c"), &[address(3, 10)], 0).is_some());
    assert!(queue.offer(origin(1, "d"), &[address(4, 10)], 0).is_none());
}

#[test]
fn of_too_many_addresses_the_last_to_end_stay() {
    let mut addresses = AddressDeadlines::new();
    let more = (0..10).map(|last| (IpAddr::from([192, 0, 2, last]), 100 - u64::from(last)));
    merge_addresses(&mut addresses, more.collect(), 3);
    let expected = [0, 1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
    assert!(addresses.keys().eq(&expected));
}
