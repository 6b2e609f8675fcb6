//! Roundabout ways to a state: detours, reversals, repeats, in batches.

use crate::Dice;
use palisade_model::{Object, State, Update};

/// Batches of updates that end in `target`, whatever they pass on the way. `detour` is where the
/// things come from that are said and taken back.
#[must_use]
pub fn batches(dice: &mut Dice, detour: &State, target: &State) -> Vec<Vec<Update>> {
    let mut wanted: Vec<Object> = target.objects().collect();
    let mut wrong: Vec<Object> = detour.objects().collect();
    dice.shuffle(&mut wanted);
    dice.shuffle(&mut wrong);
    let mut updates = Vec::new();
    let mut now = State::default();
    let mut say = |now: &mut State, update: Update| {
        now.apply(update.clone());
        updates.push(update);
    };
    for _ in 0..dice.between(5, 30) {
        let from = if dice.chance(50) { &wanted } else { &wrong };
        if from.is_empty() {
            continue;
        }
        let object = dice.pick(from).clone();
        let update = if dice.chance(25) {
            Update::Delete(object.key())
        } else {
            Update::Upsert(object)
        };
        say(&mut now, update.clone());
        if dice.chance(10) {
            say(&mut now, update);
        }
    }
    // Whatever is still wrong is put right, in a random order.
    let mut rest: Vec<Update> = Vec::new();
    for object in now.objects() {
        if !wanted.iter().any(|w| w.key() == object.key()) {
            rest.push(Update::Delete(object.key()));
        }
    }
    for object in &wanted {
        if !now.objects().any(|o| o == *object) || dice.chance(10) {
            rest.push(Update::Upsert(object.clone()));
        }
    }
    dice.shuffle(&mut rest);
    for update in rest {
        say(&mut now, update);
    }
    split(dice, updates)
}

/// The same updates cut into batches.
fn split(dice: &mut Dice, updates: Vec<Update>) -> Vec<Vec<Update>> {
    let mut out = vec![Vec::new()];
    for update in updates {
        if dice.chance(25) {
            out.push(Vec::new());
        }
        if let Some(last) = out.last_mut() {
            last.push(update);
        }
    }
    out
}
