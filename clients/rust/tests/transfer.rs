//! Archives of sessions, against a scripted server.
#![allow(clippy::unwrap_used)]

mod support;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::bridge::v1::export_session_response::Piece;
use copilot_grpc::{Client, Reason};
use support::{Running, connected, soon, status};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tonic::Code;

/// SHA-256 of "archive", of `printf archive | sha256sum`.
const DIGEST: &str = "0eb3e36bfb24dcd9bb1d1bece1531216b59539a8fde17ee80224af0653c92aa3";

fn header() -> bridge::ExportSessionHeader {
    bridge::ExportSessionHeader { size_bytes: 7, sha256: DIGEST.into(), ..Default::default() }
}

/// Exports a session whose archive arrives in these chunks.
async fn export(
    running: &Running,
    client: &Client,
    chunks: &[&str],
) -> (copilot_grpc::Result<bridge::ExportSessionHeader>, String) {
    let mut written = Vec::new();
    let session = client.session("s1");
    let (result, ()) = tokio::join!(soon(session.export_to(&mut written)), async {
        let stream = running.fake.export().await;
        assert_eq!(stream.request.session_id, "s1");
        stream.send(bridge::ExportSessionResponse { piece: Some(Piece::Header(header())) });
        for chunk in chunks {
            stream.send(bridge::ExportSessionResponse { piece: Some(Piece::Chunk(chunk.as_bytes().into())) });
        }
    });
    (result, String::from_utf8(written).unwrap())
}

#[tokio::test]
async fn export_writes_all_pieces() {
    let (running, client) = connected().await;
    let (result, written) = export(&running, &client, &["arch", "ive"]).await;
    assert_eq!((result.unwrap(), &*written), (header(), "archive"));
}

#[tokio::test]
async fn damaged_exports_are_errors() {
    let (running, client) = connected().await;
    for chunks in [&["arch"][..], &["archivX"], &["archive", "!"], &[]] {
        let (result, _) = export(&running, &client, chunks).await;
        let error = result.unwrap_err();
        assert_eq!(error.code(), Code::DataLoss, "{chunks:?}");
        assert!(error.message().contains("\"s1\" was cut off"), "{error}");
    }
}

#[tokio::test]
async fn refused_exports_have_the_reason_of_the_server() {
    let (running, client) = connected().await;
    let session = client.session("s1");
    let (result, ()) = tokio::join!(soon(session.export_to(tokio::io::sink())), async {
        running.fake.export().await.fail(status(Code::FailedPrecondition, "SESSION_BUSY"));
    });
    assert_eq!(result.unwrap_err().reason(), Reason::SessionBusy);
}

/// A disk without space, or a file on a disk that does not work.
struct Broken;

impl AsyncWrite for Broken {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::Error::other("broken")))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Broken {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::Error::other("broken")))
    }
}

#[tokio::test]
async fn writer_that_fails_ends_the_export() {
    let (running, client) = connected().await;
    let session = client.session("s1");
    let (result, ()) = tokio::join!(soon(session.export_to(Broken)), async {
        let stream = running.fake.export().await;
        stream.send(bridge::ExportSessionResponse { piece: Some(Piece::Chunk(b"archive".into())) });
        stream.gone().await;
    });
    let error = result.unwrap_err();
    assert_eq!((error.field(), error.message()), ("writer", "cannot write the archive: broken"));
}

#[tokio::test]
async fn import_sends_the_archive_in_pieces() {
    let (running, client) = connected().await;
    let archive: Vec<u8> = (0..600_000_u32).map(|n| (n * 31) as u8).collect();
    let importing = client.import_session(io::Cursor::new(archive.clone())).session_id("copy").provider_ref("p");
    let made = bridge::ImportSessionResponse { origin_session_id: "s1".into(), event_count: 3, ..Default::default() };
    let (result, (header, pieces)) = tokio::join!(soon(importing.into_future()), async {
        let mut import = running.fake.import().await;
        let (header, mut pieces) = (import.header.clone(), Vec::new());
        while let Some(piece) = import.next().await.unwrap() {
            pieces.push(piece);
        }
        import.reply(Ok(made.clone()));
        (header, pieces)
    });
    assert_eq!((&*header.session_id, &*header.provider_ref), ("copy", "p"));
    assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [256 << 10, 256 << 10, 600_000 - (512 << 10)]);
    assert_eq!((pieces.concat(), result.unwrap()), (archive, made));
}

#[tokio::test]
async fn refusal_ends_an_import_that_still_sends() {
    let (running, client) = connected().await;
    let (result, ()) = tokio::join!(soon(client.import_session(tokio::io::repeat(0)).into_future()), async {
        running.fake.import().await.reply(Err(status(Code::AlreadyExists, "SESSION_EXISTS")));
    });
    assert_eq!(result.unwrap_err().reason(), Reason::SessionExists);
}

#[tokio::test]
async fn archive_that_cannot_be_read_ends_the_call() {
    let (running, client) = connected().await;
    let archive = io::Cursor::new(b"part").chain(Broken);
    let (result, mut import) = tokio::join!(soon(client.import_session(archive).into_future()), running.fake.import());
    let error = result.unwrap_err();
    assert_eq!((error.field(), error.message()), ("archive", "cannot read the archive: broken"));
    import.gone().await;
}

#[tokio::test]
async fn dropped_import_ends_the_call() {
    let (running, client) = connected().await;
    let importing = tokio::spawn(client.import_session(tokio::io::repeat(0)).into_future());
    let mut import = running.fake.import().await;
    importing.abort();
    import.gone().await;
}
