//! Sets the marks of tracked flows where the rules alone cannot: before there is a table, and when the
//! generation numbers wrap around.
//!
//! Promises: a mark from before the table, or from an earlier use of the same generation, is never taken for
//! the live generation; only our bits of the mark change.
//!
//! Never: ends a flow, or changes the mid-stream bit.

use std::collections::BTreeSet;
use std::net::IpAddr;

use palisade_nft::Config;
use palisade_sys::conntrack::{Conntrack, ConntrackEntry, ConntrackError, ConntrackFilter};
use palisade_tables::Tables;

/// Before the first table: a tracked flow of one of our endpoints, or one with our bits in its mark from an
/// earlier table, gets the stale generation and keeps its direction. Returns the number of flows marked.
pub(crate) fn mark_existing_flows(
    conntrack: &mut impl Conntrack,
    config: &Config,
    tables: &Tables,
) -> Result<usize, ConntrackError> {
    let own: BTreeSet<IpAddr> = tables
        .points
        .keys()
        .filter_map(|point| point.workload().map(|(_, address)| address))
        .collect();
    let ends = |flow: &ConntrackEntry| {
        let tuples = [flow.original, flow.reply];
        tuples.map(|tuple| [tuple.source, tuple.destination])
    };
    let flows = conntrack.entries(&ConntrackFilter::default())?;
    let ours = flows.iter().filter(|flow| {
        flow.mark & config.generation_mask() != 0
            || ends(flow).iter().flatten().any(|end| own.contains(end))
    });
    reset_marks(conntrack, config, ours)
}

/// After a table with an unknown generation was replaced: resets also the marks that it set until then.
/// Returns the number of flows marked.
pub(crate) fn reset_stale_marks(
    conntrack: &mut impl Conntrack,
    config: &Config,
    generation: u32,
) -> Result<usize, ConntrackError> {
    let flows = conntrack.entries(&ConntrackFilter::default())?;
    let stale = |flow: &&ConntrackEntry| ![0, generation].contains(&config.generation(flow.mark));
    reset_marks(conntrack, config, flows.iter().filter(stale))
}

/// Whether the change of the generation to `next` enters another quarter of all generations.
pub(crate) fn enters_quarter(config: &Config, next: u32) -> bool {
    let last = match next {
        next if next <= config.least_generation() => config.last_generation(),
        next => next - 1,
    };
    config.generation_quarter(next) != config.generation_quarter(last)
}

/// Before the generation enters another quarter: every flow that carries a generation of that
/// quarter gets the stale generation. Returns the number of flows marked.
pub(crate) fn reset_quarter_marks(
    conntrack: &mut impl Conntrack,
    config: &Config,
    next: u32,
) -> Result<usize, ConntrackError> {
    let flows = conntrack.entries(&ConntrackFilter {
        mark: Some(config.generation_quarter(next)),
    })?;
    let unmarked = |flow: &&ConntrackEntry| flow.mark & config.generation_mask() != 0;
    reset_marks(conntrack, config, flows.iter().filter(unmarked))
}

