//! Targets: the addresses of servers.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

const FORMS: &str = "`host:port`, `unix:/path` or `dns:///host:port`";

/// A parsed target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The path of a unix socket.
    Unix(PathBuf),
    /// HOST:PORT.
    Tcp(String),
}

impl Target {
    /// Reads `unix:PATH`, `unix:///PATH`, an absolute path, `HOST:PORT` or `dns:///HOST:PORT`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.contains("://") && !["unix://", "dns://"].iter().any(|scheme| text.starts_with(scheme)) {
            let text = format!("{text:?} is a URL: targets look like {FORMS}");
            return Err(Error::invalid("target", text));
        }
        let path = if text.starts_with('/') { Some(text) } else { text.strip_prefix("unix:") };
        if let Some(path) = path {
            let path = path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
            if path.is_empty() {
                return Err(Error::invalid("target", format!("{text:?} has no path")));
            }
            return Ok(Self::Unix(path.into()));
        }
        let address = text.strip_prefix("dns:").unwrap_or(text).trim_start_matches('/');
        let port = address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some((host, Ok(_))) if !host.is_empty() && !host.contains('/') => Ok(Self::Tcp(address.to_owned())),
            _ => Err(Error::invalid("target", format!("{text:?} is no target: targets look like {FORMS}"))),
        }
    }

    /// Whether traffic to the target stays on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let Self::Tcp(address) = self else { return true };
        let host = self::host(address);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// The host of HOST:PORT, without the brackets of an IPv6 address.
pub(crate) fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The default socket of `copilot-grpc serve`.
pub(crate) fn default_socket() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(runtime) = absolute("XDG_RUNTIME_DIR") {
        return runtime.join("copilot-grpc.sock");
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = if cfg!(target_os = "macos") {
        home.join("Library/Caches")
    } else {
        absolute("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"))
    };
    cache.join("copilot-grpc/copilot-grpc.sock")
}

/// Whether a server listens on a socket.
pub(crate) async fn is_listening(socket: &Path) -> bool {
    tokio::net::UnixStream::connect(socket).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let unix = |path: &str| Some(Target::Unix(path.into()));
        let tcp = |address: &str| Some(Target::Tcp(address.into()));
        for (text, want, local) in [
            ("unix:/run/x.sock", unix("/run/x.sock"), true),
            ("unix:///run/x.sock", unix("/run/x.sock"), true),
            ("unix:x.sock", unix("x.sock"), true),
            ("/run/x.sock", unix("/run/x.sock"), true),
            ("localhost:7443", tcp("localhost:7443"), true),
            ("127.0.0.1:1", tcp("127.0.0.1:1"), true),
            ("[::1]:7443", tcp("[::1]:7443"), true),
            ("dns:///agents.example:443", tcp("agents.example:443"), false),
            ("10.0.0.1:443", tcp("10.0.0.1:443"), false),
            ("https://agents.example", None, false),
            ("https://agents.example:443", None, false),
            ("http://localhost:7443", None, false),
            ("agents.example", None, false),
            (":443", None, false),
            ("unix:", None, false),
            ("", None, false),
        ] {
            let got = Target::parse(text).ok();
            assert_eq!(got, want, "{text:?}");
            assert_eq!(got.is_some_and(|target| target.is_local()), local, "{text:?}");
        }
    }
}
