//! Colour: whether there is any, which is decided here alone, and which lines have it.
//!
//! ```text
//! --color > NO_COLOR > CLICOLOR_FORCE, CLICOLOR > whether the stream is a terminal
//! ```

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::AnsiColor::{self, Green, Red, Yellow};
use anstyle::Style;

/// Sets what `--color` says, for the whole process.
pub(crate) fn choose(choice: clap::ColorChoice) {
    match choice {
        clap::ColorChoice::Auto => ColorChoice::Auto,
        clap::ColorChoice::Always => ColorChoice::Always,
        clap::ColorChoice::Never => ColorChoice::Never,
    }
    .write_global();
}

/// Whether a stream gets colour.
pub(crate) fn is_on<S: RawStream>(stream: &S) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// What lines of each colour begin with. None of these is the beginning of another.
type Marks = &'static [(AnsiColor, &'static [&'static str])];

/// A line about a change or a difference: green is new, red is gone or was expected, yellow has changed.
pub(crate) fn change(line: &str) -> String {
    const MARKS: Marks = &[
        (Green, &["+ ", "asked: ", "replayed: "]),
        (Red, &["- ", "recorded: "]),
        (Yellow, &["~ "]),
    ];
    // A field with both of its values in one line.
    let has_both = line.contains(": recorded ") && line.contains(", replayed ");
    painted(line, if has_both { &[(Yellow, &[""])] } else { MARKS }, true)
}

/// A line whose first word says how bad it is: that word is red, yellow or green.
pub(crate) fn severity(line: &str) -> String {
    const WORDS: Marks = &[
        (Red, &["error:", "failed ", "FAILED ", "problem ", "not well:"]),
        (Yellow, &["warning:", "warning "]),
        (Green, &["ok ", "all is well", "nothing is wrong"]),
    ];
    painted(line, WORDS, false)
}

/// The line with the colour of the first of `marks` that it begins with: the whole line, or only the mark.
fn painted(line: &str, marks: Marks, whole: bool) -> String {
    let text = line.trim_start();
    let mut all = marks
        .iter()
        .flat_map(|(colour, of)| of.iter().map(move |mark| (colour, mark)));
    let Some((colour, mark)) = all.find(|(_, mark)| text.starts_with(**mark)) else {
        return line.to_owned();
    };
    let style = Style::new().fg_color(Some((*colour).into()));
    let (indent, text) = line.split_at(line.len() - text.len());
    let (coloured, rest) = text.split_at(if whole { text.len() } else { mark.len() });
    format!("{indent}{style}{coloured}{style:#}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_colour_of_its_mark() {
        assert_eq!(change("  + server  a"), "  \u{1b}[32m+ server  a\u{1b}[0m");
        assert_eq!(change("- gone"), "\u{1b}[31m- gone\u{1b}[0m");
        let both = "  Ok.port: recorded 80, replayed 81";
        assert_eq!(change(both), format!("  \u{1b}[33m{}\u{1b}[0m", both.trim()));
        assert_eq!(change("~ b: 1 -> 2"), "\u{1b}[33m~ b: 1 -> 2\u{1b}[0m");
        for plain in ["default/web  +5", "-5", "", "  because"] {
            assert_eq!(change(plain), plain);
        }
        assert_eq!(severity("error: no"), "\u{1b}[31merror:\u{1b}[0m no");
        assert_eq!(severity("ok       clock"), "\u{1b}[32mok \u{1b}[0m      clock");
        for plain in ["an error: no", "okay", "7 ok, 1 warning, 0 failed"] {
            assert_eq!(severity(plain), plain);
        }
    }
}
