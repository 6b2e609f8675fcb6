//! The sources that the configuration names, in the order of their precedence: the API server, etcd, then
//! the directory, which may add objects to theirs.

use crate::options::{cidr_match_mode, credentials, etcd_options};
use palisade_config::Config;
use palisade_effective::{SourceDelta, SourceNumber};
use palisade_enforcer::policy_subsystem::element_budget;
use palisade_etcd::Etcd;
use palisade_kubernetes::ApiServer;
use palisade_remote::RemoteSource;
use palisade_source::{
    Directory, DirectoryOptions, SnapshotStore, Source, SourceError, SourceHandle, SourceSet,
};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How long the directory must be unchanged before it is read.
const SETTLE: Duration = Duration::from_millis(100);

/// The opened sources, and what they have in force together.
pub(crate) struct ConfiguredSources {
    pub(crate) set: SourceSet,
    pub(crate) sources: Vec<OpenedSource>,
}

/// A source that is not followed yet, and the handle for other threads.
pub(crate) struct OpenedSource {
    /// Its name, and that of its thread.
    pub(crate) name: &'static str,
    pub(crate) source: Box<dyn Source>,
    pub(crate) handle: SourceHandle,
}

impl OpenedSource {
    fn new(name: &'static str, handle: SourceHandle, source: impl Source + 'static) -> Self {
        OpenedSource {
            name,
            source: Box::new(source),
            handle,
        }
    }
}

/// Whether the sources may write to the state directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceAccess {
    ReadOnly,
    ReadWrite,
}

impl ConfiguredSources {
    /// Opens them.
    ///
    /// # Errors
    /// If the state directory, or the directory of manifests, cannot be read.
    pub(crate) fn open(config: &Config, access: SourceAccess) -> Result<Self, SourceError> {
        let options = DirectoryOptions {
            path: config.directory.path.clone(),
            settle: SETTLE,
        };
        let credentials = credentials(&config.kubernetes);
        let etcd = etcd_options(&config.etcd);
        let is_alone = credentials.is_none() && etcd.is_none();
        let has_directory = is_alone || options.path.exists();
        if has_directory {
            // Before anything is created in the state directory.
            options.check_path()?;
        } else {
            let directory = options.path.display();
            tracing::info!(%directory, "no local policy directory");
        }
        let names = credentials.iter().map(|_| "kubernetes".into());
        let names = names.chain(etcd.iter().map(|_| "etcd".into()));
        let names = names.chain(has_directory.then(|| "directory".into()));
        let (state, budget) = (&config.state.dir, element_budget(&config.policy));
        let mut set = match access {
            SourceAccess::ReadOnly => SourceSet::open_read_only(names, state, budget)?,
            SourceAccess::ReadWrite => SourceSet::open(names, state, budget)?,
        };
        set.set_cidr_match(cidr_match_mode(&config.policy));
        let snapshot = |source: &str, location: &str| {
            let open = || SnapshotStore::new(&config.state.dir, source, location);
            (access == SourceAccess::ReadWrite).then(open)
        };
        let mut sources = Vec::new();
        if let Some(credentials) = credentials {
            let snapshot = snapshot("kubernetes", &credentials.location());
            let source = RemoteSource::new(ApiServer::new(credentials), snapshot);
            sources.push(OpenedSource::new("kubernetes", source.handle(), source));
        }
        if let Some(options) = etcd {
            let snapshot = snapshot("etcd", &options.location());
            let source = RemoteSource::new(Etcd::new(options), snapshot);
            sources.push(OpenedSource::new("etcd", source.handle(), source));
        }
        if has_directory {
            let number = SourceNumber::try_from(sources.len()).unwrap_or_default();
            let source = Directory::open(options, set.restored(number))?;
            sources.push(OpenedSource::new("directory", source.handle(), source));
        }
        Ok(ConfiguredSources { set, sources })
    }

    /// The name and the location of each source.
    pub(crate) fn describe(&self) -> Vec<(String, String)> {
        let sources = self.sources.iter();
        sources.map(|opened| opened.source.describe()).collect()
    }

    /// Passes on what each source has, one source after the other.
    ///
    /// # Errors
    /// If one cannot be read.
    pub(crate) fn read_once(
        self,
        mut apply: impl FnMut(&mut SourceSet, SourceNumber, SourceDelta, Option<Instant>),
    ) -> Result<(), SourceError> {
        let mut set = self.set;
        for (number, mut opened) in (0..).zip(self.sources) {
            let mut stale = None;
            opened.source.run(&mut |delta, detected_at| {
                stale.clone_from(&delta.stale);
                let is_read = delta.in_sync;
                apply(&mut set, number, delta, detected_at);
                if is_read || stale.is_some() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })?;
            if let Some(reason) = stale {
                return Err(SourceError {
                    action: format!("reading the source {}", opened.name),
                    cause: reason.into(),
                });
            }
        }
        Ok(())
    }
}
