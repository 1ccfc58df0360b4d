//! The screen as text, compared with golden files (`BLESS=1` rewrites them), and the effects of key presses.

use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::app::{App, Data, Sort, View};
use super::draw::draw;

/// 80 x 24 is the smallest supported terminal.
const SIZE: (u16, u16) = (80, 24);

fn key(name: &str, state: &str, since_ms: u64, error: Option<&str>, next: Option<u64>) -> serde_json::Value {
    let serving = if state == "true" {
        json!(["203.0.113.10:80"])
    } else {
        json!([])
    };
    json!({
        "guest": "lbaas", "key": name, "state": state, "since_ms": since_ms, "error": error, "failures": u32::from(error.is_some()) * 3,
        "next_try_in_ms": next, "created": 14, "destroyed": 0, "in_service": serving, "decisions": 4,
        "recent": [
            { "at_ms": since_ms, "took_ms": 250, "outcome": if error.is_some() { "failed" } else { "true" }, "created": 0, "destroyed": 0 },
            { "at_ms": since_ms - 1000, "took_ms": 1250, "outcome": "true", "created": 14, "destroyed": 0 },
        ],
    })
}

fn data(now_ms: u64, decisions: u64) -> Data {
    let keys = vec![
        key("apps/api", "true", 1_790_000_040_000, None, None),
        key(
            "default/broken",
            "failed",
            1_790_000_055_000,
            Some("the Engine is not available: connection refused"),
            Some(4_200),
        ),
        key(
            "default/loops",
            "set-aside",
            1_790_000_050_000,
            Some("guest `lbaas@1` used more than 10000 ms in `reconcile`"),
            None,
        ),
        key("default/web", "true", 1_790_000_045_000, None, None),
        key("kube-system/dns", "running", 1_790_000_059_000, None, None),
    ];
    let status = json!({
        "host": {
            "version": "0.1.0", "pid": 4711, "identity": "", "config": "/etc/trueup/trueup.toml", "state_dir": "/var/lib/trueup",
            "started_ms": 1_790_000_000_000_u64, "now_ms": now_ms, "standing": "alone", "leader": null, "stopping": false,
            "admin": [],
        },
        "source": {
            "kind": "manifests", "synced": true, "complete": true, "objects": { "Node": 2, "Service": 5 }, "changes": decisions * 2,
            "changed_ms": 1_790_000_058_000_u64, "problems": [], "problem_count": 0, "more": null,
        },
        "queue": { "ready": 0, "delayed": 1, "running": 1, "sleeping": 1, "oldest_waiting_ms": 0 },
        "keys": { "failed": 1, "set-aside": 1, "held": 0, "running": 1, "queued": 0, "true": 2, "gone": 7 },
        "in_trouble": [], "in_trouble_count": 2,
        "total": {
            "decisions": decisions, "effects": { "created": 42, "destroyed": 3 },
            "took": { "count": decisions, "seconds": 9.5 },
            "change_to_effect": { "count": decisions, "seconds": 0.25 * decisions as f64 },
        },
        "guests": [{
            "guest": "lbaas", "name": "lbaas", "version": "1", "digest": "sha256:4012", "revision": 3, "working": 1, "resting": 4,
            "calls": decisions * 2, "failures": 3, "memory_bytes": 5_767_168, "quarantined": 1,
            "shadow": { "candidate": "lbaas@2", "compared": 10, "same": 9 },
        }],
        "pods": null,
        "memory": { "resident_bytes": 88_080_384, "peak_bytes": 98_080_384, "guests_bytes": 5_767_168 },
        "problems": ["1 key failed", "1 key is set aside"],
    });
    Data {
        status: serde_json::from_value(status).unwrap(),
        keys: serde_json::from_value(json!(keys)).unwrap(),
        has_more: false,
    }
}

fn app() -> App {
    let mut app = App::new(data(1_790_000_059_000, 100));
    app.answered(Ok(data(1_790_000_060_000, 112)));
    app
}

