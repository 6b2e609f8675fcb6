//! Which requests are served: by the name of the host that they are for, by the site that made them, and by the token.
//!
//! Without a token, a request is served under a loopback name only, so that a foreign name that resolves to this machine
//! gives a foreign page no access. Requests that a page of another site makes are refused in any case.

use crate::sessions::{LoginTable, SESSION_LIFETIME, equals_secret};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tokio::time::Instant;

/// The header by which a browser says which site made a request.
const FETCH_SITE: &str = "sec-fetch-site";

/// The address of the client of a connection, as an extension of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// Whether a request knows the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenCheck {
    /// By a session.
    Session,
    /// By the header.
    Header,
    /// It has none, or a wrong one.
    Wrong,
    /// Its peer has tried too often.
    TooOften,
}

/// The address of the client; unspecified where the connection is not known.
pub(crate) fn peer_of(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<PeerAddress>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0)
}

/// The only value of a header.
fn only_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The host and port that a request is for.
fn authority(parts: &Parts) -> Option<Authority> {
    only_value(&parts.headers, HOST.as_str())?.parse().ok()
}

/// Whether a request is for a loopback name.
pub(crate) fn is_for_loopback(parts: &Parts) -> bool {
    let target = parts.uri.host();
    let host = authority(parts);
    host.is_some_and(|host| is_loopback_name(host.host()) && !host.as_str().contains('@'))
        && target.is_none_or(is_loopback_name)
}

fn is_loopback_name(name: &str) -> bool {
    if let Some(inside) = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
    {
        return inside
            .parse::<Ipv6Addr>()
            .is_ok_and(|address| address.is_loopback());
    }
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether a page of another site made a request. Links to the page itself are no such request.
pub(crate) fn is_cross_site(parts: &Parts) -> bool {
    let is_document = parts.method == Method::GET && matches!(parts.uri.path(), "/" | "/login");
    let site = parts.headers.get(FETCH_SITE);
    let is_own = |site: &[u8]| site == b"same-origin" || site == b"none";
    !is_document && site.is_some_and(|site| !is_own(site.as_bytes()))
}

/// Whether the page itself made a request, as its browser says.
pub(crate) fn is_from_page(parts: &Parts) -> bool {
    if let Some(site) = only_value(&parts.headers, FETCH_SITE) {
        return site == "same-origin";
    }
    let (Some(origin), Some(host)) = (
        only_value(&parts.headers, ORIGIN.as_str()),
        only_value(&parts.headers, HOST.as_str()),
    ) else {
        return false;
    };
    let scheme_end = origin.find("://").map(|start| start + 3);
    scheme_end.is_some_and(|end| origin[end..].eq_ignore_ascii_case(host))
}

/// The name of the cookie. Cookies of one host are shared by all of its ports, and several agents may be forwarded.
fn cookie_name(parts: &Parts) -> String {
    let port = authority(parts).and_then(|host| host.port_u16());
    format!("palisade-page-{}", port.unwrap_or(80))
}

/// The cookie of a new session.
pub(crate) fn session_cookie(parts: &Parts, secret: &str) -> String {
    format!(
        "{}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}",
        cookie_name(parts),
        SESSION_LIFETIME.as_secs()
    )
}

/// The secret of the session that a request belongs to.
fn session_secret(parts: &Parts) -> Option<&str> {
    let name = cookie_name(parts);
    let headers = parts.headers.get_all(COOKIE).iter();
    headers
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|pair| {
            let (key, value) = pair.trim().split_once('=')?;
            (key == name).then_some(value)
        })
}

/// Compares a token that a client presents.
pub(crate) fn check_token(
    presented: &str,
    token: &str,
    peer: IpAddr,
    table: &LoginTable,
    now: Instant,
) -> TokenCheck {
    if !table.may_try(peer, now) {
        return TokenCheck::TooOften;
    }
    if equals_secret(presented.as_bytes(), token.as_bytes()) {
        return TokenCheck::Header;
    }
    table.count_failure(peer, now);
    TokenCheck::Wrong
}

/// Whether a request knows the token.
pub(crate) fn check_request(
    parts: &Parts,
    token: &str,
    table: &LoginTable,
    now: Instant,
) -> TokenCheck {
    if session_secret(parts).is_some_and(|secret| table.has_session(secret, now)) {
        return TokenCheck::Session;
    }
    let header = only_value(&parts.headers, AUTHORIZATION.as_str());
    let presented = header.and_then(|header| {
        let (scheme, presented) = header.split_once(' ')?;
        let is_bearer = scheme.eq_ignore_ascii_case("bearer");
        is_bearer.then(|| presented.trim())
    });
    match presented {
        Some(presented) => check_token(presented, token, peer_of(parts), table, now),
        None => TokenCheck::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn request(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::get("/v1/status");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn loopback_names_are_these() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(is_for_loopback(&request(&[("host", host)])), "{host}");
        }
        for host in [
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "127.1",
            "0.0.0.0",
            "10.0.0.1",
            "[::]",
            "[::ffff:127.0.0.1]",
            "::1",
            "",
            "a@localhost",
        ] {
            assert!(!is_for_loopback(&request(&[("host", host)])), "{host}");
        }
        assert!(!is_for_loopback(&request(&[])));
        let twice = [("host", "localhost"), ("host", "example.org")];
        assert!(!is_for_loopback(&request(&twice)));
    }

    #[test]
    fn the_page_itself_is_told_from_other_sites() {
        let site = |site| request(&[("host", "localhost:1"), (FETCH_SITE, site)]);
        for foreign in ["cross-site", "same-site", "other"] {
            assert!(is_cross_site(&site(foreign)) && !is_from_page(&site(foreign)));
        }
        assert!(!is_cross_site(&site("same-origin")) && is_from_page(&site("same-origin")));
        assert!(!is_cross_site(&site("none")) && !is_from_page(&site("none")));
        let origin = |origin| request(&[("host", "localhost:1"), ("origin", origin)]);
        assert!(is_from_page(&origin("http://localhost:1")));
        assert!(is_from_page(&origin("https://localhost:1")));
        for foreign in [
            "http://localhost:2",
            "http://localhost",
            "null",
            "localhost:1",
        ] {
            assert!(!is_from_page(&origin(foreign)), "{foreign}");
        }
        assert!(!is_from_page(&request(&[("host", "localhost:1")])));
    }
}
