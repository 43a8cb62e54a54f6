//! Parsing of a `postgres://` URL: the server, and how to connect to it.
//!
//! The URL holds the password, so only the server's address and the database's name are ever printed.

use super::sessions;
use crate::decide::error_message::ErrorMessage;
use crate::decide::time::Duration;
use crate::store::schema::postgres::SchemaName;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Timeout for connecting.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Idle time before keepalive probes are sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
/// Interval of the probes.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// Unacknowledged data closes the connection after this time.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(15);

/// A server and a database, with the credentials.
pub(super) struct PostgresUrl {
    /// What to connect with.
    pub(super) config: Config,
    /// TLS, as requested by the URL.
    pub(super) tls: MakeRustlsConnect,
    /// The schema that the URL names.
    pub(super) schema: Option<SchemaName>,
    /// The `search_path` that the URL sets by `options`.
    pub(super) search_path: Option<String>,
    /// How durability is established.
    pub(super) durability: DurabilityCheck,
}

/// How it is established that a server keeps through a crash what it has committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum DurabilityCheck {
    /// By the server's settings: one with `fsync = off` or `full_page_writes = off` is refused.
    #[default]
    Settings,
    /// By the operator, with `durable=yes` in the URL: the service is durable by other means.
    Operator,
}

impl fmt::Display for PostgresUrl {
    /// Address and name, without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "?".into(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        write!(f, "PostgreSQL at {host}:{port}, database {}", self.database())?;
        match &self.schema {
            Some(schema) => write!(f, ", schema {}", schema.as_str()),
            None => Ok(()),
        }
    }
}

impl PostgresUrl {
    /// Parses a URL. Errors do not repeat it.
    pub(super) fn parse(url: &str) -> Result<Self, ErrorMessage> {
        let (rest, asked) = PostgresUrlParams::split(url)?;
        let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            format!("the PostgreSQL URL cannot be read ({why}); write postgres://user:password@host:5432/database")
        })?;
        let Some(host) = config.get_hosts().first() else {
            return Err("the PostgreSQL URL names no host; write postgres://user:password@host:5432/database".into());
        };
        let near = match host {
            Host::Tcp(host) => host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
            Host::Unix(_) => true,
        };
        let mode = asked.mode.unwrap_or(if near { PgSslMode::Disable } else { PgSslMode::Prefer });
        config
            .ssl_mode(match mode {
                PgSslMode::Disable => SslMode::Disable,
                PgSslMode::Prefer => SslMode::Prefer,
                PgSslMode::Require | PgSslMode::VerifyFull => SslMode::Require,
            })
            .application_name(sessions::NAME)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_EVERY)
            .tcp_user_timeout(UNCONFIRMED_MAX);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIME);
        }
        let tls = tls(mode, asked.roots.as_deref())?;
        let search_path = config.get_options().and_then(|options| setting(options, "search_path"));
        Ok(Self { tls, config, schema: asked.schema, search_path, durability: asked.durability })
    }

    /// Every server that the URL names, and the database; without the user.
    pub(super) fn place(&self) -> String {
        let ports = self.config.get_ports();
        let hosts = self.config.get_hosts().iter().enumerate().map(|(place, host)| {
            let port = ports.get(place).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        });
        format!("postgres {}/{}", hosts.collect::<Vec<_>>().join(","), self.database())
    }

    /// The database's name.
    pub(super) fn database(&self) -> &str {
        self.config.get_dbname().or(self.config.get_user()).unwrap_or("?")
    }

    /// The user name.
    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or("?")
    }
}

/// How the server's certificate is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PgSslMode {
    Disable,
    Prefer,
    Require,
    VerifyFull,
}

/// URL parameters that are not for the driver.
#[derive(Default)]
struct PostgresUrlParams {
    mode: Option<PgSslMode>,
    roots: Option<String>,
    schema: Option<SchemaName>,
    durability: DurabilityCheck,
}

