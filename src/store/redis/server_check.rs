//! The check whether a server can be our store: its kind and version, its durability, and our permissions.
//!
//! Run whenever a connection is made: after a failover another server answers under the same name.

use super::key_names::RedisKeyNames;
use super::url::{DurabilityWaivers, RedisTransport, RedisUrl};
use super::{RedisAccess, WRITE, WRITE_ON};
use crate::decide::error_message::ErrorMessage;
use crate::decide::time::Duration;
use crate::store::StoreOpenError;
use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, RedisError, Value, cmd};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The oldest Redis that refuses scripts as a whole when memory or disk is full.
const VERSION_MIN: u32 = 7;
/// Timeout of the response.
const ANSWER_TIME: Duration = Duration::from_millis(500);
/// The shortest start of a handshake: a TLS server refuses it with an alert, any other waits for more.
const HELLO: &[u8] = &[0x16, 3, 1, 0, 4, 1, 0, 0, 0];
/// The first byte of a TLS record: an alert, or a handshake.
const TLS_SAYS: [u8; 2] = [0x15, 0x16];
/// Any Redis replies to this with a line that begins with one of two characters.
const PING: &[u8] = b"PING\r\n";
const REDIS_SAYS: [u8; 2] = *b"+-";

/// A server's report about itself; `None` for what it does not let us query.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct RedisServerInfo {
    version: Option<String>,
    role: Option<String>,
    policy: Option<String>,
    appendonly: Option<bool>,
    appendfsync: Option<String>,
}

/// The result of the check.
pub(super) enum RedisServerCheck {
    /// It can be our store, with these warnings.
    Fits(Vec<String>),
    /// Its keys live at this address of its cluster.
    Elsewhere(String),
}

/// Checks the connected server.
pub(super) async fn check_server(
    link: &mut MultiplexedConnection,
    address: &RedisUrl,
    names: &RedisKeyNames,
    access: RedisAccess,
) -> Result<RedisServerCheck, StoreOpenError> {
    let facts = ask(link, address).await?;
    fits_kind(&facts, address, access)?;
    if let Err(error) = said(link, cmd("GET").arg(names.epoch())).await {
        return match error.place() {
            Some(place) => Ok(RedisServerCheck::Elsewhere(place.to_owned())),
            None => Err(error.at_opening(address)),
        };
    }
    if access == RedisAccess::Read {
        return Ok(RedisServerCheck::Fits(Vec::new()));
    }
    let warnings = keeps(&facts, address)?;
    for script in [WRITE, WRITE_ON] {
        said(link, cmd("SCRIPT").arg("LOAD").arg(script)).await.map_err(|error| error.at_opening(address))?;
    }
    if address.wait.is_some() {
        // Waits for no replica: returns at once if the user may use WAIT.
        said(link, cmd("WAIT").arg(0).arg(1)).await.map_err(|error| error.at_opening(address))?;
    }
    Ok(RedisServerCheck::Fits(warnings))
}

/// An error reply of the server.
pub(super) struct RedisReplyError {
    code: String,
    text: String,
    cause: RedisError,
}

impl RedisReplyError {
    pub(super) fn of(error: ::redis::ServerError) -> Self {
        let (code, text) = (error.code().to_owned(), error.details().unwrap_or_default().to_owned());
        Self { code, text, cause: error.into() }
    }

    /// The driver's own error.
    pub(super) fn into_cause(self) -> RedisError {
        self.cause
    }

    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// The script itself failed, after it had started.
    pub(super) fn is_inside_a_script(&self) -> bool {
        self.text.contains("user_script") && !self.text.contains("killed by user")
    }

    /// The server reports that the script did not start, or was killed before it wrote. Any other reply may be from a
    /// proxy whose server went away in the middle.
    pub(super) fn wrote_nothing(&self) -> bool {
        const BEFORE: [&str; 18] = [
            "LOADING",
            "READONLY",
            "OOM",
            "MISCONF",
            "NOREPLICAS",
            "MASTERDOWN",
            "CLUSTERDOWN",
            "MOVED",
            "ASK",
            "TRYAGAIN",
            "CROSSSLOT",
            "BUSY",
            "NOSCRIPT",
            "NOAUTH",
            "NOPERM",
            "WRONGPASS",
            "NOPROTO",
            "DENIED",
        ];
        BEFORE.contains(&&*self.code) || self.text.contains("killed by user")
    }

