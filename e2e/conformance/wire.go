package conformance

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1" // the services
)

// Call is the script of one call of a method.
type Call struct {
	Method string
	// Every says that the script serves all calls of the method that no other script is for.
	Every bool
	Beats []Beat
}

// Beat is one thing that the scripted server does. Exactly one field is set, besides Unknown and Repeat.
type Beat struct {
	// Receive waits for a request that looks like this.
	Receive map[string]any
	// Send sends a response.
	Send map[string]any
	// Unknown adds a field that no version knows to each message of the response.
	Unknown bool
	// Repeat sends the response so many times; "$i" in its texts is the number, from 1.
	Repeat int
	// Wait waits for a Control of this name.
	Wait string
	// Signal lets a beat of another call continue that waits for this name.
	Signal string
	// CutAfter breaks the connection after so many further bytes.
	CutAfter *int `json:"cut_after"`
	// Cut breaks all connections.
	Cut bool
	// Ended waits until the client has ended the call.
	Ended bool
	// Metadata is what a request's header must have.
	Metadata map[string]string
	// End ends the call.
	End *End
}

// End is the end of a call: OK, or a status.
type End struct{ Code, Reason, Message, Field string }

// parseWire reads scripts. The server answers GetServerInfo unless a script does.
func parseWire(raw []any) ([]Call, error) {
	var calls []Call
	known := false
	for _, entry := range raw {
		fields, _ := entry.(map[string]any)
		method, _ := fields["on"].(string)
		every, _ := fields["every"].(bool)
		beats, _ := fields["do"].([]any)
		if _, err := methodNamed(method); err != nil {
			return nil, err
		}
		known = known || method == "GetServerInfo"
		call := Call{Method: method, Every: every}
		for i, b := range beats {
			beat, err := parseBeats(method, b)
			if err != nil {
				return nil, fmt.Errorf("%s: beat %d: %w", method, i, err)
			}
			call.Beats = append(call.Beats, beat...)
		}
		calls = append(calls, call)
	}
	if raw != nil && !known {
		info := Beat{Send: map[string]any{"version": "0.1.0"}}
		calls = append(calls, Call{Method: "GetServerInfo", Every: true, Beats: []Beat{info}})
	}
	return calls, nil
}

// parseBeats reads a beat, or a short form of one or several.
func parseBeats(method string, raw any) ([]Beat, error) {
	fields, ok := raw.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%v is not a mapping", raw)
	}
	if beats := short(method, fields); beats != nil {
		return beats, nil
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	var beat Beat
	if err := decoder.Decode(&beat); err != nil {
		return nil, err
	}
	return []Beat{beat}, nil
}

// short expands the short forms of what an Attach or Subscribe stream says about the session "s1".
func short(method string, fields map[string]any) []Beat {
	frame := func(frame map[string]any) Beat {
		frame["sessionId"] = "s1"
		if method == "Attach" || method == "Run" {
			frame = map[string]any{"stream": frame}
		}
		return Beat{Send: frame}
	}
	for key, value := range fields {
		of, _ := value.(map[string]any)
		switch key {
		case "started":
			return startedBeats(method, of, frame)
		case "tool_call", "permission", "ask":
			callback := callbackOf(key, of)
			requested := map[string]any{"callback": callback, "offered": of["offered"] != false}
			return []Beat{frame(map[string]any{"callbackRequested": requested})}
		case "done":
			return []Beat{{Send: map[string]any{"done": map[string]any{"callbackId": value}}}}
		case "failed":
			return []Beat{{Send: map[string]any{"failed": of}}}
		case "resolved":
			return []Beat{frame(map[string]any{"callbackResolved": of})}
		case "go_away":
			return []Beat{frame(map[string]any{"goAway": map[string]any{"reason": value}})}
		case "gap":
			return []Beat{frame(map[string]any{"gap": of, "resumeAfter": of["through"]})}
		case "closed":
			return []Beat{frame(map[string]any{"closed": map[string]any{"reason": value}})}
		case "event":
			beat := frame(eventFrame(of))
			beat.Unknown = of["unknown"] == true
			if n, ok := of["repeat"]; ok {
				beat.Repeat, _ = strconv.Atoi(fmt.Sprint(n))
			}
			return []Beat{beat}
		}
	}
	return nil
}

