//! What two ends agree on in the hello; pure, the same on every listener.

use crate::hello::{Hello, Refused, RefusedReason};
use crate::limit::{MAX_CREDENTIAL_BYTES, MAX_NAME_BYTES, PROTOCOL_MAX, PROTOCOL_MIN};

/// Checks the shape of a hello and picks the newest protocol that both ends speak. The credential
/// is not judged here.
///
/// # Errors
/// [`Refused`] with the reason `Protocol`, `Credential` or `Frame`, to be sent to the peer.
pub fn negotiate(hello: &Hello) -> Result<u16, Refused> {
    let refuse = |reason, detail| Err(Refused::new(reason, detail));
    if hello.credential.len() > MAX_CREDENTIAL_BYTES {
        let detail = format!("a credential has at most {MAX_CREDENTIAL_BYTES} bytes");
        return refuse(RefusedReason::Credential, detail);
    }
    if hello.name.len() > MAX_NAME_BYTES {
        let detail = format!("a name in a hello has at most {MAX_NAME_BYTES} bytes");
        return refuse(RefusedReason::Frame, detail);
    }
    let protocol = hello.protocol_max.min(PROTOCOL_MAX);
    if hello.protocol_min > hello.protocol_max || protocol < hello.protocol_min.max(PROTOCOL_MIN) {
        let detail = format!(
            "this end speaks protocols {PROTOCOL_MIN} to {PROTOCOL_MAX}, the other {} to {}; \
             upgrade the older one",
            hello.protocol_min, hello.protocol_max
        );
        return refuse(RefusedReason::Protocol, detail);
    }
    Ok(protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::Purpose;
    use larder_types::Incarnation;

    fn hello(protocol_min: u16, protocol_max: u16) -> Hello {
        Hello {
            protocol_min,
            protocol_max,
            features: 0,
            credential: b"secret".to_vec(),
            purpose: Purpose::Client,
            name: "test".to_owned(),
            incarnation: Incarnation(1),
        }
    }

    #[test]
    fn the_newest_common_protocol_is_taken() {
        assert_eq!(negotiate(&hello(0, u16::MAX)), Ok(PROTOCOL_MAX));
        assert_eq!(
            negotiate(&hello(PROTOCOL_MIN, PROTOCOL_MIN)),
            Ok(PROTOCOL_MIN)
        );
    }

    #[test]
    fn no_common_protocol_is_refused_with_both_ranges() {
        for (min, max) in [(PROTOCOL_MAX + 1, u16::MAX), (0, PROTOCOL_MIN - 1), (1, 0)] {
            let refused = negotiate(&hello(min, max)).expect_err("nothing in common");
            assert_eq!(refused.reason, RefusedReason::Protocol);
            assert!(refused.detail.contains(&max.to_string()), "{refused}");
        }
    }

    #[test]
    fn long_fields_are_refused() {
        let mut long = hello(1, 1);
        long.credential = vec![b'x'; MAX_CREDENTIAL_BYTES + 1];
        assert_eq!(
            negotiate(&long).map_err(|r| r.reason),
            Err(RefusedReason::Credential)
        );
        let mut long = hello(1, 1);
        long.name = "x".repeat(MAX_NAME_BYTES + 1);
        assert_eq!(
            negotiate(&long).map_err(|r| r.reason),
            Err(RefusedReason::Frame)
        );
    }
}
