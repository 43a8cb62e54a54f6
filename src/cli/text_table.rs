//! Text tables that fit the terminal: wide columns are cut first, then the last ones are dropped.

use super::terminal::Terminal;

/// Gap between two columns.
const GAP: usize = 2;

/// A table for the terminal.
#[derive(Debug, Default)]
pub(crate) struct TextTable {
    columns: Vec<TextTableColumn>,
    rows: Vec<Vec<TextTableCell>>,
}

#[derive(Debug)]
struct TextTableColumn {
    head: String,
    /// Minimum width; a column that does not fit at this width is dropped.
    least: usize,
}

/// One cell: its text and its colour.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextTableCell {
    text: String,
    code: &'static str,
}

impl TextTableCell {
    /// Text in the colour of this code.
    pub(crate) fn new(text: impl Into<String>, code: &'static str) -> Self {
        Self { text: text.into(), code }
    }
}

impl TextTable {
    /// Adds a column with a minimum width, which is at least that of its header.
    #[must_use]
    pub(crate) fn column(mut self, head: &str, least: usize) -> Self {
        self.columns.push(TextTableColumn { head: head.to_uppercase(), least: least.max(breadth(head)) });
        self
    }

    /// Adds a row: one cell per column.
    pub(crate) fn row(&mut self, cells: Vec<TextTableCell>) {
        self.rows.push(cells);
    }

    /// The table as text, at most `width` columns wide.
    pub(crate) fn render(&self, terminal: &Terminal, width: usize) -> String {
        let widths = self.fit(width);
        let heads = self.columns.iter().map(|column| TextTableCell::new(column.head.clone(), "2")).collect();
        let mut out = String::new();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            let mut gap = 0;
            for (cell, width) in row.iter().zip(&widths) {
                let text = cut(&cell.text, *width);
                line.extend(std::iter::repeat_n(' ', gap));
                gap = GAP + width - breadth(&text);
                line.push_str(&if text.is_empty() { text } else { terminal.paint(cell.code, &text) });
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// The widths of the columns that fit.
    fn fit(&self, width: usize) -> Vec<usize> {
        let wide = |i: usize, column: &TextTableColumn| {
            let cells = self.rows.iter().map(|row| breadth(&row[i].text));
            cells.max().unwrap_or(0).max(breadth(&column.head))
        };
        let mut widths: Vec<_> = self.columns.iter().enumerate().map(|(i, column)| wide(i, column)).collect();
        let leasts: Vec<_> = self.columns.iter().zip(&widths).map(|(column, width)| column.least.min(*width)).collect();
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        while widths.len() > 1 && total(&leasts[..widths.len()]) > width {
            widths.pop();
        }
        while total(&widths) > width {
            let spare = |(i, width): &(usize, &usize)| **width - leasts[*i];
            match widths.iter().enumerate().max_by_key(spare).filter(|widest| spare(widest) > 0) {
                Some((i, _)) => widths[i] -= 1,
                None => break,
            }
        }
        widths
    }
}

/// Text cut to a width, ending with `…` if it was cut.
fn cut(text: &str, width: usize) -> String {
    if breadth(text) <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let fits = column(*c) <= left;
        left = left.saturating_sub(column(*c));
        fits
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// The display width of a text.
fn breadth(text: &str) -> usize {
    text.chars().map(column).sum()
}

/// The display width of a character: 2 for East Asian wide characters and most emoji, 0 for combining ones.
fn column(c: char) -> usize {
    match c {
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::OutputFormat;
    use crate::config::diagnostic::ColorChoice;
    use crate::decide::time::Timestamp;

    fn check(width: usize, ink: ColorChoice, expected: &str) {
        let mut table = TextTable::default().column("event", 5).column("tag", 4).column("sha", 6);
        table.row(vec![
            TextTableCell::new("3fa9c", ""),
            TextTableCell::new("latest", "32"),
            TextTableCell::new("sha256:b97c4e", ""),
        ]);
        table.row(vec![TextTableCell::new("00001", ""), TextTableCell::new("", "31"), TextTableCell::new("漢字", "")]);
        let terminal = Terminal { form: OutputFormat::Screen(width), ink, now: Timestamp(0) };
        assert_eq!(table.render(&terminal, width), expected, "{width}");
    }

    #[test]
    fn a_table_is_cut_to_its_terminal_and_loses_its_last_columns_last() {
        check(80, ColorChoice::Plain, "EVENT  TAG     SHA\n3fa9c  latest  sha256:b97c4e\n00001          漢字\n");
        check(28, ColorChoice::Plain, "EVENT  TAG     SHA\n3fa9c  latest  sha256:b97c4e\n00001          漢字\n");
        check(24, ColorChoice::Plain, "EVENT  TAG     SHA\n3fa9c  latest  sha256:b…\n00001          漢字\n");
        check(19, ColorChoice::Plain, "EVENT  TAG   SHA\n3fa9c  lat…  sha25…\n00001        漢字\n");
        check(18, ColorChoice::Plain, "EVENT  TAG\n3fa9c  latest\n00001\n");
        check(1, ColorChoice::Plain, "EVENT\n3fa9c\n00001\n");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        check(
            24,
            ColorChoice::Colour,
            "\x1b[2mEVENT\x1b[0m  \x1b[2mTAG\x1b[0m     \x1b[2mSHA\x1b[0m\n3fa9c  \x1b[32mlatest\x1b[0m  sha256:b…\n\
             00001          漢字\n",
        );
    }

    #[test]
    fn text_is_cut_between_characters() {
        for (text, width, expected) in
            [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("漢字漢", 5, "漢字…"), ("漢字漢", 4, "漢…")]
        {
            assert_eq!(cut(text, width), expected);
            assert!(breadth(&cut(text, width)) <= width);
        }
    }
}
