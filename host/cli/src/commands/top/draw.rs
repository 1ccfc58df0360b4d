//! Draws `trueup top`: a head of some lines, the guests, the keys, and a line with the available keys. Fits 80 columns
//! and 24 lines; cuts the rest on the right.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, LineGauge, Paragraph, Row, Table, TableState, Wrap};
use trueup_base::text::{counted, passed};
use trueup_work::status::{KeyShown, KeyState, Status};

use super::app::{App, View};
use crate::commands::status::{bytes, in_queue, negs_of, next_try, process, since, what, without_problems};
use crate::output::{self, or_dash, printable};

/// How many guests get a line: two worlds run.
const GUESTS_MAX: usize = 4;

/// The least width of the key column.
const KEY_WIDTH_MIN: usize = 24;

/// The width of the other columns with their gaps, and some words of the error.
const OTHERS_WIDTH: u16 = 70;

const HELP: &str = "
q            ends
arrows, j k  move by one; PgUp and PgDn by a page; Home and End to the ends
/            filters by name, state or error; Enter keeps it, Esc takes it away
s            sorts by state, last change, or name
Enter        shows the marked key: its last error, what it came to; again: back
?            this; any key: back

Decisions are works on a key that ended; changes are objects of the source that
changed; effect is the time from a change until its key was true, on average of
the last second. Of a guest, r is the revision; a candidate in shadow stands last,
with how many of its calls were the same.";

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let guests = app.data.status.guests.len().min(GUESTS_MAX);
    let guest_lines = u16::try_from(guests).unwrap_or_default();
    let [head, bar, of_guests, body, foot] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(1),
        Constraint::Length(guest_lines),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(app)), head);
    share_that_is_true(frame, app, bar);
    frame.render_widget(Paragraph::new(guest_lines_of(app)), of_guests);
    match app.view {
        View::Keys => keys(frame, app, body),
        View::Details => {
            let gone = || vec![Line::default(), Line::from("This key is known no more.")];
            let lines = |key: &KeyShown| detail_lines(key, &app.data.status);
            let lines = app.marked().map_or_else(gone, lines);
            frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), body);
        }
        View::Help => frame.render_widget(Paragraph::new(HELP), body),
    }
    frame.render_widget(Paragraph::new(foot_line(app)), foot);
}

fn head_lines(app: &App) -> Vec<Line<'static>> {
    let status = &app.data.status;
    let host = &status.host;
    let mut first = format!("{}, {}", process(host), bytes(status.memory.resident_bytes));
    first += if host.stopping { ", stopping" } else { "" };
    let well = match (&app.away, status.problems.as_slice()) {
        (Some(why), _) => Line::styled(printable(why), Color::Red),
        (None, []) => Line::styled(without_problems(status), Color::Green),
        (None, problems) => Line::styled(printable(&problems.join("; ")), Color::Red),
    };
    let queue = status.queue.unwrap_or_default();
    let oldest = passed(queue.oldest_waiting_ms);
    let rates = app.rates;
    let decisions = rates.decisions;
    let changes = rates.changes;
    let calls = rates.calls;
    let events = format!("{decisions:.1} decisions/s, {changes:.1} changes/s, {calls:.1} calls/s");
    let effect = or_dash(rates.effect.map(|seconds| format!("{seconds:.2} s")));
    vec![
        Line::styled(first, Style::new().add_modifier(Modifier::BOLD)),
        well,
        Line::from(format!("queue   {}, oldest {oldest}", in_queue(&queue))),
        Line::from(format!("rates   {events}, effect {effect}")),
    ]
}

/// The share of objects that are in sync.
fn share_that_is_true(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let keys = &app.data.status.keys;
    let of = |state| keys.get(&state).copied().unwrap_or_default();
    let all = keys.values().sum::<usize>() - of(KeyState::Gone);
    let good = of(KeyState::True);
    let failed = of(KeyState::Failed);
    let set_aside = of(KeyState::SetAside);
    let ratio = if all == 0 { 1.0 } else { good as f64 / all as f64 };
    let gauge = LineGauge::default()
        .ratio(ratio.clamp(0.0, 1.0))
        .label(format!("{good} of {all} true, {failed} failed, {set_aside} set aside"))
        .filled_symbol("█")
        .unfilled_symbol("░")
        .filled_style(Color::Green)
        .unfilled_style(Color::DarkGray);
    frame.render_widget(gauge, area);
}

