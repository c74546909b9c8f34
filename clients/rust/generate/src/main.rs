//! Generates the stubs of the two crates from the .proto files of the repository, without protoc.
//!
//! `.ci/rust-stubs` runs this program: it writes src/gen and messages/src/gen, and with `--check` fails if that would
//! make a difference.
//!
//! The core is copilot.bridge.v1 and every file that it imports. The messages of copilot.cli.v1 go to the crate
//! copilot-grpc-messages: the core's to one file, all others to a second file for the feature `cli`. One module
//! includes both files. The messages of copilot.bridge.v1 and all clients go to the library.

mod debug;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use prost_types::field_descriptor_proto::Type;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Oneofs whose messages are boxed: the largest ones have several hundred bytes.
const BOXED: &[&str] = &[
    ".copilot.bridge.v1.Answer.answer",
    ".copilot.bridge.v1.AttachCommand.command",
    ".copilot.bridge.v1.AttachRequest.frame",
    ".copilot.bridge.v1.AttachResponse.frame",
    ".copilot.bridge.v1.AttachStart.session",
    ".copilot.bridge.v1.Callback.request",
    ".copilot.bridge.v1.RunRequest.session",
    ".copilot.bridge.v1.RunResponse.frame",
    ".copilot.bridge.v1.SubscribeResponse.frame",
    ".copilot.cli.v1.SessionEvent.data",
];
const BRIDGE: &str = "copilot.bridge.v1";
const OPTIONS: &str = "copilot.json.v1";
const CLI: &str = "copilot.cli.v1";
const MESSAGES: &str = "messages/src/gen/copilot.cli.v1.rs";
const EXTRA: &str = "messages/src/gen/copilot.cli.v1.extra.rs";
const LIBRARY: &str = "src/gen/copilot.bridge.v1.rs";
const CLIENTS: &str = "src/gen/copilot.cli.v1.rs";
/// The generated files.
const FILES: [&str; 4] = [MESSAGES, EXTRA, LIBRARY, CLIENTS];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = tempfile::tempdir()?;
    generate(&crate_folder.join("../../proto"), made.path())?;
    let different = differing(made.path(), &crate_folder);
    let outdated = outdated(&crate_folder)?;
    if std::env::args().any(|argument| argument == "--check") {
        return match different.into_iter().map(str::to_owned).chain(outdated).next() {
            Some(file) => {
                Err(format!("clients/rust/{file} is not what is generated: run make generate and commit").into())
            }
            None => Ok(()),
        };
    }
    for file in outdated {
        fs::remove_file(crate_folder.join(file))?;
    }
    // Unchanged files keep their times, so that cargo builds nothing again.
    for file in different {
        fs::copy(made.path().join(file), crate_folder.join(file))?;
    }
    Ok(())
}

/// Files that an earlier generator wrote and this one does not. The packages would contain them. Makes the folders.
fn outdated(crate_folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for folder in ["src/gen", "messages/src/gen"] {
        fs::create_dir_all(crate_folder.join(folder))?;
        for entry in fs::read_dir(crate_folder.join(folder))? {
            let file = format!("{folder}/{}", entry?.file_name().to_string_lossy());
            if !FILES.contains(&file.as_str()) {
                found.push(file);
            }
        }
    }
    Ok(found)
}

fn differing(made: &Path, target: &Path) -> Vec<&'static str> {
    FILES.into_iter().filter(|file| fs::read(made.join(file)).ok() != fs::read(target.join(file)).ok()).collect()
}

fn generate(proto: &Path, out: &Path) -> Result<()> {
    let everything = protox::compile(proto_files(proto)?, [proto])?;
    let core = closure(&everything);
    let messages = without_services(&everything);
    let core_messages = chosen(&messages, |file| core.contains(file.name()));
    let externs = core_types(&core_messages);
    let library = [(format!(".{CLI}"), "::copilot_grpc_messages::cli::v1".to_owned())];
    let cli = "copilot.cli.v1.rs";
    write_code(core_messages, &[], &[(cli, &out.join(MESSAGES))])?;
    write_code(messages, &externs, &[(cli, &out.join(EXTRA))])?;
    write_code(everything, &library, &[("copilot.bridge.v1.rs", &out.join(LIBRARY)), (cli, &out.join(CLIENTS))])
}

