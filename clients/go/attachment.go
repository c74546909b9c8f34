package copilot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strings"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

const (
	// inlineLimit is the size above which an attachment is sent in pieces.
	inlineLimit = 1 << 20
	// attachmentPiece is the size of these pieces.
	attachmentPiece = 256 << 10
)

// content is the content of an attachment that this program reads when it sends the prompt.
type content struct {
	index int // in the prompt's attachments
	open  func() (io.ReadCloser, error)
	// isLarge reports whether the content is to be sent in pieces.
	isLarge func() bool
	// once says that open works once only.
	once bool
}

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
	return attach(mimeType, filepath.Base(path), content{
		open: func() (io.ReadCloser, error) { return os.Open(path) },
		isLarge: func() bool {
			info, err := os.Stat(path)
			return err == nil && info.Size() > inlineLimit
		},
	})
}

// AttachBytes attaches bytes, such as an image. The name is for people and may be empty.
func AttachBytes(data []byte, mimeType, name string) SendOption {
	return attach(mimeType, name, content{
		open:    func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		isLarge: func() bool { return len(data) > inlineLimit },
	})
}

// AttachReader attaches what r reads until io.EOF. [Session.Send] reads it while it sends, in
// pieces, and does not repeat the call after a broken connection; SendAndWait and Run read it
// whole. The option can be used once.
func AttachReader(r io.Reader, mimeType, name string) SendOption {
	used := false
	return attach(mimeType, name, content{
		open: func() (io.ReadCloser, error) {
			if used {
				return nil, errors.New("copilot: the reader of an attachment has been read")
			}
			used = true
			return io.NopCloser(r), nil
		},
		isLarge: func() bool { return true },
		once:    true,
	})
}

func attach(mimeType, name string, c content) SendOption {
	blob := &cliv1.AttachmentBlob{MimeType: mimeType}
	if name != "" {
		blob.DisplayName = &name
	}
	return func(o *sendOptions) {
		c.index = len(o.prompt.Attachments)
		o.prompt.Attachments = append(o.prompt.Attachments,
			&cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: blob}})
		o.contents = append(o.contents, c)
	}
}

// inline reads the contents of attachments into the prompt: all of them, or all but the large
// ones, which it returns.
func (o *sendOptions) inline(all bool) (large []content, err error) {
	for _, c := range o.contents {
		if !all && c.isLarge() {
			large = append(large, c)
			continue
		}
		r, err := c.open()
		if err != nil {
			return nil, fmt.Errorf("copilot: attachment: %w", err)
		}
		data, err := io.ReadAll(r)
		_ = r.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("copilot: attachment: %w", err)
		}
		blob := o.prompt.Attachments[c.index].GetBlob()
		o.prompt.Attachments[c.index] = &cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{
			MimeType: blob.GetMimeType(), DisplayName: blob.DisplayName, Data: data,
		}}}
	}
	o.contents = nil
	return large, nil
}

// sendStream sends a prompt whose large attachments follow in pieces.
func (s *Session) sendStream(
	ctx context.Context, req *bridgev1.SendRequest, large []content,
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
			err = sendContent(stream, c)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: receiving has the cause
		return nil, FromError(err)
	}
	resp, err := stream.CloseAndRecv()
	s.pos.noteTrailer(stream.Trailer())
	if err != nil {
		return nil, FromError(err)
	}
	return &bridgev1.SendResponse{
		MessageId: resp.GetMessageId(), Position: resp.GetPosition(),
		ResentMessageId: resp.GetResentMessageId(), InMemoryOnly: resp.GetInMemoryOnly(),
	}, nil
}

func sendContent(stream interface {
	Send(*bridgev1.SendStreamRequest) error
}, c content) error {
	r, err := c.open()
	if err != nil {
		return fmt.Errorf("copilot: attachment: %w", err)
	}
	defer func() { _ = r.Close() }() // it is only read
	for {
		piece := make([]byte, attachmentPiece)
		n, err := io.ReadFull(r, piece)
		if n > 0 {
			index := int32(c.index) //nolint:gosec // a short list
			chunk := &bridgev1.AttachmentChunk{Attachment: index, Data: piece[:n]}
			if err := stream.Send(&bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Chunk{
				Chunk: chunk,
			}}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("copilot: attachment: %w", err)
		}
	}
}
