//! The sources that the configuration names, in the order of their precedence: the API server, etcd, then
//! the directory, which may add objects to theirs.

use crate::config::{Config, KubernetesApi};
use palisade_etcd::{EtcdOptions, EtcdSource};
use palisade_kubernetes::{Credentials, KubernetesSource};
use palisade_source::{
    Directory, DirectoryOptions, SettleHandle, SnapshotStore, Source, SourceDelta, SourceError,
    SourceNumber, SourceSet,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// The opened sources, and what they have in force together.
pub(crate) struct ConfiguredSources {
    pub(crate) set: SourceSet,
    pub(crate) sources: Vec<OpenedSource>,
    /// The settle time of the directory, if there is one.
    pub(crate) settle: Option<SettleHandle>,
}

/// A source that is not followed yet, and the handles for other threads.
pub(crate) struct OpenedSource {
    /// Its name, and that of its thread.
    pub(crate) name: &'static str,
    pub(crate) source: Box<dyn Source>,
    pub(crate) handles: SourceHandles,
}

/// Handles of a source.
pub(crate) struct SourceHandles {
    /// Makes it end.
    pub(crate) stop: Box<dyn Fn() + Send>,
    /// Makes it report, and read again what could not be read.
    pub(crate) refresh: Arc<dyn Fn() + Send + Sync>,
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
            path: config.directory.clone(),
            settle: config.settle,
        };
        let credentials = credentials(config);
        let is_alone = credentials.is_none() && config.etcd.is_none();
        let has_directory = is_alone || options.path.exists();
        if has_directory {
            // Before anything is created in the state directory.
            options.check_path()?;
        } else {
            let directory = options.path.display();
            tracing::info!(%directory, "no local policy directory");
        }
        let names = credentials.iter().map(|_| "kubernetes".into());
        let names = names.chain(config.etcd.iter().map(|_| "etcd".into()));
        let names = names.chain(has_directory.then(|| "directory".into()));
        let mut set = match access {
            SourceAccess::ReadOnly => {
                SourceSet::open_read_only(names, &config.state_dir, config.budget)?
            }
            SourceAccess::ReadWrite => SourceSet::open(names, &config.state_dir, config.budget)?,
        };
        set.set_cidr_match(config.cidr_match);
        let snapshot = |source: &str, location: &str| {
            let open = || SnapshotStore::new(&config.state_dir, source, location);
            (access == SourceAccess::ReadWrite).then(open)
        };
        let kubernetes = credentials.map(|credentials| {
            let snapshot = snapshot("kubernetes", &credentials.location());
            open_kubernetes(credentials, snapshot)
        });
        let etcd = config.etcd.clone().map(|options| {
            let snapshot = snapshot("etcd", &options.location());
            open_etcd(options, snapshot)
        });
        let mut sources: Vec<OpenedSource> = kubernetes.into_iter().chain(etcd).collect();
        let mut settle = None;
        if has_directory {
            let number = SourceNumber::try_from(sources.len()).unwrap_or_default();
            let directory = Directory::open(options, set.restored(number))?;
            settle = Some(directory.settle_handle());
            sources.push(open_directory(directory));
        }
        Ok(ConfiguredSources {
            set,
            sources,
            settle,
        })
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
                match is_read || stale.is_some() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
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

/// The credentials for the API server, if there is one.
pub(crate) fn credentials(config: &Config) -> Option<Credentials> {
    match &config.kubernetes {
        KubernetesApi::Off => None,
        KubernetesApi::InCluster => Some(Credentials::InCluster),
        KubernetesApi::Kubeconfig(path) => Some(Credentials::Kubeconfig(path.clone())),
    }
}

fn open_kubernetes(credentials: Credentials, snapshot: Option<SnapshotStore>) -> OpenedSource {
    let source = KubernetesSource::new(credentials, snapshot);
    let (stop, refresh) = (source.stop_handle(), source.refresh_handle());
    OpenedSource {
        name: "kubernetes",
        handles: SourceHandles {
            stop: Box::new(move || stop.stop()),
            refresh: Arc::new(move || refresh.refresh()),
        },
        source: Box::new(source),
    }
}

fn open_etcd(options: EtcdOptions, snapshot: Option<SnapshotStore>) -> OpenedSource {
    let source = EtcdSource::new(options, snapshot);
    let (stop, refresh) = (source.handle(), source.handle());
    OpenedSource {
        name: "etcd",
        handles: SourceHandles {
            stop: Box::new(move || stop.stop()),
            refresh: Arc::new(move || refresh.refresh()),
        },
        source: Box::new(source),
    }
}

fn open_directory(directory: Directory) -> OpenedSource {
    let (stop, refresh) = (directory.stop_handle(), directory.refresh_handle());
    OpenedSource {
        name: "directory",
        handles: SourceHandles {
            stop: Box::new(move || stop.stop()),
            refresh: Arc::new(move || refresh.refresh()),
        },
        source: Box::new(directory),
    }
}
