//! Compares texts eight bytes at a time.
//!
//! In WebAssembly, `memcmp` goes byte by byte, and a plan of ten thousand resources does little but compare: that took
//! half of a guest's time. The order is that of `str`, by bytes.

use std::cmp::Ordering;

/// Bytes compared in one step.
const WORD: usize = size_of::<u64>();

/// As `left.cmp(right)`.
pub fn compare(left: &str, right: &str) -> Ordering {
    let both = left.len().min(right.len());
    let (left_start, _) = left.as_bytes().split_at_checked(both).unwrap_or_default();
    let (right_start, _) = right.as_bytes().split_at_checked(both).unwrap_or_default();
    let left_words = left_start.as_chunks::<WORD>().0;
    let right_words = right_start.as_chunks::<WORD>().0;
    for (left, right) in left_words.iter().zip(right_words) {
        if left != right {
            return number(left).cmp(&number(right));
        }
    }
    // Less than a word is left. The last whole word overlaps with bytes that were equal, which changes nothing.
    let rest = match (left_start.last_chunk::<WORD>(), right_start.last_chunk::<WORD>()) {
        (Some(left), Some(right)) => number(left).cmp(&number(right)),
        _ => left_start.iter().cmp(right_start),
    };
    rest.then_with(|| left.len().cmp(&right.len()))
}

/// Of two words, the one with the larger first differing byte gives the larger number.
fn number(word: &[u8; WORD]) -> u64 {
    u64::from_be_bytes(*word)
}

/// As `left == right`.
pub fn are_same(left: &str, right: &str) -> bool {
    left.len() == right.len() && compare(left, right).is_eq()
}

/// As `text.strip_suffix(end)`.
pub fn without_end<'t>(text: &'t str, end: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(text.len().checked_sub(end.len())?)?;
    are_same(rest, end).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(left: &str, right: &str) {
        assert_eq!(compare(left, right), left.cmp(right), "{left:?} and {right:?}");
        assert_eq!(are_same(left, right), left == right, "{left:?} and {right:?}");
        assert_eq!(
            without_end(left, right),
            left.strip_suffix(right),
            "{left:?} and {right:?}"
        );
    }

    #[test]
    fn at_and_around_the_end_of_a_word() {
        let texts = [
            "",
            "a",
            "b",
            "1234567",
            "12345678",
            "12345679",
            "123456789",
            "1234567812345678",
            "12345678ä",
            "ä",
        ];
        for left in texts {
            for right in texts {
                check(left, right);
                check(&format!("{left}{right}"), right);
            }
        }
    }

    proptest! {
        // Few letters, so that texts are mostly equal and differ late.
        #[test]
        fn as_str_itself(left in "[abä]{0,20}", right in "[abä]{0,20}", end in "[abä]{0,20}") {
            check(&left, &right);
            check(&format!("{left}{end}"), &end);
            check(&format!("{left}{end}"), &format!("{left}{right}"));
        }
    }
}