/// Generates code of the files and writes some of it, which is a file for each package.
fn write_code(set: FileDescriptorSet, externs: &[(String, String)], wanted: &[(&str, &Path)]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    compile(chosen(&set, |file| file.package() != OPTIONS), externs, folder.path())?;
    for (name, path) in wanted {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let code = fs::read_to_string(folder.path().join(name))?;
        fs::write(path, tidy(&debug::implement(&code)?))?;
    }
    Ok(())
}

/// All files of the two packages, in a stable order.
fn proto_files(proto: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for package in ["copilot/bridge/v1", "copilot/cli/v1"] {
        for entry in fs::read_dir(proto.join(package))? {
            files.push(entry?.path());
        }
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "proto"));
    files.sort();
    Ok(files)
}

/// The names of the files of copilot.bridge.v1 and of those that they import, directly or not.
fn closure(everything: &FileDescriptorSet) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut unread: Vec<&str> = everything.file.iter().filter(|f| f.package() == BRIDGE).map(|f| f.name()).collect();
    while let Some(name) = unread.pop() {
        if found.insert(name.to_owned()) {
            let file = everything.file.iter().find(|file| file.name() == name);
            unread.extend(file.into_iter().flat_map(|file| &file.dependency).map(String::as_str));
        }
    }
    found
}

fn chosen(set: &FileDescriptorSet, is_chosen: impl Fn(&FileDescriptorProto) -> bool) -> FileDescriptorSet {
    FileDescriptorSet { file: set.file.iter().filter(|file| is_chosen(file)).cloned().collect() }
}

/// The files of copilot.cli.v1, and Google's that they import, without their services.
fn without_services(everything: &FileDescriptorSet) -> FileDescriptorSet {
    let mut set = chosen(everything, |file| file.package() != BRIDGE);
    for file in &mut set.file {
        file.service.clear();
    }
    set
}

/// The messages and enums of the core, which the extra refers to instead of declaring them.
fn core_types(core: &FileDescriptorSet) -> Vec<(String, String)> {
    let mut types = Vec::new();
    for file in core.file.iter().filter(|file| file.package() == CLI) {
        let messages = file.message_type.iter().map(|message| message.name());
        for name in messages.chain(file.enum_type.iter().map(|one| one.name())) {
            types.push((format!(".{CLI}.{name}"), format!("crate::cli::v1::{}", rust_name(name))));
        }
    }
    types
}

/// The name that prost gives to a message: runs of capitals become words.
fn rust_name(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut made = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let in_run = at > 0 && letters[at - 1].is_uppercase();
        let ends_run = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if in_run && letter.is_uppercase() && !ends_run {
            made.extend(letter.to_lowercase());
        } else {
            made.push(*letter);
        }
    }
    made
}

fn compile(set: FileDescriptorSet, externs: &[(String, String)], out: &Path) -> Result<()> {
    let mut builder = tonic_prost_build::configure()
        .out_dir(out)
        .emit_rerun_if_changed(false)
        .generate_default_stubs(true)
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]");
    for path in boxed_fields(&set) {
        builder = builder.boxed(path);
    }
    for (path, rust) in externs {
        builder = builder.extern_path(path, rust);
    }
    builder.compile_fds(set)?;
    Ok(())
}

/// The messages in the oneofs of `BOXED`. Other fields of them, such as strings, cannot be boxed.
fn boxed_fields(set: &FileDescriptorSet) -> Vec<String> {
    let mut fields = Vec::new();
    for file in &set.file {
        for message in &file.message_type {
            for field in message.field.iter().filter(|field| field.r#type() == Type::Message) {
                let Some(index) = field.oneof_index.and_then(|index| usize::try_from(index).ok()) else { continue };
                let oneof = message.oneof_decl.get(index).map(|oneof| oneof.name()).unwrap_or_default();
                let path = format!(".{}.{}.{oneof}", file.package(), message.name());
                if BOXED.contains(&path.as_str()) {
                    fields.push(format!("{path}.{}", field.name()));
                }
            }
        }
    }
    fields
}

/// Makes doc comments harmless: an indented line would be a code block, which rustdoc compiles.
fn tidy(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    for line in text.lines() {
        match line.split_once("/// ") {
            Some((indent, comment)) if indent.trim().is_empty() && comment.starts_with("   ") => {
                tidied.push_str(indent);
                tidied.push_str("///   ");
                tidied.push_str(comment.trim_start());
            }
            _ => tidied.push_str(line),
        }
        tidied.push('\n');
    }
    tidied
}
