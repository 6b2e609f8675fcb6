//! Queries as clients write them, and what is none.

use super::*;
use hickory_proto::rr::RecordType;

fn query(names: &[&str]) -> Message {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    for name in names {
        let name = Name::from_ascii(name).unwrap();
        message.add_query(hickory_proto::op::Query::query(name, RecordType::AAAA));
    }
    message
}

fn read(message: &Message) -> Result<Query, QueryError> {
    Query::read(&message.to_vec().unwrap())
}

#[test]
fn the_name_is_that_of_the_question_without_case() {
    let query = read(&query(&["ApI.Example.com."])).unwrap();
    assert_eq!(query.name(), Some(&"api.example.com".parse().unwrap()));
    assert_eq!((query.id(), query.record_type().as_str()), (0x1234, "AAAA"));
}

#[test]
fn names_that_no_pattern_has_are_no_names() {
    assert_eq!(read(&query(&["."])).unwrap().name(), None);
    let mut bytes = query(&["ab.c."]).to_vec().unwrap();
    for byte in [b'.', 0xff, b' '] {
        bytes[13] = byte;
        assert_eq!(Query::read(&bytes).unwrap().name(), None, "{byte}");
    }
}

#[test]
fn what_is_no_query_for_one_name_has_a_reason() {
    assert!(matches!(read(&query(&[])), Err(QueryError::Questions(0))));
    assert!(matches!(
        read(&query(&["a.", "b."])),
        Err(QueryError::Questions(2))
    ));
    let mut message = query(&["a."]);
    message.metadata.op_code = OpCode::Update;
    // As an update its question is a zone.
    assert!(read(&message).is_err());
    let mut message = query(&["a."]);
    message.metadata.message_type = MessageType::Response;
    assert!(matches!(read(&message), Err(QueryError::Response)));
    for bytes in [&[][..], &[0; 11], b"GET / HTTP/1.1\r\n\r\n"] {
        assert!(
            matches!(Query::read(bytes), Err(QueryError::Malformed(_))),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_refusal_repeats_the_question() {
    let query = read(&query(&["ApI.Example.com."])).unwrap();
    for (bytes, code) in [
        (query.refusal(), ResponseCode::Refused),
        (query.nonexistence(), ResponseCode::NXDomain),
    ] {
        let response = Message::from_vec(&bytes.unwrap()).unwrap();
        assert_eq!(response.metadata.response_code, code);
        assert_eq!(response.metadata.message_type, MessageType::Response);
        assert_eq!(
            (response.metadata.id, response.metadata.recursion_desired),
            (0x1234, true)
        );
        // With the case of the question, by which clients recognize their own.
        assert!(
            response.queries[0]
                .name()
                .eq_case(&Name::from_ascii("ApI.Example.com.").unwrap())
        );
        assert!(response.answers.is_empty());
    }
}
