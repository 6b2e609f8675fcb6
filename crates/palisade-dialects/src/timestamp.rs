//! Kubernetes timestamps (RFC 3339) in seconds.

use jiff::Timestamp;

/// Seconds since 1970-01-01T00:00:00Z; 0 for earlier times. `None` if the text is not RFC 3339.
pub(crate) fn parse_rfc3339(text: &str) -> Option<u64> {
    let time: Timestamp = text.parse().ok().filter(|_| is_rfc3339(text))?;
    Some(u64::try_from(time.as_second()).unwrap_or(0))
}

/// Whether a time has the form of RFC 3339. `jiff` also reads other forms of ISO 8601.
fn is_rfc3339(text: &str) -> bool {
    let fits = |(form, byte): (u8, u8)| match form {
        b'0' => byte.is_ascii_digit(),
        _ => byte.eq_ignore_ascii_case(&form),
    };
    let (Some(time), Some(rest)) = (text.get(..19), text.get(19..)) else {
        return false;
    };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    let has_form = |form: &str, text: &str| {
        form.len() == text.len() && form.bytes().zip(text.bytes()).all(fits)
    };
    has_form("0000-00-00T00:00:00", time)
        && ["Z", "+00:00", "-00:00"]
            .iter()
            .any(|form| has_form(form, zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-02T00:00:01Z", Some(86_401)),
            ("2000-03-01T00:00:00Z", Some(951_868_800)),
            ("2026-09-01T12:30:15Z", Some(1_788_265_815)),
            ("2026-09-01T12:30:15.123456Z", Some(1_788_265_815)),
            ("2026-09-01T14:30:15+02:00", Some(1_788_265_815)),
            ("2026-09-01T07:00:15-05:30", Some(1_788_265_815)),
            ("0000-01-01T00:00:00Z", Some(0)),
            ("2026-02-29T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-09-01 12:30:15Z", None),
            ("2026-09-01t12:30:15z", Some(1_788_265_815)),
            ("2026-09-01T12:30:15,5Z", None),
            ("20260901T123015Z", None),
            ("2026-09-01T12:30Z", None),
            ("2026-09-01T12:30:15+02", None),
            ("2026-09-01T12:30:15+0200", None),
            ("2026-09-01T12:30:15Z[UTC]", None),
            ("+002026-09-01T12:30:15Z", None),
            ("2026-09-01T12:30:15", None),
            ("2026-09-01T12:30:15.Z", None),
            ("2026-09-01T24:30:15Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(parse_rfc3339(text), expected, "{text}");
        }
    }
}
