//! Whether a public key of Ed25519 is a point: whether there is an x for its y on the curve -x² + y² = 1 + d x² y², modulo
//! the prime 2²⁵⁵ - 19. The library that verifies signatures takes any 32 bytes for a key.
//!
//! Keys are public, so nothing here needs to take the same time for each.

/// A number modulo the prime, in words from the least to the greatest. It may be any below 2²⁵⁶.
type Element = [u64; 4];

const ONE: Element = [1, 0, 0, 0];
/// The prime.
const PRIME: Element = [0xffff_ffff_ffff_ffed, u64::MAX, u64::MAX, 0x7fff_ffff_ffff_ffff];
/// -1 modulo the prime.
const MINUS_ONE: Element = [0xffff_ffff_ffff_ffec, u64::MAX, u64::MAX, 0x7fff_ffff_ffff_ffff];
/// The d of the curve: -121665 / 121666.
const D: Element = [0x75eb_4dca_1359_78a3, 0x0070_0a4d_4141_d8ab, 0x8cc7_4079_7779_e898, 0x5203_6cee_2b6f_fe73];
/// 2²⁵⁶ modulo the prime.
const ABOVE: u64 = 38;

/// The low and the high word of a number.
#[expect(clippy::cast_possible_truncation, reason = "the words are what is wanted")]
fn words(number: u128) -> (u64, u64) {
    (number as u64, (number >> 64) as u64)
}

/// The sum of four words and this multiple of 2²⁵⁶.
fn fold(mut low: Element, mut high: u64) -> Element {
    while high > 0 {
        let mut carry = u128::from(high) * u128::from(ABOVE);
        for word in &mut low {
            let (sum, over) = words(carry + u128::from(*word));
            (*word, carry) = (sum, u128::from(over));
        }
        high = words(carry).0;
    }
    low
}

fn add(a: &Element, b: &Element) -> Element {
    let (mut sum, mut carry) = ([0; 4], 0);
    for ((word, a), b) in sum.iter_mut().zip(a).zip(b) {
        (*word, carry) = words(u128::from(*a) + u128::from(*b) + u128::from(carry));
    }
    fold(sum, carry)
}

fn multiply(a: &Element, b: &Element) -> Element {
    let mut product = [0_u64; 8];
    for (i, a) in a.iter().enumerate() {
        let mut carry = 0;
        for (j, b) in b.iter().enumerate() {
            let sum = u128::from(*a) * u128::from(*b) + u128::from(product[i + j]) + u128::from(carry);
            (product[i + j], carry) = words(sum);
        }
        product[i + 4] = carry;
    }
    let (low, high) = product.split_at(4);
    let (mut sum, mut carry) = ([0; 4], 0);
    for ((word, low), high) in sum.iter_mut().zip(low).zip(high) {
        (*word, carry) = words(u128::from(*high) * u128::from(ABOVE) + u128::from(*low) + u128::from(carry));
    }
    fold(sum, carry)
}

/// Whether these are the same number modulo the prime; `b` is below it.
fn equal(a: &Element, b: &Element) -> bool {
    // a is b, or more by the prime or twice the prime.
    let more = |b: &Element| {
        let (mut sum, mut carry) = ([0; 4], 0);
        for ((word, b), p) in sum.iter_mut().zip(b).zip(&PRIME) {
            (*word, carry) = words(u128::from(*b) + u128::from(*p) + u128::from(carry));
        }
        (carry == 0).then_some(sum)
    };
    let once = more(b);
    a == b || once.as_ref() == Some(a) || once.and_then(|once| more(&once)).as_ref() == Some(a)
}

/// Whether this is the square of a number: its power of (p - 1) / 2 = 2²⁵⁴ - 10 is one, or it is zero.
fn is_square(number: &Element) -> bool {
    let mut power = ONE;
    for bit in (0..254).rev() {
        power = multiply(&power, &power);
        // All bits of 2²⁵⁴ - 10 are set but these two.
        if bit != 3 && bit != 0 {
            power = multiply(&power, number);
        }
    }
    equal(&power, &ONE) || equal(&power, &[0; 4])
}

/// Whether these bytes are a point: y in little endian, and above it the sign of x.
pub(super) fn exists(key: &[u8; 32]) -> bool {
    let mut y = [0; 4];
    for (word, bytes) in y.iter_mut().zip(key.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    y[3] &= u64::MAX >> 1; // the sign of x
    let square = multiply(&y, &y);
    // x² = (y² - 1) / (d y² + 1), whose divisor is never zero; it is a square if the product of both is one.
    let (above, below) = (add(&square, &MINUS_ONE), add(&multiply(&D, &square), &ONE));
    is_square(&multiply(&above, &below))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

    /// The numbers below 20 that are the y of a point.
    const POINTS: &[u8] = &[0, 1, 3, 4, 5, 6, 9, 10, 14, 15, 16, 18, 19];

    /// The key whose y is this small number.
    fn small(y: u8) -> [u8; 32] {
        let mut key = [0; 32];
        key[0] = y;
        key
    }

    #[test]
    fn every_public_key_is_a_point() {
        for seed in 0..=255 {
            let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a pair");
            let mut key = <[u8; 32]>::try_from(pair.public_key().as_ref()).expect("32 bytes");
            assert!(exists(&key), "{}", hex::encode(key));
            key[31] ^= 0x80;
            assert!(exists(&key), "the point with the other x: {}", hex::encode(key));
        }
    }

    #[test]
    fn bytes_without_a_point_are_told_from_others() {
        // Computed with Python's integers.
        let points: Vec<_> = (0..20).filter(|y| exists(&small(*y))).collect();
        assert_eq!(points, POINTS);
        let mut largest = [0xff; 32];
        largest[31] = 0x7f; // 2²⁵⁵ - 1 is 18 modulo the prime
        assert_eq!(exists(&largest), POINTS.contains(&18));
    }
}
