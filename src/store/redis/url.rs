//! Parsing of a Redis URL, with the store's own parameters.

use crate::store::StoreOpenError;
use ::redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates};

/// Maximum length of a prefix.
const PREFIX_BYTES_MAX: usize = 64;
/// The default port of sentinels.
const SENTINEL_PORT: &str = ":26379";
/// Maximum number of replicas for `wait`.
const WAIT_MAX: u8 = 16;
/// The default prefix.
const PREFIX: &str = "hookonce";

/// A server, and the parameters of the URL.
#[derive(Clone, Debug)]
pub(super) struct RedisUrl {
    info: ConnectionInfo,
    roots: Option<Vec<u8>>,
    /// The prefix of every key.
    pub(super) prefix: String,
    /// Durability problems that the URL accepts.
    pub(super) lets: DurabilityWaivers,
    /// How many replicas must have a write before it is confirmed.
    pub(super) wait: Option<u8>,
    /// The sentinels that know the primary. Then `info` has everything but its address.
    pub(super) sentinels: Option<SentinelConfig>,
    /// Whether sentinels named this server.
    pub(super) by_sentinel: bool,
}

/// The sentinels that a URL names.
#[derive(Clone, Debug)]
pub(super) struct SentinelConfig {
    /// Their name for the primary.
    pub(super) name: String,
    at: Vec<ConnectionInfo>,
}

impl SentinelConfig {
    /// Parses `user:password@host:26379,host:26379/name/database`, with the query's credentials for the sentinels
    /// themselves. Also returns the URL template for a server that they name.
    fn parse(scheme: &str, rest: &str, who: Option<(&str, &str)>) -> Result<(Self, String), String> {
        let (at, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = at.rsplit_once('@').map_or(("", at), |(login, hosts)| (login, hosts));
        let (name, database) = path.split_once('/').unwrap_or((path, "0"));
        if name.is_empty() || hosts.split(',').any(str::is_empty) {
            return Err(format!("expected {scheme}+sentinel://user:password@host:26379,host:26379/mymaster/0"));
        }
        let login_there = who.map_or(String::new(), |(user, password)| format!("{user}:{password}@"));
        let one = |host: &str| {
            let is_without_port = host.ends_with(']') || !host.contains(':');
            let port = if is_without_port { SENTINEL_PORT } else { "" };
            let info = format!("{scheme}://{login_there}{host}{port}").as_str().into_connection_info();
            info.map_err(|_| "a sentinel is written as host:26379".to_owned())
        };
        let at = hosts.split(',').map(one).collect::<Result<Vec<_>, _>>()?;
        let login = if login.is_empty() { String::new() } else { format!("{login}@") };
        // The address is not known yet.
        let template = format!("{scheme}://{login}sentinel/{database}");
        Ok((Self { name: name.to_owned(), at }, template))
    }

    /// A client for each.
    pub(super) fn clients(&self, address: &RedisUrl) -> Vec<Result<Client, RedisError>> {
        self.at.iter().map(|info| address.client_of(info.clone())).collect()
    }

    /// Their addresses.
    fn places(&self) -> String {
        self.at.iter().map(|info| info.addr().to_string()).collect::<Vec<_>>().join(",")
    }
}

/// The durability problems that a URL accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct DurabilityWaivers {
    /// `durable=no`: acknowledged events may be lost.
    pub(super) be_lost: bool,
    /// `evicts=yes`: acknowledged events may be evicted.
    pub(super) be_evicted: bool,
}

/// The protocol over TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RedisTransport {
    /// Plain Redis.
    Plain,
    /// Redis inside TLS.
    Tls,
}

/// The server's address, without user or password.
impl std::fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.sentinels {
            Some(sentinels) => write!(f, "redis {} of the sentinels {}", sentinels.name, sentinels.places()),
            None => write!(f, "redis {}", self.info.addr()),
        }
    }
}

