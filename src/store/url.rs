//! The URL of a store's server, shown without its password.

use std::fmt;

/// A server's URL. It may hold a password, which is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// The URL that this text is, if it names a host.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let host = text.split_once("://").is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with(['/', '?']));
        (host && !text.contains(['\0', '\n', ' '])).then(|| Self(text.to_owned()))
    }

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

    #[test]
    fn a_password_is_noticed_and_never_shown() {
        let shown = |text: &str| {
            let url = ServerUrl::parse(text).expect(text);
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
