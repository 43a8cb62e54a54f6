//! The config: finds, parses and resolves it, or reports all problems at once, each with its place.
//!
//! ```text
//! text ─raw─▶ tree with places ─validate─▶ known keys, right types ─resolve─▶ Config
//!                                  keys.rs: the tables of keys        ConfigError: place, text, hint
//! ```

mod action;
mod body_format;
mod cached_file;
pub(crate) mod caller_folder;
mod catch_up;
pub(crate) mod client_rules;
pub(crate) mod describe;
mod described_signature;
pub mod diagnostic;
mod each;
pub(crate) mod event_kinds;
pub(crate) mod external_value;
mod fields;
mod handshake;
mod health;
pub(crate) mod injection;
pub mod json_schema;
pub(crate) mod keys;
pub(crate) mod listen_address;
mod lookup;
pub(crate) mod node_addresses;
pub(crate) mod notifier;
pub(crate) mod once;
pub(crate) mod once_view;
pub(crate) mod polled_source;
pub mod presets;
mod published_keys;
mod queueing;
mod raw;
pub mod reference;
mod resolve;
mod responding;
pub(crate) mod route;
mod secret_file;
mod section;
mod sender_credentials;
mod sender_schemes;
pub(crate) mod snippet;
pub(crate) mod source;
mod source_path;
pub(crate) mod source_view;
pub(crate) mod stream_source;
pub(crate) mod tls_files;
mod token_scheme;
pub(crate) mod units;
mod user_presets;
pub(crate) mod validate;
mod verify;

pub(crate) use client_rules::ClientRules;
pub(crate) use external_value::{ConfigSecret, ExternalValue, SecretRequirement, UNKNOWN_URL};
pub(crate) use listen_address::ListenAddress;
pub use tls_files::{TlsFiles, TlsFilesError};

pub(crate) use node_addresses::NodeAddresses;
pub(crate) use notifier::ConfiguredNotifier;
pub(crate) use polled_source::PollPlan;
pub(crate) use resolve::LISTEN as DEFAULT_LISTEN;
pub(crate) use stream_source::{AckTiming, StreamPlan};
pub(crate) use units::size_text;
pub(crate) use user_presets::UserPreset;

use crate::action::ActionPlan;
use crate::action::health_check::HealthCheckPlan;
use crate::catch_up::CatchUpPlan;
use crate::decide::identity::recipe::IdentityRecipe;
use crate::decide::source::{Route, Source};
use crate::registry::LookupPlan;
use diagnostic::{ConfigDiagnostic, ConfigError, ConfigErrorKind};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum bytes of a config; a longer file is probably the wrong one.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The environment variable with the config's path.
const VARIABLE: &str = "HOOKONCE_CONFIG";
/// Default paths of the config.
const PLACES: [&str; 2] = ["hookonce.toml", "/etc/hookonce/hookonce.toml"];

/// Looks up an environment variable.
pub(crate) type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A resolved config.
#[derive(Debug)]
pub struct Config {
    /// Where webhooks arrive.
    pub listen: ListenAddress,
    /// The certificate of that port.
    pub tls: Option<TlsFiles>,
    /// What is believed and accepted of clients' addresses.
    pub clients: ClientRules,
    /// Where events are kept.
    pub store: StoreAddress,
    /// Whether nodes migrate its schema.
    pub migrate: MigrationMode,
    /// The folder for what this machine knows about the store.
    pub state: StateFolder,
    /// Whether a node reads the config again when it has changed.
    pub reload: ReloadMode,
    /// How a node writes its log, unless its command line or its environment says so.
    pub log: LogFormat,
    /// The port for people.
    pub admin: AdminConfig,
    /// The sources, in the order of the file.
    pub sources: Vec<Arc<Source>>,
    /// What each route does, by the names of source and route. A route without an entry only records.
    pub actions: HashMap<(Arc<str>, Arc<str>), ActionPlan>,
    /// The keys that senders publish, by the source's name.
    pub fetched_keys: HashMap<Arc<str>, Arc<crate::key_fetch::FetchedKeys>>,
    /// The files of secrets that senders bring by their handshakes, by the source's name.
    pub secret_files: HashMap<Arc<str>, PathBuf>,
    /// The registry that a route asks before it acts, by the names of source and route.
    pub lookups: HashMap<(Arc<str>, Arc<str>), LookupPlan>,
    /// How the health of what a route deployed is checked, by the names of source and route.
    pub health_checks: HashMap<(Arc<str>, Arc<str>), HealthCheckPlan>,
    /// Where missed deliveries are asked for, by the source's name.
    pub catch_ups: HashMap<Arc<str>, CatchUpPlan>,
    /// Who is told about the ends of each source's events, by the source's name: each target once.
    pub notifiers: HashMap<Arc<str>, Vec<Arc<ConfiguredNotifier>>>,
    /// The streams that sources read from, by the source's name.
    pub streams: HashMap<Arc<str>, StreamPlan>,
    /// The tags that sources poll, by the source's name.
    pub polls: HashMap<Arc<str>, PollPlan>,
    /// Environment variables with a secret or URL of the config, which commands never get.
    pub secret_env_names: BTreeSet<String>,
    /// The provenance of each source's parts, by its name.
    pub notes: HashMap<Arc<str>, SourceProvenance>,
    /// Every value from outside of the file, in the order in which it was read.
    pub elsewhere: Vec<ExternalValue>,
    /// What works, but probably not as intended.
    pub warnings: Vec<ConfigDiagnostic>,
}

