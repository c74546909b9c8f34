package copilot

import (
	"context"
	"errors"
	"io"
	"mime"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/content"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// AttachPath attaches a file of the CLI's machine, which the CLI reads. The path should be
// absolute.
func AttachPath(path string) SendOption {
	name := baseName(path)
	return WithAttachments(&cliv1.Attachment{Variant: &cliv1.Attachment_File{
		File: &cliv1.AttachmentFile{Path: path, DisplayName: name},
	}})
}

// AttachDirectory attaches a directory of the CLI's machine. The path should be absolute.
func AttachDirectory(path string) SendOption {
	name := baseName(path)
	return WithAttachments(&cliv1.Attachment{Variant: &cliv1.Attachment_Directory{
		Directory: &cliv1.AttachmentDirectory{Path: path, DisplayName: name},
	}})
}

// baseName is the last element of a path of the CLI's machine, which may have other separators.
func baseName(path string) string {
	trimmed := strings.TrimRight(path, `/\`)
	if name := trimmed[strings.LastIndexAny(trimmed, `/\`)+1:]; name != "" {
		return name
	}
	return path
}

// AttachFile attaches the content of a file of this machine. Its MIME type follows from the
// name. A file that cannot be read makes the call fail that sends the prompt.
func AttachFile(path string) SendOption {
	mimeType := mime.TypeByExtension(filepath.Ext(path))
	if mimeType == "" {
		mimeType = "application/octet-stream"
	}
	return attach(mimeType, filepath.Base(path), content.File(path))
}

// AttachBytes attaches bytes, such as an image. The name is for people and may be empty.
func AttachBytes(data []byte, mimeType, name string) SendOption {
	return attach(mimeType, name, content.Bytes(data))
}

// AttachReader attaches what r reads until io.EOF. [Session.Send] reads it while it sends, in
// pieces, and does not repeat the call after a broken connection; SendAndWait and Run read it
// whole. The option can be used once.
func AttachReader(r io.Reader, mimeType, name string) SendOption {
	return attach(mimeType, name, content.Reader(r))
}

func attach(mimeType, name string, c content.Content) SendOption {
	blob := &cliv1.AttachmentBlob{MimeType: mimeType}
	if name != "" {
		blob.DisplayName = &name
	}
	return func(o *sendOptions) {
		c.Index = len(o.prompt.Attachments)
		o.prompt.Attachments = append(o.prompt.Attachments,
			&cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: blob}})
		o.contents = append(o.contents, c)
	}
}

// inline reads the contents of attachments into the prompt: all of them, or all but the large
// ones, which it returns.
func (o *sendOptions) inline(all bool) ([]content.Content, error) {
	contents := o.contents
	o.contents = nil
	return content.Inline(o.prompt, contents, all)
}

// sendStream sends a prompt whose large attachments follow in pieces.
func (s *Session) sendStream(
	ctx context.Context, req *bridgev1.SendRequest, large []content.Content,
) (*bridgev1.SendResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.client.sessions.SendStream(ctx)
	if err != nil {
		return nil, FromError(err)
	}
	first := &bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Request{Request: req}}
	err = stream.Send(first)
	for _, c := range large {
		if err == nil {
			err = c.Send(stream.Send)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: receiving has the cause
		return nil, FromError(err)
	}
	resp, err := stream.CloseAndRecv()
	s.pos.NoteTrailer(stream.Trailer())
	if err != nil {
		return nil, FromError(err)
	}
	return &bridgev1.SendResponse{
		MessageId: resp.GetMessageId(), Position: resp.GetPosition(),
		ResentMessageId: resp.GetResentMessageId(), InMemoryOnly: resp.GetInMemoryOnly(),
	}, nil
}
