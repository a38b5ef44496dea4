//! Texts with values that each request fills in: `{{user}}`, a column of the data or a captured value, and `{{counter}}`,
//! `{{random}}`, `{{random:LOW..HIGH}}`, `{{now}}` and `{{now_ms}}`.
//!
//! A text is taken apart once, and its names become numbers. Filling it in then copies bytes and looks nothing up, which a
//! template engine would do for every request (decision 0066).

use base::WallTime;

use crate::plan::choices::workload::{Data, OWN_NAMES};
use crate::plan::terms::draws::Draws;

/// The bounds of `{{random}}` without bounds of its own.
const RANDOM: (u64, u64) = (0, 999_999_999);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Plain(Box<str>),
    /// A column of the data, or behind the columns a captured value.
    Value(usize),
    Counter,
    Random(u64, u64),
    Now,
    NowMs,
}

/// A text, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text(Vec<Piece>);

/// The place of a text in a request, which decides about the bytes that a value may bring in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The request target: other bytes than visible ASCII are percent-encoded.
    Target,
    /// A header line: control characters are left out, so that a value cannot begin another line.
    Head,
    /// The content: values go in as they are.
    Content,
}

/// The values of one session.
pub(crate) struct Values<'a> {
    pub data: Option<&'a Data>,
    pub row: usize,
    pub captured: &'a [Vec<u8>],
    pub counter: u64,
    pub draws: &'a mut Draws,
    pub wall: WallTime,
}

impl Values<'_> {
    fn of(&self, slot: usize) -> &[u8] {
        let columns = self.data.map_or(0, Data::columns);
        match self.data.filter(|_| slot < columns) {
            Some(data) => data.cell(self.row, slot).as_bytes(),
            None => self.captured.get(slot - columns).map_or(&[], Vec::as_slice),
        }
    }
}

impl Text {
    /// Takes a text apart; `names` are the columns of the data and then the captured values.
    ///
    /// # Errors
    /// One sentence for a name that nothing defines, or braces that are not closed.
    pub fn parse(source: &str, names: &[String]) -> Result<Text, String> {
        let (mut pieces, mut rest) = (Vec::new(), source);
        while let Some((before, behind)) = rest.split_once("{{") {
            let closed =
                || format!("'{{{{{}' has no closing braces", behind.chars().take(20).collect::<String>());
            let (name, after) = behind.split_once("}}").ok_or_else(closed)?;
            pieces.extend((!before.is_empty()).then(|| Piece::Plain(before.into())));
            pieces.push(piece(name.trim(), names)?);
            rest = after;
        }
        pieces.extend((!rest.is_empty()).then(|| Piece::Plain(rest.into())));
        Ok(Text(pieces))
    }

    /// Appends the text with its values.
    pub fn fill(&self, into: &mut Vec<u8>, values: &mut Values<'_>, place: Place) {
        for piece in &self.0 {
            match piece {
                Piece::Plain(text) => into.extend_from_slice(text.as_bytes()),
                Piece::Value(slot) => push(into, values.of(*slot), place),
                Piece::Counter => push(into, values.counter.to_string().as_bytes(), place),
                Piece::Random(low, high) => {
                    push(into, values.draws.between(*low, *high).to_string().as_bytes(), place);
                }
                Piece::Now => push(into, values.wall.seconds.to_string().as_bytes(), place),
                Piece::NowMs => {
                    push(into, values.wall.seconds.saturating_mul(1000).to_string().as_bytes(), place);
                }
            }
        }
    }
}

fn piece(name: &str, names: &[String]) -> Result<Piece, String> {
    if let Some(slot) = names.iter().position(|known| known == name) {
        return Ok(Piece::Value(slot));
    }
    match name {
        "counter" => return Ok(Piece::Counter),
        "random" => return Ok(Piece::Random(RANDOM.0, RANDOM.1)),
        "now" => return Ok(Piece::Now),
        "now_ms" => return Ok(Piece::NowMs),
        _ => {}
    }
    if let Some(bounds) = name.strip_prefix("random:") {
        let parse = |(low, high): (&str, &str)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?));
        return match bounds.split_once("..").and_then(parse).filter(|(low, high)| low <= high) {
            Some((low, high)) => Ok(Piece::Random(low, high)),
            None => Err(format!("'{{{{{name}}}}}' has no bounds such as random:1..100")),
        };
    }
    let known: Vec<&str> = names.iter().map(String::as_str).chain(OWN_NAMES).collect();
    Err(format!("nothing defines '{{{{{name}}}}}'; known are {}", known.join(", ")))
}

fn push(into: &mut Vec<u8>, value: &[u8], place: Place) {
    match place {
        Place::Content => into.extend_from_slice(value),
        Place::Head => into.extend(value.iter().filter(|byte| !byte.is_ascii_control())),
        Place::Target => {
            for byte in value {
                match byte {
                    b'%' | b'!'..=b'~' => into.push(*byte),
                    _ => into.extend_from_slice(format!("%{byte:02X}").as_bytes()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(source: &str, place: Place) -> String {
        let data: Data = Data::parse("user,city\nann,\"Sao \r\nPaulo\"\n").unwrap();
        let names = ["user", "city", "token"].map(str::to_owned);
        let text = Text::parse(source, &names).unwrap();
        let captured = [b"t0k".to_vec()];
        let (draws, wall) = (&mut Draws::new(7), WallTime { seconds: 5 });
        let mut values = Values { data: Some(&data), row: 0, captured: &captured, counter: 41, draws, wall };
        let mut into = Vec::new();
        text.fill(&mut into, &mut values, place);
        String::from_utf8(into).unwrap()
    }

    #[test]
    fn names_become_values() {
        assert_eq!(filled("/{{user}}/{{ token }}?{{counter}}&{{now}}", Place::Target), "/ann/t0k?41&5");
        let drawn: u64 = filled("{{random:5..9}}", Place::Content).parse().unwrap();
        assert!((5..=9).contains(&drawn));
        assert_eq!(filled("plain", Place::Head), "plain");
    }

    #[test]
    fn values_cannot_begin_a_line() {
        assert_eq!(filled("X: {{city}}", Place::Head), "X: Sao Paulo");
        assert_eq!(filled("/{{city}}", Place::Target), "/Sao%20%0D%0APaulo");
        assert_eq!(filled("{{city}}", Place::Content), "Sao \r\nPaulo");
    }

    #[test]
    fn unknown_names_are_refused() {
        let told = |source: &str| Text::parse(source, &["user".to_owned()]).unwrap_err();
        assert_eq!(
            told("{{usr}}"),
            "nothing defines '{{usr}}'; known are user, counter, random, now, now_ms"
        );
        assert_eq!(told("a {{user"), "'{{user' has no closing braces");
        assert_eq!(told("{{random:9..5}}"), "'{{random:9..5}}' has no bounds such as random:1..100");
    }
}
