//! What a program provides to a session besides tools: files and model requests; and TLS.
#![allow(clippy::unwrap_used)]

mod support;

use std::future::IntoFuture;

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::bridge::v1::answer::Answer;
use copilot_grpc::bridge::v1::attach_request::Frame;
use copilot_grpc::bridge::v1::callback::Request;
use copilot_grpc::bridge::v1::model_response::Part;
use copilot_grpc::cli::v1 as cli;
use copilot_grpc::{Client, DirectoryFiles, ModelReply, SessionFiles};
use support::{Attached, connected};

fn callback(id: &str, kind: bridge::CallbackKind, request: Request) -> bridge::Callback {
    bridge::Callback {
        callback_id: id.into(),
        session_id: "s1".into(),
        kind: kind.into(),
        request: Some(request),
        ..Default::default()
    }
}

fn chunk(data: &str, end: bool) -> Request {
    Request::ModelRequestChunk(Box::new(cli::CallbackLlmInferenceServiceHttpRequestChunkRequest {
        request_id: "m1".into(),
        data: data.into(),
        end: Some(end),
        ..Default::default()
    }))
}

async fn ask_model(attached: &mut Attached) {
    let start = cli::CallbackLlmInferenceServiceHttpRequestStartRequest {
        request_id: "m1".into(),
        method: "POST".into(),
        url: "http://model/v1".into(),
        ..Default::default()
    };
    let start = Request::ModelRequestStart(Box::new(start));
    attached.ask(callback("1", bridge::CallbackKind::ModelRequestStart, start));
    assert!(matches!(attached.answer().await.1, Answer::ModelRequestStart(_)));
    attached.done("1");
}

#[tokio::test]
async fn model_requests_are_answered() {
    let (running, client) = connected().await;
    let builder = client.create_session().model_transport(|request| async move {
        let body = String::from_utf8(request.body.collect().await)?;
        let text = format!("{} {} {body}", request.method, request.url);
        Ok::<_, std::string::FromUtf8Error>(ModelReply::new(201, text).header("content-type", "text/plain"))
    });
    let (session, mut attached) = tokio::join!(builder.into_future(), running.fake.attached("p1", vec![]));
    let _session = session.unwrap();
    let Some(bridge::attach_start::Session::Create(create)) = &attached.stream.request.session else {
        panic!("no create");
    };
    assert!(create.runtime_profile.as_ref().unwrap().model_inference.is_some());
    ask_model(&mut attached).await;
    for (id, data, end) in [("2", "one ", false), ("3", "two", true)] {
        attached.ask(callback(id, bridge::CallbackKind::ModelRequestChunk, chunk(data, end)));
    }
    let (mut answers, mut parts) = (0, Vec::new());
    while answers < 2 || parts.len() < 3 {
        match attached.next().await {
            Frame::Answer(answer) => {
                answers += 1;
                attached.done(&answer.callback_id);
            }
            Frame::ModelResponse(response) => parts.extend(response.part),
            other => panic!("{other:?}"),
        }
    }
    let [Part::Head(head), Part::Chunk(body), Part::Chunk(last)] = &parts[..] else { panic!("{parts:?}") };
    assert_eq!((head.status, &head.headers["content-type"].items[..]), (201, &["text/plain".to_owned()][..]));
    let want = bridge::model_response_chunk::Data::Binary(b"POST http://model/v1 one two".to_vec());
    assert_eq!((body.data.as_ref(), body.end, last.end), (Some(&want), false, true));
}

#[tokio::test]
async fn failing_model_transport_ends_the_response_without_details() {
    let (running, client) = connected().await;
    let builder =
        client.create_session().model_transport(|_| async { Err::<ModelReply, _>(std::io::Error::other("/secret")) });
    let (session, mut attached) = tokio::join!(builder.into_future(), running.fake.attached("p1", vec![]));
    let _session = session.unwrap();
    let start =
        cli::CallbackLlmInferenceServiceHttpRequestStartRequest { request_id: "m1".into(), ..Default::default() };
    let start = Request::ModelRequestStart(Box::new(start));
    attached.ask(callback("1", bridge::CallbackKind::ModelRequestStart, start));
    // The answer and the response are sent by two tasks.
    let mut error = None;
    for _ in 0..2 {
        if let Frame::ModelResponse(response) = attached.next().await {
            let Some(Part::Chunk(chunk)) = response.part else { panic!("no chunk") };
            error = chunk.error;
        }
    }
    assert_eq!(error.unwrap().message, "The model transport failed.");
}

#[tokio::test]
async fn session_files_are_stored_here() {
    let (running, client) = connected().await;
    let folder = tempfile::tempdir().unwrap();
    let files = SessionFiles::new(DirectoryFiles::new(folder.path()).unwrap());
    let builder = client.create_session().session_files(files);
    let (session, mut attached) = tokio::join!(builder.into_future(), running.fake.attached("p1", vec![]));
    let _session = session.unwrap();
    let write = cli::CallbackSessionFsServiceWriteFileRequest {
        path: "/a.txt".into(),
        content: "hé".into(),
        ..Default::default()
    };
    attached.ask(callback("1", bridge::CallbackKind::FsWriteFile, Request::FsWriteFile(Box::new(write))));
    assert!(matches!(attached.answer().await.1, Answer::FsWriteFile(answer) if answer.value.is_none()));
    let read = cli::CallbackSessionFsServiceReadFileRequest { path: "/a.txt".into(), ..Default::default() };
    attached.ask(callback("2", bridge::CallbackKind::FsReadFile, Request::FsReadFile(Box::new(read))));
    assert!(matches!(attached.answer().await.1, Answer::FsReadFile(answer) if answer.content == "hé"));
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "hé");
}

#[tokio::test]
async fn mutual_tls_with_a_token() {
    use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

    let made = rcgen::generate_simple_self_signed(vec!["agents.example".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(&certificate, &key))
        .client_ca_root(Certificate::from_pem(&certificate));
    let (fake, services) = support::services();
    let serving = Server::builder().tls_config(tls).unwrap().add_routes(services);
    let incoming = tonic::codegen::tokio_stream::wrappers::TcpListenerStream::new(listener);
    let task = tokio::spawn(async move { serving.serve_with_incoming(incoming).await });
    let connect = || Client::connect(&*target).server_name("agents.example").ca(&*certificate);
    connect().identity(&*certificate, &*key).token("secret").await.unwrap();
    assert_eq!(*fake.tokens.lock().unwrap(), ["Bearer secret"]);
    let refused = connect().await.unwrap_err(); // without the client's certificate
    assert!(refused.is_broken(), "{refused}");
    task.abort();
}