fn guest_lines_of(app: &App) -> Vec<Line<'static>> {
    let guests = app.data.status.guests.iter().take(GUESTS_MAX);
    let lines = guests.map(|guest| {
        let revision = or_dash(guest.revision);
        let memory = bytes(guest.memory_bytes);
        let mut text = format!("{:<6} {}@{} r{revision}  ", guest.guest, guest.name, guest.version);
        text += &format!("{} working, {} resting  ", guest.working, guest.resting);
        text += &format!("{} calls, {} failed  {memory}", guest.calls, guest.failures);
        if let Some(shadow) = &guest.shadow {
            text += &format!("  {} {}/{}", shadow.candidate, shadow.same, shadow.compared);
        }
        Line::from(text)
    });
    lines.collect()
}

fn keys(frame: &mut Frame<'_>, app: &mut App, area: Rect) {
    app.page = usize::from(area.height.saturating_sub(2)).max(1);
    let now_ms = app.data.status.host.now_ms;
    let shown = app.keys();
    let longest = shown.iter().map(|key| key.key.chars().count()).max();
    let room = usize::from(area.width.saturating_sub(OTHERS_WIDTH)).max(KEY_WIDTH_MIN);
    let key_width = longest.unwrap_or_default().clamp(KEY_WIDTH_MIN, room);
    let rows = shown.iter().map(|key| {
        Row::new([
            Cell::new(cut(&printable(&key.key), key_width)),
            Cell::new(Span::styled(key.state.name().replace('-', " "), colour(key.state))),
            Cell::new(since(key.since_ms, now_ms)),
            Cell::new(or_dash(key.next_try_in_ms.map(|ms| format!("in {}", passed(ms))))),
            Cell::new(what(key, &app.data.status)),
        ])
    });
    let widths = [
        Constraint::Length(u16::try_from(key_width).unwrap_or(u16::MAX)),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Fill(1),
    ];
    let head = Row::new(["KEY", "STATE", "SINCE", "NEXT TRY", "WHAT"]);
    let table = Table::new(rows, widths)
        .header(head.style(Style::new().add_modifier(Modifier::BOLD)).top_margin(1))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(app.position());
    frame.render_stateful_widget(table, area, &mut state);
}

/// Cuts in the middle: names in a cluster differ at their ends.
fn cut(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let head = width.saturating_sub(1) / 3;
    let tail = width.saturating_sub(1 + head);
    let mut shown: String = text.chars().take(head).collect();
    shown.push('…');
    shown.extend(text.chars().skip(count - tail));
    shown
}

fn detail_lines(key: &KeyShown, status: &Status) -> Vec<Line<'static>> {
    let created = key.created;
    let destroyed = key.destroyed;
    let mut lines = vec![
        Line::default(),
        Line::styled(printable(&key.key), Style::new().add_modifier(Modifier::BOLD)),
        Line::from(vec![
            Span::raw("state     "),
            Span::styled(key.state.name().replace('-', " "), colour(key.state)),
            Span::raw(format!(", {}", since(key.since_ms, status.host.now_ms))),
        ]),
        Line::from(format!("guest     {}", printable(&key.guest))),
        Line::from(format!("next try  {}", next_try(key))),
        Line::from(format!("failures  {} in a row", key.failures)),
        Line::from(format!("error     {}", printable(key.error.as_deref().unwrap_or("-")))),
        Line::from(format!("objects   {created} created, {destroyed} destroyed")),
        Line::from(format!("serves    {}", printable(&key.in_service.join(", ")))),
    ];
    lines.extend(negs_of(key, status).into_iter().map(Line::from));
    let decisions = counted(key.decisions, "decision", "decisions");
    lines.extend([Line::default(), Line::from(format!("{decisions}; the last:"))]);
    lines.extend(key.recent.iter().map(|recent| {
        let at = output::time(recent.at_ms);
        let outcome = recent.outcome.name();
        let took = passed(u64::from(recent.took_ms));
        let effects = format!("{} created, {} destroyed", recent.created, recent.destroyed);
        Line::from(format!("{at}  {outcome:<11} took {took:<8} {effects}"))
    }));
    lines
}

fn foot_line(app: &App) -> Line<'static> {
    if app.typing {
        return Line::from(format!("/{}_  Enter: keep, Esc: all", printable(&app.filter)));
    }
    let mut text = format!("by {}  q end  / filter  s sort  Enter details  ? help", app.sort.name());
    if !app.filter.is_empty() {
        text = format!("/{}  {text}", printable(&app.filter));
    }
    if app.data.has_more {
        text = format!("first {} keys  {text}", app.data.keys.len());
    }
    Line::styled(text, Color::DarkGray)
}

fn colour(state: KeyState) -> Color {
    match state {
        KeyState::Failed | KeyState::SetAside => Color::Red,
        KeyState::Held => Color::Magenta,
        KeyState::Running | KeyState::Queued => Color::Yellow,
        KeyState::True => Color::Green,
        KeyState::Gone => Color::DarkGray,
    }
}
