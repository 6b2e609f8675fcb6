//! Every kind of edit. Each preserves the verdicts that the traffic relies on.

use super::Random;
use super::gaps::Gap;
use super::traffic::Traffic;
use super::world::World;
use crate::agent::nft;

pub(crate) type Edit = fn(&mut World, &mut Traffic, &mut Random);

pub(crate) const ALL: [(&str, Edit); 24] = [
    ("selector that splits an identity", |w, _, _| {
        w.reshape(|s| s.split += 1);
    }),
    ("CIDR added", |w, _, _| {
        w.reshape(|s| s.more_cidrs = s.more_cidrs % 4 + 1);
    }),
    ("CIDR removed", |w, _, r| {
        let fewer = r.below(2);
        w.reshape(|s| s.more_cidrs = if s.more_cidrs == fewer { 3 } else { fewer });
    }),
    ("CIDR nested in another, or not", |w, _, _| {
        w.reshape(|s| s.nested = !s.nested);
    }),
    ("exception of a CIDR", |w, _, _| {
        w.reshape(|s| s.more_except = !s.more_except);
    }),
    ("pod relabelled, label tested", |w, _, _| {
        w.reshape(|s| s.tier += 1);
    }),
    ("pod relabelled, label tested by nobody", |w, _, _| {
        w.reshape(|s| s.mood += 1);
    }),
    ("namespace relabelled", |w, _, _| w.reshape(|s| s.team += 1)),
    ("address reused by another pod", |w, _, _| {
        w.reshape(|s| s.holder += 1);
    }),
    ("rules reordered", |w, _, r| {
        let by = 1 + r.below(9);
        w.reshape(|s| s.order += by);
    }),
    ("policy set joined and left", |w, _, _| {
        w.reshape(|s| s.joined = !s.joined);
    }),
    ("port opened, another closed", |w, _, _| {
        w.reshape(|s| s.port += 1);
        w.check_verdicts();
    }),
    ("port by number, name, range", |w, _, _| {
        w.reshape(|s| s.naming += 1);
    }),
    ("egress isolated and not", |w, _, _| {
        w.reshape(|s| s.egress = !s.egress);
    }),
    ("egress rules and CIDRs", |w, _, r| {
        let by = 1 + r.below(4);
        w.reshape(|s| s.out += by);
    }),
    ("host endpoint and its policies", |w, _, r| {
        let by = 1 + r.below(3);
        w.reshape(|s| s.hosts += by);
        w.check_verdicts();
    }),
    ("the flow's own policy edited", |w, t, _| {
        t.gap_begins(w, Gap::OwnPolicy);
        w.reshape(|s| s.turn += 1);
        t.gap_ends(w);
    }),
    ("everything at once", |w, _, r| {
        let by = 1 + r.below(5);
        w.reshape(|s| {
            s.split += by;
            s.more_cidrs += by;
            s.nested = !s.nested;
            s.tier += by;
            s.team += 1;
            s.holder += 1;
            s.order += by;
            s.joined = !s.joined;
            s.port += by;
            s.naming += by;
            s.out += by;
            s.hosts += by;
        });
        w.check_verdicts();
    }),
    ("edits one upon the other", |w, _, r| {
        for _ in 0..4 {
            w.write(|s| s.port += 1);
            std::thread::sleep(std::time::Duration::from_millis(r.below(40)));
            w.write(|s| s.split += 1);
        }
        w.settled("edits one upon the other");
        w.check_verdicts();
    }),
    ("agent killed and restarted", |w, t, _| {
        t.gap_begins(w, Gap::Restart);
        w.agent.kill();
        w.agent.start(&w.lab);
        let status = w.agent.wait("in sync", |s| s["source"]["inSync"] == true);
        assert_eq!(
            status["dataplane"]["start"]["writes"],
            0,
            "{}",
            w.agent.log()
        );
        t.gap_ends(w);
    }),
    ("table replaced by a restart", |w, t, _| {
        for owned in ["true", "false"] {
            t.gap_begins(w, Gap::Replaced);
            w.agent.terminate();
            w.agent.set("PALISADE_OWN_TABLE", owned);
            w.agent.start(&w.lab);
            let in_line = |s: &serde_json::Value| {
                s["source"]["inSync"] == true && s["revision"] == s["realised"]
            };
            w.agent.wait("replaced", in_line);
            t.gap_ends(w);
        }
    }),
    ("edited while the agent is down", |w, _, _| {
        w.agent.terminate();
        w.write(|s| {
            s.port += 1;
            s.tier += 1;
        });
        w.agent.start(&w.lab);
        w.settled("edited while it was down");
        w.check_verdicts();
    }),
    ("repair, rules still whole", |w, _, r| {
        let damage = [
            "flush set inet palisade p_live",
            "flush chain inet palisade p_generation",
            "add element inet palisade p_if_ours { \"nobody0\" }",
            "add chain inet palisade nobody",
        ][r.below(4) as usize];
        repaired(w, damage);
    }),
    ("repair, the rules were gone", |w, t, r| {
        let damage = ["delete table inet palisade", "flush ruleset"][r.below(2) as usize];
        t.gap_begins(w, Gap::RulesGone);
        repaired(w, damage);
        t.gap_ends(w);
    }),
];

fn repaired(world: &World, damage: &str) {
    let repairs = |s: &serde_json::Value| s["dataplane"]["repairs"].to_string();
    let before = repairs(&world.agent.status());
    nft(&world.lab, damage);
    world.agent.wait(damage, |s| repairs(s) != before);
}
