//! `palisade ui`: the page in the browser, over the socket of an agent, or with the flows of a relay.

use super::relay_upstream::RelayUpstream;
use crate::cli::{OutputFormat, UiArgs};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_api::{PageReport, api_version};
use palisade_hubble::{HubbleClient, HubbleClientTls};
use palisade_page::{PageSettings, SocketUpstream, Upstream, serve};
use palisade_text::{error_chain, printable};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// What the page shows: an agent, or a relay.
fn upstream(args: &UiArgs, socket: &Path) -> Result<Arc<dyn Upstream>, CommandError> {
    let Some(relay) = &args.relay else {
        return Ok(Arc::new(SocketUpstream(socket.to_path_buf())));
    };
    let tls = args.relay_tls_dir.as_deref();
    let tls = tls.map(|dir| read_certificates(dir, args.relay_tls_name.clone()));
    let client = HubbleClient::new(relay, tls.transpose()?);
    let client = client.map_err(|error| CommandError::usage(error_chain(&error)))?;
    Ok(Arc::new(RelayUpstream::new(client, relay)))
}

fn read_certificates(
    dir: &Path,
    server_name: Option<String>,
) -> Result<HubbleClientTls, CommandError> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read(&path).map_err(|error| {
            let path = path.display().to_string();
            CommandError::usage(format!("reading {}: {error}", printable(&path)))
        })
    };
    let has_identity = dir.join("tls.crt").exists();
    let identity = || Ok::<_, CommandError>([read("tls.crt")?, read("tls.key")?]);
    Ok(HubbleClientTls {
        authority: read("ca.crt")?,
        identity: has_identity.then(identity).transpose()?,
        server_name,
    })
}

/// Serves the page until it is interrupted.
pub(crate) fn run(args: &UiArgs, socket: &Path, format: OutputFormat) -> CommandResult {
    let token = args.token_file.as_ref().map(|path| {
        std::fs::read_to_string(path).map_err(|error| {
            let path = path.display().to_string();
            CommandError::usage(format!("reading {}: {error}", printable(&path)))
        })
    });
    let settings = PageSettings::new(args.address, token.transpose()?.as_deref())
        .map_err(|error| CommandError::usage(format!("{error}\n  try: --token-file FILE")))?;
    let failed =
        |what: &str, error: &std::io::Error| CommandError::problem(format!("{what}: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("starting the page", &error))?;
    runtime.block_on(async {
        let opened = TcpListener::bind(args.address).await;
        let listener =
            opened.map_err(|error| failed(&format!("opening {}", args.address), &error))?;
        let address = listener.local_addr();
        let address = address.map_err(|error| failed("opening the page", &error))?;
        let mut signals = Vec::new();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            signals.push(signal(kind).map_err(|error| failed("starting the page", &error))?);
        }
        let report = PageReport {
            api_version: api_version(),
            url: format!("http://{address}/"),
            socket: args.relay.is_none().then(|| socket.display().to_string()),
            relay: args.relay.clone(),
        };
        print_output(format, &report, |report| {
            let what = match (&report.relay, &report.socket) {
                (Some(relay), _) => format!("the flows of the relay at {relay}"),
                (None, socket) => format!("the agent at {}", socket.as_deref().unwrap_or_default()),
            };
            format!("{} shows {what}; Ctrl-C ends it\n", report.url)
        })?;
        let interrupted = async move {
            let mut received = signals.iter_mut();
            if let (Some(interrupt), Some(terminate)) = (received.next(), received.next()) {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            }
        };
        serve(listener, settings, upstream(args, socket)?, interrupted).await;
        Ok(ExitStatus::Success)
    })
}
