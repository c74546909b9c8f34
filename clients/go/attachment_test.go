package copilot_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// writeFile writes a file of a test.
func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Small attachments are part of the prompt, in each call that sends one.
func TestAttachmentsInThePrompt(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	prompts := make(chan *bridgev1.Prompt, 3)
	f.send = func(_ context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
		prompts <- r.GetPrompt()
		return &bridgev1.SendResponse{}, nil
	}
	f.sendAndWait = func(_ context.Context, r *bridgev1.SendAndWaitRequest) (*bridgev1.SendAndWaitResponse, error) {
		prompts <- r.GetPrompt()
		return &bridgev1.SendAndWaitResponse{}, nil
	}
	photo := writeFile(t, "photo.png", []byte("\x89PNG"))
	options := func() []copilot.SendOption {
		return []copilot.SendOption{
			copilot.AttachPath("/etc/hostname"), copilot.AttachDirectory(`C:\work\`), copilot.AttachFile(photo),
			copilot.AttachBytes([]byte("a,b"), "text/csv", "table.csv"),
		}
	}
	s := c.Session("s1")
	if _, err := s.Send(testContext(t), "x", options()...); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SendAndWait(testContext(t), "x", append(options(),
		copilot.AttachReader(strings.NewReader("read"), "text/plain", ""))...); err != nil {
		t.Fatal(err)
	}
	turn := outcome(s.Run(testContext(t), "x", options()...))
	run := next(t, f.runs)
	prompts <- run.req.GetPrompt()
	run.send(runOutcome(bridgev1.TurnStatus_TURN_STATUS_COMPLETED, ""))
	receive(t, turn, "outcome")
	for i, name := range []string{"Send", "SendAndWait", "Run"} {
		all := (<-prompts).GetAttachments()
		file, dir, image, table := all[0].GetFile(), all[1].GetDirectory(), all[2].GetBlob(), all[3].GetBlob()
		if file.GetPath() != "/etc/hostname" || file.GetDisplayName() != "hostname" || dir.GetDisplayName() != "work" ||
			image.GetMimeType() != "image/png" || string(image.GetData()) != "\x89PNG" ||
			image.GetDisplayName() != "photo.png" || string(table.GetData()) != "a,b" {
			t.Errorf("%s: %v", name, all)
		}
		if i == 1 && string(all[4].GetBlob().GetData()) != "read" {
			t.Errorf("reader: %v", all[4])
		}
	}
	_, err := s.Send(testContext(t), "x", copilot.AttachFile("/no/such.png"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	_, err = s.Run(testContext(t), "x", copilot.AttachFile("/no/such.png")).Outcome()
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file in Run: %v", err)
	}
}

// received is a prompt that came in pieces.
type received struct {
	prompt *bridgev1.Prompt
	data   map[int32]string
}

// collectPieces reads the pieces of a prompt.
func collectPieces(
	in grpc.ClientStreamingServer[bridgev1.SendStreamRequest, bridgev1.SendStreamResponse],
) (received, error) {
	got := received{data: map[int32]string{}}
	for {
		piece, err := in.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return got, nil
		case err != nil:
			return got, err
		case piece.GetRequest() != nil:
			got.prompt = piece.GetRequest().GetPrompt()
		default:
			got.data[piece.GetChunk().GetAttachment()] += string(piece.GetChunk().GetData())
		}
	}
}

// Large attachments follow the prompt in pieces. A broken stream is repeated, except for a reader that has been read.
func TestAttachmentsInPieces(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	path := writeFile(t, "large.bin", large)
	calls, cut := make(chan received, 4), true
	f.sendStream = func(in grpc.ClientStreamingServer[bridgev1.SendStreamRequest, bridgev1.SendStreamResponse]) error {
		got, err := collectPieces(in)
		if err != nil {
			return err
		}
		calls <- got
		if cut {
			cut = false
			return failure(codes.Unavailable, "", "cut")
		}
		return in.SendAndClose(&bridgev1.SendStreamResponse{MessageId: "m1", Position: pos(1, 7)})
	}
	s := c.Session("s1")
	resp, err := s.Send(testContext(t), "x", copilot.AttachBytes([]byte("small"), "text/plain", ""),
		copilot.AttachFile(path), copilot.AttachBytes(large, "image/png", ""))
	if err != nil || resp.GetMessageId() != "m1" || s.Position().GetSeq() != 7 {
		t.Fatalf("send: %v, %v", resp, err)
	}
	for range 2 {
		got := receive(t, calls, "call")
		if got.prompt.GetText() != "x" || string(got.prompt.GetAttachments()[0].GetBlob().GetData()) != "small" ||
			len(got.data) != 2 || got.data[1] != string(large) || got.data[2] != string(large) {
			t.Errorf("call: %d attachments, %d in pieces", len(got.prompt.GetAttachments()), len(got.data))
		}
	}
	cut = true
	reader := copilot.AttachReader(iotest.HalfReader(strings.NewReader("short")), "text/plain", "")
	if _, err := s.Send(testContext(t), "x", reader); err == nil || !strings.Contains(err.Error(), "cut") {
		t.Errorf("a reader over a broken stream: %v", err)
	}
	if got := receive(t, calls, "call"); got.data[0] != "short" {
		t.Errorf("the reader's content: %q", got.data[0])
	}
	if _, err := s.Send(testContext(t), "x", reader); err == nil || !strings.Contains(err.Error(), "has been read") {
		t.Errorf("a reader again: %v", err)
	}
	broken := copilot.AttachReader(iotest.ErrReader(errors.New("disk on fire")), "text/plain", "")
	if _, err := s.Send(testContext(t), "x", broken); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("a reader that fails: %v", err)
	}
}
