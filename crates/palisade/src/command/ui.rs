//! `palisade ui`: the page in the browser, over the socket of an agent.

use crate::cli::{OutputFormat, UiArgs};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_api::{PageReport, api_version};
use palisade_page::{PageSettings, SocketUpstream, serve};
use palisade_text::printable;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

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
            socket: socket.display().to_string(),
        };
        print_output(format, &report, |report| {
            format!(
                "{} shows the agent at {}; Ctrl-C ends it\n",
                report.url, report.socket
            )
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
        let upstream = Arc::new(SocketUpstream(socket.to_path_buf()));
        serve(listener, settings, upstream, interrupted).await;
        Ok(ExitStatus::Success)
    })
}
