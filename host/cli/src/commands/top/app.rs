//! What `trueup top` shows, and what a key press does to it.

use std::cmp::Reverse;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use trueup_work::status::{KeyShown, Status};

/// What the host answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Data {
    pub(super) status: Status,
    /// Sorted by name.
    pub(super) keys: Vec<KeyShown>,
    /// True if there are keys beyond these.
    pub(super) has_more: bool,
}

/// The view that is on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Keys,
    /// The details of one key.
    Details,
    Help,
}

/// The order of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Keys in trouble first, then by the last change, the newest first.
    State,
    /// By the last change, the newest first.
    Change,
    /// By name.
    Name,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Change => "last change",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::State => Self::Change,
            Self::Change => Self::Name,
            Self::Name => Self::State,
        }
    }
}

/// Rates per second between the last two answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) decisions: f64,
    pub(super) changes: f64,
    pub(super) calls: f64,
    /// Seconds from a change to its effect, on average; `None` if nothing took effect.
    pub(super) effect: Option<f64>,
}

/// The state of the display.
pub(super) struct App {
    pub(super) data: Data,
    pub(super) rates: Rates,
    /// Why the last answer is missing; `None` if it came.
    pub(super) away: Option<String>,
    pub(super) view: View,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// True while the user types the filter.
    pub(super) typing: bool,
    /// The guest and the name of the marked key. The mark follows the key when it moves.
    pub(super) marked: (String, String),
    /// How many keys the last drawing showed.
    pub(super) page: usize,
}

impl App {
    pub(super) fn new(data: Data) -> Self {
        let mut app = Self {
            data,
            rates: Rates::default(),
            away: None,
            view: View::Keys,
            sort: Sort::State,
            filter: String::new(),
            typing: false,
            marked: Default::default(),
            page: 1,
        };
        app.mark(0);
        app
    }

    /// Takes the host's answer. Without one, the last answer stays.
    pub(super) fn answered(&mut self, answer: Result<Data, String>) {
        match answer {
            Ok(data) => {
                self.rates = rates(&self.data.status, &data.status);
                self.data = data;
                self.away = None;
                if self.position().is_none() {
                    self.mark(0);
                }
            }
            Err(why) => self.away = Some(why),
        }
    }

    /// The keys that pass the filter, in order.
    pub(super) fn keys(&self) -> Vec<&KeyShown> {
        let wanted = self.filter.to_lowercase();
        let matches = |key: &&KeyShown| {
            let texts = [&key.key, key.state.name(), key.error.as_deref().unwrap_or_default()];
            texts.iter().any(|text| text.to_lowercase().contains(&wanted))
        };
        let mut keys: Vec<&KeyShown> = self.data.keys.iter().filter(matches).collect();
        match self.sort {
            Sort::State => keys.sort_by_key(|key| (key.state, Reverse(key.since_ms))),
            Sort::Change => keys.sort_by_key(|key| Reverse(key.since_ms)),
            Sort::Name => {}
        }
        keys
    }

    /// The position of the marked key among these.
    pub(super) fn position(&self) -> Option<usize> {
        self.keys().iter().position(|key| self.is_marked(key))
    }

    /// The marked key, even if the filter hides it.
    pub(super) fn marked(&self) -> Option<&KeyShown> {
        self.data.keys.iter().find(|key| self.is_marked(key))
    }

    fn is_marked(&self, key: &KeyShown) -> bool {
        (&key.guest, &key.key) == (&self.marked.0, &self.marked.1)
    }

    fn mark(&mut self, position: usize) {
        let keys = self.keys();
        let last = keys.len().saturating_sub(1);
        if let Some(key) = keys.get(position.min(last)) {
            self.marked = (key.guest.clone(), key.key.clone());
        }
    }

    fn up(&mut self, by: usize) {
        self.mark(self.position().unwrap_or_default().saturating_sub(by));
    }

    fn down(&mut self, by: usize) {
        self.mark(self.position().unwrap_or_default().saturating_add(by));
    }

    /// True if the key ends the program.
    pub(super) fn pressed(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match (self.view, key.code) {
            _ if key.kind == KeyEventKind::Release => {}
            (_, KeyCode::Char('c')) if is_control => return true,
            (_, code) if self.typing => self.typed(code),
            (_, KeyCode::Char('q')) => return true,
            (View::Help, _) => self.view = View::Keys,
            (_, KeyCode::Char('?')) => self.view = View::Help,
            (View::Keys, KeyCode::Char('/')) => self.typing = true,
            (View::Keys, KeyCode::Char('s')) => self.sort = self.sort.next(),
            (View::Keys, KeyCode::Enter) if self.marked().is_some() => self.view = View::Details,
            (View::Details, KeyCode::Enter | KeyCode::Esc) => self.view = View::Keys,
            (View::Keys, KeyCode::Esc) => self.filter.clear(),
            (_, KeyCode::Up | KeyCode::Char('k')) => self.up(1),
            (_, KeyCode::Down | KeyCode::Char('j')) => self.down(1),
            (_, KeyCode::PageUp) => self.up(self.page),
            (_, KeyCode::PageDown) => self.down(self.page),
            (_, KeyCode::Home) => self.up(usize::MAX),
            (_, KeyCode::End) => self.down(usize::MAX),
            _ => {}
        }
        false
    }

    fn typed(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(c) => self.filter.push(c),
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            _ => {}
        }
        if self.position().is_none() {
            self.mark(0);
        }
    }
}

/// Between two answers, by the host's clock. Zero if another process answered.
fn rates(before: &Status, now: &Status) -> Rates {
    let passed_ms = now.host.now_ms.saturating_sub(before.host.now_ms);
    if passed_ms == 0 || now.host.started_ms != before.host.started_ms {
        return Rates::default();
    }
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 * 1000.0 / passed_ms as f64;
    let changes = |status: &Status| status.source.as_ref().map_or(0, |source| source.changes);
    let calls = |status: &Status| status.guests.iter().map(|guest| guest.calls).sum();
    let (first, last) = (before.total.change_to_effect, now.total.change_to_effect);
    let effects = last.count.saturating_sub(first.count);
    Rates {
        decisions: rate(before.total.decisions, now.total.decisions),
        changes: rate(changes(before), changes(now)),
        calls: rate(calls(before), calls(now)),
        effect: (effects > 0).then(|| (last.seconds - first.seconds) / effects as f64),
    }
}
