//! Archives of sessions.

use std::future::IntoFuture;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tonic::Status;

use crate::attachments::{Reader, pieces_of};
use crate::bridge::v1 as bridge;
use crate::bridge::v1::export_session_response::Piece as Exported;
use crate::bridge::v1::import_session_request::Piece;
use crate::cli::v1 as cli;
use crate::connection::Connection;
use crate::error::{Error, Result};

/// Writes the archive of a session, and compares it with its header.
pub(crate) async fn export(
    connection: &Connection,
    session_id: &str,
    writer: impl AsyncWrite,
) -> Result<bridge::ExportSessionHeader> {
    let unwritable = |error| Error::invalid("writer", format!("cannot write the archive: {error}"));
    let mut writer = pin!(writer);
    let request = bridge::ExportSessionRequest { session_id: session_id.to_owned() };
    let mut pieces = connection.sessions().export_session(request).await?.into_inner();
    let mut header = bridge::ExportSessionHeader::default();
    let (mut digest, mut size) = (Sha256::new(), 0);
    while let Some(message) = pieces.message().await? {
        match message.piece {
            Some(Exported::Header(announced)) => header = announced,
            Some(Exported::Chunk(chunk)) => {
                digest.update(&chunk);
                size += chunk.len() as i64;
                writer.write_all(&chunk).await.map_err(unwritable)?;
            }
            None => {}
        }
    }
    writer.flush().await.map_err(unwritable)?;
    if size != header.size_bytes || format!("{:x}", digest.finalize()) != header.sha256 {
        let text = format!("the archive of session {session_id:?} was cut off or changed on its way");
        return Err(Status::data_loss(text).into());
    }
    Ok(header)
}

/// Makes a session of an archive; `await` it. See [`Client::import_session`](crate::Client::import_session).
#[must_use = "futures do nothing unless awaited"]
pub struct ImportSession {
    connection: Arc<Connection>,
    archive: Reader,
    header: bridge::ImportSessionHeader,
}

impl ImportSession {
    pub(crate) fn new(connection: Arc<Connection>, archive: Reader) -> Self {
        Self { connection, archive, header: bridge::ImportSessionHeader::default() }
    }

    /// The id of the new session; default: the id of the exported one.
    pub fn session_id(mut self, id: impl Into<String>) -> Self {
        self.header.session_id = id.into();
        self
    }

    /// Replaces the configuration in the archive as a whole.
    pub fn config(mut self, config: cli::SessionConfig) -> Self {
        self.header.config = Some(config);
        self
    }

    /// Name of a model provider of the server; replaces the one in the archive.
    pub fn provider_ref(mut self, name: impl Into<String>) -> Self {
        self.header.provider_ref = name.into();
        self
    }

    /// A reader can be read once, so that the call is not repeated.
    async fn import(self) -> Result<bridge::ImportSessionResponse> {
        let (failed, mut failures) = unbounded_channel();
        let mut sessions = self.connection.sessions();
        tokio::select! {
            Some(failure) = failures.recv() => Err(failure),
            reply = sessions.import_session(requests(self.header, self.archive, failed)) => Ok(reply?.into_inner()),
        }
    }
}

impl IntoFuture for ImportSession {
    type Output = Result<bridge::ImportSessionResponse>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.import())
    }
}

/// The messages of an import. An error of the archive goes to `failed`; the stream then stops without an end, so that the
/// server does not take the archive for complete.
fn requests(
    header: bridge::ImportSessionHeader,
    archive: Reader,
    failed: UnboundedSender<Error>,
) -> impl Stream<Item = bridge::ImportSessionRequest> + Send + 'static {
    let rest = pieces_of(archive).then(move |piece| {
        let failed = failed.clone();
        async move {
            match piece {
                Ok(chunk) => Piece::Chunk(chunk),
                Err(error) => {
                    let _ = failed.send(Error::invalid("archive", format!("cannot read the archive: {error}")));
                    std::future::pending().await
                }
            }
        }
    });
    let pieces = stream::iter([Piece::Header(header)]).chain(rest);
    pieces.map(|piece| bridge::ImportSessionRequest { piece: Some(piece) })
}
