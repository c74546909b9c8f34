package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// answerText is what the offline model says in a short turn.
const answerText = "It is sunny in Paris today, with a light wind from the west and no rain until the evening."

// turner has turns of the real CLI, one way.
type turner struct {
	bridge *bridge // whose CPU time is measured; nil without one
	// turn times a turn, in µs, from the send to session.idle.
	turn func(ctx context.Context, prompt string) (float64, error)
	// fresh ends the session, if there is one, and begins another.
	fresh func(ctx context.Context) error
	close func() error
}

// throughBridge is the way through a bridge.
func (r *run) throughBridge(b *bridge, tcp bool, config *cliv1.SessionConfig) turner {
	var a *attached
	return turner{
		bridge: b,
		turn: func(ctx context.Context, prompt string) (float64, error) {
			return talking{talker: a}.turn(ctx, prompt)
		},
		fresh: func(ctx context.Context) (err error) {
			if a != nil {
				err = a.end(ctx)
			}
			if err == nil {
				a, err = newAttached(ctx, b, tcp, config, "")
			}
			return err
		},
		close: func() error {
			if a != nil {
				r.end("stream", a.close)
			}
			return b.stop()
		},
	}
}

// turns measures whole turns of the real CLI, from the send to session.idle, with a separate CLI for each way.
func (r *run) turns(ctx context.Context) (roundTrips, error) {
	model, err := offlinemodel.Start(ctx, offlinemodel.Options{Script: &offlinemodel.Script{
		Stream:  offlinemodel.Pace{ChunkSize: 8},
		Default: &offlinemodel.Rule{Reply: []offlinemodel.Step{{Text: answerText}}},
	}})
	if err != nil {
		return nil, err
	}
	defer r.end("offline model", func() error { return model.Close(context.WithoutCancel(ctx)) })
	all := map[string]turner{}
	defer func() {
		for name, t := range all {
			r.end(name, t.close)
		}
	}()
	if err := r.turners(ctx, model.OpenAIBaseURL(), all); err != nil {
		return nil, err
	}
	out := roundTrips{}
	for i := range r.cfg.Repeats + 1 {
		round, err := r.turnRound(ctx, all)
		if err != nil {
			return nil, err
		}
		for way, b := range round {
			if i > 0 { // the first round warms up
				b.into(out.way(way))
			}
		}
	}
	return out, nil
}

// turners puts all ways into a map.
func (r *run) turners(ctx context.Context, base string, all map[string]turner) error {
	key, name, streaming := "offline", offlinemodel.DefaultModel, true
	config := map[string]any{"model": name, "requestPermission": true, "provider": map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": base, "apiKey": key,
	}}
	d, err := newDirect(ctx, r.cfg.CLI, config)
	if err != nil {
		return err
	}
	all["direct"] = turner{
		turn:  talking{talker: d}.turn,
		fresh: func(ctx context.Context) error { return errors.Join(d.end(ctx), d.open(ctx, config)) },
		close: d.close,
	}
	for name, d := range r.drivers(ctx, r.cfg.CLI, map[string]map[string]any{
		"node": {"model": name, "provider": config["provider"]},
		"go":   {"model": name, "provider": config["provider"]},
		"python": {"model": name, "provider": map[string]any{
			"type": "openai", "wire_api": "completions", "base_url": base, "api_key": key,
		}},
	}) {
		all[name] = turner{turn: d.turn, fresh: d.fresh, close: d.close}
	}
	typed := &cliv1.SessionConfig{Model: &name, Streaming: &streaming, Provider: &cliv1.ProviderConfig{
		ProviderType: cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_OPENAI,
		WireApi:      cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_COMPLETIONS, BaseUrl: base, ApiKey: &key,
	}}
	for _, way := range []string{"unix", "tcp"} {
		b, err := r.startBridge(ctx, r.cfg.CLI)
		if err != nil {
			return err
		}
		all[way] = r.throughBridge(b, way == "tcp", typed)
	}
	if _, ok := all["node"]; !ok {
		return nil
	}
	return r.shimTurner(ctx, map[string]any{"model": name, "provider": config["provider"]}, all)
}

// shimTurner adds the way through a shim.
func (r *run) shimTurner(ctx context.Context, config map[string]any, all map[string]turner) error {
	b, err := r.startBridge(ctx, r.cfg.CLI)
	if err != nil {
		return err
	}
	d, err := r.throughShim(ctx, b, config)
	if err != nil {
		return errors.Join(err, b.stop())
	}
	all["shim"] = turner{bridge: b, turn: d.turn, fresh: d.fresh,
		close: func() error { return errors.Join(d.close(), b.stop()) }}
	return nil
}

// turnRound is a repeat: each way with a new session, alone in its CLI, since a CLI's turns take longer the more
// sessions and history it has. The ways take turns.
func (r *run) turnRound(ctx context.Context, all map[string]turner) (map[string]*burst, error) {
	round := map[string]*burst{}
	for way, t := range all {
		round[way] = &burst{}
		if err := t.fresh(ctx); err != nil {
			return nil, fmt.Errorf("session over %s: %w", way, err)
		}
	}
	for i := range r.cfg.Turns + 2 {
		for _, way := range shuffled(slices.Collect(maps.Keys(all))) {
			one, err := r.oneTurn(ctx, all[way])
			if err != nil {
				return nil, fmt.Errorf("turn over %s: %w", way, err)
			}
			if i >= 2 { // a session's first turns load what the later ones have
				round[way].took = append(round[way].took, one.took...)
				round[way].cpu += one.cpu / float64(r.cfg.Turns)
			}
		}
	}
	return round, nil
}

// oneTurn times a turn, with the clock of the bridge if there is one.
func (r *run) oneTurn(ctx context.Context, t turner) (burst, error) {
	turn := func() ([]float64, error) {
		took, err := t.turn(ctx, "What is the weather in Paris?")
		return []float64{took}, err
	}
	if t.bridge != nil {
		return r.measured(t.bridge, 1, turn)
	}
	took, err := turn()
	return burst{took: took}, err
}
