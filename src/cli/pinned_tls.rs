//! Trusts one certificate: that of the node whose config is at hand. A command reaches the node by an address, for which
//! no certificate is made; but it has the certificate itself.

use super::error::CommandError;
use crate::config::TlsFiles;
use reqwest::ClientBuilder;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// A client that reaches the node with these files; without files, the client as it is.
pub(super) fn trusting(client: ClientBuilder, files: Option<&TlsFiles>) -> Result<ClientBuilder, CommandError> {
    let Some(files) = files else { return Ok(client) };
    let cannot = |why: &dyn std::fmt::Display| CommandError::unknown(format!("the node's certificate: {why}"));
    let certificate = files.own_certificate().map_err(|error| cannot(&error))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let config = config.map_err(|error| cannot(&error))?.dangerous();
    let pinned = Arc::new(PinnedCertificate { certificate, provider });
    Ok(client.tls_backend_preconfigured(config.with_custom_certificate_verifier(pinned).with_no_client_auth()))
}

/// Accepts the server that has the key of this certificate, under any name.
#[derive(Debug)]
struct PinnedCertificate {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *certificate == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
