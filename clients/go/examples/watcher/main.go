// Command watcher prints a session's events, one a line, and stores its position in a file.
//
// Broken connections and restarts of the server leave no trace in the output. After a restart of
// this program, the output continues where it ended.
//
//	go run ./clients/go/examples/watcher SESSION_ID POSITION_FILE
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// load returns the stored position; nil if there is none.
func load(file string) (*copilot.Position, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return copilot.ParsePosition(string(text))
}

// store replaces the file at once, so that the end of this program cannot leave half of it.
func store(file string, position *copilot.Position) error {
	next := file + ".new"
	if err := os.WriteFile(next, []byte(copilot.FormatPosition(position)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}

func run(ctx context.Context, sessionID, file string) error {
	after, err := load(file)
	if err != nil {
		return err
	}
	client, err := copilot.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // what failed is known
	filter := copilot.WithFilter(&bridgev1.EventFilter{ExcludeTypes: []string{"model.*"}})
	for event, err := range client.Session(sessionID).Events(ctx, copilot.After(after), filter) {
		position := event.GetPosition()
		var gap *copilot.GapError
		switch {
		case errors.As(err, &gap):
			position = gap.Through
			fmt.Println("missing:", gap)
		case ctx.Err() != nil:
			return nil // interrupted
		case err != nil:
			return err
		default:
			fmt.Println(copilot.FormatPosition(position), event.GetEvent().GetEventType())
		}
		if err := store(file, position); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: watcher SESSION_ID POSITION_FILE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err) //nolint:gocritic // the program ends
	}
}
