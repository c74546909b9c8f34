//! Back-off of streams and calls.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// Defines how broken streams are opened again. Pauses are random, up to a maximum that doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconnect {
    /// Maximum of the first pause; default 100 ms.
    pub first: Duration,
    /// Limit of that maximum; default 5 s.
    pub longest: Duration,
    /// Time without a live stream after which the last error is final; default 5 min. Zero disables reconnection.
    pub give_up_after: Duration,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(5),
            give_up_after: Duration::from_secs(300),
        }
    }
}

impl Reconnect {
    /// No reconnection: the first error is final.
    pub fn never() -> Self {
        Self { give_up_after: Duration::ZERO, ..Self::default() }
    }

    /// How the first call is repeated: briefly, for a server that restarts just then.
    pub(crate) fn of_connecting(self) -> Self {
        Self { give_up_after: self.give_up_after.min(Duration::from_secs(1)), ..self.of_calls() }
    }

    /// How the call that leaves a session is repeated, until its caller gives up; not at all if streams are not.
    pub(crate) fn of_leaving(self) -> Self {
        if self.give_up_after.is_zero() { self } else { Self { give_up_after: Duration::MAX, ..self.of_calls() } }
    }

    /// How calls with a request id are repeated; not at all if streams are not. The time is long enough for a server or
    /// a CLI process that is being replaced.
    pub(crate) fn of_calls(self) -> Self {
        if self.give_up_after.is_zero() {
            return self;
        }
        Self {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(1),
            give_up_after: Duration::from_secs(3),
        }
    }
}

/// The pauses between the attempts of one stream or call.
#[derive(Clone, Copy)]
pub(crate) struct Backoff {
    policy: Reconnect,
    limit: Duration,
    alive_at: Instant,
    token_replaced: bool,
}

impl Backoff {
    pub(crate) fn new(policy: Reconnect) -> Self {
        Self { policy, limit: policy.first, alive_at: Instant::now(), token_replaced: false }
    }

    /// Notes that the stream is alive.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.policy);
    }

    /// Notes that the token was replaced, which is a reason for one attempt. Returns whether it was the first time.
    pub(crate) fn note_replaced_token(&mut self) -> bool {
        !std::mem::replace(&mut self.token_replaced, true)
    }

    /// Sleeps before the next attempt. Returns false, without sleeping, if there is to be none.
    pub(crate) async fn wait(&mut self, error: &Error) -> bool {
        match self.next(error.retry_after(), fastrand::f64()) {
            Some(delay) => {
                tokio::time::sleep(delay).await;
                true
            }
            None => false,
        }
    }

    /// The next pause: `random`, from 0 to 1, of the maximum, after what the server asks for.
    fn next(&mut self, retry_after: Duration, random: f64) -> Option<Duration> {
        let delay = retry_after + self.limit.mul_f64(random);
        self.limit = (self.limit * 2).min(self.policy.longest);
        (self.alive_at.elapsed() + delay < self.policy.give_up_after).then_some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_end() {
        let policy = Reconnect { first: MS(100), longest: MS(400), give_up_after: MS(3000) };
        let mut backoff = Backoff::new(policy);
        let pauses: Vec<_> = (0..4).map(|_| backoff.next(Duration::ZERO, 1.0)).collect();
        assert_eq!(pauses, [Some(MS(100)), Some(MS(200)), Some(MS(400)), Some(MS(400))]);
        assert_eq!(backoff.next(MS(1000), 0.5), Some(MS(1200)));
        tokio::time::advance(MS(2700)).await;
        assert_eq!(backoff.next(Duration::ZERO, 1.0), None);
        backoff.reset();
        assert_eq!(backoff.next(Duration::ZERO, 1.0), Some(MS(100)));
        assert_eq!(Backoff::new(Reconnect::never()).next(Duration::ZERO, 0.0), None);
    }
}
