//! A start continues with the active version, unless the configuration was edited since.

use std::fs;

use super::{Running, active, candidates, error, recorded, revision, revisions};

const SHIPPED: &str = "use = \"builtin:lbaas@1\"";

fn digest(version: &str) -> &'static str {
    trueup_guests_builtin::find("lbaas", version).unwrap().digest
}

#[test]
fn a_swap_and_a_rollback_both_survive_a_restart() {
    let running = Running::new();
    running.site.guest(&["swap", "lbaas", "lbaas@2"]).exits(0);
    let mut running = running.restarted(|_| {});
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
    let running = Running::new();
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
fn a_file_with_changed_bytes_is_a_new_version_and_the_old_one_is_kept() {
    let running = Running::with(|site| {
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
    let running = Running::new();
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
