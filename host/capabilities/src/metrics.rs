//! `trueup:host/metrics`: counters, gauges and histograms of the guests, summed over instances.
//!
//! Metrics are not recorded: they derive from recorded data, so a replay produces them again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use parking_lot::Mutex;

use crate::bindings::host::metrics::Label;

/// The maximum number of series in one registry; lines for further ones are dropped. A guest with a label per object
/// would otherwise fill the host's memory and its operator's time-series database.
pub const SERIES_MAX: usize = 10_000;

/// The maximum size of a series' name and labels together, in bytes; longer lines are dropped.
pub const SERIES_NAME_BYTES_MAX: usize = 1 << 10;

/// The maximum number of labels of a series: a label with empty name and value has no bytes.
pub const LABELS_MAX: usize = 32;

/// Names with this prefix belong to the host.
const OWN_PREFIX: &str = "trueup_";

/// Exceptions to that: guests that ship, and others that do the same job, use these prefixes.
const GUESTS_PREFIXES: [&str; 3] = ["ipam_", "lbaas_", "neg_"];

/// The instance for the host's own lines: they are few, and always fit.
pub const HOST: &str = "host";

/// Buckets of a histogram, upper bounds in the metric's own unit: the Prometheus client libraries' default.
pub const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// A series, and the values of a gauge.
#[derive(Debug)]
struct Kept {
    /// Its guest is the one that wrote the first line.
    sample: Sample,
    /// By instance; the series shows their sum.
    gauges: BTreeMap<String, f64>,
}

/// All series of one host, or of one scenario.
#[derive(Debug, Default)]
pub struct Registry {
    /// By whether a guest owns it, and its name with labels. A guest's series with the name of one of the host's is a
    /// separate series, so that no guest can forge the host's metrics.
    series: Mutex<BTreeMap<(bool, String), Kept>>,
}

/// The writer of a line.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// The host itself.
    Host,
    /// An instance of a guest.
    Guest {
        /// The guest's name.
        guest: &'a str,
        /// The instance.
        instance: &'a str,
    },
}

/// The value of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// A counter's sum.
    Counter(u64),
    /// A gauge's sum over instances.
    Gauge(f64),
    /// A histogram.
    Histogram {
        /// For each of [`BUCKETS`], the number of observations up to that bound.
        counts: [u64; BUCKETS.len()],
        /// The number of observations.
        count: u64,
        /// Their sum.
        sum: f64,
    },
}

/// A series to be shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The guest that owns it, or [`HOST`] for the host's own.
    pub guest: String,
    /// Its name, as the guest gave it.
    pub name: String,
    /// Keys and values as the guest gave them, ordered by key.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub shown: Shown,
}

/// One metric line of a guest.
#[derive(Debug, Clone, Copy)]
pub enum Line {
    /// Adds to a counter.
    CounterAdd(u64),
    /// Sets a gauge of this instance.
    GaugeSet(f64),
    /// Adds an observation to a histogram.
    HistogramObserve(f64),
}

/// Whether the name is reserved for the host. Characters that the format does not allow are shown as `_`.
fn is_the_hosts(name: &str) -> bool {
    let shown = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let rest = shown.strip_prefix(OWN_PREFIX);
    rest.is_some_and(|rest| !GUESTS_PREFIXES.iter().any(|prefix| rest.starts_with(prefix)))
}

/// `name{key="value",...}`, with labels ordered by key and values escaped as in Prometheus' text format.
pub fn series_name(name: &str, labels: &[Label]) -> String {
    let mut sorted: Vec<&Label> = labels.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let mut text = String::from(name);
    for (index, label) in sorted.iter().enumerate() {
        let open = if index == 0 { '{' } else { ',' };
        let value = label.value.replace('\\', "\\\\").replace('"', "\\\"");
        let value = value.replace('\n', "\\n");
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{open}{}=\"{value}\"", label.key);
    }
    if !sorted.is_empty() {
        text.push('}');
    }
    text
}

impl Registry {
    /// Adds to a counter of the host.
    pub fn count(&self, name: &str, labels: &[(&str, &str)], delta: u64) {
        let label = |(key, value): &(&str, &str)| Label {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        };
        let labels: Vec<Label> = labels.iter().map(label).collect();
        self.take(Origin::Host, name, &labels, Line::CounterAdd(delta));
    }

