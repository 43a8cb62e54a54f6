//! Generates a config that does what steakpie did. Every top-level command is a block of its own, so its siblings run
//! in any case; a command's only child is the block's next step, so it runs only after its parent has succeeded.
//!
//! If a command has several children, the next step runs each in its own shell, as steakpie did: what one of them does
//! to its shell (`cd`, `exit`, an unclosed quote) does not affect the others.

use super::steakpie_config::{SteakpieCommand, SteakpieConfig, SteakpieFolder, SteakpiePackage};
use crate::decide::limits;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The shell that steakpie runs commands with.
const SHELL: &str = "bash -lc";
/// Fields of the preset; in braces they would be references.
const FIELDS: [&str; 5] = ["package", "tag", "version_id", "sha", "updated_at"];
/// Variables that every command gets anyway, or that the shell sets.
const USUAL: [&str; 20] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "PWD",
    "OLDPWD",
    "SHELL",
    "SHLVL",
    "UID",
    "EUID",
    "IFS",
    "RANDOM",
    "SECONDS",
    "HOSTNAME",
    "BASH",
    "WEBHOOK_SECRET",
];

/// What the generated config depends on besides the commands.
#[derive(Clone, Copy, Debug)]
pub struct GeneratedConfigOptions<'a> {
    /// The old config's name, for comments.
    pub from: &'a str,
    /// The port.
    pub port: u16,
    /// The store's address.
    pub store: &'a str,
}

/// The config.
pub fn config(steakpie: &SteakpieConfig, form: GeneratedConfigOptions<'_>) -> String {
    let GeneratedConfigOptions { from, port, store } = form;
    let mut out = format!(
        "# Written by `hookonce import steakpie` from {}. `hookonce check` explains it.\n\
         \n\
         # Every IPv4 address, as steakpie listened, so that GitHub still finds it. Behind a tunnel or proxy on\n\
         # this machine, 127.0.0.1 is enough; [::] accepts IPv6, too.\n\
         listen = \"0.0.0.0:{port}\"\n\
         store  = {}\n\
         \n\
         # The preset acts on the tag `latest` alone, once per change of it.\n\
         [source.ghcr]\n\
         preset = \"github-package\"\n\
         path   = \"/version/1\"\n\
         secret = {{ env = \"WEBHOOK_SECRET\" }}\n\
         \n\
         # Commands get PATH, HOME, USER, LANG, DOCKER_… and what `env` names, not all that steakpie was started with;\n\
         # on standard input they get the delivery's body. Steakpie waited forever; here a block has a `timeout`.\n\
         # A failed event is retried when it is redelivered from GitHub, or automatically with `retry`.\n",
        comment(from),
        text(store),
    );
    for left in &steakpie.left {
        line(&mut out, format_args!("# not imported, line {}: {}", left.line, comment(&left.what)));
    }
    for package in &steakpie.packages {
        route(&mut out, package, from);
    }
    out
}

pub(super) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string cannot fail");
}

fn route(out: &mut String, package: &SteakpiePackage, from: &str) {
    let SteakpiePackage { name, line: at, folders } = package;
    line(out, format_args!("\n# {}, line {at}\n[[source.ghcr.route]]", comment(from)));
    line(out, format_args!("name  = {}", text(name)));
    line(out, format_args!("when  = {}", text(&format!("package == {}", expression(name)))));
    line(out, format_args!("group = [\"package\"]"));
    let variables = variables(folders);
    if !variables.is_empty() {
        let names: Vec<_> = variables.iter().map(|name| text(name)).collect();
        line(out, format_args!("env   = [{}]   # its commands name them", names.join(", ")));
    }
    let many = folders.iter().map(|folder| folder.commands.len()).sum::<usize>() > limits::BLOCKS_MAX;
    for SteakpieFolder { dir, commands } in folders {
        if many {
            block(out, dir.as_deref(), &[siblings(commands)]);
        } else {
            for command in commands {
                block(out, dir.as_deref(), &steps(command));
            }
        }
    }
}

fn block(out: &mut String, dir: Option<&str>, steps: &[String]) {
    line(out, format_args!("\n[[source.ghcr.route.run]]"));
    if let Some(dir) = dir {
        line(out, format_args!("dir     = {}", text(dir)));
    }
    let steps: Vec<_> = steps.iter().map(|step| text(step)).collect();
    line(out, format_args!("steps   = [{}]", steps.join(", ")));
    line(out, format_args!("shell   = [\"bash\", \"-lc\"]\ntimeout = \"10m\""));
}

/// The steps of a command: itself, its only child, that one's only child, …; several children become one step.
fn steps(command: &SteakpieCommand) -> Vec<String> {
    let mut steps = vec![escape_step(&command.text)];
    match command.children.as_slice() {
        [] => {}
        [only] => steps.extend(self::steps(only)),
        several => steps.push(siblings(several)),
    }
    steps
}

