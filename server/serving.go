package server

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// controlPlaneTime is how long the control plane may be silent before the log says so.
const controlPlaneTime = 10 * time.Second

// errSilent is the reason before the control plane has answered.
var errSilent = errors.New("the control plane has not answered yet")

// serving has the TCP addresses that take no calls, because the control plane has no configuration for them. It is
// safe for concurrent use.
type serving struct {
	log *slog.Logger

	mu      sync.Mutex
	reasons map[string]error // by address
}

// expect adds an address that waits for the control plane.
func (s *serving) expect(address net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reasons == nil {
		s.reasons = map[string]error{}
	}
	s.reasons[address.String()] = errSilent
}

// change records the answer of the control plane about an address, and logs it if it is another one.
func (s *serving) change(address net.Addr, reason error) {
	at := address.String()
	s.mu.Lock()
	before, missing := s.reasons[at]
	delete(s.reasons, at)
	if reason != nil {
		s.reasons[at] = reason
	}
	s.mu.Unlock()
	switch {
	case reason == nil && missing:
		s.log.Info("serving as the control plane says", slog.String("address", at))
	case reason != nil && (!missing || before.Error() != reason.Error()):
		s.refuse(at, reason)
	}
}

func (s *serving) refuse(address string, reason error) {
	s.log.Warn("no calls are taken: the control plane has not configured the address",
		slog.String("address", address), slog.Any("error", reason))
}

// watch logs which addresses wait, and later those about which the control plane says nothing in time. The result ends
// it.
func (s *serving) watch() (stop func() bool) {
	for _, address := range s.silent() {
		s.log.Info("waiting for the control plane", slog.String("address", address))
	}
	return time.AfterFunc(controlPlaneTime, func() {
		for _, address := range s.silent() {
			s.refuse(address, errSilent)
		}
	}).Stop
}

// silent returns the addresses without an answer.
func (s *serving) silent() (addresses []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for address, reason := range s.reasons {
		if reason == errSilent {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return addresses
}

// err returns why an address takes no calls; nil if all do.
func (s *serving) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, address := range slices.Sorted(maps.Keys(s.reasons)) {
		reason, _, _ := strings.Cut(s.reasons[address].Error(), "\n")
		return fmt.Errorf("%s takes no calls: %s", address, reason)
	}
	return nil
}
