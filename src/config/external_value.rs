//! Values outside of the config file: `{ env = "…" }` and `{ file = "…" }`. Required for secrets, optional for URLs.

use super::caller_folder::CallerFolder;
use super::keys::{ConfigValueType, SectionKeys, key};
use super::raw::{ConfigNode, ConfigSpan, ConfigValue};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
pub(crate) use crate::action::plan::UNKNOWN_URL;
use crate::decide::limits;
use crate::registry::docker_config::DockerConfigError;
use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) static EXTERNAL_KEYS: SectionKeys = SectionKeys {
    name: "external",
    title: "`{ env = \"…\" }`, `{ file = \"…\" }` or `{ credential = \"…\" }`",
    about: "A value from outside of the config file.",
    keys: &[&[
        key("env", ConfigValueType::Text, "none", "The environment variable with the value."),
        key("file", ConfigValueType::Text, "none", "The file with the value; a trailing newline is removed."),
        key(
            "credential",
            ConfigValueType::Text,
            "none",
            "The systemd credential with the value: a file of this name in $CREDENTIALS_DIRECTORY.",
        ),
        key(
            "dir",
            ConfigValueType::Text,
            "none",
            "A folder with a file for each caller, one secret per line; only for a source's secret, with key_id.",
        ),
    ]],
};

/// The environment variable with the folder of the credentials that systemd passes.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// Maximum bytes of a file with a secret; a longer one is probably the wrong file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Whether a config may be loaded without its secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretRequirement {
    /// A missing secret or URL is an error: to run a node.
    Required,
    /// A missing value is noted in `ExternalValue::error`: to inspect a config. Nothing can be verified with a missing
    /// secret.
    Optional,
}

/// A value from outside of the config file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExternalValue {
    /// The key it belongs to.
    pub what: String,
    /// The source it belongs to, if any.
    pub source: Option<Arc<str>>,
    /// Where it is: `$NAME`, or a path.
    pub from: String,
    /// What is wrong, and what to do; `None` if it has a value.
    pub error: Option<(String, String)>,
}

/// A secret; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigSecret(Vec<u8>);

impl ConfigSecret {
    /// The bytes, for comparison in constant time; never print them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ConfigSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(•••)")
    }
}

/// A text from the file or from outside, and how to show it.
pub(super) struct ConfigText {
    pub(super) text: String,
    pub(super) shown: Option<String>,
    pub(super) at: ConfigSpan,
}

