//! `hookonce registers`: what each subject was last changed to, what was last deployed of it, and what was last good.

use super::backend::{BackendArgs, BackendPurpose, CommandOutcome, EventBackend, read_key, short, short_id, text};
use super::error::{CommandError, print_error};
use super::list::{state, value};
use super::show::EventPrinter;
use super::terminal::{OutputFormat, Terminal, confirm, one_line, one_line_json};
use super::text_table::{TextTable, TextTableCell};
use crate::config::EnvLookup;
use crate::decide::id::EventId;
use crate::decide::ledger::RegisterEdit;
use crate::store::subjects::RegisterQuery;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Minimum width of a column that is never cut.
const WHOLE: usize = usize::MAX;
/// Minimum width of a name or value.
const LEAST: usize = 10;
/// Registers that are named where a command could mean each of them.
const NAMED_MAX: usize = 10;

/// What to do with registers; without a command, they are listed.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct RegistersArgs {
    #[command(subcommand)]
    command: Option<RegistersCommand>,
    #[command(flatten)]
    list: RegisterListArgs,
}

#[derive(Subcommand, Debug)]
enum RegistersCommand {
    /// List registers
    List(RegisterListArgs),
    /// Show one register and its three events
    Show(RegisterShowArgs),
    /// Name another event as current, deployed or good; nothing runs
    Set(RegisterSetArgs),
    /// Forget a register, or only what was deployed; nothing runs
    Clear(RegisterClearArgs),
}

/// Which registers to list.
#[derive(Args, Debug)]
struct RegisterListArgs {
    /// Only subjects with these values, such as `package=shop`
    #[arg(value_name = "FIELD=VALUE", value_parser = field_value)]
    fields: Vec<(String, String)>,
    /// Only registers of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Maximum number of registers to show
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Names one register.
#[derive(Args, Debug)]
struct RegisterName {
    /// The values of its fields, such as `package=shop tag=latest`; the beginning of its key; or an event of it
    #[arg(required = true, value_name = "REGISTER", value_parser = NonEmptyStringValueParser::new())]
    register: Vec<String>,
    /// Only registers of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

/// Which register to show.
#[derive(Args, Debug)]
struct RegisterShowArgs {
    #[command(flatten)]
    name: RegisterName,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Which register to correct, and how.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("becomes").required(true).multiple(true)))]
