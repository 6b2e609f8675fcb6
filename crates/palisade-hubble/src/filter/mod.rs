//! Which flows a request selects: the filters of Cilium 1.18, all of them but the experimental one.
//!
//! A flow is selected if one filter of the whitelist matches, or there is none, and no filter of the blacklist does. A
//! filter matches if all of its fields do, and a field if one of its values does.
//!
//! Promises: each field means what Cilium's server takes it to mean; a value that cannot be read, and `cel_expression`,
//! are refused with the field; what a request may hold is bounded by [`limits`](crate::limits), and regular expressions
//! take linear time.
//!
//! Never: looks at anything but the flow. Regular expressions are those of the crate `regex`, which differ from Go's in
//! that `\d`, `\w` and `\s` have the characters of all of Unicode.

mod address;
mod http;
mod packet;
mod patterns;
mod selector;
mod workload;

use crate::limits::{MAX_EXPRESSION_BYTES, MAX_EXPRESSIONS, MAX_FILTER_VALUES, MAX_FILTERS};
use crate::proto::flow::{Flow, FlowFilter};
use regex::{Regex, RegexBuilder};

/// Whether a flow has what a field asks for.
type FieldTest = Box<dyn Fn(&Flow) -> bool + Send + Sync>;

/// A filter, ready to use.
struct FlowTest(Vec<FieldTest>);

/// The filters of a request.
pub(crate) struct FlowFilters {
    whitelist: Vec<FlowTest>,
    blacklist: Vec<FlowTest>,
}

impl FlowFilters {
    /// Reads the filters of a request.
    ///
    /// # Errors
    /// What of them cannot be used.
    pub(crate) fn new(whitelist: &[FlowFilter], blacklist: &[FlowFilter]) -> Result<Self, String> {
        let mut builder = TestBuilder::default();
        let mut tests = |filters: &[FlowFilter]| {
            if filters.len() > MAX_FILTERS {
                return Err(format!("a list has at most {MAX_FILTERS} filters"));
            }
            filters
                .iter()
                .map(|filter| builder.filter(filter))
                .collect()
        };
        Ok(FlowFilters {
            whitelist: tests(whitelist)?,
            blacklist: tests(blacklist)?,
        })
    }

    /// Whether a flow is selected.
    pub(crate) fn select(&self, flow: &Flow) -> bool {
        let matches = |test: &FlowTest| test.0.iter().all(|field| field(flow));
        (self.whitelist.is_empty() || self.whitelist.iter().any(matches))
            && !self.blacklist.iter().any(matches)
    }
}

/// Makes tests of fields, within the bounds of a request.
#[derive(Default)]
struct TestBuilder {
    tests: Vec<FieldTest>,
    values: usize,
    expressions: usize,
}

impl TestBuilder {
    fn filter(&mut self, filter: &FlowFilter) -> Result<FlowTest, String> {
        if filter
            .experimental
            .as_ref()
            .is_some_and(|inner| !inner.cel_expression.is_empty())
        {
            return Err("cel_expression: expressions of clients are not run here".to_owned());
        }
        packet::add_tests(self, filter)?;
        address::add_tests(self, filter)?;
        workload::add_tests(self, filter)?;
        http::add_tests(self, filter)?;
        Ok(FlowTest(std::mem::take(&mut self.tests)))
    }

    /// Adds the test of a field, unless the field has no value.
    fn add<V, T>(
        &mut self,
        field: &str,
        values: &[V],
        make: impl FnOnce(&mut Self, &[V]) -> Result<T, String>,
    ) -> Result<(), String>
    where
        T: Fn(&Flow) -> bool + Send + Sync + 'static,
    {
        if values.is_empty() {
            return Ok(());
        }
        self.values = self.values.saturating_add(values.len());
        if self.values > MAX_FILTER_VALUES {
            return Err(format!(
                "a request has at most {MAX_FILTER_VALUES} values of filters"
            ));
        }
        let test =
            make(self, values).map_err(|error| format!("invalid {field} filter: {error}"))?;
        self.tests.push(Box::new(test));
        Ok(())
    }

    /// A regular expression of a client.
    fn expression(&mut self, text: &str) -> Result<Regex, String> {
        self.expressions += 1;
        if self.expressions > MAX_EXPRESSIONS {
            return Err(format!(
                "a request has at most {MAX_EXPRESSIONS} regular expressions"
            ));
        }
        RegexBuilder::new(text)
            .size_limit(MAX_EXPRESSION_BYTES)
            .dfa_size_limit(MAX_EXPRESSION_BYTES)
            .build()
            .map_err(|error| format!("{text:?}: {error}"))
    }

    fn expressions(&mut self, texts: &[String]) -> Result<Vec<Regex>, String> {
        texts.iter().map(|text| self.expression(text)).collect()
    }
}

#[cfg(test)]
mod tests;
