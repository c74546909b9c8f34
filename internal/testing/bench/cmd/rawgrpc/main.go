// Command rawgrpc is what a fan-out is compared with: a gRPC server that does nothing but
// send bytes that are ready, an event per message, to every stream.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // the pages
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/rawgrpc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx, os.Args[1], os.Args[2], os.Args[3])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run listens on a unix socket and on an address until ctx ends. It serves profiles on another unix socket.
func run(ctx context.Context, socket, address, profiles string) error {
	admin, err := net.Listen("unix", profiles)
	if err != nil {
		return err
	}
	pages := &http.Server{Handler: http.DefaultServeMux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = pages.Serve(admin) }() // it ends with Close
	defer pages.Close()
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
