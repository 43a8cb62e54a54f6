//! Compression of stored bodies: LZ4, where that makes them clearly smaller. A body is written twice, to the WAL and to
//! the database, and kept for a week; a webhook's JSON shrinks to about a third.

use std::borrow::Cow;

/// Minimum size to compress. A shorter body fits on a page with others anyway.
const PACKED_FROM: usize = 1 << 10;
/// Maximum LZ4 expansion ratio: a cell that claims more is damaged.
const GROWTH_MAX: usize = 255;

/// A body as it is stored.
pub(in crate::store) struct CompressedBody<'b> {
    bytes: Cow<'b, [u8]>,
    unpacked: Option<usize>,
}

impl<'b> CompressedBody<'b> {
    /// Compresses this body if that saves an eighth.
    pub(in crate::store) fn of(body: &'b [u8]) -> Self {
        if body.len() >= PACKED_FROM {
            let packed = lz4_flex::block::compress(body);
            if packed.len() < body.len() - body.len() / 8 {
                return Self { bytes: packed.into(), unpacked: Some(body.len()) };
            }
        }
        Self { bytes: body.into(), unpacked: None }
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
}

/// The original body; `None` if it cannot be decompressed. The digest says whether it is the right one.
pub(in crate::store) fn unpack(bytes: &[u8], unpacked: Option<i64>) -> Option<Vec<u8>> {
    let Some(length) = unpacked else { return Some(bytes.to_vec()) };
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len().saturating_mul(GROWTH_MAX))?;
    lz4_flex::block::decompress(bytes, length).ok()
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

    proptest! {
        #![proptest_config(crate::seed::cases(256))]

        #[test]
        fn every_body_survives_a_round_trip(body in prop::collection::vec(0..4_u8, 0..5_000)) {
            check(&body);
        }
    }
}
