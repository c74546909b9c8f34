//! Two participants in one session: one brings a tool, the other one asks and decides about permissions.
//!
//! cargo run --example shared

use copilot_grpc::{Client, PermissionRequest, Tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    city: String,
}

async fn get_weather(place: Place) -> String {
    println!("worker: tells the weather in {}", place.city);
    format!("rain in {}", place.city)
}

async fn decide(request: PermissionRequest) -> bool {
    println!("boss: permits {}", request.kind);
    request.kind == "custom-tool"
}

#[tokio::main]
async fn main() -> copilot_grpc::Result<()> {
    let boss = Client::connect_default().name("boss").await?;
    let worker = Client::connect_default().name("worker").await?;
    let session = boss.create_session().on_permission(decide).await?;
    let tool = Tool::new("get_weather", "Tells the weather in a city.", get_weather);
    let helper = worker.join_session(session.id()).tool(tool).await?;
    let mut names: Vec<_> = session.get().await?.proto.participants.into_iter().map(|one| one.name).collect();
    names.sort();
    println!("participants: {}", names.join(", "));
    let outcome = session.send_and_wait("What is the weather in Paris?").await?;
    println!("agent: {}", outcome.text);
    helper.close().await;
    session.delete().await
}
