//! Requests to the listener of `serve --metrics`, as bytes.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

/// Longer than any answer takes, shorter than anyone waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns all that comes until the other side has said everything; it resets nothing.
pub(crate) fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

pub(crate) fn ask(address: &str, request: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(request).unwrap();
    answer(stream)
}

/// Asks for a page as this machine's browser does; returns the head of the answer and its body.
pub(crate) fn get(address: &str, path: &str) -> (String, String) {
    let text = ask(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes());
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}
