//! Docker's config file: the logins that `docker login` writes to `config.json`. Podman's `auth.json` has the same
//! format.

use super::credentials::{RegistryLogin, RegistrySecret};
use crate::decide::limits::DOCKER_CONFIG_BYTES_MAX;
use crate::decide::registry_address::RegistryAddress;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Where docker's config file is: in `$DOCKER_CONFIG`, else in `~/.docker`. `None`: there is no home.
pub(crate) fn default_path(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let named = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = named("DOCKER_CONFIG").or_else(|| Some(named("HOME")?.join(".docker")))?;
    Some(folder.join("config.json"))
}

/// Why a file has no login for a registry. Never contains a part of the file's content but names of helpers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DockerConfigError {
    why: String,
    /// What to do.
    pub(crate) hint: String,
}

impl fmt::Display for DockerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for DockerConfigError {}

/// The members of the file that matter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfigFile {
    #[serde(default)]
    auths: HashMap<String, DockerAuthEntry>,
    #[serde(default)]
    cred_helpers: HashMap<String, String>,
    #[serde(default)]
    creds_store: String,
}

/// A login, as docker writes it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct DockerAuthEntry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
    registrytoken: String,
}

/// Checks that the file has a login for this registry.
pub(crate) fn check(path: &Path, registry: &RegistryAddress) -> Result<(), DockerConfigError> {
    login(path, registry).map(drop)
}