impl PostgresUrlParams {
    /// Takes `sslmode`, `sslrootcert`, `schema` and `durable` out of a URL.
    fn split(url: &str) -> Result<(String, Self), String> {
        let mut asked = Self::default();
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err("a PostgreSQL URL begins with postgres://".into());
        }
        // Everything before the first `@` is the credentials, even if the password contains a `?`.
        let who = url.find('@').unwrap_or_default();
        let Some(at) = url[who..].find('?').map(|at| who + at) else { return Ok((url.into(), asked)) };
        let (place, query) = (&url[..at], &url[at + 1..]);
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("sslmode", mode) => {
                    asked.mode = Some(match mode {
                        "disable" => PgSslMode::Disable,
                        "prefer" | "allow" => PgSslMode::Prefer,
                        "require" => PgSslMode::Require,
                        "verify-full" => PgSslMode::VerifyFull,
                        _ => {
                            return Err(format!(
                                "`sslmode={mode}` in the PostgreSQL URL is not known; write disable, prefer, require \
                                 or verify-full"
                            ));
                        }
                    });
                }
                ("sslrootcert", path) => asked.roots = Some(decoded(path)),
                ("schema", name) => {
                    asked.schema = Some(SchemaName::parse(&decoded(name)).ok_or(
                        "`schema` in the PostgreSQL URL is not the name of a schema: write 1 to 63 bytes without control \
                         characters or backslashes",
                    )?);
                }
                ("durable", "yes") => asked.durability = DurabilityCheck::Operator,
                ("durable", _) => {
                    return Err("`durable` in the PostgreSQL URL can only be `yes`; leave it out otherwise".into());
                }
                _ => others.push(pair),
            }
        }
        if asked.roots.is_some() && asked.mode != Some(PgSslMode::VerifyFull) {
            return Err("`sslrootcert` in the PostgreSQL URL needs `sslmode=verify-full` as well".into());
        }
        let query = others.join("&");
        Ok((if query.is_empty() { place.into() } else { format!("{place}?{query}") }, asked))
    }
}

/// Decodes percent-encoding, such as `%2F` for `/`.
fn decoded(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let byte = after.get(..2).filter(|_| *first == b'%').and_then(|hex| {
            let mut byte = [0];
            hex::decode_to_slice(hex, &mut byte).ok().map(|()| byte[0])
        });
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The value that `options` of a URL give to a setting: words as on the server's command line, `-c name=value` or
/// `--name=value`, where a backslash escapes a space. The last one counts.
fn setting(options: &str, name: &str) -> Option<String> {
    let (mut words, mut letters, mut inside) = (Vec::new(), options.chars(), false);
    while let Some(letter) = letters.next() {
        if letter.is_ascii_whitespace() {
            inside = false;
            continue;
        }
        if !inside {
            words.push(String::new());
            inside = true;
        }
        let letter = if letter == '\\' { letters.next() } else { Some(letter) };
        words.last_mut().expect("a word was begun").extend(letter);
    }
    let (mut words, mut value) = (words.iter().map(String::as_str), None);
    while let Some(word) = words.next() {
        let pair = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(pair) => Some(pair),
            None => word.strip_prefix("--"),
        };
        let pair = pair.and_then(|pair| pair.split_once('='));
        let named = pair.filter(|(key, _)| key.replace('-', "_").eq_ignore_ascii_case(name));
        value = named.map(|(_, value)| value.to_owned()).or(value);
    }
    value
}

