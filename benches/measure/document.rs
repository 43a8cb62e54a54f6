//! Where results go: files under `target`, and, if asked, the docs.

use std::path::{Path, PathBuf};

/// The document with all figures.
const DOCUMENT: &str = "docs/performance.md";

/// A folder under `target` that stays.
pub fn folder(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target folder");
    let folder = target.join(name);
    std::fs::create_dir_all(&folder).expect("a folder in the target folder");
    folder
}

/// The path of a file of this repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Writes a file, and says where.
pub fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the file can be written");
    println!("  {}", path.display());
}

/// Where figures go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Files under `target` alone.
    Build,
    /// The docs too.
    Docs,
}

impl Target {
    /// The docs, if the arguments ask for that.
    pub fn of(args: &[String]) -> Self {
        if args.iter().any(|arg| arg == "--docs") { Self::Docs } else { Self::Build }
    }

    /// Writes a chart into this folder, and, if asked, beside the docs.
    pub fn chart(self, folder: &Path, file: &str, svg: &str) {
        write(&folder.join(file), svg);
        if self == Self::Docs {
            write(&repository("docs").join(file), svg);
        }
    }

    /// Replaces, if asked, what stands in the docs between `<!-- NAME: … -->` and `<!-- end of NAME -->`. That these are
    /// there is checked in any case.
    pub fn figures(self, name: &str, figures: &str) {
        let path = repository(DOCUMENT);
        let text = replaced(&std::fs::read_to_string(&path).expect("the document is there"), name, figures);
        if self == Self::Docs {
            write(&path, &text);
        }
    }
}

/// The document with these figures in their place.
fn replaced(text: &str, name: &str, figures: &str) -> String {
    let place = || -> Option<(usize, usize)> {
        let begin = text.find(&format!("<!-- {name}: "))?;
        let begin = begin + text[begin..].find("-->\n")? + "-->\n".len();
        Some((begin, begin + text[begin..].find(&format!("<!-- end of {name} -->"))?))
    };
    let (begin, end) = place().unwrap_or_else(|| panic!("{DOCUMENT} has no place for {name}"));
    format!("{}\n{}\n\n{}", &text[..begin], figures.trim(), &text[end..])
}

/// A number with its thousands apart: `12,345`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let from_end = |at: usize| digits.len() - at;
    digits
        .char_indices()
        .map(
            |(at, digit)| {
                if at > 0 && from_end(at).is_multiple_of(3) { format!(",{digit}") } else { digit.to_string() }
            },
        )
        .collect()
}

/// Rows as a table in Markdown, whose columns line up on a terminal too.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0).max(3)).collect();
    let line = |cells: Vec<String>| {
        let cells: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut lines = rows.iter().map(|row| line(row.clone()));
    let header = lines.next().unwrap_or_default();
    [header, line(rule)].into_iter().chain(lines).collect()
}
