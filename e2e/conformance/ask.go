package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Ask is a call of a method of the CLI, which the runner makes as another caller of the case's session. It makes the
// CLI ask its participants without the model.
type Ask struct {
	Method string
	Params map[string]any
	// Reply is compared with the method's result; nil accepts any.
	Reply any
	// Error is a part of the error's text; empty for none.
	Error string
}

// ask calls the method over the server's own socket, for the session in a working directory, and compares the reply.
func (s *realServer) ask(ctx context.Context, a *Ask, work string) error {
	if a == nil {
		return errors.New("the case has no such ask")
	}
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	found, err := bridgev1.NewSessionServiceClient(conn).ListSessions(ctx, &bridgev1.ListSessionsRequest{
		Filter: &bridgev1.SessionFilter{WorkingDirectory: work},
	})
	if err != nil {
		return err
	}
	if n := len(found.GetSessions()); n != 1 {
		return fmt.Errorf("the case has %d sessions, and an ask needs one", n)
	}
	params := []byte("{}")
	if a.Params != nil {
		if params, err = json.Marshal(a.Params); err != nil {
			return err
		}
	}
	result, err := bridgev1.NewRawServiceClient(conn).Invoke(ctx, &bridgev1.InvokeRequest{
		Method: a.Method, SessionId: found.GetSessions()[0].GetSessionId(), ParamsJson: string(params),
	})
	if a.Error != "" && err != nil && strings.Contains(err.Error(), a.Error) {
		return nil
	}
	if err != nil || a.Error != "" {
		return fmt.Errorf("the error of %s is %v, want %q", a.Method, err, a.Error)
	}
	if a.Reply == nil {
		return nil
	}
	var got any
	if err := json.Unmarshal([]byte(result.GetResultJson()), &got); err != nil {
		return err
	}
	return differing("the reply of "+a.Method, a.Reply, got)
}