impl Config {
    /// What a route does; `None` if it only records events.
    pub(crate) fn plan(&self, source: &Source, route: &Route) -> Option<&ActionPlan> {
        self.actions.get(&(source.name.clone(), route.name.clone()))
    }

    /// The registry that a route asks before it acts, if it asks one.
    pub(crate) fn lookup(&self, source: &Source, route: &Route) -> Option<&LookupPlan> {
        self.lookups.get(&(source.name.clone(), route.name.clone()))
    }

    /// How the health of what a route deployed is checked, if it is.
    pub(crate) fn health_check(&self, source: &Source, route: &Route) -> Option<&HealthCheckPlan> {
        self.health_checks.get(&(source.name.clone(), route.name.clone()))
    }

    /// The recipe of each scope's identities, in the order of the scopes.
    pub fn recipes(&self) -> Vec<IdentityRecipe> {
        let recipe = |source: &Arc<Source>| {
            let notes = self.notes.get(&source.name);
            let preset = notes.and_then(|notes| Some((notes.preset.as_deref()?, notes.preset_version)));
            match preset {
                Some((name, version)) => source.recipe().of_preset(name, version),
                None => source.recipe(),
            }
        };
        let mut recipes: Vec<_> = self.sources.iter().map(recipe).collect();
        recipes.sort();
        recipes
    }
}

pub(crate) use crate::observe::log_layer::LogFormat;
pub(crate) use crate::store::open::MigrationMode;
pub use crate::store::open::StoreUrl as StoreAddress;

/// Whether a node reads its config again when the file has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReloadMode {
    /// Only when it is told to.
    #[default]
    Manual,
    /// By itself, too.
    Auto,
}

/// The folder for what nodes of this machine know about their store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateFolder {
    /// Named by the config or by systemd; created if it is missing.
    Named(PathBuf),
    /// The default folder; used if it exists.
    Default,
}

impl StateFolder {
    /// Where it is by default.
    const DEFAULT: &str = "/var/lib/hookonce";

    /// The folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            Self::Default => Path::new(Self::DEFAULT),
        }
    }
}

/// The admin port.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Where it listens.
    pub listen: ListenAddress,
    /// Its certificate.
    pub tls: Option<TlsFiles>,
    /// Its tokens; empty only on loopback.
    pub tokens: Vec<AdminToken>,
    /// The admin ports of other nodes.
    pub peers: Vec<String>,
    /// The token for the peers.
    pub peer_token: Option<ConfigSecret>,
}

/// A bearer token of the admin port.
#[derive(Clone, Debug)]
pub struct AdminToken {
    /// Itself.
    pub secret: ConfigSecret,
    /// What it may do.
    pub may: AdminPermission,
}

/// What a token may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdminPermission {
    /// Read.
    Read,
    /// Call the endpoint that deletes expired events.
    Forget,
    /// Everything.
    All,
}

/// The provenance of a source's parts, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceProvenance {
    /// The preset it began with.
    pub preset: Option<Arc<str>>,
    /// The version of that preset.
    pub preset_version: u32,
    /// Of each identity of `once.per`.
    pub per: Vec<Provenance>,
    /// Of `once.change`.
    pub change: Provenance,
    /// Of `once.keep`.
    pub keep: Provenance,
    /// Of `once.keep_body`.
    pub keep_body: Provenance,
}

/// Where a setting comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provenance {
    /// The config file.
    Written,
    /// The preset.
    Preset,
    /// The default.
    Default,
    /// Implied by `change`.
    Implied,
    /// Implied because the signature does not cover the delivery id.
    ImpliedBySignature,
}

