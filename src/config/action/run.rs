//! `run`: blocks of commands.

use super::references;
use crate::action::plan::{
    CommandBlock, CommandLine, EnvEntry, FieldTemplate, FieldTemplatePart, OutputDestination, WorkingDir,
};
use crate::config::fields::{SourceFieldScope, variable};
use crate::config::injection;
use crate::config::injection::{ArgumentTemplate, InjectionKind};
use crate::config::keys::{ConfigValueType, SectionKeys, key};
use crate::config::raw::{ConfigNode, ConfigSpan, ConfigValue};
use crate::config::resolve::ConfigResolver;
use crate::config::section::ConfigSection;
use crate::decide::source::ResponseMode;
use crate::decide::time::{Duration, duration_text};
use serde_json::{Value, json};

pub(super) static BLOCK_KEYS: SectionKeys = SectionKeys {
    name: "block",
    title: "`run = { … }`",
    about: "Commands. Blocks are independent of each other; inside a block, a step runs only if the previous one succeeded.",
    keys: &[&[
        key(
            "dir",
            ConfigValueType::Text,
            "the folder of the config file",
            "Working directory of the steps; {field} may be one existing path segment.",
        ),
        key("steps", ConfigValueType::Steps, "required", "The commands, run one after the other."),
        key(
            "timeout",
            ConfigValueType::Duration,
            "10m",
            "Timeout of the block. An attempt that takes longer counts against attempts.",
        ),
        key("env", ConfigValueType::Env, "nothing more", "Environment: names to pass, or names and values."),
        key("shell", ConfigValueType::Texts, "[\"sh\", \"-c\"]", "The shell for steps that are strings."),
        key(
            "log_output",
            ConfigValueType::Flag,
            "false",
            "Whether to also write the commands' output to the log, line by line.",
        ),
    ]],
};

const BLOCK_TIMEOUT: Duration = Duration::from_mins(10);
/// Prefix of the variables that hookonce sets for commands.
const OWN_VARIABLES: &str = "HOOKONCE_";

