//! The chains that send packets to nflog, with the reason.
//!
//! Every denial, every drop without a judgement, and every judgement that matches a Log rule ends in a chain
//! that counts the packet, sends its headers to an nflog group within a rate limit, and gives the verdict.
//! The difference between the counter and the packets received was suppressed, so no loss is unnoticed. The
//! log prefix has neither class nor rule: the judgement is repeated from the headers. Promises: verdicts are
//! the same with or without a listener or reporting.

use crate::rule::{RuleBuilder, chain};
use crate::{Chain, Config, Expr, NflogConfig, NftRule, NftVerdict, ct_state};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Str};

/// Why a packet is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NflogReason {
    /// Policy denied it.
    Denied,
    /// Policy in this direction allowed it, and a Log rule matched.
    Logged(Direction),
    /// Dropped: its source is not an address of the endpoint.
    Spoofed,
    /// Dropped: it arrived by an interface with our prefix that belongs to no known endpoint.
    UnknownInterface,
    /// Dropped: it belongs to no connection and opens none.
    Invalid,
    /// Dropped: its address at our interface has no policy.
    NoPoint,
}

impl NflogReason {
    /// All reasons.
    pub const ALL: [NflogReason; 7] = [
        NflogReason::Denied,
        NflogReason::Logged(Direction::Ingress),
        NflogReason::Logged(Direction::Egress),
        NflogReason::Spoofed,
        NflogReason::UnknownInterface,
        NflogReason::Invalid,
        NflogReason::NoPoint,
    ];

    /// The name of the chain for this reason.
    pub(crate) fn chain_name(self) -> &'static str {
        match self {
            NflogReason::Denied => "p_denied",
            NflogReason::Logged(Direction::Ingress) => "p_logged_i",
            NflogReason::Logged(Direction::Egress) => "p_logged_e",
            NflogReason::Spoofed => "p_spoofed",
            NflogReason::UnknownInterface => "p_unknown",
            NflogReason::Invalid => "p_invalid",
            NflogReason::NoPoint => "p_no_point",
        }
    }

    fn label(self) -> &'static str {
        match self {
            NflogReason::Denied => "denied",
            NflogReason::Logged(Direction::Ingress) => "logged ingress",
            NflogReason::Logged(Direction::Egress) => "logged egress",
            NflogReason::Spoofed => "spoofed",
            NflogReason::UnknownInterface => "unknown interface",
            NflogReason::Invalid => "invalid",
            NflogReason::NoPoint => "no point",
        }
    }

    /// Whether packets with this reason may be in the reply direction of their flow, and are then logged as
    /// replies.
    fn has_replies(self) -> bool {
        matches!(
            self,
            NflogReason::Denied | NflogReason::Logged(_) | NflogReason::NoPoint
        )
    }

    /// The verdict of packets with this reason.
    fn verdict(self) -> NftVerdict {
        match self {
            NflogReason::Logged(_) => NftVerdict::Return,
            _ => NftVerdict::Drop,
        }
    }

    /// The log prefix; `reply`: the packet is in the reply direction of its flow.
    pub fn prefix(self, reply: bool) -> String {
        let reply = if reply && self.has_replies() {
            " reply"
        } else {
            ""
        };
        format!("palisade {}{reply}", self.label())
    }

    /// Parses a prefix: the reason, and whether the packet is a reply.
    pub fn parse(prefix: &str) -> Option<(NflogReason, bool)> {
        let rest = prefix.strip_prefix("palisade ")?;
        let (word, reply) = match rest.strip_suffix(" reply") {
            Some(word) => (word, true),
            None => (rest, false),
        };
        let report = NflogReason::ALL.into_iter().find(|r| r.label() == word)?;
        (!reply || report.has_replies()).then_some((report, reply))
    }

    /// The chains whose first counter counts packets with this reason, before the rate limit.
    pub fn counted_chains(self) -> Vec<Str> {
        let replies = self.has_replies().then(|| reply_chain(self));
        let chain = Str::from(self.chain_name());
        [chain].into_iter().chain(replies).collect()
    }
}

fn reply_chain(report: NflogReason) -> Str {
    format!("{}_r", report.chain_name()).into()
}

/// The final verdict of a judgement, or of a drop without one: goes to the nflog chain if that is
/// configured.
pub(crate) fn final_verdict(config: &Config, report: NflogReason) -> NftVerdict {
    match config.log {
        Some(_) => NftVerdict::Goto(report.chain_name().into()),
        None => report.verdict(),
    }
}

/// A counted drop without a judgement, with its meaning as comment.
pub(crate) fn counted_drop_rule(
    config: &Config,
    line: RuleBuilder,
    report: NflogReason,
) -> NftRule {
    let mut rule = line.counter().verdict(final_verdict(config, report));
    rule.comment = Some(
        match report {
            NflogReason::Spoofed => "spoofed source",
            other => other.label(),
        }
        .into(),
    );
    rule
}

/// The chains of all reasons.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    let Some(log) = config.log else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for report in NflogReason::ALL {
        let mut rules = Vec::new();
        if report.has_replies() {
            let replies = reply_chain(report);
            let to_replies = RuleBuilder::new().state(ct_state::ESTABLISHED).reply();
            rules.push(to_replies.goto(&replies));
            out.push(chain(&replies, None, log_rules(log, report, true)));
        }
        rules.extend(log_rules(log, report, false));
        out.push(chain(report.chain_name(), None, rules));
    }
    out
}

fn log_rules(log: NflogConfig, report: NflogReason, reply: bool) -> Vec<NftRule> {
    let NflogConfig { group, rate, burst } = log;
    let prefix = report.prefix(reply).into();
    let log_rule = RuleBuilder::new()
        .counter()
        .push(Expr::Limit { rate, burst })
        .push(Expr::Log { group, prefix });
    vec![
        log_rule.build(),
        RuleBuilder::new().verdict(report.verdict()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_back() {
        for report in NflogReason::ALL {
            for reply in [false, true] {
                let read = NflogReason::parse(&report.prefix(reply));
                let reply = reply && report.has_replies();
                assert_eq!(read, Some((report, reply)));
            }
        }
        for other in [
            "",
            "denied",
            "palisade",
            "palisade denied reply reply",
            "palisade spoofed reply",
        ] {
            assert_eq!(NflogReason::parse(other), None, "{other}");
        }
    }
}
