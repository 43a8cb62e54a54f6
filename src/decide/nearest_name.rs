//! The known name that is nearest to a misspelt one.

/// The name that was most likely meant by `wrong`, if any is near enough.
pub fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    // One slip in a short name, one more for every three letters: `tga` is near `tag`, but not near `sha`.
    let far = wrong.chars().count() / 3 + 1;
    names
        .into_iter()
        .map(|name| (distance(&wrong.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(slips, name)| *slips <= far && *slips < name.chars().count())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

/// The edit distance: letters to change, add, leave out or swap with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut slips = (row[j] + usize::from(a != b)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                slips = slips.min(above[j - 1] + 1);
            }
            next.push(slips);
        }
        above = std::mem::replace(&mut row, next);
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wrong: &str, expected: Option<&str>) {
        assert_eq!(nearest(wrong, ["package", "tag", "version_id", "sha"]), expected, "{wrong}");
    }

    #[test]
    fn a_slip_of_the_pen_is_understood() {
        for (wrong, meant) in [
            ("versionid", "version_id"),
            ("version_di", "version_id"),
            ("Tag", "tag"),
            ("tga", "tag"),
            ("tags", "tag"),
            ("pakcage", "package"),
            ("ha", "sha"),
        ] {
            check(wrong, Some(meant));
        }
    }

    #[test]
    fn another_word_is_not_taken_for_a_slip() {
        for wrong in ["", "x", "digest", "repository", "ä"] {
            check(wrong, None);
        }
    }
}