impl ConfigResolver<'_> {
    pub(in crate::config) fn run(
        &mut self,
        route: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        respond: ResponseMode,
    ) -> Option<Vec<CommandBlock>> {
        let sections = route.sections("run");
        self.number_of("run", sections.len(), route)?;
        let shared = route.node("env").map(|node| self.environment(node)).unwrap_or_default();
        let mut blocks = Vec::new();
        for section in sections {
            let mut env = shared.clone();
            env.extend(section.node("env").map(|node| self.environment(node)).unwrap_or_default());
            blocks.push(CommandBlock {
                dir: self.dir(&section, names),
                steps: self.steps(&section, names),
                timeout: self.timeout(&section, respond).unwrap_or(BLOCK_TIMEOUT),
                env,
                output: match section.flag("log_output") {
                    Some(true) => OutputDestination::StoreAndLog,
                    _ => OutputDestination::Store,
                },
            });
        }
        Some(blocks)
    }

    fn steps(&mut self, section: &ConfigSection<'_>, names: &SourceFieldScope<'_>) -> Vec<CommandLine> {
        let shell: Vec<String> = match section.node("shell").and_then(ConfigNode::list) {
            Some(list) => list.iter().filter_map(ConfigNode::text).map(str::to_owned).collect(),
            None => vec!["sh".to_owned(), "-c".to_owned()],
        };
        if shell.first().is_none_or(String::is_empty) {
            self.diagnostics
                .error("`shell` is empty")
                .at(section.place("shell"), "the shell and its option, such as [\"sh\", \"-c\"]");
        }
        let Some(node) = section.node("steps") else {
            self.diagnostics
                .error("`run` has no `steps`")
                .unless(section.misspells("steps"))
                .at(section.at, "")
                .hint("steps = [\"docker compose pull\", \"docker compose up -d\"]");
            return Vec::new();
        };
        let list = node.list().unwrap_or(&[]);
        if node.list().is_some_and(<[_]>::is_empty) {
            self.diagnostics.error("`steps` is empty").at(node.at, "at least one step is needed");
        }
        list.iter().filter_map(|step| self.step(step, &shell, names)).collect()
    }

    pub(in crate::config) fn step(
        &mut self,
        node: &ConfigNode,
        shell: &[String],
        names: &SourceFieldScope<'_>,
    ) -> Option<CommandLine> {
        let empty = match &node.value {
            ConfigValue::Text(text) => text.trim().is_empty(),
            ConfigValue::List(words) => words.first().and_then(ConfigNode::text).is_none_or(str::is_empty),
            _ => return None,
        };
        if empty {
            self.diagnostics.error("a step is empty").at(node.at, "");
        }
        match &node.value {
            ConfigValue::Text(text) => {
                self.no_fields_in_the_shell(node.at, text, names);
                Some(CommandLine::Shell { shell: shell.to_vec(), text: text.clone() })
            }
            ConfigValue::List(words) => {
                self.no_fields_as_programs(words, names);
                Some(CommandLine::Argv(words.iter().map(|word| FieldTemplate(self.pieces(word, names))).collect()))
            }
            _ => None,
        }
    }

    /// Reports fields in a shell's text: the shell would run whatever the sender put in them.
    fn no_fields_in_the_shell(&mut self, at: ConfigSpan, text: &str, names: &SourceFieldScope<'_>) {
        for (range, name) in references(text) {
            let shells_own = text[..range.start].ends_with('$');
            if names.fields.ix(name).is_some() && !shells_own {
                let at = self.inside(at, &range);
                self.diagnostics
                    .error(format!("`{{{name}}}` is in a shell command"))
                    .at(at, "the sender could inject commands")
                    .hint(format!("write \"${}\", or make the step a list", variable(name)));
            }
        }
    }

    /// Reports fields that choose the program or are part of the text that a program runs.
    fn no_fields_as_programs(&mut self, words: &[ConfigNode], names: &SourceFieldScope<'_>) {
        let declared = |text| {
            let all = references(text).into_iter().filter(|(_, name)| names.fields.ix(name).is_some());
            all.collect::<Vec<_>>()
        };
        let argv: Vec<_> = words
            .iter()
            .map(|word| {
                let text = word.text().unwrap_or_default();
                let starts: Vec<_> = declared(text).into_iter().map(|(range, _)| range.start).collect();
                ArgumentTemplate { text, field: starts.first().copied(), last: starts.last().copied() }
            })
            .collect();
        for risk in injection::risks(&argv) {
            for (range, name) in declared(argv[risk.at].text) {
                let at = self.inside(words[risk.at].at, &range);
                let (what, label, hint) = injection_message(risk.kind, name);
                self.diagnostics.error(what).at(at, label).hint(hint);
            }
        }
        if let Some((at, name)) = injection::runs_its_input(&argv) {
            self.diagnostics
                .error(format!("`{name}` would run the delivery's body as a program"))
                .at(words[at].at, "a command's standard input is the body")
                .hint(format!("name a script file: [\"{name}\", \"deploy\"]"));
        }
    }

    fn dir(&mut self, section: &ConfigSection<'_>, names: &SourceFieldScope<'_>) -> WorkingDir {
        let Some(node) = section.node("dir") else { return WorkingDir::Fixed(self.base.to_owned()) };
        let text = node.text().unwrap_or_default();
        let pieces = self.pieces(node, names);
        for (range, name) in references(text) {
            let (before, after) = (&text[..range.start], &text[range.end..]);
            if !((before.is_empty() || before.ends_with('/')) && (after.is_empty() || after.starts_with('/'))) {
                let at = self.inside(node.at, &range);
                self.diagnostics
                    .error(format!("`{{{name}}}` is only part of a folder's name"))
                    .at(at, "in `dir` a field is one whole folder name")
                    .hint(format!("dir = \"/opt/{{{name}}}\""));
            }
        }
        let literal = match pieces.as_slice() {
            [FieldTemplatePart::Text(first), ..] => first.clone(),
            _ => String::new(),
        };
        let path = self.base.join(&literal);
        let whole = pieces.len() == 1 || literal.is_empty() || literal.ends_with('/');
        if whole && !path.is_dir() {
            self.diagnostics
                .warning(format!("the folder {} does not exist", path.display()))
                .at(node.at, "the steps will fail until it does");
        }
        if matches!(pieces.as_slice(), [FieldTemplatePart::Text(_)]) {
            return WorkingDir::Fixed(path);
        }
        let mut all = vec![FieldTemplatePart::Text(format!("{}/", path.display().to_string().trim_end_matches('/')))];
        all.extend(pieces.into_iter().skip(usize::from(!literal.is_empty())));
        WorkingDir::Named(FieldTemplate(all))
    }

    fn environment(&mut self, node: &ConfigNode) -> Vec<EnvEntry> {
        let mut entries = Vec::new();
        match &node.value {
            ConfigValue::List(list) => {
                for item in list {
                    let Some(name) = item.text() else { continue };
                    self.variable_name(name, item.at);
                    self.env_passed.push((name.to_owned(), item.at));
                    entries.push(EnvEntry::Pass(name.to_owned()));
                }
            }
            ConfigValue::Table(table) => {
                for entry in &table.entries {
                    self.variable_name(&entry.key, entry.key_at);
                    let value = entry.node.text().unwrap_or_default();
                    if value.contains('\0') {
                        self.diagnostics.error("a variable's value contains a NUL byte").at(entry.node.at, "");
                    }
                    entries.push(EnvEntry::Set(entry.key.clone(), value.to_owned()));
                }
            }
            _ => {}
        }
        entries
    }

    fn variable_name(&mut self, name: &str, at: ConfigSpan) {
        if name.is_empty() || name.contains(['=', '\0']) {
            self.diagnostics.error(format!("`{name}` cannot be the name of a variable")).at(at, "");
        } else if name.starts_with(OWN_VARIABLES) {
            self.diagnostics
                .error(format!("`{name}` cannot be passed to a command"))
                .at(at, "variables that begin with HOOKONCE_ are set by hookonce itself");
        }
    }
}

