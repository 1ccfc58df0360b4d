//! `trueup completions` and `trueup man`: what shells and `man` show of the commands.
//!
//! A shell's script asks the program itself for completions, so they know the keys, guests and revisions of the
//! configuration that the command line is about. Nothing but its files is read.
//!
//! ```text
//! Tab -> script -> _TRUEUP_COMPLETE=bash trueup -- WORDS... -> candidates
//! ```

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use percent_encoding::percent_decode_str;
use trueup_config::Config;
use trueup_work::swap::{Revision, Revisions};
use trueup_worlds::sections;

use super::flags;
use crate::exit::{Ending, Exit};
use crate::output;

/// Set by the scripts alone. It does not begin like the variables of the configuration.
const VARIABLE: &str = "_TRUEUP_COMPLETE";

/// Prints completions for a shell: commands, flags, files, and the configuration's keys, guests and revisions.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn exec(args: Args) -> Ending {
    let shells = Shells::builtins();
    let script = shells.completer(&args.shell.to_string());
    let script = script.context("there are no completions for this shell")?;
    let mut text = Vec::new();
    let written = script.write_registration(VARIABLE, "trueup", "trueup", "trueup", &mut text);
    written.context("writing completions")?;
    output::bytes(&text)?;
    Ok(Exit::Done)
}

/// Writes manual pages into a folder: `trueup.1`, and one for each command, such as `trueup-guest-swap.1`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The folder. Missing ones are created.
    folder: PathBuf,
}

pub(crate) fn man(args: &Man) -> Ending {
    let folder = args.folder.display();
    std::fs::create_dir_all(&args.folder).with_context(|| format!("can't create {folder}"))?;
    let command = super::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.folder).with_context(|| format!("can't write into {folder}"))?;
    Ok(Exit::Done)
}

/// Answers a shell's script, and then ends the process. Does nothing if no script asks.
pub(super) fn answer() {
    let completing = CompleteEnv::with_factory(|| with_values("", super::command()));
    completing.var(VARIABLE).complete();
}

/// The command, and all below it, with completions of their arguments.
fn with_values(path: &str, command: Command) -> Command {
    let path = format!("{path} {}", command.get_name());
    let command = command.mut_args(|arg| match values(&path, &arg) {
        Some(values) => arg.add(values),
        None => arg,
    });
    command.mut_subcommands(|command| with_values(&path, command))
}

/// What an argument of a command may be, if this is known here.
fn values(path: &str, arg: &Arg) -> Option<ArgValueCompleter> {
    Some(match (arg.get_id().as_str(), path) {
        ("key", _) => ArgValueCompleter::new(|word: &OsStr| beginning(word, keys())),
        ("candidate", _) | ("guest", " trueup guest inspect" | " trueup replay") => {
            ArgValueCompleter::new(|word: &OsStr| {
                let mut all = beginning(word, builtins());
                all.extend(PathCompleter::file().complete(word));
                all
            })
        }
        ("guest", " trueup test") => return None,
        ("guest", _) => ArgValueCompleter::new(|word: &OsStr| beginning(word, guests())),
        ("to", " trueup guest rollback") => ArgValueCompleter::new(|word: &OsStr| beginning(word, revisions())),
        _ => return None,
    })
}

/// The values that begin with what is typed.
fn beginning<T: Into<CompletionCandidate>>(word: &OsStr, all: impl IntoIterator<Item = T>) -> Vec<CompletionCandidate> {
    let begins = |candidate: &CompletionCandidate| {
        let value = candidate.get_value().as_encoded_bytes();
        value.starts_with(word.as_encoded_bytes())
    };
    all.into_iter().map(Into::into).filter(begins).collect()
}

/// The keys that guests have decided about, each once: `default/web`.
fn keys() -> BTreeSet<String> {
    let within = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let guests = within(state_dir().join("decisions"));
    let files = guests.flat_map(|guest| within(guest.path()));
    let key = |file: DirEntry| {
        let name = file.file_name();
        let key = name.to_str()?.strip_suffix(".jsonl")?;
        Some(percent_decode_str(key).decode_utf8_lossy().into_owned())
    };
    files.filter_map(key).collect()
}

/// The guests of the configuration, each a NAME of `[guests.NAME]`.
fn guests() -> Vec<String> {
    let mut file = config();
    if file.is_dir() {
        file.push("trueup.toml");
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    let guests = table.get("guests").and_then(toml::Value::as_table);
    guests.into_iter().flat_map(toml::Table::keys).cloned().collect()
}

fn builtins() -> Vec<String> {
    let all = trueup_guests_builtin::GUESTS.iter();
    all.map(|guest| format!("{}@{}", guest.name, guest.version)).collect()
}

/// The revisions of the guest that the command line names, the newest first.
fn revisions() -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args_os().filter_map(|word| word.into_string().ok()).collect();
    let known = guests();
    let Some(guest) = words.iter().find(|word| known.contains(word)) else {
        return Vec::new();
    };
    let revisions = Revisions::load(&state_dir(), guest).unwrap_or_default();
    let candidate = |(order, revision): (usize, &Revision)| {
        let name = &revision.name;
        let version = &revision.version;
        let at = output::time(revision.at_ms);
        CompletionCandidate::new(revision.revision.to_string())
            .help(Some(format!("{name}@{version}, {at}").into()))
            .display_order(Some(order))
    };
    revisions.all().iter().rev().enumerate().map(candidate).collect()
}

/// The configuration that the command line is about.
fn config() -> PathBuf {
    flags::chosen(option("--config").as_deref().map(Path::new))
}

fn state_dir() -> PathBuf {
    let of_config = || Config::state_dir_of(&config(), &sections()).map(|(state_dir, _)| state_dir);
    option("--state-dir").map_or_else(|| of_config().unwrap_or_default(), PathBuf::from)
}

/// The value of an option on the command line that is being completed.
fn option(name: &str) -> Option<OsString> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut all = words.iter().enumerate();
    all.find_map(|(at, word)| match word.to_str()?.strip_prefix(name)? {
        "" => words.get(at + 1).cloned(),
        joined => joined.strip_prefix('=').map(Into::into),
    })
}
