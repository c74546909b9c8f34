//! An agent with a tool, and a person who decides about permissions.
//!
//! cargo run --example agent "What is the weather in Paris?"

use std::io::Write;

use copilot_grpc::permission::{Decision, Rules};
use copilot_grpc::{Client, Json, PermissionRequest, Tool, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const WEATHER: [(&str, &str); 2] = [("Paris", "rain"), ("Cairo", "sun")];

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
enum Unit {
    #[default]
    C,
    F,
}

#[derive(Deserialize, JsonSchema)]
struct Place {
    /// The city's English name.
    city: String,
    /// Unit of the temperature.
    #[serde(default)]
    unit: Unit,
}

#[derive(Serialize)]
struct Weather {
    sky: &'static str,
    temperature: i32,
}

async fn get_weather(place: Place) -> Result<Json<Weather>, ToolError> {
    let found = WEATHER.iter().find(|(city, _)| *city == place.city);
    let Some((_, sky)) = found else {
        let cities = WEATHER.map(|(city, _)| city).join(", ");
        return Err(ToolError::new(format!("There is no forecast for {}, only for {cities}.", place.city)));
    };
    let temperature = if matches!(place.unit, Unit::C) { 12 } else { 54 };
    Ok(Json(Weather { sky, temperature }))
}

async fn ask_person(request: PermissionRequest) -> Result<Decision, std::io::Error> {
    println!("The agent asks for permission: {} [y/n/s]", request.kind);
    // Reading blocks the thread.
    let answer = tokio::task::spawn_blocking(|| std::io::stdin().lines().next().transpose()).await??;
    Ok(match answer.as_deref() {
        Some("s") => request.approve_for_session(),
        Some("y") => request.approve(),
        _ => request.reject("The user said no."),
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let prompt = std::env::args().nth(1).ok_or("usage: agent PROMPT")?;
    let client = Client::connect_default().await?;
    let session = client
        .create_session()
        .tool(Tool::new("get_weather", "Tells the weather in a city.", get_weather))
        .permissions(Rules::new().approve(["read"]).otherwise(ask_person))
        .await?;
    let mut turn = session.run(prompt);
    let mut deltas = turn.deltas();
    while let Some(text) = deltas.next().await {
        print!("{}", text?);
        std::io::stdout().flush()?;
    }
    println!();
    turn.outcome().await?.error_for_status()?;
    session.delete().await?;
    Ok(())
}
