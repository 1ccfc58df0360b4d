//! What the running host does about a key, in words.

use trueup_base::text::{counted, passed};
use trueup_work::decisions::{Explained, Explanation, JobResult, Now};
use trueup_work::status::KeyState;

use crate::output::{self, printable};

/// Its failures, that a job runs, and which manifests can't be read and may hold the Service. `why`: its error, or that
/// a line above has it. `is_shown`: the lines above show the job that runs.
pub(super) fn now_text(now: &Now, why: &str, is_shown: bool) -> Vec<String> {
    let since = output::time(now.since_ms);
    let mut lines = Vec::new();
    let next = match now.next_try_in_ms {
        _ if now.state == KeyState::Running => "it runs again".to_owned(),
        Some(0) => "next try when it is its turn".to_owned(),
        Some(ms) => format!("next try in {}", passed(ms)),
        None => "next try when it changes".to_owned(),
    };
    let times = match now.failures {
        0 => String::new(),
        failures => format!(" {}", counted(failures, "time", "times")),
    };
    // A line of its own says that it is set aside.
    if now.error.is_some() && now.state != KeyState::SetAside {
        lines.push(format!("! failed{times} since {since}, {next}: {why}"));
    }
    if now.state == KeyState::Running && !is_shown {
        lines.push("! a job runs now: it is shown here when it has ended".to_owned());
    }
    if now.state == KeyState::Held {
        lines.push(format!(
            "! held since {since}: its objects are kept until everything in the source can be read"
        ));
    } else if !now.unreadable.is_empty() {
        lines.push("! a manifest that can't be read may hold this Service; its last read state counts".to_owned());
    }
    lines.extend(now.unreadable.iter().map(|it| format!("    {}", printable(it))));
    lines
}

/// Of a job without an ending: whether the running host, which began at `host_started_ms`, is still inside it.
pub(super) fn still_runs(of: &Explanation, job: &Explained, host_started_ms: Option<u64>) -> bool {
    let instance = |of: &Explained| Some(of.job.decisions.last()?.id.rsplit_once('#')?.0.to_owned());
    let newest = of.jobs.iter().rfind(|other| instance(other) == instance(job));
    // A renderer is queued while the processor has it resync.
    let state = of.now.as_ref().map(|now| now.state);
    job.job.came == JobResult::Open
        && is_of_host(job, host_started_ms)
        && newest.is_some_and(|newest| newest.job.began_ms == job.job.began_ms)
        && matches!(state, None | Some(KeyState::Running | KeyState::Queued))
}

fn is_of_host(job: &Explained, host_started_ms: Option<u64>) -> bool {
    host_started_ms.is_some_and(|started_ms| job.job.began_ms >= started_ms)
}

/// Why a job has no ending. `None` if it has one.
pub(super) fn open_text(of: &Explanation, job: &Explained, host_started_ms: Option<u64>) -> Option<String> {
    let began = output::time(job.job.began_ms);
    (job.job.came == JobResult::Open).then(|| match is_of_host(job, host_started_ms) {
        true if still_runs(of, job, host_started_ms) => format!("still runs since {began}"),
        true => "its end is not recorded: the host's log says why".to_owned(),
        false => "its host ended inside it: the next start runs it again".to_owned(),
    })
}
