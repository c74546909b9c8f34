package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// cliEnv names the executable of the real CLI.
const cliEnv = "COPILOT_CLI_PATH"

// providerName is the provider of the replicas' sessions with the real CLI.
const providerName = "ours"

// model is the offline model of a schedule with the real CLI. All replicas have it.
type model struct {
	cli   string
	scope *offlinemodel.Scope
}

// newModel starts a model that ends with the test.
func newModel(t *testing.T) *model {
	t.Helper()
	m := &model{cli: os.Getenv(cliEnv)}
	if m.cli == "" {
		t.Fatalf("schedules with the real CLI need %s", cliEnv)
	}
	server, err := offlinemodel.Start(t.Context(), offlinemodel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Errorf("the offline model: %v", err)
		}
	})
	on := func(kind string, reply ...offlinemodel.Step) offlinemodel.Rule {
		return offlinemodel.Rule{When: offlinemodel.When{User: kind + " "}, Reply: reply}
	}
	m.scope, err = server.NewScope("cluster", &offlinemodel.Script{
		Rules: []offlinemodel.Rule{
			on("tool", offlinemodel.Step{
				ToolCall: &offlinemodel.ToolCall{Name: toolName, Arguments: map[string]any{}},
			}),
			on("slow", offlinemodel.Step{Text: "slow words ", Repeat: 30, Delay: 16 * time.Millisecond}),
			{When: offlinemodel.When{ToolResult: &offlinemodel.ToolResultCondition{}},
				Reply: []offlinemodel.Step{{Text: "Thanks."}}},
		},
		Default: &offlinemodel.Rule{Reply: []offlinemodel.Step{{Text: "A few words."}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// attach has a replica run the real CLI. The key of the provider names the replica's life, so that the model sees which
// one a request comes from.
func (m *model) attach(r *replica) {
	file := r.path("provider.json")
	r.args = append(r.args, "--cli", m.cli, "--provider", providerName+"="+file)
	r.prepare = func(life int) error {
		text, err := json.Marshal(map[string]any{
			"type": "openai", "wireApi": "completions", "baseUrl": m.scope.OpenAIBaseURL(),
			"apiKey": fmt.Sprintf("replica %d, life %d", r.n, life),
		})
		if err != nil {
			return err
		}
		return os.WriteFile(file, text, 0o600)
	}
}

// complete adds to a request that creates a session what the real CLI needs.
func (m *model) complete(request *bridgev1.CreateSessionRequest) {
	if m == nil {
		return
	}
	request.ProviderRef = providerName
	request.Config.Model = proto.String(offlinemodel.DefaultModel)
	request.Config.Streaming = proto.Bool(true)
}

// read reads from the requests what a record has of them. It fails if the model has forgotten a request.
func (m *model) read(record *Record) error {
	requests := m.scope.Requests()
	if len(requests) > 0 && requests[0].Number != 1 {
		return fmt.Errorf("the model has forgotten the requests before %d", requests[0].Number)
	}
	record.Conversations = map[string][]Result{}
	for _, r := range requests {
		var results []Result
		for _, message := range r.Messages {
			if message.Role == offlinemodel.RoleTool {
				results = append(results, Result{Request: r.Number, CLI: r.Token(), Call: message.ToolCallID,
					Text: strings.TrimSpace(message.Text)})
			}
		}
		record.Results = append(record.Results, results...)
		if session, ok := strings.CutPrefix(r.UserText(), finalPrefix); ok {
			record.Conversations[session] = results
		}
	}
	if len(record.Conversations) != sessionCount {
		return fmt.Errorf("the model was sent the last prompts of %d sessions", len(record.Conversations))
	}
	return nil
}
