//! Resolves the parsed file into a [`Config`]. Continues after an error, so that all are found at once.

use super::client_rules::CLIENT_KEYS;
use super::diagnostic::{ConfigError, ConfigErrorKind, DiagnosticCollector};
use super::external_value::UNKNOWN_URL;
use super::fields::SourceFieldScope;
use super::keys::{ConfigValueType, SectionKeys, key};
use super::notifier::{ConfiguredNotifier, NOTIFY_KEYS, NotifyLevel};
use super::raw::{self, ConfigNode, ConfigOrigin, ConfigSpan, ConfigTable, ConfigValue};
use super::section::ConfigSection;
use super::sender_credentials::SeenSecret;
use super::source::SOURCE_KEYS;
use super::tls_files::TLS_KEYS;
use super::{
    AdminConfig, AdminPermission, AdminToken, Config, EnvLookup, ExternalValue, ListenAddress, LogFormat,
    MigrationMode, ReloadMode, SecretRequirement, StateFolder, StoreAddress, UserPreset, user_presets, validate,
};
use crate::decide::field::{FieldLocation, FieldSet};
use crate::decide::ingest_path::IngestPath;
use crate::decide::limits;
use crate::decide::source::Source;
use crate::decide::sql_template::SqlDialect;
use crate::key_fetch::FetchedKeys;
use crate::store::open::store_addresses;
use crate::store::url::ServerUrl;
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) static TOP_KEYS: SectionKeys = SectionKeys {
    name: "top",
    title: "The top level",
    about: "Outside of every table.",
    keys: &[
        &[
            key(
                "listen",
                ConfigValueType::Address,
                "127.0.0.1:3142",
                "The address for webhooks. \":3142\" is every address, of IPv4 and IPv6; a name is all of its addresses.",
            ),
            key(
                "tls",
                ConfigValueType::Table(&TLS_KEYS),
                "plain HTTP",
                "TLS on the port for webhooks, where there is no proxy in front.",
            ),
            key("store", ConfigValueType::Open, "sqlite:hookonce.db", concat!("The store: ", store_addresses!(), ".")),
            key(
                "migrate",
                ConfigValueType::Word(&["auto", "manual"]),
                "auto",
                "Who migrates an outdated schema: a node when it starts, or an operator with `hookonce migrate up`.",
            ),
            key(
                "state",
                ConfigValueType::Text,
                "$STATE_DIRECTORY, else /var/lib/hookonce",
                "The folder for what this machine knows about a PostgreSQL or Redis store, to detect lost data after a restart.",
            ),
            key(
                "reload",
                ConfigValueType::Word(&["manual", "auto"]),
                "manual",
                "When a node reads this file again: on SIGHUP and `hookonce reload`, or also when it has changed.",
            ),
            key(
                "log",
                ConfigValueType::Word(&["text", "json"]),
                "text",
                "How `serve` writes its log, unless `--log` or HOOKONCE_LOG says so; json is one object per line.",
            ),
            key(
                "admin",
                ConfigValueType::Table(&ADMIN_KEYS),
                "loopback, no token",
                "The admin port: API, metrics, dashboard.",
            ),
            key(
                "proxy",
                ConfigValueType::Open,
                "none",
                "The proxy for requests to senders that publish keys, such as \"http://10.0.0.1:3128\"; with a password from \
             { env } or { file }.",
            ),
            key(
                "preset",
                ConfigValueType::PresetTables,
                "none",
                "Presets of your own: the keys of a source, [sender], and in [route] the defaults of its routes. \
             presets/NAME.toml beside the config is the same.",
            ),
            key("source", ConfigValueType::Named(&SOURCE_KEYS), "required", "The senders, each under a name."),
            key(
                "notify",
                ConfigValueType::Tables(&NOTIFY_KEYS),
                "nobody",
                "Who is told about the ends of events, unless a source or a route has its own.",
            ),
        ],
        CLIENT_KEYS,
    ],
};

