//! Prints a session's events, one a line, and stores its position in a file.
//!
//! Broken connections and restarts of the server leave no trace in the output. After a restart of this program, the
//! output continues where it ended.
//!
//! cargo run --example watcher SESSION_ID POSITION_FILE

use copilot_grpc::{Client, Entry, Start};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(session_id), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: watcher SESSION_ID POSITION_FILE".into());
    };
    let start = match std::fs::read_to_string(&file) {
        Ok(text) => Start::After(text.parse()?),
        Err(_) => Start::Beginning,
    };
    let new = format!("{file}.new");
    let client = Client::connect_default().await?;
    let mut events = client.session(session_id).events().start(start).exclude(["model.*"]).stream();
    while let Some(entry) = events.next().await {
        let entry = entry?;
        match &entry {
            Entry::Gap(gap) => println!("missing: {} to {}, {:?}", gap.after(), gap.through(), gap.reason()),
            Entry::Event(event) => println!("{} {}", event.position(), event.event_type()),
        }
        // The file is replaced at once, so that the end of this program cannot leave half of it.
        std::fs::write(&new, entry.position().to_string())?;
        std::fs::rename(&new, &file)?;
    }
    Ok(())
}
