//! A connection tracking table in memory, for tests.

use super::{Conntrack, ConntrackEntry, ConntrackError, ConntrackFilter, ConntrackTuple};

/// One change requested from a [`FakeConntrack`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConntrackCall {
    /// [`Conntrack::set_mark`]: original tuple of the entry, value, mask.
    SetMark(ConntrackTuple, u32, u32),
    /// [`Conntrack::delete`]: original tuple of the entry.
    Delete(ConntrackTuple),
}

/// A conntrack table that a test fills.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeConntrack {
    /// The present entries.
    pub table: Vec<ConntrackEntry>,
    /// The requested changes, in order.
    pub calls: Vec<ConntrackCall>,
}

impl FakeConntrack {
    fn find_entry(&mut self, flow: &ConntrackEntry) -> Option<&mut ConntrackEntry> {
        self.table
            .iter_mut()
            .find(|have| (have.id, have.zone, have.original) == (flow.id, flow.zone, flow.original))
    }
}

impl Conntrack for FakeConntrack {
    fn count(&mut self) -> Result<u32, ConntrackError> {
        Ok(self.table.len() as u32)
    }

    fn entries(&mut self, filter: &ConntrackFilter) -> Result<Vec<ConntrackEntry>, ConntrackError> {
        Ok(self
            .table
            .iter()
            .filter(|flow| {
                filter.mark.is_none_or(|(v, m)| flow.mark & m == v)
                    && filter.zone.is_none_or(|zone| flow.zone == zone)
            })
            .cloned()
            .collect())
    }

    fn set_mark(
        &mut self,
        flow: &ConntrackEntry,
        value: u32,
        mask: u32,
    ) -> Result<bool, ConntrackError> {
        self.calls
            .push(ConntrackCall::SetMark(flow.original, value, mask));
        Ok(self
            .find_entry(flow)
            .map(|have| have.mark = have.mark & !mask | value & mask)
            .is_some())
    }

    fn delete(&mut self, flow: &ConntrackEntry) -> Result<bool, ConntrackError> {
        self.calls.push(ConntrackCall::Delete(flow.original));
        let key = |flow: &ConntrackEntry| (flow.id, flow.zone, flow.original);
        let before = self.table.len();
        self.table.retain(|have| key(have) != key(flow));
        Ok(self.table.len() < before)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TupleProto;
    use super::*;

    #[test]
    fn marks_change_under_their_mask_only() {
        let original = ConntrackTuple {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            protocol: 6,
            proto: TupleProto::Ports(1, 2),
        };
        let flow = ConntrackEntry {
            original,
            reply: original,
            zone: 0,
            mark: 0xaaaa_5555,
            status: 0,
            id: 1,
            timeout: None,
        };
        let mut fake = FakeConntrack {
            table: vec![flow.clone()],
            calls: Vec::new(),
        };
        assert_eq!(fake.count().unwrap(), 1);
        assert!(fake.set_mark(&flow, 0x1234_ffff, 0xffff_0000).unwrap());
        let marks: Vec<_> = fake.table.iter().map(|flow| flow.mark).collect();
        assert_eq!(marks, [0x1234_5555]);
        let filter = ConntrackFilter {
            mark: Some((0x1234_0000, 0xffff_0000)),
            zone: None,
        };
        assert_eq!(fake.entries(&filter).unwrap().len(), 1);
        assert!(fake.delete(&flow).unwrap());
        assert!(!fake.delete(&flow).unwrap());
    }
}
