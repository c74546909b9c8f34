//! Results of the library as messages of the suite.

use copilot_grpc::{Entry, Error, GapReason, Outcome, Reason, TurnStatus};

use crate::pb;

pub fn outcome_of(outcome: Outcome) -> pb::Outcome {
    let status = match outcome.status {
        TurnStatus::Completed => "COMPLETED",
        TurnStatus::Aborted => "ABORTED",
        TurnStatus::Failed => "FAILED",
        TurnStatus::Stalled => "STALLED",
        TurnStatus::RuntimeLost => "RUNTIME_LOST",
        TurnStatus::TimedOut => "TIMED_OUT",
        _ => "UNKNOWN",
    };
    let error = outcome.clone().error_for_status().err().map(|error| error.to_string()).unwrap_or_default();
    let error_type = outcome.error.map(|error| error.error_type).unwrap_or_default();
    pb::Outcome { status: status.to_owned(), text: outcome.text, error_type, error }
}

pub fn event_of(entry: &Entry) -> pb::Event {
    let position = entry.position();
    let (epoch, seq) = (position.epoch, position.seq);
    let Entry::Gap(gap) = entry else {
        return pb::Event { r#type: entry.event_type().to_owned(), epoch, seq, gap: String::new() };
    };
    let reason = match gap.reason() {
        GapReason::EphemeralLost => "EPHEMERAL_LOST",
        GapReason::Trimmed => "TRIMMED",
        GapReason::EpochEnded => "EPOCH_ENDED",
        _ => "UNKNOWN",
    };
    pb::Event { r#type: String::new(), epoch, seq, gap: reason.to_owned() }
}

pub fn problem(kind: pb::error::Kind, message: &str) -> pb::Error {
    pb::Error { kind: kind.into(), message: message.to_owned(), ..Default::default() }
}

/// Tells what kind of error it is.
pub fn error_of(error: &Error) -> pb::Error {
    use pb::error::Kind;

    let cause = error.metadata().get("cause").cloned().unwrap_or_default();
    match error.reason() {
        Reason::ServerIncompatible => return problem(Kind::Incompatible, &error.to_string()),
        Reason::SessionClosed if cause == "closed" => return problem(Kind::Closed, &error.to_string()),
        Reason::SessionClosed => {
            let reason = cause.to_uppercase();
            return pb::Error { reason, ..problem(Kind::SessionClosed, &error.to_string()) };
        }
        _ => {}
    }
    // Reasons of the library itself are none of the server.
    let own = [Reason::ConnectionLost, Reason::DeadlineExceeded, Reason::ServerNotFound];
    let reason = if own.contains(&error.reason()) { String::new() } else { error.reason_name().to_owned() };
    let code = format!("{:?}", error.code());
    let code = code.chars().enumerate().fold(String::new(), |name, (i, letter)| match letter {
        'A'..='Z' if i > 0 => format!("{name}_{letter}"),
        _ => format!("{name}{}", letter.to_ascii_uppercase()),
    });
    pb::Error { code, reason, field: error.field().to_owned(), ..problem(Kind::Status, &error.to_string()) }
}
