//! Reads one sample line of the text format, byte by byte.

use super::Sample;

/// The rest of a line.
pub(super) struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(rest: &'a str) -> Self {
        Self { rest }
    }

    /// The whole line as a sample. We print no time stamps, so none is accepted.
    pub(super) fn sample(mut self) -> Result<Sample, String> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        if !is_metric_name(name) {
            return Err(format!("`{name}` is not a name"));
        }
        let mut labels = Vec::new();
        if self.eat('{') {
            loop {
                labels.push(self.label()?);
                if self.eat('}') {
                    break;
                }
                if !self.eat(',') {
                    return Err("labels are not separated by commas".to_owned());
                }
            }
        }
        if !self.eat(' ') {
            return Err("no space before the value".to_owned());
        }
        Ok(Sample {
            name: name.to_owned(),
            labels,
            value: number(self.rest)?,
        })
    }

    fn label(&mut self) -> Result<(String, String), String> {
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("`{name}` is not the name of a label"));
        }
        if !(self.eat('=') && self.eat('"')) {
            return Err(format!("label {name} has no quoted value"));
        }
        let end = closing_quote(self.rest).ok_or("a label value has no end")?;
        let value = unescape(&self.rest[..end], true)?;
        self.rest = &self.rest[end + 1..];
        Ok((name.to_owned(), value))
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn eat(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }
}

/// Where the first quote stands that no backslash escapes.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes.then_some(at)
    })
}

/// Undoes the three escapes of the format and refuses any other; quotes only in label values.
pub(super) fn unescape(text: &str, quotes: bool) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('\\') => out.push('\\'),
            Some('n') => out.push('\n'),
            Some('"') if quotes => out.push('"'),
            other => return Err(format!("`\\{}` is not an escape", other.unwrap_or(' '))),
        }
    }
    Ok(out)
}

/// A value or a bound of a bucket.
pub(super) fn number(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        _ if text
            .bytes()
            .all(|b| matches!(b, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E')) =>
        {
            text.parse()
                .map_err(|_| format!("`{text}` is not a number"))
        }
        _ => Err(format!("`{text}` is not a number")),
    }
}

pub(super) fn is_metric_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}
