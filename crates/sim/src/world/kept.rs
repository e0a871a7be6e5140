//! Seeds that failed once, kept in a text file so that they run for ever.
//!
//! One seed a line, then what was wrong. Lines that start with `#` are for people.

use std::fmt::Write as _;

/// A seed that failed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSeed {
    /// The seed.
    pub seed: u64,
    /// What was wrong.
    pub reason: String,
}

/// A line that is none.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the kept seeds must be a number and a reason; correct or remove it")]
pub struct KeptSeedError {
    /// The line, from 1.
    pub line: usize,
}

/// Reads the text of a file of kept seeds.
///
/// # Errors
/// [`KeptSeedError`].
pub fn parse_kept(text: &str) -> Result<Vec<KeptSeed>, KeptSeedError> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(line, text)| {
            let (seed, reason) = text.split_once(' ').ok_or(KeptSeedError { line })?;
            let seed = seed.parse().map_err(|_| KeptSeedError { line })?;
            let reason = reason.trim().to_owned();
            if reason.is_empty() {
                return Err(KeptSeedError { line });
            }
            Ok(KeptSeed { seed, reason })
        })
        .collect()
}

/// The text with one more seed, unless it is there.
///
/// # Errors
/// [`KeptSeedError`]: the text is not a file of kept seeds.
pub fn add_kept(text: &str, seed: u64, reason: &str) -> Result<String, KeptSeedError> {
    let mut text = text.to_owned();
    if parse_kept(&text)?.iter().all(|kept| kept.seed != seed) {
        let words: Vec<&str> = reason.split_whitespace().take(20).collect();
        let reason = if words.is_empty() {
            "unexplained".to_owned()
        } else {
            words.join(" ")
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let _infallible = writeln!(text, "{seed} {reason}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_kept_once() {
        let text = "# Why.\n\n7 lost a put\n";
        let text = add_kept(text, 9, "read\n  twice").expect("readable");
        let text = add_kept(&text, 9, "again").expect("readable");
        assert_eq!(text, "# Why.\n\n7 lost a put\n9 read twice\n");
        let kept = parse_kept(&text).expect("readable");
        assert_eq!(kept.len(), 2);
        assert_eq!((kept[1].seed, kept[1].reason.as_str()), (9, "read twice"));
        assert_eq!(
            add_kept("1 a", 2, "").expect("readable"),
            "1 a\n2 unexplained\n"
        );
        for bad in ["x y", "7", "7 "] {
            assert_eq!(
                parse_kept(&format!("1 a\n{bad}\n")).expect_err("bad").line,
                2
            );
        }
    }
}
