//! The names of images, tags and manifests in a container registry, as the OCI distribution specification defines them.
//!
//! A name and a tag may come from a payload and become part of a URL, so nothing outside of the grammar passes.

use super::limits::{IMAGE_NAME_BYTES_MAX, IMAGE_TAG_BYTES_MAX};
use aws_lc_rs::digest;
use std::fmt;

/// The name of an image in its registry, such as `octocat/app`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ImageName(String);

/// A tag of an image, such as `latest`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ImageTag(String);

/// The digest of a manifest or index: `sha256:` or `sha512:`, and lower-case hex.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ManifestDigest(String);

/// Why a text is not a name, a tag or a digest. Does not repeat the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageReferenceError {
    /// It is not the name of an image.
    Name,
    /// It is not a tag.
    Tag,
    /// It is not a digest.
    Digest,
}

impl fmt::Display for ImageReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => {
                "it is not the name of an image: lower-case letters and digits, with `.`, `_`, `-` or `/` between them, \
                 at most 255 bytes"
            }
            Self::Tag => {
                "it is not a tag: letters, digits, `_`, `.` and `-`, not beginning with `.` or `-`, at most 128 bytes"
            }
            Self::Digest => "it is not a digest: `sha256:` and 64, or `sha512:` and 128 lower-case hexadecimal digits",
        })
    }
}

impl std::error::Error for ImageReferenceError {}

impl ImageName {
    /// Parses a name. Upper-case letters are not allowed: no image has them.
    pub fn parse(text: &str) -> Result<Self, ImageReferenceError> {
        if text.len() <= IMAGE_NAME_BYTES_MAX && text.split('/').all(is_component) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ImageReferenceError::Name)
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text is one component of a name: letters and digits, with single separators between them. `__` and any
/// number of `-` are single separators, too.
fn is_component(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |run: &str| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-');
    text.starts_with(is_plain) && text.ends_with(is_plain) && text.split(is_plain).all(is_separator)
}

impl ImageTag {
    /// Parses a tag.
    pub fn parse(text: &str) -> Result<Self, ImageReferenceError> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let begins = text.bytes().next().is_some_and(is_word);
        let goes_on = text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'));
        if begins && goes_on && text.len() <= IMAGE_TAG_BYTES_MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(ImageReferenceError::Tag)
        }
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ManifestDigest {
    /// Parses a digest.
    pub fn parse(text: &str) -> Result<Self, ImageReferenceError> {
        let (hex, length) = match text.split_once(':') {
            Some(("sha256", hex)) => (hex, 64),
            Some(("sha512", hex)) => (hex, 128),
            _ => return Err(ImageReferenceError::Digest),
        };
        let is_hex = hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if is_hex && hex.len() == length { Ok(Self(text.to_owned())) } else { Err(ImageReferenceError::Digest) }
    }

    /// The digest of these bytes of a manifest, by SHA-256.
    pub fn of(manifest: &[u8]) -> Self {
        Self(format!("sha256:{}", hex::encode(digest::digest(&digest::SHA256, manifest))))
    }

    /// The digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ImageTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ManifestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

    fn matches(pattern: &str, text: &str) -> bool {
        Regex::new(&format!("^(?:{pattern})$")).unwrap().is_match(text)
    }

    /// The grammar as the specification writes it.
    const COMPONENT: &str = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*";

    proptest! {
        #[test]
        fn a_name_is_what_the_grammar_of_the_specification_matches(text in "[a1./_-]{0,12}|[aA/. %\\\\]{0,4}") {
            let expected = matches(&format!("{COMPONENT}(/{COMPONENT})*"), &text);
            prop_assert_eq!(ImageName::parse(&text).is_ok(), expected, "{}", text);
        }

        #[test]
        fn a_tag_is_what_the_grammar_of_the_specification_matches(text in "[aZ9_.-]{0,8}|\\PC{0,3}") {
            let expected = matches("[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}", &text);
            prop_assert_eq!(ImageTag::parse(&text).is_ok(), expected, "{}", text);
        }

        #[test]
        fn a_digest_is_what_the_grammar_of_the_specification_matches(text in "sha(256|512|1):[0-9a-fA]{63,65}|\\PC{0,80}") {
            let expected = matches("sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128}", &text);
            prop_assert_eq!(ManifestDigest::parse(&text).is_ok(), expected, "{}", text);
        }

        #[test]
        fn whatever_passes_is_left_as_it_is_in_the_path_of_a_url(name in "\\PC{1,12}", tag in "\\PC{1,12}") {
            let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'));
            if let Ok(name) = ImageName::parse(&name) {
                prop_assert!(plain(name.as_str()) && !name.as_str().split('/').any(|part| matches!(part, "" | "." | "..")));
            }
            if let Ok(tag) = ImageTag::parse(&tag) {
                prop_assert!(plain(tag.as_str()) && !matches!(tag.as_str(), "." | ".."));
            }
        }

        #[test]
        fn our_own_digest_of_a_manifest_is_a_digest(manifest in proptest::collection::vec(any::<u8>(), 0..64)) {
            let digest = ManifestDigest::of(&manifest);
            prop_assert_eq!(ManifestDigest::parse(digest.as_str()), Ok(digest));
        }
    }

    #[test]
    fn names_and_tags_have_a_maximum_length() {
        assert!(ImageName::parse(&"a".repeat(255)).is_ok() && ImageTag::parse(&"a".repeat(128)).is_ok());
        assert!(ImageName::parse(&"a".repeat(256)).is_err() && ImageTag::parse(&"a".repeat(129)).is_err());
    }

    #[test]
    fn a_sha512_digest_is_one() {
        assert!(ManifestDigest::parse(&format!("sha512:{}", "0a".repeat(64))).is_ok());
        assert!(ManifestDigest::parse(&format!("sha512:{}", "0a".repeat(32))).is_err());
    }
}