    /// The cluster node to ask instead.
    pub(super) fn place(&self) -> Option<&str> {
        (self.code == "MOVED").then(|| self.text.split(' ').nth(1)).flatten()
    }

    /// May it go away on its own?
    fn is_temporary(&self) -> bool {
        ["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "IO", "NOREPLICAS"]
            .contains(&&*self.code)
    }

    pub(super) fn at_opening(self, address: &RedisUrl) -> StoreOpenError {
        let why = format!("{address}: {self}");
        let cannot = match &*self.code {
            "NOAUTH" => wrong_password(address),
            "NOPERM" => StoreOpenError::permanent(format!(
                "{why}. Grant the user what the store needs: `ACL SETUSER name ~{{{prefix}}}* &{{{prefix}}}* +@read \
                 +@write +@scripting +@connection +@pubsub +info +time +wait +config|get`",
                prefix = address.prefix
            )),
            _ if self.is_temporary() => StoreOpenError::Temporary(why.into()),
            _ => StoreOpenError::Permanent(why.into()),
        };
        cannot.caused_by(self.cause)
    }
}

impl From<RedisError> for RedisReplyError {
    fn from(error: RedisError) -> Self {
        let code = error.code().unwrap_or("IO").to_owned();
        let text = error.detail().map_or_else(|| error.to_string(), str::to_owned);
        Self { code, text, cause: error }
    }
}

impl std::fmt::Display for RedisReplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.code {
            "LOADING" => f.write_str("it is still loading its data"),
            "BUSY" => f.write_str("it is busy with a script"),
            "OOM" => f.write_str("its memory is full; raise `maxmemory`, or shorten `keep`"),
            "MISCONF" => f.write_str("it cannot write to its disk; see its log"),
            "READONLY" => f.write_str("it is a replica, or became one; the store needs the primary"),
            "CLUSTERDOWN" => f.write_str("its cluster is down"),
            _ => write!(f, "{} {}", self.code, self.text),
        }
    }
}

/// The server requires a password, or rejects this one.
pub(super) fn wrong_password(address: &RedisUrl) -> StoreOpenError {
    let what =
        if address.has_password() { "refuses the user or password of" } else { "asks for a password; put it into" };
    StoreOpenError::permanent(format!("{address} {what} the store's URL (redis://user:password@host)"))
}

/// One reply, or the server's error.
async fn said(link: &mut MultiplexedConnection, command: &Cmd) -> Result<Value, RedisReplyError> {
    match link.send_packed_command(command).await {
        Ok(Value::ServerError(error)) => Err(RedisReplyError::of(error)),
        Ok(value) => Ok(value),
        Err(error) => Err(error.into()),
    }
}

async fn ask(link: &mut MultiplexedConnection, address: &RedisUrl) -> Result<RedisServerInfo, StoreOpenError> {
    let mut facts = RedisServerInfo::default();
    match said(link, &cmd("INFO")).await {
        Ok(info) => facts.take_info(&text(&info)),
        Err(refusal) if refusal.code() == "NOPERM" => {}
        Err(refusal) => return Err(refusal.at_opening(address)),
    }
    if facts.version.is_none() {
        let hello = said(link, &cmd("HELLO")).await.map_err(|error| error.at_opening(address))?;
        facts.version = pair(&hello, "version");
        facts.role = pair(&hello, "role");
    }
    let mut config = cmd("CONFIG");
    config.arg("GET").arg(&["appendonly", "appendfsync", "maxmemory-policy"]);
    if let Ok(config) = said(link, &config).await {
        facts.policy = pair(&config, "maxmemory-policy").or(facts.policy);
        facts.appendfsync = pair(&config, "appendfsync");
        facts.appendonly = pair(&config, "appendonly").map(|set| set == "yes").or(facts.appendonly);
    }
    Ok(facts)
}

