//! A store that lost entries: no pod gets an address until an operator accepts the loss.

use std::fs;

use support::{Site, ran, trueup};

use super::{Host, code, host_status, host_status_text};
use crate::admin::{address, get, listening};

#[test]
fn a_checkpoint_that_lost_entries_gives_no_address_until_it_is_accepted() {
    let site = listening(Site::ipam());
    let checkpoint = site.path(".trueup/checkpoints/ipam");
    let host = Host::start(&site);
    host.gives("c1", "10.0.0.2", 0);
    host.gives("c2", "10.0.0.3", 0);
    let short = fs::read(&checkpoint).unwrap();
    host.gives("c3", "10.0.0.4", 0);
    host.started.kill();
    for lost in [Some(&short), None] {
        match lost {
            Some(short) => fs::write(&checkpoint, short).unwrap(),
            None => fs::remove_file(&checkpoint).unwrap(),
        }
        let shown = checkpoint.to_str().unwrap();
        let verified = trueup(["checkpoint", "verify", shown]).exits(1);
        assert!(verified.stdout.starts_with("corrupt: "), "{verified}");
        let checked = ran(&mut site.command("check", &[])).exits(1);
        assert!(checked.stdout.contains("\nfailed   checkpoint "), "{checked}");
        let planned = site.plan().exits(1);
        assert!(planned.stdout.contains("the store can't be read: "), "{planned}");
        let mut started = site.start("run", &[]);
        let admin = address(&mut started, 0);
        started.wait_for_warning("the store can't be read: ");
        started.wait_for("listening on ");
        let host = Host { site: &site, started };
        assert_eq!(code(&host.pod("ADD", "c9")), 11);
        let why = host.show()["error"].to_string();
        assert!(why.contains("trueup checkpoint accept"), "{why}");
        let problem = host_status(&site, 1)["problems"][0].to_string();
        let status = host_status_text(&site);
        assert_eq!(status.matches("checkpoint accept").count(), 1, "{status}");
        let addresses = ran(&mut site.command_of(&["ipam", "show"], &[])).exits(0).stdout;
        assert!(
            addresses.contains(" unknown") && !addresses.contains(" free"),
            "{addresses}"
        );
        assert!(problem.contains("trueup checkpoint accept"), "{problem}");
        let metrics = get(&admin, "/metrics").body;
        assert!(
            metrics.contains("\ntrueup_ipam_total_ips 5\n") && !metrics.contains("trueup_ipam_assigned_ips"),
            "{metrics}"
        );
        host.ends();
        let refused = trueup(["checkpoint", "accept", shown]).exits(2);
        assert!(
            refused.stderr.contains("was at checkpoint 1 with ") && refused.stderr.contains("--yes"),
            "{refused}"
        );
        let accepted = trueup(["checkpoint", "accept", shown, "--yes"]).exits(0);
        let (_, done) = accepted.stdout.trim_end().split_once(": ").unwrap();
        assert!(done.starts_with("going on with "), "{accepted}");
        let audit = trueup(["audit", "show"].iter().chain(&[site.folder().to_str().unwrap()])).exits(0);
        assert!(
            audit.stdout.contains("checkpoint accept") && audit.stdout.contains(done),
            "{audit}"
        );
    }
    let host = Host::start(&site);
    host.gives("c9", "10.0.0.2", 0);
    host.ends();
}
