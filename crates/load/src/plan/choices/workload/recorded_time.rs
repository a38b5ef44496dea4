//! Times as logs record them, in seconds since 1970. Only their distances matter to a replay.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The time of an access log's line: `[10/Oct/2000:13:55:36 -0700]`, in whole seconds.
pub(crate) fn logged(line: &str) -> Option<i64> {
    let time = line.split_once('[')?.1.split_once(']')?.0;
    let (date, zone) = time.split_once(' ')?;
    let parts: Vec<&str> = date.split(['/', ':']).collect();
    let [day, month, year, clock @ ..] = &parts[..] else { return None };
    let month = MONTHS.iter().position(|name| name == month)? as i64 + 1;
    seconds([number(year)?, month, number(day)?], clock, zone)
}

/// The time of RFC 3339: `2000-10-10T13:55:36.125-07:00`.
pub(crate) fn timestamp(text: &str) -> Option<f64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(at);
    let zone = if zone.eq_ignore_ascii_case("z") { "+0000".to_owned() } else { zone.replace(':', "") };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    let date: Vec<i64> = date.split('-').map(number).collect::<Option<_>>()?;
    let clock: Vec<&str> = clock.split(':').collect();
    Some(seconds(date.try_into().ok()?, &clock, &zone)? as f64 + fraction)
}

/// Spreads the entries of each second evenly over it. The times ascend.
pub(crate) fn spread(times: &mut [f64]) {
    for second in times.chunk_by_mut(|a, b| a == b) {
        let gap_s = 1.0 / second.len() as f64;
        second.iter_mut().enumerate().for_each(|(index, time)| *time += index as f64 * gap_s);
    }
}

/// The seconds of a date, as year, month and day, of hour, minute and second, and of a zone such as `-0700`.
fn seconds([year, month, day]: [i64; 3], clock: &[&str], zone: &str) -> Option<i64> {
    let [hour, minute, second] = clock else { return None };
    // Days by the formula for a year that begins in March (Hinnant, "chrono-compatible low-level date
    // algorithms"). The constant for the era cancels: only distances matter.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let seconds = ((days * 24 + number(hour)?) * 60 + number(minute)?) * 60 + number(second)?;
    let offset = i64::from(zone.parse::<i16>().ok()?);
    Some(seconds - (offset / 100 * 60 + offset % 100) * 60)
}

fn number(text: &str) -> Option<i64> {
    text.parse::<u16>().ok().map(i64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_tell_the_same_time() {
        let whole = logged("[10/Oct/2000:13:55:36 -0700]").unwrap();
        assert_eq!(timestamp("2000-10-10T20:55:36.125Z").unwrap(), whole as f64 + 0.125);
        assert_eq!(timestamp("2000-10-10T13:55:36-07:00").unwrap(), whole as f64);
        assert_eq!(
            logged("[29/Feb/2000:00:00:00 +0000]").unwrap(),
            logged("[01/Mar/2000:00:00:00 +0000]").unwrap() - 86_400
        );
    }

    #[test]
    fn other_texts_have_no_time() {
        for text in [
            "",
            "2000-10-10",
            "2000-10T13:55:36Z",
            "2000-10-10T13:55Z",
            "2000-10-10T13:55:36",
            "x-y-zT1:2:3Z",
        ] {
            assert_eq!(timestamp(text), None, "{text}");
        }
        assert_eq!(logged("[10/Okt/2000:13:55:36 -0700]"), None);
    }
}
