//! The pending callbacks that a participant answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tonic::Code;

use crate::bridge::v1 as bridge;
use crate::bridge::v1::answer::Answer;
use crate::bridge::v1::attach_request::Frame;
use crate::bridge::v1::callback::Request;
use crate::connection::Connection;
use crate::error::{Error, Reason, Result};
use crate::handlers::{Handlers, answer_error};
use crate::link::Line;
use crate::retry::Backoff;

/// Other handlers than tools that run at once, so that questions to people do not hold up tools.
const MAX_QUESTIONS: usize = 64;
/// Callbacks of one participant. The server has no more of a session.
const MAX_CALLS: usize = 1024;

/// Callbacks in hand, a task for each. Nothing here waits for a handler.
pub(crate) struct Calls {
    handlers: Arc<Handlers>,
    line: Arc<Line>,
    connection: Arc<Connection>,
    tools: Semaphore,
    questions: Semaphore,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    by_id: HashMap<String, Call>,
    serial: u64,
    closed: bool,
}

/// A callback in hand. Its task keeps the answer of a handler that ran until the server has acknowledged it.
struct Call {
    serial: u64,
    answered: bool,
    /// Replies of the server to the answer: acceptance, or a refusal.
    replies: mpsc::UnboundedSender<Option<Error>>,
    task: AbortHandle,
}

