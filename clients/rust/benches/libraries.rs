//! The driver of this library for `make bench-libraries`: tool calls and events with the library, and with bare stubs.
//!
//! cargo bench --bench libraries -- TARGET
#![allow(clippy::unwrap_used)]

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::bridge::v1::callback_service_client::CallbackServiceClient;
use copilot_grpc::bridge::v1::event_service_client::EventServiceClient;
use copilot_grpc::cli::v1::session_event::Data;
use copilot_grpc::{Client, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

async fn channel(target: &str) -> Result<Channel> {
    // The path of a socket is an authority for tonic.
    Ok(Endpoint::from_shared(target.replacen("unix:", "unix://", 1))?.connect().await?)
}

async fn stub_calls(target: &str) -> Result<usize> {
    use bridge::attach_request::Frame as Request;
    use bridge::attach_response::Frame as Response;
    use bridge::callback::Request as Callback;
    use bridge::subscribe_response::Frame;

    let (send, receive) = mpsc::channel(16);
    let session = bridge::attach_start::Session::Create(Box::default());
    let start = bridge::AttachStart { session: Some(session), ..Default::default() };
    send.send(bridge::AttachRequest { frame: Some(Request::Start(Box::new(start))) }).await?;
    let requests = tokio_stream::wrappers::ReceiverStream::new(receive);
    let mut stream = CallbackServiceClient::new(channel(target).await?).attach(requests).await?.into_inner();
    let mut count = 0;
    while let Some(response) = stream.message().await? {
        let Some(Response::Stream(frame)) = response.frame else { continue };
        let Some(Frame::CallbackRequested(requested)) = frame.frame else { continue };
        let callback = requested.callback.unwrap_or_default();
        let Some(Callback::ToolCall(call)) = callback.request else { continue };
        let arguments: Text = serde_json::from_str(&call.arguments_json.unwrap_or_default())?;
        let outcome = Some(bridge::tool_answer::Outcome::Text(arguments.text));
        let answer = bridge::answer::Answer::Tool(Box::new(bridge::ToolAnswer { outcome }));
        let callback_id = callback.callback_id;
        let given = bridge::CallbackAnswer { callback_id, answer: Some(bridge::Answer { answer: Some(answer) }) };
        send.send(bridge::AttachRequest { frame: Some(Request::Answer(Box::new(given))) }).await?;
        count += 1;
    }
    Ok(count)
}

async fn library_calls(target: &str) -> Result<usize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let echo = Tool::new("echo", "Repeats a text.", move |arguments: Text| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { arguments.text }
    });
    let client = Client::connect(target).await?;
    let session = client.create_session().tool(echo).await?;
    session.wait_ended().await;
    Ok(count.load(Ordering::Relaxed))
}

fn has_content(data: Option<&Data>) -> bool {
    matches!(data, Some(Data::AssistantMessage(message)) if !message.content.is_empty())
}

async fn stub_events(target: &str, size: &str) -> Result<usize> {
    use bridge::subscribe_response::Frame;

    let cursor = bridge::SessionCursor { session_id: size.to_owned(), ..Default::default() };
    let request = bridge::SubscribeRequest { sessions: vec![cursor], ..Default::default() };
    let mut stream = EventServiceClient::new(channel(target).await?).subscribe(request).await?.into_inner();
    let mut count = 0;
    while let Some(response) = stream.message().await? {
        let Some(Frame::Events(batch)) = response.frame else { continue };
        let data = batch.events.iter().filter_map(|event| event.event.as_ref()).map(|event| event.data.as_ref());
        count += data.filter(|data| has_content(*data)).count();
    }
    Ok(count)
}

async fn library_events(target: &str, size: &str) -> Result<usize> {
    let client = Client::connect(target).await?;
    let mut events = client.session(size).events().stream();
    let mut count = 0;
    while let Some(entry) = events.next().await {
        count += usize::from(has_content(entry?.data()));
    }
    Ok(count)
}

async fn run(line: String, target: String) -> Result<usize> {
    let (way, operation) = line.split_once(' ').unwrap_or_default();
    match (way, operation, operation.strip_prefix("event")) {
        ("stubs", "call", _) => stub_calls(&target).await,
        (_, "call", _) => library_calls(&target).await,
        ("stubs", _, Some(size)) => stub_events(&target, size).await,
        (_, _, Some(size)) => library_events(&target, size).await,
        _ => Err(format!("unknown operation {line:?}").into()),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let Some(target) = std::env::args().skip(1).find(|argument| argument != "--bench") else {
        return Ok(()); // `cargo bench` without a server
    };
    for line in std::io::stdin().lock().lines() {
        // A task runs on the runtime's threads, as those of the library and of the connection do; main does not.
        println!("{}", tokio::spawn(run(line?, target.clone())).await??);
    }
    Ok(())
}