impl RedisUrl {
    /// Parses a URL. Errors do not show it: it may contain a password.
    pub(super) fn parse(url: &str) -> Result<Self, StoreOpenError> {
        let odd = |what: &str| StoreOpenError::permanent(format!("the store's URL: {what}"));
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut prefix, mut roots, mut lets, mut rest) =
            (PREFIX.to_owned(), None, DurabilityWaivers::default(), Vec::new());
        let (mut wait, mut sentinel_user, mut sentinel_password) = (None, "", None);
        let by_socket = base.split("://").next().is_some_and(|scheme| scheme.ends_with("unix"));
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("prefix", name) if is_prefix(name) => name.clone_into(&mut prefix),
                ("prefix", _) => {
                    let may = format!("1 to {PREFIX_BYTES_MAX} letters, digits, `.`, `_`, `:` or `-`");
                    return Err(odd(&format!("`prefix` must have {may}")));
                }
                ("durable", "no") => lets.be_lost = true,
                ("durable", _) => return Err(odd("`durable` can only be `no`; leave it out otherwise")),
                ("evicts", "yes") => lets.be_evicted = true,
                ("evicts", _) => return Err(odd("`evicts` can only be `yes`; leave it out otherwise")),
                ("wait", many) => match many.parse() {
                    Ok(many) if (1..=WAIT_MAX).contains(&many) => wait = Some(many),
                    _ => return Err(odd(&format!("`wait` is a number of replicas, from 1 to {WAIT_MAX}"))),
                },
                ("sentinel_user", user) => sentinel_user = user,
                ("sentinel_password", password) => sentinel_password = Some(password),
                ("roots", path) => {
                    let read = std::fs::read(path);
                    roots =
                        Some(read.map_err(|error| odd(&format!("`roots` names {path}: {error}")).caused_by(error))?);
                }
                ("db" | "user" | "pass", _) if by_socket => rest.push(pair),
                _ if query.contains('@') => return Err(odd("it has a `?` before its `@`; write `%3F` in a password")),
                (name, _) => {
                    return Err(odd(&format!(
                        "unknown parameter `{name}`; known are `prefix`, `durable`, `evicts`, `wait` and `roots`, and with \
                         sentinels `sentinel_user` and `sentinel_password`"
                    )));
                }
            }
        }
        if url.contains('#') {
            return Err(odd("it has a `#`; write `%23` in a password"));
        }
        let mut plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut sentinels = None;
        if let Some((scheme, rest)) = base.split_once("+sentinel://") {
            let who = sentinel_password.map(|password| (sentinel_user, password));
            let (found, template) = SentinelConfig::parse(scheme, rest, who).map_err(|why| odd(&why))?;
            (sentinels, plain) = (Some(found), template);
        }
        let info = plain.as_str().into_connection_info().map_err(|error| {
            odd(&format!(
                "{}; expected redis://user:password@host:6379/0, or rediss:// for TLS; special characters of a \
                 password are written as %XX",
                error.to_string().split(" - ").next().unwrap_or_default()
            ))
        })?;
        Ok(Self { info, roots, prefix, lets, wait, sentinels, by_sentinel: false })
    }

    /// A client for this server.
    pub(super) fn client(&self) -> Result<Client, RedisError> {
        self.client_of(self.info.clone())
    }

    fn client_of(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        match &self.roots {
            Some(roots) => {
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: Some(roots.clone()) })
            }
            None => Client::open(info),
        }
    }

    /// The same at another `host:port`, of its cluster or named by its sentinels.
    pub(super) fn at(&self, place: &str) -> Option<Self> {
        let (host, port) = place.rsplit_once(':')?;
        let (host, port) = (host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?);
        let addr = match self.info.addr() {
            // A node that does not know its own name reports only a port.
            ConnectionAddr::Tcp(ours, _) => {
                ConnectionAddr::Tcp(if host.is_empty() { ours.clone() } else { host }, port)
            }
            ConnectionAddr::TcpTls { host: ours, insecure, .. } => ConnectionAddr::TcpTls {
                host: if host.is_empty() { ours.clone() } else { host },
                port,
                insecure: *insecure,
                tls_params: None,
            },
            _ => return None,
        };
        let info = self.info.clone().set_addr(addr);
        let by_sentinel = self.by_sentinel || self.sentinels.is_some();
        Some(Self { info, sentinels: None, by_sentinel, ..self.clone() })
    }

    /// Host, port and protocol; `None` for a socket.
    pub(super) fn tcp(&self) -> Option<(&str, u16, RedisTransport)> {
        if self.sentinels.is_some() {
            return None;
        }
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => Some((host, *port, RedisTransport::Plain)),
            ConnectionAddr::TcpTls { host, port, .. } => Some((host, *port, RedisTransport::Tls)),
            _ => None,
        }
    }

    /// The server and the database on it; without the user.
    pub(super) fn place(&self) -> String {
        let db = self.info.redis_settings().db();
        match &self.sentinels {
            Some(sentinels) => format!("redis {} {}/{db}", sentinels.name, sentinels.places()),
            None => format!("redis {}/{db}", self.info.addr()),
        }
    }

    /// Whether a user or password is given.
    pub(super) fn has_password(&self) -> bool {
        self.info.redis_settings().password().is_some()
    }
}

