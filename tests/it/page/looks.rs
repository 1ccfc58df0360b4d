//! The page's behaviour in a browser.

use needs::needs;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::Desk;
use super::browser::{Browser, key};
use super::recorded::{RECORDED, multiplied, of_calls, write};
use super::served::Served;
use crate::admin::in_trouble;
use support::Engine;

/// The number of row elements of a list of any length: a screen, and some around it.
const ROWS_IN_PAGE_MAX: u64 = 120;

/// The longest time of a first view on a machine with other work; the test prints the actual time.
const FIRST_VIEW_MAX_MS: f64 = 120_000.0;

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

/// The page, once its first rows are there, and what it opens with.
async fn open(browser: &Browser, served: &Served, hash: &str) {
    browser.goto(&format!("{}{hash}", served.url)).await;
    opened(browser).await;
}

async fn opened(browser: &Browser) {
    browser
        .until("performance.getEntriesByName('trueup-ready').length && document.querySelector('#detail > :not(.busy)')")
        .await;
}

/// Writes a screenshot for a person to look at, and prints where it is.
async fn keep(browser: &Browser, name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&folder).unwrap();
    let (file, image) = (folder.join(format!("{name}.png")), browser.screenshot().await);
    std::fs::write(&file, &image).unwrap();
    println!("screenshot: {}", file.display());
    image
}

/// Nothing is wider than the screen, and in the rows on it, no time, outcome or call is cut.
async fn fits(browser: &Browser) {
    browser
        .until("document.documentElement.scrollWidth <= window.innerWidth")
        .await;
    let cut = browser
        .run(
            "return [...document.querySelectorAll('.list .row:not([hidden]) > :is(.cell, .time, .name)')]
                .filter((cell) => cell.scrollWidth > cell.clientWidth || cell.clientWidth < 20).map((cell) => cell.innerText);",
        )
        .await;
    assert_eq!(cut, json!([]));
}

async fn number(browser: &Browser, expression: &str) -> u64 {
    let number = browser.run(&format!("return Number({expression});")).await;
    number.as_f64().map_or(u64::MAX, |number| number as u64)
}

