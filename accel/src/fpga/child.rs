//! A card that is a program: a simulator, over its standard input and output.
//!
//! All numbers are little-endian. A request is an operation (32 bits), the length of its payload (32
//! bits), an address (64 bits) and the payload; the reply to it is a status (32 bits; 0 done, 1
//! refused), a length and a payload.

use std::{
    io::{self, Read, Write},
    process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use zeroize::Zeroizing;

use super::link::{Link, LinkError, transfers, wait_for};

/// The reply to the first request.
const HELLO: &str = "ciphergram card 1\n";
/// The most bytes of card memory in one request.
const MOST: usize = 1 << 20;
/// Cycles that a program simulates before it answers.
const CYCLES: u64 = 1 << 18;

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Hello,
    Read,
    Write,
    Upload,
    Download,
    Run,
    Reset,
}

type Bytes = Zeroizing<Vec<u8>>;

/// What a program answers.
enum Reply {
    Done(Bytes),
    Refused(Bytes),
}

struct Request {
    ask: Ask,
    address: u64,
    payload: Bytes,
}

/// A program that stands in for a card. It is killed when this goes; a script has to `exec` it, for what a script
/// starts and waits for lives on.
pub(super) struct Child {
    path: String,
    process: Process,
    requests: Sender<Request>,
    replies: Receiver<Result<Reply, String>>,
    patience: Duration,
    /// Why it is gone, if it is.
    lost: Option<LinkError>,
}

impl Child {
    /// Starts a program, which has as long as `patience` for each answer.
    pub(super) fn start(path: &str, patience: Duration) -> Result<Self, LinkError> {
        let lost = |why: &str| LinkError::lost(format!("{path}: {why}"));
        let mut process = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|why| lost(&why.to_string()))?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(lost("it has no pipes"));
        };
        let (requests, asked) = channel::<Request>();
        let (answer, replies) = channel();
        // A thread of its own waits where the program does not read or answer. It ends with the
        // program.
        let work = move || talk(input, output, &asked, &answer);
        let thread = thread::Builder::new().name("card".into()).spawn(work);
        let mut child =
            Self { path: path.into(), process, requests, replies, patience, lost: None };
        if thread.is_err() {
            return Err(child.gone("no thread for it"));
        }
        let hello = child.ask(Ask::Hello, 0, &[])?;
        if *hello != HELLO.as_bytes() {
            let said = said(&hello);
            return Err(child.gone(&format!("it says {said}, not {HELLO:?}")));
        }
        Ok(child)
    }

    /// Kills it, and remembers why.
    fn gone(&mut self, why: &str) -> LinkError {
        let why = LinkError::lost(format!("{}: {why}", self.path));
        let _ = self.process.kill();
        self.lost.insert(why).clone()
    }

    fn ask(&mut self, ask: Ask, address: u64, payload: &[u8]) -> Result<Bytes, LinkError> {
        if let Some(why) = &self.lost {
            return Err(why.clone());
        }
        let payload = Zeroizing::new(payload.to_vec());
        // Where the thread has ended, there is no reply either.
        let _ = self.requests.send(Request { ask, address, payload });
        match self.replies.recv_timeout(self.patience) {
            Ok(Ok(Reply::Done(reply))) => Ok(reply),
            Ok(Ok(Reply::Refused(words))) => {
                let said = said(&words);
                let why = format!("{}: it refuses {ask:?} at {address:#x}: {said}", self.path);
                Err(LinkError::Refused { why })
            }
            Ok(Err(why)) => Err(self.gone(&why)),
            Err(RecvTimeoutError::Timeout) => Err(self.gone("it does not answer")),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone("it has ended")),
        }
    }

    /// Asks for an answer of exactly so many bytes.
    fn ask_for<const N: usize>(
        &mut self,
        ask: Ask,
        address: u64,
        payload: &[u8],
    ) -> Result<[u8; N], LinkError> {
        let reply = self.ask(ask, address, payload)?;
        let found = reply.len();
        let reply = reply.as_slice().try_into();
        reply.map_err(|_| self.gone(&format!("a reply of {found} bytes, not {N}")))
    }
}

