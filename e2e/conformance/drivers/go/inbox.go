package main

import (
	"context"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	v1 "github.com/copilot-grpc/copilot-grpc/e2e/conformance/conformancev1"
)

// inbox answers callbacks of all sessions until as many have ended as the step says.
func (r *runner) inbox(ctx context.Context, a *v1.Inbox) error {
	answer := copilot.AnswerPermission(permissionDecision(a.GetPermission()))
	ended := 0
	options := copilot.PendingOptions{Handle: true, Labels: a.GetLabels()}
	for change, err := range r.clients[a.GetClient()].WatchPending(ctx, options) {
		if err != nil {
			return err
		}
		if !change.Ended {
			if err := change.Answer(ctx, answer); err != nil {
				return err
			}
		} else if ended++; ended == int(a.GetCount()) {
			return nil
		}
	}
	return nil
}

func permissionDecision(name string) *copilot.Decision {
	if name == "approve" {
		return copilot.ApproveOnce()
	}
	return copilot.Reject("Permission denied.")
}

func (r *runner) usage(ctx context.Context, a *v1.Usage, result *v1.StepResult) error {
	id := r.session(a.GetSession()).ID()
	rows, err := r.clients[a.GetClient()].Usage(ctx, copilot.UsageOptions{SessionID: id})
	for _, row := range rows {
		result.Turns += row.GetTurns()
		result.Requests += row.GetRequests()
	}
	return err
}
