// Package quota counts what tenants use and enforces limits. Callers take from a Gauge before they allocate and
// release afterwards. A Gauge and Rates each have a lock of their own state; the package starts no goroutines.
package quota

import (
	"fmt"
	"reflect"
)

// Limits bound the use of one tenant or of all tenants together. Zero sets no limit. If a policy omits a limit, the
// default applies; 0 disables it. The names are used in policy files and as values of the metadata key `limit`.
type Limits struct {
	// Sessions that are open: loaded or unloaded, but not disconnected.
	Sessions int `yaml:"sessions"`
	// LoadedSessions are loaded in a CLI process.
	LoadedSessions int `yaml:"loaded_sessions"`
	// Streams in progress: Subscribe, Attach, Run, the Watch calls.
	Streams int `yaml:"streams"`
	// Calls in progress, without streams.
	Calls int `yaml:"calls"`
	// Participants in all sessions.
	Participants int `yaml:"participants"`
	// PendingCallbacks waiting for an answer, in all sessions.
	PendingCallbacks int `yaml:"pending_callbacks"`
	// Turns in progress.
	Turns int `yaml:"turns"`
	// RequestsPerSecond limits the average rate of calls and of frames on Attach streams. Burst is how many may come
	// at once; by default those of two seconds.
	RequestsPerSecond float64 `yaml:"requests_per_second"`
	Burst             int     `yaml:"burst"`
	// MessageBytes bounds the size of a message from a caller, PromptBytes that of a prompt's text.
	MessageBytes int `yaml:"message_bytes"`
	PromptBytes  int `yaml:"prompt_bytes"`
	// JournalBytes bounds the stored events of all sessions.
	JournalBytes int64 `yaml:"journal_bytes"`
	// RememberedRequests bounds the requests whose answers are stored for repetitions, RememberedBytes their size.
	// Zero means the default, not unlimited.
	RememberedRequests int   `yaml:"remembered_requests"`
	RememberedBytes    int64 `yaml:"remembered_bytes"`
	// Connections bounds the tenant's TCP connections, CallerConnections those of each caller.
	Connections       int `yaml:"connections"`
	CallerConnections int `yaml:"caller_connections"`
	// RequestBytes bounds the memory of the tenant's requests over TCP, both incomplete ones and those in progress;
	// CallerRequestBytes does so for each caller, ConnectionRequestBytes for each connection.
	RequestBytes           int64 `yaml:"request_bytes"`
	CallerRequestBytes     int64 `yaml:"caller_request_bytes"`
	ConnectionRequestBytes int64 `yaml:"connection_request_bytes"`
	Runtimes               int   `yaml:"runtimes"`
	// RuntimeMemoryBytes bounds the memory of each CLI process.
	RuntimeMemoryBytes int64 `yaml:"runtime_memory_bytes"`
	// RuntimeStartsPerMinute is how many CLI processes may be started per minute.
	RuntimeStartsPerMinute int `yaml:"runtime_starts_per_minute"`
}

// TenantDefaults are the default limits of a tenant other than the host's owner: far above the use of a team, and far
// below the capacity of the server.
var TenantDefaults = Limits{
	Sessions: 1000, LoadedSessions: 500, Streams: 1000, Calls: 1000, Participants: 1000, PendingCallbacks: 2000, Turns: 200,
	RequestsPerSecond: 1000, JournalBytes: 10 << 30, Connections: 512, CallerConnections: 128,
	RequestBytes: 256 << 20, CallerRequestBytes: 128 << 20, ConnectionRequestBytes: 128 << 20,
}

// OverallDefaults are the default limits of all tenants together.
var OverallDefaults = Limits{RequestBytes: 1 << 30}

// Complete sets the limits that were not given, by name, to those of defaults. A limit given as zero stays unlimited.
func (l *Limits) Complete(defaults Limits, given func(name string) bool) {
	to, from := reflect.ValueOf(l).Elem(), reflect.ValueOf(defaults)
	for i := range to.NumField() {
		if !given(to.Type().Field(i).Tag.Get("yaml")) {
			to.Field(i).Set(from.Field(i))
		}
	}
}

// Check validates the limits. at is their place in the file, for errors.
func (l Limits) Check(at string) error {
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		if n := v.Field(i).Convert(reflect.TypeFor[float64]()).Float(); !(n >= 0) {
			return fmt.Errorf("%s.%s: %v is negative", at, v.Type().Field(i).Tag.Get("yaml"), n)
		}
	}
	return nil
}
