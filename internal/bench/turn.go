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
// with a CLI of its own.
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
	base, key, name := model.OpenAIBaseURL(), "offline", offlinemodel.DefaultModel
	direct := map[string]any{"model": name, "requestPermission": true, "provider": map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": base, "apiKey": key,
	}}
	streaming := true
	typed := &cliv1.SessionConfig{Model: &name, Streaming: &streaming, Provider: &cliv1.ProviderConfig{
		Type:    cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_OPENAI,
		WireApi: cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_COMPLETIONS, BaseUrl: base, ApiKey: &key,
	}}
	d, err := newDirect(ctx, r.cfg.CLI, r.cache, direct)
	if err != nil {
		return out, err
	}
	defer r.end("direct", d.close)
	bridges := map[string]*bridge{}
	defer func() {
		for _, b := range bridges {
			r.end("bridge", b.stop)
		}
	}()
	for _, way := range ways[1:] {
		b, err := r.startBridge(ctx, r.cfg.CLI)
		if err != nil {
			return out, err
		}
		bridges[way] = b
	}
	for i := range r.cfg.Repeats + 1 {
		if i > 0 {
			if err := d.open(ctx, direct); err != nil {
				return out, err
			}
		}
		round, err := r.turnRound(ctx, d, bridges, typed)
		if err != nil {
			return out, err
		}
		for way, b := range round {
			if i > 0 { // the first round warms up
				b.into(out.way(way))
			}
		}
	}
	return out, nil
}

// turnRound is a repeat: each way with a new session, alone in its CLI, since a CLI's
// turns take longer the more sessions and history it has; and with its turns in between
// those of the others.
func (r *run) turnRound(ctx context.Context, d *direct, bridges map[string]*bridge, typed *cliv1.SessionConfig) (map[string]*burst, error) {
	all := map[string]talker{"direct": d}
	for way, b := range bridges {
		a, err := newAttached(ctx, b, way == "tcp", typed, "")
		if err != nil {
			return nil, fmt.Errorf("session over %s: %w", way, err)
		}
		all[way] = a
	}
	round := map[string]*burst{"direct": {}, "unix": {}, "tcp": {}}
	for i := range r.cfg.Turns + 2 {
		for _, way := range r.shuffled(ways) {
			b := bridges[way]
			if b == nil {
				b = bridges["unix"] // whose clock stands still meanwhile
			}
			one, err := r.measured(b, 1, func() ([]float64, error) { return oneTurn(ctx, all[way]) })
			if err != nil {
				return nil, fmt.Errorf("turn over %s: %w", way, err)
			}
			if i >= 2 { // a session's first turns load what the later ones have
				round[way].took = append(round[way].took, one.took...)
				round[way].cpu += one.cpu / float64(r.cfg.Turns)
			}
		}
	}
	for way, t := range all {
		if err := t.end(ctx); err != nil {
			return nil, fmt.Errorf("end of the session over %s: %w", way, err)
		}
	}
	return round, nil
}

func oneTurn(ctx context.Context, t talker) ([]float64, error) {
	begin := time.Now()
	if err := t.send(ctx, "What is the weather in Paris?"); err != nil {
		return nil, err
	}
	_, err := t.idle(ctx)
	return []float64{micros(time.Since(begin))}, err
}
