//! Where the API is reached: the socket with its owner and mode, and the address of the probes.
//!
//! The socket is made closed to everybody but root, then given to the API's group. The address has no
//! authentication, so only figures and probes are behind it; one that other hosts reach is warned of.

use super::admission::{AdmissionControl, ApiPrincipals, RequestLimits, parse_group_id};
use super::rate_limit::RequestRate;
use crate::clock::SystemClock;
use crate::config::Config;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener};

/// A door could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ApiSocketError {
    /// The socket cannot be made, or not protected.
    #[error("{doing} {}", path.display())]
    Socket {
        /// What was being done.
        doing: &'static str,
        /// To which socket.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The address cannot be had.
    #[error("listening on health-address {address}")]
    Address {
        /// Which.
        address: SocketAddr,
        /// What went wrong.
        source: io::Error,
    },
}

/// What the configuration says of the doors.
#[derive(Debug)]
pub struct ApiSockets {
    socket: PathBuf,
    group: Option<String>,
    address: Option<SocketAddr>,
    listener: Option<std::net::TcpListener>,
    limits: RequestLimits,
}

/// How much of each user's requests is taken.
pub fn request_limits(config: &Config) -> RequestLimits {
    RequestLimits {
        rate: RequestRate {
            per_second: config.api_rate,
            burst: config.api_burst,
        },
        body_limit: config.api_body_limit,
    }
}

impl ApiSockets {
    /// As this configuration says.
    pub fn new(config: &Config) -> Self {
        ApiSockets {
            socket: config.socket.clone(),
            group: config.api_group.clone(),
            address: config.health_address,
            listener: None,
            limits: request_limits(config),
        }
    }

    /// Who passes them, and how often.
    pub fn admission_control(&self) -> AdmissionControl {
        let permit = ApiPrincipals {
            own_uid: palisade_sys::credentials::effective_uid(),
            group_id: self.group_id(),
            group_name: self.group.clone().unwrap_or_default(),
        };
        AdmissionControl::new(permit, self.limits, Arc::new(SystemClock))
    }

    fn group_id(&self) -> Option<u32> {
        let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
        parse_group_id(self.group.as_deref()?, &groups)
    }

    /// Opens the socket, in the place of one that an agent left behind.
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
                return Err(error("removing the old")(found));
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

    /// Removes the socket: nobody finds it any more.
    pub fn remove_socket(&self) {
        match std::fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "removing the socket");
            }
            _ => {}
        }
    }

    /// Takes the address of figures and probes, if there is one. Nobody is answered there yet.
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
            tracing::warn!(%address, "whoever reaches health-address reads figures");
        }
        self.listener = Some(listener);
        Ok(())
    }

    /// What listens at the address that was taken; once, inside the runtime.
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