impl Calls {
    pub(crate) fn new(
        handlers: Arc<Handlers>,
        line: Arc<Line>,
        connection: Arc<Connection>,
        max_tools: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            handlers,
            line,
            connection,
            tools: Semaphore::new(max_tools),
            questions: Semaphore::new(MAX_QUESTIONS),
            pending: Mutex::default(),
        })
    }

    /// Starts to answer a callback, unless a task for it exists: that one sends its answer again.
    pub(crate) fn ask(self: &Arc<Self>, callback: bridge::Callback, offered: bool) {
        let mut pending = crate::lock(&self.pending);
        if pending.closed || pending.by_id.contains_key(&callback.callback_id) {
            return;
        }
        if callback.total_bytes == 0 && !self.handlers.takes(&callback, offered) {
            return;
        }
        pending.serial += 1;
        let (serial, id) = (pending.serial, callback.callback_id.clone());
        let (replies, received) = mpsc::unbounded_channel();
        let crowded = pending.by_id.len() >= MAX_CALLS;
        let guard = Registration { calls: self.clone(), id: id.clone(), serial };
        let task = tokio::spawn(async move {
            let calls = guard.calls.clone();
            if let Err(error) = calls.serve(callback, offered, crowded, received).await {
                tracing::debug!(callback_id = guard.id, %error, "callback dropped");
            }
        });
        pending.by_id.insert(id, Call { serial, answered: false, replies, task: task.abort_handle() });
    }

    /// Takes the server's reply to an answer.
    pub(crate) fn settle(&self, callback_id: &str, refusal: Option<Error>) {
        if let Some(call) = crate::lock(&self.pending).by_id.get(callback_id).filter(|call| call.answered) {
            let _ = call.replies.send(refusal);
        }
    }

    /// Ends a callback whose answer is no longer needed: its handler is cancelled.
    pub(crate) fn withdraw(&self, callback_id: &str) {
        let mut pending = crate::lock(&self.pending);
        match pending.by_id.get(callback_id) {
            // Answered, by this participant or another one.
            Some(call) if call.answered => drop(call.replies.send(None)),
            Some(call) => {
                call.task.abort();
                pending.by_id.remove(callback_id);
            }
            None => {}
        }
    }

    /// Compares with what is pending on the server: takes up what is new, and ends what is over.
    pub(crate) fn reconcile(self: &Arc<Self>, callbacks: Vec<bridge::Callback>, participant_id: &str) {
        let ids: HashSet<_> = callbacks.iter().map(|callback| callback.callback_id.as_str()).collect();
        let over: Vec<_> = {
            let pending = crate::lock(&self.pending);
            pending.by_id.keys().filter(|id| !ids.contains(id.as_str())).cloned().collect()
        };
        for id in over {
            self.withdraw(&id);
        }
        for callback in callbacks {
            // A callback without participants, or whose participants left, is open to every handler.
            let to = &callback.participant_ids;
            let offered = to.is_empty() || to.iter().any(|id| id == participant_id);
            self.ask(callback, offered);
        }
    }

    /// Cancels all handlers. Later callbacks are ignored.
    pub(crate) fn close(&self) {
        let mut pending = crate::lock(&self.pending);
        pending.closed = true;
        for call in pending.by_id.values() {
            call.task.abort();
        }
        pending.by_id.clear();
    }

    async fn serve(
        &self,
        callback: bridge::Callback,
        offered: bool,
        crowded: bool,
        replies: mpsc::UnboundedReceiver<Option<Error>>,
    ) -> Result<()> {
        let id = callback.callback_id.clone();
        let answer = if crowded {
            tracing::warn!(callback_id = id, "too many callbacks at once");
            answer_error("too many callbacks at once")
        } else {
            match self.answer(callback, offered).await? {
                Some(answer) => answer,
                None => return Ok(()),
            }
        };
        self.deliver(&id, answer, replies).await
    }

    /// Runs the handler. Returns none if this participant does not answer the callback.
    async fn answer(&self, mut callback: bridge::Callback, offered: bool) -> Result<Option<Answer>> {
        if callback.total_bytes != 0 {
            match self.connection.read_callback(&callback.session_id, &callback.callback_id).await {
                Ok(whole) if !self.handlers.takes(&whole, offered) => return Ok(None),
                Ok(whole) => callback = whole,
                Err(error) if error.reason() == Reason::CallbackResolved => return Err(error),
                Err(error) => {
                    tracing::warn!(callback_id = callback.callback_id, %error, "callback not read");
                    return Ok(Some(answer_error("the request could not be read")));
                }
            }
        }
        let is_tool = matches!(callback.request, Some(Request::ToolCall(_)));
        let running = if is_tool { &self.tools } else { &self.questions };
        let _permit = running.acquire().await;
        Ok(Some(self.handlers.answer(callback).await))
    }

    /// Sends an answer until the server has taken it: again on a new stream, or after the CLI process was replaced, and
    /// as an error if the server refuses it, so that the turn continues.
    async fn deliver(
        &self,
        id: &str,
        mut answer: Answer,
        mut replies: mpsc::UnboundedReceiver<Option<Error>>,
    ) -> Result<()> {
        if let Some(call) = crate::lock(&self.pending).by_id.get_mut(id) {
            call.answered = true;
        }
        let mut backoff = Backoff::new(self.connection.reconnect);
        loop {
            let link = self.line.live().await?;
            let message = bridge::CallbackAnswer {
                callback_id: id.to_owned(),
                answer: Some(bridge::Answer { answer: Some(answer.clone()) }),
            };
            if !link.send(Frame::Answer(Box::new(message))).await {
                continue;
            }
            if matches!(answer, Answer::Abstain(_)) {
                return Ok(()); // the server does not reply
            }
            let reply = tokio::select! {
                biased;
                reply = replies.recv() => reply.flatten(),
                () = link.down.cancelled() => {
                    backoff.reset();
                    continue;
                }
            };
            let Some(refusal) = reply else { return Ok(()) };
            if matches!(refusal.reason(), Reason::CallbackResolved | Reason::CallbackNotFound) {
                return Ok(());
            }
            tracing::warn!(callback_id = id, error = %refusal, "answer refused");
            if refusal.code() == Code::InvalidArgument && !matches!(answer, Answer::Error(_)) {
                answer = answer_error(refusal.message());
            } else if refusal.code() != Code::Unavailable || !backoff.wait(&refusal).await {
                return Ok(());
            }
        }
    }
}

/// Removes a callback when its task ends, in whatever way.
struct Registration {
    calls: Arc<Calls>,
    id: String,
    serial: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut pending = crate::lock(&self.calls.pending);
        if pending.by_id.get(&self.id).is_some_and(|call| call.serial == self.serial) {
            pending.by_id.remove(&self.id);
        }
    }
}