impl ConfigResolver<'_> {
    /// A secret that is chosen here, so that it can be long.
    pub(super) fn secret(&mut self, what: &str, node: &ConfigNode) -> Option<ConfigSecret> {
        self.secret_used(what, node, is_short)
    }

    /// A secret, of which the scheme that uses it says whether it is short.
    fn secret_used(&mut self, what: &str, node: &ConfigNode, is_short: fn(&[u8]) -> bool) -> Option<ConfigSecret> {
        let secret = self.credential(what, node)?;
        if is_short(&secret.0) {
            self.diagnostics
                .warning(format!("`{what}` is shorter than {} bytes", limits::SECRET_BYTES_MIN))
                .at(node.at, "it could be guessed")
                .hint("generate one with `openssl rand -hex 32`");
        }
        Some(secret)
    }

    /// A secret that another service gives out, such as an access token.
    pub(super) fn credential(&mut self, what: &str, node: &ConfigNode) -> Option<ConfigSecret> {
        match &node.value {
            ConfigValue::Text(_) => {
                self.diagnostics
                    .error(format!("`{what}` is written in the config file"))
                    .at(node.at, "a secret must not be in the config file")
                    .hint(format!("put it in an environment variable and write {what} = {{ env = \"NAME\" }}, or in a file and write {what} = {{ file = \"PATH\" }}"));
                None
            }
            ConfigValue::Table(_) => {
                let bytes = self.fetch(what, node)?;
                if is_useless(&bytes) {
                    let of = if bytes.iter().all(|byte| *byte == 0) { "NUL bytes" } else { "white space" };
                    self.diagnostics
                        .error(format!("`{what}` consists of {of}"))
                        .at(node.at, "it is no secret: everyone can guess it")
                        .hint("generate one with `openssl rand -hex 32`");
                    return None;
                }
                Some(ConfigSecret(bytes))
            }
            _ => None,
        }
    }

    /// Warns about a secret's file that every user of the machine can read.
    pub(super) fn warn_if_world_readable(&mut self, path: &Path, at: ConfigSpan) {
        if let Some(mode) = world_readable_mode(path) {
            self.diagnostics
                .warning(format!("every user of this machine can read {}", path.display()))
                .at(at, format!("its mode is {mode:04o}"))
                .hint(format!("chmod 600 {}", path.display()));
        }
    }

    /// One secret, or several while rotating.
    pub(super) fn secrets(
        &mut self,
        what: &str,
        node: &ConfigNode,
        is_short: fn(&[u8]) -> bool,
    ) -> Option<Vec<ConfigSecret>> {
        let Some(list) = node.list() else {
            return self.secret_used(what, node, is_short).map(|secret| vec![secret]);
        };
        if list.is_empty() {
            self.diagnostics.error(format!("`{what}` is an empty list")).at(node.at, "at least one secret is needed");
            return None;
        }
        if list.len() > limits::SECRETS_MAX {
            let label = format!("at most {} while rotating", limits::SECRETS_MAX);
            self.diagnostics.error(format!("`{what}` has {} secrets", list.len())).at(node.at, label);
            return None;
        }
        let mut secrets: Vec<ConfigSecret> = Vec::new();
        let mut complete = true;
        for item in list {
            match self.secret_used(what, item, is_short) {
                Some(secret) if secrets.contains(&secret) => {
                    self.diagnostics
                        .error(format!("`{what}` has the same secret twice"))
                        .at(item.at, "the same as one before it");
                    complete = false;
                }
                Some(secret) => secrets.push(secret),
                None => complete = false,
            }
        }
        (complete || self.secrets == SecretRequirement::Optional).then_some(secrets)
    }

    /// A text from the file or from outside.
    pub(super) fn text_or_external(&mut self, what: &str, node: &ConfigNode) -> Option<ConfigText> {
        if let Some(text) = node.text() {
            return Some(ConfigText { text: text.to_owned(), shown: None, at: node.at });
        }
        let from = ConfigSection::new(node.table()?, &EXTERNAL_KEYS, node.at);
        let shown = match (from.text("env"), from.text("file"), from.text("credential")) {
            (Some(name), ..) => format!("${name}"),
            (_, Some(path), _) => format!("the content of {path}"),
            (.., Some(name)) => format!("the credential {name}"),
            _ => String::new(),
        };
        let Some(bytes) = self.fetch(what, node) else {
            let unknown = || ConfigText { text: UNKNOWN_URL.to_owned(), shown: Some(shown), at: node.at };
            return self.may_be_missing(what).then(unknown);
        };
        let Ok(text) = String::from_utf8(bytes) else {
            self.diagnostics.error(format!("`{what}` is not text")).at(node.at, format!("{shown} is not UTF-8"));
            return None;
        };
        Some(ConfigText { text, shown: Some(shown), at: node.at })
    }

    /// A secret if it is available; a missing one is no problem.
    pub(super) fn secret_if_available(&self, node: &ConfigNode) -> Option<ConfigSecret> {
        let from = ConfigSection::new(node.table()?, &EXTERNAL_KEYS, node.at);
        let bytes = match (from.text("env"), from.text("file"), from.text("credential")) {
            (Some(name), None, None) => (self.env)(name)?.into_bytes(),
            (None, Some(path), None) => read(&self.base.join(path)).ok()?,
            (None, None, Some(name)) => read(&self.credentials()?.join(name)).ok()?,
            _ => return None,
        };
        (!bytes.is_empty()).then_some(ConfigSecret(bytes))
    }

    fn fetch(&mut self, what: &str, node: &ConfigNode) -> Option<Vec<u8>> {
        let from = ConfigSection::new(node.table()?, &EXTERNAL_KEYS, node.at);
        if let Some(dir) = from.node("dir") {
            self.diagnostics
                .error(format!("`{what}` cannot be a folder here"))
                .at(dir.at, "only the secret of a source can be one, and not in a list")
                .hint("secret = { dir = \"callers\" } with key_id = \"caller\", or { env = \"…\" }, { file = \"…\" }");
            return None;
        }
        match (from.node("env"), from.node("file"), from.node("credential")) {
            (Some(name), None, None) => self.variable(what, name),
            (None, Some(path), None) => self.file(what, path),
            (None, None, Some(name)) => self.systemd_credential(what, name),
            (None, None, None) => {
                if from.entries().is_empty() {
                    self.diagnostics.error(format!("`{what}` has no origin")).at(node.at, "`env` or `file` is needed");
                }
                None
            }
            (Some(_), Some(_), None) => {
                self.diagnostics
                    .error(format!("`{what}` has two origins"))
                    .at(node.at, "either `env` or `file`, not both");
                None
            }
            _ => {
                self.diagnostics
                    .error(format!("`{what}` has several origins"))
                    .at(node.at, "one of `env`, `file` and `credential`");
                None
            }
        }
    }

    /// The folder of the credentials that systemd passes.
    fn credentials(&self) -> Option<PathBuf> {
        (self.env)(CREDENTIALS).filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    /// A credential that systemd passes.
    fn systemd_credential(&mut self, what: &str, node: &ConfigNode) -> Option<Vec<u8>> {
        let name = node.text()?;
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            self.diagnostics
                .error(format!("`{name}` is not the name of a credential"))
                .at(node.at, "a name without slashes, as in LoadCredential=NAME:PATH");
            return None;
        }
        let Some(folder) = self.credentials() else {
            let title = format!("there is no credential `{name}`: {CREDENTIALS} is not set");
            let hint = format!(
                "systemd sets it for a unit with LoadCredential={name}:PATH; elsewhere use {{ file = \"…\" }} or {{ env = \"…\" }}"
            );
            return self.record_external(what, format!("credential {name}"), node.at, Err((title, hint)));
        };
        let path = folder.join(name);
        let had = match read(&path) {
            Ok(bytes) if bytes.is_empty() => Err("it is empty".to_owned()),
            Ok(bytes) => {
                self.warn_if_world_readable(&path, node.at);
                Ok(bytes)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(format!("it is not in {}", folder.display())),
            Err(e) => Err(io_words(&e)),
        };
        let hint = format!("add LoadCredential={name}:PATH to the unit, with the path of the file that has the secret");
        let had = had.map_err(|why| (format!("the credential `{name}` cannot be used: {why}"), hint));
        self.record_external(what, format!("credential {name}"), node.at, had)
    }

    fn variable(&mut self, what: &str, node: &ConfigNode) -> Option<Vec<u8>> {
        let name = node.text()?;
        self.env_names.insert(name.to_owned());
        let had = match (self.env)(name) {
            Some(value) if !value.is_empty() => Ok(value.into_bytes()),
            Some(_) => Err((
                format!("the environment variable `{name}` is empty"),
                format!("set `{name}` to a value where hookonce is started"),
            )),
            None => Err((
                format!("the environment variable `{name}` is not set"),
                format!("set `{name}` where hookonce is started, or use {{ file = \"…\" }}"),
            )),
        };
        self.record_external(what, format!("${name}"), node.at, had)
    }

    fn file(&mut self, what: &str, node: &ConfigNode) -> Option<Vec<u8>> {
        let path = self.base.join(node.text()?);
        let had = match read(&path) {
            Ok(bytes) if bytes.is_empty() => Err("it is empty".to_owned()),
            Ok(bytes) => {
                self.warn_if_world_readable(&path, node.at);
                Ok(bytes)
            }
            Err(e) => Err(io_words(&e)),
        };
        let lack = |why| (format!("the file {} cannot be used: {why}", path.display()), String::new());
        self.record_external(what, path.display().to_string(), node.at, had.map_err(lack))
    }

    /// Records a folder of callers, which is read while the node runs.
    pub(super) fn folder_of(&mut self, what: &str, node: &ConfigNode, path: &Path, is_short: fn(&[u8]) -> bool) {
        if let Some(table) = node.table()
            && ["env", "file", "credential"].iter().any(|key| table.get(key).is_some())
        {
            self.diagnostics
                .error(format!("`{what}` has two origins"))
                .at(node.at, "`dir` cannot be combined with `env` or `file`");
        }
        let had = CallerFolder::names(path).map_err(|e| {
            let why = if path.is_file() { "it is a file".to_owned() } else { io_words(&e) };
            let why = why.replace("there is no such file", "there is no such folder");
            let hint = "create the folder with a file for each caller, one secret per line";
            (format!("the folder {} cannot be used: {why}", path.display()), hint.to_owned())
        });
        if had.as_ref().is_ok_and(Vec::is_empty) {
            self.diagnostics
                .warning(format!("the folder {} has no callers in it yet", path.display()))
                .at(node.at, "every delivery will be refused")
                .hint("add a file for each caller, named like the caller, with one secret per line");
        }
        if let Ok(callers) = &had {
            self.check_caller_files(path, callers, node.at, is_short);
        }
        self.record_external(what, path.display().to_string(), node.at, had.map(|_| Vec::new()));
    }

    /// Warns about callers' files that others can read, and about short secrets in them: one warning for all.
    fn check_caller_files(&mut self, folder: &Path, callers: &[String], at: ConfigSpan, is_short: fn(&[u8]) -> bool) {
        let some = || callers.iter().take(limits::CALLERS_AT_HAND);
        let open: Vec<_> = some().filter(|name| world_readable_mode(&folder.join(name)).is_some()).collect();
        if let [first, others @ ..] = open.as_slice() {
            let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
            self.diagnostics
                .warning(format!("every user of this machine can read the secret of caller `{first}`{more}"))
                .at(at, format!("in {}", folder.display()))
                .hint(format!("chmod 700 {}", folder.display()));
        }
        let short: Vec<_> = some().filter(|name| CallerFolder::has_short(folder, name, is_short)).collect();
        if let [first, others @ ..] = short.as_slice() {
            let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
            let least = limits::SECRET_BYTES_MIN;
            self.diagnostics
                .warning(format!("the secret of caller `{first}`{more} is shorter than {least} bytes"))
                .at(at, "it could be guessed")
                .hint("generate one with `openssl rand -hex 32`");
        }
    }

    /// Records where a value comes from. A missing one is an error, unless it is optional.
    fn record_external(
        &mut self,
        what: &str,
        from: String,
        at: ConfigSpan,
        had: Result<Vec<u8>, (String, String)>,
    ) -> Option<Vec<u8>> {
        let lack = had.as_ref().err().cloned();
        if let Some((title, hint)) = lack.as_ref().filter(|_| !self.may_be_missing(what)) {
            let hint = Some(hint.clone()).filter(|hint| !hint.is_empty());
            self.diagnostics.error(title).at(at, format!("needed for `{what}`")).hint_if(hint);
        }
        self.elsewhere.push(ExternalValue { what: what.to_owned(), source: None, from, error: lack });
        had.ok()
    }

    /// Records that a login is read from docker's config file. A missing one is an error, unless it is optional.
    pub(super) fn record_login(
        &mut self,
        from: String,
        at: ConfigSpan,
        found: Result<(), DockerConfigError>,
    ) -> Option<()> {
        let found = found.map(|()| Vec::new()).map_err(|error| (error.to_string(), error.hint));
        self.record_external("credentials", from, at, found).map(drop)
    }

    /// Whether this value may be missing; never the store's URL.
    fn may_be_missing(&self, what: &str) -> bool {
        self.secrets == SecretRequirement::Optional && what != "store"
    }
}

