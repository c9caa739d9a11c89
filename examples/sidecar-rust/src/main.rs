//! A chat over `worldagent serve --stdio`, as described in docs/reference/sidecar.md. The arguments are the command of the sidecar.
//!
//! A typed line is a message, or the answer to a question. `/cancel` ends the running turn.

mod json; // in your program this is the crate serde_json, with the same names

use json::{json, Value};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

const ACCOUNT: &str = "ana";
const THREAD: &str = "rust";

enum Input {
    Typed(Option<String>), // by the person; None: the end of the input
    Received(Value),       // from the sidecar
    Ended,                 // the sidecar did
}

struct Chat {
    command: Vec<String>,
    sidecar: Child,
    sender: Sender<Input>,
    inputs: Receiver<Input>,
    typed: VecDeque<Option<String>>, // while the turn ran
    last_id: u64,                    // of a request
    in_vain: u32,                    // how often in a row the sidecar ended without a message
    turn_id: String,                 // empty until its first event
    seq: u64,                        // of the last event
    shown: String,                   // the answer so far
}

fn main() -> io::Result<()> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    if command.is_empty() {
        return Err(io::Error::other("name the command of the sidecar, such as: worldagent serve --stdio"));
    }
    let (sender, inputs) = channel();
    let sidecar = started(&command, &sender)?;
    let keyboard = sender.clone();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let _ = keyboard.send(Input::Typed(Some(line)));
        }
        keyboard.send(Input::Typed(None))
    });
    let (typed, last_id, in_vain, turn_id, seq, shown) = Default::default();
    let mut chat = Chat { command, sidecar, sender, inputs, typed, last_id, in_vain, turn_id, seq, shown };
    while let Some(text) = chat.line()? {
        chat.turn(&text)?;
    }
    drop(chat.sidecar.stdin.take()); // the sidecar ends when its input does
    chat.sidecar.wait().map(drop)
}

/// Starts a sidecar, and a thread that reads its messages, one a line.
fn started(command: &[String], sender: &Sender<Input>) -> io::Result<Child> {
    let mut sidecar = Command::new(&command[0]);
    let mut sidecar = sidecar.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (sender, output) = (sender.clone(), BufReader::new(sidecar.stdout.take().expect("it is piped")));
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = sender.send(Input::Received(line.parse().unwrap_or_default()));
        }
        sender.send(Input::Ended)
    });
    Ok(sidecar)
}

impl Chat {
    /// Runs a turn from a message to its end, even if the sidecar is killed in between.
    fn turn(&mut self, text: &str) -> io::Result<()> {
        (self.turn_id, self.seq, self.shown) = Default::default();
        // With the same key, a repeated call is the same turn.
        let key = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos().to_string();
        let mut tool = "converse".to_string();
        let mut arguments = json!({"thread": THREAD, "text": text, "key": (key.as_str()), "detach": true});
        loop {
            let Some(answer) = self.call(&tool, arguments.clone())? else {
                if !self.turn_id.is_empty() {
                    (tool, arguments) = ("events".to_string(), json!({"turn_id": (self.turn_id.as_str())}));
                }
                continue; // no event came yet: make the same call again
            };
            let next = &answer["next"][0];
            let Some(name) = next["tool"].as_str() else {
                end(&answer);
                return Ok(());
            };
            (tool, arguments) = (name.to_string(), next["arguments"].clone());
            if answer["turn"]["status"].as_str() == Some("paused") {
                match self.ask(&answer["turn"]["pauses"])? {
                    Some(answers) => arguments["answers"] = answers,
                    None => return Ok(()), // the turn waits, and can be answered another day
                }
            }
        }
    }

    /// Calls a tool and shows events as they come. None: the sidecar ended before it answered, and was started again.
    fn call(&mut self, tool: &str, mut arguments: Value) -> io::Result<Option<Value>> {
        arguments["after"] = json!(self.seq);
        let id = self.say(tool, arguments);
        loop {
            match self.inputs.recv().expect("we have a sender") {
                Input::Typed(Some(line)) if line == "/cancel" => drop(self.say("cancel", json!({"thread": THREAD}))),
                Input::Typed(line) => self.typed.push_back(line),
                Input::Ended => return self.start_again().map(|()| None),
                Input::Received(message) => {
                    self.in_vain = 0;
                    if let Some(event) = message["params"]["message"].as_str() {
                        self.show(&event.parse().unwrap_or_default())?;
                    } else if message["id"].as_u64() == Some(id) {
                        return Ok(Some(message["result"]["structuredContent"].clone()));
                    }
                }
            }
        }
    }

