//! `tls`: the files with the certificate of a port and its key.

use super::SecretRequirement;
use super::cached_file::FileFingerprint;
use super::external_value::{io_words, world_readable_mode};
use super::keys::{ConfigValueType, SectionKeys, key};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::limits;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{self, ServerConfig};

pub(super) static TLS_KEYS: SectionKeys = SectionKeys {
    name: "tls",
    title: "`tls = { … }`",
    about: "TLS on a port of a node that has no proxy in front, at the top level and in [admin]. Clients choose HTTP/1.1 or \
            HTTP/2. Both files are read again when they change.",
    keys: &[&[
        key(
            "certificate",
            ConfigValueType::Text,
            "required",
            "The file with the certificate and those that lead to its authority, in PEM: fullchain.pem of certbot, tls.crt \
             of Kubernetes.",
        ),
        key(
            "key",
            ConfigValueType::Text,
            "required",
            "The file with its private key, in PEM: privkey.pem of certbot, tls.key of Kubernetes.",
        ),
    ]],
};

/// The files with a certificate and its private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why a certificate cannot be used, as a sentence.
#[derive(Debug)]
pub struct TlsFilesError {
    why: String,
    /// The key of the config whose file is wrong.
    at: &'static str,
}

impl fmt::Display for TlsFilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for TlsFilesError {}

/// A certificate that can be used.
pub(crate) struct LoadedCertificate {
    /// The settings of connections.
    pub(crate) config: Arc<ServerConfig>,
}

/// The metadata of both files, which shows whether one was changed or replaced. Symbolic links are followed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TlsFilesStamp([Option<FileFingerprint>; 2]);

impl TlsFiles {
    /// The files as they are now.
    pub(crate) fn stamp(&self) -> TlsFilesStamp {
        let stamp = |path: &Path| std::fs::metadata(path).ok().map(|file| FileFingerprint::of(&file));
        TlsFilesStamp([stamp(&self.certificate), stamp(&self.key)])
    }

    /// The certificate itself, to recognise it.
    pub(crate) fn own_certificate(&self) -> Result<CertificateDer<'static>, TlsFilesError> {
        let (chain, _) = self.chain()?;
        chain.into_iter().next().ok_or_else(|| wrong("certificate", &self.certificate, "there is no certificate in it"))
    }

    fn chain(&self) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), TlsFilesError> {
        let pem = read("certificate", &self.certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        match chain {
            Ok(chain) if chain.is_empty() => {
                Err(wrong("certificate", &self.certificate, "there is no certificate in PEM in it"))
            }
            Ok(chain) => Ok((chain, pem)),
            Err(error) => Err(wrong("certificate", &self.certificate, &format!("it is not PEM: {error}"))),
        }
    }

    /// Reads both files, and checks that they belong together.
    pub(crate) fn load(&self) -> Result<LoadedCertificate, TlsFilesError> {
        let (chain, _) = self.chain()?;
        let pem = read("key", &self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|_| wrong("key", &self.key, "there is no private key in PEM in it, or it has a password"))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let signing = provider.key_provider.load_private_key(key);
        let signing = signing.map_err(|error| wrong("key", &self.key, &format!("the key cannot be used: {error}")))?;
        let certified = CertifiedKey::new(chain, signing);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => {
                let why = format!("it is not the key of the certificate in {}", self.certificate.display());
                return Err(wrong("key", &self.key, &why));
            }
            Err(error) => {
                return Err(wrong("certificate", &self.certificate, &format!("it cannot be used: {error}")));
            }
        }
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| wrong("certificate", &self.certificate, &error.to_string()))?;
        let mut config = builder
            .with_client_cert_verifier(WebPkiClientVerifier::no_client_auth())
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(LoadedCertificate { config: Arc::new(config) })
    }
}

fn wrong(at: &'static str, file: &Path, why: &str) -> TlsFilesError {
    TlsFilesError { why: format!("{}: {why}", file.display()), at }
}

fn read(at: &'static str, path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    let cannot = |error: &std::io::Error| wrong(at, path, &io_words(error));
    let file = File::open(path).map_err(|error| cannot(&error))?;
    // A pipe would block.
    if !file.metadata().map_err(|error| cannot(&error))?.is_file() {
        return Err(wrong(at, path, "it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(limits::TLS_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    if bytes.len() as u64 > limits::TLS_FILE_BYTES_MAX {
        return Err(wrong(at, path, "it is longer than 1 MB"));
    }
    Ok(bytes)
}

impl ConfigResolver<'_> {
    /// The files of a port's certificate, which are looked at where secrets are needed.
    pub(super) fn tls(&mut self, port: &ConfigSection<'_>) -> Option<TlsFiles> {
        let section = port.section("tls")?;
        let files = self.tls_files(&section);
        for name in ["certificate", "key"] {
            if !section.has(name) {
                self.diagnostics
                    .error(format!("`tls` has no `{name}`"))
                    .unless(section.misspells(name))
                    .at(section.at, "")
                    .hint("tls = { certificate = \"fullchain.pem\", key = \"privkey.pem\" }");
            }
        }
        let files = files?;
        if self.secrets == SecretRequirement::Required
            && let Err(error) = files.load()
        {
            self.diagnostics
                .error("the certificate of the port cannot be used")
                .at(section.place(error.at), error.to_string());
        } else if self.secrets == SecretRequirement::Required
            && let Some(mode) = world_readable_mode(&files.key)
        {
            self.diagnostics
                .warning("every user of this machine can read the private key")
                .at(section.place("key"), format!("its mode is {mode:o}"))
                .hint(format!("chmod o-r {}", files.key.display()));
        }
        Some(files)
    }

    /// The same files, not looked at.
    pub(super) fn tls_files(&self, section: &ConfigSection<'_>) -> Option<TlsFiles> {
        let file = |name| section.text(name).map(|path| self.base.join(path));
        Some(TlsFiles { certificate: file("certificate")?, key: file("key")? })
    }
}
