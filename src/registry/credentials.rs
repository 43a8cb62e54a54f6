//! The credentials for a registry: none, a user and a password, or the login in docker's config file.
//!
//! Docker's file is read when it is needed, so that a new `docker login` counts without a restart.

use super::docker_config;
use super::error::{LookupError, LookupFailure};
use crate::decide::registry_address::RegistryAddress;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;
use std::fmt;
use std::path::PathBuf;

/// A registry, and the credentials for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RegistryAccess {
    /// Its address.
    pub address: RegistryAddress,
    /// The credentials.
    pub credentials: RegistryCredentials,
}

/// The credentials for a registry, as configured.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistryCredentials {
    /// None.
    Anonymous,
    /// A user and a password.
    Password {
        /// The user.
        user: String,
        /// The user as it may be shown: itself, or the variable or file that it comes from.
        shown: String,
        /// The password or token.
        password: RegistrySecret,
    },
    /// The login in this file, which has the format of docker's `config.json`.
    DockerConfig(PathBuf),
    /// They were not read: only to inspect a config without its secrets.
    Unknown,
}

/// A password or token. Never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RegistrySecret(pub String);

impl fmt::Debug for RegistrySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistrySecret(•••)")
    }
}

/// What is presented to a registry or to its token server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RegistryLogin {
    /// Nothing.
    Anonymous,
    /// A user and a password.
    Password(String, RegistrySecret),
    /// A token that buys access tokens.
    IdentityToken(RegistrySecret),
    /// A token that the registry itself accepts.
    RegistryToken(RegistrySecret),
}

impl RegistryCredentials {
    /// Reads what is presented to this registry.
    pub(super) async fn login(&self, registry: &RegistryAddress) -> Result<RegistryLogin, LookupError> {
        let cannot = |why: String| LookupError::new(LookupFailure::Credentials, why);
        match self {
            Self::Anonymous => Ok(RegistryLogin::Anonymous),
            Self::Password { user, password, .. } => Ok(RegistryLogin::Password(user.clone(), password.clone())),
            Self::DockerConfig(path) => {
                let (path, registry) = (path.clone(), registry.clone());
                let read = tokio::task::spawn_blocking(move || docker_config::login(&path, &registry));
                let login = read.await.map_err(|_| cannot("the credentials could not be read".into()))?;
                login.map_err(|error| cannot(format!("{error}; {}", error.hint)))
            }
            Self::Unknown => Err(cannot("the credentials are not known".into())),
        }
    }

    /// What was tried, and what to do if it was refused. Never a secret.
    pub(super) fn advice(&self, registry: &RegistryAddress) -> String {
        match self {
            Self::Anonymous => {
                "it was asked without credentials; is the name right? if the image is private, set `user` and \
                 `password` beside `image`, or `credentials`"
                    .to_owned()
            }
            Self::Password { shown, .. } => {
                format!("it was asked as user {shown}; is the password right, and may that user pull the image?")
            }
            Self::DockerConfig(path) => format!(
                "it was asked with the login for {registry} in {}; `docker login {registry}` renews it",
                path.display()
            ),
            Self::Unknown => String::new(),
        }
    }

    /// In words, for people.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Anonymous => "without credentials".to_owned(),
            Self::Password { shown, .. } => format!("as user {shown}"),
            Self::DockerConfig(path) => format!("with the login in {}", path.display()),
            Self::Unknown => "with credentials that could not be read".to_owned(),
        }
    }
}

/// The value of an `Authorization` header with a user and a password.
pub(super) fn basic(user: &str, password: &RegistrySecret) -> Option<HeaderValue> {
    authorization("Basic", &STANDARD.encode(format!("{user}:{}", password.0)))
}

/// The value of an `Authorization` header with a token; `None` if the token has a character that no header may have.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    authorization("Bearer", token)
}

fn authorization(scheme: &str, text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("{scheme} {text}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
