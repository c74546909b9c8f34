// Package clients tests the examples of clients/python against this repository's server with the
// real CLI. .ci/client prepares and runs the tests. The tests of clients/typescript are part of
// that package.
package clients