struct RegisterSetArgs {
    #[command(flatten)]
    name: RegisterName,
    /// Event that is to be the current one: its value and order become the register's
    #[arg(long, value_name = "EVENT", group = "becomes", value_parser = NonEmptyStringValueParser::new())]
    current: Option<String>,
    /// Event that is to be the last deployed one
    #[arg(long, value_name = "EVENT", group = "becomes", value_parser = NonEmptyStringValueParser::new())]
    deployed: Option<String>,
    /// Event that is to be the last good one
    #[arg(long, value_name = "EVENT", group = "becomes", value_parser = NonEmptyStringValueParser::new())]
    good: Option<String>,
    /// Don't ask before changing it
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// Which register to clear, and how much of it.
#[derive(Args, Debug)]
struct RegisterClearArgs {
    #[command(flatten)]
    name: RegisterName,
    /// Forget only what was deployed and good; the current event stays
    #[arg(long)]
    deployed: bool,
    /// Don't ask before changing it
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: BackendArgs,
}

/// A field and its value.
fn field_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected a field and its value, such as `package=shop`")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Lists, shows or corrects registers.
pub(crate) async fn registers(
    asked: &RegistersArgs,
    env: EnvLookup<'_>,
    out: &mut impl Write,
) -> Result<u8, CommandError> {
    match &asked.command {
        None => list(&asked.list, env, out).await,
        Some(RegistersCommand::List(asked)) => list(asked, env, out).await,
        Some(RegistersCommand::Show(asked)) => show(asked, env, out).await,
        Some(RegistersCommand::Set(asked)) => set(asked, env, out).await,
        Some(RegistersCommand::Clear(asked)) => clear(asked, env, out).await,
    }
}

async fn list(asked: &RegisterListArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let backend = asked.at.open(BackendPurpose::Read, env).await?;
    let limit = usize::from(asked.limit);
    let query = RegisterQuery { source: asked.source.clone(), fields: asked.fields.clone(), after: None, limit };
    let (registers, more) = backend.registers(query).await?;
    let terminal = Terminal::stdout(asked.json);
    match terminal.form {
        OutputFormat::Json => writeln!(out, "{:#}", json!({ "registers": registers, "more": more }))?,
        OutputFormat::Lines => registers.iter().try_for_each(|register| writeln!(out, "{}", line(register)))?,
        OutputFormat::Screen(_) if registers.is_empty() => print_error("no registers"),
        OutputFormat::Screen(width) => {
            write!(out, "{}", table(&registers, &terminal).render(&terminal, width))?;
            if more {
                let more = "there are more: raise --limit, or name fields, such as package=shop";
                writeln!(out, "{}", terminal.paint("2", more))?;
            }
        }
    }
    Ok(0)
}

/// One register as a tab-separated line.
fn line(register: &Value) -> String {
    let event = |which: &str| text(&register[which], "event").to_owned();
    let cells = [
        text(register, "register").to_owned(),
        one_line(text(register, "source")),
        one_line(text(register, "route")),
        one_line_json(&register["subject"]),
        one_line_json(&register["current"]["value"]),
        event("current"),
        text(&register["current"], "state").to_owned(),
        event("deployed"),
        event("good"),
    ];
    cells.join("\t")
}

fn table(registers: &[Value], terminal: &Terminal) -> TextTable {
    // What is deployed is what people look for: of a narrow terminal, the state and the source go first.
    let mut table = TextTable::default().column("register", WHOLE);
    let mut fields: Vec<&str> = Vec::new();
    for (name, _) in registers.iter().filter_map(|register| register["subject"].as_object()).flatten() {
        if !fields.contains(&name.as_str()) {
            fields.push(name);
        }
    }
    for name in &fields {
        table = table.column(name, LEAST);
    }
    table = table.column("deployed", WHOLE).column("good", WHOLE).column("current", WHOLE).column("state", WHOLE);
    table = table.column("source", LEAST);
    for register in registers {
        let current = &register["current"];
        let (said, code) = state(current);
        let mut cells = vec![TextTableCell::new(key_of(register), "1")];
        cells.extend(fields.iter().map(|name| TextTableCell::new(value(&register["subject"][name]), "")));
        for which in ["deployed", "good"] {
            let one = &register[which];
            let said =
                if one.is_object() { format!("{}, {}", short(one), terminal.ago(&one["at"])) } else { "-".to_owned() };
            cells.push(TextTableCell::new(said, if one["event"] == current["event"] { "2" } else { "33" }));
        }
        cells.push(TextTableCell::new(short(current), ""));
        cells.push(TextTableCell::new(said, code));
        cells.push(TextTableCell::new(one_line(text(register, "source")), ""));
        table.row(cells);
    }
    table
}

async fn show(asked: &RegisterShowArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let backend = asked.at.open(BackendPurpose::Read, env).await?;
    let register = asked.name.find(&backend).await?;
    let terminal = Terminal::stdout(asked.json);
    match terminal.form {
        OutputFormat::Json => writeln!(out, "{register:#}")?,
        OutputFormat::Screen(_) | OutputFormat::Lines => print(&register, terminal, out)?,
    }
    Ok(0)
}

fn print(register: &Value, terminal: Terminal, out: &mut impl Write) -> io::Result<()> {
    let mut printer = EventPrinter { terminal, out };
    printer.print_wrapped("register", text(register, "register"))?;
    printer.print_wrapped("subject", &pairs(&register["subject"]))?;
    if register["source"].is_string() {
        printer.print_wrapped("source", &format!("{}, route {}", text(register, "source"), text(register, "route")))?;
    }
    if !register["order"].is_null() {
        let by = register["ordered_by"].as_str().map(|by| format!(" ({by})")).unwrap_or_default();
        let strict = if register["strict"] == true { "; an equal order is stale, too" } else { "" };
        printer.print_wrapped("order", &format!("{}{by}{strict}", value(&register["order"])))?;
    }
    for which in ["current", "deployed", "good"] {
        let event = &register[which];
        if !event.is_object() {
            printer.print_wrapped(which, "none")?;
            continue;
        }
        let (state, code) = if event["state"].is_null() { ("not kept".to_owned(), "2") } else { state(event) };
        let verb = if which == "current" { "received" } else { which };
        let at = if event["at"].is_null() { String::new() } else { format!(", {verb} {}", terminal.ago(&event["at"])) };
        let back = text(event, "rolled_back_by");
        let back = if back.is_empty() { String::new() } else { format!(", rolled back by {}", short_id(back)) };
        printer.label(which, &format!("{}  {}{at}{back}", short(event), terminal.paint(code, &state)))?;
        if which == "current" || event["event"] != register["current"]["event"] {
            printer.print_values(event)?;
        }
    }
    Ok(())
}

impl<W: Write> EventPrinter<'_, W> {
    /// Prints what an event changed the subject to, and what the registry said.
    fn print_values(&mut self, event: &Value) -> io::Result<()> {
        let values = pairs(&event["value"]);
        if !values.is_empty() {
            self.print_wrapped("", &values)?;
        }
        match event["digest"].as_str() {
            Some(digest) => self.print_wrapped("", &format!("the registry's digest {digest}")),
            None => Ok(()),
        }
    }
}

