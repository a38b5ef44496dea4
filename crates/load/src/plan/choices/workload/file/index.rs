//! The sessions of a file of lines, by their places in it.
//!
//! The first reading checks every line, and keeps the places of lines and their times. The plan reads the lines again, one at
//! a time: a file may be larger than memory. A file that cannot be read twice, such as a pipe, is copied first.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;

use super::{Position, Session, log};
use crate::plan::choices::workload::recorded_time::spread;

/// The longest line.
const LINE_MAX: u64 = 16 << 20;

/// Lines that have been checked.
#[derive(Debug)]
pub(super) struct Index {
    file: File,
    /// In the order of the times, if there are any.
    places: Vec<Place>,
    /// The time of each session in seconds, from any epoch; empty without times.
    pub times: Vec<f64>,
    pub is_log: bool,
    /// True if the requests need a script, and not a table.
    pub needs_script: bool,
    /// Lines of a log that cannot be made again.
    pub left_out: usize,
}

/// The place of a line without its surrounding space.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    length: u32,
    line: u32,
}

/// Two readings of a file differ, whatever they found.
impl PartialEq for Index {
    fn eq(&self, other: &Index) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Index {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// One sentence, with the line if it is at fault.
    pub fn of(file: File) -> Result<Index, String> {
        let file = readable_again(file).map_err(|cause| format!("cannot be read: {cause}"))?;
        let mut index = Index {
            file,
            places: Vec::new(),
            times: Vec::new(),
            is_log: false,
            needs_script: false,
            left_out: 0,
        };
        let mut timed = Vec::new();
        let mut is_first = true;
        let mut has_times = None;
        for_each_line(&index.file, &mut |place, text| {
            if std::mem::take(&mut is_first) {
                index.is_log = log::is_log(text);
            }
            let Some(session) = parse(index.is_log, place.line, text)? else {
                index.left_out += 1;
                return Ok(());
            };
            if *has_times.get_or_insert(session.at.is_some()) != session.at.is_some() {
                return Err(format!("{}: either every line has \"at\", or none", session.position));
            }
            index.needs_script |= session.needs_script();
            match session.at {
                None => index.places.push(place),
                Some(at) => timed.push((at, place)),
            }
            Ok(())
        })?;
        index.take_timed(timed);
        Ok(index)
    }

    /// Puts lines with times in their order.
    fn take_timed(&mut self, mut timed: Vec<(f64, Place)>) {
        timed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        self.times.extend(timed.iter().map(|(at, _)| at));
        self.places.extend(timed.iter().map(|(_, place)| place));
        if self.is_log {
            spread(&mut self.times);
        }
    }

    /// Returns true without any session.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Reads the sessions again, in order.
    ///
    /// # Errors
    /// The first of `take`, or a line that has changed since the check.
    pub fn each(&self, take: &mut dyn FnMut(Session) -> Result<(), String>) -> Result<(), String> {
        let mut bytes = Vec::new();
        for (number, place) in self.places.iter().enumerate() {
            bytes.resize(place.length as usize, 0);
            let read = self.file.read_exact_at(&mut bytes, place.start);
            let text = read.ok().and_then(|()| std::str::from_utf8(&bytes).ok());
            let session = text.and_then(|text| parse(self.is_log, place.line, text).ok().flatten());
            let mut session =
                session.ok_or_else(|| format!("line {}: it has changed since it was checked", place.line))?;
            session.at = self.times.get(number).copied();
            take(session)?;
        }
        Ok(())
    }
}

/// The session of a line; `None` for a line of a log that cannot be made again.
fn parse(is_log: bool, line: u32, text: &str) -> Result<Option<Session>, String> {
    let session = if is_log {
        log::session(line as usize, text)
    } else {
        super::session(line as usize, text).map(Some)
    };
    session.map_err(|why| format!("{}: {why}", Position::Line(line as usize)))
}

/// Reads lines that are not empty, without the space around them.
fn for_each_line(file: &File, take: &mut dyn FnMut(Place, &str) -> Result<(), String>) -> Result<(), String> {
    let (mut reader, mut bytes, mut start, mut line) = (BufReader::new(file), Vec::new(), 0, 0);
    loop {
        bytes.clear();
        let read = (&mut reader).take(LINE_MAX).read_until(b'\n', &mut bytes);
        let read = read.map_err(|cause| format!("cannot be read: {cause}"))? as u64;
        line += 1;
        if read == 0 {
            return Ok(());
        }
        if read == LINE_MAX {
            return Err(format!("line {line}: it is longer than 16 MiB"));
        }
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| format!("line {line}: it is not UTF-8; a binary body is \"@FILE\""))?;
        let text = text.strip_prefix('\u{feff}').filter(|_| line == 1).unwrap_or(text);
        let trimmed = text.trim();
        let before = bytes.len() - text.trim_start().len();
        if !trimmed.is_empty() {
            take(Place { start: start + before as u64, length: trimmed.len() as u32, line }, trimmed)?;
        }
        start += read;
    }
}

/// A file that can be read at any place: the same one, or a copy without a name.
fn readable_again(mut file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut file, &mut copy)?;
    io::Seek::rewind(&mut copy)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn index(text: &str) -> Result<Index, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        Index::of(file)
    }

    #[test]
    fn lines_are_found_again_where_they_are() {
        let index = index("\u{feff} {\"path\": \"/a\"}\r\n\n  {\"path\": \"/\u{e4}\"}  \n{\"path\": \"/c\"}")
            .unwrap();
        let mut found = Vec::new();
        index
            .each(&mut |session| {
                found.push((
                    session.position.to_string(),
                    session.requests[0].target.text().unwrap().to_owned(),
                ));
                Ok(())
            })
            .unwrap();
        let expected = [("line 1", "/a"), ("line 3", "/\u{e4}"), ("line 4", "/c")];
        assert_eq!(found, expected.map(|(line, path)| (line.to_owned(), path.to_owned())));
    }

    #[test]
    fn lines_of_a_log_are_made_at_their_times() {
        let line = |second: &str, request: &str| {
            format!("::1 - - [10/Oct/2000:13:55:{second} -0700] \"{request}\" 200 5 \"-\" \"curl\"\n")
        };
        let text = [
            line("37", "GET /c HTTP/1.1"),
            line("36", "GET /a HTTP/1.1"),
            line("36", "HEAD /b HTTP/1.0"),
            line("36", "POST /d HTTP/1.1"),
            line("38", "-"),
        ];
        let index = index(&text.concat()).unwrap();
        let mut shown = Vec::new();
        let take = &mut |session: Session| {
            shown.push((
                session.requests[0].target.text().unwrap().to_owned(),
                session.at.unwrap() - index.times[0],
            ));
            Ok(())
        };
        index.each(take).unwrap();
        let expected = [("/a", 0.0), ("/b", 0.5), ("/c", 1.0)].map(|(path, at)| (path.to_owned(), at));
        assert_eq!((shown, index.left_out, index.is_log), (expected.to_vec(), 2, true));
    }

    #[test]
    fn changed_lines_are_refused() {
        let index = index("{\"path\": \"/a\"}\n{\"path\": \"/b\"}").unwrap();
        index.file.set_len(20).unwrap();
        let told = index.each(&mut |_| Ok(())).unwrap_err();
        assert_eq!(told, "line 2: it has changed since it was checked");
    }

    #[test]
    fn endless_lines_are_refused() {
        let long = format!("{{\"path\": \"/{}\"}}", "a".repeat(LINE_MAX as usize));
        assert_eq!(index(&long).unwrap_err(), "line 1: it is longer than 16 MiB");
    }
}
