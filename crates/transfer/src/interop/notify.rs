//! Short messages between engines.

use serde::{Deserialize, Serialize};

/// A short message from one engine to another. Bounded by the frame that carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notify {
    /// Who says it, or what it is about; free text.
    pub name: String,
    /// What is said; free text.
    #[serde(rename = "notify_msg")]
    pub message: String,
}

impl Notify {
    /// The JSON of a frame.
    ///
    /// # Errors
    /// None in practice: text can always be written.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = serde_json::to_vec(self)?;
        json.push(b'\n');
        Ok(json)
    }

    /// Reads the JSON of a frame; what is missing is empty.
    ///
    /// # Errors
    /// Where the text is no JSON object, or a field of it no text.
    pub fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

#[cfg(test)]
mod tests {
    use super::Notify;

    #[test]
    fn the_json_is_that_of_stock_engines() {
        let notify = Notify {
            name: "a".into(),
            message: "b \"c\"".into(),
        };
        let json = notify.encode().expect("text");
        assert_eq!(json, b"{\"name\":\"a\",\"notify_msg\":\"b \\\"c\\\"\"}\n");
        assert_eq!(Notify::decode(&json).expect("ours"), notify);
        let sparse = Notify::decode(b"{\"more\":1}").expect("an object");
        assert_eq!(sparse, Notify::default());
        for bad in [&b"{\"name\":1}"[..], b"[1]", b"null", b"{", b""] {
            assert!(Notify::decode(bad).is_err(), "{bad:?}");
        }
    }
}
