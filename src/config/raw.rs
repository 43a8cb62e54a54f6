//! The parsed TOML file: a tree in which every key and value keeps its place.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text that a place refers to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ConfigOrigin {
    /// The user's file.
    Config,
    /// The built-in preset of this name.
    Preset(&'static str),
    /// A table of the user's file that is a preset.
    PresetTable,
    /// The user's preset of this index, a file of its own.
    PresetFile(u16),
}

/// A byte range of a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ConfigSpan {
    pub(super) origin: ConfigOrigin,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A value and its place.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ConfigNode {
    pub(super) at: ConfigSpan,
    pub(super) value: ConfigValue,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum ConfigValue {
    Text(String),
    Integer(i128),
    Float,
    Flag(bool),
    Time,
    List(Vec<ConfigNode>),
    Table(ConfigTable),
}

/// Keys and values, in the order of the file.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct ConfigTable {
    pub(super) entries: Vec<ConfigEntry>,
}

/// A key and its value.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ConfigEntry {
    pub(super) key: String,
    pub(super) key_at: ConfigSpan,
    pub(super) node: ConfigNode,
}

/// A TOML syntax error.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TomlError {
    pub(super) at: Option<ConfigSpan>,
    pub(super) what: String,
}

impl ConfigTable {
    pub(super) fn entry(&self, key: &str) -> Option<&ConfigEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(super) fn get(&self, key: &str) -> Option<&ConfigNode> {
        self.entry(key).map(|entry| &entry.node)
    }
}

impl ConfigNode {
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            ConfigValue::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[ConfigNode]> {
        match &self.value {
            ConfigValue::List(list) => Some(list),
            _ => None,
        }
    }

    pub(super) fn table(&self) -> Option<&ConfigTable> {
        match &self.value {
            ConfigValue::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Its type, for a message: "an integer".
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            ConfigValue::Text(_) => "a string",
            ConfigValue::Integer(_) => "an integer",
            ConfigValue::Float => "a number with a fraction",
            ConfigValue::Flag(true) => "true",
            ConfigValue::Flag(false) => "false",
            ConfigValue::Time => "a date",
            ConfigValue::List(_) => "a list",
            ConfigValue::Table(_) => "a table",
        }
    }
}

/// Parses TOML; reports all syntax errors at once.
pub(super) fn parse(text: &str, origin: ConfigOrigin) -> (ConfigTable, Vec<TomlError>) {
    let (root, errors) = DeTable::parse_recoverable(text);
    let errors = errors
        .iter()
        .map(|e| TomlError { at: e.span().map(|span| place(origin, &span)), what: e.message().to_owned() })
        .collect();
    (table(root.get_ref(), origin), errors)
}

fn place(origin: ConfigOrigin, range: &Range<usize>) -> ConfigSpan {
    ConfigSpan { origin, start: range.start, end: range.end }
}

fn table(from: &DeTable<'_>, origin: ConfigOrigin) -> ConfigTable {
    let mut entries: Vec<ConfigEntry> = from
        .iter()
        .map(|(key, value)| ConfigEntry {
            key: key.get_ref().to_string(),
            key_at: place(origin, &key.span()),
            node: node(value, origin),
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_at);
    ConfigTable { entries }
}

fn node(from: &Spanned<DeValue<'_>>, origin: ConfigOrigin) -> ConfigNode {
    let value = match from.get_ref() {
        DeValue::String(text) => ConfigValue::Text(text.to_string()),
        DeValue::Integer(number) => {
            let too_large = if number.as_str().starts_with('-') { i128::MIN } else { i128::MAX };
            ConfigValue::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(too_large))
        }
        DeValue::Float(_) => ConfigValue::Float,
        DeValue::Boolean(flag) => ConfigValue::Flag(*flag),
        DeValue::Datetime(_) => ConfigValue::Time,
        DeValue::Array(list) => ConfigValue::List(list.iter().map(|item| node(item, origin)).collect()),
        DeValue::Table(inner) => ConfigValue::Table(table(inner, origin)),
    };
    ConfigNode { at: place(origin, &from.span()), value }
}

/// Maps a byte range inside a string's value to its place in the file, past quotes and escapes.
pub(super) fn inside(file: &str, string: ConfigSpan, range: &Range<usize>) -> ConfigSpan {
    let letters = letters(file.get(string.start..string.end).unwrap_or(""));
    let closing_quote = string.end.saturating_sub(1).max(string.start);
    let start = letters.iter().find(|letter| letter.read >= range.start);
    let start = start.map_or(closing_quote, |letter| string.start + letter.written.start);
    let end = letters.iter().rfind(|letter| letter.read < range.end);
    let end = end.map_or(start, |letter| string.start + letter.written.end);
    ConfigSpan { start, end: end.max(start + 1), ..string }
}