/// What is wrong with `{name}` in an argument, what could happen, and a safe alternative.
fn injection_message(kind: InjectionKind<'_>, name: &str) -> (String, &'static str, String) {
    let variable = variable(name);
    match kind {
        InjectionKind::Program => (
            format!("`{{{name}}}` is the program itself"),
            "the sender could choose what runs",
            format!("name the program, and pass the value as an argument: [\"./deploy\", \"{{{name}}}\"]"),
        ),
        InjectionKind::Script { by } => (
            format!("`{{{name}}}` chooses what `{by}` runs"),
            "the sender could choose what runs",
            format!("name the file, and pass the value as an argument: [\"{by}\", \"deploy\", \"{{{name}}}\"]"),
        ),
        InjectionKind::Text { by } => (
            format!("`{{{name}}}` is in text that `{by}` runs as a program"),
            "the sender could inject commands",
            format!(
                "read the environment variable {variable} there, in a shell as \"${variable}\"; or pass the value as an \
                 argument: [\"sh\", \"-c\", \"deploy \\\"$1\\\"\", \"_\", \"{{{name}}}\"]"
            ),
        ),
        InjectionKind::Line { by } => (
            format!("`{{{name}}}` is in a line that `{by}` may pass to a shell"),
            "the sender could inject commands",
            format!(
                "run a script file instead: it gets the value as the environment variable {variable}, and can quote it \
                 for `{by}`"
            ),
        ),
        InjectionKind::Variable { name: set } => (
            format!("`{{{name}}}` would set `{set}`, from which programs load code"),
            "the sender could choose what runs",
            format!("read the environment variable {variable} instead"),
        ),
    }
}

/// A block as JSON.
pub(super) fn view(block: &CommandBlock) -> Value {
    let steps: Vec<_> = block
        .steps
        .iter()
        .map(|step| match step {
            CommandLine::Shell { text, .. } => json!(text),
            CommandLine::Argv(words) => json!(words.iter().map(ToString::to_string).collect::<Vec<_>>()),
        })
        .collect();
    json!({
        "dir": block.dir.to_string(),
        "steps": steps,
        "timeout": duration_text(block.timeout),
        "env": block.env.iter().map(env_name).collect::<Vec<_>>(),
        "log_output": block.output == OutputDestination::StoreAndLog,
    })
}

/// A block in words.
pub(super) fn texts(block: &CommandBlock) -> Vec<String> {
    let mut texts = vec![format!("in {}, within {}", block.dir, duration_text(block.timeout))];
    texts.extend(block.steps.iter().map(|step| format!("  {step}")));
    if !block.env.is_empty() {
        let env: Vec<_> = block.env.iter().map(env_name).collect();
        texts.push(format!("with {}", env.join(", ")));
    }
    if block.output == OutputDestination::StoreAndLog {
        texts.push("output also to the log".to_owned());
    }
    texts
}

/// The name of a variable; its value may be a secret.
fn env_name(entry: &EnvEntry) -> &str {
    match entry {
        EnvEntry::Pass(name) | EnvEntry::Set(name, _) => name,
    }
}
