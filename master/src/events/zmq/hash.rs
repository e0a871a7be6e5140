//! Which block a key is about: the hash that engines write into their keys. Pure.

/// The fewest hexadecimal digits that a part of a key must have to be taken for a hash: ranks and
/// layers are shorter.
const DIGITS_MIN: usize = 8;
/// The most: a hash of 256 bits.
const DIGITS_MAX: usize = 64;
/// The digits of 64 bits.
const DIGITS_TAKEN: usize = 16;

/// The hash of the block that a key holds, by the first rule that fits:
///
/// 1. The whole key is a decimal number below 2^64: that number.
/// 2. The last of its parts, cut at `@`, `_` and `/`, that has 8 to 64 hexadecimal digits, with or
///    without `0x`: its last 16 digits, as vLLM makes 64 bits of a longer hash.
///
/// `None` if there is no such part.
pub(crate) fn block_hash(key: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(key).ok()?;
    if text.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(number) = text.parse()
    {
        return Some(number);
    }
    text.rsplit(['@', '_', '/']).find_map(|part| {
        let digits = part.strip_prefix("0x").unwrap_or(part);
        let is_hash = (DIGITS_MIN..=DIGITS_MAX).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let taken = digits.get(digits.len().saturating_sub(DIGITS_TAKEN)..)?;
        is_hash
            .then(|| u64::from_str_radix(taken, 16).ok())
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_engines_hold_their_block() {
        let long = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
        let cases: [(&str, Option<u64>); 13] = [
            // The whole key.
            ("12345", Some(12_345)),
            ("18446744073709551615", Some(u64::MAX)),
            ("0xfeedfacecafebeef", Some(0xfeed_face_cafe_beef)),
            ("feedfacecafebeef", Some(0xfeed_face_cafe_beef)),
            (long, Some(0x8899_aabb_ccdd_eeff)),
            // vLLM with a store connector: the hash stands last.
            (
                "m/Qwen3-8B@tp_rank:3@pcp0@dcp0@pp_rank:0@group:0@feedfacecafebeef",
                Some(0xfeed_face_cafe_beef),
            ),
            // LMCache: the hash stands before the type of the numbers.
            (
                "vllm@deadbeef@8@3@feedfacecafebeef@bfloat16",
                Some(0xfeed_face_cafe_beef),
            ),
            // SGLang: rank and half stand behind the hash.
            (&format!("{long}_3_k"), Some(0x8899_aabb_ccdd_eeff)),
            // None.
            ("model/layer_3/k", None),
            ("99999999999999999999999", Some(0x9999_9999_9999_9999)),
            ("feedfac", None),
            ("\u{e4}feedfacecafebeef", None),
            ("", None),
        ];
        for (key, expected) in cases {
            assert_eq!(block_hash(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(block_hash(b"\xff@feedfacecafebeef"), None);
        assert_eq!(block_hash("f".repeat(65).as_bytes()), None);
    }
}
