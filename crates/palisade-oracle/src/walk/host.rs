//! What this host decides at the interfaces that a packet crosses: failsafe ports, what it forwards, what is its own.

use super::{DecisionRef, JudgedEndpoint, direction_ends};
use crate::criteria::MatchContext;
use crate::trace::{NoTrace, TraceRecorder};
use crate::{
    DirectionJudgement, FlowVerdict, HostJudgement, OracleOptions, PreparedState, Question,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use palisade_model::{Direction, L4, Pass, PolicyView};

impl<'a> PreparedState<'a> {
    /// Whether this host allows a flow at the interface by which it arrives (ingress) or leaves (egress).
    pub fn host_allows(
        &self,
        question: &Question,
        direction: Direction,
        options: &OracleOptions,
    ) -> bool {
        self.host_side(question, direction).is_none_or(|side| {
            let context = self.host_context(question, side);
            self.decide_at_host(&context, side, options, &mut NoTrace)
                .allows()
        })
    }

    /// The host endpoint at the interface where a direction of a flow is judged.
    fn host_side(&self, question: &Question, direction: Direction) -> Option<JudgedEndpoint<'a>> {
        let interface = question.path.interface(direction)?;
        Some(JudgedEndpoint {
            subject: self.host_endpoint(interface)?,
            pass: question.path.pass(),
            direction,
        })
    }

    fn host_context<'q>(&self, question: &'q Question, side: JudgedEndpoint<'a>) -> MatchContext<'q>
    where
        'a: 'q,
    {
        MatchContext {
            host: Some((side.subject, side.direction)),
            ..self.match_context(question)
        }
    }

    pub(super) fn judge_host(
        &self,
        question: &Question,
        direction: Direction,
        options: &OracleOptions,
    ) -> Option<HostJudgement> {
        let side = self.host_side(question, direction)?;
        let context = self.host_context(question, side);
        Some(HostJudgement {
            interface: question.path.interface(direction)?.clone(),
            pass: side.pass,
            direction,
            judgement: self.judge_host_side(&context, side, options),
        })
    }

    fn judge_host_side(
        &self,
        context: &MatchContext<'_>,
        side: JudgedEndpoint<'_>,
        options: &OracleOptions,
    ) -> DirectionJudgement {
        let mut steps = Vec::new();
        let decision = self.decide_at_host(context, side, options, &mut steps);
        let audited = options.view == PolicyView::Enforced
            && !matches!(decision, DecisionRef::Failsafe)
            && self.is_audited(side, options);
        let audit = audited.then(|| {
            let options = OracleOptions {
                view: PolicyView::Audit,
                ..*options
            };
            Box::new(self.judge_host_side(context, side, &options))
        });
        DirectionJudgement {
            subject: Some(side.subject.id.clone()),
            verdict: FlowVerdict::from_allowed(decision.allows()),
            decided_by: decision.into_reason(side.direction),
            steps,
            audit,
        }
    }

    /// Failsafe ports of the host are always open. What it forwards is judged by the policies that apply on forward,
    /// and allowed if none of them selects the interface or decides. Else tiers decide, then profiles.
    /// Source: Calico, "Host endpoints": failsafe rules, apply on forward.
    fn decide_at_host<'w>(
        &'w self,
        context: &MatchContext<'w>,
        side: JudgedEndpoint<'w>,
        options: &OracleOptions,
        recorder: &mut impl TraceRecorder,
    ) -> DecisionRef<'w> {
        if side.pass == Pass::Normal && self.is_failsafe(context, side.direction) {
            return DecisionRef::Failsafe;
        }
        if side.pass == Pass::Forward && !self.has_forward_policy(side) {
            return DecisionRef::NoForwardPolicy;
        }
        if options.view == PolicyView::Enforced && self.is_in_audit(side.subject, options) {
            return DecisionRef::EndpointInAudit;
        }
        match self.evaluate_tiers(context, side, options.view, recorder) {
            Some(decision) => decision,
            None if side.pass == Pass::Forward => DecisionRef::ForwardEnd,
            None => self.evaluate_profiles(context, side.direction, side.subject, recorder),
        }
    }

    /// Whether a policy that applies on forward, in audit or not, applies to a direction of the endpoint.
    fn has_forward_policy(&self, side: JudgedEndpoint<'_>) -> bool {
        let mut policies = self.tiers.iter().flat_map(|tier| &tier.policies);
        policies.any(|policy| {
            policy.has_pass(Pass::Forward) && self.applies(policy, side.subject, side.direction)
        })
    }

    /// Whether a flow to or from the host is to a failsafe port.
    fn is_failsafe(&self, context: &MatchContext<'_>, direction: Direction) -> bool {
        let question = context.question;
        let port = match question.l4 {
            L4::Ports { destination, .. } => Some(destination),
            L4::Icmp { .. } | L4::None => None,
        };
        let peer = direction_ends(context, direction).peer.address;
        peer.is_some_and(|peer| {
            self.failsafe
                .contains(direction, peer, question.protocol, port)
        })
    }
}