/// Reads the login for this registry.
pub(super) fn login(path: &Path, registry: &RegistryAddress) -> Result<RegistryLogin, DockerConfigError> {
    let found = match read(path) {
        Ok(text) => parse(&text, registry),
        Err(error) => Err((format!("it cannot be read: {error}"), login_hint(registry))),
    };
    found.map_err(|(why, hint)| DockerConfigError {
        why: format!("docker's config file {}: {why}", path.display()),
        hint,
    })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(DOCKER_CONFIG_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > DOCKER_CONFIG_BYTES_MAX {
        return Err(io::Error::other("it is longer than 1 MB"));
    }
    Ok(text)
}

fn login_hint(registry: &RegistryAddress) -> String {
    format!("run `docker login {registry}`")
}

/// The login for this registry; otherwise what is wrong, and what to do.
fn parse(text: &[u8], registry: &RegistryAddress) -> Result<RegistryLogin, (String, String)> {
    // The words of a JSON error may repeat a part of the file.
    let file: DockerConfigFile = serde_json::from_slice(text)
        .map_err(|error| (format!("line {} is not what docker writes", error.line()), login_hint(registry)))?;
    let entry = file.auths.into_iter().find(|(key, _)| registry.has_login_key(key)).map(|(_, entry)| entry);
    let login = entry.map_or(Ok(None), DockerAuthEntry::login);
    let unreadable = |AuthDecodeError| (format!("its `auth` for {registry} cannot be read"), login_hint(registry));
    if let Some(login) = login.map_err(unreadable)? {
        return Ok(login);
    }
    let helper = file.cred_helpers.into_iter().find(|(key, _)| registry.has_login_key(key)).map(|(_, helper)| helper);
    match helper.or(Some(file.creds_store)).filter(|helper| !helper.is_empty()) {
        Some(helper) => Err((
            format!(
                "the login for {registry} is kept by the helper `docker-credential-{helper}`, which hookonce does not run"
            ),
            "write user = \"NAME\" and password = { env = \"NAME\" } or { file = \"PATH\" } instead of `credentials`"
                .to_owned(),
        )),
        None => Err((format!("it has no login for {registry}"), login_hint(registry))),
    }
}

/// An `auth` that is not the base64 of user, colon and password.
struct AuthDecodeError;

impl DockerAuthEntry {
    /// The login; `None` if the entry has none.
    fn login(self) -> Result<Option<RegistryLogin>, AuthDecodeError> {
        let secret = |text: String| Some(text).filter(|text| !text.is_empty()).map(RegistrySecret);
        if let Some(token) = secret(self.identitytoken) {
            return Ok(Some(RegistryLogin::IdentityToken(token)));
        }
        if let Some(token) = secret(self.registrytoken) {
            return Ok(Some(RegistryLogin::RegistryToken(token)));
        }
        if !self.auth.is_empty() {
            return decode(&self.auth).map(Some).ok_or(AuthDecodeError);
        }
        let password = secret(self.password).filter(|_| !self.username.is_empty());
        Ok(password.map(|password| RegistryLogin::Password(self.username, password)))
    }
}

/// Decodes `auth`: the base64 of user, colon and password.
fn decode(auth: &str) -> Option<RegistryLogin> {
    let text = String::from_utf8(STANDARD.decode(auth).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    let password = password.trim_end_matches('\0');
    (!user.is_empty()).then(|| RegistryLogin::Password(user.to_owned(), RegistrySecret(password.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, registry: &str) -> Result<RegistryLogin, (String, String)> {
        parse(file.as_bytes(), &RegistryAddress::parse(registry).unwrap())
    }

    fn password(user: &str, password: &str) -> RegistryLogin {
        RegistryLogin::Password(user.to_owned(), RegistrySecret(password.to_owned()))
    }

    /// `bob:hunter2:x`
    const AUTH: &str = "Ym9iOmh1bnRlcjI6eA==";

    #[test]
    fn a_login_is_read_however_docker_writes_it() {
        let auth = |key: &str| format!(r#"{{"auths":{{"{key}":{{"auth":"{AUTH}"}},"other.io":{{"auth":"eDp5"}}}}}}"#);
        assert_eq!(found(&auth("ghcr.io"), "ghcr.io"), Ok(password("bob", "hunter2:x")));
        assert_eq!(found(&auth("https://index.docker.io/v1/"), "docker.io"), Ok(password("bob", "hunter2:x")));
        assert_eq!(found(&auth("127.0.0.1:5000"), "http://127.0.0.1:5000"), Ok(password("bob", "hunter2:x")));
        let named = r#"{"auths":{"a.io":{"username":"u","password":"p"}},"credsStore":"desktop"}"#;
        assert_eq!(found(named, "a.io"), Ok(password("u", "p")));
        let token = r#"{"auths":{"a.io":{"auth":"PHRva2VuPjo=","identitytoken":"t"}},"HttpHeaders":{"X":"y"}}"#;
        assert_eq!(found(token, "a.io"), Ok(RegistryLogin::IdentityToken(RegistrySecret("t".into()))));
    }

    #[test]
    fn a_login_that_a_helper_keeps_is_refused_with_what_to_write_instead() {
        for file in [
            r#"{"auths":{"ghcr.io":{}},"credsStore":"desktop"}"#,
            r#"{"credsStore":"desktop"}"#,
            r#"{"credHelpers":{"ghcr.io":"desktop"}}"#,
        ] {
            let (why, hint) = found(file, "ghcr.io").unwrap_err();
            assert!(why.contains("docker-credential-desktop") && hint.contains("password = { env"), "{file}: {why}");
        }
    }

    #[test]
    fn a_file_without_a_login_says_so_and_repeats_nothing_of_it() {
        for file in [
            "{}",
            r#"{"auths":{"other.io":{"auth":"c2VjcmV0"}}}"#,
            r#"{"auths":{"ghcr.io":{"auth":"c2VjcmV0"}}}"#,
            r#"{"auths":{"ghcr.io":{"auth":"s e c r e t"}}}"#,
            r#"{"auths":{"ghcr.io":"secret"}}"#,
            "secret",
            "",
        ] {
            let (why, hint) = found(file, "ghcr.io").unwrap_err();
            assert!(hint == "run `docker login ghcr.io`" && !why.contains("ecret"), "{file}: {why}");
        }
    }

    #[test]
    fn the_file_is_where_docker_looks_for_it() {
        let path = |docker: Option<&str>, home: Option<&str>| {
            default_path(&|name| match name {
                "DOCKER_CONFIG" => docker.map(str::to_owned),
                "HOME" => home.map(str::to_owned),
                _ => None,
            })
        };
        assert_eq!(path(Some("/d"), Some("/h")), Some("/d/config.json".into()));
        assert_eq!(path(Some(""), Some("/h")), Some("/h/.docker/config.json".into()));
        assert_eq!(path(None, None), None);
    }
}
