package app

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/fileperm"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// trustedPath is a path that the server trusts, and the setting that names it.
type trustedPath struct {
	setting, path string
	kind          fileperm.Kind
}

// trustedPaths are the paths that the settings name.
func (c *Config) trustedPaths() (paths []trustedPath) {
	add := func(setting, path string, kind fileperm.Kind) {
		if path != "" {
			paths = append(paths, trustedPath{setting, path, kind})
		}
	}
	add("tls_cert", c.TLSCert, fileperm.Trusted)
	add("tls_key", c.TLSKey, fileperm.Secret)
	add("tls_client_ca", c.TLSClientCA, fileperm.Trusted)
	add("tls_client_crl", c.TLSClientCRL, fileperm.Trusted)
	add("node_cert", c.Cluster.Cert, fileperm.Trusted)
	add("node_key", c.Cluster.Key, fileperm.Secret)
	add("node_ca", c.Cluster.CA, fileperm.Trusted)
	add("cluster_creds", c.Cluster.Credentials, fileperm.Secret)
	add("cluster_ca", c.Cluster.RootCA, fileperm.Trusted)
	add("sealing_keys", c.SealingKeys, fileperm.Secret)
	add("data_dir", c.DataDir, fileperm.Private)
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		add("provider", c.Providers[name], fileperm.Secret)
	}
	for setting, addresses := range map[string][]string{"listen": c.Listen, "admin_listen": {c.AdminListen}} {
		for _, address := range addresses {
			if path, ok := strings.CutPrefix(address, unixPrefix); ok {
				add(setting, path, fileperm.Socket)
			}
		}
	}
	return paths
}

// policyPaths are the files of a policy. Other users may read them, because tokens are stored as digests; but
// not secrets of clients.
func policyPaths(p *policy.Policy) (paths []trustedPath) {
	for _, path := range p.Files() {
		kind := fileperm.Trusted
		if slices.Contains(p.Secrets(), path) {
			kind = fileperm.Secret
		}
		paths = append(paths, trustedPath{"policy", path, kind})
	}
	return paths
}

// openPath is a path that other users of the machine can get at.
type openPath struct {
	trustedPath
	fileperm.Finding
}

func findOpenPaths(paths []trustedPath) (open []openPath, err error) {
	for _, p := range paths {
		found, err := fileperm.Check(p.path, p.kind)
		if err != nil {
			return nil, wrong(p.setting, err)
		}
		for _, f := range found {
			open = append(open, openPath{p, f})
		}
	}
	return open, nil
}

// checkPermissions refuses paths that every user of the machine can change, unless
// lax_permissions is set, and warns of what else other users can do with them.
func (c *Config) checkPermissions(paths []trustedPath, logger *slog.Logger) error {
	open, err := findOpenPaths(paths)
	if err != nil {
		return err
	}
	var refused []error
	for _, p := range open {
		if p.Grave && !c.LaxPermissions {
			refused = append(refused, wrong(p.setting, p.Finding))
			continue
		}
		logger.Warn("trusted path is open to other users", slog.String("setting", p.setting),
			slog.String("path", p.Path),
			slog.String("problem", p.Text), slog.String("remedy", p.Remedy))
	}
	return errors.Join(refused...)
}
