//! Kubernetes timestamps (RFC 3339) in seconds.

/// Seconds since 1970-01-01T00:00:00Z; 0 for earlier times. `None` if the text is not RFC 3339. A leap second
/// counts as the second after it.
pub(crate) fn parse_rfc3339(text: &str) -> Option<u64> {
    let text = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.iter().try_fold(0i64, |sum, digit| {
            digit
                .is_ascii_digit()
                .then(|| sum * 10 + i64::from(digit - b'0'))
        })
    };
    let is = |at: usize, wanted: u8| text.get(at) == Some(&wanted);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let separated = is(4, b'-') && is(7, b'-') && (is(10, b'T') || is(10, b't'));
    if !separated || !is(13, b':') || !is(16, b':') {
        return None;
    }
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    if is(at, b'.') {
        let digits = text
            .get(at + 1..)?
            .iter()
            .take_while(|b| b.is_ascii_digit());
        let count = digits.count();
        if count == 0 {
            return None;
        }
        at += 1 + count;
    }
    let offset = match text.get(at..)? {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let offset = hours * 3600 + minutes * 60;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    let days = days_since_1970(year, month, day);
    let time = days * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Some(u64::try_from(time).unwrap_or(0))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Days before each year of the Gregorian calendar, counted from year 0.
    let before = |year: i64| match year {
        0 => 0,
        _ => 365 * year + (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400 + 1,
    };
    let in_year: i64 = (1..month).map(|month| days_in_month(year, month)).sum();
    before(year) - before(1970) + in_year + day - 1
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
