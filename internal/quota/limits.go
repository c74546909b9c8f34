// Package quota counts what tenants use and says when it is too much. It knows neither
// calls nor sessions: whoever hands something out asks first, and gives back after.
package quota

import "fmt"

// Limits bound what one tenant, or everybody together, may use. Zero sets no limit. The
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
	// Runtimes are CLI processes.
	Runtimes int `yaml:"runtimes"`
	// RuntimeMemoryBytes bounds the memory of each CLI process.
	RuntimeMemoryBytes int64 `yaml:"runtime_memory_bytes"`
	// RuntimeStartsPerMinute is how many CLI processes may be started per minute.
	RuntimeStartsPerMinute int `yaml:"runtime_starts_per_minute"`
}

// Check tells what is wrong with the limits. at is where they are.
func (l Limits) Check(at string) error {
	for name, n := range map[string]float64{
		"sessions": float64(l.Sessions), "loaded_sessions": float64(l.LoadedSessions), "streams": float64(l.Streams),
		"calls": float64(l.Calls), "participants": float64(l.Participants), "pending_callbacks": float64(l.PendingCallbacks),
		"turns": float64(l.Turns), "requests_per_second": l.RequestsPerSecond, "burst": float64(l.Burst),
		"message_bytes": float64(l.MessageBytes), "prompt_bytes": float64(l.PromptBytes), "journal_bytes": float64(l.JournalBytes),
		"remembered_requests": float64(l.RememberedRequests), "remembered_bytes": float64(l.RememberedBytes),
		"runtimes": float64(l.Runtimes), "runtime_memory_bytes": float64(l.RuntimeMemoryBytes),
		"runtime_starts_per_minute": float64(l.RuntimeStartsPerMinute),
	} {
		if !(n >= 0) {
			return fmt.Errorf("%s.%s: %v is negative", at, name, n)
		}
	}
	return nil
}
