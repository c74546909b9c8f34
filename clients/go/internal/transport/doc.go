// Package transport has the targets, credentials and tokens of connections to servers.
package transport
