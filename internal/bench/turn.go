package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// answerText is what the offline model says in a short turn.
const answerText = "It is sunny in Paris today, with a light wind from the west and no rain until the evening."

// turns measures whole turns of the real CLI, from the send to session.idle, each way
// with a CLI and a session of its own.
func (r *run) turns(ctx context.Context) (roundTrips, error) {
	var out roundTrips
	model, err := offlinemodel.Start(ctx, offlinemodel.Options{Script: &offlinemodel.Script{
		Stream:  offlinemodel.Pace{ChunkSize: 8},
		Default: &offlinemodel.Rule{Reply: []offlinemodel.Step{{Text: answerText}}},
	}})
	if err != nil {
		return out, err
	}
	defer r.end("offline model", func() error { return model.Close(context.WithoutCancel(ctx)) })
	b, err := r.startBridge(ctx, r.cfg.CLI)
	if err != nil {
		return out, err
	}
	defer r.end("bridge", b.stop)
	base, key, name := model.OpenAIBaseURL(), "offline", offlinemodel.DefaultModel
	direct := map[string]any{"model": name, "requestPermission": true, "provider": map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": base, "apiKey": key,
	}}
	streaming := true
	typed := &cliv1.SessionConfig{Model: &name, Streaming: &streaming, Provider: &cliv1.ProviderConfig{
		Type:    cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_OPENAI,
		WireApi: cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_COMPLETIONS, BaseUrl: base, ApiKey: &key,
	}}
	for i := range r.cfg.Repeats + 1 {
		if err := r.turnRound(ctx, b, direct, typed, &out, i > 0); err != nil {
			return out, err
		}
	}
	return out, nil
}

// turnRound is a repeat: new sessions, so that no history weighs on it, and turns of
// each way in between those of the others.
func (r *run) turnRound(ctx context.Context, b *bridge, direct map[string]any, typed *cliv1.SessionConfig, out *roundTrips, counts bool) error {
	all, err := r.talkers(ctx, b, r.cfg.CLI, direct, typed, "")
	for name, t := range all {
		defer r.end(name, t.close)
	}
	if err != nil {
		return err
	}
	bursts := map[string]*burst{}
	for _, way := range ways {
		bursts[way] = &burst{}
	}
	for i := range r.cfg.Turns + 2 {
		for _, way := range r.shuffled(ways) {
			one, err := r.measured(b, way, 1, func() ([]float64, error) { return oneTurn(ctx, all[way]) })
			if err != nil {
				return fmt.Errorf("turn over %s: %w", way, err)
			}
			if i >= 2 { // a session's first turns load what the later ones have
				bursts[way].took = append(bursts[way].took, one.took...)
				bursts[way].cpu += one.cpu / float64(r.cfg.Turns)
			}
		}
	}
	for _, way := range ways {
		if counts {
			bursts[way].into(out.way(way))
		}
	}
	return nil
}

func oneTurn(ctx context.Context, t talker) ([]float64, error) {
	begin := time.Now()
	if err := t.send(ctx, "What is the weather in Paris?"); err != nil {
		return nil, err
	}
	_, err := t.idle(ctx)
	return []float64{micros(time.Since(begin))}, err
}
