//! `trueup top`: `trueup status`, live in a terminal.
//!
//! A task asks the host every second; this thread waits for keys, and draws the last answer. `app.rs` decides what is
//! shown and what a key does; `draw.rs` draws it. Neither knows of a host, and `app.rs` knows only the keys of a
//! terminal.

mod app;
mod draw;
#[cfg(test)]
mod tests;

use std::io::IsTerminal as _;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::style::force_color_output;
use tokio::runtime::Builder;
use trueup_runtime::control::Client;
use trueup_work::status::{KeysShown, Status};

use self::app::{App, Data};
use super::guest::host::Host;
use crate::colour;
use crate::exit::{Ending, Exit, Failure, misused};

/// How often to ask the host.
const EVERY: Duration = Duration::from_secs(1);

/// How soon the loop notices a key press, an answer or a signal.
const NOTICED: Duration = Duration::from_millis(100);

/// Shows the state of the running host, live: what it works on, and each key with its outcome.
///
/// Keys: q ends; arrows and PgUp, PgDn move; / filters; s sorts; Enter shows one key; ? helps. Needs a terminal.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    host: Host,
}

pub(super) fn exec(args: &Args) -> Ending {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let instead = "use `trueup status`, or `trueup status --output json`";
        let why = format!("`trueup top` draws on a terminal, and there is none; {instead}");
        return Err(misused(anyhow!(why)));
    }
    let client = args.host.client()?;
    let tasks = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let tasks = tasks.context("starting threads")?;
    // If nothing answers at all, print that as a line, without a screen.
    let first = tasks.block_on(ask(&client))?;
    let (answers, answered) = mpsc::channel();
    tasks.spawn(async move {
        let asking = async {
            loop {
                tokio::time::sleep(EVERY).await;
                // When it ends, the display does not wait for an answer.
                let _ = answers.send(ask(&client).await.map_err(|failure| format!("{:#}", failure.error)));
            }
        };
        // The display ends when the sender is gone.
        tokio::select! {
            () = super::listen_for_stop() => {}
            () = asking => {}
        }
    });
    force_color_output(colour::is_on(&std::io::stdout()));
    // From here on, a panic restores the terminal before it prints.
    let mut terminal = ratatui::try_init().context("taking the terminal")?;
    let ended = show(&mut terminal, App::new(first), &answered);
    ratatui::try_restore().context("giving the terminal back")?;
    tasks.shutdown_background();
    ended?;
    Ok(Exit::Done)
}

async fn ask(client: &Client) -> Result<Data, Failure> {
    let status: Status = client.get("status").await?;
    let keys: KeysShown = client.get("keys?limit=10000").await?;
    Ok(Data {
        status,
        has_more: keys.next.is_some(),
        keys: keys.keys,
    })
}

fn show(terminal: &mut DefaultTerminal, mut app: App, answered: &Receiver<Result<Data, String>>) -> anyhow::Result<()> {
    let mut has_news = true;
    loop {
        match answered.try_recv() {
            Ok(answer) => {
                app.answered(answer);
                has_news = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        if has_news {
            let drawn = terminal.draw(|frame| draw::draw(frame, &mut app));
            drawn.context("drawing on the terminal")?;
            has_news = false;
        }
        if !event::poll(NOTICED).context("reading the terminal")? {
            continue;
        }
        has_news = true;
        if let Event::Key(key) = event::read().context("reading the terminal")?
            && app.pressed(key)
        {
            return Ok(());
        }
    }
}
