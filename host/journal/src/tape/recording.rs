//! Recording: serialises each question and answer once into one buffer, and writes the whole line at once.
//!
//! A question is serialised before it is answered. So a question that is never answered (the host refused it, or
//! cancelled the call while it waited) is still recorded.
//!
//! Recorded answers can be given again while a call is recorded anew. As long as the guest asks the same questions, it
//! gets the same answers. From the first different question on, or after the last recorded answer, all questions are
//! answered live.

use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{TapeError, unwritable};
use crate::divergence::Asked;
use crate::entry::{Ask, Ending, Entry, Header, Kind, Origin, Position};
use crate::interrupted::{AskedAnew, GivenAgain};
use crate::line;
use crate::writer::Journal;

/// A larger buffer is freed after its line: one answer of 64 MiB must not cost each of many instances as much.
const BUFFER_KEPT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Recording {
    pub(super) sink: Sink,
    line: Vec<u8>,
    /// If the line holds a question with its arguments, and no answer yet: where the arguments begin.
    pending: Option<usize>,
    /// Answers that the next call, or the current one, gets again.
    pub(super) again: Option<Box<Again>>,
}

#[derive(Debug)]
pub(super) enum Sink {
    Journal(Box<Journal>),
    Memory {
        entries: Vec<Entry>,
        next_n: u64,
        position: Position,
    },
}

impl Recording {
    pub(super) fn new(sink: Sink) -> Self {
        Self {
            sink,
            line: Vec::new(),
            pending: None,
            again: None,
        }
    }

    /// The repeated answer to the last question; `None` if it must be asked live.
    pub(super) fn again<R: DeserializeOwned>(&mut self, name: &str) -> Option<R> {
        let args = self.line.get(self.pending?..)?;
        self.again.as_mut()?.answer(name, args)
    }

    /// Takes a question. An error here comes before the host acts on it.
    pub(super) fn asked<A: Serialize + ?Sized>(&mut self, name: &str, args: &A) -> Result<(), TapeError> {
        self.leave_unanswered()?;
        self.sink.check(Kind::Ask { answered: true })?;
        line::ask(&mut self.line, self.sink.next_n(), name);
        let args_at = self.line.len();
        if let Err(error) = serde_json::to_writer(&mut self.line, args) {
            self.line.clear();
            return Err(unwritable(name)(error));
        }
        self.pending = Some(args_at);
        Ok(())
    }

    /// Records the answer to the last question, and passes it on.
    pub(super) fn answered<R: Serialize>(&mut self, name: &str, answer: Result<R, TapeError>) -> Result<R, TapeError> {
        if answer.is_err() {
            self.leave_unanswered()?;
        }
        let answer = answer?;
        let question_bytes = self.line.len();
        self.line.extend_from_slice(line::ANSWER);
        if let Err(error) = serde_json::to_writer(&mut self.line, &answer) {
            self.line.truncate(question_bytes);
            return Err(unwritable(name)(error));
        }
        self.pending = None;
        self.write(Kind::Ask { answered: true })?;
        Ok(answer)
    }

    pub(super) fn begin_call(&mut self, call: (u64, &str, &RawValue), of: Origin<'_>) -> Result<(), TapeError> {
        self.leave_unanswered()?;
        line::call(&mut self.line, self.sink.next_n(), call, of);
        self.write(Kind::Call)
    }

    pub(super) fn end_call(&mut self, ending: &Ending) -> Result<(), TapeError> {
        self.leave_unanswered()?;
        line::ending(&mut self.line, self.sink.next_n(), ending);
        let failed = ending.failed();
        self.write(Kind::Ending { failed })
    }

    pub(super) fn rotate(&mut self, header: &Header) -> Result<(), TapeError> {
        self.leave_unanswered()?;
        match &mut self.sink {
            Sink::Journal(journal) => Ok(journal.start_segment(header)?),
            Sink::Memory { position, .. } if position.inside_call() => {
                Err(TapeError::Misplaced("a segment can't begin inside a call"))
            }
            Sink::Memory { position, .. } => {
                *position = Position::Start;
                line::header(&mut self.line, self.sink.next_n(), header);
                self.write(Kind::Header)
            }
        }
    }

    /// Records the pending question, if there is one, as one that was never answered.
    fn leave_unanswered(&mut self) -> Result<(), TapeError> {
        match self.pending.take() {
            Some(_) => self.write(Kind::Ask { answered: false }),
            None => Ok(()),
        }
    }

    fn write(&mut self, kind: Kind) -> Result<(), TapeError> {
        line::finish(&mut self.line);
        let written = self.sink.append(&self.line, kind);
        self.line.clear();
        if self.line.capacity() > BUFFER_KEPT_BYTES_MAX {
            self.line = Vec::new();
        }
        written
    }
}

impl Sink {
    pub(super) fn memory() -> Self {
        Self::Memory {
            entries: Vec::new(),
            next_n: 1,
            position: Position::Starting,
        }
    }

    fn next_n(&self) -> u64 {
        match self {
            Self::Journal(journal) => journal.next_n(),
            Self::Memory { next_n, .. } => *next_n,
        }
    }

    /// Whether an entry of this kind may come now.
    fn check(&self, kind: Kind) -> Result<Position, TapeError> {
        match self {
            Self::Journal(journal) => Ok(journal.check(kind)?),
            Self::Memory { position, .. } => match (position, kind) {
                (Position::Between { .. }, Kind::Ask { .. }) => Ok(*position),
                _ => position.then(kind).map_err(TapeError::Misplaced),
            },
        }
    }

    fn append(&mut self, line: &[u8], kind: Kind) -> Result<(), TapeError> {
        let after = self.check(kind)?;
        match self {
            Self::Journal(journal) => Ok(journal.append(line, kind)?),
            Self::Memory {
                entries,
                next_n,
                position,
            } => {
                let entry = Entry::parse(String::from_utf8_lossy(line).trim_end());
                entries.push(entry.map_err(|_| TapeError::Misplaced("a line was written that can't be read"))?);
                (*next_n, *position) = (*next_n + 1, after);
                Ok(())
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Again {
    answers: VecDeque<Ask>,
    anew: AskedAnew,
    came: GivenAgain,
}

impl Again {
    pub(super) fn new(answers: Vec<Ask>, anew: AskedAnew) -> Self {
        Self {
            answers: answers.into_iter().filter(|answered| !anew(&answered.name)).collect(),
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
        let is_same = next.name == name && same(next.args.get().as_bytes(), args);
        let recorded = next.answer.as_ref().filter(|_| is_same);
        let answer = recorded.and_then(|answer| serde_json::from_str(answer.get()).ok());
        if answer.is_some() {
            self.answers.pop_front();
            self.came.given += 1;
        } else {
            let recorded = Asked::new(&next.name, next.args.get());
            self.came.differs = Some((recorded, Asked::new(name, String::from_utf8_lossy(args))));
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
