//! The reachability matrix: measured with real packets, and computed from the manifests.

use crate::error::DemoError;
use crate::participants::{PartyNode, ProbeKind, ProbeTarget};
use crate::screen::{CellMark, Screen};
use crate::shop::{lower, manifests};
use palisade_model::{Family, Flow, FlowOrigin, L4, Protocol};
use palisade_oracle::{OracleOptions, PreparedState, Question};
use palisade_testkit::lab::Lab;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// One probe: indexes of source and destination, kind, and IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MatrixCell {
    from: usize,
    to: usize,
    kind: ProbeKind,
    family: Family,
}

/// All probes, and whether each was, or should be, answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeMatrix {
    cells: BTreeMap<MatrixCell, bool>,
    names: Vec<&'static str>,
}

const KINDS: [ProbeKind; 3] = [ProbeKind::Tcp, ProbeKind::Udp, ProbeKind::Ping];

fn cells(places: &[PartyNode]) -> impl Iterator<Item = MatrixCell> + '_ {
    let all = 0..places.len();
    let pairs = all
        .clone()
        .flat_map(move |from| all.clone().map(move |to| (from, to)));
    pairs
        .filter(|(from, to)| from != to)
        .flat_map(move |(from, to)| {
            let families = [Family::V4, Family::V6].into_iter();
            let families = families
                .filter(move |family| target(places, to, ProbeKind::Tcp, *family).is_some());
            families.flat_map(move |family| {
                KINDS.map(|kind| MatrixCell {
                    from,
                    to,
                    kind,
                    family,
                })
            })
        })
}

fn target(places: &[PartyNode], to: usize, kind: ProbeKind, family: Family) -> Option<ProbeTarget> {
    let place = &places[to];
    let port = match kind {
        ProbeKind::Tcp => place.party.tcp,
        ProbeKind::Udp => place.party.udp,
        ProbeKind::Ping => 0,
    };
    let to = place.address(family == Family::V4)?;
    Some(ProbeTarget { to, kind, port })
}

impl ProbeMatrix {
    /// Runs all probes concurrently.
    pub(crate) fn measure(lab: &Lab, places: &[PartyNode]) -> Result<ProbeMatrix, DemoError> {
        let cells = std::thread::scope(|scope| {
            let probes: Vec<_> = cells(places)
                .filter_map(|cell| {
                    let target = target(places, cell.to, cell.kind, cell.family)?;
                    let probe = move || places[cell.from].is_answered(lab, target);
                    Some((cell, scope.spawn(probe)))
                })
                .collect();
            probes
                .into_iter()
                .map(|(cell, probe)| match probe.join() {
                    Ok(answered) => Ok((cell, answered?)),
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect::<Result<_, DemoError>>()
        })?;
        Ok(ProbeMatrix {
            cells,
            names: names(places),
        })
    }

    /// Computes the matrix from the manifests in this directory, with the oracle that `palisade explain`
    /// uses.
    pub(crate) fn from_manifests(
        directory: &Path,
        places: &[PartyNode],
    ) -> Result<ProbeMatrix, DemoError> {
        let invalid = |reason: &dyn fmt::Display| {
            DemoError::problem(format!(
                "the manifests in {}: {reason}",
                directory.display()
            ))
        };
        let files = manifests(directory).map_err(|error| invalid(&error))?;
        let mut state = lower(&files).map_err(|error| invalid(&error))?;
        for endpoint in state.endpoints.values_mut() {
            let is_it = |place: &&PartyNode| {
                endpoint.id.namespace.as_deref() == place.party.namespace
                    && &*endpoint.id.name == place.party.name
            };
            // Pods that are not running have no address in their manifests; here they have the attached ones.
            if let Some(place) = places.iter().find(is_it) {
                endpoint.addresses = place.addresses.clone();
            }
        }
        let prepared = PreparedState::new(&state);
        let cells = cells(places)
            .filter_map(|cell| {
                let question = question(places, cell)?;
                let (egress, ingress) = prepared.verdict(&question, &OracleOptions::default());
                Some((cell, egress && ingress))
            })
            .collect();
        Ok(ProbeMatrix {
            cells,
            names: names(places),
        })
    }

    /// Number of probes.
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Number of answered probes.
    pub(crate) fn answered(&self) -> usize {
        self.cells.values().filter(|answered| **answered).count()
    }

    /// The differences from another matrix, as text.
    pub(crate) fn differences(&self, expected: &ProbeMatrix) -> Vec<String> {
        let differing = self
            .cells
            .iter()
            .filter(|(cell, got)| expected.cells.get(cell) != Some(got));
        differing
            .map(|(cell, got)| {
                let kind = match cell.kind {
                    ProbeKind::Tcp => "TCP",
                    ProbeKind::Udp => "UDP",
                    ProbeKind::Ping => "ping",
                };
                let (from, to) = (self.names[cell.from], self.names[cell.to]);
                let got = if *got { "answered" } else { "dropped" };
                format!("{from} to {to}, {kind} over {}: {got}", cell.family)
            })
            .collect()
    }

    /// Prints the matrix; with an earlier one, changes are marked.
    pub(crate) fn print(&self, screen: Screen, before: Option<&ProbeMatrix>) {
        const FIRST: usize = 10;
        let width = self
            .names
            .iter()
            .map(|name| name.len() + 3)
            .max()
            .unwrap_or(0)
            .max(11);
        let mut heading = format!("{:FIRST$}", "from \\ to");
        for name in &self.names {
            heading.push_str(&format!("{name:width$}"));
        }
        screen.detail(heading.trim_end());
        for from in 0..self.names.len() {
            let mut line = format!("{:FIRST$}", self.names[from]);
            for to in 0..self.names.len() {
                let (text, columns) = self.pair_marks(screen, before, from, to);
                line.push_str(&text);
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(columns)));
            }
            screen.detail(line.trim_end());
        }
    }

