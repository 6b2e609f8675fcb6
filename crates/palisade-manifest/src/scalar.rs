//! Resolves YAML scalars as go-yaml v2 does, which kubectl uses.
//!
//! Its rules are those of YAML 1.1 with Go's number syntax: `on` is a boolean; `010`, `0o10` and `0b1000` are
//! eight; `08` is a float (and so eight); a timestamp stays text.

use crate::document_error::DocumentErrorKind;
use std::sync::Arc;

/// A resolved scalar, before it is converted to a value or a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Above `i64::MAX`.
    Uint(u64),
    /// May be infinite or NaN, which is valid for a key only.
    Float(f64),
    Text(Arc<str>),
}

const TAG_PREFIX: &str = "tag:yaml.org,2002:";

/// The merge tag, for an explicit `!!merge`.
pub(crate) const MERGE_TAG: &str = "tag:yaml.org,2002:merge";

/// A plain scalar without a tag.
pub(crate) fn resolve_plain(text: &str) -> Scalar {
    resolve_non_text(text).unwrap_or_else(|| Scalar::Text(text.into()))
}

/// A scalar with an explicit tag. A tag outside the YAML namespace, or `!!timestamp`, leaves the text
/// unchanged, because kubectl passes both on as text.
pub(crate) fn resolve_tagged(tag: &str, text: &str) -> Result<Scalar, DocumentErrorKind> {
    let bad_tag = || DocumentErrorKind::BadTag {
        text: crate::describe::quote(text),
        tag: match tag.strip_prefix(TAG_PREFIX) {
            Some(short) => format!("!!{short}"),
            None => tag.to_owned(),
        },
    };
    let scalar = || resolve_plain(text);
    match tag.strip_prefix(TAG_PREFIX) {
        Some("bool") => match scalar() {
            value @ Scalar::Bool(_) => Ok(value),
            _ => Err(bad_tag()),
        },
        Some("int") => match scalar() {
            value @ (Scalar::Int(_) | Scalar::Uint(_)) => Ok(value),
            _ => Err(bad_tag()),
        },
        Some("float") => match scalar() {
            value @ Scalar::Float(_) => Ok(value),
            #[allow(clippy::cast_precision_loss)]
            Scalar::Int(value) => Ok(Scalar::Float(value as f64)),
            _ => Err(bad_tag()),
        },
        Some("null") => match scalar() {
            Scalar::Null => Ok(Scalar::Null),
            _ => Err(bad_tag()),
        },
        Some("binary") => {
            let bytes = decode_base64(text).ok_or_else(bad_tag)?;
            let decoded = String::from_utf8(bytes).map_err(|_| DocumentErrorKind::NotInJson {
                text: crate::describe::quote(text),
                what: "binary data that is not UTF-8",
            })?;
            Ok(Scalar::Text(decoded.into()))
        }
        _ => Ok(Scalar::Text(text.into())),
    }
}

/// The JSON key of a scalar, as sigs.k8s.io/yaml writes it.
pub(crate) fn key_text(scalar: Scalar) -> Result<Arc<str>, DocumentErrorKind> {
    match scalar {
        Scalar::Text(text) => Ok(text),
        Scalar::Bool(value) => Ok(if value { "true" } else { "false" }.into()),
        Scalar::Int(value) => Ok(value.to_string().into()),
        Scalar::Float(value) => Ok(float_key(value).into()),
        Scalar::Null => Err(DocumentErrorKind::KeyNotText("null".to_owned())),
        Scalar::Uint(value) => Err(DocumentErrorKind::KeyNotText(format!("the number {value}"))),
    }
}

/// The integer that a float becomes in JSON, if it is one.
pub(crate) fn float_as_int(value: f64) -> Option<i64> {
    if value.fract() != 0.0 {
        return None;
    }
    // Go writes the shortest digits that identify the float and pads with zeros; so does Rust. From 1e21 Go
    // writes an exponent, but such a number is no i64.
    value.to_string().parse().ok()
}

fn resolve_non_text(text: &str) -> Option<Scalar> {
    let scalar = match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => return resolve_number(text),
    };
    Some(scalar)
}

fn resolve_number(text: &str) -> Option<Scalar> {
    match text.as_bytes().first()? {
        // Here go-yaml calls Go's parser with the underscores, which must be between digits.
        b'.' if underscores_separate_digits(text) => float(&without_underscores(text)),
        b'0'..=b'9' | b'+' | b'-' => {
            let digits = without_underscores(text);
            integer(&digits).or_else(|| float(&digits))
        }
        _ => None,
    }
}

fn without_underscores(text: &str) -> String {
    text.chars().filter(|c| *c != '_').collect()
}

fn underscores_separate_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    let mut underscores = (0..bytes.len()).filter(|at| bytes[*at] == b'_');
    underscores.all(|at| digit(at.checked_sub(1)) && digit(at.checked_add(1)))
}

/// Go's `ParseInt` and, if that fails, `ParseUint` with base 0.
fn integer(text: &str) -> Option<Scalar> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if let Some(magnitude) = magnitude(unsigned) {
        let value = i128::from(magnitude) * if negative { -1 } else { 1 };
        if let Ok(value) = i64::try_from(value) {
            return Some(Scalar::Int(value));
        }
        // ParseUint accepts no sign, not even `+`.
        return (unsigned.len() == text.len()).then_some(Scalar::Uint(magnitude));
    }
    // go-yaml parses `0b` once more by itself and so accepts a sign after it.
    let rest = text.strip_prefix("0b")?;
    let (sign, digits) = match rest.as_bytes().first()? {
        b'-' => ("-", &rest[1..]),
        b'+' => ("", &rest[1..]),
        _ => return None,
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = i64::from_str_radix(&format!("{sign}{digits}"), 2).ok()?;
    Some(Scalar::Int(value))
}

fn magnitude(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let (base, digits) = match (bytes.first()?, bytes.get(1)) {
        (b'0', Some(b'x' | b'X')) => (16, &text[2..]),
        (b'0', Some(b'b' | b'B')) => (2, &text[2..]),
        (b'0', Some(b'o' | b'O')) => (8, &text[2..]),
        (b'0', Some(_)) => (8, &text[1..]),
        _ => (10, text),
    };
    // `from_str_radix` would accept a sign here.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, base).ok()
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, within the range of a float.
fn float(text: &str) -> Option<Scalar> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    if !mantissa_fits || !exponent_fits {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Scalar::Float(value))
}

/// Go's `FormatFloat(value, 'g', -1, 32)`, with the YAML names of non-finite numbers.
fn float_key(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation)]
    let value = value as f32;
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Standard base64 with padding; line breaks are ignored.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let symbols: Vec<u8> = text
        .bytes()
        .filter(|b| !matches!(b, b'\r' | b'\n'))
        .collect();
    if !symbols.len().is_multiple_of(4) {
        return None;
    }
    let padding = symbols.iter().rev().take_while(|b| **b == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(symbols.len() / 4 * 3);
    for quad in symbols[..symbols.len() - padding].chunks(4) {
        let mut bits = 0u32;
        for symbol in quad {
            bits = bits << 6 | base64_value(*symbol)?;
        }
        bits <<= 6 * (4 - quad.len());
        let [_, first, second, third] = bits.to_be_bytes();
        bytes.extend(&[first, second, third][..quad.len() - 1]);
    }
    Some(bytes)
}

fn base64_value(symbol: u8) -> Option<u32> {
    let value = match symbol {
        b'A'..=b'Z' => symbol - b'A',
        b'a'..=b'z' => symbol - b'a' + 26,
        b'0'..=b'9' => symbol - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}
