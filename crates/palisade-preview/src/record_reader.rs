//! Reads lists of recorded flows, as `palisade flows -o json` prints them, flow by flow into a record.
//!
//! Promises: a list of millions of flows that come again takes the memory of the different ones, and each different text
//! of an end or a decision is interpreted once; a list of another version is refused. Never: reads a file.

use crate::record::{EndId, FlowEntry, Record};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use palisade_api::{
    API_VERSION, FlowIcmp, MonitorVerdict, ProtocolName, RecordedDecision, RecordedEnd,
    RecordedFlowList,
};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The greatest number of texts that are remembered, 32 bytes each and more: beyond that they are forgotten.
const MAX_TEXTS: usize = 65_536;

impl Record {
    /// Adds the lists of a text, one or several: the flows that were seen at or after `since`, a time as records write it.
    ///
    /// # Errors
    /// If the text is something else, or of another version. Lists before it, and a part of its flows, have been added.
    pub fn read(&mut self, text: &[u8], since: Option<&str>) -> Result<(), serde_json::Error> {
        let mut lists = serde_json::Deserializer::from_slice(text);
        while lists.end().is_err() {
            let list = ListSeed {
                record: self,
                since,
            };
            list.deserialize(&mut lists)?;
        }
        Ok(())
    }
}

/// A list.
struct ListSeed<'r> {
    record: &'r mut Record,
    since: Option<&'r str>,
}

/// The flows of a list, whose node is known.
struct FlowsSeed<'r> {
    record: &'r mut Record,
    since: Option<&'r str>,
    node: &'r str,
}

/// A [`palisade_api::RecordedFlow`], without its traffic, whose ends and decisions are not interpreted yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FlowText<'a> {
    #[serde(borrow)]
    source: &'a RawValue,
    #[serde(borrow)]
    destination: &'a RawValue,
    protocol: ProtocolName,
    port: Option<u16>,
    icmp: Option<FlowIcmp>,
    verdict: MonitorVerdict,
    #[serde(borrow)]
    egress: Option<&'a RawValue>,
    #[serde(borrow)]
    ingress: Option<&'a RawValue>,
    #[serde(borrow)]
    first: Cow<'a, str>,
    #[serde(borrow)]
    last: Cow<'a, str>,
    count: u64,
}

/// The texts of a list that were interpreted.
#[derive(Default)]
struct KnownTexts<'de> {
    ends: HashMap<&'de str, EndId, FixedState>,
    decisions: HashSet<&'de str, FixedState>,
}

impl<'de> KnownTexts<'de> {
    fn end(
        &mut self,
        text: &'de RawValue,
        record: &mut Record,
    ) -> Result<EndId, serde_json::Error> {
        if let Some(id) = self.ends.get(text.get()) {
            return Ok(*id);
        }
        if self.ends.len() >= MAX_TEXTS {
            self.ends.clear();
        }
        let id = record.intern(serde_json::from_str::<RecordedEnd>(text.get())?);
        self.ends.insert(text.get(), id);
        Ok(id)
    }

    /// Fails if a text is no decision.
    fn check_decision(&mut self, text: Option<&'de RawValue>) -> Result<(), serde_json::Error> {
        let Some(text) = text.map(RawValue::get) else {
            return Ok(());
        };
        if self.decisions.contains(text) {
            return Ok(());
        }
        if self.decisions.len() >= MAX_TEXTS {
            self.decisions.clear();
        }
        serde_json::from_str::<RecordedDecision>(text)?;
        self.decisions.insert(text);
        Ok(())
    }

    fn add(
        &mut self,
        flow: &FlowText<'de>,
        node: &str,
        record: &mut Record,
    ) -> Result<(), serde_json::Error> {
        self.check_decision(flow.egress)?;
        self.check_decision(flow.ingress)?;
        let source = self.end(flow.source, record)?;
        let destination = self.end(flow.destination, record)?;
        record.add_entry(&FlowEntry {
            source,
            destination,
            node,
            protocol: flow.protocol,
            port: flow.port,
            icmp: flow.icmp,
            verdict: flow.verdict,
            has_egress: flow.egress.is_some(),
            first: &flow.first,
            last: &flow.last,
            count: flow.count,
        });
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of recorded flows")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let ListSeed { record, since } = self;
        let mut list = RecordedFlowList {
            api_version: palisade_model::Str::default(),
            node: String::new(),
            since: None,
            flows: Vec::new(),
            lost: 0,
            truncated: false,
        };
        let mut missing = vec!["apiVersion", "node", "flows", "lost", "truncated"];
        while let Some(name) = fields.next_key::<String>()? {
            let is_repeated = !missing.contains(&&*name);
            missing.retain(|missing| *missing != name);
            match &*name {
                "apiVersion" => {
                    list.api_version = fields.next_value()?;
                    if list.api_version != API_VERSION {
                        let found = &list.api_version;
                        return Err(A::Error::custom(format!(
                            "apiVersion {found:?} is not {API_VERSION}"
                        )));
                    }
                }
                "node" | "flows" if is_repeated => {
                    return Err(A::Error::custom(format!("{name} is there twice")));
                }
                "node" => list.node = fields.next_value()?,
                "since" => list.since = fields.next_value()?,
                "lost" => list.lost = fields.next_value()?,
                "truncated" => list.truncated = fields.next_value()?,
                "flows" if missing.contains(&"node") => list.flows = fields.next_value()?,
                "flows" => fields.next_value_seed(FlowsSeed {
                    record: &mut *record,
                    since,
                    node: &list.node,
                })?,
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        if let Some(missing) = missing.first() {
            return Err(A::Error::missing_field(missing));
        }
        record.add(list, since);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for FlowsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for FlowsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("recorded flows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut flows: A) -> Result<(), A::Error> {
        let mut texts = KnownTexts::default();
        while let Some(flow) = flows.next_element::<FlowText<'de>>()? {
            if self.since.is_none_or(|since| &*flow.last >= since) {
                let added = texts.add(&flow, self.node, self.record);
                // Its place is that within the text of an end; the reader adds the one in the list.
                added.map_err(|error| A::Error::custom(without_place(&error)))?;
            }
        }
        Ok(())
    }
}

fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOWS: &str = r#"[
        {"source": {"node": "n1"}, "destination": {"address": "10.0.0.1"}, "protocol": "TCP", "port": 80,
         "verdict": "Allowed", "first": "2026-01-01T00:00:00Z", "last": "2026-01-01T00:05:00Z", "count": 2},
        {"source": {"node": "n1"}, "destination": {"address": "10.0.0.1"}, "protocol": "TCP", "port": 80,
         "verdict": "Allowed", "first": "2026-01-01T00:05:00Z", "last": "2026-01-01T00:06:00Z", "count": 3}
    ]"#;