#[needs(chromium)]
#[test]
fn keys_lead_through_decisions() {
    let desk = Desk::new();
    let recording = multiplied(6000);
    let calls = recording
        .entries
        .iter()
        .filter(|entry| matches!(entry.event, trueup_journal::Event::Call(_)));
    let newest = calls.map(|entry| entry.n).max().unwrap();
    write(&recording, &desk.path("a.jsonl"));
    let served = desk.serve();
    served.wait_until_read("a.jsonl");
    in_browser(async {
        let browser = Browser::start(1400, 900).await;
        open(&browser, &served, "").await;
        browser.press(key::HOME).await;
        // The page may still show the newest problem, with which it opens.
        browser
            .until(&format!("{SELECTED} === {SHOWN} && {SHOWN} === '{newest}'"))
            .await;
        let order = "return [...document.querySelectorAll('.list .row:not([hidden], .waiting)')].map((row) => Number(row.dataset.n));";
        let order: Vec<u64> = serde_json::from_value(browser.run(order).await).unwrap();
        assert!(
            order[0] == newest && order.is_sorted_by(|above, below| above > below),
            "{order:?}"
        );
        browser.press("jj").await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && {SHOWN} === '{}'", order[2]))
            .await;
        let third = order[2];
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
            .until(&format!("{SELECTED} === {SHOWN} && {SHOWN} === '{}'", order[1]))
            .await;
        browser.press(key::END).await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && {SHOWN} === '1'"))
            .await;
        browser.press(key::PAGE_UP).await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && Number({SHOWN}) > 1"))
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
        browser.until("document.querySelector('.row:not([hidden], .waiting) .outcome')?.innerText.trim() !== 'ok' && document.getElementById('count').innerText.includes(' of ')").await;
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
fn the_page_opens_with_the_newest_problem_of_all_recordings() {
    let desk = Desk::new();
    let ok = ("{}", "[]", r#"{"Ok":{}}"#);
    let error = ("{}", "[]", r#"{"Err":"no room for a backend"}"#);
    for (key, calls) in [("api", [ok, error, ok]), ("web", [ok, ok, ok])] {
        let folder = desk.path(&format!("journals/lbaas/default%2F{key}"));
        std::fs::create_dir_all(&folder).unwrap();
        write(&of_calls(&calls), &folder.join("0.jsonl"));
    }
    let served = Served::start(&[desk.path("").as_os_str()]);
    let chosen = "document.getElementById('recording').value";
    in_browser(async {
        let browser = Browser::start(1280, 900).await;
        for _ in 0..2 {
            open(&browser, &served, "").await;
            // It was not written last, and something was decided after it.
            browser
                .until(&format!(
                    "{chosen} === 'lbaas/default/api' && {SHOWN} === '4' && {SELECTED} === '4'"
                ))
                .await;
            // So the same address leads to another problem if there is a newer one.
            assert_eq!(browser.current_url().await.trim_end_matches('#'), served.url);
        }
        let said = browser.text("#health").await;
        for part in [
            "Newest problem",
            "error",
            "lbaas/default/api at entry 4",
            "no room for a backend",
            "UTC",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        // Another recording without one opens with its newest decision; what is wrong stays said, and leads back.
        open(&browser, &served, "#r=lbaas/default/web").await;
        browser
            .until(&format!("{chosen} === 'lbaas/default/web' && {SHOWN} === '7'"))
            .await;
        browser
            .run("document.querySelector('#health .newest a').click();")
            .await;
        browser
            .until(&format!("{chosen} === 'lbaas/default/api' && {SHOWN} === '4'"))
            .await;
        // The filter of calls is filled anew, although the calls have the same names.
        browser
            .until("document.getElementById('name').innerText.includes('Every call')")
            .await;
        // A recording that is gone opens no other one.
        for gone in ["?gone#r=lbaas/default/dns", "?again#r=lbaas/default/dns&n=4"] {
            open(&browser, &served, gone).await;
            browser
                .until("document.getElementById('detail').innerText.includes('There is no recording lbaas/default/dns here')")
                .await;
            assert_eq!(
                number(&browser, "document.querySelectorAll('.list .row:not([hidden])').length").await,
                0
            );
        }
        browser.end().await;
    });
}

#[needs(chromium)]
#[test]
fn where_nothing_is_wrong_it_says_so_and_opens_with_the_newest_decision() {
    let desk = Desk::new();
    let ok = ("{}", "[]", r#"{"Ok":{}}"#);
    write(&of_calls(&[]), &desk.path("a.jsonl"));
    let served = desk.serve();
    in_browser(async {
        let browser = Browser::start(1280, 900).await;
        open(&browser, &served, "").await;
        browser
            .until("document.getElementById('detail').innerText === 'Nothing is recorded yet.'")
            .await;
        // So it goes on when there is something.
        write(&of_calls(&[ok, ok]), &desk.path("a.jsonl"));
        browser.until(&format!("{SHOWN} === '4' && {SELECTED} === '4'")).await;
        browser
            .until("document.getElementById('health').innerText === 'No problem is recorded.'")
            .await;
        browser.end().await;
    });
}

#[needs(chromium)]
#[test]
fn a_host_in_trouble_shows_the_newest_problem_beside_its_keys_and_guests() {
    let engine = Engine::start(&[]);
    let message = "no room: the load balancer has all backends that its plan allows";
    let (_site, host, all) = in_trouble(&engine, message);
    in_browser(async {
        let browser = Browser::start(1280, 900).await;
        // The address alone leads to the page.
        browser.goto(&all).await;
        assert_eq!(browser.current_url().await, format!("{all}/ui"));
        for (width, theme) in [(1280, "light"), (1280, "dark"), (400, "dark"), (400, "light")] {
            browser.resize(width, 900).await;
            browser
                .run(&format!("localStorage.setItem('trueup-theme', '{theme}');"))
                .await;
            browser.goto(&format!("{all}/ui?{width}-{theme}")).await;
            opened(&browser).await;
            browser
                .until("document.getElementById('detail').dataset.outcome === 'error'")
                .await;
            browser.until("document.querySelector('#health .guests')").await;
            let said = browser.text("#health").await;
            for part in [
                "Newest problem",
                "no room",
                "3 failed",
                "3 keys failed",
                "default/web",
                "kube-system/dns",
                "lbaas@1",
            ] {
                assert!(said.contains(part), "{part}: {said}");
            }
            // The error is in sight, in the decision and at the top.
            if width > 400 {
                browser
                    .until(
                        "document.querySelector('.detail .card.failed').getBoundingClientRect().bottom < innerHeight",
                    )
                    .await;
            }
            if width == 400 {
                let whole = "[...document.querySelectorAll('#health, #health code')]
                    .every((box) => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight)";
                browser.until(whole).await;
            }
            fits(&browser).await;
            keep(&browser, &format!("trouble-{width}-{theme}")).await;
        }
        // On a narrow screen a click shows the decision, and "Back" leads back.
        browser.run("document.querySelector('.row.selected').click();").await;
        browser.until("document.body.classList.contains('reading')").await;
        browser.until("document.querySelector('.detail .card.failed')").await;
        keep(&browser, "trouble-400-decision").await;
        browser.run("document.querySelector('.back').click();").await;
        browser.until("!document.body.classList.contains('reading')").await;
        // A key in trouble leads to its recording.
        browser
            .run("[...document.querySelectorAll('#health .keys a')].at(-1).click();")
            .await;
        browser
            .until("document.getElementById('recording').value === 'lbaas/kube-system/dns'")
            .await;
        browser
            .until("document.getElementById('detail').dataset.outcome === 'error'")
            .await;
        browser.end().await;
    });
    host.kill();
}

#[needs(chromium)]
#[test]
fn calls_and_times_are_readable_at_400_and_every_column_at_1280_pixels() {
    let desk = Desk::new();
    write(&multiplied(3000), &desk.path("a.jsonl"));
    let served = desk.serve();
    in_browser(async {
        let browser = Browser::start(1280, 900).await;
        for (width, columns) in [
            (400, vec!["Outcome", "Entry", "Time UTC", "Call"]),
            (
                1280,
                vec!["Outcome", "Entry", "Time UTC", "Call", "Took ≥", "Asks", "Writes"],
            ),
        ] {
            browser.resize(width, 900).await;
            open(&browser, &served, &format!("?{width}")).await;
            fits(&browser).await;
            let heads = "return [...document.querySelectorAll('.head.row > span')].filter((one) => one.offsetWidth > 10).map((one) => one.innerText);";
            assert_eq!(browser.run(heads).await, json!(columns));
            let first = "document.querySelector('.list .row:not([hidden])')";
            let seen = format!("return ['.time', '.name'].map((cell) => {first}.querySelector(cell).innerText);");
            let seen = browser.run(&seen).await;
            assert!(seen[0].as_str().unwrap().contains(':'), "{seen}");
            assert!(seen[1].as_str().unwrap().len() > 5, "{seen}");
            // What is at the top appears later, and takes room: what is chosen stays in sight.
            open(&browser, &served, &format!("?{width}#n=1")).await;
            browser.until("!document.getElementById('health').hidden").await;
            browser
                .until("document.querySelector('.row.selected')?.getBoundingClientRect().bottom <= document.getElementById('list').getBoundingClientRect().bottom + 1")
                .await;
            browser.run("location.hash = '';").await;
            browser.until(&format!("Number({SHOWN}) > 2000")).await;
            keep(&browser, &format!("list-{width}")).await;
        }
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
        browser.press("d").await;
        browser.until("!document.getElementById('marked').hidden").await;
        browser.press("j").await;
        browser.until(&format!("{SHOWN} === '1'")).await;
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
        for width in [400, 1280, 1920] {
            let browser = Browser::start(1280, 900).await;
            browser.resize(width, 900).await;
            // What differs is the newest problem, although it ended well and is not the newest decision.
            open(&browser, &served, "").await;
            browser.until(&format!("{SELECTED} === '1' && {SHOWN} === '1'")).await;
            browser
                .until("document.querySelector('#health .newest').innerText.includes('differs')")
                .await;
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
            fits(&browser).await;
            keep(&browser, &format!("against-{width}")).await;
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
        browser.until(&format!("{SHOWN} === '4'")).await;
        browser.press("j").await;
        browser.until(&format!("{SHOWN} === '1'")).await;
        browser.press("o").await;
        browser.until("document.querySelector('.sides')").await;
        browser.press("dkd").await;
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
        let background = "return getComputedStyle(document.body).backgroundColor;";
        let first = (browser.run(background).await, keep(&browser, "light").await);
        browser.press("t").await;
        browser.until("document.documentElement.dataset.theme === 'dark'").await;
        browser.press("dkkd").await;
        browser.until("document.querySelector('.difference')").await;
        let second = (browser.run(background).await, keep(&browser, "dark").await);
        assert_ne!(first.0, second.0);
        assert_ne!(first.1, second.1);
        // A blank page of this size is a few kilobytes.
        assert!(
            first.1.len() > 30_000 && second.1.len() > 30_000,
            "{} {}",
            first.1.len(),
            second.1.len()
        );
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
        // What stands at a place of the screen.
        let there = "const list = document.getElementById('list'), place = list.getBoundingClientRect(); const row = document.elementFromPoint(place.left + 20, place.top + 100).closest('.row');";
        browser
            .until(&format!("(() => {{ {there} return list.scrollTop === 1400 && row?.dataset.n && !row.classList.contains('waiting'); }})()"))
            .await;
        let seen = &format!(
            "{there} return [row?.dataset.n, document.getElementById('detail').dataset.n, document.activeElement.id];"
        );
        let before = browser.run(seen).await;
        let count = browser.text("#count").await;
        let mut growing = OpenOptions::new().append(true).open(&file).unwrap();
        growing.write_all(&whole[half + 10..]).unwrap();
        browser.until("!document.getElementById('newer').hidden").await;
        browser.until("document.getElementById('notes').hidden").await;
        assert_ne!(browser.text("#count").await, count);
        // The list is drawn in the next frame.
        browser
            .until(&format!("JSON.stringify((() => {{ {seen} }})()) === '{before}'"))
            .await;
        browser.run("document.getElementById('newer').click();").await;
        browser
            .until("document.getElementById('newer').hidden && document.getElementById('list').scrollTop === 0")
            .await;
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
        browser.press(key::HOME).await;
        browser
            .until(&format!(
                "{SELECTED} === {SHOWN} && Number({SHOWN}) > {}",
                entries - 200
            ))
            .await;
        browser.press(key::END).await;
        browser
            .until(&format!("{SELECTED} === {SHOWN} && {SHOWN} === '1'"))
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
