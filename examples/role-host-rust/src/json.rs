//! A small strict reader of JSON, here so that the host builds with nothing but `rustc`.

use std::{collections::BTreeMap, str::Chars};

const DEEPEST: usize = 64; // the reader recurses, and what was sent must not say how deep
const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// A value: as it was written, and what it holds where it is a text or an object.
#[derive(Default)]
pub struct Json<'a> {
    pub written: &'a str,
    pub text: Option<String>,
    pub fields: Option<BTreeMap<String, Json<'a>>>,
}

impl<'a> Json<'a> {
    /// None where it is not JSON, is too deep or has half of a surrogate pair.
    pub fn parse(mut text: &'a str) -> Option<Json<'a>> {
        value(&mut text, DEEPEST).filter(|_| text.is_empty())
    }

    pub fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.fields.as_ref()?.get(name)
    }
}

/// Writes a text as JSON.
pub fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        '\0'..='\x1f' => format!("\\u{:04x}", c as u32),
        _ => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Reads a value and the blanks around it, at most `depth` levels deep. `rest` is what is still to be read.
fn value<'a>(rest: &mut &'a str, depth: usize) -> Option<Json<'a>> {
    *rest = rest.trim_start_matches(BLANK);
    let (start, mut json) = (*rest, Json::default());
    match start.chars().next()? {
        '"' => json.text = Some(string(rest)?),
        open @ ('[' | '{') => {
            let (close, mut fields) = (if open == '[' { "]" } else { "}" }, BTreeMap::new());
            *rest = rest[1..].trim_start_matches(BLANK);
            let mut more = !rest.starts_with(close);
            while more {
                let item = value(rest, depth.checked_sub(1)?)?;
                if open == '{' {
                    eat(rest, ":")?;
                    fields.insert(item.text?, value(rest, depth - 1)?);
                }
                more = eat(rest, ",").is_some();
            }
            eat(rest, close)?;
            json.fields = (open == '{').then_some(fields);
        }
        _ => word(rest)?,
    }
    json.written = &start[..start.len() - rest.len()];
    *rest = rest.trim_start_matches(BLANK);
    Some(json)
}

fn eat(rest: &mut &str, prefix: &str) -> Option<()> {
    *rest = rest.strip_prefix(prefix)?;
    Some(())
}

/// Reads null, true, false or a number.
fn word(rest: &mut &str) -> Option<()> {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    let digits = word.strip_prefix('-').unwrap_or(word);
    let digit_first = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let shaped = digits.split('.').all(digit_first) && !digits.strip_prefix('0').is_some_and(digit_first);
    (shaped && digits.parse::<f64>().is_ok() || ["null", "true", "false"].contains(&word)).then_some(())
}

fn string(rest: &mut &str) -> Option<String> {
    let (mut text, mut chars) = (String::new(), rest[1..].chars());
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => text.push(escape(&mut chars)?),
            '\0'..='\x1f' => return None,
            c => text.push(c),
        }
    }
    *rest = chars.as_str();
    Some(text)
}

fn escape(chars: &mut Chars) -> Option<char> {
    let c = chars.next()?;
    if c != 'u' {
        return "\"\\/\x08\x0c\n\r\t".chars().nth("\"\\/bfnrt".find(c)?);
    }
    let hex = |chars: &mut Chars| (0..4).try_fold(0, |code, _| Some(code * 16 + chars.next()?.to_digit(16)? as u16));
    let mut units = vec![hex(chars)?];
    if (0xD800..0xDC00).contains(&units[0]) && chars.next()? == '\\' && chars.next()? == 'u' {
        units.push(hex(chars)?);
    }
    char::decode_utf16(units).next()?.ok()
}
