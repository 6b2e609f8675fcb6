//! The schema of what is validated only: TLS contexts, listeners, rules of HTTP and Kafka, groups of cloud providers.
//!
//! Promises: it has the fields, the types and the limits of the published CRD. Never: says what such a part would
//! allow.

use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};

/// The schema of a value.
pub(super) enum ValueSchema {
    /// A text.
    Text,
    /// A text with at least and at most this many characters.
    Length(usize, usize),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number in this range.
    Number(i64, i64),
    /// A list.
    List(&'static ValueSchema),
    /// An object whose fields are all texts.
    Texts,
    /// An object with these fields.
    Object(&'static [FieldSchema]),
}

use ValueSchema::{Length, List, Number, Object, Text, Texts, Word};

/// A field of an object.
pub(super) struct FieldSchema {
    name: &'static str,
    schema: ValueSchema,
    is_required: bool,
}

const fn optional(name: &'static str, schema: ValueSchema) -> FieldSchema {
    FieldSchema {
        name,
        schema,
        is_required: false,
    }
}

const fn required(name: &'static str, schema: ValueSchema) -> FieldSchema {
    FieldSchema {
        is_required: true,
        ..optional(name, schema)
    }
}

const FILLED: ValueSchema = Length(1, usize::MAX);

const SECRET: &[FieldSchema] = &[required("name", Text), optional("namespace", Text)];

/// A TLS context of a port.
pub(super) const TLS_CONTEXT: ValueSchema = Object(&[
    required("secret", Object(SECRET)),
    optional("trustedCA", Text),
    optional("certificate", Text),
    optional("privateKey", Text),
]);

/// A listener of a port.
pub(super) const LISTENER: ValueSchema = Object(&[
    required(
        "envoyConfig",
        Object(&[
            optional(
                "kind",
                Word(&["CiliumEnvoyConfig", "CiliumClusterwideEnvoyConfig"]),
            ),
            required("name", FILLED),
        ]),
    ),
    required("name", FILLED),
    optional("priority", Number(1, 100)),
]);

/// A rule of HTTP.
pub(super) const HTTP_RULE: ValueSchema = Object(&[
    optional("path", Text),
    optional("method", Text),
    optional("host", Text),
    optional("headers", List(&Text)),
    optional(
        "headerMatches",
        List(&Object(&[
            optional("mismatch", Word(&["LOG", "ADD", "DELETE", "REPLACE"])),
            required("name", FILLED),
            optional("secret", Object(SECRET)),
            optional("value", Text),
        ])),
    ),
]);

/// A rule of Kafka.
pub(super) const KAFKA_RULE: ValueSchema = Object(&[
    optional("role", Word(&["produce", "consume"])),
    optional("apiKey", Text),
    optional("apiVersion", Text),
    optional("clientID", Text),
    optional("topic", Length(0, 255)),
]);

/// A rule of another protocol.
pub(super) const OTHER_RULE: ValueSchema = Texts;

/// A group of a cloud provider.
pub(super) const CLOUD_GROUP: ValueSchema = Object(&[optional(
    "aws",
    Object(&[
        optional("labels", Texts),
        optional("securityGroupsIds", List(&Text)),
        optional("securityGroupsNames", List(&Text)),
        optional("region", Text),
    ]),
)]);

/// Adds errors for a value that does not conform to a schema.
pub(super) fn check(field: &Field<'_>, schema: &ValueSchema, report: &mut ObjectReport) {
    match schema {
        Text => drop(report.ok(field.as_str())),
        Length(least, most) => {
            let text = report.ok(field.as_str());
            let length = text.map(|text| text.chars().count());
            if length.is_some_and(|length| length < *least) {
                report.error(field, "it is empty");
            } else if length.is_some_and(|length| length > *most) {
                report.error(field, format!("at most {most} characters"));
            }
        }
        Word(words) => {
            let text = report.ok(field.as_str());
            if let Some(text) = text.filter(|text| !words.contains(text)) {
                let words = words.join(", ");
                let reason = format!("{} is not one of {words}", quote(text));
                report.error(field, reason);
            }
        }
        Number(least, most) => {
            let number = report.ok(field.as_i64());
            if number.is_some_and(|number| !(*least..=*most).contains(&number)) {
                report.error(field, format!("it must be from {least} to {most}"));
            }
        }
        List(item) => {
            for at in report.ok(field.items()).unwrap_or_default() {
                check(&at, item, report);
            }
        }
        Texts => {
            if report.is_object(field) {
                for (_, at) in field.entries().unwrap_or_default() {
                    report.ok(at.as_str());
                }
            }
        }
        Object(fields) => check_object(field, fields, report),
    }
}

fn check_object(parent: &Field<'_>, fields: &[FieldSchema], report: &mut ObjectReport) {
    if !report.is_object(parent) {
        return;
    }
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    report.check_fields(parent, &names, &[]);
    for field in fields {
        match report.child(parent, field.name) {
            Some(at) => check(&at, &field.schema, report),
            None if field.is_required => {
                report.error(parent, format!("`{}` is required, but missing", field.name));
            }
            None => {}
        }
    }
}