pub(super) static ADMIN_KEYS: SectionKeys = SectionKeys {
    name: "admin",
    title: "`[admin]`",
    about: "The admin port: API, metrics, dashboard.",
    keys: &[&[
        key("listen", ConfigValueType::Address, "127.0.0.1:3143", "The address of the admin port."),
        key("tls", ConfigValueType::Table(&TLS_KEYS), "plain HTTP", "TLS on the admin port."),
        key(
            "token",
            ConfigValueType::Secret,
            "none",
            "A bearer token with all permissions; required unless the port listens on loopback.",
        ),
        key("tokens", ConfigValueType::Tables(&TOKEN_KEYS), "none", "More tokens, each with its permission."),
        key(
            "peers",
            ConfigValueType::Texts,
            "none",
            "Admin ports of other nodes, such as \"http://10.0.0.2:3143\": their rejected deliveries are shown here, too.",
        ),
        key(
            "peer_token",
            ConfigValueType::Secret,
            "none",
            "The bearer token for the peers; permission to read is enough.",
        ),
    ]],
};

pub(super) static TOKEN_KEYS: SectionKeys = SectionKeys {
    name: "token",
    title: "`tokens = [{ … }]`",
    about: "An entry of `admin.tokens`.",
    keys: &[&[
        key("token", ConfigValueType::Secret, "required", "The bearer token."),
        key("may", ConfigValueType::Word(&["read", "forget", "all"]), "read", "The token's permission."),
    ]],
};

pub(crate) const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3142);
pub(super) const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3143);
const STORE: &str = "hookonce.db";
/// The folder of a config of the whole system.
const SYSTEM_CONFIGS: &str = "/etc/hookonce";

/// Parts of a source that are absent only because of an error that has been reported. What follows from their absence
/// is not reported.
#[derive(Default, Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one part, and any of them may be unread")]
pub(super) struct SourcePartsInError {
    /// The preset, which may have set every other key.
    pub(super) preset: bool,
    /// `fields`, or some of them.
    pub(super) fields: bool,
    pub(super) delivery: bool,
    /// Some fields of `change.of`.
    pub(super) subject: bool,
}

/// The state of resolving a config.
pub(super) struct ConfigResolver<'a> {
    pub(super) text: &'a str,
    /// The folder that paths are relative to.
    pub(super) base: &'a Path,
    pub(super) env: EnvLookup<'a>,
    pub(super) secrets: SecretRequirement,
    pub(super) diagnostics: DiagnosticCollector,
    /// Every value from outside of the file.
    pub(super) elsewhere: Vec<ExternalValue>,
    /// Every environment variable that was read.
    pub(super) env_names: BTreeSet<String>,
    /// Variables that routes pass to commands, with their places.
    pub(super) env_passed: Vec<(String, ConfigSpan)>,
    /// The SQL dialect of the store; `None` if it runs no SQL.
    pub(super) dialect: Option<SqlDialect>,
    /// The secrets of the sources so far.
    pub(super) secrets_seen: Vec<SeenSecret>,
    /// What could not be read of the source that is being resolved.
    pub(super) unread: SourcePartsInError,
    /// Every place in a delivery that the source being resolved names, and where.
    pub(super) places: Vec<(FieldLocation, ConfigSpan)>,
    /// The targets on the top level, for sources that have none.
    pub(super) notifiers: Vec<Arc<ConfiguredNotifier>>,
    /// The presets of the user's own that were read.
    pub(super) user_presets: Vec<UserPreset>,
    /// The proxy for outbound requests.
    pub(super) proxy: Option<String>,
    /// The published keys of the scheme that was just made.
    pub(super) keys_made: Option<Arc<FetchedKeys>>,
    /// The published keys of each source, by its name.
    pub(super) fetched_keys: HashMap<Arc<str>, Arc<FetchedKeys>>,
    /// The files of secrets that senders bring by their handshakes, by the source's name.
    pub(super) secret_files: HashMap<Arc<str>, PathBuf>,
}

