//! The conformance suite's driver of the Rust library. It uses only the library's public API.

mod calls;
mod handlers;
mod log;
mod report;
mod runner;

/// The messages of the suite.
#[allow(clippy::all)]
mod pb {
    include!(concat!(env!("OUT_DIR"), "/copilot.conformance.v1.rs"));
}

use std::io::{Read, Write};

use prost::Message;

/// Reads a message: its size as a varint, then the message. None at the end of the input.
fn read() -> Option<pb::Request> {
    let (mut size, mut shift, mut byte) = (0usize, 0, [0u8]);
    loop {
        std::io::stdin().read_exact(&mut byte).ok()?;
        size |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] < 0x80 {
            break;
        }
    }
    let mut bytes = vec![0; size];
    std::io::stdin().read_exact(&mut bytes).ok()?;
    pb::Request::decode(&*bytes).ok()
}

fn write(message: pb::response::Message) {
    let bytes = pb::Response { message: Some(message) }.encode_length_delimited_to_vec();
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes).and_then(|()| out.flush()).expect("the runner reads");
}

async fn read_async() -> Option<pb::Request> {
    tokio::task::spawn_blocking(read).await.ok()?
}

/// Asks the runner for something, and waits.
async fn control(name: &str) {
    write(pb::response::Message::Control(pb::Control { name: name.to_owned() }));
    read_async().await;
}

#[tokio::main]
async fn main() {
    while let Some(pb::Request { message: Some(pb::request::Message::Case(case)) }) = read_async().await {
        write(pb::response::Message::Result(runner::run(case).await));
    }
}
