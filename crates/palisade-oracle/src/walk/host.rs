//! What this host decides at the interfaces that a packet crosses, stage by stage: failsafe ports, what is not tracked
//! or not yet translated, what it forwards, what is its own.

use super::{DecisionRef, JudgedEndpoint, direction_ends};
use crate::criteria::MatchContext;
use crate::trace::TraceRecorder;
use crate::{
    DecisionReason, DirectionJudgement, FlowVerdict, HostJudgement, OracleOptions, PreparedState,
    Question,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use palisade_model::{Direction, L4, PolicyStage, PolicyView};

impl<'a> PreparedState<'a> {
    /// Whether this host allows a flow at the interface by which it arrives (ingress) or leaves (egress).
    pub fn host_allows(
        &self,
        question: &Question,
        direction: Direction,
        options: &OracleOptions,
    ) -> bool {
        let mut judgements = self.judge_host(question, direction, options).into_iter();
        judgements.all(|at| at.judgement.verdict.is_allow())
    }

    /// Whether this host allows a packet before connection tracking, so that it is not tracked.
    pub fn is_untracked(&self, question: &Question, options: &OracleOptions) -> bool {
        let judged = Direction::BOTH
            .into_iter()
            .flat_map(|direction| self.judge_host(question, direction, options));
        let mut untracked = judged.filter(|at| at.stage == PolicyStage::Untracked);
        untracked.any(|at| at.judgement.verdict.is_allow() && at.is_last())
    }

    /// The host endpoint at the interface where a direction of a flow is judged.
    fn host_side(
        &self,
        question: &Question,
        direction: Direction,
        stage: PolicyStage,
    ) -> Option<JudgedEndpoint<'a>> {
        let interface = question.path.interface(direction)?;
        Some(JudgedEndpoint {
            subject: self.host_endpoint(interface)?,
            stage,
            direction,
            is_hairpin: false,
        })
    }

    /// The judgements of one interface, up to the first that decides.
    pub(super) fn judge_host(
        &self,
        question: &Question,
        direction: Direction,
        options: &OracleOptions,
    ) -> Vec<HostJudgement> {
        let mut all = Vec::new();
        for stage in question.path.stages(direction) {
            let judged = if stage.is_early() {
                self.judge_stage(&question.before_dnat(), direction, stage, options)
            } else {
                self.judge_stage(question, direction, stage, options)
            };
            all.extend(judged);
            if all.last().is_some_and(HostJudgement::is_last) {
                break;
            }
        }
        all
    }

    /// The judgement of one stage; `None` if there is no host endpoint, or no policy of an early stage applies to it.
    fn judge_stage(
        &self,
        question: &Question,
        direction: Direction,
        stage: PolicyStage,
        options: &OracleOptions,
    ) -> Option<HostJudgement> {
        let side = self.host_side(question, direction, stage)?;
        if stage.is_early() && !self.has_policy(side) {
            return None;
        }
        let context = MatchContext {
            host: Some((side.subject, direction, stage)),
            ..self.match_context(question)
        };
        Some(HostJudgement {
            interface: question.path.interface(direction)?.clone(),
            stage,
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
        let verdict = FlowVerdict::from_allowed(decision.allows());
        DirectionJudgement {
            subject: Some(side.subject.id.clone()),
            verdict,
            query_verdict: verdict,
            decided_by: decision.into_reason(side.direction),
            redirect: None,
            steps,
            audit,
        }
    }

    /// Failsafe ports of the host are always open. What it forwards is judged by the policies that apply on forward,
    /// and allowed if none of them selects the interface or decides. Early stages leave what no policy decides to the
    /// next stage. Else tiers decide, then profiles.
    /// Source: Calico, "Host endpoints": failsafe rules, apply on forward, untracked policies, policies before DNAT.
    fn decide_at_host<'w>(
        &'w self,
        context: &MatchContext<'w>,
        side: JudgedEndpoint<'w>,
        options: &OracleOptions,
        recorder: &mut impl TraceRecorder,
    ) -> DecisionRef<'w> {
        if self.is_failsafe(context, side) {
            return DecisionRef::Failsafe;
        }
        if side.stage == PolicyStage::Forward && !self.has_policy(side) {
            return DecisionRef::NoForwardPolicy;
        }
        if options.view == PolicyView::Enforced && self.is_in_audit(side.subject, options) {
            return DecisionRef::EndpointInAudit;
        }
        let decision = self.evaluate_tiers(context, side, options.view, recorder);
        decision.unwrap_or_else(|| match side.stage {
            PolicyStage::Untracked | PolicyStage::PreDnat => DecisionRef::StageEnd,
            PolicyStage::Forward => DecisionRef::ForwardEnd,
            PolicyStage::Normal => self.evaluate_profiles(context, side, recorder),
        })
    }

    /// Whether a policy for the traffic, in audit or not, applies to a direction of the endpoint.
    pub(super) fn has_policy(&self, side: JudgedEndpoint<'_>) -> bool {
        let mut policies = self.tiers.iter().flat_map(|tier| &tier.policies);
        policies.any(|policy| {
            side.is_in_scope(policy) && self.applies(policy, side.subject, side.direction)
        })
    }

    /// Whether a packet is to a failsafe port, where the stage does not judge these: all but that of what is forwarded,
    /// and before connection tracking replies from such a port as well.
    fn is_failsafe(&self, context: &MatchContext<'_>, side: JudgedEndpoint<'_>) -> bool {
        let question = context.question;
        let (source, destination) = match question.l4 {
            L4::Ports {
                source,
                destination,
            } => (Some(source), Some(destination)),
            L4::Icmp { .. } | L4::None => (None, None),
        };
        let Some(peer) = direction_ends(context, side.direction).peer.address else {
            return false;
        };
        let contains = |direction, port| {
            let ports = &self.failsafe;
            ports.contains(direction, peer, question.protocol, port)
        };
        let opposite = match side.direction {
            Direction::Ingress => Direction::Egress,
            Direction::Egress => Direction::Ingress,
        };
        match side.stage {
            PolicyStage::Forward => false,
            PolicyStage::Normal | PolicyStage::PreDnat => contains(side.direction, destination),
            PolicyStage::Untracked => {
                contains(side.direction, destination) || contains(opposite, source)
            }
        }
    }
}

impl HostJudgement {
    /// Whether no other stage judges the packet at this interface.
    pub fn is_last(&self) -> bool {
        !self.stage.is_early()
            || !self.judgement.verdict.is_allow()
            || matches!(self.judgement.decided_by, DecisionReason::Rule { .. })
    }
}
