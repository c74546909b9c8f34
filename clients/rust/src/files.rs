//! Session files that this program stores, instead of the CLI.

use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::bridge::v1 as bridge;
use crate::cli::v1 as cli;
use crate::error::HandlerError;
use crate::handlers::Handlers;
use crate::kind;

pub(crate) const FILE_MODE: u32 = 0o600;
pub(crate) const DIRECTORY_MODE: u32 = 0o700;

/// Attributes of a file or directory.
#[derive(Clone, Debug)]
pub struct FileInfo {
    /// The last element of the path.
    pub name: String,
    /// A directory, and not a file.
    pub is_directory: bool,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change.
    pub modified_at: SystemTime,
}

/// A file system with absolute paths and slashes. Methods run in threads of the runtime that may block.
///
/// A missing path is an error of the kind `NotFound`.
pub trait Files: Send + Sync + 'static {
    /// The content of a file.
    fn read(&self, path: &str) -> IoResult<Vec<u8>>;
    /// Replaces a file's content. Its directory exists.
    fn write(&self, path: &str, data: &[u8], mode: u32) -> IoResult<()>;
    /// Adds to a file. Creates the file and its directories if necessary.
    fn append(&self, path: &str, data: &[u8], mode: u32) -> IoResult<()>;
    /// Attributes of a path.
    fn stat(&self, path: &str) -> IoResult<FileInfo>;
    /// Creates a directory. If `recursive`, also its parents, and an existing one is no error.
    fn make_directory(&self, path: &str, recursive: bool, mode: u32) -> IoResult<()>;
    /// The entries of a directory.
    fn list_directory(&self, path: &str) -> IoResult<Vec<FileInfo>>;
    /// Moves a path.
    fn rename(&self, source: &str, target: &str) -> IoResult<()>;
    /// Removes a file, or if `recursive` a directory with its content.
    fn remove(&self, path: &str, recursive: bool) -> IoResult<()>;
}

/// Stores the files of one session, which the CLI would write to its home.
///
/// The session can only be used while a participant with its files is attached; `disconnect` and `delete` write too. The
/// session has no SQLite database unless the `on_fs_sqlite_*` handlers provide one and [`sqlite`](Self::sqlite) is set.
#[derive(Clone)]
pub struct SessionFiles {
    files: Arc<dyn Files>,
    message: bridge::SessionFileSystem,
}

impl SessionFiles {
    /// The files of a session.
    pub fn new(files: impl Files) -> Self {
        let message = bridge::SessionFileSystem {
            initial_directory: "/".to_owned(),
            state_path: "/session-state".to_owned(),
            binary: true,
            ..Default::default()
        };
        Self { files: Arc::new(files), message }
    }

    /// The session's first working directory, a path in the files; default `/`.
    pub fn initial_directory(mut self, path: impl Into<String>) -> Self {
        self.message.initial_directory = path.into();
        self
    }

    /// Directory for the CLI's files about the session; default `/session-state`.
    pub fn state_path(mut self, path: impl Into<String>) -> Self {
        self.message.state_path = path.into();
        self
    }

    /// Sessions with the same key share a CLI process; default: one for this session.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.message.key = key.into();
        self
    }

    /// The session has a SQLite database.
    pub fn sqlite(mut self) -> Self {
        self.message.sqlite = true;
        self
    }

    pub(crate) fn message(&self) -> bridge::SessionFileSystem {
        self.message.clone()
    }

    /// Sets the handlers of the callbacks about files.
    pub(crate) fn register(&self, handlers: &mut Handlers) {
        macro_rules! on {
            ($($kind:ident: $answer:path;)*) => {$(
                let files = self.files.clone();
                handlers.on::<kind::$kind, _, _>(move |request| blocking(files.clone(), request, $answer));
            )*};
        }
        on! {
            FsReadFile: read_file;
            FsReadFileBytes: read_file_bytes;
            FsWriteFile: write_file;
            FsWriteFileBytes: write_file_bytes;
            FsAppendFile: append_file;
            FsExists: exists;
            FsStat: stat;
            FsMkdir: mkdir;
            FsReaddir: readdir;
            FsReaddirWithTypes: readdir_with_types;
            FsRm: rm;
            FsRename: rename;
        }
    }
}

/// Answers in a thread that may block.
async fn blocking<R: Send + 'static, A: Send + 'static>(
    files: Arc<dyn Files>,
    request: R,
    answer: fn(&dyn Files, R) -> A,
) -> Result<A, HandlerError> {
    Ok(tokio::task::spawn_blocking(move || answer(&*files, request)).await?)
}

fn is_missing(error: &IoError) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn fs_error(error: &IoError) -> cli::SessionFsError {
    let code = if is_missing(error) { cli::SessionFsErrorCode::Enoent } else { cli::SessionFsErrorCode::Unknown };
    cli::SessionFsError { code: code.into(), message: Some(error.to_string()), ..Default::default() }
}

/// The value of a result, or a default, and its error as a message.
fn parts<T: Default>(result: IoResult<T>) -> (T, Option<cli::SessionFsError>) {
    match result {
        Ok(value) => (value, None),
        Err(error) => (T::default(), Some(fs_error(&error))),
    }
}

fn mode(asked: Option<i64>, default: u32) -> u32 {
    asked.and_then(|mode| u32::try_from(mode & 0o777).ok()).unwrap_or(default)
}

fn read_file(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceReadFileRequest,
) -> cli::CallbackSessionFsServiceReadFileResponse {
    let (data, error) = parts(files.read(&request.path));
    let content = String::from_utf8_lossy(&data).into_owned();
    cli::CallbackSessionFsServiceReadFileResponse { content, error, ..Default::default() }
}

