package tenant

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// confined gives acme a sandbox, by which its callers have the rights of the class host. No CLI
// process of acme's is started here, nor its sandbox.
const confined = `, sandbox: [/nonexistent/sandbox]`

// A session of the host's owner, whose CLI has no sandbox, that is shared with a tenant that has
// one: the tenant's callers talk in it, and read nothing of the owner's machine, whichever way
// they name a file. The owner does, which shows that the file would be read.
func TestGuestReadsNothingOfTheSharer(t *testing.T) {
	t.Parallel()
	r := newTenants(t, harness.Echo, confined)
	owner, guest := r.Client.Sessions(), r.as("acme")
	data := harness.Picture(t)
	path := filepath.Join(r.Dir, "secret.png")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	config := &cliv1.SessionConfig{Model: r.Options().Config.Model, Provider: r.Provider(),
		WorkingDirectory: proto.String(r.Dir)}
	harness.Seeing(config)
	if _, err := owner.CreateSession(r.Ctx,
		&bridgev1.CreateSessionRequest{SessionId: "pair", Config: config}); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.ShareSession(r.Ctx, &bridgev1.ShareSessionRequest{
		SessionId: "pair", Tenant: "acme", Access: bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE,
	}); err != nil {
		t.Fatal(err)
	}
	sessions := bridgev1.NewSessionServiceClient(guest)
	if _, err := sessions.AcceptShare(r.Ctx, &bridgev1.AcceptShareRequest{SessionId: "host/pair"}); err != nil {
		t.Fatal(err)
	}
	attachments := map[string]*cliv1.Attachment{
		"file": {Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{Path: path,
			DisplayName: "secret.png"}}},
		"directory": {Variant: &cliv1.Attachment_Directory{Directory: &cliv1.AttachmentDirectory{Path: r.Dir,
			DisplayName: "dir"}}},
		"selection": {Variant: &cliv1.Attachment_Selection{Selection: &cliv1.AttachmentSelection{FilePath: path,
			DisplayName: "x", Text: "x", Selection: &cliv1.AttachmentSelectionDetails{
				Start: &cliv1.AttachmentSelectionDetailsStart{}, End: &cliv1.AttachmentSelectionDetailsEnd{Character: 1},
			}}}},
	}
	for name, a := range attachments {
		list := []*cliv1.Attachment{a}
		prompt := &bridgev1.Prompt{Text: "look", Attachments: list}
		_, err := sessions.SendAndWait(r.Ctx, &bridgev1.SendAndWaitRequest{SessionId: "host/pair", Prompt: prompt})
		wantDenied(t, name+" by SendAndWait", err)
		_, err = cliv1.NewSessionServiceClient(guest).Send(r.Ctx,
			&cliv1.SessionServiceSendRequest{SessionId: "host/pair", Prompt: "look", Attachments: list})
		wantDenied(t, name+" by session.send", err)
		stream, err := bridgev1.NewCallbackServiceClient(guest).Attach(r.Ctx)
		if err == nil {
			err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
				Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "host/pair"},
			}}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: &bridgev1.AttachCommand{
			CommandId: "c", Command: &bridgev1.AttachCommand_Send{Send: prompt},
		}}})
		for err == nil {
			_, err = stream.Recv()
		}
		wantDenied(t, name+" by Attach", err)
	}
	if n := len(images(r.Fixture)); n != 0 || len(r.Model.Requests()) != 0 {
		t.Errorf("the model was asked, and sent %d images", n)
	}
	r.ask(guest, "host/pair", "I am a guest")
	if n := len(images(r.Fixture)); n != 0 {
		t.Errorf("a guest's prompt has %d images", n)
	}
	if _, err := owner.SendAndWait(r.Ctx, &bridgev1.SendAndWaitRequest{
		SessionId: "pair",
		Prompt:    &bridgev1.Prompt{Text: "look", Attachments: []*cliv1.Attachment{attachments["file"]}},
	}); err != nil {
		t.Fatal(err)
	}
	r.WantImage(data)
	page, err := owner.ListEvents(r.Ctx, &bridgev1.ListEventsRequest{
		SessionId: "pair", Filter: &bridgev1.EventFilter{Types: []string{"user.message"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	last := page.GetEvents()[len(page.GetEvents())-1].GetEvent().GetUserMessage()
	if got := last.GetAttachments()[0].GetFile().GetData(); !bytes.Equal(got, data) {
		t.Errorf("the event has an image of %d bytes, want %d", len(got), len(data))
	}
}

func wantDenied(t *testing.T, what string, err error) {
	t.Helper()
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("%s: %v, want PERMISSION_DENIED", what, err)
	}
}

// images are the images that the model got.
func images(r *harness.Fixture) (out [][]byte) {
	for _, request := range r.Model.Requests() {
		for _, m := range request.Messages {
			for _, i := range m.Images {
				out = append(out, i.Data)
			}
		}
	}
	return out
}
