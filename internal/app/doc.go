// Package app is the composition root: it makes one program of the bridge, the gRPC
// server in front of it, the CLI processes behind it and, if asked for, the offline
// model. What a command line can set is in Config; package cli has the command line.
//
// An App is built by New, which leaves nothing behind when it fails, and serves until
// the context of Run ends. The end has an order: callers are told to go away and given
// some time, then the CLI processes end, then the rest, each in the reverse order of
// its making.
package app
