//! The page for recordings: its HTTP interface, and its behaviour in a real browser, headless Chromium.
//!
//! Tests beside the code, in `host/runtime/src/page/`, cover the results of an index or a difference.
mod browser;
mod looks;
mod recorded;
mod served;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use recorded::{RECORDED, multiplied, of_calls, write};
use served::Served;
use support::{Site, trueup};

/// Recordings in a folder, and their server.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Serves the one recording `a.jsonl`.
    fn serve(&self) -> Served {
        Served::start(&[self.path("a.jsonl").as_os_str()])
    }

    /// Serves it beside another guest.
    fn against(&self, guest: &str) -> Served {
        Served::start(&[self.path("a.jsonl").as_os_str(), "--against".as_ref(), guest.as_ref()])
    }

    /// The guest diverges from this recording where the arguments of a question are edited.
    fn serve_a_difference(&self) -> Served {
        let file = self.path("a.jsonl");
        write(&RECORDED, &file);
        let text = fs::read_to_string(&file).unwrap();
        let edited = text.replacen(
            "\"ask\":\"api.list-tagged\",\"args\":{\"tag\":\"",
            "\"ask\":\"api.list-tagged\",\"args\":{\"tag\":\"x",
            1,
        );
        assert_ne!(text, edited);
        fs::write(&file, edited).unwrap();
        self.against("lbaas@1")
    }
}

fn rows(answer: &Value) -> &Vec<Value> {
    answer["rows"].as_array().unwrap()
}

#[test]
fn only_this_machine_may_ask_and_only_look() {
    let desk = Desk::new();
    write(&RECORDED, &desk.path("a.jsonl"));
    let served = desk.serve();
    for host in [served.address(), "localhost", "[::1]:1"] {
        assert_eq!(served.request("GET /", host).status, 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:80",
        "192.0.2.1",
        "127.0.0.1.evil.example",
        "",
    ] {
        for path in ["/", "/api/recordings", "/page.js"] {
            let refused = served.request(&format!("GET {path}"), host);
            assert_eq!((refused.status, refused.body.lines().count()), (403, 1), "{refused:?}");
            assert!(!refused.body.contains("a.jsonl"), "{refused:?}");
        }
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let refused = served.request(&format!("{method} /api/recordings"), served.address());
        assert_eq!(refused.status, 405, "{refused:?}");
    }
    let page = served.get("/");
    let policy = page
        .head
        .lines()
        .find(|line| line.starts_with("content-security-policy:"))
        .unwrap();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("script-src 'self'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(!page.body.contains("<style") && !page.body.contains("onclick") && !page.body.contains("http://"));
    for listen in ["0.0.0.0:0", "192.0.2.1:9480", "[::]:0"] {
        let file = desk.path("a.jsonl");
        let refused = trueup(["journal", "serve", file.to_str().unwrap(), "--listen", listen]).exits(2);
        assert_eq!(
            (refused.stdout.as_str(), refused.stderr.lines().count()),
            ("", 1),
            "{refused}"
        );
        assert!(refused.stderr.contains("for this machine alone"), "{refused}");
    }
    trueup(["journal", "serve", "nowhere.jsonl"]).exits(2);
}

#[test]
fn nothing_that_is_asked_for_is_a_path() {
    let desk = Desk::new();
    write(&RECORDED, &desk.path("a.jsonl"));
    fs::write(desk.path("secret"), "hidden").unwrap();
    let served = desk.serve();
    for path in [
        "/../secret",
        "/%2e%2e/secret",
        "/assets/../secret",
        "/api/rows?r=../secret",
        "/api/rows?r=secret",
        "/api/decision?r=..%2Fsecret&n=1",
        "//etc/passwd",
    ] {
        let refused = served.get(path);
        assert!(matches!(refused.status, 400 | 404), "{path}: {refused:?}");
        assert!(
            !refused.body.contains("hidden") && !refused.body.contains("root:"),
            "{refused:?}"
        );
    }
}

#[test]
fn a_state_folder_shows_all_of_its_recordings() {
    let site = Site::quickstart();
    site.run_once().exits(0);
    let served = Served::start(&[site.state_dir().as_os_str()]);
    let found = served.ask("recordings");
    let ids: Vec<&str> = found["recordings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids,
        [
            "ipam/ipam",
            "lbaas/default/api",
            "lbaas/default/web",
            "lbaas/kube-system/dns"
        ]
    );
    let calls = served.ask(&format!("rows?r={}&count=100", ids[1]));
    assert!(!rows(&calls).is_empty());
    assert_eq!(calls["progress"]["segments"][0]["guest"], "lbaas");
}

#[test]
fn a_decision_is_shown_as_it_was_recorded() {
    let desk = Desk::new();
    write(&RECORDED, &desk.path("a.jsonl"));
    let served = desk.serve();
    let listed = served.ask("rows?r=a.jsonl&count=10");
    let first = &rows(&listed)[0];
    let n = first["n"].as_u64().unwrap();
    let shown = served.ask(&format!("decision?r=a.jsonl&n={n}"));
    let text = fs::read_to_string(desk.path("a.jsonl")).unwrap();
    let lines: BTreeMap<u64, Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["n"].as_u64().unwrap(), line))
        .collect();
    let json = |value: &Value| serde_json::from_str::<Value>(value["text"].as_str().unwrap()).unwrap();
    assert_eq!(json(&shown["args"]), lines[&n]["args"]);
    assert_eq!(shown["name"], lines[&n]["call"]);
    let asks = shown["asks"].as_array().unwrap();
    assert_eq!(asks.len() as u64, first["asks"].as_u64().unwrap());
    assert!(asks.len() > 3);
    for ask in asks {
        let line = &lines[&ask["n"].as_u64().unwrap()];
        assert_eq!(ask["name"], line["ask"]);
        assert_eq!(
            (json(&ask["args"]), json(&ask["answer"])),
            (line["args"].clone(), line["answer"].clone())
        );
    }
    let end = &shown["ending"];
    assert_eq!(json(&end["value"]), lines[&end["n"].as_u64().unwrap()]["result"]);
    assert_eq!(shown["header"]["digest"], lines[&0]["header"]["digest"]);
    let some = served.ask(&format!("decision?r=a.jsonl&n={n}&from=2&count=1"));
    assert_eq!(some["asks"][0]["n"], asks[2]["n"]);
    assert_eq!(some["asks"].as_array().unwrap().len(), 1);
}