fn screen(app: &mut App) -> String {
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let mut text = String::new();
    for line in buffer.content.chunks(usize::from(SIZE.0)) {
        let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[track_caller]
fn golden(name: &str, said: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/commands/top/golden")
        .join(format!("{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, said).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(said, expected, "{} is otherwise; BLESS=1 rewrites it", file.display());
}

#[test]
fn the_first_screen_shows_what_is_in_trouble_first() {
    golden("keys", &screen(&mut app()));
}

#[test]
fn enter_shows_the_marked_key_and_enter_again_all() {
    let mut app = app();
    assert!(!app.pressed(KeyCode::Enter.into()));
    golden("details", &screen(&mut app));
    assert!(!app.pressed(KeyCode::Enter.into()));
    assert_eq!(app.view, View::Keys);
}

#[test]
fn help_fits_the_screen() {
    let mut app = app();
    app.pressed(KeyCode::Char('?').into());
    golden("help", &screen(&mut app));
    app.pressed(KeyCode::Char('x').into());
    assert_eq!(app.view, View::Keys);
}

#[test]
fn a_filter_looks_at_names_states_and_errors() {
    let names = |app: &App| -> Vec<String> { app.keys().iter().map(|key| key.key.clone()).collect() };
    let mut app = app();
    app.pressed(KeyCode::Char('/').into());
    for c in "REFUSED".chars() {
        app.pressed(KeyCode::Char(c).into());
    }
    assert_eq!(names(&app), ["default/broken"]);
    // While the user types the filter, a letter is a letter.
    app.pressed(KeyCode::Backspace.into());
    assert!(!app.pressed(KeyCode::Char('q').into()));
    assert_eq!((names(&app).len(), app.filter.as_str()), (0, "REFUSEq"));
    app.pressed(KeyCode::Esc.into());
    assert_eq!((names(&app).len(), app.typing), (5, false));
    for c in "/set-a".chars() {
        app.pressed(KeyCode::Char(c).into());
    }
    app.pressed(KeyCode::Enter.into());
    assert_eq!(
        (names(&app), app.marked.1.as_str()),
        (vec!["default/loops".to_owned()], "default/loops")
    );
    golden("filtered", &screen(&mut app));
}

#[test]
fn the_mark_stays_on_its_key_whatever_the_order() {
    let mut app = app();
    assert_eq!(app.marked.1, "default/broken");
    app.pressed(KeyCode::Down.into());
    assert_eq!(app.marked.1, "default/loops");
    app.pressed(KeyCode::Char('s').into());
    app.pressed(KeyCode::Char('s').into());
    assert_eq!(
        (app.sort, app.marked.1.as_str(), app.position()),
        (Sort::Name, "default/loops", Some(2))
    );
    app.pressed(KeyCode::End.into());
    assert_eq!(app.marked.1, "kube-system/dns");
    app.pressed(KeyCode::Home.into());
    assert_eq!(app.marked.1, "apps/api");
    let mut less = data(1_790_000_061_000, 112);
    less.keys.remove(0);
    app.answered(Ok(less));
    assert_eq!(app.marked.1, "default/broken", "the marked key is gone");
}

#[test]
fn rates_are_of_the_time_between_two_answers() {
    let mut app = app();
    let rates = app.rates;
    assert!(
        (rates.decisions - 12.0).abs() < 1e-9 && (rates.changes - 24.0).abs() < 1e-9,
        "{rates:?}"
    );
    assert!((rates.effect.unwrap() - 0.25).abs() < 1e-9, "{rates:?}");
    let mut other = data(1_790_000_070_000, 1);
    other.status.host.started_ms += 5;
    app.answered(Ok(other));
    assert!(app.rates.decisions.abs() < 1e-9, "another process has no rate yet");
}

#[test]
fn a_host_that_does_not_answer_leaves_what_it_said_last() {
    let mut app = app();
    app.answered(Err("no host answers".to_owned()));
    let shown = screen(&mut app);
    assert!(
        shown.contains("no host answers") && shown.contains("default/web"),
        "{shown}"
    );
    app.answered(Ok(data(1_790_000_062_000, 112)));
    assert!(!screen(&mut app).contains("no host answers"));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(app.pressed(KeyCode::Char('q').into()) && app.pressed(control_c));
}

#[test]
fn long_names_get_the_room_that_there_is_and_their_ends_stay() {
    let mut app = app();
    let name = format!("a-namespace-of-some-team/{}-00042", "service".repeat(8));
    app.data.keys[0].key.clone_from(&name);
    app.pressed(KeyCode::Char('s').into());
    assert!(!screen(&mut app).contains(&name));
    assert!(screen(&mut app).contains("-00042"), "{}", screen(&mut app));
}
