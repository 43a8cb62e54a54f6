//! The URL of a store: `memory:`, `sqlite:PATH`, `postgres://…`, `redis://…`.

use std::fmt;
use std::path::{Path, PathBuf};

/// The parsed URL of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreUrl {
    /// In memory: lost when the node ends.
    Memory,
    /// In this file.
    Sqlite(PathBuf),
    /// In PostgreSQL.
    Postgres(ServerUrl),
    /// In Redis or Valkey.
    Redis(ServerUrl),
}

/// The text is not the URL of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreUrlError;

impl fmt::Display for StoreUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected memory:, sqlite:PATH, postgres://HOST/DATABASE or redis://HOST")
    }
}

impl std::error::Error for StoreUrlError {}

impl StoreUrl {
    /// Parses a URL; a relative path is resolved against `base`.
    pub fn parse(text: &str, base: &Path) -> Result<Self, StoreUrlError> {
        let (kind, rest) = text.split_once(':').ok_or(StoreUrlError)?;
        let server = || {
            let host = rest.strip_prefix("//").is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?']));
            if host && !text.contains(['\0', '\n', ' ']) { Ok(ServerUrl(text.to_owned())) } else { Err(StoreUrlError) }
        };
        match kind {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "sqlite" if !rest.is_empty() && !rest.starts_with("//") && !rest.contains('\0') => {
                Ok(Self::Sqlite(base.join(rest)))
            }
            "postgres" | "postgresql" => server().map(Self::Postgres),
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+sentinel" | "rediss+sentinel" | "valkey+sentinel"
            | "valkeys+sentinel" => server().map(Self::Redis),
            _ => Err(StoreUrlError),
        }
    }

    /// Whether nodes on other machines can share it.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_) | Self::Redis(_))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) | Self::Redis(url) => fmt::Display::fmt(url, f),
        }
    }
}

/// A server's URL. It may hold a password, which is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// The whole URL, for connecting; never display it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Scheme, user, and host and path; without the password and the query. `None` if a `?` or `#` comes before an `@`:
    /// then a password whose `?` is not escaped as `%3F` cannot be told from a query.
    fn parts(&self) -> Option<(&str, Option<&str>, &str)> {
        let (scheme, all) = self.0.split_once("://").unwrap_or_default();
        let rest = all.split(['?', '#']).next().unwrap_or_default();
        if all[rest.len()..].contains('@') {
            return None;
        }
        // A password may contain an `@`: the host begins after the last one.
        Some(match rest.rsplit_once('@') {
            Some((who, host)) => (scheme, who.split(':').next(), host),
            None => (scheme, None, rest),
        })
    }

    /// Whether it contains a password, or may contain one.
    pub fn has_password(&self) -> bool {
        if self.parts().is_none() {
            return true;
        }
        let (address, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let who =
            address.rsplit_once('@').map_or("", |(before, _)| before.split_once("://").map_or("", |(_, who)| who));
        who.split_once(':').is_some_and(|(_, password)| !password.is_empty())
            || query.split('&').any(|pair| {
                ["password=", "sslpassword=", "sentinel_password="].iter().any(|name| pair.starts_with(name))
            })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            Some((scheme, Some(user), host)) if !user.is_empty() => write!(f, "{scheme}://{user}@{host}"),
            Some((scheme, _, host)) => write!(f, "{scheme}://{host}"),
            None => write!(f, "{}://…", self.0.split(':').next().unwrap_or_default()),
        }
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreUrl, StoreUrlError> {
        StoreUrl::parse(text, Path::new("/base"))
    }

    #[test]
    fn every_store_url_is_parsed_and_nothing_else_is() {
        assert_eq!(parse("memory:"), Ok(StoreUrl::Memory));
        assert_eq!(parse("sqlite:a.db"), Ok(StoreUrl::Sqlite("/base/a.db".into())));
        assert_eq!(parse("sqlite:/a.db"), Ok(StoreUrl::Sqlite("/a.db".into())));
        for text in ["postgres://h/d", "postgresql://u:p@h:5432/d?sslmode=require", "postgres://%2Frun%2Fpg/d"] {
            assert!(matches!(parse(text), Ok(StoreUrl::Postgres(_))), "{text}");
        }
        for text in ["redis://h", "rediss://:p@h:6379/1", "valkey://h", "valkeys://h", "redis+sentinel://h,i/main"] {
            assert!(matches!(parse(text), Ok(StoreUrl::Redis(_))), "{text}");
        }
        for text in [
            "",
            "memory",
            "memory:x",
            "sqlite:",
            "sqlite://a",
            "postgres:",
            "postgres://",
            "redis:///",
            "mysql://h",
            "postgres://a b",
        ] {
            assert_eq!(parse(text), Err(StoreUrlError), "{text}");
        }
    }

    #[test]
    fn a_password_is_noticed_and_never_shown() {
        let shown = |text: &str| {
            let Ok(StoreUrl::Postgres(url) | StoreUrl::Redis(url)) = parse(text) else { panic!("{text}") };
            assert_eq!(format!("{url:?}"), format!("ServerUrl({url})"));
            (url.to_string(), url.has_password())
        };
        assert_eq!(shown("postgres://u:s3cret@h:1/d"), ("postgres://u@h:1/d".into(), true));
        assert_eq!(shown("postgres://u:s3@cret@h/d?x=1"), ("postgres://u@h/d".into(), true));
        assert_eq!(shown("postgres://u@h/d?password=s3cret"), ("postgres://u@h/d".into(), true));
        assert_eq!(shown("redis://:s3cret@h"), ("redis://h".into(), true));
        let sentinels = shown("redis+sentinel://u:s3cret@h:1,i:2/main?sentinel_password=s3cret");
        assert_eq!(sentinels, ("redis+sentinel://u@h:1,i:2/main".into(), true));
        assert!(shown("redis+sentinel://h,i/main?sentinel_password=s3").1);
        assert_eq!(shown("redis://h/2?prefix=a"), ("redis://h/2".into(), false));
        assert_eq!(shown("postgres://u@h/d"), ("postgres://u@h/d".into(), false));
        assert_eq!(shown("postgres://u:s3?cret@h/d"), ("postgres://…".into(), true));
        assert_eq!(shown("redis://:s3#cret@h"), ("redis://…".into(), true));
        assert_eq!(shown("postgres://h/d?password=s3@cret"), ("postgres://…".into(), true));
    }
}