fn read_file_bytes(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceReadFileBytesRequest,
) -> cli::CallbackSessionFsServiceReadFileBytesResponse {
    let (data, error) = parts(files.read(&request.path));
    cli::CallbackSessionFsServiceReadFileBytesResponse { content: STANDARD.encode(data), error, ..Default::default() }
}

fn write_file(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceWriteFileRequest,
) -> cli::CallbackSessionFsServiceWriteFileResponse {
    let (data, mode) = (request.content.as_bytes(), mode(request.mode, FILE_MODE));
    let value = parts(files.write(&request.path, data, mode)).1;
    cli::CallbackSessionFsServiceWriteFileResponse { value, ..Default::default() }
}

fn write_file_bytes(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceWriteFileBytesRequest,
) -> cli::CallbackSessionFsServiceWriteFileBytesResponse {
    let data = STANDARD.decode(&request.content).map_err(IoError::other);
    let mode = mode(request.mode, FILE_MODE);
    let value = parts(data.and_then(|data| files.write(&request.path, &data, mode))).1;
    cli::CallbackSessionFsServiceWriteFileBytesResponse { value, ..Default::default() }
}

fn append_file(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceAppendFileRequest,
) -> cli::CallbackSessionFsServiceAppendFileResponse {
    let (data, mode) = (request.content.as_bytes(), mode(request.mode, FILE_MODE));
    let value = parts(files.append(&request.path, data, mode)).1;
    cli::CallbackSessionFsServiceAppendFileResponse { value, ..Default::default() }
}

fn exists(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceExistsRequest,
) -> cli::CallbackSessionFsServiceExistsResponse {
    let exists = files.stat(&request.path).is_ok();
    cli::CallbackSessionFsServiceExistsResponse { exists, ..Default::default() }
}

fn stat(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceStatRequest,
) -> cli::CallbackSessionFsServiceStatResponse {
    let (info, error) = parts(files.stat(&request.path).map(Some));
    let time = info.as_ref().map_or(SystemTime::UNIX_EPOCH, |info| info.modified_at);
    cli::CallbackSessionFsServiceStatResponse {
        is_file: info.as_ref().is_some_and(|info| !info.is_directory),
        is_directory: info.as_ref().is_some_and(|info| info.is_directory),
        size: info.map_or(0, |info| i64::try_from(info.size).unwrap_or(i64::MAX)),
        mtime: Some(time.into()),
        birthtime: Some(time.into()),
        error,
        ..Default::default()
    }
}

fn mkdir(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceMkdirRequest,
) -> cli::CallbackSessionFsServiceMkdirResponse {
    let mode = mode(request.mode, DIRECTORY_MODE);
    let value = parts(files.make_directory(&request.path, request.recursive(), mode)).1;
    cli::CallbackSessionFsServiceMkdirResponse { value, ..Default::default() }
}

fn readdir(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceReaddirRequest,
) -> cli::CallbackSessionFsServiceReaddirResponse {
    let (entries, error) = parts(files.list_directory(&request.path));
    let entries = entries.into_iter().map(|entry| entry.name).collect();
    cli::CallbackSessionFsServiceReaddirResponse { entries, error, ..Default::default() }
}

fn readdir_with_types(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceReaddirWithTypesRequest,
) -> cli::CallbackSessionFsServiceReaddirWithTypesResponse {
    use cli::SessionFsReaddirWithTypesEntryType as EntryType;

    let (entries, error) = parts(files.list_directory(&request.path));
    let entry = |info: FileInfo| {
        let entry_type = if info.is_directory { EntryType::Directory } else { EntryType::File };
        cli::SessionFsReaddirWithTypesEntry { name: info.name, entry_type: entry_type.into(), ..Default::default() }
    };
    let entries = entries.into_iter().map(entry).collect();
    cli::CallbackSessionFsServiceReaddirWithTypesResponse { entries, error, ..Default::default() }
}

fn rm(files: &dyn Files, request: cli::CallbackSessionFsServiceRmRequest) -> cli::CallbackSessionFsServiceRmResponse {
    let removed = match files.remove(&request.path, request.recursive()) {
        Err(error) if request.force() && is_missing(&error) => Ok(()),
        removed => removed,
    };
    cli::CallbackSessionFsServiceRmResponse { value: parts(removed).1, ..Default::default() }
}

fn rename(
    files: &dyn Files,
    request: cli::CallbackSessionFsServiceRenameRequest,
) -> cli::CallbackSessionFsServiceRenameResponse {
    let value = parts(files.rename(&request.src, &request.dest)).1;
    cli::CallbackSessionFsServiceRenameResponse { value, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DirectoryFiles;

    #[test]
    fn errors_are_part_of_answers() {
        let folder = tempfile::tempdir().unwrap();
        let files = DirectoryFiles::new(folder.path()).unwrap();
        let path = || "/none".to_owned();
        let read =
            read_file(&files, cli::CallbackSessionFsServiceReadFileRequest { path: path(), ..Default::default() });
        assert_eq!(read.error.unwrap().code(), cli::SessionFsErrorCode::Enoent);
        let mut request = cli::CallbackSessionFsServiceRmRequest { path: path(), ..Default::default() };
        assert_eq!(rm(&files, request.clone()).value.unwrap().code(), cli::SessionFsErrorCode::Enoent);
        request.force = Some(true);
        assert_eq!(rm(&files, request).value, None);
    }
}
