package main

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// model is the offline model of the real CLI's sessions. It outlives the server.
type model struct {
	server *offlinemodel.Server
	scope  *offlinemodel.Scope
}

func newModel(ctx context.Context) (*model, error) {
	call := func(name string) offlinemodel.Step {
		return offlinemodel.Step{ToolCall: &offlinemodel.ToolCall{Name: name, Arguments: map[string]any{"q": "why"}}}
	}
	on := func(flavour string, reply ...offlinemodel.Step) offlinemodel.Rule {
		return offlinemodel.Rule{When: offlinemodel.When{User: flavour + " w"}, Reply: reply}
	}
	sc := &offlinemodel.Script{
		Rules: []offlinemodel.Rule{
			on("burst", offlinemodel.Step{Text: "many words ", Repeat: 300, ChunkSize: 12}),
			on("slow", offlinemodel.Step{Text: "slow words ", Repeat: 20, Delay: 20 * time.Millisecond}),
			on("tool", call(sessionTool)),
			on("both", call(sessionTool), call(sessionTool)),
			{When: offlinemodel.When{User: "fail w"},
				Error: &offlinemodel.Failure{Status: 400, Message: "no model today"}},
			{When: offlinemodel.When{ToolResult: &offlinemodel.ToolResultCondition{}},
				Reply: []offlinemodel.Step{{Text: "That is what I was told."}}},
		},
		Default: &offlinemodel.Rule{Reply: []offlinemodel.Step{{Text: "A few words of no consequence."}}},
	}
	server, err := offlinemodel.Start(ctx, offlinemodel.Options{})
	if err != nil {
		return nil, err
	}
	scope, err := server.NewScope("chaos", sc)
	return &model{server, scope}, err
}

func (m *model) provider() *cliv1.ProviderConfig {
	return &cliv1.ProviderConfig{
		ProviderType: cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_OPENAI,
		WireApi:      cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_COMPLETIONS,
		BaseUrl:      m.scope.OpenAIBaseURL(), ApiKey: proto.String("offline"),
	}
}

func (m *model) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return m.server.Close(ctx)
}
