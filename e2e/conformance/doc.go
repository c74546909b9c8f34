// Package conformance holds the client libraries equal: it runs the same cases with a small driver for each library,
// and compares what the libraries did. Cases are YAML files in the folder cases; README.md describes them.
//
// The cases of a file with `model` scripts run against the real server and the real CLI. The cases with `wire`
// scripts run against a server that speaks the API from the script, and show faults.
package conformance
