//! The commands: the arguments of each, and a function that executes it. Those of a kind share a file.

mod audit;
mod check;
mod checkpoint;
mod completions;
mod explain;
mod flags;
mod guest;
mod init;
mod ipam;
mod journal;
mod operate;
mod plan;
mod replay;
mod run;
mod sim;
mod status;
mod test;
#[cfg_attr(not(feature = "top"), path = "top/absent.rs")]
mod top;
mod version;
mod watch;

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tokio::signal::unix::{Signal, SignalKind, signal};
use trueup_capabilities::log::{Log, NoLog, TracingLog};
use trueup_config::Config;
use trueup_engine::{Engine, Options as EngineOptions, users_cache};
use trueup_registry::{Builtin, Registry, Store};
use trueup_work::load::Loader;
use trueup_worlds::worlds;

use self::flags::ConfigArg;
use crate::colour;
use crate::exit::{Ending, misused};
use crate::output::Output;
use crate::telemetry::{self, LOG_DEFAULT, LOG_OF_SIMULATOR, LOG_WITH_GUESTS, Verbosity};

/// Reconciles network control planes: runs decision logic as WebAssembly guests, records every question that they ask,
/// and replays it.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Cli {
    /// How data is written to stdout.
    #[arg(long, short, global = true, value_enum, default_value = "text")]
    output: Output,
    /// Whether there is colour. `auto`: on a terminal, unless `NO_COLOR` is set and not empty.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: clap::ColorChoice,
    #[command(flatten)]
    verbosity: Verbosity,
    #[command(subcommand)]
    command: Command,
}

impl Cli {
    /// Reads the command line. Ends the process if it asks for help, or is wrong.
    pub(crate) fn read() -> Self {
        completions::answer();
        let matches = command().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The default filter of the log. `None` if the configuration sets the log's format: such a command starts the log
    /// after it has read that.
    fn log_filter(&self) -> Option<&'static str> {
        Some(match &self.command {
            Command::Run(_) => return None,
            Command::Sim(_) => LOG_OF_SIMULATOR,
            Command::Test(args) if args.log => LOG_WITH_GUESTS,
            Command::Replay(args) if args.log => LOG_WITH_GUESTS,
            _ => LOG_DEFAULT,
        })
    }
}

/// All commands, with their examples.
fn command() -> clap::Command {
    with_examples(Cli::command(), "trueup")
}

