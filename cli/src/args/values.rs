//! How the values of options are read.

use std::time::Duration;

use larder_client::Pin;

/// Sections of a configuration by name.
pub(crate) type Sections = serde_json::Map<String, serde_json::Value>;

/// Reads sections of a configuration.
pub(super) fn parse_sections(text: &str) -> Result<Sections, serde_json::Error> {
    serde_json::from_str(text)
}

/// Reads a time with its unit.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a time; write for example 500ms, 5s or 2m");
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit_ms) {
        // A day is more than any call takes, and less than timers can do.
        Some(ms @ 1..=86_400_000) => Ok(Duration::from_millis(ms)),
        _ => Err(format!("'{text}' is out of range; give 1ms to 1440m")),
    }
}

/// Reads a pin.
pub(super) fn parse_pin(text: &str) -> Result<Pin, String> {
    match text.split_once('=') {
        None if text == "hard" => Ok(Pin::Hard),
        None if text == "none" => Ok(Pin::None),
        // The pool says for how long.
        None if text == "soft" => Ok(Pin::Soft { ttl_ms: 0 }),
        Some(("soft", time)) => {
            let ttl_ms = parse_duration(time)?.as_millis();
            let ttl_ms = u64::try_from(ttl_ms).map_err(|error| error.to_string())?;
            Ok(Pin::Soft { ttl_ms })
        }
        _ => Err(format!(
            "'{text}' is not a pin; write hard, soft, soft=10m or none"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit_and_a_sane_size() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in [
            "",
            "5",
            "s",
            "5h",
            "-1s",
            "0s",
            "99999999999999999999s",
            "1441m",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pins_are_read() {
        assert_eq!(parse_pin("hard"), Ok(Pin::Hard));
        assert_eq!(parse_pin("soft"), Ok(Pin::Soft { ttl_ms: 0 }));
        assert_eq!(parse_pin("soft=2m"), Ok(Pin::Soft { ttl_ms: 120_000 }));
        for wrong in ["", "hard=1s", "soft=", "soft=5", "firm"] {
            assert!(parse_pin(wrong).is_err(), "{wrong}");
        }
    }
}
