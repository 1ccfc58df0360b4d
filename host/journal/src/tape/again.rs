//! Recorded answers that are given again while a call is recorded anew.
//!
//! As long as the guest asks the same questions, it gets the same answers. From the first different question on, or
//! after the last recorded answer, all questions are answered live.

use std::collections::VecDeque;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::divergence::Asked;
use crate::interrupted::{Answered, GivenAgain};

/// Returns by a question's name whether it is answered live in any case.
pub type AskedAnew = fn(&str) -> bool;

#[derive(Debug)]
pub(super) struct Again {
    answers: VecDeque<Answered>,
    anew: AskedAnew,
    came: GivenAgain,
}

impl Again {
    pub(super) fn new(answers: Vec<Answered>, anew: AskedAnew) -> Self {
        Self {
            answers: answers.into_iter().filter(|answered| !anew(&answered.ask)).collect(),
            anew,
            came: GivenAgain::default(),
        }
    }

    /// The recorded answer to this question; `None` if it must be asked live.
    pub(super) fn answer<R: DeserializeOwned>(&mut self, name: &str, args: &[u8]) -> Option<R> {
        if (self.anew)(name) || self.came.differs.is_some() {
            return None;
        }
        let next = self.answers.front()?;
        let answer = if next.ask == name && same(next.args.get().as_bytes(), args) {
            serde_json::from_str(next.answer.get()).ok()
        } else {
            None
        };
        if answer.is_some() {
            self.answers.pop_front();
            self.came.given += 1;
        } else {
            let recorded = Asked::new(&next.ask, next.args.get());
            let asked = Asked::new(name, String::from_utf8_lossy(args));
            self.came.differs = Some((recorded, asked));
        }
        answer
    }

    pub(super) fn came(self) -> GivenAgain {
        GivenAgain {
            left: self.answers.len(),
            ..self.came
        }
    }
}

/// Compare bytes first, since the same guest gives the same text; then values.
fn same(recorded: &[u8], asked: &[u8]) -> bool {
    let value = |json| serde_json::from_slice::<Value>(json).ok();
    recorded == asked || value(recorded).is_some_and(|recorded| value(asked) == Some(recorded))
}
