//! The operator's settings and their defaults.

use serde::Serialize;
use serde_json::{Value, json};
use trueup_guest::network::Network;
use trueup_guest::settings::Given;
use trueup_guest::snapshot;

use crate::ruleset::Family;

/// The guest's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Settings {
    /// Not empty.
    pub(crate) table_name: String,
    /// At least one, in order.
    pub(crate) families: Vec<Family>,
    /// Of either family, without host bits.
    pod_subnets: Vec<Network>,
    /// One bit.
    pub(crate) masquerade_mark: u32,
}

impl Settings {
    /// Parses the JSON object of `lifecycle.init`.
    ///
    /// # Errors
    /// The first wrong setting by name.
    pub(crate) fn read(config: &str) -> Result<Self, String> {
        let mut given = Given::read(config)?;
        let families = given.value("families", r#"["ip"], ["ip6"] or ["ip","ip6"]"#, families);
        let pod_subnets = given.value("pod_subnets", "a list of addresses with prefix length", subnets);
        let mark = given.value("masquerade_mark", "one bit: a power of two from 1 to 2147483648", mark);
        let settings = Self {
            table_name: given.filled("table_name").unwrap_or_else(|| "trueup".to_owned()),
            families: families.unwrap_or_else(|| vec![Family::Ip, Family::Ip6]),
            pod_subnets: pod_subnets.unwrap_or_default(),
            // The bit that kube-proxy uses too.
            masquerade_mark: mark.unwrap_or(0x4000),
        };
        given.end(settings)
    }

    /// The family's pod subnets, ascending, without those contained in another.
    pub(crate) fn pod_networks(&self, family: Family) -> impl Iterator<Item = Network> {
        let all = self.pod_subnets.iter().copied();
        let mut networks: Vec<Network> = all.filter(|one| family.has(one.address())).collect();
        // A containing network does not start later; if both start at the same address, it has the shorter prefix.
        networks.sort_unstable();
        networks.dedup_by(|inner, outer| outer.contains(inner.address()));
        networks.into_iter()
    }

    /// The same text for the same settings.
    pub(crate) fn as_text(&self) -> String {
        snapshot::write(self)
    }
}

fn families(value: &Value) -> Option<Vec<Family>> {
    let choices = [vec![Family::Ip], vec![Family::Ip6], vec![Family::Ip, Family::Ip6]];
    choices.into_iter().find(|choice| json!(choice) == *value)
}

fn subnets(value: &Value) -> Option<Vec<Network>> {
    let subnet = |text: &Value| Some(Network::parse(text.as_str()?)?.without_host_bits());
    value.as_array()?.iter().map(subnet).collect()
}

fn mark(value: &Value) -> Option<u32> {
    let mark = u32::try_from(value.as_u64()?).ok()?;
    mark.is_power_of_two().then_some(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_set_is_the_default() {
        let expected = Settings {
            table_name: "trueup".to_owned(),
            families: vec![Family::Ip, Family::Ip6],
            pod_subnets: Vec::new(),
            masquerade_mark: 16384,
        };
        assert_eq!(Settings::read("{}"), Ok(expected));
    }

    #[test]
    fn everything_can_be_set() {
        let config = r#"{"table_name": "t", "families": ["ip6"], "pod_subnets": ["10.1.2.3/16"], "masquerade_mark": 2147483648}"#;
        let expected = Settings {
            table_name: "t".to_owned(),
            families: vec![Family::Ip6],
            pod_subnets: vec![Network::parse("10.1.0.0/16").unwrap()],
            masquerade_mark: 1 << 31,
        };
        assert_eq!(Settings::read(config), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        let families = r#"must be ["ip"], ["ip6"] or ["ip","ip6"]"#;
        let mark = "must be one bit: a power of two from 1 to 2147483648";
        let subnets = "must be a list of addresses with prefix length";
        for (config, error) in [
            ("[]", "config: was [], must be a JSON object".to_owned()),
            (
                r#"{"mark": 1}"#,
                "mark: was 1, must not be set: the settings are families, masquerade_mark, pod_subnets, table_name"
                    .to_owned(),
            ),
            (
                r#"{"table_name": ""}"#,
                r#"table_name: was "", must be a text that is not empty"#.to_owned(),
            ),
            (r#"{"families": []}"#, format!("families: was [], {families}")),
            (
                r#"{"families": ["ip6", "ip"]}"#,
                format!(r#"families: was ["ip6","ip"], {families}"#),
            ),
            (r#"{"families": "ip"}"#, format!(r#"families: was "ip", {families}"#)),
            (
                r#"{"pod_subnets": ["10.1.0.0"]}"#,
                format!(r#"pod_subnets: was ["10.1.0.0"], {subnets}"#),
            ),
            (
                r#"{"pod_subnets": "10.1.0.0/16"}"#,
                format!(r#"pod_subnets: was "10.1.0.0/16", {subnets}"#),
            ),
            (r#"{"masquerade_mark": 3}"#, format!("masquerade_mark: was 3, {mark}")),
            (r#"{"masquerade_mark": 0}"#, format!("masquerade_mark: was 0, {mark}")),
            (
                r#"{"masquerade_mark": 4294967296}"#,
                format!("masquerade_mark: was 4294967296, {mark}"),
            ),
            (
                r#"{"masquerade_mark": 1.0}"#,
                format!("masquerade_mark: was 1.0, {mark}"),
            ),
        ] {
            assert_eq!(Settings::read(config), Err(error), "{config}");
        }
    }

    #[test]
    fn a_subnet_inside_another_goes_without_saying() {
        let settings = Settings::read(
            r#"{"pod_subnets": ["10.2.0.0/24", "fd00::/16", "10.1.3.0/24", "10.1.0.0/16", "10.1.0.0/24", "10.2.0.0/24",
                "9.0.0.0/8", "fd00::/64", "10.2.1.0/24"]}"#,
        );
        let settings = settings.unwrap();
        let networks = |family| -> Vec<String> { settings.pod_networks(family).map(|one| one.to_string()).collect() };
        assert_eq!(
            networks(Family::Ip),
            ["9.0.0.0/8", "10.1.0.0/16", "10.2.0.0/24", "10.2.1.0/24"]
        );
        assert_eq!(networks(Family::Ip6), ["fd00::/16"]);
    }
}