    /// Sends the call of a tool and returns its id.
    fn say(&mut self, tool: &str, mut arguments: Value) -> u64 {
        self.last_id += 1;
        arguments["account"] = json!(ACCOUNT);
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": (self.last_id),
        });
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let request = json!({"jsonrpc": "2.0", "id": (self.last_id), "method": "tools/call", "params": params});
        let mut input = self.sidecar.stdin.as_ref().expect("it is piped");
        let _ = input.write_all(format!("{request}\n").as_bytes()); // if this fails, `Ended` follows
        self.last_id
    }

    fn start_again(&mut self) -> io::Result<()> {
        self.sidecar.wait()?;
        self.in_vain += 1;
        if self.in_vain > 3 {
            return Err(io::Error::other("the sidecar ends as soon as it is started"));
        }
        println!("\n[the sidecar is gone; starting another]");
        self.sidecar = started(&self.command, &self.sender)?;
        Ok(())
    }

    /// Shows an event. New types can appear, so unknown ones are skipped.
    fn show(&mut self, event: &Value) -> io::Result<()> {
        self.seq = event["seq"].as_u64().unwrap_or(self.seq);
        self.turn_id = event["turn_id"].as_str().unwrap_or_default().to_string();
        let text = event["text"].as_str().unwrap_or_default();
        let ended = event["status"].as_str() == Some("done") && text != self.shown; // this text is final
        match event["type"].as_str() {
            Some("text_delta") => print!("{text}"),
            Some(kind) if kind == "text_replaced" || kind == "turn_ended" && ended => {
                print!("{}{text}", if self.shown.is_empty() { "" } else { "\n" });
                self.shown.clear();
            }
            // The text before calls is not the answer.
            Some("step_ended") if matches!(event["interim"], Value::Bool(true)) && !self.shown.is_empty() => {
                println!();
                self.shown.clear();
            }
            _ => return Ok(()),
        }
        self.shown.push_str(text);
        io::stdout().flush()
    }

    /// Asks the person for the answers that the turn waits for. None: the input ended.
    fn ask(&mut self, pauses: &Value) -> io::Result<Option<Value>> {
        let mut answers = json!({});
        for pause in pauses.as_array().into_iter().flatten() {
            let (function, arguments, hash) = (&pause["function"], &pause["arguments"], &pause["hash"]);
            match pause["kind"].as_str() {
                Some("approval") => println!("\n[may it call {function} with {arguments}? y or n]"),
                Some("question") => println!("\n[{}]", pause["question"]),
                _ => println!("\n[{function} with {arguments} was cut off: did it happen? y or n]"),
            }
            let Some(line) = self.line()? else { return Ok(None) };
            let yes = matches!(line.trim().to_lowercase().as_str(), "y" | "yes");
            answers[pause["id"].as_str().unwrap_or_default()] = match (pause["kind"].as_str(), yes) {
                (Some("question"), _) => json!({"answer": (line.as_str())}),
                (Some("approval"), true) => json!({"approve": {"hash": (hash.clone())}}),
                (Some("approval"), false) => json!({"reject": {}}),
                (_, true) => json!({"happened": {}}),
                (_, false) => json!({"not_happened": {}}),
            };
        }
        Ok(Some(answers))
    }

    /// The next typed line. None: the input ended.
    fn line(&mut self) -> io::Result<Option<String>> {
        while self.typed.is_empty() {
            match self.inputs.recv().expect("we have a sender") {
                Input::Typed(line) => self.typed.push_back(line),
                Input::Received(_) => (),
                Input::Ended => self.start_again()?,
            }
        }
        let line = self.typed.pop_front().flatten();
        if line.is_none() {
            self.typed.push_back(None); // later reads find the end, too
        }
        Ok(line)
    }
}

/// Shows how a turn ended, or why it was refused.
fn end(answer: &Value) {
    let (problem, remedy) = (&answer["error"]["problem"], &answer["error"]["remedy"]);
    match answer["turn"]["status"].as_str() {
        Some("done") => println!(),
        Some(status) => println!("\n[{status}]"),
        None => println!("\n[{problem}; {remedy}]"),
    }
}
