package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func runtimeCommands() []command {
	return []command{
		{name: "list", args: "[flags]", summary: "list the CLI processes", help: runtimesListUsage,
			setup: setupRuntimesList},
		{name: "drain", args: "RUNTIME [flags]", summary: "give a CLI process no more sessions", help: drainUsage,
			setup: setupDrain, complete: completeRuntime},
		{name: "recycle", args: "RUNTIME [flags]", summary: "replace a CLI process", help: recycleUsage,
			setup: setupRecycle, complete: completeRuntime},
	}
}

const runtimesListUsage = `Lists the CLI processes of the server, oldest first.

  copilot-grpc runtimes list
  copilot-grpc runtimes list -o json`

func setupRuntimesList(p *program, f *flags) action {
	c := p.connection(f)
	out := p.printer(f)
	return func(ctx context.Context, _ []string) error {
		return c.with(ctx, func(client *copilot.Client) error {
			reply, err := client.Runtimes().ListRuntimes(ctx, &bridgev1.ListRuntimesRequest{})
			if err != nil {
				return err
			}
			return out.print(runtimeTable(reply.GetRuntimes(), time.Now()))
		})
	}
}

func runtimeTable(list []*bridgev1.RuntimeInfo, now time.Time) table {
	rows := table{columns: []column{{head: "ID"}, {head: "STATE"}, {head: "AGE"}, {head: "CLI"}, {head: "PID"},
		{head: "SESSIONS"}, {head: "MEMORY"}, {head: "LATENCY"}, {head: "TENANT"}, {head: "CAUSE", least: 10}}}
	for _, r := range list {
		pid, memory, latency := "", "", ""
		if r.GetPid() != 0 {
			pid = fmt.Sprint(r.GetPid())
		}
		if r.GetRssBytes() != 0 {
			memory = sizeText(r.GetRssBytes())
		}
		if r.GetLatency() != nil {
			latency = r.GetLatency().AsDuration().Round(100 * time.Microsecond).String()
		}
		rows.add(r, r.GetRuntimeId(), runtimeState(r), age(r.GetStartTime(), now), r.GetCliVersion(), pid,
			fmt.Sprint(r.GetLoadedSessions()), memory, latency, r.GetTenant(), r.GetCause())
	}
	return rows
}

func runtimeState(r *bridgev1.RuntimeInfo) string {
	return enumText(r.GetState(), "RUNTIME_STATE_")
}

const drainUsage = `Gives a CLI process no more sessions; those that it has go on in it. --undo ends the drain.

  copilot-grpc runtimes drain RUNTIME
  copilot-grpc runtimes drain RUNTIME --undo`

func setupDrain(p *program, f *flags) action {
	c := p.connection(f)
	undo := f.Bool("undo", false, "end the drain")
	out := p.printer(f)
	return func(ctx context.Context, args []string) error {
		return c.with(ctx, func(client *copilot.Client) error {
			reply, err := client.Runtimes().DrainRuntime(ctx, &bridgev1.DrainRuntimeRequest{RuntimeId: args[0], Undo: *undo})
			if err != nil {
				return err
			}
			return out.print(runtimeTable([]*bridgev1.RuntimeInfo{reply.GetRuntime()}, time.Now()))
		})
	}
}

const recycleUsage = `Replaces a CLI process: its sessions leave when they are idle, and it ends without sessions, or
when --grace has passed. The command waits for that end. The next call that needs one of its sessions loads it in
another process.

  copilot-grpc runtimes recycle RUNTIME
  copilot-grpc runtimes recycle RUNTIME --grace 10m`

func setupRecycle(p *program, f *flags) action {
	c := p.connection(f)
	grace := f.Duration("grace", 30*time.Second, "`duration` for which turns and callbacks may continue, at most 1h")
	out := p.printer(f)
	return func(ctx context.Context, args []string) error {
		if *grace < 0 {
			return usageError{errors.New("--grace is negative")}
		}
		return c.with(ctx, func(client *copilot.Client) error {
			reply, err := client.Runtimes().RecycleRuntime(ctx, &bridgev1.RecycleRuntimeRequest{RuntimeId: args[0],
				GracePeriod: durationpb.New(*grace)})
			if err != nil {
				return err
			}
			if n := reply.GetInterruptedSessions(); n > 0 {
				fmt.Fprintf(p.stderr, "interrupted sessions: %d\n", n)
			}
			return out.print(runtimeTable([]*bridgev1.RuntimeInfo{reply.GetRuntime()}, time.Now()))
		})
	}
}

func completeRuntime(ctx context.Context, p *program, f *flags, args []string, _ string) []cobra.Completion {
	if len(args) > 0 {
		return nil
	}
	var ids []cobra.Completion
	p.completeFrom(ctx, f, func(ctx context.Context, client *copilot.Client) error {
		reply, err := client.Runtimes().ListRuntimes(ctx, &bridgev1.ListRuntimesRequest{})
		for _, r := range reply.GetRuntimes() {
			ids = append(ids, cobra.CompletionWithDesc(r.GetRuntimeId(), runtimeState(r)))
		}
		return err
	})
	return ids
}
