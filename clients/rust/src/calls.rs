//! The pending callbacks that a participant answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
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

/// Callbacks in hand. A task runs the handler and sends the answer; the server's reply to it is settled by the reader of
/// the stream, which wakes no task. Nothing here waits for a handler.
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
    by_id: HashMap<Arc<str>, Call>,
    serial: u64,
    closed: bool,
}

/// A callback in hand.
struct Call {
    /// The number of its task, so that an earlier one does not remove it.
    serial: u64,
    task: AbortHandle,
    given: Option<Given>,
}

/// The answer of a handler that ran. It is kept until the server has acknowledged it.
struct Given {
    answer: Answer,
    /// The stream on which it was sent; none while a task is about to send it.
    sent_on: Option<u64>,
    backoff: Backoff,
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

    /// Starts to answer a callback. If its handler has answered on an earlier stream, that answer is sent again.
    pub(crate) fn ask(self: &Arc<Self>, callback: bridge::Callback, offered: bool) {
        let mut guard = crate::lock(&self.pending);
        let pending = &mut *guard;
        if pending.closed {
            return;
        }
        if let Some((id, _)) = pending.by_id.get_key_value(&*callback.callback_id) {
            let id = id.clone();
            self.send_again(pending, &id);
            return;
        }
        if callback.total_bytes == 0 && !self.handlers.takes(&callback, offered) {
            return;
        }
        let id: Arc<str> = callback.callback_id.as_str().into();
        let crowded = pending.by_id.len() >= MAX_CALLS;
        let (calls, of) = (self.clone(), id.clone());
        self.start(pending, id, None, move |serial| async move {
            let answer = if crowded {
                tracing::warn!(callback_id = &*of, "too many callbacks at once");
                answer_error("too many callbacks at once")
            } else {
                match calls.answer(callback, &of, offered).await? {
                    Some(answer) => answer,
                    None => return Ok(()),
                }
            };
            if let Some(call) = crate::lock(&calls.pending).of(&of, serial) {
                call.given = Some(Given { answer, sent_on: None, backoff: Backoff::new(calls.connection.reconnect) });
            }
            calls.deliver(&of, serial).await
        });
    }

    /// Sends the answer of a callback again if it was sent on an earlier stream.
    fn send_again(self: &Arc<Self>, pending: &mut Pending, id: &Arc<str>) {
        let Some(call) = pending.by_id.get_mut(id) else { return };
        let Some(given) = &mut call.given else { return };
        if given.sent_on.is_none() || given.sent_on == self.line.current() {
            return;
        }
        given.sent_on = None;
        given.backoff.reset();
        self.start_sending(pending, id, None);
    }

    /// Starts a task that sends an answer, after a pause if the server has refused it for now.
    fn start_sending(self: &Arc<Self>, pending: &mut Pending, id: &Arc<str>, refusal: Option<Error>) {
        let given = pending.by_id.get_mut(id).and_then(|call| call.given.take());
        let (calls, of) = (self.clone(), id.clone());
        let mut backoff = given.as_ref().map(|given| given.backoff);
        self.start(pending, id.clone(), given, move |serial| async move {
            if let (Some(refusal), Some(backoff)) = (refusal, &mut backoff) {
                if !backoff.wait(&refusal).await {
                    return Ok(());
                }
                if let Some(given) = crate::lock(&calls.pending).of(&of, serial).and_then(|call| call.given.as_mut()) {
                    given.backoff = *backoff;
                }
            }
            calls.deliver(&of, serial).await
        });
    }

