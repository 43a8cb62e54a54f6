//! Compares decimal numbers by their digits, never through floating point: 9007199254740993 is more than
//! 9007199254740992, and 1e3 is 1000.

use std::cmp::Ordering;

/// Compares two numbers written as JSON writes them.
pub(super) fn compare(left: &str, right: &str) -> Ordering {
    let (left, right) = (Decimal::of(left), Decimal::of(right));
    match (left.sign, right.sign) {
        (1, 1) => left.size(&right),
        (-1, -1) => right.size(&left),
        (left, right) => left.cmp(&right),
    }
}

/// A decimal number 0.d₁d₂d₃… × 10^scale, where d₁ is not 0 and the last digit is not 0.
struct Decimal<'n> {
    /// -1, 0 or 1.
    sign: i8,
    /// The digits, possibly with the point among them.
    digits: &'n str,
    scale: i64,
}

impl<'n> Decimal<'n> {
    fn of(text: &'n str) -> Self {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (sign, mantissa) = mantissa.strip_prefix('-').map_or((1, mantissa), |rest| (-1, rest));
        let digits = mantissa.trim_matches(['0', '.']);
        if digits.is_empty() {
            return Self { sign: 0, digits, scale: 0 };
        }
        let point = mantissa.find('.').unwrap_or(mantissa.len());
        let zeros = mantissa.len() - mantissa.trim_start_matches(['0', '.']).len();
        // After the point each zero lowers the scale, and the point itself is counted among the zeros.
        let scale = if zeros <= point { length(point) - length(zeros) } else { length(point) + 1 - length(zeros) };
        Self { sign, digits, scale: scale.saturating_add(parse_exponent(exponent)) }
    }

    fn size(&self, other: &Self) -> Ordering {
        let digits = |number: &Self| number.digits.bytes().filter(|&byte| byte != b'.').collect::<Vec<_>>();
        self.scale.cmp(&other.scale).then_with(|| digits(self).cmp(&digits(other)))
    }
}

fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The exponent, clamped to ±10^18: beyond that all exponents compare as equal.
fn parse_exponent(text: &str) -> i64 {
    const FAR: i64 = 1_000_000_000_000_000_000;
    let far = if text.starts_with('-') { -FAR } else { FAR };
    text.parse().unwrap_or(far).clamp(-FAR, FAR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(left: &str, expected: Ordering, right: &str) {
        assert_eq!(compare(left, right), expected, "{left} and {right}");
        assert_eq!(compare(right, left), expected.reverse(), "{right} and {left}");
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        for (left, right) in [
            ("1", "1.0"),
            ("1e3", "1000"),
            ("1E+3", "1000.00"),
            ("0.001", "1e-3"),
            ("0.00120", "12e-4"),
            ("0", "-0.0e7"),
            ("0e99", "0"),
            ("-5", "-50e-1"),
            ("100", "1e2"),
            ("1e99999999999999999999", "1e99999999999999999999"),
        ] {
            check(left, Ordering::Equal, right);
        }
    }

    #[test]
    fn what_floating_point_confuses_stays_apart() {
        for (less, more) in [
            ("9007199254740992", "9007199254740993"),
            ("0.1", "0.10000000000000000001"),
            ("-9007199254740993", "-9007199254740992"),
            ("1e400", "1e401"),
            ("1e-401", "1e-400"),
            ("99999999999999999999", "100000000000000000000"),
            ("-1", "0"),
            ("-1", "1"),
            ("0", "1e-999999999999999999999"),
            ("2", "10"),
            ("0.9", "1"),
            ("12", "12.5"),
            ("0.02", "0.1"),
            ("1e-999999999999999999999", "1e999999999999999999999"),
        ] {
            check(less, Ordering::Less, more);
        }
    }

    proptest! {
        #![proptest_config(crate::seed::cases(256))]

        #[test]
        fn whole_numbers_compare_as_they_count(left: i64, right: i64, shift in 0_usize..4) {
            let (a, b) = (left.to_string(), right.to_string());
            prop_assert_eq!(compare(&a, &b), left.cmp(&right));
            let shifted = format!("{b}{}e-{shift}", "0".repeat(shift));
            prop_assert_eq!(compare(&a, &shifted), left.cmp(&right));
        }
    }
}
