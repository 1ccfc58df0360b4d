//! A start continues with the active version, unless the configuration was edited since.

use std::fs;

use serde_json::Value;
use support::{Site, program, ran, trueup};

use super::{Running, active, candidates, error, recorded, revision, revisions, running, running_with};

const SHIPPED: &str = "use = \"builtin:lbaas@1\"";

fn digest(version: &str) -> &'static str {
    trueup_guests_builtin::find("lbaas", version).unwrap().digest
}

#[test]
fn a_swap_and_a_rollback_both_survive_a_restart() {
    let running = running();
    running.site.guest(&["swap", "lbaas", "lbaas@2"]).exits(0);
    let running = running.restarted(|_| {});
    assert_eq!(active(&running.site), (2, "lbaas@2".to_owned()));
    running.change_web("30443", "30444");
    let by = |running: &Running, digest: &str| {
        let recorded = recorded::all(&running.site);
        let of = recorded.iter().filter(|segment| segment.digest == digest);
        of.map(|segment| segment.calls.len()).sum::<usize>()
    };
    let (one, two) = (by(&running, digest("1")), by(&running, digest("2")));
    assert!(one > 0 && two > 0);
    let ran = running.site.guest(&["rollback", "lbaas"]).exits(0);
    assert!(
        ran.stdout.starts_with("lbaas: `lbaas@1` is active as revision 3: "),
        "{ran}"
    );
    let running = running.restarted(|_| {});
    assert_eq!(active(&running.site), (3, "lbaas@1".to_owned()));
    assert_eq!(by(&running, digest("2")), two);
    assert!(by(&running, digest("1")) > one);
    assert_eq!(
        revisions(&running.site),
        [
            revision(1, "lbaas@1", "configuration"),
            revision(2, "lbaas@2", "swap"),
            revision(3, "lbaas@1", "rollback"),
        ]
    );
    let refused = running.site.guest(&["rollback", "lbaas"]).exits(2);
    let way =
        "no earlier version to go back to; for `lbaas@2`, which was active before: trueup guest rollback lbaas --to 2";
    assert!(error(&refused).ends_with(way), "{refused}");
}

#[test]
fn an_edited_configuration_passes_the_gate_or_the_old_version_stays() {
    let running = running();
    let running = running.restarted(|site| site.edit("trueup.toml", SHIPPED, "use = \"builtin:lbaas@2\""));
    assert_eq!(active(&running.site), (2, "lbaas@2".to_owned()));
    // A start with the same configuration does not undo a swap.
    running.site.guest(&["swap", "lbaas", "lbaas@1"]).exits(0);
    let running = running.restarted(|_| {});
    assert_eq!(active(&running.site), (3, "lbaas@1".to_owned()));

    let file = candidates::forgetful(&running.site);
    let edited = "use = \"file:forgetful.wasm\"";
    let running = running.restarted(|site| site.edit("trueup.toml", "use = \"builtin:lbaas@2\"", edited));
    assert_eq!(active(&running.site), (3, "lbaas@1".to_owned()));
    let said = running.host.stderr();
    let warned: Vec<&str> = said
        .lines()
        .filter(|line| line.contains(" is refused at gate: "))
        .collect();
    let [warned] = warned[..] else { panic!("{said}") };
    assert!(
        warned.contains(&format!("guest `lbaas`: file:{file} is refused at gate: ")),
        "{warned}"
    );
    assert!(
        warned.contains(" diverged at entry ") && warned.ends_with("; revision 3 (`lbaas@1`) stays active"),
        "{warned}"
    );

    // The configuration still names it, so the host tries it again under the present rules.
    let running = running.restarted(|site| site.edit("trueup.toml", edited, &format!("{edited}\ngate = \"report\"")));
    assert_eq!(active(&running.site), (4, "lbaas@forgetful".to_owned()));
    let by = revisions(&running.site)
        .into_iter()
        .map(|(.., by)| by)
        .collect::<Vec<_>>();
    assert_eq!(by, ["configuration", "configuration", "swap", "configuration"]);
}