impl RedisServerInfo {
    fn take_info(&mut self, info: &str) {
        let line = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim().to_owned())
        };
        self.version = line("redis_version");
        self.role = line("role");
        self.policy = line("maxmemory_policy");
        self.appendonly = line("aof_enabled").map(|set| set == "1");
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

/// The value of this name, in a list of names and values.
fn pair(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::Array(list) => {
            let mut pairs = list.chunks_exact(2);
            pairs.find(|pair| text(&pair[0]) == name).map(|pair| text(&pair[1]))
        }
        Value::Map(pairs) => pairs.iter().find(|(key, _)| text(key) == name).map(|(_, value)| text(value)),
        _ => None,
    }
}

/// Checks that it is not a replica, and new enough.
fn fits_kind(facts: &RedisServerInfo, address: &RedisUrl, access: RedisAccess) -> Result<(), StoreOpenError> {
    let version = facts.version.as_deref().unwrap_or("of an unknown version");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < VERSION_MIN) {
        return Err(StoreOpenError::permanent(format!(
            "{address} is Redis {version}; the store needs Redis 7 or newer, or Valkey: older ones may stop a write \
             half-way"
        )));
    }
    let replica = facts.role.as_deref().is_some_and(|role| role == "slave" || role == "replica");
    if replica && address.by_sentinel {
        return Err(StoreOpenError::temporary(format!(
            "{address} is still a replica, though the sentinels name it as the primary"
        )));
    }
    if replica && access != RedisAccess::Read {
        return Err(StoreOpenError::permanent(format!(
            "{address} is a replica, which is read-only; use the address of its primary (`redis-cli INFO replication` \
             there shows it as master_host)"
        )));
    }
    Ok(())
}

/// Checks that it keeps its data; if it does not, the URL must accept that.
fn keeps(facts: &RedisServerInfo, address: &RedisUrl) -> Result<Vec<String>, StoreOpenError> {
    let DurabilityWaivers { be_lost, be_evicted } = address.lets;
    let mut warnings = Vec::new();
    match facts.policy.as_deref() {
        Some("noeviction") => {}
        found => {
            let what = match found {
                Some(policy) => format!("evicts keys when its memory is full (`maxmemory-policy {policy}`)"),
                None => "does not report its eviction policy (neither INFO nor CONFIG is permitted)".into(),
            };
            if !be_evicted {
                return Err(StoreOpenError::permanent(format!(
                    "{address} {what}, so events would act again; set `maxmemory-policy noeviction`, or \
                     write `evicts=yes` into the store's URL to accept that"
                )));
            }
            warnings.push(format!("{address} {what}; events whose keys it evicts act again, as `evicts=yes` accepts"));
        }
    }
    let lossy = match (facts.appendonly, facts.appendfsync.as_deref()) {
        (Some(true), Some("always")) => return Ok(warnings),
        (Some(true), Some(policy)) => {
            warnings.push(format!(
                "{address} is not durable: with `appendfsync {policy}` the last writes before a crash are lost; 2xx \
                 means durable only with `appendfsync always`"
            ));
            return Ok(warnings);
        }
        (Some(true), None) => {
            warnings.push(format!(
                "{address} may not be durable: CONFIG does not permit reading `appendfsync`; 2xx means durable only with \
                 `appendfsync always`"
            ));
            return Ok(warnings);
        }
        (Some(false), _) => "loses everything at a restart (`appendonly no`)",
        (None, _) => "does not report whether it keeps its data over a restart (neither INFO nor CONFIG is permitted)",
    };
    if !be_lost {
        return Err(StoreOpenError::permanent(format!(
            "{address} {lossy}, so events would act again; set `appendonly yes` and `appendfsync always`, \
             or write `durable=no` into the store's URL to accept that"
        )));
    }
    warnings.push(format!("{address} is not durable: it {lossy}, as `durable=no` accepts"));
    Ok(warnings)
}