    /// Starts the task of a callback, in place of an earlier one.
    fn start<F, Fut>(self: &Arc<Self>, pending: &mut Pending, id: Arc<str>, given: Option<Given>, work: F)
    where
        F: FnOnce(u64) -> Fut,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        pending.serial += 1;
        let serial = pending.serial;
        let (calls, of, work) = (self.clone(), id.clone(), work(serial));
        let task = tokio::spawn(async move {
            // Made here, because a runtime that shuts down drops the task at once, and the lock is held now.
            let guard = Registration { calls, id: of, serial };
            if let Err(error) = work.await {
                tracing::debug!(callback_id = &*guard.id, %error, "callback dropped");
            }
        });
        pending.by_id.insert(id, Call { serial, task: task.abort_handle(), given });
    }

    /// Takes the server's reply to an answer. An answer that it refuses is sent again after the CLI process was replaced,
    /// and as an error if the server cannot use it, so that the turn continues.
    pub(crate) fn settle(self: &Arc<Self>, callback_id: &str, refusal: Option<Error>) {
        let mut guard = crate::lock(&self.pending);
        let pending = &mut *guard;
        let Some((id, call)) = pending.by_id.get_key_value(callback_id) else { return };
        let Some(given) = call.given.as_ref().filter(|given| given.sent_on.is_some()) else { return };
        let (id, is_error) = (id.clone(), matches!(given.answer, Answer::Error(_)));
        let Some(refusal) = refusal else {
            pending.by_id.remove(&id);
            return;
        };
        if matches!(refusal.reason(), Reason::CallbackResolved | Reason::CallbackNotFound) {
            pending.by_id.remove(&id);
            return;
        }
        tracing::warn!(callback_id, error = %refusal, "answer refused");
        let given = pending.by_id.get_mut(&id).and_then(|call| call.given.as_mut());
        match (refusal.code(), given) {
            (Code::InvalidArgument, Some(given)) if !is_error => {
                (given.answer, given.sent_on) = (answer_error(refusal.message()), None);
                self.start_sending(pending, &id, None);
            }
            (Code::Unavailable, Some(given)) => {
                given.sent_on = None;
                self.start_sending(pending, &id, Some(refusal));
            }
            _ => drop(pending.by_id.remove(&id)),
        }
    }

    /// Ends a callback whose answer is no longer needed, by this participant's answer or another one's: its handler is
    /// cancelled.
    pub(crate) fn withdraw(&self, callback_id: &str) {
        if let Some(call) = crate::lock(&self.pending).by_id.remove(callback_id) {
            call.task.abort();
        }
    }

    /// Compares with what is pending on the server: takes up what is new, and ends what is over.
    pub(crate) fn reconcile(self: &Arc<Self>, callbacks: Vec<bridge::Callback>, participant_id: &str) {
        let ids: HashSet<_> = callbacks.iter().map(|callback| callback.callback_id.as_str()).collect();
        let over: Vec<_> = {
            let pending = crate::lock(&self.pending);
            pending.by_id.keys().filter(|id| !ids.contains(&***id)).cloned().collect()
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

    /// Runs the handler. Returns none if this participant does not answer the callback.
    async fn answer(&self, mut callback: bridge::Callback, id: &str, offered: bool) -> Result<Option<Answer>> {
        if callback.total_bytes != 0 {
            match self.connection.read_callback(&callback.session_id, id).await {
                Ok(whole) if !self.handlers.takes(&whole, offered) => return Ok(None),
                Ok(whole) => callback = whole,
                Err(error) if error.reason() == Reason::CallbackResolved => return Err(error),
                Err(error) => {
                    tracing::warn!(callback_id = id, %error, "callback not read");
                    return Ok(Some(answer_error("the request could not be read")));
                }
            }
        }
        let is_tool = matches!(callback.request, Some(Request::ToolCall(_)));
        let running = if is_tool { &self.tools } else { &self.questions };
        let _permit = running.acquire().await;
        Ok(Some(self.handlers.answer(callback, id).await))
    }

    /// Sends an answer, on the first stream that takes it.
    async fn deliver(&self, id: &str, serial: u64) -> Result<()> {
        while !self.send(id, serial, |frame| self.line.try_send(frame)) {
            let link = self.line.live().await?;
            if let Some(place) = link.reserve().await {
                self.send(id, serial, |frame| Some(place.send(frame)));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends an answer by a function that returns the number of its stream. Returns true also if the callback is over.
    fn send(&self, id: &str, serial: u64, by: impl FnOnce(Frame) -> Option<u64>) -> bool {
        let mut pending = crate::lock(&self.pending);
        let Some(given) = pending.of(id, serial).and_then(|call| call.given.as_mut()) else { return true };
        let message = bridge::CallbackAnswer {
            callback_id: id.to_owned(),
            answer: Some(bridge::Answer { answer: Some(given.answer.clone()) }),
        };
        given.sent_on = by(Frame::Answer(Box::new(message)));
        let sent = given.sent_on.is_some();
        if sent && matches!(given.answer, Answer::Abstain(_)) {
            pending.by_id.remove(id); // the server does not reply
        }
        sent
    }
}

impl Pending {
    /// A callback, if its task is still the one of this number.
    fn of(&mut self, id: &str, serial: u64) -> Option<&mut Call> {
        self.by_id.get_mut(id).filter(|call| call.serial == serial)
    }
}

/// Removes a callback when its task ends, in whatever way, unless its answer waits for the server's reply.
struct Registration {
    calls: Arc<Calls>,
    id: Arc<str>,
    serial: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut pending = crate::lock(&self.calls.pending);
        let sent = |call: &Call| call.given.as_ref().is_some_and(|given| given.sent_on.is_some());
        if pending.of(&self.id, self.serial).is_some_and(|call| !sent(call)) {
            pending.by_id.remove(&self.id);
        }
    }
}
