//! Enums of the API print as the words that all client libraries use: the name without its prefix, in lower case.

use std::fmt;

use crate::bridge::v1 as bridge;

macro_rules! words {
    ($($name:ident $prefix:literal;)*) => {
        $(impl fmt::Display for bridge::$name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.as_str_name().trim_start_matches($prefix).to_ascii_lowercase())
            }
        })*
    };
}

words! {
    CallbackKind "CALLBACK_KIND_";
    Lifetime "LIFETIME_";
    OnInterruption "ON_INTERRUPTION_";
    SessionChange "SESSION_CHANGE_";
    SessionState "SESSION_STATE_";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enums_print_as_words() {
        for (printed, want) in [
            (bridge::CallbackKind::ToolCall.to_string(), "tool_call"),
            (bridge::CallbackKind::Permission.to_string(), "permission"),
            (bridge::Lifetime::EndWithLastParticipant.to_string(), "end_with_last_participant"),
            (bridge::OnInterruption::Continue.to_string(), "continue"),
            (bridge::SessionChange::Created.to_string(), "created"),
            (bridge::SessionState::CredentialsNeeded.to_string(), "credentials_needed"),
        ] {
            assert_eq!(printed, want);
        }
        assert_eq!(format!("{:>8}", bridge::SessionState::Stored), "  stored");
    }
}
