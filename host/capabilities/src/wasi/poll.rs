//! `wasi:io/poll`: guests can wait only for time. Each poll and each wait is a request on the tape.
//!
//! A stream's pollable is always ready: input has ended, and output is taken at once. If a guest polls nothing else, no
//! request is made. The recording of a pollable is the instant, on the monotonic clock, at which it is ready; null
//! means always.

use std::sync::Arc;

use serde::Serialize;
use trueup_base::clock::Clock;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::DynPollable;
use wasmtime_wasi::p2::bindings::io::poll;

use super::state::{Monotonic, RESOLUTION_NS};
use crate::Host;
use crate::ask::{ask_or_end, sleep_within};

/// The maximum number of pollables in one wait: as many as an instance may keep.
const POLLED_MAX: usize = super::RESOURCES_MAX;

#[derive(Serialize)]
struct One {
    #[serde(rename = "self")]
    deadline_ns: u64,
}

#[derive(Serialize)]
struct List<'a> {
    #[serde(rename = "in")]
    deadlines_ns: &'a [Option<u64>],
}

impl poll::Host for Host {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        if pollables.is_empty() || pollables.len() > POLLED_MAX {
            return Err(wasmtime::format_err!(
                "polls {} pollables of WASI at once, must be 1 to {POLLED_MAX}",
                pollables.len()
            ));
        }
        let known = &self.wasi().deadlines_ns;
        let deadlines_ns = pollables.iter().map(|pollable| known.get(&pollable.rep()).copied());
        let deadlines_ns: Vec<Option<u64>> = deadlines_ns.collect();
        if deadlines_ns.iter().all(Option::is_none) {
            return Ok(ready_at(&deadlines_ns, 0));
        }
        let clock = &self.backends.clock;
        let monotonic = &mut self.wasi.get().monotonic;
        let name = "poll.poll";
        let left = self.meter.time_left();
        let waiting = wait(clock, monotonic, &deadlines_ns);
        let answer = || sleep_within(name, left, waiting);
        let args = List {
            deadlines_ns: &deadlines_ns,
        };
        ask_or_end(&mut self.tape, &mut self.meter, name, &args, answer).await
    }
}

impl poll::HostPollable for Host {
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        let Some(deadline_ns) = self.wasi().deadlines_ns.get(&pollable.rep()).copied() else {
            return Ok(true);
        };
        self.ask_wasi("pollable.ready", &One { deadline_ns }, |backends, wasi| {
            deadline_ns <= wasi.monotonic.at_ms(backends.clock.now_ms())
        })
    }

    async fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        let Some(deadline_ns) = self.wasi().deadlines_ns.get(&pollable.rep()).copied() else {
            return Ok(());
        };
        let clock = &self.backends.clock;
        let monotonic = &mut self.wasi.get().monotonic;
        let (name, left) = ("pollable.block", self.meter.time_left());
        let waiting = async move { drop(wait(clock, monotonic, &[Some(deadline_ns)]).await) };
        let answer = || sleep_within(name, left, waiting);
        ask_or_end(&mut self.tape, &mut self.meter, name, &One { deadline_ns }, answer).await
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        let wasi = self.wasi();
        wasi.deadlines_ns.remove(&pollable.rep());
        poll::HostPollable::drop(&mut wasi.table, pollable)
    }
}

/// Waits until the first is ready, and returns all that are ready then.
async fn wait(clock: &Arc<dyn Clock>, monotonic: &mut Monotonic, deadlines_ns: &[Option<u64>]) -> Vec<u32> {
    let now_ns = monotonic.at_ms(clock.now_ms());
    let first_ns = deadlines_ns.iter().map(|deadline_ns| deadline_ns.unwrap_or_default());
    let first_ns = first_ns.min().unwrap_or_default();
    if first_ns > now_ns {
        clock.sleep_ms((first_ns - now_ns).div_ceil(RESOLUTION_NS)).await;
        monotonic.at_ms(clock.now_ms());
    }
    ready_at(deadlines_ns, monotonic.reach(first_ns))
}

/// The indices of those that are ready at `now_ns`.
fn ready_at(deadlines_ns: &[Option<u64>], now_ns: u64) -> Vec<u32> {
    let is_ready = |deadline_ns: &Option<u64>| deadline_ns.is_none_or(|deadline_ns| deadline_ns <= now_ns);
    let ready = (0..).zip(deadlines_ns).filter(|(_, deadline_ns)| is_ready(deadline_ns));
    ready.map(|(position, _)| position).collect()
}

#[cfg(test)]
mod tests {
    use trueup_base::clock::VirtualClock;

    use super::*;

    async fn waited(deadlines_ms: &[Option<u64>]) -> (Vec<u32>, u64) {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(1_000));
        let deadlines_ns: Vec<_> = deadlines_ms.iter().map(|ms| ms.map(|ms| ms * RESOLUTION_NS)).collect();
        let ready = wait(&clock, &mut Monotonic::default(), &deadlines_ns).await;
        (ready, clock.now_ms())
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_first_deadline_and_names_all_that_are_over() {
        assert_eq!(
            waited(&[Some(3_000), Some(1_500), Some(1_500)]).await,
            (vec![1, 2], 1_500)
        );
        assert_eq!(waited(&[Some(3_000), None, Some(999)]).await, (vec![1, 2], 1_000));
        assert_eq!(waited(&[Some(0)]).await, (vec![0], 1_000));
    }

    #[tokio::test]
    async fn a_part_of_a_millisecond_is_waited_for_as_a_whole_one() {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(7));
        let deadline_ns = 7 * RESOLUTION_NS + 1;
        assert_eq!(wait(&clock, &mut Monotonic::default(), &[Some(deadline_ns)]).await, [0]);
        assert_eq!(clock.now_ms(), 8);
    }
}
