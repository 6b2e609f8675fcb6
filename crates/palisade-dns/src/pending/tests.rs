//! Which responses are taken, and what a flood costs.

use super::*;
use hickory_proto::op::{Message, MessageType, OpCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};

fn message(id: u16, name: &str) -> Message {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    let name = Name::from_ascii(name).unwrap();
    message.add_query(hickory_proto::op::Query::query(name, RecordType::A));
    message
}

fn query(id: u16, name: &str) -> Query {
    Query::read(&message(id, name).to_vec().unwrap()).unwrap()
}

fn response(id: u16, name: &str) -> Vec<u8> {
    let mut response = Message::response(id, OpCode::Query);
    response.add_queries(message(id, name).queries);
    let address = RData::A(A::new(192, 0, 2, 1));
    response.add_answer(Record::from_rdata(
        Name::from_ascii(name).unwrap(),
        60,
        address,
    ));
    response.to_vec().unwrap()
}

fn exchange(client: u8, port: u16) -> Exchange {
    Exchange {
        client: SocketAddr::new(IpAddr::from([10, 0, 0, client]), port),
        server: "10.96.0.10:53".parse().unwrap(),
    }
}

fn queries() -> PendingQueries {
    PendingQueries::new(PendingLimits {
        timeout: Duration::from_secs(10),
        queries_of_client: 3,
        queries: 5,
    })
}

#[test]
fn a_response_is_taken_once_from_whom_was_asked() {
    let mut queries = queries();
    let passed = PassedQuery {
        query: query(7, "a.example."),
        delay: Duration::from_micros(30),
    };
    queries.insert(exchange(1, 4000), passed.clone(), 0);
    let other_server = Exchange {
        server: "10.96.0.11:53".parse().unwrap(),
        ..exchange(1, 4000)
    };
    for stranger in [other_server, exchange(2, 4000), exchange(1, 4001)] {
        assert!(queries.take(stranger, &response(7, "a.example.")).is_none());
    }
    for bytes in [
        response(8, "a.example."),
        response(7, "b.example."),
        Vec::new(),
        vec![0, 7],
    ] {
        assert!(queries.take(exchange(1, 4000), &bytes).is_none());
    }
    let (taken, addresses) = queries
        .take(exchange(1, 4000), &response(7, "a.example."))
        .unwrap();
    assert_eq!((taken, addresses.len()), (passed, 1));
    assert!(
        queries
            .take(exchange(1, 4000), &response(7, "a.example."))
            .is_none()
    );
    assert!(queries.is_empty() && queries.ages.is_empty() && queries.clients.is_empty());
}

#[test]
fn responses_come_in_any_order_and_questions_share_an_identifier() {
    let mut queries = queries();
    queries.insert(exchange(1, 4000), query(7, "a.example."), 0);
    queries.insert(exchange(1, 4000), query(7, "b.example."), 0);
    queries.insert(exchange(1, 4000), query(8, "c.example."), 1);
    assert_eq!(queries.len(), 3);
    for (id, name) in [(8, "c.example."), (7, "b.example."), (7, "a.example.")] {
        let (taken, _) = queries
            .take(exchange(1, 4000), &response(id, name))
            .unwrap();
        assert_eq!(taken.query, query(id, name));
    }
    assert!(queries.is_empty() && queries.ages.is_empty() && queries.clients.is_empty());
}

#[test]
fn a_query_that_is_sent_again_waits_from_then_on() {
    let mut queries = queries();
    queries.insert(exchange(1, 4000), query(7, "a.example."), 0);
    queries.insert(exchange(1, 4000), query(7, "a.example."), 9_000);
    assert_eq!((queries.len(), queries.ages.len()), (1, 1));
    queries.expire(18_999);
    assert_eq!(queries.len(), 1);
    queries.expire(19_000);
    assert!(queries.is_empty() && queries.clients.is_empty());
    assert!(
        queries
            .take(exchange(1, 4000), &response(7, "a.example."))
            .is_none()
    );
    assert_eq!(queries.dropped(), 0);
}

#[test]
fn who_asks_too_much_loses_its_own_oldest() {
    let mut queries = queries();
    queries.insert(exchange(2, 5000), query(1, "a.example."), 0);
    queries.insert(exchange(2, 5000), query(2, "a.example."), 0);
    for id in 0..100 {
        queries.insert(exchange(1, 4000), query(id, "x.example."), u64::from(id));
        assert!(queries.len() <= 5);
    }
    assert_eq!(queries.dropped(), 97);
    // At the bound of all the busiest client pays.
    queries.insert(exchange(3, 6000), query(1, "a.example."), 200);
    assert_eq!((queries.len(), queries.dropped()), (5, 98));
    for (client, port, id) in [(2, 5000, 1), (2, 5000, 2), (3, 6000, 1)] {
        assert!(
            queries
                .take(exchange(client, port), &response(id, "a.example."))
                .is_some()
        );
    }
    assert!(
        queries
            .take(exchange(1, 4000), &response(97, "x.example."))
            .is_none()
    );
    assert!(
        queries
            .take(exchange(1, 4000), &response(99, "x.example."))
            .is_some()
    );
}

#[test]
fn questions_of_one_identifier_at_one_time_are_counted_each() {
    let mut queries = queries();
    for number in 0..100 {
        queries.insert(
            exchange(1, 4000),
            query(7, &format!("x{number}.example.")),
            0,
        );
        assert!(queries.len() <= 3);
    }
    assert_eq!((queries.len(), queries.dropped()), (3, 97));
    let waiting: usize = queries.queries.values().map(Vec::len).sum();
    assert_eq!(waiting, 3);
    assert!(
        queries
            .take(exchange(1, 4000), &response(7, "x0.example."))
            .is_none()
    );
    assert!(
        queries
            .take(exchange(1, 4000), &response(7, "x99.example."))
            .is_some()
    );
}

#[test]
fn a_response_that_cannot_be_read_is_taken_by_its_identifier() {
    let mut queries = queries();
    queries.insert(exchange(1, 4000), query(7, "a.example."), 0);
    queries.insert(exchange(1, 4000), query(7, "b.example."), 1);
    let mut broken = response(7, "a.example.");
    // One more record is announced than there is.
    broken[7] += 1;
    let mut other_id = broken.clone();
    other_id[1] = 8;
    let mut no_response = broken.clone();
    no_response[2] &= !RESPONSE_FLAG;
    for bytes in [
        response(7, "c.example."),
        other_id,
        no_response,
        broken[..11].to_vec(),
        broken[..2].to_vec(),
        Vec::new(),
    ] {
        let taken = queries.take_unreadable(exchange(1, 4000), &bytes);
        assert!(taken.is_none(), "{bytes:?}");
    }
    assert!(queries.take(exchange(1, 4000), &broken).is_none());
    assert!(
        queries
            .take_unreadable(exchange(2, 4000), &broken)
            .is_none()
    );
    let taken = [(); 3].map(|()| queries.take_unreadable(exchange(1, 4000), &broken));
    let expected = [
        Some(query(7, "a.example.").into()),
        Some(query(7, "b.example.").into()),
        None,
    ];
    assert_eq!(taken, expected);
    assert!(queries.is_empty());
}