/// Why the server does not respond: the given reason, unless there is a TLS mismatch, where only one of the two
/// sides uses TLS. Detected by a few harmless bytes, sent only after a connection failed.
pub(super) async fn explained(address: &RedisUrl, why: ErrorMessage) -> StoreOpenError {
    let Some((host, port, speech)) = address.tcp() else { return StoreOpenError::Temporary(why) };
    let (says, first) = match speech {
        RedisTransport::Plain => (HELLO, TLS_SAYS),
        RedisTransport::Tls => (PING, REDIS_SAYS),
    };
    match timeout(ANSWER_TIME, answer(host, port, says)).await {
        Ok(Ok(byte)) if first.contains(&byte) => StoreOpenError::Permanent(why.reworded(match speech {
            RedisTransport::Plain => {
                format!("{address} wants TLS: write rediss:// instead of redis:// in the store's URL")
            }
            RedisTransport::Tls => {
                format!("{address} does not speak TLS: write redis:// instead of rediss:// in the store's URL")
            }
        })),
        _ => StoreOpenError::Temporary(why),
    }
}

/// The first byte of its response to these.
async fn answer(host: &str, port: u16, says: &[u8]) -> std::io::Result<u8> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.writable().await?;
    stream.try_write(says)?; // so few bytes always fit
    let mut first = [0];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut first) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(first[0]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        policy: Option<&str>,
        only: Option<bool>,
        fsync: Option<&str>,
        query: &str,
        expected: Result<&[&str], &str>,
    ) {
        let facts = RedisServerInfo {
            policy: policy.map(str::to_owned),
            appendonly: only,
            appendfsync: fsync.map(str::to_owned),
            ..RedisServerInfo::default()
        };
        let address = RedisUrl::parse(&format!("redis://u:hidden@host?{query}")).expect("a url");
        match (keeps(&facts, &address), expected) {
            (Ok(warnings), Ok(words)) => {
                assert_eq!(warnings.len(), words.len(), "{warnings:?}");
                assert!(warnings.iter().zip(words).all(|(warning, word)| warning.contains(word)), "{warnings:?}");
            }
            (Err(error), Err(word)) => {
                let error = error.to_string();
                assert!(error.contains(word) && !error.contains("hidden"), "{error}");
            }
            (found, expected) => panic!("{found:?} is not {expected:?}"),
        }
    }

    #[test]
    fn possible_data_loss_is_refused_or_warned_about() {
        const NO: Option<&str> = Some("noeviction");
        check(NO, Some(true), Some("always"), "", Ok(&[]));
        check(NO, Some(true), Some("everysec"), "", Ok(&["not durable"]));
        check(NO, Some(true), None, "", Ok(&["may not be durable"]));
        check(NO, Some(false), Some("always"), "", Err("durable=no"));
        check(NO, Some(false), Some("always"), "durable=no", Ok(&["not durable"]));
        check(NO, None, None, "", Err("does not report"));
        check(NO, None, None, "durable=no", Ok(&["not durable"]));
        check(Some("allkeys-lru"), Some(true), Some("always"), "", Err("evicts=yes"));
        check(Some("allkeys-lru"), Some(true), Some("always"), "evicts=yes", Ok(&["evicts keys"]));
        check(None, Some(true), Some("always"), "", Err("neither INFO nor CONFIG"));
        check(None, Some(true), Some("always"), "evicts=yes", Ok(&["does not report"]));
    }

    #[test]
    fn old_servers_and_replicas_are_refused() {
        let address = RedisUrl::parse("redis://host").expect("a url");
        let facts = |version: &str, role: &str| RedisServerInfo {
            version: Some(version.into()),
            role: Some(role.into()),
            ..RedisServerInfo::default()
        };
        let fits = |facts: &RedisServerInfo, access| fits_kind(facts, &address, access).is_ok();
        assert!(fits(&facts("7.0.15", "master"), RedisAccess::Node));
        assert!(fits(&facts("7.2.4", "master"), RedisAccess::Node), "Valkey's compatibility version");
        assert!(!fits(&facts("6.2.14", "master"), RedisAccess::Node));
        assert!(!fits(&facts("7.0.15", "slave"), RedisAccess::Node));
        assert!(fits(&facts("7.0.15", "slave"), RedisAccess::Read));
        assert!(!fits(&RedisServerInfo::default(), RedisAccess::Node));
    }
}
