//! What a token says of itself. Nobody vouches for it, so it only ever shortens the way to a no:
//! what is no token of a known account is refused without asking anybody.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::account_of_user;

/// What a token says of itself.
pub(super) struct Claims {
    account: String,
    audiences: Audiences,
    /// Seconds since 1970 when it ends.
    expires_s: Option<u64>,
    token: String,
}

#[derive(Deserialize)]
struct Payload {
    sub: String,
    #[serde(default)]
    aud: Audiences,
    #[serde(default)]
    exp: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

impl Default for Audiences {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Claims {
    /// `None` if it is no JSON Web Token of a ServiceAccount.
    pub(super) fn read(credential: &[u8]) -> Option<Self> {
        let token = std::str::from_utf8(credential.trim_ascii()).ok()?;
        let mut parts = token.split('.');
        let (head, body, signature) = (parts.next()?, parts.next()?, parts.next()?);
        let decode = |part: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
            (!bytes.is_empty()).then_some(bytes)
        };
        if parts.next().is_some() || decode(head).is_none() || decode(signature).is_none() {
            return None;
        }
        let payload: Payload = serde_json::from_slice(&decode(body)?).ok()?;
        Some(Self {
            account: account_of_user(&payload.sub)?,
            audiences: payload.aud,
            expires_s: payload.exp,
            token: token.to_owned(),
        })
    }

    /// `namespace/name` of the account that it says it belongs to.
    pub(super) fn account(&self) -> &str {
        &self.account
    }

    /// Whether it says that it is for this audience.
    pub(super) fn is_for(&self, audience: &str) -> bool {
        match &self.audiences {
            Audiences::One(one) => one == audience,
            Audiences::Many(many) => many.iter().any(|one| one == audience),
        }
    }

    /// How long it says that it is still valid; `None` without an end. `now` is since 1970.
    pub(super) fn valid_for(&self, now: Duration) -> Option<Duration> {
        let end = Duration::from_secs(self.expires_s?);
        Some(end.saturating_sub(now))
    }

    /// The account and the token itself.
    pub(super) fn into_parts(self) -> (String, String) {
        (self.account, self.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(payload: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part("{}"), part(payload), part("signature"))
    }

    #[test]
    fn a_service_accounts_token_is_read() {
        let text = token(
            r#"{"aud":["x","larder"],"exp":1000,"iss":"k","sub":"system:serviceaccount:apps:a"}"#,
        );
        let claims = Claims::read(format!("{text}\n").as_bytes()).expect("a token");
        assert_eq!(claims.account(), "apps/a");
        assert!(claims.is_for("larder") && !claims.is_for("lard"));
        let second = Duration::from_secs;
        assert_eq!(claims.valid_for(second(990)), Some(second(10)));
        assert_eq!(claims.valid_for(second(2000)), Some(second(0)));
        assert_eq!(claims.into_parts(), ("apps/a".to_owned(), text));
        let one = token(r#"{"aud":"larder","sub":"system:serviceaccount:apps:a"}"#);
        let one = Claims::read(one.as_bytes()).expect("a token");
        assert!(one.is_for("larder") && one.valid_for(second(0)).is_none());
        let none = token(r#"{"sub":"system:serviceaccount:apps:a"}"#);
        assert!(!Claims::read(none.as_bytes()).expect("a token").is_for(""));
    }

    #[test]
    fn what_is_no_such_token_is_not() {
        let good = r#"{"aud":"larder","sub":"system:serviceaccount:apps:a"}"#;
        let cut = token(good);
        let cut = cut.rsplit_once('.').expect("three parts").0;
        let cases = [
            String::new(),
            "secret-a".to_owned(),
            "..".to_owned(),
            cut.to_owned(),
            format!("{cut}."),
            format!("{}.x", token(good)),
            format!("{cut}.\"}},"),
            token("{"),
            token(r#"{"sub":7}"#),
            token(r#"{"sub":"admin"}"#),
            token(r#"{"sub":"system:serviceaccount:apps"}"#),
            token(r#"{"sub":"system:serviceaccount::a"}"#),
            token(r#"{"sub":"system:serviceaccount:apps:a:b"}"#),
            token(r#"{"sub":"system:serviceaccount:apps:a/b"}"#),
            token(&"[".repeat(4000)),
        ];
        for case in &cases {
            assert!(Claims::read(case.as_bytes()).is_none(), "{case}");
        }
        assert!(Claims::read(&[0xff; 40]).is_none());
    }
}