/// One character of a string: its offset in the value, and the bytes it is written with.
struct StringCharSpan {
    read: usize,
    written: Range<usize>,
}

/// The characters of a string literal, quotes included.
fn letters(written: &str) -> Vec<StringCharSpan> {
    let (open, escapes) = opening(written);
    let mut letters = Vec::new();
    let mut read = 0;
    let mut rest = written.char_indices().skip_while(|(i, _)| *i < open).peekable();
    while let Some((start, c)) = rest.next() {
        let mut decoded = c;
        if escapes && c == '\\' {
            let (_, escape) = rest.next().unwrap_or((start, ' '));
            let digits = match escape {
                'x' => 2,
                'u' => 4,
                'U' => 8,
                _ => 0,
            };
            if escape.is_whitespace() {
                while rest.next_if(|(_, c)| c.is_whitespace()).is_some() {}
                continue;
            }
            let code: String = (0..digits).filter_map(|_| rest.next()).map(|(_, digit)| digit).collect();
            decoded = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32).unwrap_or(' ');
        }
        let end = rest.peek().map_or(written.len(), |(i, _)| *i);
        letters.push(StringCharSpan { read, written: start..end });
        read += decoded.len_utf8();
    }
    letters
}

/// The length of a string's opening quotes, and whether it has escapes.
fn opening(written: &str) -> (usize, bool) {
    let escapes = written.starts_with('"');
    let quotes = if written.starts_with("\"\"\"") || written.starts_with("'''") { 3 } else { 1 };
    let after = written.get(quotes..).unwrap_or("");
    let newline = match quotes {
        3 if after.starts_with("\r\n") => 2,
        3 if after.starts_with('\n') => 1,
        _ => 0,
    };
    (quotes + newline, escapes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, word: &str) {
        let (root, errors) = parse(file, ConfigOrigin::Config);
        assert_eq!(errors, []);
        let node = root.get("s").unwrap();
        let text = node.text().unwrap();
        let start = text.find(word).unwrap();
        let at = inside(file, node.at, &(start..start + word.len()));
        assert_eq!(&file[at.start..at.end], word, "in {file}");
    }

    #[test]
    fn a_word_inside_any_kind_of_string_has_its_own_place() {
        check(r#"s = "tag == 1""#, "tag");
        check(r#"s = 'a == "x" && tag'"#, "tag");
        check(r#"s = "a == \"x\" && tag""#, "tag");
        check(r#"s = "\u00e4\t\x41 tag""#, "tag");
        check("s = \"\"\"\na == \\\n   tag && b\"\"\"", "tag");
        check("s = '''\r\nä tag'''", "tag");
    }

    #[test]
    fn entries_keep_the_order_of_the_file_and_every_value_its_place() {
        let file = "b = 1\na = [true, 'x']\n[t.u]\nc = 2\n";
        let (root, _) = parse(file, ConfigOrigin::Config);
        let keys: Vec<_> = root.entries.iter().map(|e| e.key.as_str()).collect();
        assert_eq!(keys, ["b", "a", "t"]);
        let list = root.get("a").unwrap();
        assert_eq!(&file[list.at.start..list.at.end], "[true, 'x']");
        let item = &list.list().unwrap()[1];
        assert_eq!(&file[item.at.start..item.at.end], "'x'");
        let u = root.get("t").unwrap().table().unwrap().entry("u").unwrap();
        assert_eq!(&file[u.key_at.start..u.key_at.end], "u");
        assert_eq!(&file[u.node.at.start..u.node.at.end], "[t.u]");
    }

    #[test]
    fn several_things_that_are_not_toml_are_all_reported() {
        let (_, errors) = parse("a = \nb = 1\nb = 2\nc = @\n", ConfigOrigin::Config);
        assert!(errors.len() >= 3, "{errors:?}");
    }

    #[test]
    fn a_number_that_is_too_large_stays_a_number() {
        let (root, _) =
            parse("a = 0x10\nb = -3\nc = 99999999999999999999999999999999999999999999", ConfigOrigin::Config);
        assert_eq!(root.get("a").unwrap().value, ConfigValue::Integer(16));
        assert_eq!(root.get("b").unwrap().value, ConfigValue::Integer(-3));
        assert_eq!(root.get("c").unwrap().value, ConfigValue::Integer(i128::MAX));
    }
}
