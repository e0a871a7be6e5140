//! Makes the secrets of a pool: its root key, and a token for everybody who may speak.

use larder_types::Principal;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use super::plan::TokenPlan;
use crate::error::CliError;
use crate::folder::RunFolder;

/// Writes the root key, the tokens, and the file by which the master knows them.
pub(super) fn write(folder: &RunFolder, tokens: &[TokenPlan]) -> Result<(), CliError> {
    let random = SystemRandom::new();
    folder.write("keys/root.key", secret(&random)?.as_bytes())?;
    let mut identities = Vec::with_capacity(tokens.len());
    for token in tokens {
        let text = secret(&random)?;
        folder.write(&token.file, format!("{text}\n").as_bytes())?;
        identities.push(identity(&token.principal, &text));
    }
    folder.write_json("config/identities.json", &identities)?;
    Ok(())
}

fn identity(principal: &Principal, token: &str) -> Value {
    json!({ "principal": principal, "sha256": hex(digest(&SHA256, token.as_bytes()).as_ref()) })
}

/// 64 digits that nobody can guess.
fn secret(random: &SystemRandom) -> Result<String, CliError> {
    let mut bytes = [0; 32];
    random.fill(&mut bytes).map_err(|_| CliError::System {
        action: "get random bytes from the kernel",
        source: std::io::ErrorKind::Other.into(),
    })?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use larder_types::TenantId;

    use super::*;

    #[test]
    fn the_identities_name_the_hash_of_the_token() {
        let tenant = Principal::Tenant(TenantId::new("a").expect("short"));
        let value = identity(&tenant, "abc");
        // The first test vector of SHA-256.
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            value,
            json!({ "principal": { "Tenant": "a" }, "sha256": hash })
        );
        assert_eq!(identity(&Principal::Admin, "abc")["principal"], "Admin");
    }

    #[test]
    fn secrets_are_64_digits_and_never_the_same() {
        let random = SystemRandom::new();
        let (a, b) = (
            secret(&random).expect("random"),
            secret(&random).expect("random"),
        );
        assert_ne!(a, b);
        assert!(a.len() == 64 && a.bytes().all(|b| b.is_ascii_hexdigit()));
    }
}
