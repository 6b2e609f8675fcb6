//! The listeners of the API: the unix socket with its owner and mode, and the health address.
//!
//! The socket is created accessible to root only, then given to the API's group. The health address has
//! no authentication, so it serves only metrics and probes; a warning is logged if it is not a loopback
//! address.

use super::admission::{AdmissionControl, ApiPrincipals, RequestLimits, parse_group_id};
use palisade_config::ApiConfig;
use palisade_node::clock::SystemClock;
use palisade_node::rate_limit::RateLimit;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener};

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ApiSocketError {
    /// The socket cannot be created or protected.
    #[error("{doing} {}", path.display())]
    Socket {
        /// The operation that failed.
        doing: &'static str,
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The address cannot be bound.
    #[error("listening on health-address {address}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// The configuration of the listeners.
#[derive(Debug)]
pub struct ApiSockets {
    socket: PathBuf,
    group: Option<String>,
    address: Option<SocketAddr>,
    listener: Option<std::net::TcpListener>,
}

/// What each user may ask of the API.
const REQUEST_LIMITS: RequestLimits = RequestLimits {
    rate: RateLimit {
        per_second: 100,
        burst: 200,
    },
    body_limit: 1_048_576,
};

fn group_id(group: Option<&str>) -> Option<u32> {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    parse_group_id(group?, &groups)
}

/// Gives a socket to the API's group, if there is one.
///
/// # Errors
/// If the system refuses.
pub(crate) fn set_api_group(path: &Path, config: &ApiConfig) -> io::Result<()> {
    let Some(group) = group_id(config.group.as_deref()) else {
        return Ok(());
    };
    std::os::unix::fs::chown(path, None, Some(group))
}

impl ApiSockets {
    /// The listeners of a configuration.
    pub fn new(config: &ApiConfig) -> Self {
        ApiSockets {
            socket: config.socket.clone(),
            group: config.group.clone(),
            address: config.health_address,
            listener: None,
        }
    }

    /// Admission control for the listeners.
    pub fn admission_control(&self) -> AdmissionControl {
        let permit = ApiPrincipals {
            own_uid: palisade_sys::credentials::effective_uid(),
            group_id: self.group_id(),
            group_name: self.group.clone().unwrap_or_default(),
        };
        AdmissionControl::new(permit, REQUEST_LIMITS, Arc::new(SystemClock))
    }

    fn group_id(&self) -> Option<u32> {
        group_id(self.group.as_deref())
    }

    /// Opens the socket and replaces a stale one.
    ///
    /// # Errors
    /// See [`ApiSocketError`].
    pub fn bind_socket(&self) -> Result<UnixListener, ApiSocketError> {
        let path = &self.socket;
        let error = |doing| {
            move |source| ApiSocketError::Socket {
                doing,
                path: path.clone(),
                source,
            }
        };
        match std::fs::remove_file(path) {
            Err(found) if found.kind() != io::ErrorKind::NotFound => {
                return Err(error("removing the stale socket")(found));
            }
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(error("listening on"))?;
        if let Some(group) = self.group_id() {
            std::os::unix::fs::chown(path, None, Some(group)).map_err(error("protecting"))?;
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
            .map_err(error("protecting"))?;
        tracing::debug!(socket = %path.display(), "listening");
        Ok(listener)
    }

    /// Removes the socket, so that no new client can connect.
    pub fn remove_socket(&self) {
        match std::fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "removing the socket failed");
            }
            _ => {}
        }
    }

    /// Binds the health address, if one is configured. Connections are not accepted yet.
    ///
    /// # Errors
    /// See [`ApiSocketError`].
    pub fn bind_health_address(&mut self) -> Result<(), ApiSocketError> {
        let Some(address) = self.address else {
            return Ok(());
        };
        let error = |source| ApiSocketError::Address { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(error)?;
        listener.set_nonblocking(true).map_err(error)?;
        if !address.ip().is_loopback() {
            tracing::warn!(%address, "health-address is not a loopback address: everyone who can reach it can read metrics");
        }
        self.listener = Some(listener);
        Ok(())
    }

    /// The listener of the health address; can be taken once, inside the runtime.
    ///
    /// # Errors
    /// See [`ApiSocketError`].
    pub fn take_health_listener(&mut self) -> Result<Option<TcpListener>, ApiSocketError> {
        let (Some(address), Some(listener)) = (self.address, self.listener.take()) else {
            return Ok(None);
        };
        let listener = TcpListener::from_std(listener);
        Ok(Some(listener.map_err(|source| {
            ApiSocketError::Address { address, source }
        })?))
    }
}