fn reset_marks<'a>(
    conntrack: &mut impl Conntrack,
    config: &Config,
    flows: impl Iterator<Item = &'a ConntrackEntry>,
) -> Result<usize, ConntrackError> {
    let unknown = config.mark(config.stale_generation());
    let mut marked = 0;
    for flow in flows.filter(|flow| flow.mark & config.generation_mask() != unknown) {
        if conntrack.set_mark(flow, unknown, config.generation_mask())? {
            marked += 1;
        }
    }
    Ok(marked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::Direction;
    use palisade_sys::conntrack::{ConntrackTuple, TupleProto};
    use palisade_tables::{Point, PolicySetId};

    /// A table of flows whose marks can be changed.
    struct FakeConntrack(Vec<ConntrackEntry>);

    impl Conntrack for FakeConntrack {
        fn count(&mut self) -> Result<u32, ConntrackError> {
            Ok(self.0.len() as u32)
        }

        fn entries(
            &mut self,
            filter: &ConntrackFilter,
        ) -> Result<Vec<ConntrackEntry>, ConntrackError> {
            let (value, mask) = filter.mark.unwrap_or_default();
            let marked = |flow: &&ConntrackEntry| flow.mark & mask == value;
            Ok(self.0.iter().filter(marked).cloned().collect())
        }

        fn set_mark(
            &mut self,
            flow: &ConntrackEntry,
            value: u32,
            mask: u32,
        ) -> Result<bool, ConntrackError> {
            let entry = self.0.iter_mut().find(|other| other.id == flow.id);
            Ok(entry
                .map(|entry| entry.mark = entry.mark & !mask | value & mask)
                .is_some())
        }
    }

    fn flow(id: u32, ends: [&str; 2], mark: u32) -> ConntrackEntry {
        let [source, destination] = ends.map(|end| end.parse().unwrap());
        let original = ConntrackTuple {
            source,
            destination,
            protocol: 6,
            proto: TupleProto::Ports(1000, 80),
        };
        let reply = ConntrackTuple {
            source: destination,
            destination: source,
            protocol: 6,
            proto: TupleProto::Ports(80, 1000),
        };
        ConntrackEntry {
            original,
            reply,
            zone: 0,
            mark,
            status: 0,
            id,
            timeout: Some(60),
        }
    }

    fn marks(conntrack: &FakeConntrack) -> Vec<u32> {
        conntrack.0.iter().map(|flow| flow.mark).collect()
    }

    #[test]
    fn before_a_table_endpoints_flows_and_old_marks_are_told_apart_from_others() {
        let config = Config::default();
        let mut tables = Tables::default();
        let point = Point::of_workload(
            "pal0".into(),
            "10.0.0.1".parse().unwrap(),
            Direction::Egress,
        );
        tables.points.insert(point, PolicySetId(1));
        let older = config.midstream_bit();
        let mut conntrack = FakeConntrack(vec![
            flow(1, ["10.0.0.1", "10.0.0.9"], 0x05),
            flow(2, ["10.0.0.9", "10.0.0.1"], 0),
            flow(3, ["10.0.0.8", "10.0.0.9"], 0x7f),
            flow(4, ["10.0.0.8", "10.0.0.9"], 0x1234_0002 & !older | older),
        ]);
        let unknown = config.mark(config.stale_generation());
        assert_eq!(
            mark_existing_flows(&mut conntrack, &config, &tables).unwrap(),
            3
        );
        let after = [unknown | 5, unknown, 0x7f, unknown | older | 2];
        assert_eq!(marks(&conntrack), after);
        assert_eq!(
            mark_existing_flows(&mut conntrack, &config, &tables).unwrap(),
            0
        );
        conntrack.0[1].mark = config.mark(7);
        conntrack.0[3].mark = config.mark(1) | older | 2;
        assert_eq!(reset_stale_marks(&mut conntrack, &config, 1).unwrap(), 1);
        let after = [unknown | 5, unknown, 0x7f, config.mark(1) | older | 2];
        assert_eq!(marks(&conntrack), after);
    }

    #[test]
    fn a_quarter_is_emptied_before_it_is_used_again_and_only_then() {
        let config = Config {
            ct_mark_mask: 0xff00,
            ..Config::default()
        };
        let ends = ["10.0.0.1", "10.0.0.2"];
        let all = || {
            let generations = 0..=config.stale_generation();
            let marked = |generation| flow(generation, ends, config.mark(generation) | 3);
            FakeConntrack(generations.map(marked).collect())
        };
        let unknown = config.mark(config.stale_generation()) | 3;
        let mut emptied = Vec::new();
        let least = config.least_generation();
        for next in least..=config.last_generation() {
            let mut conntrack = all();
            if !enters_quarter(&config, next) {
                continue;
            }
            let count = reset_quarter_marks(&mut conntrack, &config, next).unwrap();
            let changed: Vec<u32> = conntrack
                .0
                .iter()
                .filter(|flow| flow.mark != config.mark(flow.id) | 3)
                .map(|flow| flow.id)
                .collect();
            assert_eq!(changed.len(), count);
            assert!(
                conntrack
                    .0
                    .iter()
                    .all(|flow| { flow.mark == unknown || flow.mark == config.mark(flow.id) | 3 })
            );
            assert!(changed.contains(&next));
            emptied.extend(changed);
        }
        emptied.sort_unstable();
        let every: Vec<u32> = (least..=config.last_generation()).collect();
        assert_eq!(emptied, every);
    }
}