/// Parses and resolves a config.
pub(super) fn resolve(
    text: &str,
    file: &str,
    base: &Path,
    secrets: SecretRequirement,
    env: EnvLookup<'_>,
) -> Result<Config, ConfigError> {
    let mut resolver = ConfigResolver { secrets, ..ConfigResolver::new(text, base, env) };
    let config = resolver.config();
    let failed = resolver.diagnostics.has_errors();
    let own = std::mem::take(&mut resolver.user_presets);
    let named = |origin| user_presets::named_text(origin, file, text, &own);
    let (list, more) = resolver.diagnostics.finish(&named);
    match config {
        Some(config) if !failed => Ok(Config {
            warnings: list,
            secret_env_names: resolver.env_names,
            elsewhere: resolver.elsewhere,
            fetched_keys: resolver.fetched_keys,
            secret_files: resolver.secret_files,
            ..config
        }),
        _ => Err(ConfigError { file: file.to_owned(), nature: ConfigErrorKind::Wrong, list, more }),
    }
}

impl<'a> ConfigResolver<'a> {
    pub(super) fn new(text: &'a str, base: &'a Path, env: EnvLookup<'a>) -> Self {
        let found = DiagnosticCollector::default();
        let (secrets, elsewhere) = (SecretRequirement::Required, Vec::new());
        let (env_names, env_passed, secrets_seen) = (BTreeSet::new(), Vec::new(), Vec::new());
        let (dialect, unread) = (None, SourcePartsInError::default());
        Self {
            text,
            base,
            env,
            secrets,
            diagnostics: found,
            elsewhere,
            env_names,
            env_passed,
            dialect,
            secrets_seen,
            unread,
            places: Vec::new(),
            notifiers: Vec::new(),
            user_presets: Vec::new(),
            proxy: None,
            keys_made: None,
            fetched_keys: HashMap::new(),
            secret_files: HashMap::new(),
        }
    }

    /// The parsed file; `None` if it is not TOML, which is reported.
    pub(super) fn tree(&mut self) -> Option<ConfigTable> {
        let (root, errors) = raw::parse(self.text, ConfigOrigin::Config);
        for error in &errors {
            let draft = self.diagnostics.error(format!("this is not TOML: {}", error.what));
            if let Some(at) = error.at {
                draft.at(at, "");
            }
        }
        errors.is_empty().then_some(root)
    }

    /// The place of a byte range inside a string.
    pub(super) fn inside(&self, string: ConfigSpan, range: &std::ops::Range<usize>) -> ConfigSpan {
        let (_, text) = user_presets::named_text(string.origin, "", self.text, &self.user_presets);
        raw::inside(text, string, range)
    }

