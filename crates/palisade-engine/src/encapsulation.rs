//! Denial of encapsulated packets that endpoints may not send even where rules allow them.
//!
//! The denial is part of the programs: where a program allows a denied encapsulation, the cell
//! denies instead. A cell that a rule denies keeps its cause, so a program that denies everything
//! does not grow.

use crate::faults::EngineFault;
use alloc::vec::Vec;
use palisade_model::{Encapsulation, Encapsulations, Protocol};
use palisade_tables::{Cell, PortMap, Program, RuleId, Verdict};

/// The most elements that the denial adds to a program: three protocols, three ports, and the
/// default for other UDP ports.
pub(crate) const MAX_DENIAL_ELEMENTS: usize = 7;

/// The program with a denial wherever it allows a denied encapsulation. `cause` returns the cause
/// number of the denial; it is called only if there is one.
pub(crate) fn deny_encapsulation(
    program: Program,
    denied: Encapsulations,
    cause: impl FnOnce() -> RuleId,
) -> Program {
    let denies_all = program.protocols().is_empty() && program.default().verdict == Verdict::Deny;
    if denied == Encapsulations::NONE
        || denies_all
        || EngineFault::EncapsulationAllowed.is_injected()
    {
        return program;
    }
    if program.is_subset_of(&denial_program(denied, RuleId(0))) {
        return program;
    }
    denial_program(denied, cause()).intersect(&program)
}

/// The program that denies these encapsulations and allows everything else.
fn denial_program(denied: Encapsulations, cause: RuleId) -> Program {
    let cell = |verdict| Cell {
        verdict,
        causes: Vec::from([cause]),
        log: None,
        audit: None,
        redirect: None,
    };
    let always = |verdict| PortMap::constant(cell(verdict));
    let mut ports: Vec<u16> = denied
        .iter()
        .flat_map(Encapsulation::ports)
        .copied()
        .collect();
    ports.sort_unstable();
    let before = |port: &u16| Some((port.checked_sub(1)?, always(Verdict::Allow)));
    let ends = ports.iter().flat_map(|port| {
        let denial = (*port, always(Verdict::Deny));
        before(port).into_iter().chain([denial])
    });
    let rest = (u16::MAX, always(Verdict::Allow));
    let udp = PortMap::from_segments(ends.chain([rest]));
    let whole = denied.iter().flat_map(Encapsulation::protocols);
    let whole = whole.map(|protocol| (*protocol, PortMap::constant(always(Verdict::Deny))));
    let protocols = udp.map(|udp| (Protocol::UDP, udp)).into_iter().chain(whole);
    Program::new(protocols, cell(Verdict::Allow))
}