#[test]
fn filters_and_positions_agree_with_what_was_recorded() {
    let desk = Desk::new();
    let made = multiplied(4000);
    write(&made, &desk.path("a.jsonl"));
    let served = desk.serve();
    let standing = served.wait_until_read("a.jsonl");
    let calls = made
        .entries
        .iter()
        .filter(|entry| matches!(entry.event, trueup_journal::Event::Call(_)))
        .count();
    assert_eq!(standing["total"], calls);
    let problems = served.ask("rows?r=a.jsonl&count=1000&outcome=problems");
    assert!(!rows(&problems).is_empty());
    assert!(rows(&problems).iter().all(|row| row["outcome"] != "ok"));
    let writes = served.ask("rows?r=a.jsonl&count=1000&writes=true");
    assert!(rows(&writes).iter().all(|row| row["writes"].as_u64() > Some(0)));
    assert!(rows(&writes).len() < calls);
    let tenth = &rows(&problems)[10];
    let place = served.ask(&format!("position?r=a.jsonl&outcome=problems&n={}", tenth["n"]));
    assert_eq!(
        (place["position"].clone(), place["n"].clone()),
        (json!(10), tenth["n"].clone())
    );
    // An entry that is gone, or was never there, is in no decision.
    for n in [0, 9_999_999] {
        assert_eq!(
            served.ask(&format!("position?r=a.jsonl&n={n}"))["n"],
            Value::Null,
            "{n}"
        );
    }
    let at = served.ask(&format!("position?r=a.jsonl&at_ms={}", tenth["at_ms"]));
    let there = served.ask(&format!("rows?r=a.jsonl&from={}&count=1", at["position"]));
    assert_eq!(rows(&there)[0]["at_ms"], tenth["at_ms"]);
    let overview = served.ask("overview?r=a.jsonl&columns=50");
    let columns = overview["columns"].as_array().unwrap();
    let sum: u64 = columns
        .iter()
        .flat_map(|one| ["ok", "error", "failed"].map(|key| one[key].as_u64().unwrap()))
        .sum();
    assert_eq!((columns.len(), sum), (50, calls as u64));
}

#[test]
fn damage_and_torn_ends_are_said_and_what_is_before_them_is_shown() {
    let desk = Desk::new();
    write(&RECORDED, &desk.path("a.jsonl"));
    let mut file = OpenOptions::new().append(true).open(desk.path("a.jsonl")).unwrap();
    file.write_all(b"{\"n\":9").unwrap();
    let standing = desk.serve().wait_until_read("a.jsonl");
    let lines = RECORDED.entries.len() + 2;
    let note = standing["notes"][0].as_str().unwrap();
    assert!(
        note.ends_with(&format!("line {lines} is torn: its 6 bytes are left out")),
        "{note}"
    );
    file.write_all(b"9,\"result\":1}\n").unwrap();
    let served = desk.serve();
    let standing = served.wait_until_read("a.jsonl");
    let note = standing["notes"][0].as_str().unwrap();
    assert!(
        note.contains(&format!("line {lines} is damaged: entry 99 is where entry")),
        "{note}"
    );
    assert!(standing["total"].as_u64() > Some(1));
    let said = trueup(["journal", "show", desk.path("a.jsonl").to_str().unwrap()]).exits(2);
    assert!(said.stderr.contains(note), "the same words: {said}");
}

