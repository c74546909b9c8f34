//! Prompts with their attachments.

use futures_core::Stream;
use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc::UnboundedSender;

use crate::attachments::Attachment;
use crate::bridge::v1 as bridge;
use crate::bridge::v1::send_stream_request::Piece;
use crate::cli::v1 as cli;
use crate::error::{Error, Result};

/// A message to the agent. Text converts into one.
///
/// ```no_run
/// # async fn example(session: copilot_grpc::Session) -> copilot_grpc::Result<()> {
/// use copilot_grpc::{Attachment, Prompt};
///
/// session.send(Prompt::new("Describe this.").attach(Attachment::upload("photo.png"))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    message: bridge::Prompt,
    attachments: Vec<Attachment>,
}

impl Prompt {
    /// A prompt with a text.
    pub fn new(text: impl Into<String>) -> Self {
        bridge::Prompt { text: text.into(), ..Default::default() }.into()
    }

    /// Adds an attachment. [`Session::send`](crate::Session::send) sends large ones and streams in pieces.
    pub fn attach(mut self, attachment: Attachment) -> Self {
        self.attachments.push(attachment);
        self
    }

    /// Steers the running turn instead of waiting for its end.
    pub fn immediate(mut self) -> Self {
        self.message.mode = cli::SendMode::Immediate.into();
        self
    }

    /// Whether an attachment is to be sent in pieces.
    pub(crate) async fn is_large(&self) -> bool {
        for attachment in &self.attachments {
            if attachment.is_large().await {
                return true;
            }
        }
        false
    }

    /// The message with the bytes of all attachments.
    pub(crate) async fn message(self) -> Result<bridge::Prompt> {
        let mut message = traced(self.message);
        for attachment in self.attachments {
            message.attachments.push(attachment.whole().await?);
        }
        Ok(message)
    }

    /// The message without the bytes of large attachments, and those attachments with their indices.
    pub(crate) async fn split(self) -> Result<(bridge::Prompt, Vec<(i32, Attachment)>)> {
        let (mut message, mut large) = (traced(self.message), Vec::new());
        for attachment in self.attachments {
            if attachment.is_large().await {
                large.push((i32::try_from(message.attachments.len()).unwrap_or(i32::MAX), attachment.clone()));
                message.attachments.push(attachment.message);
            } else {
                message.attachments.push(attachment.whole().await?);
            }
        }
        Ok((message, large))
    }
}

impl From<bridge::Prompt> for Prompt {
    fn from(message: bridge::Prompt) -> Self {
        Self { message, attachments: Vec::new() }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// The messages of SendStream: the request, and the bytes of its large attachments. The error of an attachment goes to
/// `failed`; the stream then stops without an end, so that the server does not take the prompt for complete.
pub(crate) fn pieces(
    request: bridge::SendRequest,
    large: Vec<(i32, Attachment)>,
    failed: UnboundedSender<Error>,
) -> impl Stream<Item = bridge::SendStreamRequest> + Send + 'static {
    let first = stream::iter([Piece::Request(request)]);
    let rest = stream::iter(large).flat_map(move |(attachment, source)| {
        let failed = failed.clone();
        source.pieces().then(move |piece| {
            let failed = failed.clone();
            async move {
                match piece {
                    Ok(data) => Piece::Chunk(bridge::AttachmentChunk { attachment, data }),
                    Err(error) => {
                        let _ = failed.send(error);
                        std::future::pending().await
                    }
                }
            }
        })
    });
    first.chain(rest).map(|piece| bridge::SendStreamRequest { piece: Some(piece) })
}

/// The message with the current trace, unless it has one.
fn traced(mut message: bridge::Prompt) -> bridge::Prompt {
    if message.traceparent.is_empty() {
        (message.traceparent, message.tracestate) = crate::trace::current();
    }
    message
}
