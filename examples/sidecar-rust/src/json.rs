//! The part of the crate `serde_json` that the chat uses, so that it builds with nothing but `rustc`.

use std::ops::{Index, IndexMut};
use std::{collections::BTreeMap, fmt, str::FromStr};

const DEEPEST: usize = 128; // the reader recurses

/// A JSON value. A number is kept as it was written.
#[derive(Clone, Default)]
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Value>),
    Object(BTreeMap<String, Value>),
}

/// `json!({"a": 1, "b": [true, (name)]})`: what is more than one word stands in parentheses.
macro_rules! json {
    ({ $($name:literal: $value:tt),* $(,)? }) => {
        Value::Object([$(($name.to_string(), json!($value))),*].into())
    };
    ([ $($value:tt),* $(,)? ]) => { Value::Array(vec![$(json!($value)),*]) };
    ($value:expr) => { Value::from($value) };
}
pub(crate) use json;

impl From<bool> for Value {
    fn from(given: bool) -> Self {
        Value::Bool(given)
    }
}

impl From<u64> for Value {
    fn from(given: u64) -> Self {
        Value::Number(given.to_string())
    }
}

impl From<&str> for Value {
    fn from(given: &str) -> Self {
        Value::String(given.to_string())
    }
}

impl Value {
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&Vec<Value>> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }
}

/// What is not there is null.
impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        match self {
            Value::Object(fields) => fields.get(name).unwrap_or(&Value::Null),
            _ => &Value::Null,
        }
    }
}

impl Index<usize> for Value {
    type Output = Value;

    fn index(&self, place: usize) -> &Value {
        self.as_array().and_then(|items| items.get(place)).unwrap_or(&Value::Null)
    }
}

/// A field that is not there is made, and null becomes an object.
impl IndexMut<&str> for Value {
    fn index_mut(&mut self, name: &str) -> &mut Value {
        if let Value::Null = self {
            *self = json!({});
        }
        match self {
            Value::Object(fields) => fields.entry(name.to_string()).or_default(),
            _ => panic!("not an object"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Value::Null => out.write_str("null"),
            Value::Bool(given) => write!(out, "{given}"),
            Value::Number(written) => out.write_str(written),
            Value::String(text) => quoted(text, out),
            Value::Array(items) => {
                for (place, item) in items.iter().enumerate() {
                    write!(out, "{}{item}", if place == 0 { "[" } else { "," })?;
                }
                out.write_str(if items.is_empty() { "[]" } else { "]" })
            }
            Value::Object(fields) => {
                for (place, (name, value)) in fields.iter().enumerate() {
                    out.write_str(if place == 0 { "{" } else { "," })?;
                    quoted(name, out)?;
                    write!(out, ":{value}")?;
                }
                out.write_str(if fields.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

fn quoted(text: &str, out: &mut fmt::Formatter) -> fmt::Result {
    out.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(out, "\\{c}")?,
            '\0'..='\x1f' => write!(out, "\\u{:04x}", c as u32)?,
            _ => write!(out, "{c}")?,
        }
    }
    out.write_str("\"")
}

impl FromStr for Value {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Value, Self::Err> {
        let mut rest = text;
        value(&mut rest, DEEPEST).filter(|_| rest.is_empty()).ok_or("not JSON")
    }
}

/// Reads a value and the blanks around it. `rest` is what is still to be read.
fn value(rest: &mut &str, depth: usize) -> Option<Value> {
    blanks(rest);
    let found = match rest.chars().next()? {
        '"' => Value::String(string(rest)?),
        '[' => {
            let mut items = Vec::new();
            each(rest, "[", "]", |rest| {
                items.push(value(rest, depth.checked_sub(1)?)?);
                Some(())
            })?;
            Value::Array(items)
        }
        '{' => {
            let mut fields = BTreeMap::new();
            each(rest, "{", "}", |rest| {
                blanks(rest);
                let name = string(rest)?;
                blanks(rest);
                eat(rest, ":")?;
                fields.insert(name, value(rest, depth.checked_sub(1)?)?);
                Some(())
            })?;
            Value::Object(fields)
        }
        _ => word(rest)?,
    };
    blanks(rest);
    Some(found)
}

fn blanks(rest: &mut &str) {
    *rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
}

fn eat(rest: &mut &str, prefix: &str) -> Option<()> {
    *rest = rest.strip_prefix(prefix)?;
    Some(())
}

/// Reads what stands between `open` and `close`, with commas between.
fn each(rest: &mut &str, open: &str, close: &str, mut read: impl FnMut(&mut &str) -> Option<()>) -> Option<()> {
    eat(rest, open)?;
    blanks(rest);
    let mut more = !rest.starts_with(close);
    while more {
        read(rest)?;
        more = eat(rest, ",").is_some();
    }
    eat(rest, close)
}

/// Reads null, true, false or a number.
fn word(rest: &mut &str) -> Option<Value> {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    match word {
        "null" => Some(Value::Null),
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        _ => {
            let starts = word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
            (starts && word.parse::<f64>().is_ok()).then(|| Value::Number(word.to_string()))
        }
    }
}

fn string(rest: &mut &str) -> Option<String> {
    eat(rest, "\"")?;
    let (mut text, mut chars) = (String::new(), rest.chars());
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

fn escape(chars: &mut std::str::Chars) -> Option<char> {
    let c = chars.next()?;
    if c != 'u' {
        return "\"\\/\x08\x0c\n\r\t".chars().nth("\"\\/bfnrt".find(c)?);
    }
    let hex = |chars: &mut std::str::Chars| {
        (0..4).try_fold(0, |code, _| Some(code * 16 + chars.next()?.to_digit(16)? as u16))
    };
    let mut units = vec![hex(chars)?];
    if (0xD800..0xDC00).contains(&units[0]) && chars.next()? == '\\' && chars.next()? == 'u' {
        units.push(hex(chars)?);
    }
    char::decode_utf16(units).next()?.ok()
}
