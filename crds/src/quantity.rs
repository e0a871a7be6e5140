//! Sizes as users write them: `512Mi`, `10Gi`, `1T`.
//!
//! Kubernetes' own `Quantity` becomes int-or-string in a schema, on which the CEL function
//! `quantity()` fails for integers, and it allows fractions and milli-units, which are no byte
//! counts. So this is a string with a pattern. Rules compare quantities with `compareTo` and
//! `asApproximateFloat` only: the API server's `asInteger` refuses large binary sizes, such as
//! 100Ti, that it keeps as decimals.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The pattern in the schema.
pub(crate) const PATTERN: &str = "^[0-9]+(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$";
/// Longest text, in characters. Bounds the cost of the rules that read a quantity.
pub(crate) const MAX_CHARS: usize = 20;
/// The largest size that the schema allows, 4 PiB: far above any node and far below what a
/// signed 64-bit number or Kubernetes' quantities (2^63 - 1) hold, so that sums stay in range.
const MAX_RULE: &str = "quantity(self).compareTo(quantity('4Pi')) <= 0";
const MAX_MESSAGE: &str = "must be at most 4Pi";

/// Suffixes and their factors, longest first.
const SUFFIXES: [(&str, u64); 10] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
];

/// Why a text is not a size in bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not digits and an optional suffix.
    #[error(
        "'{text}' is not a size: write digits and one of \
         Ki, Mi, Gi, Ti, Pi, k, M, G, T, P, as in 512Mi"
    )]
    Syntax {
        /// What was written.
        text: String,
    },
    /// The size does not fit 64 bits.
    #[error("'{text}' is too large: a size must be below 16384Pi")]
    Overflow {
        /// What was written.
        text: String,
    },
}

/// A size in bytes, kept as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(String);

impl Quantity {
    /// Takes the text unchecked, as the API server hands it out; [`Quantity::bytes`] checks.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The size in bytes.
    ///
    /// # Errors
    /// [`QuantityError`] if the text is no size or does not fit 64 bits.
    pub fn bytes(&self) -> Result<u64, QuantityError> {
        let (digits, factor) = SUFFIXES
            .iter()
            .find_map(|(suffix, factor)| Some((self.0.strip_suffix(suffix)?, *factor)))
            .unwrap_or((&self.0, 1));
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !plain || self.0.len() > MAX_CHARS {
            return Err(QuantityError::Syntax {
                text: self.0.clone(),
            });
        }
        digits
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(factor))
            .ok_or_else(|| QuantityError::Overflow {
                text: self.0.clone(),
            })
    }

    /// The shortest exact text for `size_bytes`, in binary units.
    #[must_use]
    pub fn from_bytes(size_bytes: u64) -> Self {
        let (suffix, factor) = SUFFIXES[..5]
            .iter()
            .rev()
            .find(|(_, factor)| size_bytes >= *factor && size_bytes.is_multiple_of(*factor))
            .copied()
            .unwrap_or(("", 1));
        Self(format!("{}{suffix}", size_bytes / factor))
    }
}

/// About `size_bytes` for people: three digits at least, rounded down, in binary units as `1.5Gi`.
/// Kubernetes reads it as a quantity; a [`Quantity`] of ours has no fractions.
#[must_use]
pub fn rounded(size_bytes: u64) -> String {
    let unit = SUFFIXES[..5]
        .iter()
        .rev()
        .find(|(_, factor)| size_bytes >= *factor);
    let Some((suffix, factor)) = unit else {
        return size_bytes.to_string();
    };
    let (whole, rest) = (size_bytes / factor, size_bytes % factor);
    let decimals: u32 = match whole {
        0..=9 => 2,
        10..=99 => 1,
        _ => 0,
    };
    // The factor is at most 2^50, so this stays below 2^57.
    let part = rest * 10_u64.pow(decimals) / factor;
    let digits = format!("{whole}.{part:0width$}", width = decimals as usize);
    format!(
        "{}{suffix}",
        digits.trim_end_matches('0').trim_end_matches('.')
    )
}

impl FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let quantity = Self::new(text);
        quantity.bytes()?;
        Ok(quantity)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": PATTERN,
            "maxLength": MAX_CHARS,
            "x-kubernetes-validations": [{ "rule": MAX_RULE, "message": MAX_MESSAGE }],
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Result<u64, QuantityError> {
        Quantity::new(text).bytes()
    }

    #[test]
    fn reads_every_suffix() {
        let cases = [
            ("0", 0),
            ("7", 7),
            ("007Ki", 7 << 10),
            ("64Mi", 64 << 20),
            ("3Gi", 3 << 30),
            ("100Ti", 100 << 40),
            ("4Pi", 4 << 50),
            ("2k", 2_000),
            ("2M", 2_000_000),
            ("2G", 2_000_000_000),
            ("2T", 2_000_000_000_000),
            ("2P", 2_000_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in [
            "", "Mi", "-1", "+1", "1.5Gi", "1 Gi", "1gi", "1K", "100m", "1e3", "1GiB", "0x10", "١",
        ] {
            assert_eq!(
                bytes(text),
                Err(QuantityError::Syntax { text: text.into() }),
                "{text}"
            );
        }
        let long = "0".repeat(MAX_CHARS + 1);
        assert_eq!(
            bytes(&long),
            Err(QuantityError::Syntax { text: long.clone() })
        );
    }

    #[test]
    fn refuses_what_does_not_fit() {
        for text in [
            "18446744073709551616",
            "16384Pi",
            "99999999999999999Ti",
            "18447P",
        ] {
            assert_eq!(
                bytes(text),
                Err(QuantityError::Overflow { text: text.into() }),
                "{text}"
            );
        }
        assert_eq!(bytes("16383Pi"), Ok(16_383 << 50));
    }

    #[test]
    fn people_get_three_digits() {
        for (size_bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1Ki"),
            (512 << 20, "512Mi"),
            ((3 << 30) / 2, "1.5Gi"),
            ((1 << 30) + (1 << 20), "1Gi"),
            ((10 << 30) + (52 << 20), "10Gi"),
            ((10 << 30) + (900 << 20), "10.8Gi"),
            ((100 << 30) - 1, "99.9Gi"),
            ((1 << 40) - 1, "1023Gi"),
            (u64::MAX, "16383Pi"),
        ] {
            assert_eq!(rounded(size_bytes), text);
        }
    }

    proptest! {
        #[test]
        fn any_size_survives_its_text(size_bytes: u64) {
            let quantity = Quantity::from_bytes(size_bytes);
            prop_assert_eq!(quantity.bytes(), Ok(size_bytes));
            prop_assert!(quantity.as_str().len() <= MAX_CHARS);
        }

        #[test]
        fn round_sizes_are_short(number in 1_u64..1024, shift in 0_u32..6) {
            let text = Quantity::from_bytes(number << (shift * 10)).to_string();
            prop_assert!(text.len() <= 6, "{}", text);
        }

        #[test]
        fn the_pattern_and_the_reader_agree(text in "[0-9KMGTPikm. -]{0,22}") {
            let matches = regex::Regex::new(PATTERN).unwrap().is_match(&text);
            let read = bytes(&text);
            let is_size = !matches!(read, Err(QuantityError::Syntax { .. }));
            prop_assert_eq!(matches && text.len() <= MAX_CHARS, is_size);
        }
    }
}
