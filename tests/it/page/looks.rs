//! The page's behaviour in a browser.

use needs::needs;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::Desk;
use super::browser::{Browser, key};
use super::recorded::{RECORDED, multiplied, of_calls, write};
use super::served::Served;

/// The number of row elements of a list of any length: a screen, and some around it.
const ROWS_IN_PAGE_MAX: u64 = 120;

/// The longest time of a first view on a machine with other work; the test prints the actual time.
const FIRST_VIEW_MAX_MS: f64 = 30_000.0;

const SELECTED: &str = "document.querySelector('.row.selected')?.dataset.n";
const SHOWN: &str = "document.getElementById('detail').dataset.n";

/// Runs a future on its own runtime.
fn in_browser<F: Future<Output = ()>>(work: F) {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work);
}

/// The page, once its first rows are there.
async fn open(browser: &Browser, served: &Served, hash: &str) {
    browser.goto(&format!("{}{hash}", served.url)).await;
    browser
        .until("performance.getEntriesByName('trueup-ready').length")
        .await;
}

async fn number(browser: &Browser, expression: &str) -> u64 {
    let number = browser.run(&format!("return Number({expression});")).await;
    number.as_f64().map_or(u64::MAX, |number| number as u64)
}

#[needs(chromium)]
#[test]
fn keys_lead_through_decisions() {
    let desk = Desk::new();
    write(&multiplied(6000), &desk.path("a.jsonl"));
    let served = desk.serve();
    served.wait_until_read("a.jsonl");
    in_browser(async {
        let browser = Browser::start(1400, 900).await;
        open(&browser, &served, "").await;
        browser.press("j").await;
        browser.until(&format!("{SHOWN} === '1'")).await;
        browser.press("jj").await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && {SHOWN} !== '1'"))
            .await;
        let third = number(&browser, SELECTED).await;
        assert!(
            browser
                .current_url()
                .await
                .split_once('#')
                .unwrap()
                .1
                .contains(&format!("n={third}"))
        );
        browser.press(key::UP).await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && Number({SHOWN}) < {third}"))
            .await;
        browser.press(key::END).await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && Number({SHOWN}) > 5900"))
            .await;
        let last = number(&browser, SELECTED).await;
        browser.press(key::PAGE_UP).await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && Number({SHOWN}) < {last}"))
            .await;
        browser.press(key::HOME).await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && {SHOWN} === '1'"))
            .await;
        browser.press(key::ENTER).await;
        browser.until("document.activeElement.classList.contains('ask')").await;
        browser.press(key::ENTER).await;
        browser.until("document.querySelector('.ask[aria-expanded=true]') && document.querySelector('.sides .json').innerText.length > 2").await;
        browser.press(key::ESCAPE).await;
        browser.until("document.activeElement.id === 'list'").await;
        browser.press("?").await;
        browser.until("document.getElementById('keys').open").await;
        browser.press(key::ESCAPE).await;
        browser.until("!document.getElementById('keys').open").await;
        browser.press("p").await;
        browser.until("document.querySelector('.row:not([hidden]) .outcome').innerText.trim() !== 'ok' && document.getElementById('count').innerText.includes(' of ')").await;
        // An address leads to a decision, through any of its entries.
        open(&browser, &served, &format!("?again#n={}", third + 1)).await;
        browser
            .until(&format!("{SHOWN} === '{third}' && {SELECTED} === '{third}'"))
            .await;
        // One whose entry is gone says so, and shows no other decision.
        open(&browser, &served, "?gone#n=9999999").await;
        let gone = "document.getElementById('detail').innerText.includes('No decision with entry 9999999 is listed')";
        browser.until(gone).await;
        assert_eq!(
            number(&browser, "document.querySelectorAll('.row.selected').length").await,
            0
        );
        browser.end().await;
    });
}

