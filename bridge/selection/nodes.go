package selection

import (
	"maps"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// NodesUnfit is the error for labels that no server has which could have the session.
func NodesUnfit(needs map[string]string) *fault.Error {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(needs)) {
		pairs = append(pairs, key+"="+needs[key])
	}
	text := strings.Join(pairs, ",")
	return fault.New(fault.NodeLabelsUnmet, "no server that takes the session has the labels %s", text).
		With("labels", text)
}