/// A command as a step; anything that looks like one of our fields is quoted.
fn escape_step(command: &str) -> String {
    let field = |name: &str| command.contains(&format!("{{{name}}}"));
    if command.trim().is_empty() {
        ":".to_owned()
    } else if FIELDS.iter().any(|name| field(name)) {
        in_a_shell(command)
    } else {
        command.to_owned()
    }
}

/// Runs all commands in any case; fails if one did. No `exit`, which would run `~/.bash_logout` in a login shell.
fn siblings(commands: &[SteakpieCommand]) -> String {
    let all: Vec<_> = commands.iter().map(|command| format!("{} || r=1; ", shell_with_children(command))).collect();
    format!("r=0; {}[ $r = 0 ]", all.concat())
}

/// A command in its own shell, and its children if it succeeds.
fn shell_with_children(command: &SteakpieCommand) -> String {
    let parent = in_a_shell(&command.text);
    match command.children.as_slice() {
        [] => parent,
        [only] => format!("{parent} && {}", shell_with_children(only)),
        several => format!("{parent} && ( {} )", siblings(several)),
    }
}

/// `bash -lc '…'`. Empty quotes separate a brace from a name, because `{tag}` would be a field.
fn in_a_shell(command: &str) -> String {
    let mut out = format!("{SHELL} '");
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => out.push_str(r"'\''"),
            '{' if chars.peek().is_some_and(|next| next.is_ascii_alphabetic() || *next == '_') => out.push_str("{''"),
            _ => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Variables that these commands use: steakpie passed its whole environment.
fn variables(folders: &[SteakpieFolder]) -> BTreeSet<&str> {
    fn of<'c>(command: &'c SteakpieCommand, into: &mut BTreeSet<&'c str>) {
        for rest in command.text.split('$').skip(1) {
            let rest = rest.strip_prefix('{').unwrap_or(rest);
            let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            let name = &rest[..end.unwrap_or(rest.len())];
            let ours = ["HOOKONCE_", "LC_", "DOCKER_", "BASH_"].iter().any(|prefix| name.starts_with(prefix));
            if name.starts_with(|c: char| c.is_ascii_uppercase()) && !USUAL.contains(&name) && !ours {
                into.insert(name);
            }
        }
        command.children.iter().for_each(|child| of(child, into));
    }
    let mut names = BTreeSet::new();
    folders.iter().flat_map(|folder| &folder.commands).for_each(|command| of(command, &mut names));
    names
}

/// A TOML string, without escapes where possible.
pub(super) fn text(text: &str) -> String {
    if text.contains(['"', '\\']) && !text.chars().any(|c| c == '\'' || c.is_control()) {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => write!(out, "\\u{:04X}", u32::from(c)).expect("writing to a string cannot fail"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A name as a string of an expression.
fn expression(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A text as a one-line comment.
pub(super) fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &SteakpieCommand, expected: &[&str]) {
        assert_eq!(steps(command), expected);
    }

    fn one(text: &str, children: &[SteakpieCommand]) -> SteakpieCommand {
        SteakpieCommand { text: text.into(), children: children.to_vec() }
    }

    #[test]
    fn an_only_child_is_the_next_step_and_several_are_one() {
        check(&one("a", &[]), &["a"]);
        check(&one("a", &[one("b", &[one("c", &[])])]), &["a", "b", "c"]);
        let several = [one("b", &[]), one("it's", &[one("d", &[])])];
        check(
            &one("a", &several),
            &["a", r"r=0; bash -lc 'b' || r=1; bash -lc 'it'\''s' && bash -lc 'd' || r=1; [ $r = 0 ]"],
        );
        let deeper = [one("b", &several), one("e", &[])];
        let inner = r"r=0; bash -lc 'b' || r=1; bash -lc 'it'\''s' && bash -lc 'd' || r=1; [ $r = 0 ]";
        let all = format!("r=0; bash -lc 'b' && ( {inner} ) || r=1; bash -lc 'e' || r=1; [ $r = 0 ]");
        check(&one("a", &deeper), &["a", &all]);
    }

    #[test]
    fn what_looks_like_a_field_of_ours_is_hidden_from_us_and_not_from_the_shell() {
        check(&one("echo {tag} ${x}", &[]), &["bash -lc 'echo {''tag} ${''x}'"]);
        check(&one("docker inspect -f {{.Id}} x", &[]), &["docker inspect -f {{.Id}} x"]);
        check(&one(" ", &[]), &[":"]);
    }

    #[test]
    fn variables_that_commands_name_are_passed_on() {
        let commands = vec![one("echo $HOME $TOKEN ${B_2:-x} $1 $a", &[one("x $CHILD$DOCKER_HOST", &[])])];
        let names = variables(&[SteakpieFolder { dir: None, commands }]).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(names, "B_2 CHILD TOKEN");
    }

    #[test]
    fn a_text_comes_back_from_toml_as_it_was() {
        for original in ["a", "it's", "say \"x\"", "it's \"x\" \\", "a\tb\nc\u{1}\u{7f}\u{85}", "'''", "é", ""] {
            let table: toml::Table = format!("x = {}", text(original)).parse().expect("TOML");
            assert_eq!(table["x"].as_str(), Some(original));
        }
    }
}
