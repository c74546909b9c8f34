//! Session files in a directory of this machine.

use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::path::{Component, Path, PathBuf};

use crate::files::{DIRECTORY_MODE, FileInfo, Files};

/// [`Files`] in a directory of this machine. Paths, symbolic links included, cannot leave the directory.
#[derive(Clone, Debug)]
pub struct DirectoryFiles {
    root: PathBuf,
}

impl DirectoryFiles {
    /// Files in an existing directory.
    pub fn new(directory: impl AsRef<Path>) -> IoResult<Self> {
        Ok(Self { root: directory.as_ref().canonicalize()? })
    }

    fn path(&self, path: &str) -> IoResult<PathBuf> {
        let mut found = self.root.clone();
        for part in Path::new(path).components() {
            match part {
                Component::Normal(name) => found.push(name),
                Component::ParentDir if found != self.root => drop(found.pop()),
                _ => {}
            }
        }
        // The nearest existing part of the path must be inside, after all links.
        let existing = found.ancestors().find_map(|part| part.canonicalize().ok());
        let dangling = found.is_symlink() && found.canonicalize().is_err();
        match existing.filter(|existing| !dangling && existing.starts_with(&self.root)) {
            Some(_) => Ok(found),
            None => Err(IoError::new(ErrorKind::PermissionDenied, format!("{path} is outside of the directory"))),
        }
    }
}

impl Files for DirectoryFiles {
    fn read(&self, path: &str) -> IoResult<Vec<u8>> {
        std::fs::read(self.path(path)?)
    }

    fn write(&self, path: &str, data: &[u8], mode: u32) -> IoResult<()> {
        let mut file = options(mode).write(true).create(true).truncate(true).open(self.path(path)?)?;
        std::io::Write::write_all(&mut file, data)
    }

    fn append(&self, path: &str, data: &[u8], mode: u32) -> IoResult<()> {
        let target = self.path(path)?;
        if let Some(parent) = target.parent() {
            directories(true, DIRECTORY_MODE).create(parent)?;
        }
        let mut file = options(mode).append(true).create(true).open(target)?;
        std::io::Write::write_all(&mut file, data)
    }

    fn stat(&self, path: &str) -> IoResult<FileInfo> {
        info(&self.path(path)?)
    }

    fn make_directory(&self, path: &str, recursive: bool, mode: u32) -> IoResult<()> {
        directories(recursive, mode).create(self.path(path)?)
    }

    fn list_directory(&self, path: &str) -> IoResult<Vec<FileInfo>> {
        let mut entries =
            std::fs::read_dir(self.path(path)?)?.map(|entry| info(&entry?.path())).collect::<IoResult<Vec<_>>>()?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn rename(&self, source: &str, target: &str) -> IoResult<()> {
        std::fs::rename(self.path(source)?, self.path(target)?)
    }

    fn remove(&self, path: &str, recursive: bool) -> IoResult<()> {
        let target = self.path(path)?;
        if !target.symlink_metadata()?.is_dir() {
            std::fs::remove_file(target)
        } else if recursive {
            std::fs::remove_dir_all(target)
        } else {
            std::fs::remove_dir(target)
        }
    }
}

fn options(mode: u32) -> std::fs::OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;

    let mut options = std::fs::OpenOptions::new();
    options.mode(mode);
    options
}

fn directories(recursive: bool, mode: u32) -> std::fs::DirBuilder {
    use std::os::unix::fs::DirBuilderExt;

    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(recursive).mode(mode);
    builder
}

fn info(path: &Path) -> IoResult<FileInfo> {
    let metadata = path.metadata()?;
    Ok(FileInfo {
        name: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        is_directory: metadata.is_dir(),
        size: metadata.len(),
        modified_at: metadata.modified()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FILE_MODE;

    #[test]
    fn files_stay_in_their_directory() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(folder.path(), root.join("up")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("new"), root.join("dangling")).unwrap();
        let files = DirectoryFiles::new(&root).unwrap();
        for path in ["/up/secret", "up/secret", "/up/x/y", "/dangling"] {
            assert_eq!(files.read(path).unwrap_err().kind(), ErrorKind::PermissionDenied, "{path}");
            assert!(files.write(path, b"", FILE_MODE).is_err(), "{path}");
        }
        assert_eq!(files.read("/../secret").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_round_trip_of_every_call() {
        let folder = tempfile::tempdir().unwrap();
        let files = DirectoryFiles::new(folder.path()).unwrap();
        files.make_directory("/a/b", true, DIRECTORY_MODE).unwrap();
        files.write("/a/b/c", b"one", FILE_MODE).unwrap();
        files.append("/a/b/c", b"two", FILE_MODE).unwrap();
        files.append("/d/e", b"three", FILE_MODE).unwrap();
        assert_eq!(files.read("/a/b/c").unwrap(), b"onetwo");
        let names: Vec<_> = files.list_directory("/").unwrap().into_iter().map(|e| (e.name, e.is_directory)).collect();
        assert_eq!(names, [("a".to_owned(), true), ("d".to_owned(), true)]);
        files.rename("/a/b/c", "/d/c").unwrap();
        assert_eq!(files.stat("/d/c").unwrap().size, 6);
        assert!(files.remove("/d", false).is_err());
        files.remove("/d", true).unwrap();
        assert_eq!(files.stat("/d").unwrap_err().kind(), ErrorKind::NotFound);
    }
}
