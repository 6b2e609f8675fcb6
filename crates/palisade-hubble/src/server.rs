//! Serves the API on sockets: the host's own, and addresses, with or without TLS.
//!
//! Promises: a socket of a program that is gone is replaced, one that answers is not; the socket is for its owner and
//! group; at the end every stream ends, and what does not end in [`GRACE`] is cut.
//!
//! Never: accepts a client without a certificate of the given authority, if one is given.

use crate::error::HubbleError;
use crate::limits::MAX_REQUEST_BYTES;
use crate::proto;
use crate::proto::observer::observer_server::ObserverServer;
use crate::proto::peer::peer_server::PeerServer;
use crate::service::HubbleService;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::transport::server::Router;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;

/// The mode of the socket: its owner and group.
const SOCKET_MODE: u32 = 0o660;

/// How long connections may take to end.
const GRACE: Duration = Duration::from_secs(3);

/// How often a connection that is silent is tried, and how long the answer may take.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The names of services whose health is asked for: Cilium's own name of it, and that of the API.
const HEALTH_NAMES: [&str; 3] = ["", "hubble.server.Observer", "observer.Observer"];

/// Certificates, as PEM.
#[derive(Clone)]
pub struct HubbleTls {
    /// The certificate of this node, and those between it and the authority.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
    /// The authority of clients; without one, clients need no certificate.
    pub client_authority: Option<Vec<u8>>,
}

/// An open socket.
pub struct HubbleListener(Listener);

enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener, Option<ServerTlsConfig>),
}

impl HubbleListener {
    /// A socket of this host, at this path.
    ///
    /// # Errors
    /// If another program answers there, or the socket cannot be made.
    pub fn unix(path: &Path) -> Result<Self, HubbleError> {
        let failed = |source| HubbleError::Socket {
            path: path.to_owned(),
            source,
        };
        remove_stale(path).map_err(failed)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        let mode = std::fs::Permissions::from_mode(SOCKET_MODE);
        std::fs::set_permissions(path, mode).map_err(failed)?;
        Ok(HubbleListener(Listener::Unix(listener, path.to_owned())))
    }

    /// An address, with TLS if certificates are given.
    ///
    /// # Errors
    /// If it cannot be listened on.
    pub async fn tcp(address: SocketAddr, tls: Option<HubbleTls>) -> Result<Self, HubbleError> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| HubbleError::Address { address, source })?;
        let tls = tls.map(|tls| {
            let identity = Identity::from_pem(&tls.certificate, &tls.key);
            let config = ServerTlsConfig::new().identity(identity);
            match &tls.client_authority {
                Some(authority) => config.client_ca_root(Certificate::from_pem(authority)),
                None => config,
            }
        });
        Ok(HubbleListener(Listener::Tcp(listener, tls)))
    }

    /// The address that is listened on; nothing for a socket of this host.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match &self.0 {
            Listener::Unix(..) => None,
            Listener::Tcp(listener, _) => listener.local_addr().ok(),
        }
    }
}

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it is no socket",
            ));
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another program listens on it",
        )),
        Err(_) => std::fs::remove_file(path),
    }
}

/// Serves the API on these sockets until `end` is there, or one of them fails.
///
/// # Errors
/// If certificates cannot be used, or a server fails.
pub async fn serve(
    service: HubbleService,
    listeners: Vec<HubbleListener>,
    end: impl Future<Output = ()>,
) -> Result<(), HubbleError> {
    let mut servers = JoinSet::new();
    let mut sockets = Vec::new();
    for HubbleListener(listener) in listeners {
        let stopped = service.clone();
        let stopped = async move { stopped.stopped().await };
        match listener {
            Listener::Unix(listener, path) => {
                let router = router(&service, None).await?;
                let incoming = UnixListenerStream::new(listener);
                servers.spawn(router.serve_with_incoming_shutdown(incoming, stopped));
                sockets.push(path);
            }
            Listener::Tcp(listener, tls) => {
                let router = router(&service, tls).await?;
                let incoming = TcpListenerStream::new(listener);
                servers.spawn(router.serve_with_incoming_shutdown(incoming, stopped));
            }
        }
    }
    let namespaces = service.namespaces().follow(|| service.now());
    let result = tokio::select! {
        () = end => Ok(()),
        () = namespaces => Ok(()),
        Some(Ok(Err(error))) = servers.join_next() => Err(HubbleError::Serve(error)),
    };
    // While it is still served: whoever comes next makes one of its own, which must not be removed.
    for path in sockets {
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(path = %path.display(), %error, "Hubble's socket stays");
        }
    }
    service.stop();
    let ended = async { while servers.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::debug!("connections to Hubble's API were cut");
    }
    result
}

async fn router(
    service: &HubbleService,
    tls: Option<ServerTlsConfig>,
) -> Result<Router, HubbleError> {
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT));
    if let Some(tls) = tls {
        server = server.tls_config(tls).map_err(HubbleError::Certificates)?;
    }
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
    };
    let reflection_v1 = reflection().build_v1().map_err(HubbleError::Reflection)?;
    // What clients of before 2023 ask for.
    let reflection_v1alpha = reflection()
        .build_v1alpha()
        .map_err(HubbleError::Reflection)?;
    let (health, health_service) = tonic_health::server::health_reporter();
    for name in HEALTH_NAMES {
        health
            .set_service_status(name, ServingStatus::Serving)
            .await;
    }
    let observer = ObserverServer::new(service.clone());
    let peer = PeerServer::new(service.clone());
    Ok(server
        .add_service(observer.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(peer.max_decoding_message_size(MAX_REQUEST_BYTES))
        .add_service(health_service)
        .add_service(reflection_v1)
        .add_service(reflection_v1alpha))
}

#[cfg(test)]
mod tests;
