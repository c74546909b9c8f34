package e2e

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// An answer by the CLI's own method is an answer: checked, first come first served, and told
// to everybody.
func TestSurfaceAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, `
rules:
  - when: {user: go}
    reply: [{tool_call: {name: bash, arguments: {command: "echo done > made", description: "make it"}}}]
default: {reply: [{text: "done"}]}`)
	session, permissions := cliv1.NewSessionServiceClient(r.conn()), cliv1.NewSessionPermissionsServiceClient(r.conn())
	config := r.options().Config
	id := did(r, session.Create, &cliv1.SessionServiceCreateRequest{
		Model: config.Model, Provider: config.Provider, WorkingDirectory: config.WorkingDirectory, RequestPermission: proto.Bool(true),
	}).GetSessionId()
	r.own(id)
	s := &testSession{Session: r.client.Session(id), rig: r}
	s.send("go")
	asked := s.waitFor("permission.requested").GetEvent().GetPermissionRequested().GetRequestId()
	answer := func(kind string) *cliv1.SessionPermissionsServiceHandlePendingPermissionRequestRequest {
		q := &cliv1.SessionPermissionsServiceHandlePendingPermissionRequestRequest{SessionId: id, RequestId: asked}
		if kind == "approve-once" {
			q.Result = &cliv1.PermissionDecision{Variant: &cliv1.PermissionDecision_ApproveOnce{ApproveOnce: &cliv1.PermissionDecisionApproveOnce{}}}
		} else {
			q.Result = &cliv1.PermissionDecision{Variant: &cliv1.PermissionDecision_Unrecognized{Unrecognized: `{"kind":"` + kind + `"}`}}
		}
		return q
	}
	_, err := permissions.HandlePendingPermissionRequest(r.ctx, answer("bogus"))
	wantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID)
	check(t, did(r, permissions.HandlePendingPermissionRequest, answer("approve-once")).GetSuccess(), "not accepted")
	s.waitFor("session.idle")
	_, err = permissions.HandlePendingPermissionRequest(r.ctx, answer("approve-once"))
	wantError(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
	late, err := permissions.HandlePendingPermissionRequest(exactly(r.ctx), answer("approve-once"))
	check(t, err == nil && !late.GetSuccess(), "a late answer of an exact caller: %v, %v", late, err)
}
