// Command embed serves the bridge from a grpc.Server of its own: embed SOCKET DATA-DIR. It is the
// example of docs/embedding.md.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"google.golang.org/grpc"
)

// serve serves the bridge until ctx ends. It keeps sessions in the folder dir.
func serve(ctx context.Context, l net.Listener, dir string) error {
	data, err := store.Open(store.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer data.Close()
	var clis *runtime.Supervisor
	b, err := bridge.New(bridge.Config{Directory: data, Runtimes: func(start bridge.Start) bridge.Runtimes {
		clis = runtime.NewSupervisor(runtime.SupervisorConfig{
			Start: func(ctx context.Context, p runtime.Profile) (*runtime.Runtime, error) {
				return start(ctx, runtime.Config{Profile: p, Runner: &runtime.Spawner{}})
			}})
		return clis
	}})
	if err != nil {
		return err
	}
	defer b.Close()
	defer clis.Stop(context.WithoutCancel(ctx))
	g := grpc.NewServer(append(rpc.Options(), grpc.ChainUnaryInterceptor(logged))...)
	rpc.Register(g, rpc.Backends[*bridge.Attachment]{
		Sessions: b.Sessions, Turns: b.Turns, Shares: b.Shares, Transfers: b.Transfers,
		Events: b.Events, Watch: b.SessionWatch,
		Participants: b.Participants, Callbacks: b.Callbacks, Runtimes: b.Runtimes, CLI: b.CLI,
	}, false)
	context.AfterFunc(ctx, func() { b.Drain(time.Second); g.GracefulStop() })
	return g.Serve(l)
}

// logged is an interceptor of the program: it logs each call with its caller.
func logged(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	log.Print(info.FullMethod, " by ", caller.From(ctx).Name)
	return handler(ctx, req)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	log.Print("listening on ", l.Addr())
	if err := serve(ctx, l, os.Args[2]); err != nil {
		log.Fatal(err)
	}
}
