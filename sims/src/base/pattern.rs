//! Patterns for texts.

/// Whether `text` fits the pattern, in which each `*` stands for any text.
pub(crate) fn fits_pattern(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = pieces.next_back() else {
        return rest.is_empty();
    };
    for piece in pieces {
        // The leftmost match leaves the most text for the pieces that follow.
        let Some((_, after)) = rest.split_once(piece) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, fits) in [
            ("*", "/anything/at?all", true),
            ("/a.json", "/a.json", true),
            ("/a.json", "/a.json/1", false),
            ("/a.json*", "/a.json/1", true),
            ("/a.json*", "/a.json", true),
            ("/a.json/*", "/a.json", false),
            ("*/tags/*", "/r/1/tags/t", true),
            ("*/tags/*", "/r/1/tag/t", false),
            ("/r/*/tags/*x", "/r/1/tags/yx", true),
            ("/r/*/tags/*x", "/r/1/tags/xy", false),
            ("a*a", "a", false),
            ("a**a", "aa", true),
        ] {
            assert_eq!(fits_pattern(pattern, text), fits, "{pattern} against {text}");
        }
    }
}
