package cluster

import (
	"encoding/base64"
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// protocol is the version of all that nodes say to each other and store together. It grows with each release that
// changes any of it. A node works with the version before and the one after, so that a cluster can be upgraded
// node by node.
const protocol = 1

// member is the value of a node's key.
type member struct {
	// Protocol is the node's version; 0 before it was written.
	Protocol int `json:"protocol,omitempty"`
	// Node is the node's name, Address that of its listener for other nodes.
	Node    string `json:"node"`
	Address string `json:"address"`
	// Draining: the node leaves its sessions to others.
	Draining bool `json:"draining,omitempty"`
	// Labels are what sessions can need of a node.
	Labels map[string]string `json:"labels,omitempty"`
	// State is what the node tells the others beside that.
	State json.RawMessage `json:"state,omitempty"`
	// Fenced: the member's lease has ended, and it cannot renew it any more. By is the node that found this.
	Fenced bool   `json:"fenced,omitempty"`
	By     string `json:"by,omitempty"`
}

// holder is the value of a session's key.
type holder struct {
	// Member owns the session; "" if the last owner has released it.
	Member  string `json:"member,omitempty"`
	Node    string `json:"node,omitempty"`
	Address string `json:"address,omitempty"`
	// Next is the member to which the last owner has handed the session over. It is a wish: if that member dies, any
	// other may take the session.
	Next string `json:"next,omitempty"`
}

// encode returns the value of a key. The types of this file can be encoded.
func encode(v any) []byte {
	text, _ := json.Marshal(v)
	return text
}

// decode reads a value that this package has written. A value that cannot be read is the zero value, without an owner.
func decode[T any](text []byte) (v T) {
	_ = json.Unmarshal(text, &v)
	return v
}

// keyOf returns the key of a session: any name becomes a valid one.
func keyOf(session string) string { return base64.RawURLEncoding.EncodeToString([]byte(session)) }

// needsPrefix begins the keys with the node labels that sessions need. It cannot begin a session's key.
const needsPrefix = "needs."

// needsKeyOf returns the key with the node labels that a session needs.
func needsKeyOf(session string) string { return needsPrefix + keyOf(session) }

// sessionOf returns the session of a key.
func sessionOf(key string) (string, bool) {
	text, err := base64.RawURLEncoding.DecodeString(key)
	return string(text), err == nil
}

// isConflict reports that the key has another revision than a write expected.
func isConflict(err error) bool {
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch refused.ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return true
		}
	}
	return errors.Is(err, jetstream.ErrKeyExists)
}
