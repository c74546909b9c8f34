// Package natsserver runs a NATS server with JetStream inside this process, for a server that is tried out alone. It is
// part of programs that are built with the tag nats, which makes them about 9 MB larger.
package natsserver

import "errors"

// ErrNotBuilt reports a program without a NATS server.
var ErrNotBuilt = errors.New("this program was built without a NATS server: build it with -tags nats")
