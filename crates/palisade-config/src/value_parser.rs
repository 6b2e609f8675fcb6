//! The kinds of values with what they are parsed to: one function for each, used in the rows of sections.

use crate::kind::ParameterKind;
use crate::parse;
use crate::values::{AddressPools, AddressRange, DnsServers, EtcdEndpoint, KubernetesApi};
use palisade_model::{Encapsulations, FailsafePort, Prefix};
use std::net::SocketAddr;
use std::path::PathBuf;

/// A kind of values, and how a text of it becomes a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueParser<T: 'static> {
    kind: ParameterKind,
    method: ParseMethod<T>,
}

#[derive(Clone, Copy, Debug)]
enum ParseMethod<T: 'static> {
    /// The value at the position of the word.
    Words(&'static [T]),
    Function(fn(ParameterKind, &str) -> Result<T, String>),
}

impl<T: Clone> ValueParser<T> {
    /// Parses a text.
    ///
    /// # Errors
    /// Why the text is invalid, phrased to follow the value.
    pub(crate) fn parse(&self, text: &str) -> Result<T, String> {
        match (&self.method, self.kind) {
            (ParseMethod::Words(values), ParameterKind::OneOf(words)) => {
                let position = parse::choice(text, words)?;
                values.get(position).cloned().ok_or_else(String::new)
            }
            (ParseMethod::Function(function), kind) => function(kind, text),
            (ParseMethod::Words(_), _) => Err("is not a word".to_owned()),
        }
    }
}

impl<T> ValueParser<T> {
    /// The kind.
    pub(crate) const fn kind(&self) -> ParameterKind {
        self.kind
    }
}

const fn by_function<T>(
    kind: ParameterKind,
    function: fn(ParameterKind, &str) -> Result<T, String>,
) -> ValueParser<T> {
    ValueParser {
        kind,
        method: ParseMethod::Function(function),
    }
}

/// One of these words; each means the value at its position.
pub(crate) const fn one_of<T>(
    words: &'static [&'static str],
    values: &'static [T],
) -> ValueParser<T> {
    assert!(words.len() == values.len(), "each word has a value");
    ValueParser {
        kind: ParameterKind::OneOf(words),
        method: ParseMethod::Words(values),
    }
}

pub(crate) const fn boolean() -> ValueParser<bool> {
    by_function(ParameterKind::Bool, |_, text| {
        Ok(parse::choice(text, &["false", "true"])? == 1)
    })
}

pub(crate) const fn path() -> ValueParser<PathBuf> {
    by_function(ParameterKind::Path, |_, text| parse::path(text))
}

pub(crate) const fn optional_path() -> ValueParser<Option<PathBuf>> {
    by_function(ParameterKind::OptionalPath, |_, text| {
        Ok((!text.is_empty()).then(|| PathBuf::from(text)))
    })
}

pub(crate) const fn file_name() -> ValueParser<String> {
    by_function(ParameterKind::FileName, |_, text| parse::file_name(text))
}

pub(crate) const fn number(least: u32, most: u32) -> ValueParser<u32> {
    by_function(
        ParameterKind::Number { least, most },
        |kind, text| match kind {
            ParameterKind::Number { least, most } => parse::number(text, least, most)
                .ok_or_else(|| format!("is not a number from {least} to {most}")),
            _ => Err("is not a number".to_owned()),
        },
    )
}

/// A number; `None` for 0.
pub(crate) const fn number_or_zero(least: u32, most: u32) -> ValueParser<Option<u32>> {
    by_function(
        ParameterKind::NumberOrZero { least, most },
        |kind, text| match kind {
            ParameterKind::NumberOrZero { least, most } => parse::number(text, 0, most)
                .filter(|number| *number == 0 || *number >= least)
                .map(|number| Some(number).filter(|number| *number != 0))
                .ok_or_else(|| format!("is neither 0 nor a number from {least} to {most}")),
            _ => Err("is not a number".to_owned()),
        },
    )
}

pub(crate) const fn name(most: usize) -> ValueParser<String> {
    by_function(ParameterKind::Name { most }, |kind, text| match kind {
        ParameterKind::Name { most } => parse::name(text, most),
        _ => Err("is not a name".to_owned()),
    })
}

pub(crate) const fn group() -> ValueParser<Option<String>> {
    by_function(ParameterKind::Group, |_, text| {
        Ok(unless_empty(parse::group(text)?))
    })
}

pub(crate) const fn optional_text() -> ValueParser<Option<String>> {
    by_function(ParameterKind::OptionalText, |_, text| {
        Ok(unless_empty(parse::printable(text)?))
    })
}

pub(crate) const fn node_name() -> ValueParser<Option<String>> {
    by_function(ParameterKind::NodeName, |_, text| {
        Ok(unless_empty(parse::node_name(text)?))
    })
}

fn unless_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

pub(crate) const fn mask() -> ValueParser<u32> {
    by_function(ParameterKind::Mask, |_, text| parse::mask(text))
}

pub(crate) const fn networks() -> ValueParser<Vec<Prefix>> {
    by_function(ParameterKind::Networks, |_, text| parse::networks(text))
}

pub(crate) const fn dns_servers() -> ValueParser<DnsServers> {
    by_function(ParameterKind::DnsServers, |_, text| {
        parse::dns_servers(text)
    })
}

pub(crate) const fn pools() -> ValueParser<AddressPools> {
    by_function(ParameterKind::Pools, |_, text| parse::pools(text))
}

pub(crate) const fn ranges() -> ValueParser<Vec<AddressRange>> {
    by_function(ParameterKind::Ranges, |_, text| parse::ranges(text))
}

pub(crate) const fn failsafe_ports() -> ValueParser<Vec<FailsafePort>> {
    by_function(ParameterKind::FailsafePorts, |_, text| {
        parse::parse_failsafe_ports(text)
    })
}

pub(crate) const fn encapsulations() -> ValueParser<Encapsulations> {
    const WORDS: &[&str] = &["vxlan", "geneve", "ipip", "gre"];
    by_function(ParameterKind::AnyOf(WORDS), |_, text| {
        parse::encapsulations(text, WORDS)
    })
}

pub(crate) const fn namespaces() -> ValueParser<Vec<String>> {
    by_function(ParameterKind::Namespaces, |_, text| parse::namespaces(text))
}

pub(crate) const fn interfaces() -> ValueParser<Vec<String>> {
    by_function(ParameterKind::Interfaces, |_, text| parse::interfaces(text))
}

pub(crate) const fn socket_address() -> ValueParser<Option<SocketAddr>> {
    by_function(ParameterKind::Address, |_, text| {
        parse::socket_address(text)
    })
}

pub(crate) const fn kubernetes_api() -> ValueParser<KubernetesApi> {
    by_function(ParameterKind::KubernetesApi, |_, text| {
        parse::kubernetes_api(text)
    })
}

pub(crate) const fn etcd_endpoints() -> ValueParser<Vec<EtcdEndpoint>> {
    by_function(ParameterKind::Endpoints, |_, text| {
        parse::etcd_endpoints(text)
    })
}

pub(crate) const fn key_prefix() -> ValueParser<String> {
    by_function(ParameterKind::KeyPrefix, |_, text| parse::key_prefix(text))
}
