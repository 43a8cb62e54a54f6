//! "Did you mean …?"

/// The hint, if any of these words is near enough to what was written.
pub(super) fn did_you_mean<'w>(wrong: &str, words: impl IntoIterator<Item = &'w str>) -> Option<String> {
    nearest(wrong, words).map(|meant| format!("did you mean `{meant}`?"))
}

/// The word that was most likely meant.
pub(super) fn nearest<'w>(wrong: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // One slip in a short word, one more for every three letters.
    let far = wrong.chars().count() / 3 + 1;
    words
        .into_iter()
        .map(|word| (slips(&wrong.to_lowercase(), &word.to_lowercase()), word))
        .filter(|(slips, word)| *slips <= far && *slips < word.chars().count())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, word)| word)
}

/// Letters to add, remove, replace or swap with their neighbour. Nobody means a word longer than 64 letters.
fn slips(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::{Part, names};

    fn check(word: &str, expected: Option<&str>) {
        assert_eq!(nearest(word, names(Part::Source)), expected, "{word}");
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
