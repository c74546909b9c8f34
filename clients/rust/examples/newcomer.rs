//! Has turns in a session, which continues where an earlier run left it: newcomer SESSION PROMPT...

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use copilot_grpc::{Client, Tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Query {
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let id = arguments.next().ok_or("usage: newcomer SESSION PROMPT...")?;
    let weather = Tool::new("get_weather", "Tells the weather in a city.", |query: Query| async move {
        format!("rain in {}", query.city)
    });
    let asked = AtomicBool::new(false);
    let client = Client::connect_default().await?;
    let builder = client.open_session(id).tool(weather).on_permission(move |request| {
        let again = asked.swap(true, Ordering::Relaxed);
        println!("{} {}", if again { "refused" } else { "approved" }, request.kind);
        async move { if again { request.reject("Once is enough.") } else { request.approve() } }
    });
    let session = builder.await?;
    for prompt in arguments {
        let mut turn = session.run(prompt);
        let mut deltas = turn.deltas();
        while let Some(text) = deltas.next().await {
            print!("{}", text?);
            std::io::stdout().flush()?;
        }
        let outcome = turn.outcome().await?;
        println!("\n{} {}", outcome.status, outcome.error.unwrap_or_default().message);
    }
    for found in client.list_sessions(Default::default()).collect().await? {
        println!("{} is {}", found.id, found.state);
    }
    session.export_to(tokio::fs::File::create("session.tar.gz").await?).await?;
    Ok(())
}
