//! What steakpie's config says: packages, folders, and trees of commands. What it does not say is left, with its line.
//!
//! ```text
//! package:                        older: the commands stand right under the package, and
//!   run:                          children under their parent as a table
//!     /a/folder:
//!       - a command               - a parent:
//!       - - a parent                - a child
//!         - a child
//! ```

use super::yaml::{YamlNode, YamlValue};

/// What was understood, and what was not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SteakpieConfig {
    /// Every package with commands, in the order of the file.
    pub packages: Vec<SteakpiePackage>,
    /// What could not be carried over.
    pub left: Vec<SkippedEntry>,
}

/// A package and what is run when it was pushed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteakpiePackage {
    /// Its name.
    pub name: String,
    /// The line it begins on.
    pub line: usize,
    /// Where what is run.
    pub folders: Vec<SteakpieFolder>,
}

/// Commands of one folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteakpieFolder {
    /// The folder; `None`: where steakpie was started.
    pub dir: Option<String>,
    /// They run one after the other, in any case.
    pub commands: Vec<SteakpieCommand>,
}

/// A command and those that run only after it succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SteakpieCommand {
    /// For `bash -lc`.
    pub text: String,
    /// One after the other, in any case.
    pub children: Vec<SteakpieCommand>,
}

/// Something that could not be carried over.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SkippedEntry {
    /// Its line.
    pub line: usize,
    /// What it is, and why.
    pub what: String,
}

/// Words for the list of commands.
const RUN: [&str; 2] = ["run", "commands"];
/// Words for the folder beside it.
const DIR: [&str; 3] = ["dir", "directory", "path"];

/// Understands a config.
pub fn read(root: &YamlNode) -> SteakpieConfig {
    let mut read = SteakpieConfig::default();
    match &root.value {
        YamlValue::Table(entries) => entries.iter().for_each(|(key, value)| read.package(key, value)),
        _ => read.skip(root, "the config is no table of packages"),
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
            return self.skip(key, "a merge (`<<`) is not followed; write out what it brings");
        }
        let mut folders = Vec::new();
        match &value.value {
            YamlValue::List(items) => folders.push(SteakpieFolder { dir: None, commands: self.commands(items) }),
            YamlValue::Table(entries) => self.entries(entries, &mut folders),
            YamlValue::Null => {}
            YamlValue::Text(_) => self.skip(value, format!("{} has a text and no list of commands", shown(name))),
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
                    self.skip(key, format!("{name} is nothing that steakpie knows of a package"));
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
            _ => self.skip(value, format!("{} has no list of commands; write each behind a `- `", shown(dir))),
        }
    }

    /// A name that can be written down again.
    fn name<'n>(&mut self, key: &'n YamlNode, what: &str) -> Option<&'n str> {
        match &key.value {
            YamlValue::Text(name) if name.chars().any(char::is_control) => {
                self.skip(key, format!("the name of {what} cannot be printed: {}", shown(name)));
                None
            }
            YamlValue::Text(name) => Some(name),
            _ => {
                self.skip(key, format!("the name of {what} is no text"));
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
                let hint = "a command with `: ` in it stands in quotes, children stand in a list";
                self.skip(node, format!("a command is a table that steakpie does not know; {hint}"));
                None
            }
        }
    }

    /// Without its parent a child would run though it may not.
    fn command_with_children(&mut self, parent: &YamlNode, children: &[YamlNode]) -> Option<SteakpieCommand> {
        if !matches!(parent.value, YamlValue::Text(_)) {
            self.skip(parent, "a parent is no text, so its children are left with it");
            return None;
        }
        let text = self.text(parent)?;
        Some(SteakpieCommand { text, children: self.commands(children) })
    }

    fn text(&mut self, node: &YamlNode) -> Option<String> {
        match &node.value {
            YamlValue::Text(text) if text.contains('\0') => {
                self.skip(node, "a command has a NUL byte, which no shell can be given");
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
