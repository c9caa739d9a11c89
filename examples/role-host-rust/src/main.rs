//! A role host in Rust: the contract of docs/reference/role-host.md over standard input and output, a message a line.

mod json;

use json::{quoted, Json};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

const TIERS: [&str; 3] = ["workspace", "account", "channel"]; // here and in tools.json: what the host keeps
const LONGEST_LINE: u64 = 4 << 20; // bytes
const MOST_BYTES: usize = 32 * 1024; // of content; a host may take more
const TOOLS: &str = include_str!("tools.json"); // with the schemas of the contract
const SERVER: &str = r#"{"name":"role-host-rust","version":"1.0.0"}"#;

/// Your database goes here: the role of each tier and scope, as JSON.
type Roles = BTreeMap<(String, String), String>;

/// A code of the contract, and a text for people that repeats nothing that was sent.
type Refused = (&'static str, &'static str);
const INVALID: Refused = ("invalid", "the arguments do not fit the schema of the tool");

fn main() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let (mut roles, mut line) = (Roles::new(), Vec::new());
    while input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? > 0 {
        if line.len() as u64 == LONGEST_LINE && !line.ends_with(b"\n") {
            input.skip_until(b'\n')?; // the part that was read gets the error
        }
        if let Some(answer) = answered(&mut roles, &line) {
            writeln!(output, "{answer}")?; // Rust flushes it at the end of each line
        }
        line.clear();
    }
    Ok(())
}

fn answered(roles: &mut Roles, line: &[u8]) -> Option<String> {
    let message = std::str::from_utf8(line).ok().and_then(Json::parse);
    let field = |name| message.as_ref()?.get(name);
    let id = field("id").map(|id| id.written).filter(|id| id.starts_with(|c| "\"-0123456789".contains(c)));
    let result = match (field("method").and_then(|method| method.text.as_deref()), id) {
        (Some(method), Some(_)) => respond(roles, method, field("params").unwrap_or(&Json::default())),
        (Some(_), None) if field("id").is_none() => return None, // a notification
        _ if message.is_none() => Err(failure(-32700, "not JSON")),
        _ => Err(failure(-32600, "not a request")),
    };
    let (outcome, value) = result.map_or_else(|error| ("error", error), |result| ("result", result));
    Some(format!(r#"{{"jsonrpc":"2.0","id":{},"{outcome}":{value}}}"#, id.unwrap_or("null")))
}

fn failure(code: i32, message: &str) -> String {
    format!(r#"{{"code":{code},"message":"{message}"}}"#)
}

/// The result or the error of a request. In revision 2026-07-28 each request names it; before, there is a handshake.
fn respond(roles: &mut Roles, method: &str, params: &Json) -> Result<String, String> {
    let revision = params.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion"));
    if let Some(other) = revision.filter(|named| named.text.as_deref() != Some("2026-07-28")) {
        let data = format!(r#"{{"supported":["2026-07-28"],"requested":{}}}"#, other.written);
        return Err(format!(r#"{{"code":-32022,"message":"unsupported protocol version","data":{data}}}"#));
    }
    let (offers, cache) = (r#""capabilities":{"tools":{}}"#, r#""ttlMs":0,"cacheScope":"private""#);
    let result = match (method, revision.is_some()) {
        ("initialize", false) => format!(r#""protocolVersion":"2025-11-25",{offers},"serverInfo":{SERVER}"#),
        ("ping", false) => return Ok("{}".to_string()),
        ("server/discover", true) => format!(r#""supportedVersions":["2026-07-28"],{offers},{cache}"#),
        ("tools/list", _) => format!(r#""tools":{},{cache}"#, TOOLS.replace('\n', "")),
        ("tools/call", _) => called(roles, params)?,
        _ => return Err(failure(-32601, "unknown method")),
    };
    let meta = format!(r#""resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{SERVER}}}"#);
    Ok(if revision.is_some() { format!("{{{result},{meta}}}") } else { format!("{{{result}}}") })
}

fn called(roles: &mut Roles, params: &Json) -> Result<String, String> {
    let tool = params.get("name").and_then(|name| name.text.as_deref()).unwrap_or("");
    let takes: &[&str] = match tool {
        "role_list" => &["scope_ids"],
        "role_get" | "role_delete" => &["tier", "scope_id"],
        "role_put" => &["tier", "scope_id", "name", "content"],
        _ => return Err(failure(-32602, "unknown tool")),
    };
    let fit = |all: &&BTreeMap<_, _>| all.len() == takes.len() && takes.iter().all(|name| all.contains_key(*name));
    let given = params.get("arguments").and_then(|arguments| arguments.fields.as_ref()).filter(fit);
    // The text for people holds no role: clients log such texts.
    let (text, answer, is_error) = match given.ok_or(INVALID).and_then(|given| run(roles, tool, given)) {
        Ok(answer) => ("done", answer, false),
        Err((code, text)) => (text, format!(r#""code":"{code}""#), true),
    };
    let content = format!(r#""content":[{{"type":"text","text":"{text}"}}],"isError":{is_error}"#);
    Ok(format!(r#"{content},"structuredContent":{{"contract":1,{answer}}}"#))
}

fn run(roles: &mut Roles, tool: &str, given: &BTreeMap<String, Json>) -> Result<String, Refused> {
    if tool == "role_list" {
        let asked = given["scope_ids"].fields.as_ref().ok_or(INVALID)?;
        let keys = asked.iter().map(|(tier, scope_id)| key(tier, scope_id)).collect::<Result<Vec<_>, _>>()?;
        let found: Vec<_> = keys.iter().filter_map(|key| roles.get(key).cloned()).collect();
        return Ok(format!(r#""roles":[{}]"#, found.join(",")));
    }
    let key = key(said(&given["tier"])?, &given["scope_id"])?;
    let role = match tool {
        "role_put" => {
            let (name, content) = (label(&given["name"])?, said(&given["content"])?);
            if content.len() > MOST_BYTES {
                return Err(("too_long", "the content is over 32 KiB"));
            }
            let role = format!(r#"{{"name":{},"content":{},"tier":"{}"}}"#, quoted(name), quoted(content), key.0);
            roles.insert(key, role.clone());
            Some(role)
        }
        "role_delete" => roles.remove(&key),
        _ => roles.get(&key).cloned(),
    };
    role.map(|role| format!(r#""role":{role}"#)).ok_or(("not_found", "no role is set for this tier and scope"))
}

/// A text that is not blank.
fn said<'a>(given: &'a Json) -> Result<&'a str, Refused> {
    let blank = |c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c);
    given.text.as_deref().filter(|text| !text.chars().all(blank)).ok_or(INVALID)
}

/// An id or a name: up to 200 printable characters, not only blanks.
fn label<'a>(given: &'a Json) -> Result<&'a str, Refused> {
    let text = said(given)?;
    // `escape_debug` escapes what cannot be printed, quotes, backslashes and a combining mark in the first place.
    let plain = format!("a{}", text.replace(['\\', '\'', '"'], ""));
    let fits = text.chars().count() <= 200 && plain.escape_debug().eq(plain.chars());
    fits.then_some(text).ok_or(INVALID)
}

fn key(tier: &str, scope_id: &Json) -> Result<(String, String), Refused> {
    let id = label(scope_id)?;
    TIERS.contains(&tier).then(|| (tier.to_string(), id.to_string())).ok_or(INVALID)
}
