//! YAML as a tree with line numbers. Scalars stay text, whatever type YAML would give them: on a command line `true`
//! and `10` are words.
//!
//! Aliases are expanded, and each copy counts against the limits, so a few lines cannot grow into gigabytes.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use std::collections::{HashMap, HashSet};

/// Maximum values in one file, expanded aliases included.
const NODES_MAX: usize = 10_000;
/// Maximum bytes of text, expanded aliases included.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Maximum depth of nested lists and tables.
const DEPTH_MAX: usize = 64;

/// A value and its line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YamlNode {
    /// The line number, counted from 1.
    pub line: usize,
    /// What it is.
    pub value: YamlValue,
}

/// What a value is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum YamlValue {
    /// Nothing, `~` or `null`, without quotes.
    Null,
    /// Any other scalar.
    Text(String),
    /// A list.
    List(Vec<YamlNode>),
    /// A table, in the order of the file.
    Table(Vec<(YamlNode, YamlNode)>),
}

/// Why a text is not valid YAML.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YamlError {
    /// The line number, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
    /// What to do.
    pub hint: Option<String>,
}

/// The first document of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YamlDocument {
    /// Its root; `None` if it is empty.
    pub root: Option<YamlNode>,
    /// The line of a second document.
    pub second: Option<usize>,
}

/// Reads the first document.
pub fn parse(text: &str) -> Result<YamlDocument, YamlError> {
    let mut tree = YamlTreeBuilder::default();
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| scan_error(text, &error))?;
        let line = span.start.line();
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                return Ok(YamlDocument { root: tree.root, second: Some(line) });
            }
        }
        tree.take(event, line)?;
    }
    Ok(YamlDocument { root: tree.root, second: None })
}

fn scan_error(text: &str, error: &ScanError) -> YamlError {
    let line = error.marker().line();
    let written = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let indent: String = written.chars().take_while(|c| c.is_whitespace()).collect();
    let hint = if indent.contains('\t') {
        "YAML does not allow tabs for indentation; use spaces"
    } else {
        "quote a command that contains `: ` or ` #`, or begins with a quote"
    };
    YamlError { line, what: error.info().to_owned(), hint: Some(hint.to_owned()) }
}

/// A list or table that is still open.
struct OpenYamlCollection {
    line: usize,
    anchor: usize,
    items: Vec<YamlNode>,
    is_table: bool,
}

/// The size of a value, expanded aliases included.
#[derive(Clone, Copy, Default)]
struct YamlSize {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

#[derive(Default)]
struct YamlTreeBuilder {
    open: Vec<OpenYamlCollection>,
    /// Complete anchored values, by the parser's anchor id.
    anchors: HashMap<usize, (YamlNode, YamlSize)>,
    taken: YamlSize,
    root: Option<YamlNode>,
}

impl YamlTreeBuilder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value = if null { YamlValue::Null } else { YamlValue::Text(text.into_owned()) };
                self.add(YamlNode { line, value }, anchor, line)
            }
            Event::SequenceStart(anchor, _) => self.begin(anchor, line, false),
            Event::MappingStart(anchor, _) => self.begin(anchor, line, true),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(OpenYamlCollection { line, anchor, items, is_table }) = self.open.pop() else { return Ok(()) };
                let value = if is_table { YamlValue::Table(pairs(items)?) } else { YamlValue::List(items) };
                self.place(YamlNode { line, value }, anchor);
                Ok(())
            }
            Event::Alias(anchor) => {
                let Some((node, weight)) = self.anchors.get(&anchor).cloned() else {
                    return Err(too_much(line, "an anchor contains itself"));
                };
                self.count_against_limits(weight, line)?;
                self.place(node, 0);
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(())
            }
        }
    }

    fn begin(&mut self, anchor: usize, line: usize, is_table: bool) -> Result<(), YamlError> {
        self.count_against_limits(YamlSize { nodes: 1, bytes: 0, depth: 1 }, line)?;
        self.open.push(OpenYamlCollection { line, anchor, items: Vec::new(), is_table });
        Ok(())
    }

    fn add(&mut self, node: YamlNode, anchor: usize, line: usize) -> Result<(), YamlError> {
        self.count_against_limits(weight(&node), line)?;
        self.place(node, anchor);
        Ok(())
    }

    fn count_against_limits(&mut self, more: YamlSize, line: usize) -> Result<(), YamlError> {
        self.taken.nodes += more.nodes;
        self.taken.bytes += more.bytes;
        if self.taken.nodes > NODES_MAX || self.taken.bytes > TEXT_BYTES_MAX {
            return Err(too_much(line, "too large for a config, counting every use of an anchor"));
        }
        if self.open.len() + more.depth > DEPTH_MAX {
            return Err(too_much(line, "lists and tables are nested too deeply"));
        }
        Ok(())
    }

    fn place(&mut self, node: YamlNode, anchor: usize) {
        if anchor > 0 {
            let weight = weight(&node);
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None => self.root = Some(node),
        }
    }
}

