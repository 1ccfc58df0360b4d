//! The figures in a file, and which rose since.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::figures::Figure;

const HEADER: &str = "# What `cargo run -p trueup-shape -- --check` lets no figure rise above (tools/shape/README.md), in all and by crate or folder.
# Where a figure fell, or must rise for once, `cargo run -p trueup-shape -- --write` writes this file anew.
";

/// The most places to list for a figure that rose.
const PLACES_SHOWN: usize = 5;

/// A stored figure: its value, and the share of each room.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    value: usize,
    rooms: BTreeMap<String, usize>,
}

fn rooms(figure: &Figure) -> BTreeMap<String, usize> {
    let mut rooms = BTreeMap::new();
    for place in &figure.places {
        *rooms.entry(place.room.clone()).or_default() += place.count;
    }
    rooms
}

/// The text of the file for these figures.
pub(crate) fn written(figures: &[Figure]) -> String {
    let mut text = HEADER.to_owned();
    for figure in figures {
        // Writing to a String can't fail.
        let _ = writeln!(text, "\n{} = {}", figure.name, figure.value);
        for (room, count) in rooms(figure) {
            let _ = writeln!(text, "  {room} = {count}");
        }
    }
    text
}

/// Parses the text of [`written`].
///
/// # Errors
/// One line: which line is invalid.
pub(crate) fn read(text: &str) -> Result<BTreeMap<String, Kept>, String> {
    let mut kept: BTreeMap<String, Kept> = BTreeMap::new();
    let mut last = None;
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = line
            .split_once(" = ")
            .and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let (name, value) = parsed.ok_or_else(|| format!("line {}: `{line}` is not `NAME = NUMBER`", at + 1))?;
        if let Some(room) = name.strip_prefix("  ") {
            let figure = last.as_ref().and_then(|last: &String| kept.get_mut(last));
            let figure = figure.ok_or_else(|| format!("line {}: no figure comes before `{line}`", at + 1))?;
            figure.rooms.insert(room.to_owned(), value);
        } else {
            kept.entry(name.to_owned()).or_default().value = value;
            last = Some(name.to_owned());
        }
    }
    Ok(kept)
}

/// One line for each figure that rose: by how much, and where.
pub(crate) fn risen(figures: &[Figure], kept: &BTreeMap<String, Kept>) -> Vec<String> {
    let none = Kept::default();
    let rose = figures.iter().filter_map(|figure| {
        let kept = kept.get(figure.name).unwrap_or(&none);
        (figure.value > kept.value).then(|| {
            format!(
                "{}: {} rose to {}; {}",
                figure.name,
                kept.value,
                figure.value,
                places(figure, kept)
            )
        })
    });
    rose.collect()
}

/// The rooms in which a figure rose, with some places.
fn places(figure: &Figure, kept: &Kept) -> String {
    let mut rose = rooms(figure);
    rose.retain(|room, count| *count > kept.rooms.get(room).copied().unwrap_or(0));
    let counts = rose
        .iter()
        .map(|(room, count)| format!("{room} {} -> {count}", kept.rooms.get(room).copied().unwrap_or(0)));
    let counts: Vec<_> = counts.collect();
    let inside: Vec<_> = figure
        .places
        .iter()
        .filter(|place| rose.contains_key(&place.room))
        .map(|place| place.text.as_str())
        .collect();
    let more = inside.len().saturating_sub(PLACES_SHOWN);
    let shown: Vec<_> = inside.into_iter().take(PLACES_SHOWN).collect();
    let more = if more > 0 {
        format!(", and {more} more (`--list '{}'`)", figure.name)
    } else {
        String::new()
    };
    format!("{}: {}{more}", counts.join(", "), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Place;

    fn figure(counts: &[(&str, usize)]) -> Figure {
        let place = |(room, count): &(&str, usize)| Place {
            room: (*room).to_owned(),
            text: format!("{room}/x.rs:1"),
            count: *count,
        };
        Figure {
            name: "things",
            value: counts.iter().map(|(_, count)| count).sum(),
            places: counts.iter().map(place).collect(),
        }
    }

    #[test]
    fn a_figure_that_rose_says_where() {
        let kept = read(&written(&[figure(&[("host/a", 1), ("host/b", 2)])])).unwrap();
        assert_eq!(
            risen(&[figure(&[("host/a", 1), ("host/b", 2)])], &kept),
            Vec::<String>::new()
        );
        assert_eq!(risen(&[figure(&[("host/a", 3)])], &kept), Vec::<String>::new());
        let risen = risen(&[figure(&[("host/a", 1), ("host/b", 3)])], &kept);
        assert_eq!(risen, ["things: 3 rose to 4; host/b 2 -> 3: host/b/x.rs:1"]);
    }

    #[test]
    fn a_figure_that_is_not_kept_may_not_be_above_zero() {
        assert_eq!(risen(&[figure(&[("host/a", 1)])], &BTreeMap::new()).len(), 1);
        assert_eq!(risen(&[figure(&[])], &BTreeMap::new()), Vec::<String>::new());
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        assert_eq!(
            read("# a\nthings = many\n").unwrap_err(),
            "line 2: `things = many` is not `NAME = NUMBER`"
        );
        assert_eq!(
            read("  host/a = 1\n").unwrap_err(),
            "line 1: no figure comes before `  host/a = 1`"
        );
    }
}
