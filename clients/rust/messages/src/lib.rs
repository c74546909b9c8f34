//! Messages of the gRPC interface of [copilot-grpc](https://github.com/copilot-grpc/copilot-grpc).
//!
//! Programs use the crate [`copilot-grpc`](https://docs.rs/copilot-grpc), which exports the module `cli`. The messages
//! are a separate crate because the compiler needs less memory for two small crates than for a large one.
//!
//! The feature `cli` adds the messages for all services of `copilot.cli.v1`.

// The generated code of both crates has the same paths.
extern crate self as copilot_grpc_messages;

#[doc(hidden)]
pub mod debug;

/// Protocol buffers of the CLI's interface.
pub mod cli {
    /// Messages of `copilot.cli.v1`: those that `copilot.bridge.v1` uses, and with the feature `cli` all others.
    #[allow(deprecated, missing_docs, unreachable_pub, unused, clippy::all, clippy::unwrap_used, rustdoc::all)]
    #[rustfmt::skip]
    pub mod v1 {
        include!("gen/copilot.cli.v1.rs");
        #[cfg(feature = "cli")]
        include!("gen/copilot.cli.v1.extra.rs");
    }
}