fn too_much(line: usize, what: &str) -> YamlError {
    YamlError { line, what: what.to_owned(), hint: Some("is it the right file?".to_owned()) }
}

fn weight(node: &YamlNode) -> YamlSize {
    let all = |inside: &mut dyn Iterator<Item = &YamlNode>| {
        let mut sum = YamlSize { nodes: 1, bytes: 0, depth: 0 };
        for YamlSize { nodes, bytes, depth } in inside.map(weight) {
            sum = YamlSize { nodes: sum.nodes + nodes, bytes: sum.bytes + bytes, depth: sum.depth.max(depth) };
        }
        YamlSize { depth: sum.depth + 1, ..sum }
    };
    match &node.value {
        YamlValue::Null => YamlSize { nodes: 1, bytes: 0, depth: 0 },
        YamlValue::Text(text) => YamlSize { nodes: 1, bytes: text.len(), depth: 0 },
        YamlValue::List(items) => all(&mut items.iter()),
        YamlValue::Table(entries) => all(&mut entries.iter().flat_map(|(key, value)| [key, value])),
    }
}

/// Pairs up the keys and values of a table; a duplicate key is an error.
fn pairs(items: Vec<YamlNode>) -> Result<Vec<(YamlNode, YamlNode)>, YamlError> {
    let mut entries = Vec::new();
    let mut seen = HashSet::new();
    let mut items = items.into_iter();
    while let (Some(key), Some(value)) = (items.next(), items.next()) {
        if let YamlValue::Text(text) = &key.value
            && !seen.insert(text.clone())
        {
            return Err(YamlError {
                line: key.line,
                what: format!("duplicate key `{}` in one table", text.escape_debug()),
                hint: Some("keep one of them".to_owned()),
            });
        }
        entries.push((key, value));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(text: &str, line: usize, what: &str) {
        let error = parse(text).expect_err("it is wrong");
        assert!(error.line == line && error.what.contains(what), "{error:?}");
    }

    fn texts(text: &str) -> Vec<(usize, String)> {
        fn walk(node: &YamlNode, into: &mut Vec<(usize, String)>) {
            match &node.value {
                YamlValue::Null => into.push((node.line, "null".into())),
                YamlValue::Text(text) => into.push((node.line, text.clone())),
                YamlValue::List(items) => items.iter().for_each(|item| walk(item, into)),
                YamlValue::Table(entries) => entries.iter().for_each(|(key, value)| {
                    walk(key, into);
                    walk(value, into);
                }),
            }
        }
        let mut into = Vec::new();
        parse(text).expect("YAML").root.iter().for_each(|root| walk(root, &mut into));
        into
    }

    #[test]
    fn scalars_keep_their_text_and_their_line() {
        let read = texts("a:\n  - true\n  - 010\n  - \"x\\ty\" # no\n  - |\n    one\n    two\n  - ~\n  - '~'\n");
        let read: Vec<_> = read.iter().map(|(line, text)| (*line, &**text)).collect();
        assert_eq!(read, [(1, "a"), (2, "true"), (3, "010"), (4, "x\ty"), (6, "one\ntwo\n"), (8, "null"), (9, "~")]);
    }

    #[test]
    fn an_anchor_is_copied_and_cannot_grow_into_a_bomb() {
        assert_eq!(texts("a: &x [b]\nc: *x").len(), 4);
        let mut bomb = vec!["a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned()];
        for n in 1..10 {
            let last = format!("*a{}, ", n - 1).repeat(10);
            bomb.push(format!("a{n}: &a{n} [{last}]\n"));
        }
        check_error(&bomb.concat(), 4, "too large for a config");
        let long = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(20));
        check_error(&long, 2, "too large for a config");
        check_error("a: &a [*a]", 1, "contains itself");
        check_error(&"[".repeat(DEPTH_MAX + 1), 1, "too deeply");
        check_error(&"[".repeat(100_000), 1, "");
        check_error(&"- ".repeat(100_000), 1, "");
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        check_error("a:\n\t- b\n", 2, "");
        check_error("a: [b\nc: d\n", 2, "");
        check_error("a: 1\nb: 2\na: 3\n", 3, "duplicate key");
    }

    #[test]
    fn only_the_first_document_counts() {
        let read = parse("a: b\n---\nc: d\n").expect("YAML");
        assert_eq!(read.second, Some(2));
        assert_eq!(parse("# nothing\n"), Ok(YamlDocument { root: None, second: None }));
    }
}
