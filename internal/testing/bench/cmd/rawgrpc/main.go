// Command rawgrpc is what a fan-out is compared with: a gRPC server that does nothing but
// send bytes that are ready, an event per message, to every stream.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/rawgrpc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx, os.Args[1], os.Args[2])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run listens on a unix socket and on an address until ctx ends.
func run(ctx context.Context, socket, address string) error {
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	unix, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return rawgrpc.Serve(ctx, unix, tcp)
}
