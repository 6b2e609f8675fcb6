//! The chains that send packets to nflog, with the reason.
//!
//! Every denial, every drop without a judgement, and every judgement that matches a Log rule, or allows what
//! would be denied if nothing were in audit, ends in a chain that counts the packet, sends its headers to an
//! nflog group within a rate limit, and gives the verdict. The difference between the counter and the packets
//! received was suppressed, so no loss is unnoticed. The log prefix has neither class nor rule: the judgement
//! is repeated from the headers. Promises: verdicts are the same with or without a listener or reporting.

use crate::names;
use crate::rule::{RuleBuilder, chain};
use crate::{Chain, Config, Expr, NflogConfig, NftRule, NftVerdict, ct_state};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Str};
use palisade_tables::ReportReason;

/// The chain for packets with a reason, and the word for the reason.
fn words(reason: ReportReason) -> (&'static str, &'static str) {
    match reason {
        ReportReason::Denied => ("p_denied", "denied"),
        ReportReason::Rejected => ("p_rejected", "rejected"),
        ReportReason::Logged(Direction::Ingress) => ("p_logged_i", "logged ingress"),
        ReportReason::Logged(Direction::Egress) => ("p_logged_e", "logged egress"),
        ReportReason::Audited(Direction::Ingress) => ("p_audit_i", "audited ingress"),
        ReportReason::Audited(Direction::Egress) => ("p_audit_e", "audited egress"),
        ReportReason::Spoofed => ("p_spoofed", "spoofed"),
        ReportReason::UnknownInterface => ("p_unknown", "unknown interface"),
        ReportReason::Invalid => ("p_invalid", "invalid"),
        ReportReason::NoPoint => ("p_no_point", "no point"),
    }
}

/// The chain for packets with a reason.
pub(crate) fn chain_name(reason: ReportReason) -> &'static str {
    words(reason).0
}

fn label(reason: ReportReason) -> &'static str {
    words(reason).1
}

/// Whether packets with this reason may be in the reply direction of their flow, and are then logged as
/// replies.
fn has_replies(reason: ReportReason) -> bool {
    matches!(
        reason,
        ReportReason::Denied
            | ReportReason::Rejected
            | ReportReason::Logged(_)
            | ReportReason::Audited(_)
            | ReportReason::NoPoint
    )
}

/// The verdict of packets with this reason.
fn verdict(reason: ReportReason) -> NftVerdict {
    match reason {
        ReportReason::Logged(_) | ReportReason::Audited(_) => NftVerdict::Return,
        ReportReason::Rejected => NftVerdict::Goto(names::ANSWER.into()),
        _ => NftVerdict::Drop,
    }
}

/// The log prefix of a reason; `reply`: the packet is in the reply direction of its flow.
pub fn log_prefix(reason: ReportReason, reply: bool) -> String {
    let reply = if reply && has_replies(reason) {
        " reply"
    } else {
        ""
    };
    format!("palisade {}{reply}", label(reason))
}

/// Parses a log prefix: the reason, and whether the packet is a reply.
pub fn parse_log_prefix(prefix: &str) -> Option<(ReportReason, bool)> {
    let rest = prefix.strip_prefix("palisade ")?;
    let (word, reply) = match rest.strip_suffix(" reply") {
        Some(word) => (word, true),
        None => (rest, false),
    };
    let reason = (ReportReason::ALL.into_iter()).find(|reason| label(*reason) == word)?;
    (!reply || has_replies(reason)).then_some((reason, reply))
}

/// The chains whose first counter counts packets with a reason, before the rate limit.
pub fn counted_chains(reason: ReportReason) -> Vec<Str> {
    let replies = has_replies(reason).then(|| reply_chain(reason));
    let chain = Str::from(chain_name(reason));
    [chain].into_iter().chain(replies).collect()
}

fn reply_chain(report: ReportReason) -> Str {
    format!("{}_r", chain_name(report)).into()
}

/// The final verdict of a judgement, or of a drop without one: goes to the nflog chain if that is
/// configured.
pub(crate) fn final_verdict(config: &Config, report: ReportReason) -> NftVerdict {
    match config.log {
        Some(_) => NftVerdict::Goto(chain_name(report).into()),
        None => verdict(report),
    }
}

/// The comment of a counted drop without a judgement, which tells its reason.
pub fn drop_comment(reason: ReportReason) -> &'static str {
    match reason {
        ReportReason::Spoofed => "spoofed source",
        other => label(other),
    }
}

/// A counted drop without a judgement, with its reason as comment.
pub(crate) fn counted_drop_rule(
    config: &Config,
    line: RuleBuilder,
    report: ReportReason,
) -> NftRule {
    let mut rule = line.counter().verdict(final_verdict(config, report));
    rule.comment = Some(drop_comment(report).into());
    rule
}

/// The chains of all reasons.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    let Some(log) = config.log else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let is_used =
        |reason: &ReportReason| *reason != ReportReason::Rejected || config.is_answering();
    for report in ReportReason::ALL.into_iter().filter(is_used) {
        let mut rules = Vec::new();
        if has_replies(report) {
            let replies = reply_chain(report);
            let to_replies = RuleBuilder::new().state(ct_state::ESTABLISHED).reply();
            rules.push(to_replies.goto(&replies));
            out.push(chain(&replies, None, log_rules(log, report, true)));
        }
        rules.extend(log_rules(log, report, false));
        out.push(chain(chain_name(report), None, rules));
    }
    out
}

fn log_rules(log: NflogConfig, report: ReportReason, reply: bool) -> Vec<NftRule> {
    let NflogConfig { group, rate, burst } = log;
    let prefix = log_prefix(report, reply).into();
    let log_rule = RuleBuilder::new()
        .counter()
        .push(Expr::Limit { rate, burst })
        .push(Expr::Log { group, prefix });
    vec![
        log_rule.build(),
        RuleBuilder::new().verdict(verdict(report)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_back() {
        for report in ReportReason::ALL {
            for reply in [false, true] {
                let read = parse_log_prefix(&log_prefix(report, reply));
                let reply = reply && has_replies(report);
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
            assert_eq!(parse_log_prefix(other), None, "{other}");
        }
    }
}
