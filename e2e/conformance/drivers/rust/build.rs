//! Generates the messages of the conformance suite.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = "../../proto";
    println!("cargo::rerun-if-changed={proto}");
    let files = protox::compile(["copilot/conformance/v1/conformance.proto"], [proto])?;
    prost_build::Config::new().compile_fds(files)?;
    Ok(())
}
