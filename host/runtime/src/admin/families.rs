//! Collects series into families, as Prometheus' text format requires: each name once, with one kind and one help text,
//! and each set of labels once.
//!
//! Guests choose the names of their series freely. Characters that the format forbids are replaced. Series that are
//! then duplicates, or have two kinds, are left out and counted.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{TEXT_FORMAT, TextEncoder};

/// The content type of the format.
pub(super) const CONTENT_TYPE: &str = TEXT_FORMAT;

/// A series without its labels, and what kind it is.
pub(super) type Series = (MetricType, Metric);

/// Only increases.
pub(super) fn counter(value: f64) -> Series {
    let (mut counter, mut metric) = (Counter::default(), Metric::default());
    counter.set_value(value);
    metric.set_counter(counter);
    (MetricType::COUNTER, metric)
}

/// Any number.
pub(super) fn gauge(value: f64) -> Series {
    let (mut gauge, mut metric) = (Gauge::default(), Metric::default());
    gauge.set_value(value);
    metric.set_gauge(gauge);
    (MetricType::GAUGE, metric)
}

/// Each bucket has an upper bound and a cumulative count.
pub(super) fn histogram(buckets: impl Iterator<Item = (f64, u64)>, count: u64, sum: f64) -> Series {
    let bucket = |(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    };
    let (mut histogram, mut metric) = (Histogram::default(), Metric::default());
    histogram.set_bucket(buckets.map(bucket).collect());
    histogram.set_sample_count(count);
    histogram.set_sample_sum(sum);
    metric.set_histogram(histogram);
    (MetricType::HISTOGRAM, metric)
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Families {
    by_name: BTreeMap<String, MetricFamily>,
    /// The names of the lines, and the family that each belongs to.
    lines: BTreeMap<String, String>,
    seen: BTreeSet<(String, BTreeMap<String, String>)>,
    /// How many series were left out.
    pub(super) left_out: u64,
}

impl Families {
    /// Adds a series. The first series of a family sets the kind and the help text.
    pub(super) fn add(&mut self, name: &str, help: &str, labels: &[(&str, &str)], (kind, mut metric): Series) {
        let name = clean(name, |c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        let named = labels.iter().map(|(key, value)| (label_name(key), (*value).to_owned()));
        let named: BTreeMap<String, String> = named.collect();
        let is_twice = named.len() < labels.len();
        let is_other = |line: &String| self.lines.get(line).is_some_and(|family| *family != name);
        // The names of the family's lines.
        let ends: &[&str] = match kind {
            MetricType::HISTOGRAM => &["", "_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let lines: Vec<String> = ends.iter().map(|end| format!("{name}{end}")).collect();
        let known = self.by_name.get(&name);
        let fits = known.is_none_or(|family| family.get_field_type() == kind);
        let fits = fits && !is_twice && !lines.iter().any(is_other);
        if !fits || !self.seen.insert((name.clone(), named.clone())) {
            self.left_out += 1;
            return;
        }
        self.lines.extend(lines.into_iter().map(|line| (line, name.clone())));
        let family = self.by_name.entry(name.clone()).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name);
            family.set_help(help.to_owned());
            family.set_field_type(kind);
            family
        });
        let label = |(key, value)| {
            let mut pair = LabelPair::default();
            pair.set_name(key);
            pair.set_value(value);
            pair
        };
        metric.set_label(named.into_iter().map(label).collect());
        family.mut_metric().push(metric);
    }

    /// The text in Prometheus' format, sorted by name.
    ///
    /// # Errors
    /// Never in practice: no family is empty.
    pub(super) fn text(self) -> Result<String, prometheus::Error> {
        let families: Vec<MetricFamily> = self.by_name.into_values().collect();
        TextEncoder::new().encode_to_string(&families)
    }
}

/// The name of a label. Prometheus reserves names that begin with two `_`, and `le`, which identifies the buckets
/// of a histogram.
fn label_name(name: &str) -> String {
    let clean = clean(name, |c| c.is_ascii_alphanumeric() || c == '_');
    let own = clean.trim_start_matches('_');
    match own {
        "" => "_".to_owned(),
        "le" | "quantile" => format!("{own}_"),
        own if clean.starts_with("__") => format!("_{own}"),
        _ => clean,
    }
}

/// The name, with each invalid character replaced by `_`.
fn clean(name: &str, is_allowed: impl Fn(char) -> bool) -> String {
    let mut text: String = name.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    if text.chars().next().is_none_or(|first| first.is_ascii_digit()) {
        text.insert(0, '_');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(add: impl FnOnce(&mut Families)) -> (u64, String) {
        let mut families = Families::default();
        add(&mut families);
        (families.left_out, families.text().unwrap())
    }

    #[test]
    fn a_family_stands_together_under_one_head() {
        let (left_out, text) = text(|families| {
            families.add("b_total", "Bs.", &[("z", "1"), ("a", "q\"\\\n")], counter(2.0));
            families.add("a", "An a.", &[], gauge(0.5));
            families.add("b_total", "Other Bs.", &[], counter(3.0));
        });
        let expected = "# HELP a An a.\n# TYPE a gauge\na 0.5\n\
                        # HELP b_total Bs.\n# TYPE b_total counter\nb_total{a=\"q\\\"\\\\\\n\",z=\"1\"} 2\nb_total 3\n";
        assert_eq!((left_out, text.as_str()), (0, expected));
    }

    #[test]
    fn names_that_the_format_does_not_allow_are_replaced() {
        let (left_out, text) = text(|families| {
            families.add(
                "2 métrics",
                "H",
                &[("a-b", "1"), ("__name__", "x"), ("le", "y"), ("", "z")],
                gauge(1.0),
            );
        });
        assert_eq!(left_out, 0);
        assert!(
            text.ends_with("_2_m_trics{_=\"z\",_name__=\"x\",a_b=\"1\",le_=\"y\"} 1\n"),
            "{text}"
        );
    }

    #[test]
    fn what_would_stand_there_twice_is_left_out() {
        let histogram = || histogram([(1.0, 1)].into_iter(), 2, 3.0);
        let (left_out, text) = text(|families| {
            families.add("h", "H", &[], histogram());
            families.add("h", "H", &[], histogram());
            families.add("h", "H", &[], gauge(1.0));
            families.add("h_count", "H", &[], gauge(1.0));
            families.add("g", "G", &[("a-b", "1"), ("a_b", "2")], gauge(1.0));
            families.add("x_sum", "X", &[], gauge(1.0));
            families.add("x", "X", &[], histogram());
        });
        assert_eq!(left_out, 5, "{text}");
        assert!(
            text.contains("h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n"),
            "{text}"
        );
    }
}
