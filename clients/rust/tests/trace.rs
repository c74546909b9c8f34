//! Traces of OpenTelemetry. The test has a process of its own, because tests without a subscriber in other threads would
//! disable its spans.
#![cfg(feature = "opentelemetry")]
#![allow(clippy::unwrap_used)]

mod support;

use std::future::IntoFuture;

use copilot_grpc::bridge::v1::answer::Answer;
use copilot_grpc::{NoArguments, Tool};
use opentelemetry::trace::TracerProvider;
use support::{connected, soon};
use tracing_subscriber::layer::SubscriberExt;

#[tokio::test]
async fn handlers_run_in_the_trace_of_their_callback() {
    let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let (running, client) = connected().await;
    let handle = client.session("s1");
    let tool = Tool::new("send", "", move |_: NoArguments| {
        let session = handle.clone();
        async move { session.send("in the trace").await.map(|receipt| receipt.message_id) }
    });
    let opening = client.create_session().tool(tool).into_future();
    let (session, mut attached) = tokio::join!(opening, running.fake.attached("p1", vec![]));
    let _session = session.unwrap();
    let mut call = support::tool_callback("1", "send", "{}");
    call.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into();
    attached.ask(call);
    assert!(matches!(soon(attached.answer()).await.1, Answer::Tool(_)));
    let sends = running.fake.sends.lock().unwrap().clone();
    let traceparent = &sends[0].prompt.as_ref().unwrap().traceparent;
    assert!(traceparent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{traceparent:?}");
}
