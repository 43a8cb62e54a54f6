//! Compression of stored bodies: LZ4, where that makes them clearly smaller. A body is written twice, to the WAL and to
//! the database, and kept for a week; a webhook's JSON shrinks to about a third, and with an earlier body of its source as
//! dictionary to a tenth or less.

use crate::decide::body_dictionary::DICTIONARY_BYTES_MAX;
use crate::decide::id::Digest;
use std::borrow::Cow;
use std::sync::Arc;

/// Minimum size to compress. A shorter body fits on a page with others anyway.
const PACKED_FROM: usize = 1 << 10;
/// Maximum LZ4 expansion ratio: a cell that claims more is damaged.
const GROWTH_MAX: usize = 255;

/// The name of a dictionary: the first bytes of its digest, so that no two have the same on any node, now or later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::store) struct DictionaryId(pub i64);

/// A body, or its beginning, with which others of its source are packed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::store) struct BodyDictionary {
    pub(in crate::store) id: DictionaryId,
    /// The digest of its source and bytes.
    pub(in crate::store) digest: Digest,
    pub(in crate::store) bytes: Arc<[u8]>,
}

impl BodyDictionary {
    /// The dictionary that this body of this source makes.
    pub(in crate::store) fn of(source: &str, body: &[u8]) -> Self {
        let bytes = &body[..body.len().min(DICTIONARY_BYTES_MAX)];
        let digest = Self::digest_of(source, bytes);
        let mut id = [0; 8];
        id.copy_from_slice(&digest.0[..8]);
        Self { id: DictionaryId(i64::from_be_bytes(id)), digest, bytes: bytes.into() }
    }

    /// The dictionary that was stored with this digest, if it is still as it was.
    pub(in crate::store) fn stored(source: &str, bytes: &[u8], digest: Digest) -> Option<Self> {
        (bytes.len() <= DICTIONARY_BYTES_MAX).then(|| Self::of(source, bytes)).filter(|of| of.digest == digest)
    }

    fn digest_of(source: &str, bytes: &[u8]) -> Digest {
        let length = (source.len() as u64).to_be_bytes();
        Digest::of(&[&length[..], source.as_bytes(), bytes].concat())
    }
}

/// A body as it is stored.
pub(in crate::store) struct CompressedBody<'b> {
    bytes: Cow<'b, [u8]>,
    unpacked: Option<usize>,
    dictionary: Option<DictionaryId>,
}

impl<'b> CompressedBody<'b> {
    /// Compresses this body if that saves an eighth.
    pub(in crate::store) fn of(body: &'b [u8]) -> Self {
        Self::packed(body, None, lz4_flex::block::compress)
    }

    /// The same with this dictionary.
    pub(in crate::store) fn with(body: &'b [u8], dictionary: &BodyDictionary) -> Self {
        let pack = |body: &[u8]| lz4_flex::block::compress_with_dict(body, &dictionary.bytes);
        Self::packed(body, Some(dictionary.id), pack)
    }

    fn packed(body: &'b [u8], dictionary: Option<DictionaryId>, pack: impl FnOnce(&[u8]) -> Vec<u8>) -> Self {
        if body.len() >= PACKED_FROM {
            let packed = pack(body);
            if packed.len() < body.len() - body.len() / 8 {
                return Self { bytes: packed.into(), unpacked: Some(body.len()), dictionary };
            }
        }
        Self { bytes: body.into(), unpacked: None, dictionary: None }
    }

    /// The stored bytes.
    pub(in crate::store) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The stored bytes, by value.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn into_bytes(self) -> Cow<'b, [u8]> {
        self.bytes
    }

    /// Its uncompressed length; `None` if it is stored as it is.
    pub(in crate::store) fn unpacked(&self) -> Option<i64> {
        self.unpacked.and_then(|length| length.try_into().ok())
    }

    /// The dictionary without which it cannot be read.
    pub(in crate::store) fn dictionary(&self) -> Option<DictionaryId> {
        self.dictionary
    }
}

/// The original body; `None` if it cannot be decompressed. The digest says whether it is the right one.
pub(in crate::store) fn unpack(bytes: &[u8], unpacked: Option<i64>) -> Option<Vec<u8>> {
    unpack_with(bytes, unpacked, None)
}

