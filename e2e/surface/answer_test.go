package surface

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// An answer by the CLI's own method is an answer: checked, first come first served, and reported to all.
func TestSurfaceAnswer(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules:
  - when: {user: go}
    reply: [{tool_call: {name: bash, arguments: {command: "echo done > made", description: "make it"}}}]
default: {reply: [{text: "done"}]}`)
	session, permissions := cliv1.NewSessionServiceClient(r.Conn()), cliv1.NewSessionPermissionsServiceClient(r.Conn())
	config := r.Options().Config
	id := harness.Did(r, session.Create, &cliv1.SessionServiceCreateRequest{
		Model: config.Model, Provider: config.Provider, WorkingDirectory: config.WorkingDirectory,
		RequestPermission: proto.Bool(true),
	}).GetSessionId()
	r.Own(id)
	s := &harness.TestSession{Session: r.Client.Session(id), Fixture: r}
	s.Submit("go")
	asked := s.WaitFor("permission.requested").GetEvent().GetPermissionRequested().GetRequestId()
	answer := func(kind string) *cliv1.SessionPermissionsServiceHandlePendingPermissionRequestRequest {
		q := &cliv1.SessionPermissionsServiceHandlePendingPermissionRequestRequest{SessionId: id, RequestId: asked}
		if kind == "approve-once" {
			q.Result = &cliv1.PermissionDecision{Variant: &cliv1.PermissionDecision_ApproveOnce{ApproveOnce: &cliv1.PermissionDecisionApproveOnce{}}}
		} else {
			q.Result = &cliv1.PermissionDecision{Variant: &cliv1.PermissionDecision_Unrecognized{Unrecognized: `{"kind":"` + kind + `"}`}}
		}
		return q
	}
	_, err := permissions.HandlePendingPermissionRequest(r.Ctx, answer("bogus"))
	harness.WantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID)
	check(t, harness.Did(r, permissions.HandlePendingPermissionRequest, answer("approve-once")).GetSuccess(),
		"not accepted")
	s.WaitFor("session.idle")
	_, err = permissions.HandlePendingPermissionRequest(r.Ctx, answer("approve-once"))
	harness.WantError(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
	late, err := permissions.HandlePendingPermissionRequest(exactly(r.Ctx), answer("approve-once"))
	check(t, err == nil && !late.GetSuccess(), "a late answer of an exact caller: %v, %v", late, err)
}
