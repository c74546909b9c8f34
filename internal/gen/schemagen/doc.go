// Package schemagen turns the JSON schemas of the Copilot CLI into protobuf
// definitions.
//
// The steps, one file (or two) each:
//
//   - load: read the schemas of one CLI version into a Snapshot;
//   - overlay: read the description of elements that no schema describes;
//   - merge: join the snapshots of the supported versions into one Model, the
//     union of what they hold;
//   - plan: decide for every type which message, enum or field stands for it;
//   - ledger: give every field and enum value the number it keeps for ever;
//   - emit: print .proto files.
//
// Whatever departs from the rules is a row of data with a reason, in
// exceptions.go; a row that matches nothing fails the run.
package schemagen

// Version of the generator, recorded in every file it writes.
const Version = "1"
