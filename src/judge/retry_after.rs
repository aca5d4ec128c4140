//! `Retry-After` in all the forms that servers send.
//!
//! The standard knows whole seconds and an HTTP date. Seen as well: fractions, `retry-after-ms`,
//! durations like `1m30s`, negative numbers, dates of the past, words. What cannot be meant is treated
//! as absent, so that the caller's own backoff applies.

use crate::clock::Timestamp;

/// Milliseconds to wait, at most `cap_ms`; `None` if the headers say nothing that can be meant.
///
/// `retry_after` is the standard header, `retry_after_ms` its variant in milliseconds, which wins.
#[must_use]
pub fn retry_after(
    retry_after: Option<&str>,
    retry_after_ms: Option<&str>,
    now: Timestamp,
    cap_ms: u64,
) -> Option<u64> {
    let in_ms = retry_after_ms.and_then(|text| number(text, 1.0));
    in_ms.or_else(|| retry_after.and_then(|text| read(text.trim(), now))).map(|ms| ms.min(cap_ms))
}

fn read(text: &str, now: Timestamp) -> Option<u64> {
    number(text, 1000.0).or_else(|| duration(text)).or_else(|| Some(http_date(text)?.ms_since(now)))
}

fn number(text: &str, unit_ms: f64) -> Option<u64> {
    let text = text.trim();
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value: f64 = text.parse().ok().filter(|_| plain)?;
    // Saturates: a number too large for the type is merely a long time.
    Some((value * unit_ms).ceil() as u64)
}

fn duration(text: &str) -> Option<u64> {
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_digit());
    let duration = starts.then(|| humantime::parse_duration(text).ok())??;
    Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the three date forms of RFC 9110 §5.6.7 and RFC 3339.
fn http_date(text: &str) -> Option<Timestamp> {
    if text.bytes().next()?.is_ascii_digit() {
        let time = humantime::parse_rfc3339_weak(text).ok()?;
        let ms = time.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis();
        return u64::try_from(ms).ok().map(Timestamp::from_millis);
    }
    let words: Vec<&str> = text.split([' ', '-', ',']).filter(|w| !w.is_empty()).collect();
    let (day, month, year, time) = match words.as_slice() {
        // Sun, 06 Nov 1994 08:49:37 GMT and Sunday, 06-Nov-94 08:49:37 GMT
        [_, day, month, year, time, "GMT" | "UTC"] if text.contains(',') => (*day, *month, *year, *time),
        // Sun Nov  6 08:49:37 1994
        [_, month, day, time, year] => (*day, *month, *year, *time),
        _ => return None,
    };
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|m| *m == month)? as u64 + 1;
    let year = match (year.len(), year.parse::<u64>().ok()?) {
        (2, y) if y < 70 => 2000 + y,
        (2, y) => 1900 + y,
        (4, y) if y >= 1970 => y,
        _ => return None,
    };
    let day: u64 = day.parse().ok().filter(|d| (1..=31).contains(d))?;
    let clock: Vec<u64> = time.split(':').map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let [hour @ 0..=23, minute @ 0..=59, second @ 0..=60] = *clock.as_slice() else { return None };
    let days = days_since_epoch(year, month, day);
    Some(Timestamp::from_millis((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000))
}

/// Days of the proleptic Gregorian calendar since 1970-01-01, for years from 1970 on
/// (H. Hinnant, "chrono-compatible low-level date algorithms").
fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT

    fn wait(text: &str) -> Option<u64> {
        retry_after(Some(text), None, NOW, 600_000)
    }

    #[test]
    fn seconds_fractions_and_durations() {
        assert_eq!(wait("120"), Some(120_000));
        assert_eq!(wait(" 1.5 "), Some(1500));
        assert_eq!(wait("0"), Some(0));
        assert_eq!(wait("1m30s"), Some(90_000));
        assert_eq!(wait("20ms"), Some(20));
        assert_eq!(wait("99999999999999999999999"), Some(600_000));
    }

    #[test]
    fn dates_in_every_form() {
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10_000));
        assert_eq!(wait("Sunday, 06-Nov-94 08:49:47 GMT"), Some(10_000));
        assert_eq!(wait("Sun Nov  6 08:49:47 1994"), Some(10_000));
        assert_eq!(wait("1994-11-06T08:49:47Z"), Some(10_000));
        assert_eq!(wait("Sun, 06 Nov 1994 08:40:00 GMT"), Some(0));
    }

    #[test]
    fn nonsense_is_absent() {
        for text in [
            "",
            "-3",
            "NaN",
            "inf",
            "soon",
            "1e3",
            "Sun, 99 Nov 1994 08:49:47 GMT",
            "Sun, 06 Nov 0094 08:49:47 GMT",
        ] {
            assert_eq!(wait(text), None, "{text}");
        }
        assert_eq!(retry_after(None, None, NOW, 1), None);
    }

    #[test]
    fn milliseconds_win() {
        assert_eq!(retry_after(Some("9"), Some("250"), NOW, 600_000), Some(250));
        assert_eq!(retry_after(Some("9"), Some("x"), NOW, 600_000), Some(9000));
    }
}
