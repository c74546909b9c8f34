//go:build !xds

package xds

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Built reports that this program has no xDS.
const Built = false

// NewServer returns ErrNotBuilt.
func NewServer(Changed, ...grpc.ServerOption) (Server, error) { return nil, ErrNotBuilt }

// Credentials returns ErrNotBuilt.
func Credentials(credentials.TransportCredentials) (credentials.TransportCredentials, error) {
	return nil, ErrNotBuilt
}