/// Finds the config: the named one, else `HOOKONCE_CONFIG`, else `./hookonce.toml`, else the one in `/etc`.
pub fn find(explicit: Option<&Path>, env: EnvLookup<'_>) -> Result<PathBuf, ConfigDiagnostic> {
    if let Some(path) = explicit {
        return Ok(path.to_owned());
    }
    if let Some(path) = env(VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    PLACES.iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| {
        ConfigDiagnostic::error(
            format!("there is no config: neither ./{} nor {}", PLACES[0], PLACES[1]),
            format!("write one with `hookonce init`, or name it with --config or {VARIABLE}"),
        )
    })
}

/// Loads a config with all its secrets.
pub fn load(path: &Path, env: EnvLookup<'_>) -> Result<Config, ConfigError> {
    load_with(path, SecretRequirement::Required, env)
}

/// Loads a config; with [`SecretRequirement::Optional`] to inspect it without its secrets.
pub fn load_with(path: &Path, secrets: SecretRequirement, env: EnvLookup<'_>) -> Result<Config, ConfigError> {
    read(path, |text, file, folder| resolve::resolve(text, file, folder, secrets, env))
}

/// Loads only the addresses of node and store. Needs no secret, and ignores errors elsewhere in the file.
pub(crate) fn addresses(path: &Path, env: EnvLookup<'_>) -> Result<NodeAddresses, ConfigError> {
    read(path, |text, file, folder| node_addresses::resolve(text, file, folder, env))
}

fn read<T>(path: &Path, resolve: impl FnOnce(&str, &str, &Path) -> Result<T, ConfigError>) -> Result<T, ConfigError> {
    let unread = |problem| ConfigError {
        file: path.display().to_string(),
        nature: ConfigErrorKind::Unread,
        list: vec![problem],
        more: 0,
    };
    let text = text(path).map_err(unread)?;
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned)).unwrap_or_default();
    resolve(&text, &path.display().to_string(), &folder)
}

/// The presets of the user's own that a config has: its tables, and the files beside it.
pub(crate) fn user_presets(path: &Path, env: EnvLookup<'_>) -> Result<Vec<UserPreset>, ConfigError> {
    read(path, |text, file, folder| user_presets::list(text, file, folder, env))
}

/// What the sender of a preset signs, in one word. `example` is a source with it; `own` are the user's presets.
pub(crate) fn what_is_signed(example: &str, own: &[UserPreset]) -> &'static str {
    let base = Path::new("");
    let resolver = resolve::ConfigResolver::new(example, base, &|_| None);
    let mut resolver =
        resolve::ConfigResolver { secrets: SecretRequirement::Optional, user_presets: own.to_vec(), ..resolver };
    resolver.config().and_then(|config| Some(config.sources.first()?.verify.signs())).unwrap_or_default()
}

/// The text of a file that is no longer than a config may be.
fn file_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX { Err(io::ErrorKind::InvalidData.into()) } else { Ok(text) }
}

/// Parses a config. `file` is its name in messages; its paths are relative to `folder`.
pub fn parse(text: &str, file: &str, folder: &Path, env: EnvLookup<'_>) -> Result<Config, ConfigError> {
    resolve::resolve(text, file, folder, SecretRequirement::Required, env)
}

/// The same for a config whose secrets need not be there yet.
pub(crate) fn parse_without_secrets(
    text: &str,
    file: &str,
    folder: &Path,
    env: EnvLookup<'_>,
) -> Result<Config, ConfigError> {
    resolve::resolve(text, file, folder, SecretRequirement::Optional, env)
}

fn text(path: &Path) -> Result<String, ConfigDiagnostic> {
    let shown = path.display();
    let cannot = |e: &io::Error| match e.kind() {
        io::ErrorKind::NotFound => {
            ConfigDiagnostic::error(format!("there is no config at {shown}"), "write one with `hookonce init`")
        }
        io::ErrorKind::PermissionDenied => ConfigDiagnostic::error(
            format!("the config {shown} cannot be read: not allowed"),
            "give hookonce's user read permission",
        ),
        io::ErrorKind::IsADirectory => ConfigDiagnostic::error(
            format!("the config {shown} is a folder"),
            format!("name the file: {shown}/hookonce.toml"),
        ),
        _ => ConfigDiagnostic::error(format!("the config {shown} cannot be read: {e}"), "is it a file?"),
    };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| cannot(&e))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| cannot(&e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigDiagnostic::error(
            format!("the config {shown} is longer than 1 MB"),
            "is it the right file?",
        ));
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = good.split(|b| *b == b'\n').count();
        ConfigDiagnostic::error(format!("the config {shown} is not UTF-8: line {line}"), "save it as UTF-8")
    })
}
