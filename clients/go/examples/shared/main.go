// Command shared has two participants in one session: one brings a tool, the other one asks and
// decides about permissions.
//
//	go run ./clients/go/examples/shared
package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

type weatherArgs struct {
	City string `json:"city"`
}

func getWeather(_ context.Context, args weatherArgs) (string, error) {
	fmt.Println("worker: tells the weather in", args.City)
	return "rain in " + args.City, nil
}

func decide(req *copilot.PermissionRequest) bool {
	fmt.Println("boss: permits", req.Kind)
	return req.Kind == "custom-tool"
}

func run(ctx context.Context) error {
	boss, err := copilot.Connect(ctx, copilot.WithName("boss"))
	if err != nil {
		return err
	}
	defer func() { _ = boss.Close() }() // what failed is known
	worker, err := copilot.Connect(ctx, copilot.WithName("worker"))
	if err != nil {
		return err
	}
	defer func() { _ = worker.Close() }()

	session, err := boss.CreateSession(ctx, copilot.SessionOptions{OnPermission: copilot.ApproveIf(decide)})
	if err != nil {
		return err
	}
	tools := []copilot.Tool{copilot.NewTool("get_weather", "Tells the weather in a city.", getWeather)}
	if _, err := worker.JoinSession(ctx, session.ID(), copilot.SessionOptions{Tools: tools}); err != nil {
		return err
	}
	state, err := session.Get(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, participant := range state.Proto.GetParticipants() {
		names = append(names, participant.GetName())
	}
	slices.Sort(names)
	fmt.Println("participants:", strings.Join(names, ", "))
	outcome, err := session.SendAndWait(ctx, "What is the weather in Paris?")
	if err != nil {
		return err
	}
	fmt.Println("agent:", outcome.Text())
	return session.Delete(ctx)
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
