package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const usageUsage = `Prints what sessions have used of models: requests, tokens, cost and turns.

  copilot-grpc usage                              all sessions together
  copilot-grpc usage SESSION
  copilot-grpc usage --by day,model --since 168h
  copilot-grpc usage --by session --label team=payments

Usage is counted by days in UTC. COST is the sum of the models' billing multipliers, as the CLI reports them.`

type usageOptions struct {
	by     []string
	since  time.Duration
	labels labels
}

func setupUsage(p *program, f *flags) action {
	c := p.connection(f)
	out := p.printer(f)
	var o usageOptions
	f.StringSliceVar(&o.by, "by", nil, "a row for each `group`: day, model, session, owner, or several of them")
	f.DurationVar(&o.since, "since", 0, "only the days since this `duration` ago, such as 168h")
	f.Var(&o.labels, "label", "only sessions with this label, as `KEY=VALUE`; repeatable")
	return func(ctx context.Context, args []string) error {
		options, err := o.options(args, time.Now())
		if err != nil {
			return usageError{err}
		}
		c.session = options.SessionID
		return c.with(ctx, func(client *copilot.Client) error {
			rows, err := client.Usage(ctx, options)
			if err != nil {
				return err
			}
			return printUsage(out, options.By, rows)
		})
	}
}

func (o *usageOptions) options(args []string, now time.Time) (copilot.UsageOptions, error) {
	var options copilot.UsageOptions
	for _, name := range o.by {
		if err := (&choice{new(string), usageGroups}).Set(name); err != nil {
			return options, fmt.Errorf("--by %s: %w", name, err)
		}
		options.By = append(options.By, copilot.UsageGroup(name))
	}
	switch {
	case o.since < 0:
		return options, errors.New("--since is negative")
	case o.since > 0:
		options.Start = now.Add(-o.since)
	}
	if len(args) > 0 {
		options.SessionID = args[0]
	}
	if o.labels.set != nil {
		options.Filter = &copilot.SessionFilter{Labels: o.labels.set}
	}
	return options, nil
}

var usageGroups = []string{string(copilot.UsageByDay), string(copilot.UsageByModel), string(copilot.UsageBySession),
	string(copilot.UsageByOwner)}

func printUsage(out *printer, by []copilot.UsageGroup, list []*bridgev1.UsageRow) error {
	var rows table
	for _, group := range by {
		rows.columns = append(rows.columns, column{head: usageHeads[group]})
	}
	for _, head := range []string{"TURNS", "REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST", "TIME"} {
		rows.columns = append(rows.columns, column{head: head})
	}
	for _, row := range list {
		groups := map[copilot.UsageGroup]string{copilot.UsageByDay: row.GetDay(), copilot.UsageByModel: row.GetModelId(),
			copilot.UsageBySession: row.GetSessionId(), copilot.UsageByOwner: row.GetOwner()}
		var cells []string
		for _, group := range by {
			cells = append(cells, groups[group])
		}
		rows.add(row, append(cells, fmt.Sprint(row.GetTurns()), fmt.Sprint(row.GetRequests()), fmt.Sprint(row.GetInputTokens()),
			fmt.Sprint(row.GetCacheReadTokens()), fmt.Sprint(row.GetOutputTokens()), fmt.Sprintf("%g", row.GetCost()),
			row.GetApiDuration().AsDuration().Round(time.Millisecond).String())...)
	}
	return out.print(rows)
}

var usageHeads = map[copilot.UsageGroup]string{copilot.UsageByDay: "DAY", copilot.UsageByModel: "MODEL",
	copilot.UsageBySession: "SESSION", copilot.UsageByOwner: "OWNER"}
