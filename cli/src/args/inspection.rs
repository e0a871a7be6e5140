//! What may be typed of `inspect`.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use clap::ValueHint;

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    /// State folder of a master, the folder `oplog` in it, or that of a snapshot in `snapshots`.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// List these entries of the log, the first number included, as in 10..20.
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range, conflicts_with = "object")]
    pub(crate) entries: Option<Range<u64>>,
    /// Show an object as the log has it.
    // A name of its own: other commands have positional keys.
    #[arg(id = "object", long = "key", value_name = "TENANT/KEY")]
    pub(crate) key: Option<OsString>,
}

/// Reads a range of indexes.
fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("'{text}' is not a range; write for example 10..20");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| wrong());
    let range = number(from)?..number(to)?;
    if range.is_empty() {
        return Err(format!(
            "'{text}' is empty; the second number is behind the last entry"
        ));
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        assert_eq!(parse_range("10..20"), Ok(10..20));
        for wrong in [
            "", "5", "5..", "..5", "5..5", "6..5", "a..b", "1...2", "-1..2",
        ] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
