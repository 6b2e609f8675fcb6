//! Responses: of servers, of liars, and any bytes.

use super::*;
use hickory_proto::op::OpCode;
use hickory_proto::rr::rdata::svcb::{IpHint, SvcParamKey};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, HTTPS};
use hickory_proto::rr::{Record, RecordType};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn question(text: &str) -> hickory_proto::op::Query {
    hickory_proto::op::Query::query(name(text), RecordType::A)
}

fn query(text: &str) -> Query {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.add_query(question(text));
    Query::read(&message.to_vec().unwrap()).unwrap()
}

fn response(text: &str, answers: Vec<Record>) -> Message {
    let mut message = Message::response(7, OpCode::Query);
    message.add_query(question(text));
    message.insert_answers(answers);
    message
}

fn a(owner: &str, ttl: u32, last: u8) -> Record {
    Record::from_rdata(name(owner), ttl, RData::A(A::new(192, 0, 2, last)))
}

fn cname(owner: &str, ttl: u32, target: &str) -> Record {
    Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(target))))
}

fn answered(text: &str, ttl: u64) -> AnsweredAddress {
    AnsweredAddress {
        address: text.parse().unwrap(),
        ttl: Duration::from_secs(ttl),
    }
}

/// What a response to a query for `a.example.` teaches.
fn read(message: &Message) -> Vec<AnsweredAddress> {
    query("a.example.")
        .read_response(&message.to_vec().unwrap())
        .unwrap()
}

#[test]
fn addresses_of_both_families_with_their_ttl() {
    let v6 = RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let answers = vec![
        a("a.example.", 60, 1),
        a("A.Example.", 30, 2),
        Record::from_rdata(name("a.example."), 90, v6),
        // Twice: as long as the longer.
        a("a.example.", 10, 1),
    ];
    assert_eq!(
        read(&response("a.example.", answers)),
        [
            answered("192.0.2.1", 60),
            answered("192.0.2.2", 30),
            answered("2001:db8::1", 90)
        ]
    );
}

#[test]
fn aliases_lead_to_addresses_in_any_order() {
    let answers = vec![
        a("c.cdn.example.", 60, 1),
        cname("b.cdn.example.", 20, "c.cdn.example."),
        cname("a.example.", 40, "b.cdn.example."),
    ];
    assert_eq!(
        read(&response("a.example.", answers)),
        [answered("192.0.2.1", 20)]
    );
}

#[test]
fn records_of_other_names_teach_nothing() {
    let answers = vec![
        a("bank.example.", 60, 1),
        cname("x.example.", 60, "a.example."),
        a("x.example.", 60, 2),
    ];
    assert_eq!(read(&response("a.example.", answers)), []);
    let mut message = response("a.example.", Vec::new());
    message.add_additional(a("a.example.", 60, 1));
    message.add_authority(a("a.example.", 60, 1));
    assert_eq!(read(&message), []);
    let mut chaos = a("a.example.", 60, 1);
    chaos.dns_class = DNSClass::CH;
    assert_eq!(read(&response("a.example.", vec![chaos])), []);
}

#[test]
fn a_circle_of_aliases_ends() {
    let answers = vec![
        cname("a.example.", 60, "b.example."),
        cname("b.example.", 60, "a.example."),
        a("b.example.", 60, 1),
    ];
    assert_eq!(
        read(&response("a.example.", answers)),
        [answered("192.0.2.1", 60)]
    );
    // A chain is followed for so many aliases, and no further.
    let chain = |count: usize| {
        let owner = |at: usize| {
            if at == 0 {
                "a.example.".to_owned()
            } else {
                format!("n{at}.example.")
            }
        };
        let mut answers: Vec<Record> = (0..count)
            .map(|at| cname(&owner(at), 60, &owner(at + 1)))
            .collect();
        answers.push(a(&owner(count), 60, 1));
        read(&response("a.example.", answers)).len()
    };
    assert_eq!((chain(LONGEST_CHAIN), chain(LONGEST_CHAIN + 1)), (1, 0));
}

#[test]
fn hints_of_services_are_addresses() {
    let hints = vec![
        (
            SvcParamKey::Ipv4Hint,
            SvcParamValue::Ipv4Hint(IpHint(vec![A::new(192, 0, 2, 1)])),
        ),
        (
            SvcParamKey::Ipv6Hint,
            SvcParamValue::Ipv6Hint(IpHint(vec![AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)])),
        ),
    ];
    let service = SVCB::new(1, name("."), hints);
    let alias = SVCB::new(0, name("pool.example."), Vec::new());
    let answers = vec![
        Record::from_rdata(name("a.example."), 30, RData::HTTPS(HTTPS(alias))),
        Record::from_rdata(name("pool.example."), 60, RData::HTTPS(HTTPS(service))),
    ];
    assert_eq!(
        read(&response("a.example.", answers)),
        [answered("192.0.2.1", 30), answered("2001:db8::2", 30)]
    );
}

#[test]
fn a_failure_has_no_addresses() {
    for code in [
        ResponseCode::NXDomain,
        ResponseCode::ServFail,
        ResponseCode::Refused,
    ] {
        let mut message = response("a.example.", vec![a("a.example.", 60, 1)]);
        message.metadata.response_code = code;
        assert_eq!(read(&message), [], "{code}");
        // Some servers leave out the question then.
        message.queries.clear();
        assert_eq!(read(&message), [], "{code}");
    }
}

#[test]
fn what_does_not_answer_the_query_is_refused() {
    let query = query("a.example.");
    let reading = |message: &Message| query.read_response(&message.to_vec().unwrap());
    let good = response("a.example.", vec![a("a.example.", 60, 1)]);
    assert_eq!(reading(&good).unwrap().len(), 1);
    let mut other = good.clone();
    other.metadata.id = 8;
    assert!(matches!(
        reading(&other),
        Err(ResponseError::Identifier {
            expected: 7,
            found: 8
        })
    ));
    let mut other = good.clone();
    other.metadata.message_type = MessageType::Query;
    assert!(matches!(reading(&other), Err(ResponseError::Query)));
    let other = response("b.example.", vec![a("a.example.", 60, 1)]);
    assert!(matches!(reading(&other), Err(ResponseError::Question)));
    let mut other = good.clone();
    other.queries.clear();
    assert!(matches!(reading(&other), Err(ResponseError::Question)));
    // A server that does not keep the case of the question still answers it.
    assert_eq!(
        reading(&response("A.EXAMPLE.", vec![a("a.example.", 60, 1)]))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn no_bytes_panic() {
    for seed in palisade_generators::seeds(1) {
        let mut dice = SmallRng::seed_from_u64(seed);
        let answers = vec![
            cname("a.example.", 60, "b.example."),
            a("b.example.", 60, 1),
        ];
        let good = response("a.example.", answers).to_vec().unwrap();
        let query = query("a.example.");
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..dice.random_range(1..6) {
                let at = dice.random_range(0..bytes.len());
                bytes[at] = dice.random();
            }
            bytes.truncate(dice.random_range(0..=bytes.len()));
            let _ = query.read_response(&bytes);
            let _ = Query::read(&bytes);
        }
    }
}
