//! A config in words and as JSON, without secrets and without URLs that may contain one: for `check`, `explain` and the
//! admin port. Each section describes itself; here is what they have in common.

use super::diagnostic::{ConfigDiagnostic, ConfigError, DiagnosticSeverity};
use super::{AdminPermission, Config, TlsFiles, route, source_view};
use serde_json::{Value, json};
use std::io::{self, Write};

/// A label, and a text for each line.
pub(crate) type LabelledTexts = (&'static str, Vec<String>);

/// A label and one text.
pub(super) fn labelled(label: &'static str, text: impl Into<String>) -> LabelledTexts {
    (label, vec![text.into()])
}

/// Prints one line: a label and a text.
pub(crate) fn line(out: &mut impl Write, indent: &str, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{}", format!("{indent}{name:<11}{text}").trim_end())
}

/// Prints a label once, and each text on its own line.
pub(crate) fn lines(out: &mut impl Write, indent: &str, name: &str, texts: &[String]) -> io::Result<()> {
    texts.iter().enumerate().try_for_each(|(i, text)| line(out, indent, if i == 0 { name } else { "" }, text))
}

fn print_texts(out: &mut impl Write, indent: &str, all: &[LabelledTexts]) -> io::Result<()> {
    all.iter().try_for_each(|(label, texts)| lines(out, indent, label, texts))
}

/// Prints what a config means, source by source.
pub fn describe(config: &Config, out: &mut impl Write) -> io::Result<()> {
    let admin = match config.admin.tokens.as_slice() {
        [] => format!("{}, without a token", config.admin.listen),
        tokens => {
            let may: Vec<_> = tokens.iter().map(|token| may_words(token.may)).collect();
            format!("{}, tokens that may {}", config.admin.listen, may.join(", "))
        }
    };
    let with_tls = |tls: Option<&TlsFiles>| tls.map_or("", |_| ", with TLS");
    line(out, "", "listen", &format!("{}{}", config.listen, with_tls(config.tls.as_ref())))?;
    line(out, "", "admin", &format!("{admin}{}", with_tls(config.admin.tls.as_ref())))?;
    if !config.clients.trusted_proxies.is_empty() {
        let proxies: Vec<_> = config.clients.trusted_proxies.iter().map(ToString::to_string).collect();
        line(out, "", "proxies", &proxies.join(", "))?;
    }
    line(out, "", "store", &config.store.description())?;
    for source in &config.sources {
        writeln!(out)?;
        writeln!(out, "source {}", source.name)?;
        print_texts(out, "  ", &source_view::texts(config, source))?;
        for route in &source.routes {
            writeln!(out, "  route {}", route.name)?;
            print_texts(out, "    ", &route::texts(config, source, route))?;
        }
    }
    writeln!(out)
}

fn may_words(may: AdminPermission) -> &'static str {
    match may {
        AdminPermission::Read => "read",
        AdminPermission::Forget => "forget",
        AdminPermission::All => "do everything",
    }
}

/// A valid config.
pub(crate) fn valid_config(file: &str, config: &Config) -> Value {
    json!({
        "status": "fine",
        "file": file,
        "listen": config.listen.to_string(),
        "tls": config.tls.is_some(),
        "trusted_proxies": config.clients.trusted_proxies.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "store": config.store.description(),
        "admin": {
            "listen": config.admin.listen.to_string(),
            "tls": config.admin.tls.is_some(),
            "tokens": config.admin.tokens.iter().map(|token| match token.may {
                AdminPermission::Read => "read",
                AdminPermission::Forget => "forget",
                AdminPermission::All => "all",
            }).collect::<Vec<_>>(),
            "peers": config.admin.peers,
        },
        "sources": config.sources.iter().map(|s| source_view::view(config, s)).collect::<Vec<_>>(),
        "problems": problems(&config.warnings),
    })
}

/// The problems of an invalid config.
pub(crate) fn wrong(all: &ConfigError) -> Value {
    json!({ "status": "wrong", "file": all.file, "problems": problems(&all.list), "more": all.more })
}

fn problems(list: &[ConfigDiagnostic]) -> Vec<Value> {
    let one = |problem: &ConfigDiagnostic| {
        json!({
            "level": match problem.level { DiagnosticSeverity::Error => "error", DiagnosticSeverity::Warning => "warning" },
            "title": problem.title,
            "file": problem.place.as_ref().map(|place| &place.file),
            "line": problem.place.as_ref().map(|place| place.line),
            "column": problem.place.as_ref().map(|place| place.column),
            "label": problem.place.as_ref().map(|place| &place.label),
            "hint": problem.hint,
        })
    };
    list.iter().map(one).collect()
}
