//! A source that is only its preset, so that `send --preset` needs no config; and the key that its sender signs with.

use super::key_publisher::PublishedKeyPair;
use super::sender_key_pair::SenderKeyPair;
use super::{SendArgs, SenderKey, with_scheme};
use crate::cli::error::CommandError;
use crate::cli::terminal::one_line;
use crate::config::diagnostic::{ConfigError, DiagnosticSeverity};
use crate::config::presets::{self, Preset};
use crate::config::{self, Config, EnvLookup};
use crate::decide::nearest_name::nearest;
use crate::decide::source::Source;
use crate::decide::verify::PublicKeyAlgorithm;
use reqwest::Url;
use std::path::Path;

/// The variable that the secret is read by, whatever its own name is.
const SECRET: &str = "HOOKONCE_SEND_SECRET";

/// The variable of a secret path, which is given with the URL.
const PATH: &str = "HOOKONCE_SEND_PATH";

/// A config whose only source has this preset, and the key pair of its sender, if it signs with one.
pub(super) fn config(
    name: &str,
    asked: &SendArgs,
    env: EnvLookup<'_>,
) -> Result<(Config, Option<SenderKey>), CommandError> {
    let preset = presets::find(name).ok_or_else(|| {
        let meant = nearest(name, presets::PRESETS.iter().map(|preset| preset.name));
        let meant = meant.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
        let name = one_line(name);
        CommandError::unknown(format!(
            "there is no built-in preset `{name}`; {meant}`hookonce presets` lists them. With a preset of your own, name \
             the source that has it: --source NAME"
        ))
    })?;
    let needs = preset.sender().needs;
    let needed = |key: &str| needs.iter().any(|needed| needed == key);
    let scheme = preset.scheme().unwrap_or_default();
    if needed("path") && asked.url.as_deref().is_none_or(|url| !has_path(url)) {
        let why = format!("the path is the secret of `{name}`: give it with --url, such as --url 127.0.0.1:3142/in/…");
        return Err(CommandError::unknown(why));
    }
    let key = match scheme.as_str() {
        "ed25519" => Some(pair(PublicKeyAlgorithm::Ed25519, asked)?),
        "ecdsa-p256" => Some(pair(PublicKeyAlgorithm::EcdsaP256, asked)?),
        _ => None,
    };
    let secret = if needed("secret") { Some(secret(preset, asked, env)?) } else { None };
    let url = if needed("url") { Some(signed_url(preset, asked)?) } else { None };
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let public = key.as_ref().map(SenderKeyPair::public_key);
    let text = preset.example_with(|needed| match needed {
        "secret" | "verify_token" => Some(format!("{{ env = \"{SECRET}\" }}")),
        "public_key" => public.as_deref().map(quoted),
        "url" => url.as_deref().map(quoted),
        "path" => Some(format!("{{ env = \"{PATH}\" }}")),
        _ => None,
    });
    let read = |variable: &str| match variable {
        SECRET => secret.clone().or_else(|| Some("not needed to send".to_owned())),
        PATH => Some(format!("/the-path-is-in-the-url-of-{name}")),
        other => env(other),
    };
    let published = match scheme.as_str() {
        "sns" | "paypal" => Some(format!("certificates = \"http://127.0.0.1:{}\"", asked.keys_port)),
        "jwt" if !needed("secret") => Some(format!("keys = \"http://127.0.0.1:{}/keys\"", asked.keys_port)),
        _ => None,
    };
    let text = text + &published.as_ref().map(|line| format!("{line}\n")).unwrap_or_default();
    let config = format!("store = \"memory:\"\n{text}");
    let config = config::parse(&config, &format!("the preset {name}"), Path::new("."), &read);
    let config = config.map_err(|problems| unusable(preset, &problems))?;
    let key = match config.fetched_keys.values().next() {
        Some(keys) => {
            let key = PublishedKeyPair::load_or_make(keys.origin(), asked.key.as_deref())?;
            if key.is_new {
                tell_published(asked, &text);
            }
            Some(SenderKey::Published(key))
        }
        None => key.map(SenderKey::Private),
    };
    Ok((config, key))
}

/// Tells how a node fetches the public half of a new pair.
fn tell_published(asked: &SendArgs, source: &str) {
    eprintln!("a new key pair; its public half is served here while this command runs, to a node with this source:");
    source.lines().for_each(|line| eprintln!("  {line}"));
    if asked.key.is_none() {
        eprintln!("the next delivery gets another pair; --key FILE keeps this one");
    }
}