#[needs(chromium)]
#[test]
fn two_decisions_are_marked_and_compared() {
    let desk = Desk::new();
    let made = of_calls(&[
        (r#"{"port":80}"#, r#"{"Ok":[]}"#, r#"{"Ok":{"created":1}}"#),
        (r#"{"port":8080}"#, r#"{"Ok":[]}"#, r#"{"Ok":{"created":0}}"#),
    ]);
    write(&made, &desk.path("a.jsonl"));
    let served = desk.serve();
    in_browser(async {
        let browser = Browser::start(1400, 900).await;
        open(&browser, &served, "").await;
        browser.press("jd").await;
        browser.until("!document.getElementById('marked').hidden").await;
        browser.press("j").await;
        browser.until(&format!("{SHOWN} === '4'")).await;
        browser.press("d").await;
        browser.until("document.querySelector('.difference')").await;
        let said = browser.text("#detail").await;
        for part in ["args.port", "80", "8080", "result.Ok.created", "1 question is the same"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let address = browser.current_url().await;
        browser.press(key::ESCAPE).await;
        browser.until("!document.querySelector('.difference')").await;
        // The difference has its own address.
        browser.goto("about:blank").await;
        browser.goto(&address).await;
        browser.until("document.querySelector('.difference')").await;
        browser.end().await;
    });
}

#[needs(chromium)]
#[test]
fn a_decision_that_differs_from_another_guests_is_red_at_every_width() {
    let desk = Desk::new();
    let served = desk.serve_a_difference();
    in_browser(async {
        for width in [1280, 1920] {
            let browser = Browser::start(width, 900).await;
            open(&browser, &served, "").await;
            // Shown, and no green "ok".
            let colour = "getComputedStyle(document.querySelector('.row.differs .outcome')).color";
            let error = "getComputedStyle(document.querySelector('.row.differs .compared')).color";
            let same = "getComputedStyle(document.querySelector('.row:not(.differs) .compared')).color";
            browser
                .until("document.querySelector('.row.differs .compared')?.innerText === '≠'")
                .await;
            browser
                .until("document.querySelector('.row.differs .compared').offsetWidth > 0")
                .await;
            browser
                .until(&format!("{colour} === {error} && {error} !== {same}"))
                .await;
            browser.end().await;
        }
    });
}

#[needs(chromium)]
#[test]
fn hostile_texts_stay_texts() {
    let desk = Desk::new();
    let hostile = r#"<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"#;
    let json =
        json!({ hostile: [hostile, "javascript:window.hurt=1", "\u{202e}\u{0000}", {"__proto__": {"hurt": 1}}] })
            .to_string();
    let mut made = of_calls(&[(&json, &json, &json), (&json, &json, "null")]);
    for entry in &mut made.entries {
        match &mut entry.event {
            trueup_journal::Event::Call(call) => call.name = hostile.to_owned(),
            trueup_journal::Event::Ask(ask) => ask.name = hostile.to_owned(),
            trueup_journal::Event::Ending(ending) if entry.n > 4 => {
                *ending = trueup_journal::Ending::Trap(hostile.to_owned())
            }
            _ => {}
        }
    }
    made.header.guest = hostile.to_owned();
    made.header.snapshot = Some(hostile.to_owned());
    let mut file = desk.path("a.jsonl");
    write(&made, &file);
    let named = desk.path("<img src=x onerror=window.hurt=1>.jsonl");
    std::fs::rename(&file, &named).unwrap();
    file = named;
    let mut torn = OpenOptions::new().append(true).open(&file).unwrap();
    torn.write_all(hostile.as_bytes()).unwrap();
    let served = Served::start(&[file.as_os_str()]);
    in_browser(async {
        let browser = Browser::start(1400, 900).await;
        open(&browser, &served, "").await;
        browser.press("j").await;
        browser.until(&format!("{SHOWN} === '1'")).await;
        browser.press("o").await;
        browser.until("document.querySelector('.sides')").await;
        browser.press("djd").await;
        browser.until("document.querySelector('.difference')").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(
            browser.run("return [window.hurt ?? null, ({}).hurt ?? null];").await,
            json!([null, null])
        );
        let images = "return [...document.images].map((image) => image.getAttribute('src'));";
        assert_eq!(browser.run(images).await, json!(["icon.svg"]));
        assert_eq!(number(&browser, "document.scripts.length").await, 1);
        assert!(browser.text(".notes").await.contains("<script>") || browser.text(".notes").await.contains("is torn"));
        assert!(
            browser
                .text(".row:not([hidden]):not(.head) .name")
                .await
                .contains("<img src=x")
        );
        // The page asked no other server, and its policy had nothing to block.
        let asked = browser
            .run("return performance.getEntriesByType('resource').map((one) => new URL(one.name).origin);")
            .await;
        let own = json!(served.url.trim_end_matches('/'));
        assert!(asked.as_array().unwrap().iter().all(|origin| *origin == own), "{asked}");
        browser.end().await;
    });
}

#[needs(chromium)]
#[test]
fn light_and_dark_are_both_drawn() {
    let desk = Desk::new();
    write(&multiplied(3000), &desk.path("a.jsonl"));
    let served = desk.serve();
    in_browser(async {
        let browser = Browser::start(1240, 760).await;
        open(&browser, &served, "#n=1").await;
        browser.until(&format!("{SHOWN} === '1'")).await;
        let ground = "return getComputedStyle(document.body).backgroundColor;";
        let first = (browser.run(ground).await, browser.screenshot().await);
        browser.press("t").await;
        browser.until("document.documentElement.dataset.theme === 'dark'").await;
        browser.press("djjd").await;
        browser.until("document.querySelector('.difference')").await;
        let second = (browser.run(ground).await, browser.screenshot().await);
        assert_ne!(first.0, second.0);
        assert_ne!(first.1, second.1);
        // A blank page of this size is a few kilobytes.
        assert!(
            first.1.len() > 30_000 && second.1.len() > 30_000,
            "{} {}",
            first.1.len(),
            second.1.len()
        );
        if let Some(folder) = std::env::var_os("TRUEUP_SCREENSHOTS") {
            let folder = std::path::PathBuf::from(folder);
            std::fs::write(folder.join("light.png"), &first.1).unwrap();
            std::fs::write(folder.join("dark.png"), &second.1).unwrap();
        }
        // On a narrow screen no element is wider than the screen.
        browser.set_window_size(500, 900).await;
        browser
            .until("document.documentElement.scrollWidth <= window.innerWidth")
            .await;
        // There, a row shows when, and which function; the interface before it has no room.
        let first = "document.querySelector('.row:not(.head):not([hidden])')";
        let time = browser
            .run(&format!("return {first}.querySelector('.time').offsetWidth;"))
            .await;
        assert!(time.as_u64() > Some(60), "{time}");
        let name = format!("return {first}.querySelector('.name').innerText;");
        assert_eq!(browser.run(&name).await, "reconcile");
        browser.end().await;
    });
}

#[needs(chromium)]
#[test]
fn what_is_recorded_meanwhile_appears_and_moves_nothing() {
    let desk = Desk::new();
    let made = multiplied(4000);
    let file = desk.path("a.jsonl");
    let bytes = write(&made, &file);
    let whole = std::fs::read(&file).unwrap();
    let text = std::str::from_utf8(&whole).unwrap();
    let half = text[..usize::try_from(bytes).unwrap() / 2].rfind('\n').unwrap();
    // The second half begins within a line: the torn line is completed later.
    std::fs::write(&file, &whole[..half + 10]).unwrap();
    let served = desk.serve();
    in_browser(async {
        let browser = Browser::start(1400, 900).await;
        open(&browser, &served, "").await;
        browser
            .until("document.getElementById('notes').innerText.includes('is torn: its 9 bytes are left out')")
            .await;
        browser.press("jjj").await;
        browser.until(&format!("{SELECTED} && {SELECTED} === {SHOWN}")).await;
        browser.run("document.getElementById('list').scrollTop = 1400;").await;
        browser
            .until("document.querySelector('.row:not(.waiting)[data-at=\"52\"]')")
            .await;
        let seen = "const list = document.getElementById('list'); return [list.scrollTop, list.querySelector('[data-at=\"52\"]').dataset.n, document.getElementById('detail').dataset.n, document.activeElement.id];";
        let before = browser.run(seen).await;
        let count = browser.text("#count").await;
        let mut growing = OpenOptions::new().append(true).open(&file).unwrap();
        growing.write_all(&whole[half + 10..]).unwrap();
        browser.until("!document.getElementById('newer').hidden").await;
        browser.until("document.getElementById('notes').hidden").await;
        assert_ne!(browser.text("#count").await, count);
        assert_eq!(browser.run(seen).await, before);
        browser.run("document.getElementById('newer').click();").await;
        browser.until("document.getElementById('newer').hidden").await;
        browser.end().await;
    });
}

#[needs(chromium)]
#[test]
fn a_long_recording_is_shown_at_once_and_scrolls() {
    let desk = Desk::new();
    let entries = std::env::var("TRUEUP_PAGE_ENTRIES")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(100_000);
    let made = multiplied(entries);
    let bytes = write(&made, &desk.path("a.jsonl"));
    drop(made);
    let _ = &*RECORDED;
    in_browser(async {
        let browser = Browser::start(1440, 900).await;
        // The server has not read the recording yet, so the time includes the reading.
        let served = desk.serve();
        open(&browser, &served, "").await;
        let first_view = browser
            .run("return performance.getEntriesByName('trueup-first-view')[0].startTime;")
            .await;
        let first_view = first_view.as_f64().unwrap();
        assert!(first_view < FIRST_VIEW_MAX_MS, "{first_view} ms");
        browser
            .until("document.querySelectorAll('.list .row:not([hidden])').length > 10")
            .await;
        let began = std::time::Instant::now();
        browser
            .until("document.getElementById('state').innerText.includes('following')")
            .await;
        let read = began.elapsed();
        let rows = number(&browser, "document.querySelectorAll('.list .row').length").await;
        assert!(rows < ROWS_IN_PAGE_MAX, "{rows} rows are elements");
        let script = r"
            const done = arguments[0];
            const list = document.getElementById('list');
            let long = 0, longest = 0, blank = 0;
            new PerformanceObserver((seen) => { for (const one of seen.getEntries()) { long += 1; longest = Math.max(longest, one.duration); } }).observe({ entryTypes: ['longtask'] });
            const frames = [];
            let last = performance.now(), at = 0;
            const step = (now) => {
                frames.push(now - last);
                last = now;
                at += 1;
                list.scrollTop += at < 200 ? 90 : list.scrollHeight / 100;
                if (document.querySelector('.list .row.waiting:not([hidden])')) blank += 1;
                if (at < 300) requestAnimationFrame(step);
                else setTimeout(() => { frames.sort((a, b) => a - b); done({ long, longest, blank, frames: frames.length, p50: frames[150], p99: frames[296], top: list.scrollTop, height: list.scrollHeight }); }, 300);
            };
            requestAnimationFrame(step);";
        let scrolled = browser.run_async(script).await;
        assert!(
            scrolled["top"].as_f64().unwrap() > scrolled["height"].as_f64().unwrap() / 2.0,
            "{scrolled}"
        );
        let rows = number(&browser, "document.querySelectorAll('.list .row').length").await;
        assert!(rows < ROWS_IN_PAGE_MAX, "{rows} rows are elements");
        browser.press(key::END).await;
        browser
            .until(&format!(
                "{SELECTED} === {SHOWN} && Number({SHOWN}) > {}",
                entries - 200
            ))
            .await;
        assert!(browser.text(".count").await.contains("decisions"));
        println!(
            "{entries} entries, {bytes} bytes: first view {first_view:.0} ms, all read {:.1} s later, scrolled {}",
            read.as_secs_f64(),
            Value::to_string(&scrolled)
        );
        browser.end().await;
    });
}