#[test]
fn a_refused_version_takes_its_settings_along_and_every_command_says_so() {
    let running = running();
    candidates::forgetful_of_other_settings(&running.site);
    let running = running.restarted(|site| {
        site.edit("trueup.toml", SHIPPED, "use = \"file:other-settings.wasm\"");
        site.edit("trueup.toml", "{ backoff_initial_ms", "{ backoff_initial_us");
    });
    let site = &running.site;
    let warned = running.host.stderr();
    let warned = warned
        .lines()
        .find(|line| line.contains(" is refused at gate: "))
        .unwrap();
    let stays = "; revision 1 (`lbaas@1`) stays active with its own settings, not those of the configuration";
    let decided = "; decided with its own settings, since it refuses the recorded ones; ";
    assert!(warned.contains(decided) && warned.ends_with(stays), "{warned}");

    // The command that it names.
    let shown = warned.split_once("; see `").unwrap().1.split_once('`').unwrap().0;
    let words: Vec<&str> = shown.split(' ').collect();
    let [config, "trueup", args @ ..] = &words[..] else {
        panic!("{shown}")
    };
    let (variable, config) = config.split_once('=').unwrap();
    let replayed = ran(program().args(args).env(variable, config)).exits(3);
    let note = "note: `lbaas@forgetful` refuses the settings of 1 recording, and decided with its own";
    assert!(replayed.stderr.contains(note), "{replayed}");
    let replayed = ran(program().args(args).env_remove(variable).current_dir("/")).exits(2);
    let next = "; TRUEUP_CONFIG=CONFIG names the configuration with its own";
    assert!(replayed.stderr.contains(next), "{replayed}");

    let noted = |site: &Site| {
        let planned = ran(&mut site.command("plan", &["--output", "json"])).exits(0).json();
        planned["notes"][0].as_str().unwrap().to_owned()
    };
    assert!(noted(site).ends_with(stays), "{}", noted(site));
    let planned = site.plan().exits(0);
    let warning = "warning: guest `lbaas`: file:";
    assert!(
        planned.stderr.contains(warning) && planned.stderr.contains(stays),
        "{planned}"
    );
    let status = trueup(["status".as_ref(), "--config".as_ref(), site.folder().as_os_str()]).exits(1);
    assert!(
        status
            .stdout
            .contains("other-settings.wasm was refused when the host started"),
        "{status}"
    );
    let checked = ran(&mut site.command("check", &["--output", "json"]));
    let next = "trueup guest history lbaas --config ";
    let wanted = ("guest lbaas", " is refused at gate: ", next);
    assert!(
        crate::check::names(&crate::check::findings(&checked), "warning", wanted),
        "{checked}"
    );

    // After a command, a start goes on with these settings too, until they are edited.
    site.guest(&["swap", "lbaas", "lbaas@2", "--gate", "report"]).exits(0);
    let running = running.restarted(|_| {});
    assert_eq!(active(&running.site), (2, "lbaas@2".to_owned()));
    let recorded = recorded::all(&running.site).into_iter();
    let by_2 = recorded.filter(|segment| segment.digest == digest("2"));
    let begun: Vec<String> = by_2.map(|segment| fs::read_to_string(segment.file).unwrap()).collect();
    let before = r#""settings":{"backoff_initial_ms":20}"#;
    assert!(!begun.is_empty() && begun.iter().all(|text| text.contains(before)));
    let note = noted(&running.site);
    let says = "guest `lbaas`: revision 2 (`lbaas@2`) is active with its own settings, not those of the configuration, not file:";
    assert!(note.starts_with(says), "{note}");
    let running =
        running.restarted(|site| site.edit("trueup.toml", "backoff_initial_us = 20", "backoff_initial_us = 30"));
    let said = running.host.stderr();
    assert!(
        said.contains("other-settings.wasm is refused at "),
        "an edit asks for it again: {said}"
    );
}

#[test]
fn where_its_settings_are_not_known_the_old_version_gets_the_new_ones() {
    let running = running();
    candidates::forgetful(&running.site);
    let running = running.restarted(|site| {
        // As an older host left it.
        let file = site.state_dir().join("guests/lbaas.json");
        let mut list: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for (object, key) in [("", "settings"), ("/configured", "settings"), ("", "checksum")] {
            let object = list.pointer_mut(object).unwrap().as_object_mut().unwrap();
            object.remove(key).unwrap();
        }
        fs::write(&file, list.to_string()).unwrap();
        site.edit("trueup.toml", SHIPPED, "use = \"file:forgetful.wasm\"");
        site.edit("trueup.toml", "{ backoff_initial_ms = 20", "{ backoff_initial_ms = 30");
    });
    let said = running.host.stderr();
    let stays = "; revision 1 (`lbaas@1`) stays active with the settings of the configuration: the state folder does not say \
                 with which it ran before\n";
    assert!(said.contains(stays), "{said}");
}

#[test]
fn a_file_with_changed_bytes_is_a_new_version_and_the_old_one_is_kept() {
    let running = running_with(|site| {
        candidates::renumbered_in(site, "guest.wasm", "1.1");
        site.edit("trueup.toml", SHIPPED, "use = \"file:guest.wasm\"");
    });
    assert_eq!(active(&running.site), (1, "lbaas@1.1".to_owned()));
    let running = running.restarted(|site| _ = candidates::renumbered_in(site, "guest.wasm", "1.2"));
    assert_eq!(active(&running.site), (2, "lbaas@1.2".to_owned()));
    assert_eq!(revisions(&running.site)[1], revision(2, "lbaas@1.2", "configuration"));
    let ran = running.site.guest(&["rollback", "lbaas"]).exits(0);
    assert!(
        ran.stdout.starts_with("lbaas: `lbaas@1.1` is active as revision 3: "),
        "{ran}"
    );
    let running = running.restarted(|_| {});
    assert_eq!(
        active(&running.site),
        (3, "lbaas@1.1".to_owned()),
        "the bytes are kept, the file has others"
    );
}

#[test]
fn a_version_without_its_file_survives_a_rollback_and_a_restart() {
    let running = running();
    let file = candidates::renumbered_in(&running.site, "mine.wasm", "1.1");
    running.site.guest(&["swap", "lbaas", file.to_str().unwrap()]).exits(0);
    running.site.guest(&["swap", "lbaas", "lbaas@2"]).exits(0);
    fs::remove_file(&file).unwrap();
    let running = running.restarted(|_| {});
    let ran = running.site.guest(&["swap", "lbaas", file.to_str().unwrap()]).exits(1);
    assert!(error(&ran).contains(" is refused at load: "), "{ran}");
    running.site.guest(&["rollback", "lbaas"]).exits(0);
    let running = running.restarted(|_| {});
    assert_eq!(active(&running.site), (4, "lbaas@1.1".to_owned()));

    // If the stored copy is gone too, the start reports that and continues with the configuration's guest.
    let digest = running.site.history("lbaas")[3]["digest"].as_str().unwrap().to_owned();
    let kept = running
        .site
        .state_dir()
        .join("registry/sha256")
        .join(digest.strip_prefix("sha256:").unwrap());
    let running = running.restarted(|_| fs::remove_file(&kept).unwrap());
    assert_eq!(active(&running.site), (5, "lbaas@1".to_owned()));
    assert!(
        running
            .host
            .stderr()
            .contains("guest `lbaas`: revision 4 is kept no more"),
        "{}",
        running.host.stderr()
    );
}
