//! What a route does, as resolved from the config: data, with the places where fields go.

use crate::decide::field::{Fields, Value};
use crate::decide::time::Duration;
use std::fmt;
use std::sync::Arc;

/// What is done with an event.
#[derive(Clone, PartialEq, Debug)]
pub enum ActionPlan {
    /// Commands: blocks that do not depend on each other, one after another.
    Run(Vec<Block>),
    /// HTTP: one event for each receiver.
    Forward(Vec<Receiver>),
}

/// Steps that do: each runs only if the one before succeeded.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// Where they run. A field in it is one segment of the path.
    pub dir: Template,
    /// In this order.
    pub steps: Vec<CommandLine>,
    /// For all of them together.
    pub timeout: Duration,
    /// What their environment gets beside the usual.
    pub env: Vec<EnvEntry>,
}

/// One step.
#[derive(Clone, PartialEq, Debug)]
pub enum CommandLine {
    /// Text for a shell. It is the config's own: no field is ever put into it.
    Shell {
        /// The shell, such as `["sh", "-c"]`.
        shell: Vec<String>,
        /// What it gets as its last argument.
        text: String,
    },
    /// A program and its arguments.
    Argv(Vec<Template>),
}

impl fmt::Display for CommandLine {
    /// As the config has it: a field shows its name and never its value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shell { text, .. } => f.write_str(text),
            Self::Argv(argv) => argv.iter().enumerate().try_for_each(|(i, argument)| {
                let space = if i == 0 { "" } else { " " };
                write!(f, "{space}{argument}")
            }),
        }
    }
}

/// One variable of a step's environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EnvEntry {
    /// The node's own value of this name, unless it holds a secret.
    Pass(String),
    /// This name and value.
    Set(String, String),
}

/// Where an event is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Receiver {
    /// Never shown: it may carry a secret.
    pub url: String,
    /// From the first byte of the connection to the last of the answer.
    pub timeout: Duration,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({:?})", self.timeout)
    }
}

/// Text with places for fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template(pub Vec<Piece>);

/// A part of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Itself.
    Literal(String),
    /// The value of this field.
    Field(Arc<str>),
}

impl Template {
    /// The text with its fields filled in, or the name of the first that is missing.
    pub fn render(&self, fields: &Fields) -> Result<String, Arc<str>> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                Piece::Field(name) => match fields.get(name) {
                    Some(Value::Text(text) | Value::Number(text)) => out.push_str(text),
                    Some(Value::Bool(truth)) => out.push_str(if *truth { "true" } else { "false" }),
                    None => return Err(name.clone()),
                },
            }
        }
        Ok(out)
    }
}

impl From<&str> for Template {
    /// Text without fields.
    fn from(text: &str) -> Self {
        Self(vec![Piece::Literal(text.to_owned())])
    }
}

impl fmt::Display for Template {
    /// As the config has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Literal(text) => f.write_str(text),
            Piece::Field(name) => write!(f, "{{{name}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_takes_values_as_they_were_written_and_names_what_is_missing() {
        let fields: Fields = [
            ("tag".into(), Value::Text("a b".into())),
            ("n".into(), Value::Number("9007199254740993".into())),
            ("ok".into(), Value::Bool(true)),
        ]
        .into_iter()
        .collect();
        let field = |name: &str| Piece::Field(name.into());
        let whole = Template(vec![field("tag"), Piece::Literal("-".into()), field("n"), field("ok")]);
        assert_eq!(whole.render(&fields).as_deref(), Ok("a b-9007199254740993true"));
        assert_eq!(whole.to_string(), "{tag}-{n}{ok}");
        assert_eq!(Template(vec![field("tag"), field("sha")]).render(&fields), Err("sha".into()));
    }
}