func startedBeats(method string, of map[string]any, frame func(map[string]any) Beat) []Beat {
	session := map[string]any{"sessionId": "s1", "position": map[string]any{"epoch": 1, "seq": 3}}
	subscribed := map[string]any{"session": session, "position": session["position"]}
	var pending []any
	list, _ := of["pending"].([]any)
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		for key, value := range fields {
			of, _ := value.(map[string]any)
			pending = append(pending, callbackOf(key, of))
		}
	}
	if pending != nil {
		subscribed["pendingCallbacks"] = pending
	}
	second := frame(map[string]any{"started": subscribed})
	if method != "Attach" {
		return []Beat{second}
	}
	participant, token := of["participant"], of["token"]
	if participant == nil {
		participant = "p1"
	}
	if token == nil {
		token = "token-1"
	}
	first := Beat{Send: map[string]any{"started": map[string]any{
		"participantId": participant, "participantToken": token, "session": session, "resumed": of["resumed"] == true,
	}}}
	return []Beat{first, second}
}

// callbackOf makes a callback, of participant p1 unless it says otherwise.
func callbackOf(key string, of map[string]any) map[string]any {
	callback := map[string]any{"sessionId": "s1", "participantIds": []any{"p1"}}
	switch key {
	case "tool_call":
		arguments := of["arguments"]
		text, ok := arguments.(string)
		if !ok {
			text = show(arguments)
		}
		callback["callbackId"], callback["kind"] = of["id"], "CALLBACK_KIND_TOOL_CALL"
		callback["toolCall"] = map[string]any{
			"toolName": of["tool"], "toolCallId": fmt.Sprintf("call-%v", of["id"]), "argumentsJson": text,
		}
	case "permission":
		callback["callbackId"], callback["kind"] = of["id"], "CALLBACK_KIND_PERMISSION"
		callback["permission"] = map[string]any{"permissionRequest": of["request"]}
	default:
		for name, value := range of {
			callback[name] = value
		}
		callback["callbackId"] = of["id"]
		delete(callback, "id")
		delete(callback, "offered")
	}
	if participants, ok := of["participants"]; ok {
		callback["participantIds"] = participants
	}
	return callback
}

func eventFrame(of map[string]any) map[string]any {
	epoch := of["epoch"]
	if epoch == nil {
		epoch = 1
	}
	position := map[string]any{"epoch": epoch, "seq": of["seq"]}
	event := map[string]any{"type": of["type"]}
	for key, value := range of {
		switch key {
		case "seq", "epoch", "type", "unknown", "repeat":
		default:
			event[key] = value
		}
	}
	return map[string]any{
		"resumeAfter": position,
		"events":      map[string]any{"events": []any{map[string]any{"position": position, "event": event}}},
	}
}

// methodNamed finds a method of copilot.bridge.v1 by its name.
func methodNamed(name string) (found protoreflect.MethodDescriptor, err error) {
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.bridge.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			if m := f.Services().Get(i).Methods().ByName(protoreflect.Name(name)); m != nil {
				found = m
			}
		}
		return true
	})
	if found == nil {
		return nil, fmt.Errorf("there is no method %q", name)
	}
	return found, nil
}

// messageOf makes a message of a type.
func messageOf(d protoreflect.MessageDescriptor) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}

// response makes the i-th response of a beat.
func (b Beat) response(d protoreflect.MessageDescriptor, i int) (proto.Message, error) {
	m, err := messageOf(d)
	if err != nil {
		return nil, err
	}
	text := strings.ReplaceAll(show(b.Send), `$i`, strconv.Itoa(i))
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	if b.Unknown {
		addUnknown(m.ProtoReflect())
	}
	return m, nil
}

// addUnknown adds field 4000, with the number 7, to a message and all messages in it.
func addUnknown(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				addUnknown(v.List().Get(i).Message())
			}
		default:
			addUnknown(v.Message())
		}
		return true
	})
	m.SetUnknown(append(m.GetUnknown(), 0x80, 0xfa, 0x01, 0x07))
}