#[test]
fn two_decisions_are_compared() {
    let desk = Desk::new();
    let made = of_calls(&[
        (r#"{"port":80}"#, r#"{"Ok":[]}"#, r#"{"Ok":{"created":1}}"#),
        (r#"{"port":81}"#, r#"{"Ok":["x"]}"#, r#"{"Err":"no"}"#),
    ]);
    write(&made, &desk.path("a.jsonl"));
    let found = desk.serve().ask("difference?r=a.jsonl&a=1&b=4");
    assert_eq!(
        found["args"]["fields"],
        json!([{"path": "args.port", "a": "80", "b": "81"}])
    );
    let pairs = found["asks"].as_array().unwrap();
    assert_eq!((pairs.len(), &pairs[0]["a"], &pairs[0]["b"]), (1, &json!(2), &json!(5)));
    assert_eq!(pairs[0]["fields"][0]["path"], "answer.Ok");
    assert_eq!(found["ending"]["fields"].as_array().unwrap().len(), 2);
}

#[test]
fn another_guest_is_held_against_the_recording() {
    let desk = Desk::new();
    write(&RECORDED, &desk.path("a.jsonl"));
    let same = desk.against("lbaas@1").ask("against?r=a.jsonl&n=1");
    assert_eq!(
        (&same["same"], &same["diverged_at"]),
        (&json!(true), &Value::Null),
        "{same}"
    );
    let served = desk.serve_a_difference();
    let differs = served.ask("against?r=a.jsonl&n=1");
    assert_eq!(differs["same"], false);
    let at = differs["diverged_at"].as_u64().unwrap();
    assert_eq!(
        differs["outcome"]["divergence"]["differences"][0]["path"], "args.tag",
        "{differs}"
    );
    assert!((1..10).contains(&at));
    // The whole segment compared: its first difference is a problem, although the decision ended well.
    let problems = |served: &Served| rows(&served.ask("rows?r=a.jsonl&count=100&outcome=problems")).clone();
    assert!(problems(&served).is_empty());
    assert_eq!(served.ask("against?r=a.jsonl&segment=0")["diverged_at"], at);
    let found = problems(&served);
    assert_eq!(
        (found.len(), &found[0]["n"], &found[0]["outcome"]),
        (1, &json!(1), &json!("ok"))
    );
    // The page decides a later decision independently.
    let last = rows(&served.ask("rows?r=a.jsonl&count=100")).last().unwrap()["n"]
        .as_u64()
        .unwrap();
    let alone = served.ask(&format!("against?r=a.jsonl&n={last}"));
    assert_eq!(
        (&alone["same"], &alone["alone_since"]),
        (&json!(true), &json!(at)),
        "{alone}"
    );
    let file = desk.path("a.jsonl");
    trueup(["journal", "serve", file.to_str().unwrap(), "--against", "nobody@9"]).exits(2);
}

#[test]
fn the_address_is_the_one_line_said() {
    let desk = Desk::new();
    write(&RECORDED, &desk.path("a.jsonl"));
    let mut child = support::program()
        .args(["journal", "serve", "--output", "json"])
        .arg(desk.path("a.jsonl"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let url: Value = serde_json::from_str(&line).unwrap();
    assert!(url["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{line}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut more = String::new();
    std::io::Read::read_to_string(&mut said, &mut more).unwrap();
    assert_eq!(more, "");
}

/// Contrast by WCAG 2.2, 1.4.3: text of this size needs 4.5, signs need 3.
#[test]
fn colours_can_be_told_apart_in_light_and_dark() {
    let css = include_str!("../../host/runtime/src/page/assets/page.css");
    let palettes = [(":root {", "light"), (":root[data-theme=\"dark\"] {", "dark")];
    for (head, name) in palettes {
        let block = css.split_once(head).unwrap().1.split_once('}').unwrap().0;
        let colours: BTreeMap<&str, &str> = block
            .split(';')
            .filter_map(|one| one.split_once(':'))
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|(_, value)| value.starts_with('#'))
            .collect();
        let ratio = |a: &str, b: &str| {
            let (a, b) = (luminance(colours[a]), luminance(colours[b]));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        let texts = [
            "--text",
            "--dim",
            "--accent",
            "--ok",
            "--error",
            "--trap",
            "--deadline",
            "--memory",
            "--cancelled",
            "--open",
            "--write",
            "--string",
            "--num",
            "--word",
            "--key",
        ];
        for text in texts {
            for ground in ["--bg", "--panel", "--raised", "--select", "--hover"] {
                assert!(
                    ratio(text, ground) >= 4.5,
                    "{name}: {text} on {ground}: {:.2}",
                    ratio(text, ground)
                );
            }
        }
        for ground in ["--old", "--new", "--note", "--mark"] {
            assert!(ratio("--text", ground) >= 4.5, "{name}: text on {ground}");
        }
        assert!(ratio("--on-accent", "--accent") >= 4.5, "{name}: on accent");
    }
}

fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}
