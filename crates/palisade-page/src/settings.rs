//! What the page is served with: the address, the token, the bounds. An address that other machines reach is refused
//! without a token.

use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// The fewest characters of a token.
const SHORTEST_TOKEN: usize = 16;
/// The most characters of a token.
const LONGEST_TOKEN: usize = 512;

/// The bounds of the page's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Simultaneous connections; further ones are answered 503 and closed.
    pub connections: usize,
    /// Simultaneous streams of events; further ones are answered 503.
    pub streams: usize,
    /// Simultaneous requests to the agent other than streams; further ones are answered 503.
    pub requests: usize,
    /// Simultaneous maps and previews; further ones are answered 503.
    pub computations: usize,
    /// The largest body of a preview, in bytes; a larger one is answered 413.
    pub preview_body: usize,
    /// The largest list of flows from which a map is made, in bytes.
    pub map_body: usize,
    /// How long the head of a request, and then its body, may take to arrive.
    pub arrival: Duration,
    /// How long a client may not read before its connection is closed.
    pub unread: Duration,
    /// How long the agent may take to begin its response.
    pub upstream: Duration,
}

impl Default for PageLimits {
    fn default() -> Self {
        PageLimits {
            connections: 256,
            streams: 64,
            requests: 64,
            computations: 2,
            preview_body: 1 << 20,
            map_body: 64 << 20,
            arrival: Duration::from_secs(10),
            unread: Duration::from_secs(30),
            upstream: Duration::from_secs(60),
        }
    }
}

/// Why the page cannot be served with these settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PageSettingsError {
    /// Other machines reach the address.
    #[error("serving the page at {0}: other machines reach this address, so a token is needed")]
    TokenNeeded(SocketAddr),
    /// The token is too short to withstand guessing, or too long.
    #[error("the token of the page has {0} characters: it needs 16 to 512")]
    TokenLength(usize),
    /// The token has characters that a header cannot carry.
    #[error("the token of the page has characters other than visible ASCII characters")]
    TokenCharacters,
}

/// The settings of the page's server.
#[derive(Clone)]
pub struct PageSettings {
    address: SocketAddr,
    token: Option<String>,
    limits: PageLimits,
}

impl std::fmt::Debug for PageSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "(not shown)");
        f.debug_struct("PageSettings")
            .field("address", &self.address)
            .field("token", &token)
            .field("limits", &self.limits)
            .finish()
    }
}

impl PageSettings {
    /// Settings for an address, and the token that clients need; space around the token is left out.
    ///
    /// # Errors
    /// If there is no token and the address is not a loopback address, or if the token is short, long, or has
    /// characters other than visible ASCII characters.
    pub fn new(address: SocketAddr, token: Option<&str>) -> Result<Self, PageSettingsError> {
        let token = token.map(str::trim);
        match token {
            None if !address.ip().to_canonical().is_loopback() => {
                return Err(PageSettingsError::TokenNeeded(address));
            }
            Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                return Err(PageSettingsError::TokenCharacters);
            }
            Some(token) if !(SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&token.len()) => {
                return Err(PageSettingsError::TokenLength(token.len()));
            }
            _ => {}
        }
        Ok(PageSettings {
            address,
            token: token.map(str::to_owned),
            limits: PageLimits::default(),
        })
    }

    /// The same with other bounds.
    #[must_use]
    pub fn with_limits(mut self, limits: PageLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The address to listen at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> PageLimits {
        self.limits
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}
