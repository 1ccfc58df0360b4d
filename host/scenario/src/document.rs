//! Reads a scenario file, YAML or JSON, as a tree with line numbers. JSON is read as YAML.

use serde::de::Error as _;
use trueup_sources::yaml::{FieldError, Node};

/// Reads a document.
pub(crate) fn parse(text: &str) -> Result<Node, FieldError> {
    let mut options = serde_saphyr::options! {
        // `yes`, `no`, `on` and `n` are names in a scenario, not booleans.
        strict_booleans: true,
        with_snippet: false,
    };
    if let Some(budget) = &mut options.budget {
        // One `desired` with a hundred references is normal in a scenario, not an attack. The limits on nodes and on
        // replayed events still bound the expansion of aliases.
        budget.enforce_alias_anchor_ratio = false;
        // The largest scenarios of this project have 12,000 nodes; no file written by hand has more than this.
        budget.max_nodes = 2_000_000;
        budget.max_events = 4_000_000;
    }
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The message repeats the position after its first line, and the line already precedes it.
        let message = error.without_snippet().to_string();
        let mut wrong = FieldError::custom(message.lines().next().unwrap_or_default());
        wrong.line = error.location().map(|location| location.line());
        wrong
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trueup_sources::yaml::Value;

    use super::*;

    #[test]
    fn values_are_those_of_json() {
        let text = "a: [1, -2, 0.5, 5.0, yes, n, true, ~, null, \"7\", 0x10]\n\
                    80: \"adv_check\"\n\
                    10.0.0.5: 10.0.0.6\n\
                    '': {x: 18446744073709551615}\n";
        let expected = json!({
            "a": [1, -2, 0.5, 5.0, "yes", "n", true, null, null, "7", 16],
            "80": "adv_check",
            "10.0.0.5": "10.0.0.6",
            "": {"x": u64::MAX},
        });
        assert_eq!(parse(text).unwrap().to_json(), expected);
    }

    #[test]
    fn json_is_read_as_the_yaml_that_it_is() {
        let value = json!({"a": [1, {"b": null, "c": "\u{1f600} \"\\/\n\t:"}], "d": {}, "e": [], "f": -1.5});
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(parse(&pretty).unwrap().to_json(), value);
        assert_eq!(parse(&value.to_string()).unwrap().to_json(), value);
        assert_eq!(parse(&pretty.replace("  ", "\t")).unwrap().to_json(), value);
        assert_eq!(
            parse(r#"{"a":"\ud83d\ude00\/"}"#).unwrap().to_json(),
            json!({"a": "\u{1f600}/"})
        );
    }

    #[test]
    fn every_node_knows_its_line() {
        let node = parse("a: 1\nb:\n  - &x {c: 2}\n  - *x\n").unwrap();
        let Value::Map(entries) = &node.value else {
            panic!("{node:?}")
        };
        assert_eq!(entries.iter().map(|entry| entry.line).collect::<Vec<_>>(), [1, 2]);
        let Value::List(items) = &entries[1].value.value else {
            panic!("{node:?}")
        };
        assert_eq!(items.iter().map(|item| item.line).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn what_is_no_document_is_an_error_on_its_line() {
        let line = |text| parse(text).unwrap_err().line;
        assert_eq!(line("a: 1\nb: [1\n"), Some(2));
        assert_eq!(line("a: 1\na: 2\n"), Some(2));
        assert_eq!(line("a: *missing\n"), Some(1));
    }
}
