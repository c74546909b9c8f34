// Command weather talks to an agent and asks you for permissions. With an argument it brings the agent's tool instead.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

var terminal = bufio.NewScanner(os.Stdin)

func read(prompt string) string {
	fmt.Print(prompt)
	terminal.Scan()
	return terminal.Text()
}

type query struct {
	City string `json:"city"`
}

func getWeather(_ context.Context, q query) (string, error) {
	fmt.Println("get_weather runs for", q.City)
	return "rain in " + q.City, nil
}

func ask(_ context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
	if read(fmt.Sprintf("\nAllow %s? [y/n] ", req.Kind)) == "y" {
		return copilot.ApproveOnce(), nil
	}
	return copilot.Reject("The user said no."), nil
}

func work(ctx context.Context, client *copilot.Client) error {
	tool := copilot.NewTool("get_weather", "Tells the weather in a city.", getWeather)
	session, err := client.JoinSession(ctx, "weather", copilot.SessionOptions{Tools: []copilot.Tool{tool}})
	if err != nil {
		return err
	}
	read(fmt.Sprintf("The worker of %s is ready. Press Enter to end it.\n", session.ID()))
	return nil
}

func talk(ctx context.Context, client *copilot.Client) error {
	session, err := client.OpenSession(ctx, "weather", copilot.SessionOptions{OnPermission: ask})
	if err != nil {
		return err
	}
	for prompt := read("> "); prompt != ""; prompt = read("> ") {
		outcome, err := session.Run(ctx, prompt).WriteText(os.Stdout)
		if err != nil {
			return err
		}
		if err := outcome.Err(); err != nil {
			return err
		}
		fmt.Println()
	}
	return nil
}

func main() {
	ctx := context.Background()
	client, err := copilot.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	role := talk
	if len(os.Args) > 1 {
		role = work
	}
	if err := errors.Join(role(ctx, client), client.Close()); err != nil {
		log.Fatal(err)
	}
}
