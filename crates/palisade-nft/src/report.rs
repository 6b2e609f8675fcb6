//! Which packets the kernel reports, how it says why, and the chains that do it.
//!
//! Every judgement that denies, every drop without one, and every judgement that a Log rule asks to
//! be told of ends in a chain that counts the packet, hands its headers to an nflog group within a
//! limit, and gives the verdict. What the count has and the group has not was suppressed: nothing is
//! lost unseen. The kernel names neither class nor rule: the judgement is repeated from the headers.
//! Promises: with or without a listener, and with reports left out, every verdict is the same.

use crate::rule::{Line, chain};
use crate::{Chain, Config, Expr, LogConfig, Rule, Verdict, ct_state};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Str};

/// Why a packet is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Report {
    /// A judgement denied it.
    Denied,
    /// A judgement in this direction allowed it, and a Log rule was met on the way.
    Logged(Direction),
    /// Dropped: the endpoint sent it from an address that is not its own.
    Spoofed,
    /// Dropped: it came by an interface with our prefix that nobody announced.
    UnknownInterface,
    /// Dropped: it fits no connection and begins none.
    Invalid,
    /// Dropped: it came or went by an interface of ours, for an address that nothing judges.
    NoPoint,
}

impl Report {
    /// All of them.
    pub const ALL: [Report; 7] = [
        Report::Denied,
        Report::Logged(Direction::Ingress),
        Report::Logged(Direction::Egress),
        Report::Spoofed,
        Report::UnknownInterface,
        Report::Invalid,
        Report::NoPoint,
    ];

    /// The chain that reports so.
    pub(crate) fn chain(self) -> &'static str {
        match self {
            Report::Denied => "p_denied",
            Report::Logged(Direction::Ingress) => "p_logged_i",
            Report::Logged(Direction::Egress) => "p_logged_e",
            Report::Spoofed => "p_spoofed",
            Report::UnknownInterface => "p_unknown",
            Report::Invalid => "p_invalid",
            Report::NoPoint => "p_no_point",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Report::Denied => "denied",
            Report::Logged(Direction::Ingress) => "logged ingress",
            Report::Logged(Direction::Egress) => "logged egress",
            Report::Spoofed => "spoofed",
            Report::UnknownInterface => "unknown interface",
            Report::Invalid => "invalid",
            Report::NoPoint => "no point",
        }
    }

    /// Whether what is reported so may be judged in the direction of its flow's first packet, and is
    /// then reported as a reply.
    fn has_replies(self) -> bool {
        matches!(self, Report::Denied | Report::Logged(_) | Report::NoPoint)
    }

    /// What a packet that is reported so gets.
    fn verdict(self) -> Verdict {
        match self {
            Report::Logged(_) => Verdict::Return,
            _ => Verdict::Drop,
        }
    }

    /// What the kernel says in front of such a packet; `reply`: it runs against its flow's first.
    pub fn prefix(self, reply: bool) -> String {
        let reply = if reply && self.has_replies() {
            " reply"
        } else {
            ""
        };
        format!("palisade {}{reply}", self.word())
    }

    /// What a prefix says: why, and whether the packet runs against its flow's first.
    pub fn parse(prefix: &str) -> Option<(Report, bool)> {
        let rest = prefix.strip_prefix("palisade ")?;
        let (word, reply) = match rest.strip_suffix(" reply") {
            Some(word) => (word, true),
            None => (rest, false),
        };
        let report = Report::ALL.into_iter().find(|r| r.word() == word)?;
        (!reply || report.has_replies()).then_some((report, reply))
    }

    /// The chains whose first counter counts packets reported so, before the limit.
    pub fn counting_chains(self) -> Vec<Str> {
        let replies = self.has_replies().then(|| reply_chain(self));
        let chain = Str::from(self.chain());
        [chain].into_iter().chain(replies).collect()
    }
}

fn reply_chain(report: Report) -> Str {
    format!("{}_r", report.chain()).into()
}

/// Ends a judgement, or a drop without one: reports if that is configured.
pub(crate) fn end(config: &Config, report: Report) -> Verdict {
    match config.log {
        Some(_) => Verdict::Goto(report.chain().into()),
        None => report.verdict(),
    }
}

/// A counted drop without a judgement, with what it means.
pub(crate) fn drop_counted(config: &Config, line: Line, report: Report) -> Rule {
    let mut rule = line.count().verdict(end(config, report));
    rule.comment = Some(
        match report {
            Report::Spoofed => "spoofed source",
            other => other.word(),
        }
        .into(),
    );
    rule
}

/// The chains of every kind of report.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    let Some(log) = config.log else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for report in Report::ALL {
        let mut rules = Vec::new();
        if report.has_replies() {
            let replies = reply_chain(report);
            let to_replies = Line::new().state(ct_state::ESTABLISHED).reply();
            rules.push(to_replies.goto(&replies));
            out.push(chain(&replies, None, tell(log, report, true)));
        }
        rules.extend(tell(log, report, false));
        out.push(chain(report.chain(), None, rules));
    }
    out
}

fn tell(log: LogConfig, report: Report, reply: bool) -> Vec<Rule> {
    let LogConfig { group, rate, burst } = log;
    let prefix = report.prefix(reply).into();
    let told = Line::new()
        .count()
        .push(Expr::Limit { rate, burst })
        .push(Expr::Log { group, prefix });
    vec![told.end(), Line::new().verdict(report.verdict())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_read_back() {
        for report in Report::ALL {
            for reply in [false, true] {
                let read = Report::parse(&report.prefix(reply));
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
            assert_eq!(Report::parse(other), None, "{other}");
        }
    }
}
