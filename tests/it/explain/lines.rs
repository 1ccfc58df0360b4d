//! Lines of log as JSON.

use serde_json::Value;

use super::{SETTLE, explained, jobs, site};
use support::{Engine, Ran, program, ran};

fn lines(ran: &Ran) -> Vec<Value> {
    let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("`{line}` is no JSON: {error}"));
    ran.stderr.lines().map(parsed).collect()
}

#[test]
fn each_line_of_a_decision_says_to_which_it_belongs() {
    let engine = Engine::start(&SETTLE);
    let site = site(&engine);
    let mut run = site.command("run", &["--once"]);
    run.env("TRUEUP_TELEMETRY_LOG", "json")
        .env("TRUEUP_LOG", "info,guest=trace");
    let ran = ran(&mut run).exits(0);
    let lines = lines(&ran);
    let of_guest: Vec<&Value> = lines.iter().filter(|line| line["target"] == "guest").collect();
    let of_decision: Vec<&&Value> = of_guest.iter().filter(|line| line.get("decision").is_some()).collect();
    assert!(!of_decision.is_empty(), "{ran}");
    for line in of_decision {
        let text = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("no `{name}` in {line:#}"));
        assert_eq!((text("guest"), text("version")), ("lbaas", "1"));
        assert!(text("digest").starts_with("sha256:"));
        let key = text("key");
        assert!(text("decision").starts_with(&format!("lbaas/{key}#")), "{line:#}");
        assert!(text("timestamp").ends_with('Z') && !text("message").is_empty() && !text("level").is_empty());
        assert!(
            line.get("span").is_none() && line.get("otel.name").is_none(),
            "{line:#}"
        );
        assert_eq!(line.get("trace"), None, "no exporter takes traces");
    }
    let explanation = explained(&site, "default/web", &[]);
    let id = &jobs(&explanation)[0]["job"]["decisions"][0]["id"];
    assert!(
        of_guest.iter().any(|line| &line["decision"] == id),
        "{id} stands in no line"
    );

    // Even if the level leaves the host's own lines out.
    let mut run = site.command("run", &["--once"]);
    run.env("TRUEUP_TELEMETRY_LOG", "json")
        .env("TRUEUP_LOG", "warn,guest=trace");
    let again = self::lines(&support::ran(&mut run).exits(0));
    assert!(again.iter().any(|line| line.get("decision").is_some()));
}

#[test]
fn text_stays_as_it_was_and_the_file_says_which_it_is() {
    let engine = Engine::start(&SETTLE);
    let site = site(&engine);
    let mut run = site.command("run", &["--once"]);
    run.env("TRUEUP_LOG", "info,guest=info");
    let text = ran(&mut run).exits(0);
    assert!(
        text.stderr.contains(" INFO guest: ") && !text.stderr.contains("decision{"),
        "{text}"
    );

    let config = std::fs::read_to_string(site.path("trueup.toml")).unwrap();
    std::fs::write(
        site.path("trueup.toml"),
        format!("{config}\n[telemetry]\nlog = \"json\"\n"),
    )
    .unwrap();
    site.edit("manifests/web.yaml", "nodePort: 30080", "nodePort: 30081");
    let mut run = site.command("run", &["--once"]);
    run.env("TRUEUP_LOG", "info,guest=info");
    assert!(!lines(&ran(&mut run).exits(0)).is_empty());

    let wrong = ran(program().args(["guest", "list"]).env("TRUEUP_TELEMETRY_LOG", "xml")).exits(2);
    assert_eq!(
        wrong.stderr,
        "error: TRUEUP_TELEMETRY_LOG: was \"xml\", must be \"text\" or \"json\"\n"
    );
}