    /// Takes a line. Returns false if it was dropped: the registry is full, the name is used for another kind of
    /// series, too long, or the host's if a guest uses it, or the number is not finite.
    pub fn take(&self, origin: Origin<'_>, name: &str, labels: &[Label], line: Line) -> bool {
        let (is_guests, guest, instance) = match origin {
            Origin::Host => (false, HOST, HOST),
            Origin::Guest { .. } if is_the_hosts(name) => return false,
            Origin::Guest { guest, instance } => (true, guest, instance),
        };
        // A sum with an infinite number, or with NaN, never becomes finite again.
        let is_finite = match line {
            Line::CounterAdd(_) => true,
            Line::GaugeSet(value) | Line::HistogramObserve(value) => value.is_finite(),
        };
        let of_labels = labels.iter().map(|label| label.key.len() + label.value.len());
        let bytes = name.len() + of_labels.sum::<usize>();
        if bytes > SERIES_NAME_BYTES_MAX || labels.len() > LABELS_MAX || !is_finite {
            return false;
        }
        let series = (is_guests, series_name(name, labels));
        let mut all = self.series.lock();
        if all.len() >= SERIES_MAX && is_guests && !all.contains_key(&series) {
            return false;
        }
        let kept = all
            .entry(series)
            .or_insert_with(|| Kept::new(guest, name, labels, line));
        match (&mut kept.sample.shown, line) {
            (Shown::Counter(sum), Line::CounterAdd(delta)) => *sum = sum.saturating_add(delta),
            (Shown::Gauge(_), Line::GaugeSet(value)) => {
                kept.gauges.insert(instance.to_owned(), value);
            }
            (Shown::Histogram { counts, count, sum }, Line::HistogramObserve(value)) => {
                for (bound, bucket) in BUCKETS.iter().zip(counts) {
                    *bucket += u64::from(value <= *bound);
                }
                *count += 1;
                *sum += value;
            }
            _ => return false,
        }
        true
    }

    /// Forgets the gauge values of a guest's instance that is gone for good, and gauges without other values. What it
    /// counted and observed did happen, and remains.
    pub fn forget(&self, instance: &str) {
        let mut all = self.series.lock();
        all.retain(|(is_guests, _), kept| {
            !is_guests || kept.gauges.remove(instance).is_none() || !kept.gauges.is_empty()
        });
    }

    /// The number of a series: a counter's sum, a gauge's sum over instances, a histogram's count. If two series have
    /// this name, the host's. `None` if the series was never written.
    pub fn number(&self, series: &str) -> Option<f64> {
        let all = self.series.lock();
        let of = |is_guests| all.get(&(is_guests, series.to_owned()));
        of(false).or_else(|| of(true)).map(Kept::number)
    }

    /// The value that one instance of a guest gave a gauge, by the series' name. `None` if it never did, or is
    /// forgotten.
    pub fn gauge_of(&self, instance: &str, series: &str) -> Option<f64> {
        let all = self.series.lock();
        let kept = all.get(&(true, series.to_owned()))?;
        kept.gauges.get(instance).copied()
    }

    /// Every series with its current value, ordered by name and labels; the host's first.
    pub fn samples(&self) -> Vec<Sample> {
        let all = self.series.lock();
        all.values().map(Kept::sample).collect()
    }
}

impl Kept {
    fn new(guest: &str, name: &str, labels: &[Label], line: Line) -> Self {
        let labels = labels.iter().map(|label| (label.key.clone(), label.value.clone()));
        let mut labels: Vec<_> = labels.collect();
        labels.sort();
        let shown = match line {
            Line::CounterAdd(_) => Shown::Counter(0),
            Line::GaugeSet(_) => Shown::Gauge(0.0),
            Line::HistogramObserve(_) => Shown::Histogram {
                counts: [0; BUCKETS.len()],
                count: 0,
                sum: 0.0,
            },
        };
        Self {
            sample: Sample {
                guest: guest.to_owned(),
                name: name.to_owned(),
                labels,
                shown,
            },
            gauges: BTreeMap::new(),
        }
    }

    fn number(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a metric is a float wherever it is shown")]
        match &self.sample.shown {
            Shown::Counter(sum) => *sum as f64,
            Shown::Gauge(_) => self.gauges.values().sum(),
            Shown::Histogram { count, .. } => *count as f64,
        }
    }

    fn sample(&self) -> Sample {
        let mut sample = self.sample.clone();
        if let Shown::Gauge(sum) = &mut sample.shown {
            *sum = self.gauges.values().sum();
        }
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(instance: &str) -> Origin<'_> {
        Origin::Guest { guest: "", instance }
    }

    fn label(key: &str, value: &str) -> Label {
        Label {
            key: key.into(),
            value: value.into(),
        }
    }

    #[test]
    fn series_are_named_by_labels_in_order_of_their_keys() {
        assert_eq!(series_name("up", &[]), "up");
        assert_eq!(
            series_name("n", &[label("z", "1"), label("a", "q\"\\\n")]),
            r#"n{a="q\"\\\n",z="1"}"#
        );
    }

    #[test]
    fn counters_add_gauges_sum_over_instances_histograms_count() {
        let registry = Registry::default();
        assert!(registry.take(of("a"), "c", &[], Line::CounterAdd(2)));
        assert!(registry.take(of("b"), "c", &[], Line::CounterAdd(3)));
        assert_eq!(registry.number("c"), Some(5.0));
        assert!(registry.take(of("a"), "g", &[], Line::GaugeSet(4.0)));
        assert!(registry.take(of("b"), "g", &[], Line::GaugeSet(1.0)));
        assert!(registry.take(of("a"), "g", &[], Line::GaugeSet(0.0)));
        assert_eq!(registry.number("g"), Some(1.0));
        assert!(registry.take(of("a"), "h", &[], Line::HistogramObserve(0.3)));
        assert_eq!(registry.number("h"), Some(1.0));
        assert!(
            !registry.take(of("a"), "c", &[], Line::GaugeSet(1.0)),
            "a name has one kind"
        );
        assert_eq!(registry.number("never"), None);
        let samples = registry.samples();
        assert_eq!(samples.len(), 3);
        assert_eq!(samples[1].shown, Shown::Gauge(1.0));
    }

