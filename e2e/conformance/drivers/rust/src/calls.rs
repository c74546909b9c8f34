//! Steps about more than one session.

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::{Client, PendingChange, Result, answers};

use crate::pb;

/// The turns and the requests of a session.
pub async fn usage(client: &Client, session_id: String) -> Result<(i64, i64)> {
    let rows = client.usage(bridge::GetUsageRequest { session_id, ..Default::default() }).await?;
    Ok(rows.iter().fold((0, 0), |sum, row| (sum.0 + row.turns, sum.1 + row.requests)))
}

/// Answers callbacks of all sessions until as many have ended as the step says.
pub async fn inbox(client: &Client, step: pb::Inbox) -> Result<()> {
    let mut watch = client.watch_pending().handle();
    for (name, value) in step.labels {
        watch = watch.label(name, value);
    }
    let mut changes = watch.stream();
    let mut ended = 0;
    while let Some(change) = changes.next().await {
        match change? {
            PendingChange::Waiting(pending) => {
                let approve = step.permission == "approve";
                pending.answer(if approve { answers::approve() } else { answers::reject("Permission denied.") }).await?;
            }
            PendingChange::Ended(_) => {
                ended += 1;
                if ended == step.count {
                    break;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
