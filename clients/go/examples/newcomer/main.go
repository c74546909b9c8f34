// Command newcomer has turns in a session, which continues where an earlier run left it: newcomer SESSION PROMPT...
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

func main() {
	ctx, asked := context.Background(), atomic.Bool{}
	client := must(copilot.Connect(ctx))
	defer client.Close()
	weather := copilot.NewTool("get_weather", "Tells the weather in a city.",
		func(_ context.Context, q struct{ City string }) (string, error) { return "rain in " + q.City, nil })
	once := func(_ context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
		if asked.Swap(true) {
			fmt.Println("refused", req.Kind)
			return copilot.Reject("Once is enough."), nil
		}
		fmt.Println("approved", req.Kind)
		return copilot.ApproveOnce(), nil
	}
	options := copilot.SessionOptions{Tools: []copilot.Tool{weather}, OnPermission: once}
	session := must(client.OpenSession(ctx, os.Args[1], options))
	for _, prompt := range os.Args[2:] {
		outcome := must(session.Run(ctx, prompt).WriteText(os.Stdout))
		fmt.Printf("\n%v\n", outcome)
	}
	for found, err := range client.ListSessions(ctx, copilot.ListOptions{}) {
		fmt.Println(must(found, err).ID, "is", found.State)
	}
	must(session.ExportTo(ctx, "session.tar.gz"))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
