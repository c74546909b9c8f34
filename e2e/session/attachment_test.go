package session

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

func TestSessionAttachments(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	path := r.Write("notes.txt", "The heron nests in March.\n")
	r.Write("sub/inner.txt", "inner\n")
	s := r.Session(r.Options())
	s.Ask("Look at these", copilot.WithAttachments(
		&cliv1.Attachment{Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{
			Path: path, DisplayName: "notes.txt",
		}}},
		&cliv1.Attachment{Variant: &cliv1.Attachment_Directory{Directory: &cliv1.AttachmentDirectory{
			Path: r.Dir + "/sub", DisplayName: "the sub folder",
		}}},
		&cliv1.Attachment{Variant: &cliv1.Attachment_Selection{Selection: &cliv1.AttachmentSelection{
			FilePath: path, DisplayName: "notes.txt:1", Text: "heron nests",
			Selection: &cliv1.AttachmentSelectionDetails{
				Start: &cliv1.AttachmentSelectionDetailsStart{Line: 1, Character: 4},
				End:   &cliv1.AttachmentSelectionDetailsEnd{Line: 1, Character: 15},
			},
		}}},
	))
	told := r.LastModelRequest().Messages
	text := told[len(told)-1].Text
	for _, want := range []string{path, r.Dir + "/sub", "heron nests"} {
		if !strings.Contains(text, want) {
			t.Errorf("the model was not told %q, but:\n%s", want, text)
		}
	}
	got := s.WaitFor("user.message").GetEvent().GetUserMessage().GetAttachments()
	if len(got) != 3 || got[0].GetFile().GetPath() != path ||
		got[1].GetDirectory().GetDisplayName() != "the sub folder" ||
		got[2].GetSelection().GetSelection().GetEnd().GetCharacter() != 15 {
		t.Errorf("user.message has attachments %v", got)
	}
}

func TestSessionAttachmentBlob(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options(harness.Seeing))
	data := harness.Picture(t)
	s.Ask("What is this?",
		copilot.WithAttachments(&cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{
			Data: data, MimeType: "image/png", DisplayName: proto.String("stripes.png"),
		}}}))
	r.WantImage(data)
}

func TestSessionSendStream(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options(harness.Seeing))
	data := harness.Picture(t)
	stream, err := r.Client.Sessions().SendStream(r.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	frames := []*bridgev1.SendStreamRequest{{Piece: &bridgev1.SendStreamRequest_Request{Request: &bridgev1.SendRequest{
		SessionId: s.ID(),
		Prompt: &bridgev1.Prompt{Text: "What is this?", Attachments: []*cliv1.Attachment{
			{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{MimeType: "image/png"}}},
		}},
	}}}}
	for piece := range slices.Chunk(data, 40) {
		frames = append(frames, &bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Chunk{
			Chunk: &bridgev1.AttachmentChunk{Attachment: 0, Data: piece},
		}})
	}
	for _, f := range frames {
		if err := stream.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	s.WaitFor("session.idle")
	r.WantImage(data)
}
