//! The ledger finds no violation in an honest host, and every kind in a faulty one.

use super::fake::{Fake, Lie};
use super::ledger::Wrong;
use super::rounds::{ANSWERS_MAX, CLIENTS, Course, drive};
use support::kills::seed;

#[test]
fn nothing_is_wrong_with_an_honest_host() {
    for seed in seed()..seed() + 3 {
        let course = Course {
            seed,
            rounds: 40,
            clients: CLIENTS,
            answers_max: ANSWERS_MAX,
            kills: true,
            failures: false,
            rests: false,
        };
        let tally = drive(&Fake::new(Lie::None, seed), course).unwrap_or_else(|broken| panic!("{broken}"));
        println!("{tally:?}");
        assert!(
            tally.answers > 200 && tally.full > 10 && tally.unanswered > 40,
            "{tally:?}"
        );
        assert!(tally.held > 5 && tally.free > 5, "kills must hit work: {tally:?}");
        assert!(
            tally.spooled > 0 && tally.in_vain > 0 && tally.unrouted > 0,
            "{tally:?}"
        );
    }
}

#[test]
fn whatever_a_host_does_wrong_is_found() {
    let wrongs: [(Lie, &[Wrong]); 13] = [
        (Lie::GivesTwice, &[Wrong::Double]),
        // The previous address is free for another pod at once, so either may show first.
        (Lie::GivesAnother, &[Wrong::Moved, Wrong::Double]),
        (Lie::LosesAdds, &[Wrong::Lost]),
        (Lie::LosesDels, &[Wrong::Back]),
        (Lie::Swaps, &[Wrong::Moved]),
        (Lie::LosesReleases, &[Wrong::Back]),
        (Lie::FreesTooMuch, &[Wrong::Lost, Wrong::Moved, Wrong::Double]),
        (Lie::FreesTooLittle, &[Wrong::Back]),
        (Lie::HoldsForNobody, &[Wrong::Stray]),
        (Lie::LosesAddresses, &[Wrong::Unexpected]),
        (Lie::Refuses, &[Wrong::Lost]),
        (Lie::Fails, &[Wrong::Unexpected]),
        (Lie::Damages, &[Wrong::Unexpected]),
    ];
    for (lie, found) in wrongs {
        let course = Course {
            seed: seed(),
            rounds: 100,
            clients: CLIENTS,
            answers_max: ANSWERS_MAX,
            kills: true,
            failures: false,
            rests: false,
        };
        match drive(&Fake::new(lie, course.seed), course) {
            Err(broken) => {
                println!("{lie:?}: {}", broken.what);
                assert!(found.contains(&broken.wrong), "{lie:?}: {broken}");
                assert!(!broken.history.is_empty(), "{lie:?}: {broken}");
            }
            Ok(tally) => panic!("{lie:?} is not found: {tally:?}"),
        }
    }
}
