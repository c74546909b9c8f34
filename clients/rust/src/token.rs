//! Bearer tokens.

use std::fmt;
use std::future::Future;
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
    last: Arc<Mutex<String>>,
}

impl Token {
    /// A token that does not change.
    pub fn fixed(token: impl Into<String>) -> Self {
        let token = token.into();
        Self::function(move || std::future::ready(Ok::<_, Error>(token.clone())))
    }

    /// The content of a file, without surrounding space. The file is read again after it has changed.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let (path, read) = (Arc::new(path.into()), Arc::new(Mutex::new((SystemTime::UNIX_EPOCH, String::new()))));
        Self::function(move || {
            let (path, read) = (path.clone(), read.clone());
            async move {
                let modified = tokio::fs::metadata(&*path).await?.modified()?;
                let known = crate::lock(&read).clone();
                if known.0 == modified {
                    return Ok(known.1);
                }
                let text = tokio::fs::read_to_string(&*path).await?.trim().to_owned();
                *crate::lock(&read) = (modified, text.clone());
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
        Self { source: Arc::new(source), last: Arc::default() }
    }

    /// The current token.
    pub(crate) async fn value(&self) -> Result<String> {
        let token = (self.source)().await?;
        crate::lock(&self.last).clone_from(&token);
        Ok(token)
    }

    /// Whether the current token differs from the one that was used last.
    pub(crate) async fn changed(&self) -> bool {
        let last = crate::lock(&self.last).clone();
        (self.source)().await.is_ok_and(|token| token != last)
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
        assert_eq!(token.value().await.unwrap(), "one");
        assert!(!token.changed().await);
        std::fs::write(file.path(), "two").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(file.path()).unwrap().set_modified(later).unwrap();
        assert!(token.changed().await);
        assert_eq!(token.value().await.unwrap(), "two");
        assert!(!token.changed().await);
    }

    #[tokio::test]
    async fn missing_file_is_an_error_that_names_the_cause() {
        let error = Token::file("/no/such/file").value().await.unwrap_err();
        assert_eq!(error.reason(), Reason::Unauthenticated);
        assert!(error.message().starts_with("no token: No such file"), "{error}");
    }
}
