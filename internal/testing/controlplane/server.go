//go:build xds

package controlplane

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// node is the only node of a control plane.
const node = "node"

// Server is a control plane. It is safe for concurrent use.
type Server struct {
	grpc  *grpc.Server
	cache cache.SnapshotCache

	mu        sync.Mutex
	version   int
	resources map[resource.Type]map[string]types.Resource
}

// Serve starts a control plane without resources, which ends with the test or with Stop.
func Serve(tb testing.TB, l net.Listener) *Server {
	s := New(l)
	tb.Cleanup(s.Stop)
	return s
}

// New starts a control plane without resources.
func New(l net.Listener) *Server {
	s := &Server{grpc: grpc.NewServer(), cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil),
		resources: map[resource.Type]map[string]types.Resource{}}
	s.Set()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, server.NewServer(context.Background(), s.cache, nil))
	go func() { _ = s.grpc.Serve(l) }() // Stop ends it
	return s
}

// Stop closes the listener and all connections.
func (s *Server) Stop() { s.grpc.Stop() }

// Set adds or replaces resources.
func (s *Server) Set(resources ...types.Resource) {
	s.change(func() {
		for _, r := range resources {
			kind := resource.APITypePrefix + string(proto.MessageName(r))
			if s.resources[kind] == nil {
				s.resources[kind] = map[string]types.Resource{}
			}
			s.resources[kind][cache.GetResourceName(r)] = r
		}
	})
}

// Delete removes a Listener.
func (s *Server) Delete(listener string) {
	s.change(func() { delete(s.resources[resource.ListenerType], listener) })
}

func (s *Server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.version++
	all := map[resource.Type][]types.Resource{}
	for kind, named := range s.resources {
		for _, r := range named {
			all[kind] = append(all[kind], r)
		}
	}
	snapshot, err := cache.NewSnapshot(strconv.Itoa(s.version), all)
	if err == nil {
		err = s.cache.SetSnapshot(context.Background(), node, snapshot)
	}
	if err != nil {
		panic(err)
	}
}

// Bootstrap returns the content of a bootstrap file. Each provider has its files in a folder of that name in dir.
func Bootstrap(address, dir string, providers ...string) string {
	certificates := map[string]any{}
	for _, name := range providers {
		folder := filepath.Join(dir, name)
		certificates[name] = map[string]any{"plugin_name": "file_watcher", "config": map[string]any{
			"certificate_file": filepath.Join(folder, "cert"), "private_key_file": filepath.Join(folder, "key"),
			"ca_certificate_file": filepath.Join(folder, "ca"), "refresh_interval": "1s",
		}}
	}
	text, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{"server_uri": address, "server_features": []string{"xds_v3"},
			"channel_creds": []any{map[string]any{"type": "insecure"}}}},
		"node":                                   map[string]any{"id": node},
		"certificate_providers":                  certificates,
		"server_listener_resource_name_template": ServerPrefix + "%s",
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}
