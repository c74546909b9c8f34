package app

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natsserver"
)

// Embedded is the URL of a NATS server inside the process, for a trial. The replica is then the only one.
const Embedded = "embedded"

func (k *Cluster) embedded() bool { return k.URL == Embedded }

func (k *Cluster) checkEmbedded() error {
	if !natsserver.Built {
		return wrong("cluster", natsserver.ErrNotBuilt)
	}
	if k.Credentials+k.RootCA+k.Listen+k.Address+k.Cert+k.Key+k.CA != "" {
		return wrongf("cluster", "an embedded NATS server has no credentials, and no other replica reaches it: "+
			"omit cluster_creds, cluster_ca and node_*, except node_name")
	}
	return nil
}

func (a *App) embed() (*natsserver.Server, error) {
	s, err := natsserver.Start(filepath.Join(a.config.DataDir, "nats"), a.logger)
	if err != nil {
		return nil, fmt.Errorf("starting the embedded NATS server: %w", err)
	}
	a.closers.add("embedded NATS server", func(context.Context) error { return s.Stop() })
	return s, nil
}
