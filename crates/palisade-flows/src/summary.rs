//! Sums up lines that were read elsewhere, as a record of a host does, without a disk.
//!
//! Promises: what a query selects is what it would select of a record. Never: counts once what two hosts tell, each of the
//! end that it has.

use crate::aggregate::Aggregate;
use crate::bucket::BucketSnapshot;
use crate::database::FlowStoreError;
use crate::filter::FlowFilter;
use crate::query::{RecordView, read_flows};
use crate::recorder::RecordQueryError;
use palisade_api::{MonitorLine, RecordedFlowList, RecordedFlowQuery};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The flows of these lines, nearly in the order of their times, that a query selects; `now` and times are since the
/// epoch, and `node` names who read them.
///
/// # Errors
/// If the query has no meaning.
pub fn sum_up<'l>(
    lines: impl IntoIterator<Item = (Duration, &'l MonitorLine)>,
    query: &RecordedFlowQuery,
    now: Duration,
    node: &str,
) -> Result<RecordedFlowList, RecordQueryError> {
    let filter = FlowFilter::new(query, now).map_err(RecordQueryError::Query)?;
    let mut aggregate = Aggregate::new();
    let mut pending = BTreeMap::new();
    let mut keep = |aggregate: &Aggregate| {
        let bucket: BucketSnapshot = aggregate.snapshot();
        pending.insert(bucket.number, Arc::new(bucket));
    };
    for (time, line) in lines {
        if !aggregate.has_begun() || !aggregate.covers(time) {
            if aggregate.has_begun() {
                keep(&aggregate);
            }
            aggregate.begin_bucket(time);
        }
        aggregate.add(time, line);
    }
    if aggregate.has_begun() {
        keep(&aggregate);
    }
    let view = RecordView {
        database: None,
        first_number: 0,
        pending,
    };
    read_flows(&view, &filter, node).map_err(|source| {
        RecordQueryError::Store(FlowStoreError::Read {
            path: "memory".into(),
            source: Box::new(source),
        })
    })
}
