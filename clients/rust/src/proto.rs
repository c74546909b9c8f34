//! The generated messages and clients.

/// Protocol buffers of this server's own interface.
pub mod bridge {
    /// Messages and services of `copilot.bridge.v1`.
    #[allow(missing_docs, unreachable_pub, unused, clippy::all, clippy::unwrap_used, rustdoc::all)]
    #[rustfmt::skip]
    pub mod v1 {
        include!("gen/copilot.bridge.v1.rs");
    }
}

/// Protocol buffers of the CLI's interface.
pub mod cli {
    /// Messages of `copilot.cli.v1`: those that `copilot.bridge.v1` uses, and with the feature `cli` all others and the
    /// services.
    #[allow(missing_docs, unreachable_pub, unused, clippy::all, clippy::unwrap_used, rustdoc::all)]
    #[rustfmt::skip]
    pub mod v1 {
        include!("gen/copilot.cli.v1.rs");
        #[cfg(feature = "cli")]
        include!("gen/copilot.cli.v1.extra.rs");
    }
}
