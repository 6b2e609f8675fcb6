//! The command line of the demo.

use crate::cluster::Installation;
use crate::error::DemoError;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
usage: demo [--keep] [--programs DIR] [--dataplane NAME]
       demo --hosts [--programs DIR] [--dataplane NAME]
       demo --cluster [--image FILE] [--manifests DIR]

  --keep          keep everything at the end, and print how to inspect and how to remove it
  --programs DIR  the folder of palisade and palisade-cni; without, that of this program
  --dataplane NAME
                  what the agent enforces with: nftables, ebpf (nftables with the fast path), or auto
  --hosts         protect the host itself, by the steps of docs/hosts.md
  --cluster       install Palisade in a Kubernetes cluster of two nodes, and show the shop there
  --image FILE    the image to install, as an archive
  --manifests DIR the folder of palisade.yaml and palisade-cleanup.yaml";

/// What the command line asks for.
pub(crate) struct DemoArgs {
    /// Whether everything is kept at the end.
    pub(crate) keep: bool,
    /// The folder of the product's programs.
    pub(crate) programs: PathBuf,
    /// What the agent enforces with.
    pub(crate) dataplane: String,
    /// Whether the host is protected, instead of the shop.
    pub(crate) hosts: bool,
    /// Whether the demo runs in a cluster.
    pub(crate) cluster: bool,
    /// What is installed there.
    pub(crate) installation: Installation,
}

/// `None` if help is asked for.
pub(crate) fn parse_arguments(
    mut arguments: impl Iterator<Item = String>,
) -> Result<Option<DemoArgs>, DemoError> {
    let own = std::env::current_exe().unwrap_or_default();
    let mut wanted = DemoArgs {
        keep: false,
        programs: own.parent().unwrap_or(&own).to_owned(),
        dataplane: "auto".to_owned(),
        hosts: false,
        cluster: false,
        installation: Installation {
            image: PathBuf::new(),
            manifests: "deploy".into(),
        },
    };
    let usage = |problem: String| DemoError::new(2, format!("{problem}\n\n{HELP}"));
    while let Some(argument) = arguments.next() {
        let mut value = |what: &str| {
            let missing = || usage(format!("{argument} needs a {what}"));
            arguments.next().ok_or_else(missing)
        };
        let mut path = || value("path").map(PathBuf::from);
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--keep" => wanted.keep = true,
            "--hosts" => wanted.hosts = true,
            "--cluster" => wanted.cluster = true,
            "--dataplane" => wanted.dataplane = value("name")?,
            "--programs" => wanted.programs = path()?,
            "--image" => wanted.installation.image = path()?,
            "--manifests" => wanted.installation.manifests = path()?,
            _ => return Err(usage(format!("the demo does not know {argument}"))),
        }
    }
    Ok(Some(wanted))
}