fn is_prefix(name: &str) -> bool {
    let may = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    !name.is_empty() && name.len() <= PREFIX_BYTES_MAX && name.bytes().all(may)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: &str) {
        let said = match RedisUrl::parse(url) {
            Ok(RedisUrl { info, prefix, lets, .. }) => {
                let settings = info.redis_settings();
                let (user, password) = (settings.username().unwrap_or("-"), settings.password().unwrap_or("-"));
                format!(
                    "{} {user} {password} {} {prefix} {} {}",
                    info.addr(),
                    settings.db(),
                    lets.be_lost,
                    lets.be_evicted
                )
            }
            Err(error) => error.to_string(),
        };
        assert!(said.contains(expected), "{url}: {said}");
    }

    #[test]
    fn every_form_of_a_url_is_parsed() {
        check("redis://host", "host:6379 - - 0 hookonce false false");
        check("valkey://u:p%40@host:1/3?prefix=a.b", "host:1 u p@ 3 a.b false false");
        check("rediss://:p@[::1]:2?durable=no&evicts=yes", "::1:2 - p 0 hookonce true true");
        check("valkeys://host?", "host:6379");
        check("redis+unix:///run/redis.sock?db=2&pass=p&prefix=x", "/run/redis.sock - p 2 x");
    }

    #[test]
    fn an_error_about_a_url_does_not_contain_its_password() {
        for url in [
            "http://u:hidden@host",
            "redis://u:hidden@",
            "redis://u:hidden@host/x",
            "redis://u:hidden@host?prefix=",
            "redis://u:hidden@host?prefix={}",
            "redis://u:hidden@host?durable=yes",
            "redis://u:hidden@host?evicts=no",
            "redis://u:hidden@host?evict=yes",
            "redis://u:hidden@host?wait=0",
            "redis://u:hidden@host?wait=no",
            "redis+sentinel://u:hidden@host",
            "redis://u:hidden@host?roots=/nowhere.pem",
            "redis://u:hid#den@host",
            "redis://u:x?hid&den=1@host",
        ] {
            let error = RedisUrl::parse(url).expect_err(url).to_string();
            assert!(error.starts_with("the store's URL") && !error.contains("hid"), "{url}: {error}");
        }
    }

    #[test]
    fn sentinels_and_the_primary_each_get_their_own_password() {
        let url = "rediss+sentinel://u:p%40@one,two:7,[::1]/main/3?prefix=a&wait=2&sentinel_user=s&sentinel_password=q";
        let address = RedisUrl::parse(url).expect("a url");
        let sentinels = address.sentinels.clone().expect("sentinels");
        assert_eq!((&*sentinels.name, &*sentinels.places()), ("main", "one:26379,two:7,::1:26379"));
        let password = |info: &ConnectionInfo| info.redis_settings().password().map(str::to_owned);
        assert!(sentinels.at.iter().all(|info| password(info).as_deref() == Some("q")));
        assert!(sentinels.at.iter().all(|info| matches!(info.addr(), ConnectionAddr::TcpTls { .. })));
        let primary = address.at("10.0.0.7:6380").expect("a place");
        assert_eq!((primary.to_string(), primary.info.redis_settings().db()), ("redis 10.0.0.7:6380".into(), 3));
        assert_eq!(
            (password(&primary.info).as_deref(), primary.wait, primary.by_sentinel),
            (Some("p@"), Some(2), true)
        );
        assert_eq!(address.to_string(), "redis main of the sentinels one:26379,two:7,::1:26379");
        for url in ["redis+sentinel://one", "redis+sentinel://one,/main", "redis+sentinel://one:x/main"] {
            assert!(RedisUrl::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn another_node_of_a_cluster_is_reached_with_the_same_password() {
        let one = RedisUrl::parse("redis://u:p@host:1").expect("a url");
        for (place, expected) in [("10.0.0.7:7", "10.0.0.7:7"), (":7", "host:7"), ("[::1]:7", "::1:7")] {
            let other = one.at(place).expect(place);
            assert_eq!(other.info.addr().to_string(), expected);
            assert_eq!(other.info.redis_settings().password(), Some("p"));
        }
        assert!(one.at("nonsense").is_none() && one.at("host:port").is_none());
    }
}
