// Package archive reads and writes session archives: one file that carries a session from one
// installation to another. It checks everything that it reads, because an archive may come from a
// stranger. It knows the format only; the meaning of the parts is its caller's.
//
// Its caller is package transfer, which serves the rpcs that export and import sessions.
//
// # Format
//
// docs/session-archive.md has the format for other programs; internal/fsck knows that page alone.
//
// An archive is a gzip stream (one member) with a tar archive, of any of the common tar formats. Its
// entries are regular files:
//
//   - manifest.json: the JSON of Manifest. It names every part with its size and SHA-256 digest.
//   - The parts, under the names of the manifest.
//   - manifest.sha256: the SHA-256 digest of the bytes of manifest.json, as 64 hexadecimal digits.
//     As the manifest has the digest of every part, this is the digest of the whole archive. An
//     archive without it was cut off.
//
// Writer writes them in this order, so that a reader can refuse an archive before it has stored a
// part. A reader accepts every order, "./" before the names, entries of folders, and zeros behind
// the end of the tar archive, because standard tools add them: an archive that was unpacked and
// packed again with "tar -czf FILE -C FOLDER ." is the same archive. Nothing else may follow.
//
// Digests detect damage and not forgery: an attacker can compute them too. Standard tools read an
// archive: tar -xzf FILE, then sha256sum.
//
// # Versions
//
// Version numbers the format. A reader accepts its own version and all earlier ones, and refuses
// later ones with ErrVersion. A reader ignores members of the manifest that it does not know, so
// that a later release can add members without a new version.
//
// # Names
//
// A name is a path as package fs defines it (relative, separated by slashes, without "." and
// ".."), at most MaxNameBytes long, with elements of at most MaxElementBytes. It consists of
// printable characters and spaces. It has no backslash and no colon. No element of it ends in a dot
// or a space, or is the name of a device on Windows, such as NUL or com1.txt. Two names must not be
// equal when case is ignored, also not in their folders, and no name may be the folder of another
// one. So every archive can be unpacked on every system.
package archive
