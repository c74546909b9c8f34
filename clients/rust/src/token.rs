//! Bearer tokens.

use std::fmt;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use crate::error::{Error, Reason, Result};

type Source = dyn Fn() -> Pin<Box<dyn Future<Output = Result<String>> + Send>> + Send + Sync;

/// A bearer token. [`Token::file`] and [`Token::function`] make tokens that change while a client uses them.
#[derive(Clone)]
pub struct Token {
    source: Arc<Source>,
    latest: Arc<Mutex<Latest>>,
}

/// The token that the source gave last, and the number of its changes until then.
#[derive(Default)]
struct Latest {
    text: String,
    generation: u64,
}

impl Token {
    /// A token that does not change.
    pub fn fixed(token: impl Into<String>) -> Self {
        let token = token.into();
        Self::function(move || std::future::ready(Ok::<_, Error>(token.clone())))
    }

    /// The content of a file, without surrounding space. The file is read again after it has changed.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        // Two files that replace each other within a tick of the kernel's clock have the same time.
        let read = Arc::new(Mutex::new(((SystemTime::UNIX_EPOCH, 0, 0), String::new())));
        let path = Arc::new(path.into());
        Self::function(move || {
            let (path, read) = (path.clone(), read.clone());
            async move {
                let file = tokio::fs::metadata(&*path).await?;
                let version = (file.modified()?, file.len(), file.ino());
                let known = crate::lock(&read).clone();
                if known.0 == version {
                    return Ok(known.1);
                }
                let text = tokio::fs::read_to_string(&*path).await?.trim().to_owned();
                *crate::lock(&read) = (version, text.clone());
                Ok::<_, std::io::Error>(text)
            }
        })
    }

    /// The function's result. The library calls it before each call; it should cache the token.
    pub fn function<F, Fut, E>(function: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<String, E>> + Send + 'static,
        E: fmt::Display,
    {
        let source = move || -> Pin<Box<dyn Future<Output = Result<String>> + Send>> {
            let future = function();
            Box::pin(
                async move { future.await.map_err(|e| Error::new(Reason::Unauthenticated, format!("no token: {e}"))) },
            )
        };
        Self { source: Arc::new(source), latest: Arc::default() }
    }

    /// The current token and its generation, by which a call remembers the token that it sent.
    pub(crate) async fn value(&self) -> Result<(String, u64)> {
        let token = (self.source)().await?;
        let mut latest = crate::lock(&self.latest);
        if latest.text != token {
            latest.text.clone_from(&token);
            latest.generation += 1;
        }
        Ok((token, latest.generation))
    }

    /// Whether the current token is another one than that of a generation.
    pub(crate) async fn is_newer_than(&self, generation: u64) -> bool {
        self.value().await.is_ok_and(|(_, current)| current != generation)
    }
}

impl From<&str> for Token {
    fn from(token: &str) -> Self {
        Self::fixed(token)
    }
}

impl From<String> for Token {
    fn from(token: String) -> Self {
        Self::fixed(token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn file_is_read_again_after_a_change() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), " one\n").unwrap();
        let token = Token::file(file.path());
        let (text, first) = token.value().await.unwrap();
        assert_eq!(text, "one");
        assert!(!token.is_newer_than(first).await);
        std::fs::write(file.path(), "two").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(file.path()).unwrap().set_modified(later).unwrap();
        // Also for a second call with the first token, after another one has read the new token.
        assert!(token.is_newer_than(first).await);
        assert!(token.is_newer_than(first).await);
        let (text, second) = token.value().await.unwrap();
        assert_eq!(text, "two");
        assert!(!token.is_newer_than(second).await);
    }

    #[tokio::test]
    async fn another_file_of_the_same_time_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (path, next) = (folder.path().join("token"), folder.path().join("next"));
        std::fs::write(&path, "one").unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let token = Token::file(&path);
        let (_, first) = token.value().await.unwrap();
        std::fs::write(&next, "two").unwrap();
        std::fs::File::options().write(true).open(&next).unwrap().set_modified(time).unwrap();
        std::fs::rename(&next, &path).unwrap();
        assert!(token.is_newer_than(first).await);
    }

    #[tokio::test]
    async fn missing_file_is_an_error_that_names_the_cause() {
        let error = Token::file("/no/such/file").value().await.unwrap_err();
        assert_eq!(error.reason(), Reason::Unauthenticated);
        assert!(error.message().starts_with("no token: No such file"), "{error}");
    }
}
