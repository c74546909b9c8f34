package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

const (
	// soakSessions are at work at once. All are deleted, and the memory is looked at, so many times in a soak.
	soakSessions, soakRounds = 8, 40
	// soakGrowth is by how many MiB the memory may grow from the second quarter of a soak to the last.
	soakGrowth = 16
)

// soakScript is what the fake CLI does; the load CLI serves one session at a time. A tool asks for permission, too.
var soakScript = fakecli.Script{Prompts: []fakecli.Prompt{
	{Match: "burst", Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 800, Size: 20}}}},
	{Match: "tools", Turns: []fakecli.Turn{
		{Text: "I ask.", Tools: []fakecli.Tool{{Name: loadcli.Tool}, {Name: loadcli.Tool}}}, {Text: "That is what I was told."},
	}},
}}

// soakPrompts are the turns of a session, again and again.
var soakPrompts = []string{"hello", "hello", "tools", "hello", "hello", "burst", "hello", "tools"}

// soakTable has sessions come, work and go, and fails if the server's memory grows with them.
func (r *run) soakTable(ctx context.Context) (Table, error) {
	turns := max(1, r.cfg.Operations/soakRounds/soakSessions)
	t := Table{
		Title: "Memory over many turns",
		Note: fmt.Sprintf("MiB of the server's own memory after rounds of %d sessions with %d turns each, all of which "+
			"are then deleted. Between the second quarter and the last it may grow by %d MiB.",
			soakSessions, turns, soakGrowth),
		Header: []string{"turns", "MiB"},
	}
	cli, err := r.scriptedCLI(soakScript)
	if err != nil {
		return t, err
	}
	defer r.end("fake CLI", func() error { return os.Remove(cli) })
	b, err := r.startBridge(ctx, cli)
	if err != nil {
		return t, err
	}
	defer r.end("bridge", b.stop)
	var memory sample
	for round := range soakRounds {
		errs := make([]error, soakSessions)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = soakSession(ctx, b, turns) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return t, err
		}
		used, err := b.anonymous()
		if err != nil {
			return t, err
		}
		memory.add(used / (1 << 20))
		t.row(fmt.Sprint((round+1)*soakSessions*turns), number(memory[round]))
	}
	early, late := memory[soakRounds/4:soakRounds/2].median(), memory[soakRounds*3/4:].median()
	if late-early > soakGrowth {
		return t, fmt.Errorf("the memory grew from %s MiB in the second quarter to %s in the last", number(early), number(late))
	}
	return t, nil
}

// scriptedCLI writes a program that is the fake CLI with a script. The server asks it for its version without an
// environment.
func (r *run) scriptedCLI(script fakecli.Script) (path string, err error) {
	text, err := json.Marshal(script)
	if err != nil {
		return "", err
	}
	path = r.cfg.FakeCLI + "-scripted"
	program := fmt.Sprintf("#!/bin/sh\nFAKECOPILOT_SCRIPT='%s' exec '%s' \"$@\"\n", text, r.cfg.FakeCLI)
	return path, os.WriteFile(path, []byte(program), 0o700) //nolint:gosec // it is to be run
}

// soakSession is the life of one session.
func soakSession(ctx context.Context, b *bridge, turns int) (err error) {
	a, err := newAttached(ctx, b, false, &cliv1.SessionConfig{}, loadcli.Tool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	for i := range turns {
		request := &bridgev1.SendAndWaitRequest{SessionId: a.session,
			Prompt: &bridgev1.Prompt{Text: soakPrompts[i%len(soakPrompts)]}}
		if i%10 == 0 { // what is remembered for a day is no leak
			request.RequestId = fmt.Sprintf("%s-%d", a.session, i)
		}
		reply, err := a.client.Sessions().SendAndWait(ctx, request)
		if err != nil {
			return fmt.Errorf("turn %d of session %s: %w", i, a.session, err)
		}
		if s := reply.GetOutcome().GetStatus(); s != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			return fmt.Errorf("turn %d of session %s: %v", i, a.session, s)
		}
		if _, err := a.idle(ctx); err != nil {
			return err
		}
	}
	_, err = a.client.Sessions().DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: a.session})
	return err
}