async fn set(asked: &RegisterSetArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let backend = asked.at.open(BackendPurpose::Write, env).await?;
    let register = asked.name.find(&backend).await?;
    let (mut events, mut said) = ([None::<EventId>; 3], Vec::new());
    let asked_for = [("current", &asked.current), ("deployed", &asked.deployed), ("good", &asked.good)];
    for (event, (which, name)) in events.iter_mut().zip(asked_for) {
        if let Some(name) = name {
            let found = backend.show(name).await?;
            *event = text(&found, "event").parse().ok();
            said.push(format!("{which} becomes {}", short(&found)));
        }
    }
    let said = said.join(", ");
    confirm(&format!("This changes the register of {}: {said}. Nothing runs.", subject(&register)), asked.yes).await?;
    let [current, deployed, good] = events;
    let edited = edit(&backend, &register, RegisterEdit::Set { current, deployed, good }).await?;
    match Terminal::stdout(asked.json).form {
        OutputFormat::Json => writeln!(out, "{edited:#}")?,
        OutputFormat::Screen(_) | OutputFormat::Lines => {
            writeln!(out, "set {} of {}: {said}", key_of(&register), subject(&register))?;
        }
    }
    Ok(0)
}

async fn clear(asked: &RegisterClearArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let backend = asked.at.open(BackendPurpose::Write, env).await?;
    let register = asked.name.find(&backend).await?;
    let subject = subject(&register);
    let (question, way) = if asked.deployed {
        (format!("This forgets what was deployed of {subject}."), RegisterEdit::ClearDeployed)
    } else {
        let acts = "the next delivery of it acts, whatever its value and order";
        (format!("This forgets the register of {subject}: {acts}."), RegisterEdit::Clear)
    };
    confirm(&question, asked.yes).await?;
    let edited = edit(&backend, &register, way).await?;
    match Terminal::stdout(asked.json).form {
        OutputFormat::Json => writeln!(out, "{edited:#}")?,
        OutputFormat::Screen(_) | OutputFormat::Lines => {
            let what = if asked.deployed { "what was deployed" } else { "the register" };
            writeln!(out, "cleared {what} of {subject}")?;
        }
    }
    Ok(0)
}

async fn edit(backend: &EventBackend, register: &Value, edit: RegisterEdit) -> Result<Value, CommandError> {
    let key = read_key(text(register, "register"));
    let key = key.ok_or_else(|| CommandError::unknown("the node answered with a register without a key"))?;
    match backend.edit_register(key, edit).await? {
        CommandOutcome::Done(now) => Ok(now),
        CommandOutcome::Refused(why) => {
            Err(CommandError::no(format!("the register of {} was not changed: {why}", subject(register))))
        }
    }
}

impl RegisterName {
    /// The one register that is meant.
    async fn find(&self, backend: &EventBackend) -> Result<Value, CommandError> {
        let fields: Vec<_> = self.register.iter().filter_map(|word| field_value(word).ok()).collect();
        match &self.register[..] {
            [name] if fields.is_empty() && self.source.is_none() => return backend.register(name).await,
            words if fields.len() < words.len() => {
                return Err(CommandError::unknown(
                    "name a register by the values of its fields, such as `package=shop tag=latest`, or by the beginning \
                     of its key or one event alone",
                ));
            }
            _ => {}
        }
        let limit = NAMED_MAX + 1;
        let query = RegisterQuery { source: self.source.clone(), fields, after: None, limit };
        let (mut found, _) = backend.registers(query).await?;
        match (found.pop(), found.is_empty()) {
            (Some(register), true) => Ok(register),
            (None, _) => Err(CommandError::no("no register has these fields; `hookonce registers` lists them")),
            (Some(last), false) => {
                found.push(last);
                let line = |one: &Value| format!("\n  {}  {}", key_of(one), subject(one));
                let lines: String = found.iter().take(NAMED_MAX).map(line).collect();
                let more = if found.len() > NAMED_MAX { "\n  …" } else { "" };
                Err(CommandError::no(format!("several registers have these fields; name more of them:{lines}{more}")))
            }
        }
    }
}

/// The beginning of a register's key, as people see it.
fn key_of(register: &Value) -> String {
    let key = text(register, "register");
    key.get(..8).unwrap_or(key).to_owned()
}

/// The subject of a register in words.
fn subject(register: &Value) -> String {
    let named = pairs(&register["subject"]);
    if named.is_empty() { key_of(register) } else { named }
}

/// Fields as `name=value`.
fn pairs(fields: &Value) -> String {
    let each = fields.as_object().into_iter().flatten().map(|(name, found)| format!("{name}={}", value(found)));
    each.collect::<Vec<_>>().join(" ")
}
