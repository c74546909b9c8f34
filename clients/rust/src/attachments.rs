//! Attachments of prompts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::StreamExt;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::cli::v1 as cli;
use crate::cli::v1::attachment::Variant;
use crate::error::{Error, Result};

const PIECE: usize = 256 << 10;
/// Larger attachments are sent in pieces.
const INLINE: usize = 1 << 20;

type Pieces = Pin<Box<dyn Stream<Item = Result<Vec<u8>>> + Send>>;
pub(crate) type Reader = Pin<Box<dyn AsyncRead + Send>>;

/// An attachment of a prompt.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The attachment; without its bytes, unless it was made from a message.
    pub message: cli::Attachment,
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// Everything is in the message.
    None,
    Bytes(Bytes),
    File(PathBuf),
    /// Taken by the first reading.
    Reader(Arc<Mutex<Option<Reader>>>),
}

impl Attachment {
    /// A file on the CLI's machine. The CLI reads it. The path should be absolute.
    pub fn path(path: impl AsRef<Path>) -> Self {
        let (path, display_name) = names(path.as_ref());
        let file = cli::AttachmentFile { path, display_name, ..Default::default() };
        cli::Attachment { variant: Some(Variant::File(file)) }.into()
    }

    /// A directory on the CLI's machine. The path should be absolute.
    pub fn directory(path: impl AsRef<Path>) -> Self {
        let (path, display_name) = names(path.as_ref());
        let directory = cli::AttachmentDirectory { path, display_name, ..Default::default() };
        cli::Attachment { variant: Some(Variant::Directory(directory)) }.into()
    }

    /// Bytes, such as an image.
    pub fn bytes(data: impl Into<Bytes>, mime_type: impl Into<String>) -> Self {
        Self::blob(Source::Bytes(data.into()), mime_type.into())
    }

    /// The content of a file of this machine. The MIME type follows from the name.
    pub fn upload(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let mime_type = mime_guess::from_path(&path).first_or_octet_stream().to_string();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let attachment = Self::blob(Source::File(path), mime_type);
        match name {
            Some(name) => attachment.name(name),
            None => attachment,
        }
    }

    /// Bytes that are read while they are sent. [`Session::send`](crate::Session::send) sends them in pieces; other
    /// calls collect them. The reader can be sent once.
    pub fn reader(reader: impl AsyncRead + Send + 'static, mime_type: impl Into<String>) -> Self {
        let reader: Reader = Box::pin(reader);
        Self::blob(Source::Reader(Arc::new(Mutex::new(Some(reader)))), mime_type.into())
    }

    /// Sets the name that users see.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        match &mut self.message.variant {
            Some(Variant::Blob(blob)) => blob.display_name = Some(name.into()),
            Some(Variant::File(file)) => file.display_name = name.into(),
            Some(Variant::Directory(directory)) => directory.display_name = name.into(),
            _ => {}
        }
        self
    }

    fn blob(source: Source, mime_type: String) -> Self {
        let blob = cli::AttachmentBlob { mime_type, ..Default::default() };
        Self { message: cli::Attachment { variant: Some(Variant::Blob(blob)) }, source }
    }

    /// Whether the bytes are to be sent in pieces.
    pub(crate) async fn is_large(&self) -> bool {
        match &self.source {
            Source::None => false,
            Source::Bytes(bytes) => bytes.len() > INLINE,
            Source::File(path) => tokio::fs::metadata(path).await.is_ok_and(|file| file.len() > INLINE as u64),
            Source::Reader(_) => true,
        }
    }

    /// The attachment with its bytes.
    pub(crate) async fn whole(self) -> Result<cli::Attachment> {
        if matches!(self.source, Source::None) {
            return Ok(self.message);
        }
        let mut message = self.message.clone();
        let mut pieces = self.pieces();
        let mut data = Vec::new();
        while let Some(piece) = pieces.next().await {
            data.append(&mut piece?);
        }
        if let Some(Variant::Blob(blob)) = &mut message.variant {
            blob.data = Some(data);
        }
        Ok(message)
    }

    /// The bytes, in pieces of at most 256 KiB.
    pub(crate) fn pieces(self) -> Pieces {
        match self.source {
            Source::None => Box::pin(futures_util::stream::empty()),
            Source::Bytes(bytes) => {
                let pieces: Vec<_> = bytes.chunks(PIECE).map(|piece| Ok(piece.to_vec())).collect();
                Box::pin(futures_util::stream::iter(pieces))
            }
            Source::File(path) => {
                let opened = async move {
                    let failed = |error| unreadable(&path.display().to_string(), &error);
                    let file = tokio::fs::File::open(&path).await.map_err(failed)?;
                    Ok::<Reader, Error>(Box::pin(file))
                };
                Box::pin(futures_util::stream::once(opened).flat_map(|reader| match reader {
                    Ok(reader) => read(reader),
                    Err(error) => Box::pin(futures_util::stream::iter([Err(error)])) as Pieces,
                }))
            }
            Source::Reader(reader) => match crate::lock(&reader).take() {
                Some(reader) => read(reader),
                None => {
                    let error = Error::invalid("attachments", "the attachment's reader has been read");
                    Box::pin(futures_util::stream::iter([Err(error)]))
                }
            },
        }
    }
}

