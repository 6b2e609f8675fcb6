//! Filters by HTTP requests and responses.
//!
//! Promises: they need that the filter's types of events, if it has any, include those of layer 7.
//!
//! Never: matches a flow without HTTP.

use super::TestBuilder;
use super::packet::layer7;
use crate::proto::flow::layer7::Record;
use crate::proto::flow::{Flow, FlowFilter, Http};

/// Cilium's type of events of layer 7.
const EVENT_ACCESS_LOG: i32 = 129;

pub(super) fn add_tests(builder: &mut TestBuilder, filter: &FlowFilter) -> Result<(), String> {
    let types = &filter.event_type;
    let fields = [
        ("http status code", filter.http_status_code.is_empty()),
        ("http method", filter.http_method.is_empty()),
        ("http path", filter.http_path.is_empty()),
        ("http url", filter.http_url.is_empty()),
        ("http headers", filter.http_header.is_empty()),
    ];
    if !types.is_empty() && types.iter().all(|wanted| wanted.r#type != EVENT_ACCESS_LOG) {
        for (field, is_empty) in fields {
            if !is_empty {
                return Err(format!(
                    "filtering by {field} requires the event type filter to only match 'l7' events"
                ));
            }
        }
    }
    builder.add("http status code", &filter.http_status_code, |_, texts| {
        let prefixes = texts.iter().map(|text| status_prefix(text));
        let prefixes: Vec<String> = prefixes.collect::<Result<_, _>>()?;
        Ok(move |flow: &Flow| {
            let code = http(flow).map_or(0, |http| http.code);
            let code = format!("{code:03}");
            code != "000" && prefixes.iter().any(|prefix| code.starts_with(prefix))
        })
    })?;
    builder.add("http method", &filter.http_method, |_, methods| {
        let wanted = methods.to_vec();
        Ok(move |flow: &Flow| {
            let method = http(flow).map_or("", |http| http.method.as_str());
            !method.is_empty()
                && wanted
                    .iter()
                    .any(|wanted| wanted.eq_ignore_ascii_case(method))
        })
    })?;
    builder.add("http path", &filter.http_path, |builder, texts| {
        let wanted = builder.expressions(texts)?;
        Ok(move |flow: &Flow| {
            let path = http(flow).and_then(|http| request_path(&http.url));
            path.is_some_and(|path| wanted.iter().any(|wanted| wanted.is_match(&path)))
        })
    })?;
    builder.add("http url", &filter.http_url, |builder, texts| {
        let wanted = builder.expressions(texts)?;
        Ok(move |flow: &Flow| {
            let url = http(flow).map_or("", |http| http.url.as_str());
            !url.is_empty() && wanted.iter().any(|wanted| wanted.is_match(url))
        })
    })?;
    builder.add("http header", &filter.http_header, |_, headers| {
        let wanted = headers.to_vec();
        Ok(move |flow: &Flow| {
            let headers = http(flow).map_or(&[][..], |http| http.headers.as_slice());
            headers.iter().any(|header| wanted.contains(header))
        })
    })
}

fn http(flow: &Flow) -> Option<&Http> {
    match layer7(flow) {
        Some(Record::Http(http)) => Some(http),
        _ => None,
    }
}

/// What a code begins with: all of it (`404`), or the digits before a plus sign (`4+`, `40+`).
fn status_prefix(text: &str) -> Result<String, String> {
    let (digits, lengths) = match text.strip_suffix('+') {
        Some(digits) => (digits, 1..=2),
        None => (text, 3..=3),
    };
    let is_code = lengths.contains(&digits.len())
        && digits.bytes().all(|digit| digit.is_ascii_digit())
        && matches!(digits.as_bytes().first(), Some(b'1'..=b'5'));
    if is_code {
        Ok(digits.to_owned())
    } else {
        Err(format!("invalid status code prefix: {text:?}"))
    }
}

/// The path of a request's URL, decoded; nothing if it is not the URL of a request.
fn request_path(url: &str) -> Option<String> {
    if url.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return None;
    }
    let url = url.split_once('?').map_or(url, |(before, _)| before);
    let path = match url.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => match rest.strip_prefix("//") {
            Some(authority) => authority.find('/').map_or("", |at| &authority[at..]),
            None if rest.starts_with('/') => rest,
            None => "",
        },
        _ if url.starts_with('/') => url,
        _ => return None,
    };
    decode_percent(path)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && (text.bytes()).all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?);
        rest = after;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
