//! The addresses of a node and its store: what commands need of a config. Needs no secret and ignores errors in
//! sources, so that an operator can inspect events while the config is broken.

use super::diagnostic::{ConfigError, ConfigErrorKind};
use super::raw::{ConfigEntry, ConfigOrigin, ConfigSpan, ConfigTable};
use super::resolve::{ADMIN, ConfigResolver, TOP_KEYS};
use super::section::ConfigSection;
use super::{ConfigSecret, EnvLookup, StoreAddress, TlsFiles, validate};
use std::net::SocketAddr;
use std::path::Path;

/// The addresses of a config's node and store.
#[derive(Clone, Debug)]
pub(crate) struct NodeAddresses {
    /// Where events are kept.
    pub store: StoreAddress,
    /// The admin port.
    pub admin: SocketAddr,
    /// The files of its certificate.
    pub tls: Option<TlsFiles>,
    /// The available token of that port with the most permissions.
    pub token: Option<ConfigSecret>,
}

/// Reads them.
pub(super) fn resolve(text: &str, file: &str, base: &Path, env: EnvLookup<'_>) -> Result<NodeAddresses, ConfigError> {
    let mut resolver = ConfigResolver::new(text, base, env);
    let addresses = resolver.addresses();
    let failed = resolver.diagnostics.has_errors();
    let (list, more) = resolver.diagnostics.finish(&|_| (file.to_owned(), text));
    match addresses {
        Some(addresses) if !failed => Ok(addresses),
        _ => Err(ConfigError { file: file.to_owned(), nature: ConfigErrorKind::Wrong, list, more }),
    }
}

impl ConfigResolver<'_> {
    fn addresses(&mut self) -> Option<NodeAddresses> {
        let mut root: ConfigTable = self.tree()?;
        root.entries.retain(|entry: &ConfigEntry| matches!(&*entry.key, "store" | "admin"));
        validate::check(&root, &TOP_KEYS, "the top level", &mut self.diagnostics);
        let top = ConfigSection::new(&root, &TOP_KEYS, ConfigSpan { origin: ConfigOrigin::Config, start: 0, end: 0 });
        let admin = top.section("admin");
        let tokens = admin.iter().flat_map(|admin| admin.sections("tokens"));
        let (all, some): (Vec<_>, Vec<_>) = tokens.partition(|entry| entry.text("may") == Some("all"));
        let first = admin.and_then(|admin| admin.node("token")).into_iter();
        let others = all.iter().chain(&some).filter_map(|entry| entry.node("token"));
        Some(NodeAddresses {
            store: self.store(&top),
            admin: admin.and_then(|admin| admin.address("listen")).map_or(ADMIN, |listen| listen.first),
            tls: admin.and_then(|admin| admin.section("tls")).and_then(|section| self.tls_files(&section)),
            token: first.chain(others).find_map(|node| self.secret_if_available(node)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NodeAddresses, ConfigError> {
        let env = |name: &str| (name == "SET").then(|| "a token".to_owned());
        resolve(text, "hookonce.toml", Path::new("/folder"), &env)
    }

    #[test]
    fn a_config_with_unset_secrets_and_wrong_sources_still_says_where_its_node_is() {
        let found = read(
            "store = 'sqlite:events.db'\n[admin]\nlisten = '127.0.0.1:9'\ntoken = { env = 'UNSET' }\n\
             [source.x]\nverify = { scheme = 'github', secret = { env = 'UNSET' } }\nwhen = 'tag =='\nstrange = 1\n",
        )
        .unwrap();
        assert_eq!(found.store, StoreAddress::Sqlite("/folder/events.db".into()));
        assert_eq!((found.admin.to_string(), found.token), ("127.0.0.1:9".into(), None));
        let found = read("").unwrap();
        assert_eq!(found.store, StoreAddress::Sqlite("/folder/hookonce.db".into()));
        assert_eq!(found.admin, ADMIN);
    }

    #[test]
    fn the_store_of_a_system_config_is_in_the_state_folder_and_every_other_beside_its_config() {
        let store = |base: &str, state: Option<&str>| {
            let env = |name: &str| state.filter(|_| name == "STATE_DIRECTORY").map(str::to_owned);
            match resolve("", "hookonce.toml", Path::new(base), &env).unwrap().store {
                StoreAddress::Sqlite(path) => path.display().to_string(),
                other => panic!("{other}"),
            }
        };
        assert_eq!(store("/etc/hookonce", None), "/var/lib/hookonce/hookonce.db");
        assert_eq!(store("/etc/hookonce", Some("/srv/state:/other")), "/srv/state/hookonce.db");
        assert_eq!(store("/home/me", Some("/srv/state")), "/home/me/hookonce.db");
    }

    #[test]
    fn the_token_that_may_do_most_is_taken_if_it_is_at_hand() {
        let tokens = "tokens = [{ token = { env = 'UNSET' }, may = 'all' }, { token = { env = 'SET' }, may = 'read' }]";
        let found = read(&format!("[admin]\n{tokens}")).unwrap();
        assert_eq!(found.token.unwrap().expose(), b"a token");
    }

    #[test]
    fn what_is_wrong_with_the_addresses_themselves_is_told_with_its_place() {
        for (text, expected) in [
            ("store = 5", "hookonce.toml:1:9"),
            ("store = 'elephant'", "`store` cannot be read"),
            ("[admin]\nlisten = 'here'", "hookonce.toml:2:10"),
            ("store = { env = 'UNSET' }", "`UNSET` is not set"),
            ("= 3", "this is not TOML"),
        ] {
            let problems = read(text).unwrap_err().to_string();
            assert!(problems.contains(expected), "{text}: {problems}");
        }
    }
}