/// The same for a body that was packed with this dictionary.
pub(in crate::store) fn unpack_with(bytes: &[u8], unpacked: Option<i64>, dictionary: Option<&[u8]>) -> Option<Vec<u8>> {
    let Some(length) = unpacked else { return Some(bytes.to_vec()) };
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len().saturating_mul(GROWTH_MAX))?;
    match dictionary {
        Some(dictionary) => lz4_flex::block::decompress_with_dict(bytes, length, dictionary).ok(),
        None => lz4_flex::block::decompress(bytes, length).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(body: &[u8]) -> usize {
        let packed = CompressedBody::of(body);
        assert_eq!(unpack(packed.bytes(), packed.unpacked()).as_deref(), Some(body));
        packed.bytes().len()
    }

    #[test]
    fn a_repetitive_body_is_compressed_and_any_other_is_stored_as_it_is() {
        assert!(check(&br#"{"url":"https://api.github.com/users/a"}"#.repeat(100)) < 400);
        let noise: Vec<u8> = (0..100_u8).flat_map(|n| crate::decide::id::Digest::of(&[n]).0).collect();
        assert_eq!(check(&noise), noise.len());
        assert_eq!(check(&[b'a'; PACKED_FROM - 1]), PACKED_FROM - 1);
    }

    #[test]
    fn a_damaged_body_is_none_and_allocates_no_memory() {
        let packed = CompressedBody::of(&[b'a'; 5_000]);
        for length in [-1, 0, 4_999, i64::MAX] {
            assert_eq!(unpack(packed.bytes(), Some(length)), None, "{length}");
        }
        assert_eq!(unpack(b"not packed", Some(100)), None);
    }

    #[test]
    fn a_body_like_its_dictionary_is_a_fraction_and_is_unreadable_with_another() {
        let body = |n: u32| {
            let members: Vec<_> = (0..400).map(|i| format!("\"{}\":\"{}\",", i * 7_919, i * n)).collect();
            members.concat().into_bytes()
        };
        let (one, other) = (BodyDictionary::of("source", &body(1)), BodyDictionary::of("source", &body(900)));
        let arrived = body(3);
        let (plain, packed) = (CompressedBody::of(&arrived), CompressedBody::with(&arrived, &one));
        assert!(packed.bytes().len() < plain.bytes().len() * 3 / 4, "{}", packed.bytes().len());
        assert_eq!((plain.dictionary(), packed.dictionary()), (None, Some(one.id)));
        let unpacked = |with: &BodyDictionary| unpack_with(packed.bytes(), packed.unpacked(), Some(&with.bytes));
        assert_eq!(unpacked(&one).as_deref(), Some(&arrived[..]));
        assert_ne!(unpacked(&other).as_deref(), Some(&arrived[..]));
        assert_ne!(unpack(packed.bytes(), packed.unpacked()).as_deref(), Some(&arrived[..]));
    }

    #[test]
    fn a_dictionary_is_stored_only_as_it_was_and_for_its_own_source() {
        let long = vec![b'a'; DICTIONARY_BYTES_MAX + 1];
        let made = BodyDictionary::of("source", &long);
        assert_eq!(made.bytes.len(), DICTIONARY_BYTES_MAX);
        assert_eq!(BodyDictionary::stored("source", &made.bytes, made.digest).as_ref(), Some(&made));
        assert_eq!(BodyDictionary::stored("another", &made.bytes, made.digest), None);
        assert_eq!(BodyDictionary::stored("source", &made.bytes[1..], made.digest), None);
        assert_eq!(BodyDictionary::stored("source", &long, made.digest), None);
        assert_ne!(BodyDictionary::of("sourc", b"ee").id, BodyDictionary::of("source", b"e").id);
    }

    proptest! {
        #![proptest_config(crate::seed::cases(256))]

        #[test]
        fn every_body_survives_a_round_trip(body in prop::collection::vec(0..4_u8, 0..5_000)) {
            check(&body);
        }

        #[test]
        fn every_body_survives_a_round_trip_with_any_dictionary(
            body in prop::collection::vec(0..4_u8, 0..5_000), other in prop::collection::vec(0..4_u8, 0..5_000),
        ) {
            let dictionary = BodyDictionary::of("source", &other);
            let packed = CompressedBody::with(&body, &dictionary);
            let bytes = packed.dictionary().map(|_| &*dictionary.bytes);
            prop_assert_eq!(unpack_with(packed.bytes(), packed.unpacked(), bytes), Some(body.clone()));
        }
    }
}