fn tls(mode: PgSslMode, roots: Option<&str>) -> Result<MakeRustlsConnect, ErrorMessage> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match (mode, roots) {
        (PgSslMode::VerifyFull, Some(path)) => trusting(path, provider.clone())?,
        (PgSslMode::VerifyFull, None) => {
            Arc::new(rustls_platform_verifier::Verifier::new(provider.clone()).map_err(|error| {
                let why = format!("the certificates that this machine trusts cannot be read: {error}");
                ErrorMessage::from(why).caused_by(error)
            })?)
        }
        (PgSslMode::Disable | PgSslMode::Prefer | PgSslMode::Require, _) => {
            Arc::new(AcceptAnyCertificate(provider.clone()))
        }
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ErrorMessage::from(format!("TLS cannot be used: {error}")).caused_by(error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Trusts the certificates in this file.
fn trusting(path: &str, provider: Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, ErrorMessage> {
    let cannot = |why: &dyn fmt::Display| ErrorMessage::from(format!("`sslrootcert` {path} cannot be used: {why}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(&error).caused_by(error))? {
        let certificate = certificate.map_err(|error| cannot(&error).caused_by(error))?;
        roots.add(certificate).map_err(|error| cannot(&error).caused_by(error))?;
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| cannot(&error).caused_by(error))
}

/// Encrypts without checking the server's certificate: what `sslmode=require` means everywhere.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: SslMode) {
        assert_eq!(PostgresUrl::parse(url).expect("a URL").config.get_ssl_mode(), expected, "{url}");
    }

    #[test]
    fn tls_is_preferred_away_from_this_machine_and_left_out_on_it_unless_the_url_says_otherwise() {
        check("postgres://u:p@127.0.0.1/d", SslMode::Disable);
        check("postgres://u:p@localhost:1/d", SslMode::Disable);
        check("postgres://u:p@%2Frun%2Fpostgresql/d", SslMode::Disable);
        check("postgres://u:p@db.example/d", SslMode::Prefer);
        check("postgres://u:p@127.0.0.1/d?sslmode=require", SslMode::Require);
        check("postgresql://u:p@db.example/d?sslmode=verify-full&connect_timeout=3", SslMode::Require);
        check("postgres://u:p@db.example/d?sslmode=disable", SslMode::Disable);
        check("postgres://u:p?p@db.example/d?sslmode=require", SslMode::Require);
    }

    #[test]
    fn the_search_path_that_a_url_sets_is_read_as_the_server_reads_it() {
        let check = |options: &str, expected: Option<&str>| {
            let address = PostgresUrl::parse(&format!("postgres://u@h/d{options}")).expect("a URL");
            assert_eq!(address.search_path.as_deref(), expected, "{options}");
        };
        check("", None);
        check("?options=-c%20statement_timeout%3D5s", None);
        check("?options=-c%20search_path%3Dapp", Some("app"));
        check("?options=-csearch_path%3Dapp%2Cpublic", Some("app,public"));
        check("?options=--search-path%3Dapp%20-c%20geqo%3Doff", Some("app"));
        check("?options=-c%20Search_Path%3Done%20-c%20search_path%3Dtwo%5C%2C%5C%20three", Some("two, three"));
        check("?options=-c", None);
    }

    #[test]
    fn no_message_about_a_url_contains_its_password() {
        let urls = [
            "mysql://u:hunter2@h/d",
            "postgres://u:hunter2@h:port/d",
            "postgres://u:hunter2@h/d?sslmode=hunter",
            "postgres://u:hunter2@h/d?sslrootcert=/x",
            "postgres://u:hunter2@h/d?sslmode=verify-full&sslrootcert=%2Fnot%2Fthere",
            "postgres://u:hunter2@h/d?what=1",
            "postgres://u:hunter2@h/d?durable=no",
            "postgres://u:hunter2@h/d?schema=",
            "postgres://u:hunter2@h/d?schema=a%00b",
        ];
        for url in urls {
            let said = PostgresUrl::parse(url).err().unwrap_or_else(|| panic!("{url} was read"));
            assert!(!said.contains("hunter2"), "{said}");
        }
        let shown = PostgresUrl::parse("postgres://u:hunter2@h:5433/d").expect("a URL").to_string();
        assert_eq!(shown, "PostgreSQL at h:5433, database d");
        let named = PostgresUrl::parse("postgres://u:hunter2@h/d?schema=a%20b&durable=yes").expect("a URL");
        assert_eq!(named.to_string(), "PostgreSQL at h:5432, database d, schema a b");
        assert_eq!(named.durability, DurabilityCheck::Operator);
        let missing = PostgresUrl::parse("postgres://u@h/d?sslmode=verify-full&sslrootcert=%2Fnot%2Fthere").err();
        assert!(missing.is_some_and(|said| said.contains("/not/there")));
    }
}
