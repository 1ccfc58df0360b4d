//! `trueup:host`: log, clock, timers, randomness and metrics, which every guest has without a grant.

use std::time::Instant;

use crate::ask::{Nothing, args, ask_now, ask_or_end, sleep_within};
use crate::bindings::host::{clock, log, metrics, random, timers};
use crate::host::Host;
use crate::identity::Identity;
use crate::metrics::{Line, Origin};

/// The beginning of a panic's text in Rust.
const PANICKED: &str = "panicked at ";

impl log::Host for Host {
    fn emit(&mut self, level: log::Level, message: String, fields: Vec<log::Field>) -> wasmtime::Result<()> {
        self.log_line(level, &message, &fields);
        Ok(())
    }
}

impl Host {
    /// A recorded time also applies to what the host answers after it.
    fn told_the_time(&self, now_ms: u64) {
        if self.tape.is_replay() {
            self.backends.clock.at_least_ms(now_ms);
        }
    }

    fn metric(&mut self, name: &str, labels: &[metrics::Label], line: Line) -> wasmtime::Result<()> {
        let Identity { guest, instance, .. } = &self.identity;
        let origin = Origin::Guest { guest, instance };
        let has_room = self.meter.metric_line();
        if !has_room || !self.backends.metrics.take(origin, name, labels, line) {
            self.meter.used.metric_lines_dropped += u32::from(has_room);
            self.count("trueup_metric_lines_dropped_total");
        }
        Ok(())
    }

    /// Passes one line to the log, or drops and counts it if the call has reached its limit.
    pub(crate) fn log_line(&mut self, level: log::Level, message: &str, fields: &[log::Field]) {
        let is_panic = level == log::Level::Error && message.starts_with(PANICKED);
        // Rust puts the location on a line of its own.
        let on_one_line = is_panic.then(|| message.replacen('\n', " ", 1));
        let message = on_one_line.as_deref().unwrap_or(message);
        if is_panic {
            self.last_words = Some(crate::log::line(message, fields));
        }
        let is_trouble = matches!(level, log::Level::Warn | log::Level::Error);
        let level = match self.refused.is_repeated && is_trouble && !is_panic {
            true => log::Level::Debug,
            false => level,
        };
        if self.meter.log_line() {
            // A slow log reader must not cost the guest time.
            let entered = Instant::now();
            let line = crate::log::line(message, fields);
            self.backends.log.emit(&self.identity, level, &line);
            self.meter.used.waited += entered.elapsed();
        } else {
            self.count("trueup_log_lines_dropped_total");
        }
    }
}

impl clock::Host for Host {
    async fn now_ms(&mut self) -> wasmtime::Result<u64> {
        let clock = &self.backends.clock;
        let answer = || clock.now_ms();
        let now_ms = ask_now(&mut self.tape, &mut self.meter, "clock.now-ms", &Nothing {}, answer)?;
        self.told_the_time(now_ms);
        Ok(now_ms)
    }

    async fn sleep_ms(&mut self, duration_ms: u64) -> wasmtime::Result<()> {
        let clock = &self.backends.clock;
        // Only a replay needs it. In a scenario, a look at the clock would use up a fault.
        let is_replay = self.tape.is_replay();
        let due_ms = is_replay.then(|| clock.now_ms().saturating_add(duration_ms));
        let (name, left) = ("clock.sleep-ms", self.meter.time_left());
        let answer = || sleep_within(name, left, clock.sleep_ms(duration_ms));
        ask_or_end(&mut self.tape, &mut self.meter, name, &args!(duration_ms: u64), answer).await?;
        if let Some(due_ms) = due_ms {
            self.told_the_time(due_ms);
        }
        Ok(())
    }
}

impl timers::Host for Host {
    async fn schedule(&mut self, delay_ms: u64) -> wasmtime::Result<u64> {
        let (timers, clock) = (&mut self.timers, &self.backends.clock);
        let (name, answer) = ("timers.schedule", || timers.schedule(clock.steady_ms(), delay_ms));
        ask_now(&mut self.tape, &mut self.meter, name, &args!(delay_ms: u64), answer)
    }

    async fn cancel(&mut self, timer: u64) -> wasmtime::Result<bool> {
        let (name, answer) = ("timers.cancel", || self.timers.cancel(timer));
        ask_now(&mut self.tape, &mut self.meter, name, &args!(timer: u64), answer)
    }
}

impl random::Host for Host {
    async fn next_u64(&mut self) -> wasmtime::Result<u64> {
        let random = &self.backends.random;
        let answer = || random.next_u64();
        ask_now(&mut self.tape, &mut self.meter, "random.next-u64", &Nothing {}, answer)
    }
}

impl metrics::Host for Host {
    fn counter_add(&mut self, name: String, labels: Vec<metrics::Label>, delta: u64) -> wasmtime::Result<()> {
        self.metric(&name, &labels, Line::CounterAdd(delta))
    }

    fn gauge_set(&mut self, name: String, labels: Vec<metrics::Label>, value: f64) -> wasmtime::Result<()> {
        self.metric(&name, &labels, Line::GaugeSet(value))
    }

    fn histogram_observe(&mut self, name: String, labels: Vec<metrics::Label>, value: f64) -> wasmtime::Result<()> {
        self.metric(&name, &labels, Line::HistogramObserve(value))
    }
}
