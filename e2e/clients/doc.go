// Package clients holds the tests of what is not Go: the examples of clients/typescript
// and clients/python run against this repository's server with the real CLI. They need
// what .ci/client prepares, and run through it.
package clients
