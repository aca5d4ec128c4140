//! `Retry-After` as servers really send it: seconds, a fraction, an HTTP date, `retry-after-ms`,
//! nonsense, or a year.

use crate::clock::Timestamp;

/// Nothing longer is believed, milliseconds.
const CAP_MS: u64 = 3_600_000;

/// The wait that the headers ask for, milliseconds, capped at an hour; `None` where they ask for
/// nothing readable. `retry_after_ms` is the finer word and wins.
#[must_use]
pub fn retry_after_ms(
    retry_after: Option<&[u8]>,
    retry_after_millis: Option<&[u8]>,
    now: Timestamp,
) -> Option<u64> {
    let text = |bytes: Option<&[u8]>| {
        bytes.and_then(|b| std::str::from_utf8(b).ok().map(str::trim).map(str::to_owned))
    };
    let finer = text(retry_after_millis).and_then(|t| number(&t)).map(|ms| cap(ms));
    finer.or_else(|| {
        let words = text(retry_after)?;
        let seconds = words.strip_suffix(['s', 'S']).map_or(&*words, str::trim_end);
        number(seconds)
            .map(|s| cap(s * 1_000.0))
            .or_else(|| http_date(&words).map(|due| due.ms_since(now).min(CAP_MS)))
    })
}

fn number(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| text.parse::<f64>().ok()).flatten().filter(|x| x.is_finite())
}

fn cap(ms: f64) -> u64 {
    ms.ceil().clamp(0.0, CAP_MS as f64) as u64
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that RFC 9110 § 5.6.7 lets servers send.
fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, rest) = text.split_once(", ")?;
    let mut parts = rest.split_ascii_whitespace();
    let day: u64 = parts.next()?.parse().ok().filter(|d| (1..=31).contains(d))?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|m| m.eq_ignore_ascii_case(name))? as u64 + 1;
    let year: u64 = parts.next()?.parse().ok().filter(|y| (1970..=9999).contains(y))?;
    let mut clock = parts.next()?.split(':').map(|p| p.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if hour > 23 || minute > 59 || second > 60 || parts.next()? != "GMT" {
        return None;
    }
    let seconds = ((days_since_epoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(Timestamp::from_millis(seconds * 1_000))
}

/// Days from 1 January 1970, by counting years from March so that a leap day comes last.
fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    let within_year = (153 * month + 2) / 5 + day - 1;
    year * 365 + leap_days + within_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT

    fn after(value: &str) -> Option<u64> {
        retry_after_ms(Some(value.as_bytes()), None, NOW)
    }

    #[test]
    fn every_form_seen_in_the_wild_is_read_and_capped() {
        assert_eq!(after("2"), Some(2_000));
        assert_eq!(after(" 0.35 "), Some(350));
        assert_eq!(after("3s"), Some(3_000));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:40 GMT"), Some(3_000));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:30 GMT"), Some(0), "a date gone by is now");
        assert_eq!(after("Fri, 31 Dec 9999 23:59:59 GMT"), Some(CAP_MS));
        assert_eq!(after("99999999999999999999999999"), Some(CAP_MS));
        for nonsense in
            ["soon", "", "-5", "NaN", "inf", "1e9", "Sun, 99 Nov 1994 08:49:37 GMT", "Sun, 06 Nov"]
        {
            assert_eq!(after(nonsense), None, "{nonsense}");
        }
        assert_eq!(retry_after_ms(Some(&[0xff, 0xfe]), None, NOW), None);
        assert_eq!(retry_after_ms(Some(b"9"), Some(b"250"), NOW), Some(250));
        assert_eq!(retry_after_ms(Some(b"9"), Some(b"x"), NOW), Some(9_000));
    }

    #[test]
    fn leap_years_count() {
        assert_eq!(days_since_epoch(1970, 1, 1), 0);
        assert_eq!(days_since_epoch(2000, 2, 29), 11_016);
        assert_eq!(days_since_epoch(2024, 3, 1), 19_783);
    }
}
