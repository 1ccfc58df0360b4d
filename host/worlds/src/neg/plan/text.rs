//! A plan of NEGs as text: for each key what is under way, then its steps, grouped by the pauses between them.

use trueup_base::text::{counted, passed};

use super::{Action, NegPlan, OperationNow, Step};
use crate::neg::shown::endpoints;

/// One key.
pub(super) fn lines(of: &NegPlan) -> Vec<String> {
    let mut lines = vec![headline(of)];
    lines.extend(of.under_way.iter().map(|now| format!("  {}", under_way(now))));
    let mut after_ms = None;
    for step in &of.steps {
        if after_ms != Some(step.after_ms) {
            lines.push(match step.after_ms {
                0 => "  at once".to_owned(),
                ms => format!("  after {}", passed(ms)),
            });
            after_ms = Some(step.after_ms);
        }
        lines.push(format!("    {}", step_text(step)));
    }
    if let Some(unplanned) = of.unplanned {
        lines.push(format!(
            "  ! more follows that is not planned: {unplanned} endpoints are still to move"
        ));
    }
    if of.left_out > 0 {
        lines.push(format!(
            "  ! {} ready endpoints are in no NEG, because of their Node or address",
            of.left_out
        ));
    }
    lines
}

/// The last line: the totals of all keys.
pub(super) fn summary(of: &[NegPlan]) -> String {
    let sum = |count: fn(&NegPlan) -> usize| of.iter().map(count).sum::<usize>();
    format!(
        "{}: {} to attach, {} to detach, {} to move, {} failed",
        counted(of.len(), "neg", "negs"),
        sum(|key| key.attached),
        sum(|key| key.detached),
        sum(|key| key.moved),
        sum(|key| usize::from(key.error.is_some()))
    )
}

fn headline(of: &NegPlan) -> String {
    let made = of.steps.iter().filter(|step| step.action == Action::Create).count();
    let counts = [('+', of.attached), ('-', of.detached), ('~', of.moved)];
    let mut does: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(sign, count)| format!("{sign}{count}"))
        .collect();
    if does.is_empty() && made > 0 {
        does.push(format!("+{made} without endpoints"));
    }
    let mut text = does.join(" ");
    if of.waits_ms > 0 {
        text.push_str(&format!(", {} of pauses", passed(of.waits_ms)));
    }
    let gone = if of.gone { " (gone)" } else { "" };
    match (&of.error, text.is_empty()) {
        (Some(error), true) => format!("{}{gone}  fails: {error}", of.key),
        (Some(error), false) => format!("{}{gone}  {text}, and fails: {error}", of.key),
        (None, true) => format!("{}{gone}  nothing to do", of.key),
        (None, false) => format!("{}{gone}  {text}", of.key),
    }
}

fn under_way(of: &OperationNow) -> String {
    let (does, to) = words(of.action);
    format!(
        "* under way: operation {}, to {does} {} {to} {} in {}: {}",
        of.operation,
        of.endpoints.len(),
        of.neg,
        of.zone,
        endpoints(&of.endpoints)
    )
}

/// `+ attach  2 to web in zone-a: 10.0.0.1:80 (vm-1), 10.0.0.2:80 (vm-1)`.
fn step_text(of: &Step) -> String {
    let (does, to) = words(of.action);
    if of.action == Action::Create {
        let subnet = of.subnet.as_deref().unwrap_or_default();
        return format!("+ create  {} in {}, subnet {subnet}", of.neg, of.zone);
    }
    let count = of.endpoints.len();
    let sign = match of.action {
        _ if of.moved == count => '~',
        Action::Detach => '-',
        Action::Attach | Action::Create => '+',
    };
    let moved = match of.moved {
        0 => String::new(),
        moved if moved == count => ", to move".to_owned(),
        moved => format!(", {moved} of them to move"),
    };
    format!(
        "{sign} {does}  {count} {to} {} in {}{moved}: {}",
        of.neg,
        of.zone,
        endpoints(&of.endpoints)
    )
}

fn words(of: Action) -> (&'static str, &'static str) {
    match of {
        Action::Create => ("create", "in"),
        Action::Attach => ("attach", "to"),
        Action::Detach => ("detach", "from"),
    }
}

#[cfg(test)]
mod tests {
    use trueup_capabilities::neg::Endpoint;

    use super::*;

    fn endpoint(n: usize, is_dual: bool) -> Endpoint {
        Endpoint {
            ip: format!("10.0.0.{n}"),
            ipv6: if is_dual { format!("fd00::{n}") } else { String::new() },
            port: "80".to_owned(),
            node: "vm".to_owned(),
        }
    }

    fn step(after_ms: u64, action: Action, numbers: &[usize], is_dual: bool, moved: usize) -> Step {
        Step {
            after_ms,
            action,
            neg: "web".to_owned(),
            zone: "a".to_owned(),
            subnet: (action == Action::Create).then(|| "s".to_owned()),
            endpoints: numbers.iter().map(|n| endpoint(*n, is_dual)).collect(),
            moved,
        }
    }

    #[test]
    fn a_key_is_told_by_its_steps_and_the_pauses_between_them() {
        let plan = NegPlan {
            key: "shop/web/80".to_owned(),
            under_way: vec![OperationNow {
                operation: 7,
                action: Action::Detach,
                neg: "web".to_owned(),
                zone: "a".to_owned(),
                endpoints: vec![endpoint(9, false)],
            }],
            steps: vec![
                step(0, Action::Create, &[], false, 0),
                step(0, Action::Attach, &[4, 9], true, 1),
                step(60_000, Action::Detach, &[1], false, 1),
                step(60_000, Action::Attach, &[1], true, 1),
                step(120_000, Action::Detach, &[3], false, 0),
            ],
            attached: 1,
            detached: 1,
            moved: 2,
            waits_ms: 120_000,
            left_out: 2,
            error: Some("no".to_owned()),
            ..NegPlan::default()
        };
        assert_eq!(
            lines(&plan),
            [
                "shop/web/80  +1 -1 ~2, 2 min of pauses, and fails: no",
                "  * under way: operation 7, to detach 1 from web in a: 10.0.0.9:80 (vm)",
                "  at once",
                "    + create  web in a, subnet s",
                "    + attach  2 to web in a, 1 of them to move: 10.0.0.4+[fd00::4]:80 (vm), 10.0.0.9+[fd00::9]:80 (vm)",
                "  after 60 s",
                "    ~ detach  1 from web in a, to move: 10.0.0.1:80 (vm)",
                "    ~ attach  1 to web in a, to move: 10.0.0.1+[fd00::1]:80 (vm)",
                "  after 2 min",
                "    - detach  1 from web in a: 10.0.0.3:80 (vm)",
                "  ! 2 ready endpoints are in no NEG, because of their Node or address",
            ]
        );
        assert_eq!(
            summary(&[plan, NegPlan::default()]),
            "2 negs: 1 to attach, 1 to detach, 2 to move, 1 failed"
        );
        let gone = NegPlan {
            key: "shop/api/443".to_owned(),
            gone: true,
            ..NegPlan::default()
        };
        assert_eq!(lines(&gone), ["shop/api/443 (gone)  nothing to do"]);
    }
}
