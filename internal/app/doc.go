// Package app is the composition root: it builds one program from the bridge, the gRPC server in front of it, the CLI
// processes behind it and, on request, the offline model. Config has all settings; package cli has the command line.
//
// New builds an App and cleans up if it fails. Run serves until its context ends. The stop has an order: callers are
// asked to leave and get some time, then the CLI processes end, then the rest, in the reverse order of construction.
package app
