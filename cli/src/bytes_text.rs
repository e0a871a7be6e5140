//! Sizes as people write and read them.

/// Reads a size: a number with `k`, `M`, `G` (powers of 1000), `Ki`, `Mi`, `Gi`, or nothing.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size; write for example 4096, 64Ki or 1Mi");
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_bytes = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit_bytes)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(wrong)
}

/// Writes a size with one decimal of the largest binary unit that it fills.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = [
        (1_u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    for (unit_bytes, name) in units {
        if bytes >= unit_bytes {
            // Tenths, cut: a size is never shown larger than it is.
            let tenths = u128::from(bytes) * 10 / u128::from(unit_bytes);
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("1", 1), ("4Ki", 4096), ("64k", 64_000), ("1Gi", 1 << 30)] {
            assert_eq!(parse_bytes(text), Ok(bytes));
        }
        for wrong in ["", "0", "Ki", "1KiB", "1 Ki", "-1", "99999999999Gi"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            ((1 << 20) - 1, "1023.9 KiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(show_bytes(bytes), text);
        }
    }
}
