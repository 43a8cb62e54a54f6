//! Reads an X.509 certificate: its RSA public key, and when it is valid. Its chain is not checked: it comes over TLS from
//! a pinned host, which is what vouches for it.

use super::fetched_key::trimmed;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What is read of a certificate.
pub(super) struct CertificateContent {
    pub(super) modulus: Vec<u8>,
    pub(super) exponent: Vec<u8>,
    /// From when until when it is valid.
    pub(super) valid: (Timestamp, Timestamp),
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
/// `rsaEncryption`, with its parameters.
const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Reads the first certificate of a PEM text. An error is a sentence.
pub(super) fn parse(pem: &[u8]) -> Result<CertificateContent, String> {
    let text = std::str::from_utf8(pem).map_err(|_| "it is not a text".to_owned())?;
    let (_, rest) = text.split_once(BEGIN).ok_or("it is not a certificate in PEM")?;
    let (base64, _) = rest.split_once(END).ok_or("it is not a whole certificate in PEM")?;
    let base64: String = base64.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let der = STANDARD.decode(base64).map_err(|_| "it is not a certificate in PEM".to_owned())?;
    read(&der).ok_or_else(|| "it is not a certificate with an RSA key".to_owned())
}

fn read(der: &[u8]) -> Option<CertificateContent> {
    let (mut certificate, _) = element(der, SEQUENCE)?;
    let mut tbs = take(&mut certificate, SEQUENCE)?;
    if tbs.first() == Some(&VERSION) {
        take(&mut tbs, VERSION)?;
    }
    take(&mut tbs, INTEGER)?; // serial number
    take(&mut tbs, SEQUENCE)?; // algorithm of the signature
    take(&mut tbs, SEQUENCE)?; // issuer
    let mut validity = take(&mut tbs, SEQUENCE)?;
    let valid = (time(&mut validity)?, time(&mut validity)?);
    take(&mut tbs, SEQUENCE)?; // subject
    let mut info = take(&mut tbs, SEQUENCE)?;
    if take(&mut info, SEQUENCE)? != RSA {
        return None;
    }
    // The first byte is the number of unused bits.
    let key = take(&mut info, BIT_STRING)?.strip_prefix(&[0])?;
    let (mut key, _) = element(key, SEQUENCE)?;
    let (modulus, exponent) = (take(&mut key, INTEGER)?, take(&mut key, INTEGER)?);
    Some(CertificateContent { modulus: trimmed(modulus.to_vec()), exponent: trimmed(exponent.to_vec()), valid })
}

/// The content of the next element, which must have this tag.
fn take<'d>(from: &mut &'d [u8], tag: u8) -> Option<&'d [u8]> {
    let (content, rest) = element(from, tag)?;
    *from = rest;
    Some(content)
}

/// The content of the first element, and what follows it.
fn element(from: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = from.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), &rest[2..]),
        _ => return None,
    };
    (found == tag && length <= limits::KEY_DOCUMENT_BYTES_MAX).then(|| rest.split_at_checked(length))?
}

/// A `UTCTime` (`YYMMDDHHMMSSZ`, of 1950 to 2049) or a `GeneralizedTime` (`YYYYMMDDHHMMSSZ`).
fn time(from: &mut &[u8]) -> Option<Timestamp> {
    let tag = *from.first()?;
    let text = std::str::from_utf8(take(from, tag)?).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = match (tag, text.len()) {
        (UTC_TIME, 12) => format!("{}{text}", if text < "50" { "20" } else { "19" }),
        (GENERALIZED_TIME, 14) => text.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| &digits[from..to];
    let (date, clock) =
        ([part(0, 4), part(4, 6), part(6, 8)].join("-"), [part(8, 10), part(10, 12), part(12, 14)].join(":"));
    Timestamp::parse(&format!("{date}T{clock}Z"))
}