/// Ends the help of `command` and of all below it with their texts in `examples.txt`, which a line `# COMMAND` begins.
fn with_examples(command: clap::Command, path: &str) -> clap::Command {
    let texts = include_str!("examples.txt").strip_prefix("# ").unwrap_or_default();
    let mut texts = texts.split("\n# ");
    let text = texts.find_map(|text| text.strip_prefix(path)?.strip_prefix('\n'));
    let command = command.mut_subcommands(|command| {
        let path = format!("{path} {}", command.get_name());
        with_examples(command, &path)
    });
    match text {
        Some(text) => command.after_help(text.trim_end()),
        None => command,
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Plan(plan::Args),
    /// Checks whether a host could run with a configuration, and says what to type where something is wrong.
    ///
    /// Looks at the configuration, the state folder and its disk, manifests or the cluster with this account's rights,
    /// each guest with its signature, settings and grants, each backend, the addresses to listen on, and the clock.
    /// Changes nothing, and contacts only what the configuration names. Exits 0 if nothing failed, 1 if something did,
    /// 2 if the configuration can't be used.
    Check(ConfigArg),
    Init(init::Args),
    Approve(operate::Approve),
    Test(test::Args),
    Replay(replay::Args),
    Explain(explain::Args),
    Reconcile(operate::Reconcile),
    /// Reads recordings.
    #[command(subcommand)]
    Journal(journal::Command),
    /// Shows guests, swaps and rolls them back, compares, locks and verifies them.
    #[command(subcommand)]
    Guest(guest::Command),
    /// Shows pod addresses.
    #[command(subcommand)]
    Ipam(ipam::Command),
    /// Manages network endpoint groups.
    #[command(subcommand)]
    Neg(Neg),
    /// Inspects and copies what guests have stored, and restores earlier checkpoints.
    #[command(subcommand)]
    Checkpoint(checkpoint::Command),
    /// Shows what the host refused to guests and how it reacted, and checks that the log is unchanged.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Works out which grants a guest needs.
    #[command(subcommand)]
    Grants(journal::Grants),
    Status(status::Args),
    Top(top::Args),
    /// Starts simulated servers, for trying and testing.
    #[command(subcommand)]
    Sim(sim::Command),
    Completions(completions::Args),
    Man(completions::Man),
    /// Shows which build this is: version, commit, target, wasmtime, and the worlds with the guests that ship with it.
    Version,
}

#[derive(Debug, Subcommand)]
enum Neg {
    ErrorState(operate::ErrorState),
}

/// The value of a flag: one of a few words, each with its help.
fn one_of<T, const N: usize>(words: [(&'static str, &'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let shown = words.map(|(word, help, _)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(shown).try_map(move |given| {
        let found = words.iter().find(|(word, ..)| *word == given);
        found.map(|(.., value)| *value).ok_or("is not one of the words")
    })
}

/// Where log lines of replayed or tested guests go.
fn guest_log(shown: bool) -> Arc<dyn Log> {
    if shown { Arc::new(TracingLog) } else { Arc::new(NoLog) }
}

/// Runs the command.
pub(crate) fn exec(cli: Cli) -> Ending {
    colour::choose(cli.color);
    crate::output::fit(cli.output);
    if let Some(filter) = cli.log_filter() {
        telemetry::start_plain(filter, cli.verbosity).map_err(|error| misused(anyhow!(error)))?;
    }
    let output = cli.output;
    match cli.command {
        Command::Run(args) => run::exec(args, output, cli.verbosity),
        Command::Plan(args) => plan::exec(args, output),
        Command::Check(args) => check::exec(&args, output),
        Command::Init(args) => init::exec(&args, output),
        Command::Approve(args) => operate::approve(args, output),
        Command::Test(args) => test::exec(&args, output),
        Command::Replay(args) => replay::exec(args, output),
        Command::Explain(args) => explain::exec(args, output),
        Command::Reconcile(args) => operate::reconcile(&args, output),
        Command::Journal(command) => journal::exec(command, output),
        Command::Guest(command) => guest::exec(&command, output),
        Command::Ipam(command) => ipam::exec(command, output),
        Command::Neg(Neg::ErrorState(args)) => operate::error_state(args, output),
        Command::Checkpoint(command) => checkpoint::exec(command, output),
        Command::Audit(command) => audit::exec(command, output),
        Command::Grants(command) => journal::grants(&command, output),
        Command::Status(args) => status::exec(&args, output),
        Command::Top(args) => top::exec(&args),
        Command::Sim(command) => sim::exec(command),
        Command::Completions(args) => completions::exec(args),
        Command::Man(args) => completions::man(&args),
        Command::Version => version::exec(output),
    }
}

/// The built-in guests, by name and version.
fn registry() -> Registry {
    let builtin = |guest: &trueup_guests_builtin::Builtin| Builtin {
        name: guest.name,
        version: guest.version,
        world: guest.world,
        bytes: guest.bytes,
    };
    Registry::new(trueup_guests_builtin::GUESTS.iter().map(builtin).collect())
}

/// Loads guests, from the built-in ones and from files. Caches compiled code in the user's cache folder.
fn loader() -> anyhow::Result<Loader> {
    let options = EngineOptions {
        cache_dir: users_cache(),
        ..EngineOptions::default()
    };
    Ok(Loader {
        engine: Engine::new(&options)?,
        registry: registry(),
        worlds: worlds(),
    })
}

/// The same for a configuration: with its lock and its store.
fn loader_of(config: &Config) -> anyhow::Result<Loader> {
    let registry = registry().at(&config.file, Store::at(&config.state_dir));
    Ok(Loader { registry, ..loader()? })
}

/// Resolves when the operator or the system asks the program to end. Counts signals from this call on, however late the
/// caller polls it. Must be called in a tokio runtime.
fn listen_for_stop() -> impl Future<Output = ()> {
    let mut terminate = listen(SignalKind::terminate(), "SIGTERM");
    let mut interrupt = listen(SignalKind::interrupt(), "Ctrl-C");
    async move {
        tokio::select! {
            Some(()) = async { terminate.as_mut()?.recv().await } => {}
            Some(()) = async { interrupt.as_mut()?.recv().await } => {}
            else => std::future::pending().await,
        }
    }
}

/// `None`, and a warning, if the system refuses.
fn listen(kind: SignalKind, name: &str) -> Option<Signal> {
    let listening = signal(kind).inspect_err(|error| tracing::warn!("listening for {name}: {error}"));
    listening.ok()
}

/// Runs a future to its end on a runtime with a thread for each core.
fn block_on<F: Future>(future: F) -> anyhow::Result<F::Output> {
    let threads = tokio::runtime::Runtime::new().context("starting threads")?;
    Ok(threads.block_on(future))
}