    /// The marks of one pair and their width in columns.
    fn pair_marks(
        &self,
        screen: Screen,
        before: Option<&ProbeMatrix>,
        from: usize,
        to: usize,
    ) -> (String, usize) {
        if from == to {
            return (".".to_owned(), 1);
        }
        let mut groups = Vec::new();
        let mut columns = 0;
        for kind in KINDS {
            let own = self
                .cells
                .iter()
                .filter(|(c, _)| (c.from, c.to, c.kind) == (from, to, kind));
            let marks: Vec<String> = own
                .map(|(cell, now)| {
                    let then = before
                        .and_then(|before| before.cells.get(cell))
                        .unwrap_or(now);
                    screen.mark(match (then, now) {
                        (true, true) => CellMark::Passed,
                        (false, false) => CellMark::Dropped,
                        (false, true) => CellMark::Opened,
                        (true, false) => CellMark::Closed,
                    })
                })
                .collect();
            columns += marks.len() + 1;
            groups.push(marks.concat());
        }
        (groups.join(" "), columns.saturating_sub(1))
    }
}

fn names(places: &[PartyNode]) -> Vec<&'static str> {
    places.iter().map(|place| place.party.name).collect()
}

fn question(places: &[PartyNode], cell: MatrixCell) -> Option<Question> {
    let v4 = cell.family == Family::V4;
    let target = target(places, cell.to, cell.kind, cell.family)?;
    let ports = L4::Ports {
        source: 49152,
        destination: target.port,
    };
    let (protocol, l4) = match (cell.kind, v4) {
        (ProbeKind::Tcp, _) => (Protocol::TCP, ports),
        (ProbeKind::Udp, _) => (Protocol::UDP, ports),
        (ProbeKind::Ping, true) => (Protocol::ICMP, L4::Icmp { kind: 8, code: 0 }),
        (ProbeKind::Ping, false) => (Protocol::ICMPV6, L4::Icmp { kind: 128, code: 0 }),
    };
    let flow = Flow {
        source: places[cell.from].address(v4)?,
        destination: target.to,
        protocol,
        l4,
        origin: FlowOrigin::Network,
    };
    Some(Question::from(flow))
}
