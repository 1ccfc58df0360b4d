//! How to measure ratios: both sides in turn, so that other work on the machine slows both, and the fastest of many
//! rounds of each, since other work can only add to a time.

use std::time::{Duration, Instant};

use anyhow::Context as _;

/// One thing to measure: does it once and returns how long that took.
pub type Side<'a> = &'a mut dyn FnMut() -> anyhow::Result<Duration>;

/// Measures all sides in turn, `rounds` times after one warm-up (so at least once), and returns the fastest time of
/// each.
///
/// # Errors
/// The first error of a side.
pub fn quickest<const N: usize>(rounds: usize, mut sides: [Side<'_>; N]) -> anyhow::Result<[Duration; N]> {
    for side in &mut sides {
        side()?;
    }
    let mut times = [Duration::MAX; N];
    for _ in 0..rounds.max(1) {
        for (side, time) in sides.iter_mut().zip(&mut times) {
            *time = side()?.min(*time);
        }
    }
    Ok(times)
}

/// How long `work` takes.
///
/// # Errors
/// The error of `work`.
pub fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let done = work()?;
    let time = began.elapsed();
    drop(std::hint::black_box(done));
    Ok(time)
}

/// The processor time of this process's threads called `name`: unlike elapsed time, other work on the machine hardly
/// changes it. Threads that have ended do not count.
///
/// # Errors
/// If the kernel does not report it (proc(5), `schedstat`).
pub fn processor_time(name: &str) -> anyhow::Result<Duration> {
    let mut ran = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // A thread may end while this reads it.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").trim_end() == name
            && let Some(nanoseconds) = read("schedstat").split(' ').next()
        {
            ran += Duration::from_nanos(nanoseconds.parse().unwrap_or_default());
        }
    }
    Ok(ran)
}

/// The proportional set size of this process, in KiB (proc(5), `smaps_rollup`).
///
/// # Errors
/// If the kernel does not report it.
pub fn pss_kib() -> anyhow::Result<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("/proc/self/smaps_rollup has no Pss")?.parse()?)
}

/// How many times `of` goes into `time`.
#[must_use]
pub fn ratio(time: Duration, of: Duration) -> f64 {
    time.as_secs_f64() / of.as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Three digits and a unit.
#[must_use]
pub fn show(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (number, unit) = match seconds {
        s if s >= 1.0 => (s, "s"),
        s if s >= 1e-3 => (s * 1e3, "ms"),
        s if s >= 1e-6 => (s * 1e6, "µs"),
        s => (s * 1e9, "ns"),
    };
    format!("{} {unit}", digits(number))
}

/// Three digits.
#[must_use]
pub fn digits(number: f64) -> String {
    match number {
        n if n >= 100.0 => format!("{n:.0}"),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_does_not_count_and_the_quickest_does() {
        let mut left = [1, 4, 3, 5].map(Duration::from_millis).into_iter();
        let mut right = [9, 7, 8, 7].map(Duration::from_millis).into_iter();
        let times = quickest(3, [&mut || Ok(left.next().unwrap()), &mut || Ok(right.next().unwrap())]);
        assert_eq!(times.unwrap(), [3, 7].map(Duration::from_millis));
    }

    #[test]
    fn a_thread_that_works_takes_processor_time_and_one_that_sleeps_does_not() {
        let run = |name: &'static str, work: fn()| {
            let ran = move || {
                work();
                processor_time(name).unwrap()
            };
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(ran);
            thread.unwrap().join().unwrap()
        };
        let worked = run("works", || {
            let begun = Instant::now();
            // However little processor time the machine has left.
            while processor_time("works").unwrap() < Duration::from_millis(20) {
                assert!(begun.elapsed() < Duration::from_secs(60));
            }
        });
        let slept = run("sleeps", || std::thread::sleep(Duration::from_millis(100)));
        assert!(worked >= Duration::from_millis(20), "{worked:?}");
        assert!(slept > Duration::ZERO && slept < worked, "{slept:?}");
    }

    #[test]
    fn three_digits_and_a_unit() {
        let shown = [0.000_000_005, 0.000_012_34, 0.1234, 1.5].map(|seconds| show(Duration::from_secs_f64(seconds)));
        assert_eq!(shown, ["5.00 ns", "12.3 µs", "123 ms", "1.50 s"]);
    }
}