/// Whether a secret that is a text is short enough to be guessed: a scheme such as Stripe's signs with `whsec_…` as it is.
pub(super) fn is_short_text(secret: &[u8]) -> bool {
    secret.len() < limits::SECRET_BYTES_MIN
}

/// Whether a secret is short enough to be guessed. Of a `whsec_…` the decoded bytes count.
pub(super) fn is_short(secret: &[u8]) -> bool {
    match secret.strip_prefix(b"whsec_") {
        Some(base64) => base64.len() * 3 / 4 < limits::SECRET_BYTES_MIN,
        None => is_short_text(secret),
    }
}

/// Whether these bytes are no secret: none, or NUL bytes and white space alone.
pub(super) fn is_useless(secret: &[u8]) -> bool {
    secret.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace() || *byte == 0x0b)
}

/// The mode of a file that every user of the machine can read; `None` if its folder prevents that.
pub(super) fn world_readable_mode(path: &Path) -> Option<u32> {
    let mode = |path: &Path| std::fs::metadata(path).ok().map(|file| file.permissions().mode() & 0o7777);
    let lets_in = path.parent().and_then(mode).is_none_or(|folder| folder & 0o001 != 0);
    mode(path).filter(|file| file & 0o004 != 0 && lets_in && path.is_file())
}

/// The content of a file with a secret, without a newline at its end.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is longer than 64 KB"));
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(bytes)
}

/// An IO error in plain words.
pub(super) fn io_words(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "not allowed to read it".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        _ => e.to_string(),
    }
}
