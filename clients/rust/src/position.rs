//! Positions in the journal of a session.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;

use crate::bridge::v1 as bridge;
use crate::error::Error;

/// Trailer of replies with the journal's last position.
pub(crate) const TRAILER: &str = "copilot-position";

/// A position in a session's journal. Positions are ordered, and stay valid across restarts.
///
/// The text form is `EPOCH/SEQ`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Increases whenever continuity of the journal cannot be proven.
    pub epoch: u64,
    /// Number of the event in the epoch, from 1.
    pub seq: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.epoch, self.seq)
    }
}

impl FromStr for Position {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('/').and_then(|(epoch, seq)| Some((digits(epoch)?, digits(seq)?)));
        match parts {
            Some((epoch, seq)) => Ok(Self { epoch, seq }),
            None => Err(Error::invalid("position", format!("{text:?} is no position: want EPOCH/SEQ"))),
        }
    }
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl From<bridge::Position> for Position {
    fn from(message: bridge::Position) -> Self {
        Self { epoch: message.epoch, seq: message.seq }
    }
}

impl From<Position> for bridge::Position {
    fn from(position: Position) -> Self {
        Self { epoch: position.epoch, seq: position.seq }
    }
}

/// The latest position of a session that this program has seen.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Position>);

impl Progress {
    pub(crate) fn last(&self) -> Option<Position> {
        let last = *crate::lock(&self.0);
        (last != Position::default()).then_some(last)
    }

    /// Takes a position, unless a later one is known. An unset position changes nothing.
    pub(crate) fn note(&self, position: Option<impl Into<Position>>) {
        if let Some(position) = position.map(Into::into) {
            let mut last = crate::lock(&self.0);
            *last = position.max(*last);
        }
    }

    /// Takes the position in the trailers of a reply.
    pub(crate) fn note_trailers(&self, trailers: &tonic::metadata::MetadataMap) {
        let text = trailers.get(TRAILER).and_then(|value| value.to_str().ok());
        self.note(text.and_then(|text| text.parse::<Position>().ok()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form() {
        let position = Position { epoch: 7, seq: 42 };
        assert_eq!(position.to_string(), "7/42");
        assert_eq!("7/42".parse::<Position>().unwrap(), position);
        for bad in ["", "7", "7/", "/42", "7/-1", "+7/4", "7/4/2", "a/b", "99999999999999999999/1"] {
            assert!(bad.parse::<Position>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn progress_never_goes_back() {
        let progress = Progress::default();
        assert_eq!(progress.last(), None);
        for (epoch, seq) in [(1, 5), (1, 3), (2, 1), (1, 9)] {
            progress.note(Some(Position { epoch, seq }));
        }
        progress.note(None::<Position>);
        assert_eq!(progress.last(), Some(Position { epoch: 2, seq: 1 }));
    }
}