    fn read(text: &str, since: Option<&str>) -> Result<Record, String> {
        let mut record = Record::default();
        match record.read(text.as_bytes(), since) {
            Ok(()) => Ok(record),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn lists_are_as_if_they_were_read_whole() {
        let list = |fields: &str| format!("{{\"apiVersion\": \"{API_VERSION}\", {fields}}}");
        let rest = r#""lost": 4, "truncated": true, "since": "2025-12-31T00:00:00Z""#;
        let before = list(&format!(
            r#""node": "n1", "flows": {FLOWS}, "new": [1], {rest}"#
        ));
        let after = list(&format!(r#""flows": {FLOWS}, {rest}, "node": "n1""#));
        for since in [
            None,
            Some("2026-01-01T00:05:30Z"),
            Some("2027-01-01T00:00:00Z"),
        ] {
            for text in [&before, &after] {
                let whole: RecordedFlowList = serde_json::from_str(text).unwrap();
                let mut expected = Record::default();
                expected.add(whole.clone(), since);
                expected.add(whole, since);
                let record = read(&format!("{text}\n{text}\n"), since).unwrap();
                let summary = |record: &Record| format!("{:?}", record.summary(["n2"].into_iter()));
                assert_eq!(summary(&record), summary(&expected));
                assert_eq!(
                    format!("{:?}", record.flows),
                    format!("{:?}", expected.flows)
                );
            }
        }
    }

    #[test]
    fn ends_are_told_apart_by_what_they_are_not_by_their_text() {
        let flow = |source: &str, egress: &str| {
            format!(
                r#"{{"source": {source}, "destination": {{}}, "protocol": "UDP", "port": 53, "verdict": "Allowed",
                "egress": {egress}, "first": "2026-01-01T00:00:00\u005a", "last": "2026-01-01T00:00:00Z", "count": 1}}"#
            )
        };
        let list = |flows: &[String]| {
            format!(
                r#"{{"apiVersion": "{API_VERSION}", "node": "n", "flows": [{}], "lost": 0, "truncated": false}}"#,
                flows.join(",")
            )
        };
        let [plain, other] = [
            r#"{"namespace": "a", "name": "b"}"#,
            r#"{"name":"\u0062","namespace":"a","service":{"namespace":"a","name":"s"}}"#,
        ];
        let rule = r#"{"reason": "DefaultDeny"}"#;
        let flows = [flow(plain, rule), flow(other, "null"), flow(plain, rule)];
        let record = read(&list(&flows), None).unwrap();
        let [total] = &record.flows[..] else {
            panic!("{:?}", record.flows);
        };
        assert_eq!((total.count(), &*total.first), (2, "2026-01-01T00:00:00Z"));
        for (source, egress, expected) in [
            ("5", rule, "invalid type: integer"),
            (r#"{"name": 1}"#, rule, "invalid type: integer"),
            (plain, r#"{"reason": "whim"}"#, "whim"),
            (plain, r#"{"reason"}"#, "expected `:`"),
        ] {
            let error = read(&list(&[flow(source, egress)]), None).unwrap_err();
            assert!(error.contains(expected), "{source} {egress}: {error}");
            assert!(error.contains(" at line 2 "), "in the list: {error}");
        }
    }

    #[test]
    fn something_else_is_refused() {
        let version = format!(r#""apiVersion": "{API_VERSION}""#);
        for (text, expected) in [
            ("[]", "a list of recorded flows"),
            ("{", "EOF"),
            ("{}", "missing field `apiVersion`"),
            (r#"{"apiVersion": "v2"}"#, "apiVersion \"v2\" is not"),
            (&format!("{{{version}}}"), "missing field `node`"),
            (
                &format!(r#"{{{version}, "node": "a", "node": "b"}}"#),
                "node is there twice",
            ),
            (
                &format!(r#"{{{version}, "flows": 5}}"#),
                "invalid type: integer",
            ),
        ] {
            let error = read(text, None).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(read("", None).unwrap().is_empty());
    }
}
