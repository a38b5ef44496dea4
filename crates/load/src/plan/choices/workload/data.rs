//! A CSV file of values, one row for each session: names in the first line, quotes as in RFC 4180.

use std::ops::Range;

/// The names that every text knows, beside those of the columns.
pub(crate) const OWN_NAMES: [&str; 4] = ["counter", "random", "now", "now_ms"];

/// The rows. A session takes one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Data {
    names: Vec<String>,
    text: String,
    /// The places of all cells in `text`, row by row.
    cells: Vec<Range<usize>>,
}

impl Data {
    /// Reads a file's text.
    ///
    /// # Errors
    /// One sentence with the line.
    pub fn parse(source: &str) -> Result<Data, String> {
        let mut data = Data::default();
        let mut rest = source.strip_prefix('\u{feff}').unwrap_or(source);
        let mut line = 1;
        while !rest.is_empty() {
            let first = data.cells.len();
            let before = rest;
            rest = data.record(rest).map_err(|why| format!("line {line}: {why}"))?;
            let count = data.cells.len() - first;
            let is_blank = count == 1 && data.cells[first].is_empty();
            if is_blank {
                data.cells.pop();
            } else if data.names.is_empty() {
                let names = data.cells.drain(..).map(|cell| data.text[cell].trim().to_owned());
                data.names = names.collect();
                check_names(&data.names)?;
            } else if count != data.names.len() {
                let expected = data.names.len();
                return Err(format!(
                    "line {line}: it has {count} values, and the first line has {expected} names"
                ));
            }
            line += before[..before.len() - rest.len()].matches('\n').count();
        }
        if data.cells.is_empty() {
            return Err(
                "it has no rows; expected a line of names, and a line of values for each session".to_owned()
            );
        }
        Ok(data)
    }

    /// Reads one record and returns the rest.
    fn record<'a>(&mut self, mut rest: &'a str) -> Result<&'a str, String> {
        loop {
            let start = self.text.len();
            if let Some(quoted) = rest.strip_prefix('"') {
                rest = self.quoted(quoted)?;
            } else {
                let end = rest.find([',', '\n']).unwrap_or(rest.len());
                self.text.push_str(rest[..end].trim_end_matches('\r'));
                rest = &rest[end..];
            }
            self.cells.push(start..self.text.len());
            if let Some(more) = rest.strip_prefix(',') {
                rest = more;
                continue;
            }
            let end = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n'));
            return match end {
                Some(more) => Ok(more),
                None if rest.trim_end_matches('\r').is_empty() => Ok(""),
                None => Err("something stands behind a closing quote".to_owned()),
            };
        }
    }

    /// Reads to the closing quote.
    fn quoted<'a>(&mut self, mut rest: &'a str) -> Result<&'a str, String> {
        loop {
            let end = rest.find('"').ok_or("a quote is not closed")?;
            self.text.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('"') {
                Some(more) => {
                    self.text.push('"');
                    rest = more;
                }
                None => return Ok(rest),
            }
        }
    }

    /// The names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of columns.
    pub fn columns(&self) -> usize {
        self.names.len()
    }

    /// The number of rows, at least one.
    pub fn rows(&self) -> usize {
        self.cells.len() / self.names.len()
    }

    /// A cell; rows count from 0.
    pub fn cell(&self, row: usize, column: usize) -> &str {
        &self.text[self.cells[row * self.names.len() + column].clone()]
    }
}

fn check_names(names: &[String]) -> Result<(), String> {
    for (number, name) in names.iter().enumerate() {
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if !is_name {
            return Err(format!("line 1: '{name}' is not a name of letters, digits, '_', '-' and '.'"));
        }
        if names[..number].contains(name) || OWN_NAMES.contains(&name.as_str()) {
            return Err(format!("line 1: the name '{name}' is taken"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_cells_keep_commas_and_lines() {
        let data = Data::parse("user,note\r\nann,\"a, \"\"b\"\"\nc\"\r\n\r\nbob,\r\n").unwrap();
        assert_eq!((data.names(), data.rows()), (&["user".to_owned(), "note".to_owned()][..], 2));
        assert_eq!([data.cell(0, 1), data.cell(1, 0), data.cell(1, 1)], ["a, \"b\"\nc", "bob", ""]);
    }

    #[test]
    fn mistakes_name_the_line() {
        for (text, told) in [
            ("a,b\n1,2\n3\n", "line 3: it has 1 values, and the first line has 2 names"),
            ("a\n\"1\n2\n", "line 2: a quote is not closed"),
            ("a\n\"1\nx\"\n\"1\"2\n", "line 4: something stands behind a closing quote"),
            ("a,a\n1,2\n", "line 1: the name 'a' is taken"),
            ("a b\n1\n", "line 1: 'a b' is not a name of letters, digits, '_', '-' and '.'"),
            ("a\n", "it has no rows; expected a line of names, and a line of values for each session"),
        ] {
            assert_eq!(Data::parse(text).unwrap_err(), told, "{text}");
        }
    }
}
