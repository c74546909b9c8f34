package e2e

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

func TestSessionAttachments(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	path := r.write("notes.txt", "The heron nests in March.\n")
	r.write("sub/inner.txt", "inner\n")
	s := r.session(r.options())
	s.ask("Look at these", copilot.WithAttachments(
		&cliv1.Attachment{Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{
			Path: path, DisplayName: "notes.txt",
		}}},
		&cliv1.Attachment{Variant: &cliv1.Attachment_Directory{Directory: &cliv1.AttachmentDirectory{
			Path: r.dir + "/sub", DisplayName: "the sub folder",
		}}},
		&cliv1.Attachment{Variant: &cliv1.Attachment_Selection{Selection: &cliv1.AttachmentSelection{
			FilePath: path, DisplayName: "notes.txt:1", Text: "heron nests",
			Selection: &cliv1.AttachmentSelectionDetails{
				Start: &cliv1.AttachmentSelectionDetailsStart{Line: 1, Character: 4},
				End:   &cliv1.AttachmentSelectionDetailsEnd{Line: 1, Character: 15},
			},
		}}},
	))
	told := r.lastModelRequest().Messages
	text := told[len(told)-1].Text
	for _, want := range []string{path, r.dir + "/sub", "heron nests"} {
		if !strings.Contains(text, want) {
			t.Errorf("the model was not told %q, but:\n%s", want, text)
		}
	}
	got := s.waitFor("user.message").GetEvent().GetUserMessage().GetAttachments()
	if len(got) != 3 || got[0].GetFile().GetPath() != path || got[1].GetDirectory().GetDisplayName() != "the sub folder" ||
		got[2].GetSelection().GetSelection().GetEnd().GetCharacter() != 15 {
		t.Errorf("user.message has attachments %v", got)
	}
}

// picture is a small image.
func picture(t *testing.T) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 4, 4))
	for i := range 16 {
		img.Set(i%4, i/4, color.RGBA{R: uint8(16 * i), G: 100, B: 200, A: 255})
	}
	var buf bytes.Buffer
	if err := png.Encode(&buf, img); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestSessionAttachmentBlob(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	s := r.session(r.options(seeing))
	data := picture(t)
	s.ask("What is this?", copilot.WithAttachments(&cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{
		Data: data, MimeType: "image/png", DisplayName: proto.String("stripes.png"),
	}}}))
	r.wantImage(data)
}

// seeing gives the model eyes.
func seeing(c *cliv1.SessionConfig) {
	c.ModelCapabilities = &cliv1.ModelCapabilitiesOverride{
		Supports: &cliv1.ModelCapabilitiesOverrideSupports{Vision: proto.Bool(true)},
	}
}

// wantImage checks that exactly this image came to the model.
func (r *rig) wantImage(want []byte) {
	r.t.Helper()
	var images []offlinemodel.Image
	for _, m := range r.lastModelRequest().Messages {
		images = append(images, m.Images...)
	}
	if len(images) != 1 || images[0].MediaType != "image/png" || !bytes.Equal(images[0].Data, want) {
		r.t.Errorf("the model got %d images, want one of %d bytes: %v", len(images), len(want), images)
	}
}

func TestSessionSendStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, echo)
	s := r.session(r.options(seeing))
	data := picture(t)
	stream, err := r.client.Sessions().SendStream(r.ctx)
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
	s.waitFor("session.idle")
	r.wantImage(data)
}
