//! The form of what is validated only: TLS contexts, listeners, rules of HTTP and Kafka, groups of cloud providers.
//!
//! Promises: it has the fields, the types and the limits of the published CRD. Never: says what such a part would
//! allow.

use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};

/// The form of a value.
pub(super) enum ValueForm {
    /// A text.
    Text,
    /// A text with at least and at most this many characters.
    Length(usize, usize),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number in this range.
    Number(i64, i64),
    /// A list.
    List(&'static ValueForm),
    /// An object of which every field is a text.
    Texts,
    /// An object with these fields.
    Object(&'static [FieldForm]),
}

use ValueForm::{Length, List, Number, Object, Text, Texts, Word};

/// A field of an object.
pub(super) struct FieldForm {
    name: &'static str,
    form: ValueForm,
    is_required: bool,
}

const fn optional(name: &'static str, form: ValueForm) -> FieldForm {
    FieldForm {
        name,
        form,
        is_required: false,
    }
}

const fn required(name: &'static str, form: ValueForm) -> FieldForm {
    FieldForm {
        is_required: true,
        ..optional(name, form)
    }
}

const FILLED: ValueForm = Length(1, usize::MAX);

const SECRET: &[FieldForm] = &[required("name", Text), optional("namespace", Text)];

/// A TLS context of a port.
pub(super) const TLS_CONTEXT: ValueForm = Object(&[
    required("secret", Object(SECRET)),
    optional("trustedCA", Text),
    optional("certificate", Text),
    optional("privateKey", Text),
]);

/// A listener of a port.
pub(super) const LISTENER: ValueForm = Object(&[
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
pub(super) const HTTP_RULE: ValueForm = Object(&[
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
pub(super) const KAFKA_RULE: ValueForm = Object(&[
    optional("role", Word(&["produce", "consume"])),
    optional("apiKey", Text),
    optional("apiVersion", Text),
    optional("clientID", Text),
    optional("topic", Length(0, 255)),
]);

/// A rule of another protocol.
pub(super) const OTHER_RULE: ValueForm = Texts;

/// A group of a cloud provider.
pub(super) const CLOUD_GROUP: ValueForm = Object(&[optional(
    "aws",
    Object(&[
        optional("labels", Texts),
        optional("securityGroupsIds", List(&Text)),
        optional("securityGroupsNames", List(&Text)),
        optional("region", Text),
    ]),
)]);

/// Adds errors for a value that does not have this form.
pub(super) fn check(field: &Field<'_>, form: &ValueForm, report: &mut ObjectReport) {
    match form {
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

fn check_object(of: &Field<'_>, fields: &[FieldForm], report: &mut ObjectReport) {
    if !report.is_object(of) {
        return;
    }
    let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
    report.check_fields(of, &known, &[]);
    for field in fields {
        match report.child(of, field.name) {
            Some(at) => check(&at, &field.form, report),
            None if field.is_required => {
                report.error(of, format!("`{}` is required, but missing", field.name));
            }
            None => {}
        }
    }
}
