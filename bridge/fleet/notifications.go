package fleet

import (
	"bytes"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// NoticeQueue bounds the notices that wait for one watcher. When it is full the oldest is dropped and counted.
const NoticeQueue = 1024

// Notice is a report of a CLI process beside the events of its sessions.
type Notice struct {
	Tenant    string // the runtime's
	SessionID string // empty if the notice is about no session
	RuntimeID string
	Params    []byte
	Bridge    bool // the bridge caused it
}

func newNotices() *broadcast.Hub[Notice] {
	return broadcast.New[Notice](NoticeQueue, broadcast.DropOldest)
}

// Notifications of the CLI that become notices or changes of sessions.
const (
	lifecycleEvent = "session.lifecycle"
	telemetryEvent = "gitHubTelemetry.event"
	hostEvent      = "host.event"
)

// lifecycleChanges has the lifecycle events that are reported. The bridge itself reports creation and deletion, once
// each: the CLI reports them several times.
var lifecycleChanges = map[string]bridgev1.SessionChange{
	"session.updated":    bridgev1.SessionChange_SESSION_CHANGE_UPDATED,
	"session.foreground": bridgev1.SessionChange_SESSION_CHANGE_FOREGROUND,
	"session.background": bridgev1.SessionChange_SESSION_CHANGE_BACKGROUND,
}

// notification takes any notification but session.event.
func (rt *Runtime) notification(method string, params []byte) {
	switch method {
	case lifecycleEvent:
		rt.lifecycle(params)
	case telemetryEvent:
		rt.takeTelemetry(params)
	case hostEvent:
		rt.takeHostEvent(params)
	default:
		if host := rt.fleet.cfg.Host; host != nil && hostCallback(method) {
			host.Notification(method, params)
		}
	}
}

func (rt *Runtime) lifecycle(params []byte) {
	var l struct {
		Type      string `json:"type"`
		SessionID string `json:"sessionId"`
	}
	if json.Unmarshal(params, &l) != nil {
		return
	}
	s := rt.session([]byte(l.SessionID))
	var e *sessions.Entry
	if s != nil {
		e = rt.fleet.cfg.Store.EntryOf(s)
	}
	if change, ok := lifecycleChanges[l.Type]; ok && e != nil {
		rt.fleet.cfg.Changed(e, change)
	}
	if s == nil || !s.Loader().Internal() {
		rt.fleet.cfg.Notified(e, rt.profile.Tenant, l.SessionID, params)
	}
}

func (rt *Runtime) takeTelemetry(params []byte) {
	if !rt.fleet.telemetry.Active() {
		return
	}
	var about subject
	_ = json.Unmarshal(params, &about) // params that are no object name no session
	rt.publish(rt.fleet.telemetry, about.SessionID, params, false)
}

// takeHostEvent takes an event for the host. The bridge causes the events about a session that it is loading or
// unloading.
func (rt *Runtime) takeHostEvent(params []byte) {
	if !rt.fleet.hostEvents.Active() {
		return
	}
	var e struct{ Scope subject }
	_ = json.Unmarshal(params, &e) // params that are no object name no session
	s := rt.session([]byte(e.Scope.SessionID))
	rt.publish(rt.fleet.hostEvents, e.Scope.SessionID, params, s != nil && s.Loader().Internal())
}

// publish copies a notice to the watchers.
func (rt *Runtime) publish(hub *broadcast.Hub[Notice], sessionID string, params []byte, ofBridge bool) {
	hub.Publish(Notice{
		Tenant: rt.profile.Tenant, SessionID: sessionID, RuntimeID: rt.id, Params: bytes.Clone(params), Bridge: ofBridge,
	})
}
