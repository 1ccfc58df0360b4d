//! `--watch`: shows a picture again whenever it changes, until the command is stopped.
//!
//! A terminal is drawn anew. Elsewhere each picture is a block of its own, for a file or another program.

use std::io::IsTerminal as _;
use std::time::Duration;

use crate::exit::{Ending, Exit, Failure};
use crate::output::{self, Output};

/// How often to look.
const EVERY: Duration = Duration::from_secs(1);

/// Everything away; to the top left; the rest of this line away; everything below away.
const CLEAR: &str = "\u{1b}[2J";
const HOME: &str = "\u{1b}[H";
const END_LINE: &str = "\u{1b}[K\n";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// The flag.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Watch {
    /// Shows it again whenever it changes, until it is stopped.
    #[arg(long, short)]
    watch: bool,
}

/// What a command shows at one moment.
#[derive(Clone)]
pub(super) struct Picture {
    pub(super) text: String,
    /// Another picture is shown if this is another. It leaves out what passes by itself, such as the time.
    pub(super) lasting: String,
    pub(super) exit: Exit,
}

impl Watch {
    pub(super) fn is_on(&self) -> bool {
        self.watch
    }

    /// Shows one picture, or one after another. If there is none later, says why once, and looks on.
    pub(super) fn show(&self, output: Output, mut look: impl FnMut() -> Result<Picture, Failure>) -> Ending {
        let first = look()?;
        if !self.watch {
            output::bytes(first.text.as_bytes())?;
            return Ok(first.exit);
        }
        let redraws = output.is_text() && std::io::stdout().is_terminal();
        if redraws {
            output::bytes(CLEAR.as_bytes())?;
        }
        let mut shown: Option<String> = None;
        let mut seen = Ok(first);
        loop {
            let (text, mark) = match seen {
                Ok(Picture { text, lasting, .. }) if redraws => (text.clone(), text + &lasting),
                Ok(Picture { text, lasting, .. }) => (text, lasting),
                Err(Failure { error, .. }) => {
                    let error = format!("error: {error:#}");
                    if shown.as_ref() != Some(&error) {
                        output::talk(&error);
                    }
                    (String::new(), error)
                }
            };
            if !text.is_empty() && shown.as_ref() != Some(&mark) {
                let picture = match (redraws, output) {
                    // Line by line over the old one: a cleared screen flickers.
                    (true, _) => format!("{HOME}{}{CLEAR_BELOW}", text.replace('\n', END_LINE)),
                    (false, Output::Yaml) => format!("---\n{text}"),
                    (false, Output::Text | Output::Wide) if shown.is_some() => format!("\n{text}"),
                    (false, _) => text,
                };
                output::bytes(picture.as_bytes())?;
            }
            shown = Some(mark);
            std::thread::sleep(EVERY);
            seen = look();
        }
    }
}
