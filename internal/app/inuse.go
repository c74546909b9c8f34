package app

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/copilot-grpc/copilot-grpc/internal/app/holder"
	"github.com/copilot-grpc/copilot-grpc/server"
)

type remediedError struct {
	error
	remedy string
	// running says that a server has what this one needs, perhaps one with the same settings.
	running bool
}

func (e *remediedError) Error() string { return e.error.Error() + "; " + e.remedy }

func (e *remediedError) Unwrap() error { return e.error }

// unavailable adds to the error of an address on which the server cannot listen the setting of the address, which
// process has it, and what to do.
func (c *Config) unavailable(err error) error {
	failed, ok := errors.AsType[*server.ListenError](err)
	if !ok {
		return err
	}
	key := "web_listen"
	switch {
	case slices.Contains(c.Listen, failed.Address):
		key = "listen"
	case failed.Address == c.AdminListen:
		key = "admin_listen"
	case failed.Address == c.Cluster.Listen:
		key = "node_listen"
	}
	remedy, running := listenRemedy(failed.Address, err)
	if remedy == "" {
		return wrong(key, err)
	}
	return wrong(key, &remediedError{err, fmt.Sprintf("%s --%s", remedy, strings.ReplaceAll(key, "_", "-")), running})
}

// shortSocketPath is the number of bytes that the path of a socket may have on any system.
const shortSocketPath = 103

// listenRemedy says why an address cannot be listened on, and what to do; the name of a flag follows. It is empty for
// unknown reasons. running says that a server has the address.
func listenRemedy(address string, err error) (remedy string, running bool) {
	path, unix := strings.CutPrefix(address, unixPrefix)
	if unix {
		if p, ok := holder.OfSocket(path); ok {
			return fmt.Sprintf("%s listens there: use that server, stop it, or choose another socket with", p), p.SameProgram()
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		p, ok := holder.OfPort(address)
		if !ok {
			return "another process has the port: choose another one with", false
		}
		return fmt.Sprintf("%s has the port: stop it, or choose another one with", p), p.SameProgram()
	case unix && errors.Is(err, syscall.EINVAL) && len(path) > shortSocketPath:
		return fmt.Sprintf("a path of %d bytes is too long for a socket: choose a shorter one with", len(path)), false
	case unix && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EROFS)):
		return "choose a directory that this user can write with", false
	case errors.Is(err, syscall.EACCES):
		return "only root may listen on this port: choose one above 1023 with", false
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine does not have the address: choose one of its own with", false
	}
	return "", false
}

// checkDistinct refuses two settings with the same address.
func (c *Config) checkDistinct() error {
	var faults []error
	keys := map[string]string{}
	check := func(key, address string) {
		if before := keys[address]; before != "" {
			faults = append(faults, wrongf(key, "%q is also an address of %s: choose another one", address, before))
		}
		if _, port, err := net.SplitHostPort(address); address != "" && (err != nil || port != "0") {
			keys[address] = key
		}
	}
	for _, address := range c.Listen {
		check("listen", address)
	}
	check("web_listen", webAddress(c))
	check("admin_listen", c.AdminListen)
	check("node_listen", c.Cluster.Listen)
	return errors.Join(faults...)
}

// occupied adds to the error of a data directory that another server has which process it is, and what to do.
func occupied(err error, dir string) error {
	who := "it"
	if p, ok := holder.OfDirectory(dir); ok {
		who = p.String()
	}
	return &remediedError{err, fmt.Sprintf("stop %s, or choose another directory with --data-dir", who), true}
}
