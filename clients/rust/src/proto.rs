//! The generated messages and clients. The messages of `copilot.cli.v1` are in a separate crate: the compiler needs
//! less memory for two small crates than for a large one.

/// Protocol buffers of this server's own interface.
pub mod bridge {
    /// Messages and services of `copilot.bridge.v1`.
    #[allow(deprecated, missing_docs, unreachable_pub, unused, clippy::all, clippy::unwrap_used, rustdoc::all)]
    #[rustfmt::skip]
    pub mod v1 {
        include!("gen/copilot.bridge.v1.rs");
    }
}

/// Protocol buffers of the CLI's interface.
pub mod cli {
    /// Messages of `copilot.cli.v1`: those that `copilot.bridge.v1` uses, and with the feature `cli` all others and the
    /// services.
    #[allow(deprecated, missing_docs, unreachable_pub, unused, clippy::all, clippy::unwrap_used, rustdoc::all)]
    #[rustfmt::skip]
    pub mod v1 {
        #[doc(inline)]
        pub use copilot_grpc_messages::cli::v1::*;

        #[cfg(feature = "cli")]
        include!("gen/copilot.cli.v1.rs");
    }
}