impl Link for Child {
    fn describe(&self) -> String {
        format!("the program {}", self.path)
    }

    fn is_emulated(&self) -> bool {
        true
    }

    fn read(&mut self, register: u32) -> Result<u32, LinkError> {
        self.ask_for(Ask::Read, register.into(), &[]).map(u32::from_le_bytes)
    }

    fn write(&mut self, register: u32, value: u32) -> Result<(), LinkError> {
        self.ask_for::<0>(Ask::Write, register.into(), &value.to_le_bytes()).map(|_| ())
    }

    fn upload(&mut self, beat: u64, bytes: &[u8]) -> Result<(), LinkError> {
        for (part, at) in transfers(beat, bytes.len(), MOST) {
            self.ask_for::<0>(Ask::Upload, at, &bytes[part])?;
        }
        Ok(())
    }

    fn download(&mut self, beat: u64, bytes: &mut [u8]) -> Result<(), LinkError> {
        for (part, at) in transfers(beat, bytes.len(), MOST) {
            let part = &mut bytes[part];
            let reply = self.ask(Ask::Download, at, &(part.len() as u64).to_le_bytes())?;
            if reply.len() != part.len() {
                let (found, expected) = (reply.len(), part.len());
                return Err(self.gone(&format!("a reply of {found} bytes, not {expected}")));
            }
            part.copy_from_slice(&reply);
        }
        Ok(())
    }

    fn wait(&mut self, head: u32, patience: Duration) -> Result<(), LinkError> {
        self.patience = patience;
        let path = self.path.clone();
        let waited = wait_for(head, patience, || {
            self.ask_for(Ask::Run, 0, &CYCLES.to_le_bytes()).map(u32::from_le_bytes)
        });
        waited.map_err(|why| match why {
            LinkError::Lost { why } if !why.starts_with(&path) => self.gone(&why),
            why => why,
        })
    }

    fn reset(&mut self) -> Result<(), LinkError> {
        self.ask_for::<0>(Ask::Reset, 0, &[]).map(|_| ())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // So that nothing of it stays.
        let _ = self.process.wait();
    }
}

/// Sends requests and reads their replies until either end is gone.
fn talk(
    mut input: ChildStdin,
    mut output: ChildStdout,
    asked: &Receiver<Request>,
    answer: &Sender<Result<Reply, String>>,
) {
    for request in asked {
        let reply = exchange(&mut input, &mut output, &request).map_err(|why| match why.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => "it has ended".into(),
            _ => why.to_string(),
        });
        let is_over = reply.is_err();
        if answer.send(reply).is_err() || is_over {
            return;
        }
    }
}

fn exchange(
    input: &mut ChildStdin,
    output: &mut ChildStdout,
    request: &Request,
) -> io::Result<Reply> {
    let Request { ask, address, payload } = request;
    let mut head = [0; 16];
    head[..4].copy_from_slice(&(*ask as u32).to_le_bytes());
    head[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    head[8..].copy_from_slice(&address.to_le_bytes());
    input.write_all(&head)?;
    input.write_all(payload)?;
    input.flush()?;
    let mut number = || {
        let mut bytes = [0; 4];
        output.read_exact(&mut bytes).map(|()| u32::from_le_bytes(bytes))
    };
    let (status, length) = (number()?, number()? as usize);
    if status > 1 || length > MOST {
        let why = format!("a reply of status {status} and {length} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut reply = Zeroizing::new(vec![0; length]);
    output.read_exact(&mut reply)?;
    Ok(if status == 0 { Reply::Done(reply) } else { Reply::Refused(reply) })
}

/// Returns the first of some bytes that a program said, in quotation marks, as one line.
fn said(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(64)]))
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