/// The URL that the sender signs: that of the node, unless another one is given.
fn signed_url(preset: &Preset, asked: &SendArgs) -> Result<String, CommandError> {
    let (option, given) = match (&asked.signed_url, &asked.url) {
        (Some(url), _) => ("--signed-url", url.clone()),
        (None, Some(url)) => ("--url", with_scheme(url)),
        (None, None) => ("--url", format!("http://{}", config::DEFAULT_LISTEN)),
    };
    let mut url = Url::parse(&given)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .ok_or_else(|| CommandError::unknown(format!("{option} is not a URL, and `{}` signs its URL", preset.name)))?;
    if asked.signed_url.is_some() || !matches!(url.path(), "" | "/") {
        return Ok(given); // signed as it is written
    }
    url.set_path(&format!("/in/{}", preset.name));
    Ok(url.into())
}

/// What is wrong with what was given for a preset. The place would be in a config that nobody wrote.
fn unusable(preset: &Preset, problems: &ConfigError) -> CommandError {
    let errors = problems.list.iter().filter(|problem| problem.level == DiagnosticSeverity::Error);
    let told = errors.map(|problem| match problem.place.as_ref().filter(|place| !place.label.is_empty()) {
        Some(place) => format!("{}: {}", problem.title, place.label),
        None => problem.title.clone(),
    });
    CommandError::unknown(format!("cannot sign as `{}`: {}", preset.name, told.collect::<Vec<_>>().join("; ")))
}

/// The key that the delivery is signed with, if the sender's private key signs.
pub(super) fn signing_key(
    asked: &SendArgs,
    config: &Config,
    source: &Source,
    given: Option<SenderKey>,
) -> Result<Option<SenderKey>, CommandError> {
    if given.is_some() {
        return Ok(given);
    }
    if let Some(keys) = config.fetched_keys.get(&source.name) {
        if !keys.origin().is_loopback() {
            return Err(not_signed_here(&source.name));
        }
        let key = PublishedKeyPair::load_or_make(keys.origin(), asked.key.as_deref())?;
        return Ok(Some(SenderKey::Published(key)));
    }
    match (source.verify.private_key(), &asked.key) {
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let why = format!("--key has no use: {} does not sign with a private key", source.name);
            Err(CommandError::unknown(why))
        }
        (Some(_), None) => Err(CommandError::unknown(format!(
            "the sender of {} signs with a private key: name a file with --key, which is made if there is none",
            source.name
        ))),
        (Some(algorithm), Some(_)) => pair(algorithm, asked).map(|key| Some(SenderKey::Private(key))),
    }
}

/// The key pair of a sender. Of a new one, the public half is told.
fn pair(algorithm: PublicKeyAlgorithm, asked: &SendArgs) -> Result<SenderKeyPair, CommandError> {
    let (key, is_new) = SenderKeyPair::load_or_make(algorithm.into(), asked.key.as_deref())?;
    if is_new {
        let public = key.public_key();
        eprintln!("a new key pair; the node verifies with its public half:\n  public_key = \"{public}\"");
        if asked.key.is_none() {
            eprintln!("the next delivery gets another pair; --key FILE keeps this one");
        }
    }
    Ok(key)
}

fn secret(preset: &Preset, asked: &SendArgs, env: EnvLookup<'_>) -> Result<String, CommandError> {
    let usual = format!("{}_SECRET", preset.name.to_ascii_uppercase().replace('-', "_"));
    let variable = asked.secret_env.as_ref().unwrap_or(&usual);
    env(variable).filter(|secret| !secret.is_empty()).ok_or_else(|| {
        CommandError::unknown(format!(
            "the variable {} is not set: it has the secret that the node has, too; --secret-env names another",
            one_line(variable)
        ))
    })
}

fn has_path(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split_once('/').is_some_and(|(_, path)| !path.is_empty())
}

fn not_signed_here(name: &str) -> CommandError {
    let why = "is verified with keys that are fetched from its sender, so that only the sender can sign";
    let hint = "let it send a test delivery, or set `keys` or `certificates` to an http:// address of this machine, \
                where `send` then serves a key of its own";
    CommandError::unknown(format!("{name} {why}; {hint}"))
}
