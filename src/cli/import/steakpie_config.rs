//! Reads steakpie's config: packages, folders and trees of commands. What it cannot read is reported with its line.
//!
//! ```text
//! package:                        older: the commands are right under the package, and
//!   run:                          children under their parent as a table
//!     /a/folder:
//!       - a command               - a parent:
//!       - - a parent                - a child
//!         - a child
//! ```

use super::yaml::{YamlNode, YamlValue};

/// A parsed config of steakpie.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SteakpieConfig {
    /// Every package with commands, in the order of the file.
    pub packages: Vec<SteakpiePackage>,
    /// What could not be imported.
    pub left: Vec<SkippedEntry>,
}

/// A package and the commands that run when it is pushed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteakpiePackage {
    /// Its name.
    pub name: String,
    /// The line it begins on.
    pub line: usize,
    /// The commands, by folder.
    pub folders: Vec<SteakpieFolder>,
}

/// Commands of one folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteakpieFolder {
    /// The folder; `None`: where steakpie was started.
    pub dir: Option<String>,
    /// Commands that run one after the other, whether or not one fails.
    pub commands: Vec<SteakpieCommand>,
}

/// A command and its children, which run only if it succeeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteakpieCommand {
    /// For `bash -lc`.
    pub text: String,
    /// Children, run one after the other whether or not one fails.
    pub children: Vec<SteakpieCommand>,
}

/// An entry that could not be imported.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SkippedEntry {
    /// Its line.
    pub line: usize,
    /// What it is, and why.
    pub what: String,
}

/// Keys of the list of commands.
const RUN: [&str; 2] = ["run", "commands"];
/// Keys of the folder beside it.
const DIR: [&str; 3] = ["dir", "directory", "path"];

/// Parses a config.
pub fn read(root: &YamlNode) -> SteakpieConfig {
    let mut read = SteakpieConfig::default();
    match &root.value {
        YamlValue::Table(entries) => entries.iter().for_each(|(key, value)| read.package(key, value)),
        _ => read.skip(root, "the config is not a table of packages"),
    }
    read.left.sort();
    read
}

impl SteakpieConfig {
    fn skip(&mut self, at: &YamlNode, what: impl Into<String>) {
        self.left.push(SkippedEntry { line: at.line, what: what.into() });
    }

    fn package(&mut self, key: &YamlNode, value: &YamlNode) {
        let Some(name) = self.name(key, "a package") else { return };
        if name == "<<" {
            return self.skip(key, "a merge (`<<`) is not supported; write its content out");
        }
        let mut folders = Vec::new();
        match &value.value {
            YamlValue::List(items) => folders.push(SteakpieFolder { dir: None, commands: self.commands(items) }),
            YamlValue::Table(entries) => self.entries(entries, &mut folders),
            YamlValue::Null => {}
            YamlValue::Text(_) => self.skip(value, format!("{} is a text, not a list of commands", shown(name))),
        }
        folders.retain(|folder| !folder.commands.is_empty());
        if folders.is_empty() {
            return self.skip(key, format!("{} has no commands, so it gets no route", shown(name)));
        }
        self.packages.push(SteakpiePackage { name: name.to_owned(), line: key.line, folders });
    }

    /// `run` with folders or a list, a folder beside it, or folders alone.
    fn entries(&mut self, entries: &[(YamlNode, YamlNode)], folders: &mut Vec<SteakpieFolder>) {
        let word =
            |words: &[&str], key: &YamlNode| matches!(&key.value, YamlValue::Text(t) if words.contains(&t.as_str()));
        let beside = entries.iter().find_map(|(key, value)| match &value.value {
            YamlValue::Text(dir) if word(&DIR, key) => Some(dir.clone()),
            _ => None,
        });
        for (key, value) in entries {
            match &value.value {
                YamlValue::Text(_) if word(&DIR, key) => {}
                YamlValue::List(items) if word(&RUN, key) => {
                    folders.push(SteakpieFolder { dir: beside.clone(), commands: self.commands(items) });
                }
                YamlValue::Table(inner) if word(&RUN, key) => {
                    for (dir, commands) in inner {
                        self.folder(dir, commands, folders);
                    }
                }
                YamlValue::List(_) if is_path(key) => self.folder(key, value, folders),
                YamlValue::Null if word(&RUN, key) => {}
                _ => {
                    let name = match &key.value {
                        YamlValue::Text(text) => shown(text),
                        _ => "this".to_owned(),
                    };
                    self.skip(key, format!("{name} is not a key that steakpie knows in a package"));
                }
            }
        }
    }

    fn folder(&mut self, key: &YamlNode, value: &YamlNode, folders: &mut Vec<SteakpieFolder>) {
        let Some(dir) = self.name(key, "a folder") else { return };
        match &value.value {
            YamlValue::List(items) => {
                let commands = self.commands(items);
                folders.push(SteakpieFolder { dir: Some(dir.to_owned()).filter(|dir| !dir.is_empty()), commands });
            }
            YamlValue::Null => {}
            _ => self.skip(value, format!("{} has no list of commands; write each after a `- `", shown(dir))),
        }
    }

    /// A printable name.
    fn name<'n>(&mut self, key: &'n YamlNode, what: &str) -> Option<&'n str> {
        match &key.value {
            YamlValue::Text(name) if name.chars().any(char::is_control) => {
                self.skip(key, format!("the name of {what} cannot be printed: {}", shown(name)));
                None
            }
            YamlValue::Text(name) => Some(name),
            _ => {
                self.skip(key, format!("the name of {what} is not a text"));
                None
            }
        }
    }

    fn commands(&mut self, items: &[YamlNode]) -> Vec<SteakpieCommand> {
        items.iter().filter_map(|item| self.command(item)).collect()
    }

    fn command(&mut self, node: &YamlNode) -> Option<SteakpieCommand> {
        match &node.value {
            YamlValue::Text(_) => Some(SteakpieCommand { text: self.text(node)?, children: Vec::new() }),
            YamlValue::Null => {
                self.skip(node, "a command is empty");
                None
            }
            YamlValue::List(items) => match items.split_first() {
                None => {
                    self.skip(node, "a list of commands is empty");
                    None
                }
                Some((parent, children)) => self.command_with_children(parent, children),
            },
            YamlValue::Table(entries) => {
                if let [(parent, YamlNode { value: YamlValue::List(children), .. })] = entries.as_slice() {
                    return self.command_with_children(parent, children);
                }
                let hint = "quote a command that contains `: `; write children as a list";
                self.skip(node, format!("a command is a table that steakpie does not know; {hint}"));
                None
            }
        }
    }

    /// Skips a parent together with its children, which must not run without it.
    fn command_with_children(&mut self, parent: &YamlNode, children: &[YamlNode]) -> Option<SteakpieCommand> {
        if !matches!(parent.value, YamlValue::Text(_)) {
            self.skip(parent, "a parent command is not a text, so its children are skipped with it");
            return None;
        }
        let text = self.text(parent)?;
        Some(SteakpieCommand { text, children: self.commands(children) })
    }

    fn text(&mut self, node: &YamlNode) -> Option<String> {
        match &node.value {
            YamlValue::Text(text) if text.contains('\0') => {
                self.skip(node, "a command has a NUL byte, which cannot be passed to a shell");
                None
            }
            YamlValue::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

fn is_path(key: &YamlNode) -> bool {
    matches!(&key.value, YamlValue::Text(text) if text.starts_with(['/', '.', '~']))
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(80).collect();
    format!("`{}`", cut.escape_debug())
}
