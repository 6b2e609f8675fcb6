//! What tables decide about a packet at the hooks of the kernel: at which places it is judged, and how it is reported.
//!
//! Promises: judgements come in the order of the hooks, up to the one that decides.

use palisade_model::{Direction, PolicyStage};
use palisade_tables::{DirectionVerdict, Packet, ReportReason, Tables, Verdict};
use palisade_verification::HookPacket;

/// Whether the workloads at both ends allow a packet.
pub(super) fn workloads_allow(tables: &Tables, packet: &Packet) -> bool {
    let verdicts =
        Direction::BOTH.map(|direction| tables.judge_direction(packet, direction).verdict());
    verdicts == [Verdict::Allow; 2]
}

/// Whether this host allows a packet from the middle of a TCP flow: in its own direction, or since the flow in the
/// other one is to a failsafe port.
pub(super) fn host_allows_midstream(tables: &Tables, packet: &Packet, back: &Packet) -> bool {
    [
        (Direction::Ingress, Direction::Egress),
        (Direction::Egress, Direction::Ingress),
    ]
    .into_iter()
    .all(|(direction, other)| {
        tables.judge_host(packet, direction).verdict() == Verdict::Allow
            || tables.judge_host(back, other) == DirectionVerdict::Failsafe
    })
}

/// A packet of the flow that begins with `first` as one by itself.
pub(super) fn own_packet(first: &Packet, frame: &HookPacket) -> Packet {
    let is_first = frame.source == first.source && frame.iif == first.input_interface;
    Packet {
        input_interface: frame.iif.clone(),
        output_interface: frame.oif.clone(),
        source: frame.source,
        destination: frame.destination,
        pre_dnat: first
            .pre_dnat
            .filter(|_| is_first && !frame.conntrack.reply),
        protocol: frame.protocol,
        l4: frame.l4,
    }
}

/// The judgements of this host on a packet that is `itself`, of the flow that begins with `first`, in their order, each
/// with whether it is of the flow. They end at each interface with the one that decides.
pub(super) fn host_judgements<'t>(
    tables: &'t Tables,
    first: &Packet,
    itself: &Packet,
) -> Vec<(DirectionVerdict<'t>, bool)> {
    let untracked = match itself.input_interface {
        Some(_) => Direction::Ingress,
        None => Direction::Egress,
    };
    let before = tables.judge_host_stage(itself, untracked, PolicyStage::Untracked);
    let verdict = tables.judge_untracked(itself);
    let mut all = vec![(before, false)];
    if verdict == Verdict::Deny {
        return all;
    }
    for direction in [Direction::Ingress, Direction::Egress] {
        if verdict == Verdict::Allow && direction == untracked {
            continue;
        }
        for stage in first
            .host_stages(direction)
            .filter(|stage| *stage > PolicyStage::Untracked)
        {
            let judged = tables.judge_host_stage(first, direction, stage);
            let decides = !matches!(&judged, DirectionVerdict::Evaluated(seen) if seen.cell.verdict == Verdict::Continue);
            let is_judged = !matches!(
                judged,
                DirectionVerdict::Unmanaged | DirectionVerdict::Failsafe
            );
            all.push((judged, true));
            if decides && is_judged {
                break;
            }
        }
    }
    all
}

/// How a packet that is `itself`, of the flow that begins with `first`, must be reported, and whether as one of the flow;
/// `None` where it is no judgement that decides.
pub(super) fn reports(
    tables: &Tables,
    first: &Packet,
    itself: &Packet,
) -> Option<Vec<(ReportReason, bool)>> {
    let mut reports = Vec::new();
    let host = host_judgements(tables, first, itself);
    let workloads = [
        tables.judge_direction(first, Direction::Egress),
        tables.judge_direction(first, Direction::Ingress),
    ];
    for (judged, is_of_flow) in host
        .into_iter()
        .chain(workloads.map(|judged| (judged, true)))
    {
        match judged {
            DirectionVerdict::NoPoint => return None,
            DirectionVerdict::Unmanaged
            | DirectionVerdict::HostOrigin
            | DirectionVerdict::Hairpin
            | DirectionVerdict::Failsafe => {}
            DirectionVerdict::Evaluated(seen) if seen.cell.verdict == Verdict::Deny => {
                reports.push((ReportReason::Denied, is_of_flow));
                break;
            }
            DirectionVerdict::Evaluated(seen) => {
                let logged = seen.cell.log.map(ReportReason::Logged);
                let audited = || seen.cell.audit_report().map(ReportReason::Audited);
                let reported = logged.or_else(audited);
                reports.extend(reported.map(|reason| (reason, is_of_flow)));
            }
        }
    }
    Some(reports)
}