    #[test]
    fn a_series_is_shown_with_its_labels_and_of_whom_it_is() {
        let registry = Registry::default();
        let origin = Origin::Guest {
            guest: "lbaas",
            instance: "default/web",
        };
        let labels = [label("z", "\"1\""), label("a", "2")];
        assert!(registry.take(origin, "n_total", &labels, Line::CounterAdd(2)));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            registry.samples(),
            [Sample {
                guest: "lbaas".to_owned(),
                name: "n_total".to_owned(),
                labels: vec![pair("a", "2"), pair("z", "\"1\"")],
                shown: Shown::Counter(2),
            }]
        );
    }

    #[test]
    fn a_full_registry_takes_no_new_series_but_still_the_old() {
        let registry = Registry::default();
        for index in 0..SERIES_MAX {
            assert!(registry.take(of("a"), &format!("n{index}"), &[], Line::CounterAdd(1)));
        }
        assert!(!registry.take(of("a"), "one more", &[], Line::CounterAdd(1)));
        assert!(registry.take(of("a"), "n0", &[], Line::CounterAdd(1)));
        assert!(registry.take(Origin::Host, "the host's", &[], Line::CounterAdd(1)));
        assert!(!registry.take(
            Origin::Host,
            &"n".repeat(SERIES_NAME_BYTES_MAX + 1),
            &[],
            Line::CounterAdd(1)
        ));
    }
    #[test]
    fn a_guest_does_not_write_what_the_host_says_of_itself() {
        let registry = Registry::default();
        // Whatever its name is.
        let guest = Origin::Guest {
            guest: HOST,
            instance: HOST,
        };
        assert!(registry.take(guest, "n_total", &[], Line::GaugeSet(7.0)));
        assert!(registry.take(Origin::Host, "n_total", &[], Line::CounterAdd(1)));
        assert!(registry.take(guest, "n_total", &[], Line::GaugeSet(8.0)));
        assert_eq!(registry.number("n_total"), Some(1.0));
        let shown: Vec<Shown> = registry.samples().into_iter().map(|sample| sample.shown).collect();
        assert_eq!(shown, [Shown::Counter(1), Shown::Gauge(8.0)]);
    }

    #[test]
    fn a_guest_adds_nothing_to_a_name_of_the_host() {
        let registry = Registry::default();
        let ipam = Origin::Guest {
            guest: "ipam",
            instance: "node",
        };
        for name in ["trueup_keys", "trueup-keys", "trueup_ipamx", "trueup_", "trueup_ipam"] {
            assert!(!registry.take(ipam, name, &[], Line::GaugeSet(1.0)), "{name}");
        }
        for name in ["trueup_ipam_pods", "trueup_neg_x", "ipam_pods", "trueupx"] {
            assert!(registry.take(ipam, name, &[], Line::GaugeSet(1.0)), "{name}");
        }
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused() {
        let registry = Registry::default();
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!registry.take(of("a"), "h", &[], Line::HistogramObserve(value)));
            assert!(!registry.take(of("a"), "g", &[], Line::GaugeSet(value)));
        }
        assert!(registry.take(of("a"), "h", &[], Line::HistogramObserve(1.0)));
        let shown: Vec<Shown> = registry.samples().into_iter().map(|sample| sample.shown).collect();
        assert!(matches!(shown[..], [Shown::Histogram { count: 1, sum: 1.0, .. }]));
    }

    #[test]
    fn a_series_has_a_limited_number_of_labels() {
        let registry = Registry::default();
        let labels = vec![label("", ""); LABELS_MAX + 1];
        assert!(!registry.take(of("a"), "n", &labels, Line::CounterAdd(1)));
        assert!(registry.take(of("a"), "n", &labels[1..], Line::CounterAdd(1)));
    }

    #[test]
    fn gauges_of_an_instance_that_is_gone_are_forgotten() {
        let registry = Registry::default();
        let own = [label("service", "a")];
        assert!(registry.take(of("a"), "g", &[], Line::GaugeSet(4.0)));
        assert!(registry.take(of("b"), "g", &[], Line::GaugeSet(1.0)));
        assert!(registry.take(of("a"), "g", &own, Line::GaugeSet(2.0)));
        assert!(registry.take(of("a"), "c", &[], Line::CounterAdd(3)));
        registry.forget("a");
        assert_eq!(registry.samples().len(), 2);
        assert_eq!((registry.number("c"), registry.number("g")), (Some(3.0), Some(1.0)));
        assert!(registry.take(of("a"), "g", &[], Line::GaugeSet(5.0)));
        assert_eq!(registry.number("g"), Some(6.0));
    }
}
