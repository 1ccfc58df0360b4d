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

/// The value of a series.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Only increases.
    Counter(f64),
    /// Any number.
    Gauge(f64),
    /// Pairs of an upper bound and a cumulative count; the total count; the sum.
    Histogram {
        buckets: Vec<(f64, u64)>,
        count: u64,
        sum: f64,
    },
}

impl Value {
    fn kind(&self) -> MetricType {
        match self {
            Self::Counter(_) => MetricType::COUNTER,
            Self::Gauge(_) => MetricType::GAUGE,
            Self::Histogram { .. } => MetricType::HISTOGRAM,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Families {
    by_name: BTreeMap<String, MetricFamily>,
    /// The names of the lines, and the family that each belongs to.
    lines: BTreeMap<String, String>,
    seen: BTreeSet<(String, Vec<(String, String)>)>,
    /// How many series were left out.
    left_out: u64,
}

impl Families {
    /// Adds a series. The first series of a family sets the kind and the help text.
    pub(super) fn add(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Value) {
        if !self.try_add(name, help, labels, value) {
            self.left_out += 1;
        }
    }

    fn try_add(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: Value) -> bool {
        let name = metric_name(name);
        let mut named: Vec<(String, String)> = labels
            .iter()
            .map(|(key, value)| (label_name(key), (*value).to_owned()))
            .collect();
        named.sort();
        let mut keys = named.iter().map(|(key, _)| key);
        let mut before = keys.next();
        for key in keys {
            if before == Some(key) {
                return false;
            }
            before = Some(key);
        }
        let kind = value.kind();
        let is_other = |line: &String| self.lines.get(line).is_some_and(|family| *family != name);
        let lines = lines_of(&name, kind);
        let fits = self
            .by_name
            .get(&name)
            .is_none_or(|family| family.get_field_type() == kind);
        if !fits || lines.iter().any(is_other) || !self.seen.insert((name.clone(), named.clone())) {
            return false;
        }
        for line in lines {
            self.lines.insert(line, name.clone());
        }
        let family = self.by_name.entry(name.clone()).or_insert_with(|| {
            let mut family = MetricFamily::default();
            family.set_name(name);
            family.set_help(help.to_owned());
            family.set_field_type(kind);
            family
        });
        family.mut_metric().push(metric(named, value));
        true
    }

    /// How many series were left out.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
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

/// The names of a family's lines.
fn lines_of(name: &str, kind: MetricType) -> Vec<String> {
    match kind {
        MetricType::HISTOGRAM => ["", "_bucket", "_sum", "_count"]
            .map(|end| format!("{name}{end}"))
            .to_vec(),
        _ => vec![name.to_owned()],
    }
}

fn metric(labels: Vec<(String, String)>, value: Value) -> Metric {
    let pair = |(key, value): (String, String)| {
        let mut pair = LabelPair::default();
        pair.set_name(key);
        pair.set_value(value);
        pair
    };
    let mut metric = Metric::from_label(labels.into_iter().map(pair).collect());
    match value {
        Value::Counter(number) => {
            let mut counter = Counter::default();
            counter.set_value(number);
            metric.set_counter(counter);
        }
        Value::Gauge(number) => {
            let mut gauge = Gauge::default();
            gauge.set_value(number);
            metric.set_gauge(gauge);
        }
        Value::Histogram { buckets, count, sum } => {
            let bucket = |(bound, count): (f64, u64)| {
                let mut bucket = Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(count);
                bucket
            };
            let mut histogram = Histogram::default();
            histogram.set_bucket(buckets.into_iter().map(bucket).collect());
            histogram.set_sample_count(count);
            histogram.set_sample_sum(sum);
            metric.set_histogram(histogram);
        }
    }
    metric
}

/// The name, with each invalid character replaced by `_`.
fn metric_name(name: &str) -> String {
    clean(name, |c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

/// The same for a label name. Prometheus reserves names that begin with two `_`, and `le`, which identifies the buckets
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
        (families.left_out(), families.text().unwrap())
    }

    #[test]
    fn a_family_stands_together_under_one_head() {
        let (left_out, text) = text(|families| {
            families.add("b_total", "Bs.", &[("z", "1"), ("a", "q\"\\\n")], Value::Counter(2.0));
            families.add("a", "An a.", &[], Value::Gauge(0.5));
            families.add("b_total", "Other Bs.", &[], Value::Counter(3.0));
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
                Value::Gauge(1.0),
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
        let histogram = || Value::Histogram {
            buckets: vec![(1.0, 1)],
            count: 2,
            sum: 3.0,
        };
        let (left_out, text) = text(|families| {
            families.add("h", "H", &[], histogram());
            families.add("h", "H", &[], histogram());
            families.add("h", "H", &[], Value::Gauge(1.0));
            families.add("h_count", "H", &[], Value::Gauge(1.0));
            families.add("g", "G", &[("a-b", "1"), ("a_b", "2")], Value::Gauge(1.0));
            families.add("x_sum", "X", &[], Value::Gauge(1.0));
            families.add("x", "X", &[], histogram());
        });
        assert_eq!(left_out, 5, "{text}");
        assert!(
            text.contains("h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n"),
            "{text}"
        );
    }
}
