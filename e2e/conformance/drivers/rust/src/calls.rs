//! Steps for which the library has only the generated clients.

use std::collections::HashMap;

use copilot_grpc::bridge::v1 as bridge;
use copilot_grpc::bridge::v1::callback_service_client::CallbackServiceClient;
use copilot_grpc::bridge::v1::session_service_client::SessionServiceClient;
use copilot_grpc::bridge::v1::watch_pending_response::Change;
use copilot_grpc::{Client, Error, answers};

use crate::pb;
use crate::report::error_of;

type Done<T> = Result<T, pb::Error>;

fn status(error: impl Into<Error>) -> pb::Error {
    error_of(&error.into())
}

pub async fn update_labels(client: &Client, session_id: String, step: pb::Labels) -> Done<HashMap<String, String>> {
    let request = bridge::UpdateLabelsRequest { session_id, set: step.set, remove: step.remove };
    let reply = SessionServiceClient::new(client.channel()).update_labels(request).await.map_err(status)?;
    Ok(reply.into_inner().session.unwrap_or_default().labels)
}

/// The turns and the requests of a session.
pub async fn usage(client: &Client, session_id: String) -> Done<(i64, i64)> {
    let request = bridge::GetUsageRequest { session_id, ..Default::default() };
    let reply = SessionServiceClient::new(client.channel()).get_usage(request).await.map_err(status)?;
    let rows = reply.into_inner().rows;
    Ok(rows.iter().fold((0, 0), |sum, row| (sum.0 + row.turns, sum.1 + row.requests)))
}

/// Answers callbacks of all sessions until as many have ended as the step says.
pub async fn inbox(client: &Client, step: pb::Inbox) -> Done<()> {
    let mut stub = CallbackServiceClient::new(client.channel());
    let filter = bridge::PendingFilter { labels: step.labels, ..Default::default() };
    let request = bridge::WatchPendingRequest { filter: Some(filter), handle: true, ..Default::default() };
    let mut changes = stub.watch_pending(request).await.map_err(status)?.into_inner();
    let mut ended = 0;
    while let Some(change) = changes.message().await.map_err(status)? {
        match change.change {
            Some(Change::Requested(callback)) => {
                let approve = step.permission == "approve";
                let answer = if approve { answers::approve() } else { answers::reject("Permission denied.") };
                let request = bridge::ResolveRequest {
                    request_id: format!("inbox {} {}", callback.session_id, callback.callback_id),
                    session_id: callback.session_id,
                    callback_id: callback.callback_id,
                    answer: Some(answer),
                };
                stub.resolve(request).await.map_err(status)?;
            }
            Some(Change::Resolved(_)) => {
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
