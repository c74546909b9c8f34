//! Talks to an agent and asks you for permissions. With an argument it brings the agent's tool instead.

use std::io::Write;

use copilot_grpc::permission::Decision;
use copilot_grpc::{Client, PermissionRequest, Tool};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Returns the line that the user types. The runtime's other tasks go on meanwhile.
fn read(prompt: &str) -> std::io::Result<String> {
    tokio::task::block_in_place(|| {
        print!("{prompt}");
        std::io::stdout().flush()?;
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    })
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Query {
    city: String,
}

async fn get_weather(query: Query) -> String {
    println!("get_weather runs for {}", query.city);
    format!("rain in {}", query.city)
}

async fn ask(request: PermissionRequest) -> Decision {
    match read(&format!("\nAllow {}? [y/n] ", request.kind)).as_deref() {
        Ok("y") => request.approve(),
        _ => request.reject("The user said no."),
    }
}

async fn work(client: &Client) -> Result<()> {
    let tool = Tool::new("get_weather", "Tells the weather in a city.", get_weather);
    let session = client.join_session("weather").tool(tool).await?;
    read(&format!("The worker of {} is ready. Press Enter to end it.\n", session.id()))?;
    Ok(())
}

async fn talk(client: &Client) -> Result<()> {
    let session = client.open_session("weather").on_permission(ask).await?;
    loop {
        let prompt = read("> ")?;
        if prompt.is_empty() {
            return Ok(());
        }
        let mut turn = session.run(prompt);
        let mut deltas = turn.deltas();
        while let Some(text) = deltas.next().await {
            print!("{}", text?);
            std::io::stdout().flush()?;
        }
        println!();
        turn.outcome().await?.error_for_status()?;
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::connect_default().await?;
    if std::env::args().len() > 1 { work(&client).await } else { talk(&client).await }
}
