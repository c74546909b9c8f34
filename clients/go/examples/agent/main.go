// Command agent runs an agent with a tool, and asks a person for permissions.
//
//	go run ./clients/go/examples/agent "What is the weather in Paris?"
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

var skies = map[string]string{"Paris": "rain", "Cairo": "sun"}

type weatherArgs struct {
	City string `json:"city" jsonschema:"the city's English name"`
	Unit string `json:"unit,omitempty" jsonschema:"unit of the temperature: C or F; default: C"`
}

type weather struct {
	Sky         string `json:"sky"`
	Temperature int    `json:"temperature"`
}

func getWeather(_ context.Context, args weatherArgs) (any, error) {
	sky, known := skies[args.City]
	if !known {
		return copilot.Failure(fmt.Sprintf("There is no forecast for %s, only for Paris and Cairo.", args.City)), nil
	}
	if args.Unit == "F" {
		return weather{sky, 54}, nil
	}
	return weather{sky, 12}, nil
}

// askPerson returns a rule that asks on the standard input.
func askPerson(input *bufio.Reader) copilot.PermissionHandler {
	return func(_ context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
		fmt.Printf("The agent asks for permission: %s [y/n/s]\n", req.Kind)
		answer, err := input.ReadString('\n')
		switch strings.TrimSpace(answer) {
		case "s":
			return copilot.ApproveForSession(), nil
		case "y":
			return copilot.ApproveOnce(), nil
		}
		return copilot.Reject("The user said no."), err
	}
}

func run(ctx context.Context, prompt string) error {
	client, err := copilot.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // what failed is known
	session, err := client.CreateSession(ctx, copilot.SessionOptions{
		Config:       &cliv1.SessionConfig{Streaming: proto.Bool(true)},
		Tools:        []copilot.Tool{copilot.NewTool("get_weather", "Tells the weather in a city.", getWeather)},
		OnPermission: copilot.FirstOf(copilot.ApproveKinds("read"), askPerson(bufio.NewReader(os.Stdin))),
	})
	if err != nil {
		return err
	}
	turn := session.Run(ctx, prompt)
	for text, err := range turn.Deltas() {
		if err != nil {
			return err
		}
		fmt.Print(text)
	}
	fmt.Println()
	outcome, err := turn.Outcome()
	if err == nil {
		err = outcome.Err()
	}
	if err != nil {
		return err
	}
	return session.Delete(ctx)
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: agent PROMPT")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
