//! A strict reader of the text format of Prometheus, for `larder status` and for tests.
//!
//! It refuses what scrapers refuse and a little more: a family told twice, a sample outside its
//! family, a series told twice, a wrong escape, a histogram whose buckets do not add up.

use std::collections::BTreeSet;

mod lexer;
#[cfg(test)]
mod tests;

use lexer::{Cursor, is_metric_name};

/// One metric with its series.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// The name, without the suffixes of a histogram's samples.
    pub name: String,
    /// The help text, unescaped.
    pub help: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Its samples in the order of the page.
    pub samples: Vec<Sample>,
}

/// One line with a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The name of the family, with `_bucket`, `_sum` or `_count` for a histogram.
    pub name: String,
    /// Names and unescaped values of its labels, in the order of the page.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
}

impl Sample {
    /// The value of one label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(label, _)| label == name)
            .map(|(_, value)| value.as_str())
    }
}

/// What is wrong with a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the metrics: {what}")]
pub struct ExpositionError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

/// Reads a page.
///
/// # Errors
/// The first line that breaks the format.
pub fn parse(page: &str) -> Result<Vec<Family>, ExpositionError> {
    let mut reader = Reader::default();
    for (index, line) in page.split_inclusive('\n').enumerate() {
        let at = |what: String| ExpositionError {
            line: index + 1,
            what,
        };
        let text = line
            .strip_suffix('\n')
            .ok_or_else(|| at("the last line is cut".to_owned()))?;
        reader.line(text).map_err(at)?;
    }
    let lines = page.lines().count();
    reader
        .end_family()
        .map_err(|what| ExpositionError { line: lines, what })?;
    Ok(reader.families)
}

/// The value of the one sample with this name and at least these labels.
#[must_use]
pub fn value(families: &[Family], name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let mut found = families
        .iter()
        .flat_map(|family| &family.samples)
        .filter(|sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(label, text)| sample.label(label) == Some(text))
        });
    match (found.next(), found.next()) {
        (Some(sample), None) => Some(sample.value),
        _ => None,
    }
}

#[derive(Default)]
struct Reader {
    families: Vec<Family>,
    names: BTreeSet<String>,
    series: BTreeSet<String>,
}

impl Reader {
    fn line(&mut self, text: &str) -> Result<(), String> {
        if let Some(rest) = text.strip_prefix("# HELP ") {
            return self.help(rest);
        }
        if let Some(rest) = text.strip_prefix("# TYPE ") {
            return self.kind(rest);
        }
        if text.is_empty() || text.starts_with('#') {
            return Err("neither HELP, TYPE nor a sample".to_owned());
        }
        self.sample(text)
    }

    fn help(&mut self, rest: &str) -> Result<(), String> {
        self.end_family()?;
        let (name, help) = rest.split_once(' ').ok_or("HELP without a text")?;
        if !is_metric_name(name) {
            return Err(format!("`{name}` is not a name"));
        }
        if !self.names.insert(name.to_owned()) {
            return Err(format!("a second HELP for {name}"));
        }
        self.families.push(Family {
            name: name.to_owned(),
            help: lexer::unescape(help, false)?,
            kind: String::new(),
            samples: Vec::new(),
        });
        Ok(())
    }

    fn kind(&mut self, rest: &str) -> Result<(), String> {
        let (name, kind) = rest.split_once(' ').ok_or("TYPE without a kind")?;
        let family = self
            .families
            .last_mut()
            .filter(|family| family.name == name);
        let family = family.ok_or_else(|| format!("TYPE of {name} does not follow its HELP"))?;
        if !family.kind.is_empty() {
            return Err(format!("a second TYPE for {name}"));
        }
        if !["counter", "gauge", "histogram"].contains(&kind) {
            return Err(format!("`{kind}` is not a kind that we use"));
        }
        kind.clone_into(&mut family.kind);
        Ok(())
    }

    fn sample(&mut self, text: &str) -> Result<(), String> {
        let sample = Cursor::new(text).sample()?;
        let family = self.families.last_mut().ok_or("a sample before any HELP")?;
        let suffix = sample.name.strip_prefix(&family.name);
        let fits = match (family.kind.as_str(), suffix) {
            ("counter" | "gauge", Some("")) => true,
            ("histogram", Some("_sum" | "_count")) => sample.label("le").is_none(),
            ("histogram", Some("_bucket")) => sample.label("le").is_some(),
            _ => false,
        };
        if !fits {
            return Err(format!(
                "{} does not belong to {}",
                sample.name, family.name
            ));
        }
        if sample.value.is_nan() || sample.value < 0.0 {
            return Err(format!("{} is {}", sample.name, sample.value));
        }
        let mut labels = sample.labels.clone();
        labels.sort();
        if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("{} has a label twice", sample.name));
        }
        if !self.series.insert(format!("{} {labels:?}", sample.name)) {
            return Err(format!(
                "{} appears twice with the same labels",
                sample.name
            ));
        }
        family.samples.push(sample);
        Ok(())
    }

    /// Checks the family that is complete now.
    fn end_family(&mut self) -> Result<(), String> {
        let Some(family) = self.families.last() else {
            return Ok(());
        };
        if family.kind.is_empty() {
            return Err(format!("{} has no TYPE", family.name));
        }
        if family.samples.is_empty() {
            return Err(format!("{} has no sample", family.name));
        }
        if family.kind == "histogram" {
            check_histogram(family)
        } else {
            Ok(())
        }
    }
}

/// Samples of one series of a histogram stand together: buckets up to `+Inf`, sum, count.
fn check_histogram(family: &Family) -> Result<(), String> {
    let (mut bound, mut count) = (f64::NEG_INFINITY, 0.0);
    for sample in &family.samples {
        let name = &sample.name;
        if let Some(le) = sample.label("le") {
            let next = lexer::number(le)?;
            if next <= bound || sample.value < count {
                return Err(format!("the buckets of {name} do not rise"));
            }
            (bound, count) = (next, sample.value);
        } else if name.ends_with("_count") {
            if bound.is_finite() || sample.value.total_cmp(&count).is_ne() {
                return Err(format!("{name} is not its last bucket"));
            }
            (bound, count) = (f64::NEG_INFINITY, 0.0);
        }
    }
    if bound.is_finite() || count > 0.0 {
        return Err(format!("{} has no count", family.name));
    }
    Ok(())
}
