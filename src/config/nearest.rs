//! "Did you mean …?"

use crate::decide::suggest::nearest;

/// The hint, if any of these words is near enough to what was written.
pub(super) fn did_you_mean<'w>(wrong: &str, words: impl IntoIterator<Item = &'w str>) -> Option<String> {
    nearest(wrong, words).map(|meant| format!("did you mean `{meant}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::{SectionKind, names};

    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, names(SectionKind::Source)), expected, "{word}");
    }

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_another_word_is_not() {
        check("rotue", Some("route"));
        check("routes", Some("route"));
        check("Secret", Some("secret"));
        check("respondwithin", Some("respond_within"));
        check("colour", None);
        check("", None);
    }
}