fn read(reader: Reader) -> Pieces {
    Box::pin(pieces_of(reader).map(|piece| piece.map_err(|error| unreadable("the reader", &error))))
}

/// The bytes of a reader, in pieces of at most 256 KiB. An error is the last item.
pub(crate) fn pieces_of(reader: Reader) -> impl Stream<Item = std::io::Result<Vec<u8>>> + Send {
    futures_util::stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let mut piece = Vec::with_capacity(PIECE);
        match (&mut reader).take(PIECE as u64).read_to_end(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok(piece), Some(reader))),
            Err(error) => Some((Err(error), None)),
        }
    })
}

fn unreadable(name: &str, error: &std::io::Error) -> Error {
    Error::invalid("attachments", format!("cannot read {name}: {error}"))
}

fn names(path: &Path) -> (String, String) {
    let text = path.to_string_lossy().into_owned();
    let name = path.file_name().map_or_else(|| text.clone(), |name| name.to_string_lossy().into_owned());
    (text, name)
}

impl From<cli::Attachment> for Attachment {
    fn from(message: cli::Attachment) -> Self {
        Self { message, source: Source::None }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Reader(_) => f.write_str("Reader"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(message: cli::Attachment) -> Vec<u8> {
        match message.variant {
            Some(Variant::Blob(blob)) => blob.data.unwrap(),
            other => panic!("{other:?} is no blob"),
        }
    }

    #[tokio::test]
    async fn every_source_gives_its_bytes() {
        let bytes: Vec<u8> = (0..600_000_u32).map(|n| n as u8).collect();
        let file = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let reader = Attachment::reader(std::io::Cursor::new(bytes.clone()), "text/csv");
        let again = reader.clone();
        for attachment in [Attachment::bytes(bytes.clone(), "text/csv"), Attachment::upload(file.path()), reader] {
            let Some(Variant::Blob(blob)) = &attachment.message.variant else { panic!("no blob") };
            assert_eq!(blob.mime_type, "text/csv");
            let sizes: Vec<_> = match &attachment.source {
                Source::Bytes(_) => attachment.clone().pieces().map(|piece| piece.unwrap().len()).collect().await,
                _ => Vec::new(),
            };
            assert!(sizes.is_empty() || sizes == [PIECE, PIECE, 600_000 - 2 * PIECE], "{sizes:?}");
            assert_eq!(data(attachment.whole().await.unwrap()), bytes);
        }
        assert!(again.whole().await.unwrap_err().message().contains("has been read"));
    }

    #[tokio::test]
    async fn unreadable_file_is_an_error() {
        let error = Attachment::upload("/no/such/file.png").whole().await.unwrap_err();
        assert_eq!(error.field(), "attachments");
        assert!(error.message().contains("/no/such/file.png"), "{error}");
    }
}
