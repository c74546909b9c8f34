package translate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// payload is an event as the CLI sends it, in a frame.
type payload struct {
	name  string
	frame []byte
	event []byte
}

const eventTail = `"id":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a11","timestamp":"2026-01-02T03:04:05.678Z","parentId":"5a3c2f68-7b43-4be2-8c2c-6a9f6d0f7a20"`

func newPayload(name, kind, data, extra string) payload {
	event := fmt.Sprintf(`{"type":%q,"data":%s,%s%s}`, kind, data, extra, eventTail)
	frame := `{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"c4b6d9e2-86b1-4b0c-9a53-5d8d3f0e1c77","event":` + event + `}}`
	return payload{name, []byte(frame), []byte(event)}
}

// markdown is n bytes of an answer, with the escapes and code of a real one.
func markdown(n int) string {
	text := "The function `parse(\"x\")` returns an error.\n\n```go\nif err != nil {\n\treturn fmt.Errorf(\"parse: " +
		"%w\", err)\n}\n```\n\n" +
		"- it reads the header first, so that the size is known\n- then it reads the body in one call\n\n"
	return strings.Repeat(text, n/len(text)+1)[:n]
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func payloads() []payload {
	message := func(n int) string {
		return `{"messageId":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a12","content":` + quoted(markdown(n)) +
			`,"toolRequests":[{"toolCallId":"call_8zK1","name":"bash","arguments":{"command":"go test ./...","timeout":120},"type":"function"}],"interactionId":"9f2e6c1c-ffb8-4d5e-a2c7-d8a2e5f8b0a1"}`
	}
	tool := `{"toolCallId":"call_8zK1","model":"claude-sonnet-4.5","interactionId":"9f2e6c1c-ffb8-4d5e-a2c7-d8a2e5f8b0a1","success":true,"result":{"content":"ok  \tgithub.com/x/y\t0.012s\n<exited with exit code 0>","detailedContent":"ok  \tgithub.com/x/y\t0.012s\n<exited with exit code 0>"},"toolTelemetry":{"properties":{"customTimeout":"true","executionMode":"sync","detached":"false"},"metrics":{"commandTimeoutMs":120000,"outputLength":52}}}`
	return []payload{
		newPayload("delta", "assistant.message_delta",
			`{"messageId":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a12","deltaContent":" the next"}`, `"ephemeral":true,`),
		newPayload("tool1k", "tool.execution_complete", tool, ""),
		newPayload("msg4k", "assistant.message", message(3400), ""),
		newPayload("msg20k", "assistant.message", message(17500), ""),
		newPayload("system40k", "system.message", `{"role":"system","content":`+
			quoted(strings.Repeat("- Prefer small steps: say \"what\" you are about to do, then do it, and look at "+
				"what came of it before the next one.\n", 335))+`}`, ""),
		newPayload("unknown1k", "model.not_known_yet", tool, `"ephemeral":true,`),
	}
}

func eventTable(tb testing.TB) *translate.Table {
	return table(tb, (*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor())
}

func BenchmarkAppendWire(b *testing.B) {
	for _, p := range payloads() {
		b.Run(p.name, func(b *testing.B) {
			t := eventTable(b)
			var buf []byte
			b.SetBytes(int64(len(p.event)))
			b.ReportAllocs()
			defer perCPU(b)()
			for b.Loop() {
				out, err := t.AppendWire(buf[:0], p.event, translate.Tidy)
				if err != nil {
					b.Fatal(err)
				}
				buf = out
			}
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	for _, p := range payloads() {
		b.Run(p.name, func(b *testing.B) {
			t := eventTable(b)
			wire, err := t.AppendWire(nil, p.event, translate.Tidy)
			if err != nil {
				b.Fatal(err)
			}
			var buf []byte
			b.SetBytes(int64(len(p.event)))
			b.ReportAllocs()
			defer perCPU(b)()
			for b.Loop() {
				out, err := t.AppendJSON(buf[:0], wire, translate.JSONOptions{})
				if err != nil {
					b.Fatal(err)
				}
				buf = out
			}
		})
	}
}

// BenchmarkToolResult is what a caller answers most: a tool's result of 1 KB.
func BenchmarkToolResult(b *testing.B) {
	t := table(b, (*cliv1.SessionToolsServiceHandlePendingToolCallRequest)(nil).ProtoReflect().Descriptor())
	text := `{"sessionId":"c4b6d9e2-86b1-4b0c-9a53-5d8d3f0e1c77","requestId":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a12","result":{"textResultForLlm":` +
		quoted(markdown(800)) + `,"resultType":"success","toolTelemetry":{}}}`
	wire, err := t.AppendWire(nil, []byte(text), translate.Tidy)
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	options := translate.JSONOptions{RejectDeclaredExtra: true, ForbidExtra: []string{"sessionId"}}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		out, err := t.AppendJSON(buf[:0], wire, options)
		if err != nil {
			b.Fatal(err)
		}
		buf = out
	}
}

func BenchmarkScanFrame(b *testing.B) {
	for _, p := range payloads() {
		b.Run(p.name, func(b *testing.B) {
			b.SetBytes(int64(len(p.frame)))
			b.ReportAllocs()
			defer perCPU(b)()
			for b.Loop() {
				if _, err := translate.ScanFrame(p.frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAllocations guards the hot path: with room in the destination nothing is
// allocated.
func TestAllocations(t *testing.T) {
	table := eventTable(t)
	for _, p := range payloads() {
		wire, err := table.AppendWire(nil, p.event, translate.Exact)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 0, 64<<10)
		for name, f := range map[string]func() error{
			"AppendWire": func() error { _, err := table.AppendWire(buf, p.event, translate.Exact); return err },
			"AppendJSON": func() error {
				_, err := table.AppendJSON(buf, wire, translate.JSONOptions{RejectDeclaredExtra: true})
				return err
			},
			"ScanFrame": func() error { _, err := translate.ScanFrame(p.frame); return err },
			"ScanEvent": func() error { _, err := translate.ScanEvent(p.event); return err },
		} {
			allocs := testing.AllocsPerRun(100, func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			})
			if allocs > 0 {
				t.Errorf("%s of %s: %v allocations", name, p.name, allocs)
			}
		}
	}
}