    /// The proxy for outbound requests, if its address can be used.
    fn outbound_proxy(&mut self, top: &ConfigSection<'_>) -> Option<String> {
        let open = self.text_or_external("proxy", top.node("proxy")?)?;
        if open.text == UNKNOWN_URL {
            return None; // its value need not be here
        }
        let url = reqwest::Url::parse(&open.text).ok().filter(reqwest::Url::has_host);
        let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https")) else {
            self.diagnostics
                .error("`proxy` is not the address of a proxy")
                .at(open.at, "expected a URL such as http://10.0.0.1:3128");
            return None;
        };
        if open.shown.is_none() && url.password().is_some_and(|password| !password.is_empty()) {
            self.diagnostics
                .error("the password of `proxy` is written in the config file")
                .at(open.at, "a secret must not be in the config file")
                .hint("put the whole URL in an environment variable and write proxy = { env = \"PROXY_URL\" }");
            return None;
        }
        Some(open.text)
    }

    pub(super) fn config(&mut self) -> Option<Config> {
        let mut root = self.tree()?;
        self.preset_tables(&mut root);
        validate::check(&root, &TOP_KEYS, "the top level", &mut self.diagnostics);
        let top = ConfigSection::new(&root, &TOP_KEYS, ConfigSpan { origin: ConfigOrigin::Config, start: 0, end: 0 });
        let listen = top.address("listen").unwrap_or(LISTEN.into());
        let store = self.store(&top);
        self.dialect = store.sql_dialect();
        let admin = self.admin(&top, &listen);
        self.proxy = self.outbound_proxy(&top);
        let mut config = Config {
            listen,
            tls: self.tls(&top),
            clients: self.client_rules(&top),
            store,
            migrate: if top.text("migrate") == Some("manual") { MigrationMode::Manual } else { MigrationMode::Auto },
            reload: if top.text("reload") == Some("auto") { ReloadMode::Auto } else { ReloadMode::Manual },
            log: if top.text("log") == Some("json") { LogFormat::Json } else { LogFormat::Text },
            state: self.state(&top),
            admin,
            sources: Vec::new(),
            actions: HashMap::new(),
            fetched_keys: HashMap::new(),
            secret_files: HashMap::new(),
            lookups: HashMap::new(),
            health_checks: HashMap::new(),
            catch_ups: HashMap::new(),
            notifiers: HashMap::new(),
            streams: HashMap::new(),
            polls: HashMap::new(),
            secret_env_names: BTreeSet::new(),
            notes: HashMap::new(),
            elsewhere: Vec::new(),
            warnings: Vec::new(),
        };
        self.notifiers = self.top_notifiers(&top);
        self.sources(&top, &mut config);
        self.no_secrets_passed_on();
        Some(config)
    }

    /// The targets on the top level. There are no fields there.
    fn top_notifiers(&mut self, top: &ConfigSection<'_>) -> Vec<Arc<ConfiguredNotifier>> {
        let fields = FieldSet::new(Vec::new(), None);
        let names = SourceFieldScope {
            source: "",
            fields: &fields,
            scheme: None,
            sender: None,
            kind: None,
            delivery: None,
            stream: None,
        };
        self.notify(top, &names, NotifyLevel { source: "", route: "" }).unwrap_or_default()
    }

    /// Reports variables that a route passes to commands although they hold a secret of the config.
    fn no_secrets_passed_on(&mut self) {
        for (name, at) in &self.env_passed {
            if self.env_names.contains(name) {
                self.diagnostics
                    .error(format!("`{name}` cannot be passed to a command"))
                    .at(*at, "the config reads it, so commands never get it")
                    .hint("use a separate variable for the command");
            }
        }
    }

    fn sources(&mut self, top: &ConfigSection<'_>, config: &mut Config) {
        let table = top.node("source").and_then(ConfigNode::table).cloned().unwrap_or(ConfigTable::default());
        if table.entries.is_empty() && top.node("source").is_none_or(|node| node.table().is_some()) {
            self.diagnostics
                .error("no source is configured")
                .unless(top.misspells("source"))
                .hint("add [source.NAME] with `verify` and a route, or start with `hookonce init`");
        }
        let mut paths: HashMap<Arc<str>, (Arc<str>, IngestPath)> = HashMap::new();
        let mut scopes: HashMap<Arc<str>, Arc<str>> = HashMap::new();
        for entry in &table.entries {
            let Some(inner) = entry.node.table() else { continue };
            let others = self.elsewhere.len();
            let resolved = self.source(&entry.key, (entry.key_at, inner), (&config.clients, &config.listen));
            let source: Source = resolved.source;
            self.elsewhere[others..].iter_mut().for_each(|value| value.source = Some(source.name.clone()));
            // Two sources may poll the same tag.
            if resolved.poll.is_none()
                && let Some(path) = source.path.expose()
                && let Some((other, same)) = paths.insert(path.clone(), (source.name.clone(), source.path.clone()))
            {
                let at = inner.get("path").map_or(entry.key_at, |node| node.at);
                let shown = if same.is_secret() { same } else { source.path.clone() };
                self.diagnostics
                    .error(format!("two sources listen on `{shown}`"))
                    .at(at, format!("also the path of source `{other}`"));
            }
            if let Some(other) = scopes.insert(source.scope.clone(), source.name.clone()) {
                let at = inner.get("scope").map_or(entry.key_at, |node| node.at);
                self.diagnostics
                    .error(format!("two sources have the scope `{}`", source.scope))
                    .at(at, format!("also the scope of source `{other}`"))
                    .hint("a delivery of one could be a duplicate of the other's; give each its own scope");
            }
            for (route, plan) in resolved.plans {
                config.actions.insert((source.name.clone(), route), plan);
            }
            for (route, check) in resolved.health_checks {
                config.health_checks.insert((source.name.clone(), route), check);
            }
            for (route, lookup) in resolved.lookups {
                config.lookups.insert((source.name.clone(), route), lookup);
            }
            if let Some(plan) = resolved.catch_up {
                config.catch_ups.insert(source.name.clone(), plan);
            }
            config.notifiers.insert(source.name.clone(), resolved.notifiers);
            if let Some(stream) = resolved.stream {
                self.outlives(&stream, &config.store, inner.get("from").map_or(entry.key_at, |node| node.at));
                config.streams.insert(source.name.clone(), stream);
            }
            if let Some(poll) = resolved.poll {
                self.remembers(&config.store, inner.get("poll").map_or(entry.key_at, |node| node.at));
                config.polls.insert(source.name.clone(), poll);
            }
            config.clients.sources.insert(source.name.clone(), resolved.clients);
            config.notes.insert(source.name.clone(), resolved.notes);
            config.sources.push(Arc::new(source));
        }
    }

    pub(super) fn store(&mut self, top: &ConfigSection<'_>) -> StoreAddress {
        let default = || StoreAddress::Sqlite(self.default_store());
        let Some(node) = top.node("store") else { return default() };
        let default = default();
        let Some(open) = self.text_or_external("store", node) else { return default };
        let stands_here = open.shown.is_none();
        match StoreAddress::parse(&open.text, self.base) {
            Ok(address) if stands_here && address.server().is_some_and(ServerUrl::has_password) => {
                self.diagnostics
                    .error("the password of `store` is written in the config file")
                    .at(open.at, "a secret must not be in the config file")
                    .hint("put the whole URL in an environment variable and write store = { env = \"DATABASE_URL\" }");
                default
            }
            Ok(address) => address,
            Err(no_address) => {
                self.diagnostics.error("`store` cannot be read").at(open.at, no_address.to_string());
                default
            }
        }
    }

    /// Where the store is if the config does not say so: beside the config. That of a config in `/etc/hookonce` is in the
    /// state folder, unless there is one beside the config already: `/etc` is not for data.
    fn default_store(&self) -> PathBuf {
        let beside = self.base.join(STORE);
        if self.base != Path::new(SYSTEM_CONFIGS) || beside.exists() {
            return beside;
        }
        let state = self.systemd_state_folder().map_or_else(|| StateFolder::Default.path().to_owned(), PathBuf::from);
        state.join(STORE)
    }

    /// The state folder that systemd sets up for `StateDirectory=`; of several folders the first.
    fn systemd_state_folder(&self) -> Option<String> {
        let list = (self.env)("STATE_DIRECTORY")?;
        list.split(':').next().filter(|path| !path.is_empty()).map(str::to_owned)
    }

    /// The state folder.
    fn state(&self, top: &ConfigSection<'_>) -> StateFolder {
        let by_systemd = || self.systemd_state_folder();
        match top.text("state").map(str::to_owned).or_else(by_systemd).filter(|path| !path.is_empty()) {
            Some(path) => StateFolder::Named(self.base.join(path)),
            None => StateFolder::Default,
        }
    }

    fn admin(&mut self, top: &ConfigSection<'_>, listen: &ListenAddress) -> AdminConfig {
        let Some(section) = top.section("admin") else {
            let own = ListenAddress::from(ADMIN);
            self.check_ports_differ(listen, &own, top.place("listen"));
            return AdminConfig { listen: own, tls: None, tokens: Vec::new(), peers: Vec::new(), peer_token: None };
        };
        let own = section.address("listen").unwrap_or(ADMIN.into());
        let at = if section.has("listen") { section.place("listen") } else { top.place("listen") };
        self.check_ports_differ(listen, &own, at);
        let mut tokens = Vec::new();
        if let Some(secret) = section.node("token").and_then(|node| self.secret("token", node)) {
            tokens.push(AdminToken { secret, may: AdminPermission::All });
        }
        for entry in section.sections("tokens") {
            let may = match entry.text("may") {
                Some("all") => AdminPermission::All,
                Some("forget") => AdminPermission::Forget,
                _ => AdminPermission::Read,
            };
            match entry.node("token") {
                Some(node) => tokens.extend(self.secret("token", node).map(|secret| AdminToken { secret, may })),
                None => {
                    self.diagnostics
                        .error("an entry of `tokens` has no `token`")
                        .unless(entry.misspells("token"))
                        .at(entry.at, "");
                }
            }
        }
        self.tokens_differ(&tokens, &section);
        let any = section.has("token") || !section.sections("tokens").is_empty();
        if !own.is_loopback() && !any {
            self.diagnostics
                .error("the admin port can be reached from outside and has no token")
                .unless(section.misspells("token") || section.misspells("tokens"))
                .at(section.place("listen"), "not a loopback address")
                .hint("add token = { env = \"HOOKONCE_ADMIN_TOKEN\" }, or listen on 127.0.0.1");
        }
        let peers = self.peers(&section);
        let peer_token = section.node("peer_token").and_then(|node| self.secret("peer_token", node));
        AdminConfig { listen: own, tls: self.tls(&section), tokens, peers, peer_token }
    }

    /// Admin addresses of other nodes, without a password and without a trailing slash.
    fn peers(&mut self, section: &ConfigSection<'_>) -> Vec<String> {
        let Some(ConfigNode { value: ConfigValue::List(list), at, .. }) = section.node("peers") else {
            return Vec::new();
        };
        if list.len() > limits::PEERS_MAX {
            self.diagnostics.error(format!("`peers` names more than {} nodes", limits::PEERS_MAX)).at(*at, "");
        }
        let mut peers = Vec::new();
        for node in list {
            let Some(text) = node.text() else { continue };
            let plain = reqwest::Url::parse(text).ok().filter(|url| {
                matches!(url.scheme(), "http" | "https")
                    && url.username().is_empty()
                    && url.password().is_none()
                    && url.query().is_none()
                    && url.fragment().is_none()
            });
            match plain {
                Some(_) => peers.push(text.trim_end_matches('/').to_owned()),
                None => {
                    self.diagnostics
                        .error("an entry of `peers` is not the address of an admin port")
                        .at(node.at, "expected a URL such as \"http://10.0.0.2:3143\"")
                        .hint("a token for the peers goes into peer_token = { env = \"…\" }");
                }
            }
        }
        peers
    }

    fn tokens_differ(&mut self, tokens: &[AdminToken], section: &ConfigSection<'_>) {
        let twice = tokens.iter().enumerate().any(|(i, a)| tokens[..i].iter().any(|b| b.secret == a.secret));
        if twice {
            self.diagnostics
                .error("two tokens of the admin port are equal")
                .at(section.key_place("tokens"), "tokens must be unique: permissions would be ambiguous");
        }
    }

    /// Checks that both ports can be opened together.
    fn check_ports_differ(&mut self, listen: &ListenAddress, admin: &ListenAddress, at: ConfigSpan) {
        if listen.overlaps(admin) {
            self.diagnostics
                .error("webhooks and the admin port listen on the same address")
                .at(at, format!("webhooks: {listen}, admin: {admin}"))
                .hint("give the admin port its own port");
        }
    }
}
