// Package quota counts what tenants use and says when it is too much. It knows neither
// calls nor sessions: whoever hands something out asks first, and gives back after.
package quota

import (
	"fmt"
	"reflect"
)

// Limits bound what one tenant, or everybody together, may use. Zero sets no limit. A policy that
// leaves one out means its default, and 0 means none. The
// names are those of policy files and of the metadata key `limit`.
type Limits struct {
	// Sessions that are open: loaded or not, but not disconnected.
	Sessions int `yaml:"sessions"`
	// LoadedSessions are those that a CLI process has.
	LoadedSessions int `yaml:"loaded_sessions"`
	// Streams at once: Subscribe, Attach, Run, the Watch calls.
	Streams int `yaml:"streams"`
	// Calls at once that are no streams.
	Calls int `yaml:"calls"`
	// Participants at once, in all sessions.
	Participants int `yaml:"participants"`
	// PendingCallbacks that wait for an answer, in all sessions.
	PendingCallbacks int `yaml:"pending_callbacks"`
	// Turns at once.
	Turns int `yaml:"turns"`
	// RequestsPerSecond is how many calls may begin, and frames of Attach streams come, per
	// second on average; Burst how many at once. Burst is by default that of two seconds.
	RequestsPerSecond float64 `yaml:"requests_per_second"`
	Burst             int     `yaml:"burst"`
	// MessageBytes bounds a message from a caller, PromptBytes a prompt's text.
	MessageBytes int `yaml:"message_bytes"`
	PromptBytes  int `yaml:"prompt_bytes"`
	// JournalBytes bounds the events kept of all sessions.
	JournalBytes int64 `yaml:"journal_bytes"`
	// RememberedRequests are requests whose answers are kept for when they come again, and
	// RememberedBytes bounds what those take. Zero is the default, not no limit.
	RememberedRequests int   `yaml:"remembered_requests"`
	RememberedBytes    int64 `yaml:"remembered_bytes"`
	// Connections over TCP at once, of the tenant; CallerConnections those of each caller.
	Connections       int `yaml:"connections"`
	CallerConnections int `yaml:"caller_connections"`
	// RequestBytes bound what requests over TCP take in memory, half sent or in work, of the
	// tenant; CallerRequestBytes those of each caller, ConnectionRequestBytes of each connection.
	RequestBytes           int64 `yaml:"request_bytes"`
	CallerRequestBytes     int64 `yaml:"caller_request_bytes"`
	ConnectionRequestBytes int64 `yaml:"connection_request_bytes"`
	// Runtimes are CLI processes.
	Runtimes int `yaml:"runtimes"`
	// RuntimeMemoryBytes bounds the memory of each CLI process.
	RuntimeMemoryBytes int64 `yaml:"runtime_memory_bytes"`
	// RuntimeStartsPerMinute is how many CLI processes may be started per minute.
	RuntimeStartsPerMinute int `yaml:"runtime_starts_per_minute"`
}

// TenantDefaults are the limits of a tenant, the host's owner excepted, of which the policy says
// nothing: far above what a team uses, and far below what the server can give.
var TenantDefaults = Limits{
	Sessions: 1000, LoadedSessions: 500, Streams: 1000, Calls: 1000, Participants: 1000, PendingCallbacks: 2000, Turns: 200,
	RequestsPerSecond: 1000, JournalBytes: 10 << 30, Connections: 512, CallerConnections: 128,
	RequestBytes: 256 << 20, CallerRequestBytes: 128 << 20, ConnectionRequestBytes: 128 << 20,
}

// OverallDefaults are the limits of all together of which the policy says nothing.
var OverallDefaults = Limits{RequestBytes: 1 << 30}

// Complete sets the limits that were not given, by their names, to those of defaults. One that
// was given as zero is none.
func (l *Limits) Complete(defaults Limits, given func(name string) bool) {
	to, from := reflect.ValueOf(l).Elem(), reflect.ValueOf(defaults)
	for i := range to.NumField() {
		if !given(to.Type().Field(i).Tag.Get("yaml")) {
			to.Field(i).Set(from.Field(i))
		}
	}
}

// Check tells what is wrong with the limits. at is where they are.
func (l Limits) Check(at string) error {
	for name, n := range map[string]float64{
		"sessions": float64(l.Sessions), "loaded_sessions": float64(l.LoadedSessions), "streams": float64(l.Streams),
		"calls": float64(l.Calls), "participants": float64(l.Participants), "pending_callbacks": float64(l.PendingCallbacks),
		"turns": float64(l.Turns), "requests_per_second": l.RequestsPerSecond, "burst": float64(l.Burst),
		"message_bytes": float64(l.MessageBytes), "prompt_bytes": float64(l.PromptBytes), "journal_bytes": float64(l.JournalBytes),
		"remembered_requests": float64(l.RememberedRequests), "remembered_bytes": float64(l.RememberedBytes),
		"connections": float64(l.Connections), "caller_connections": float64(l.CallerConnections),
		"request_bytes": float64(l.RequestBytes), "caller_request_bytes": float64(l.CallerRequestBytes),
		"connection_request_bytes": float64(l.ConnectionRequestBytes),
		"runtimes":                 float64(l.Runtimes), "runtime_memory_bytes": float64(l.RuntimeMemoryBytes),
		"runtime_starts_per_minute": float64(l.RuntimeStartsPerMinute),
	} {
		if !(n >= 0) {
			return fmt.Errorf("%s.%s: %v is negative", at, name, n)
		}
	}
	return nil
}
