// Package content reads the contents of attachments, into a prompt or in pieces.
package content

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

const (
	// inlineLimit is the size above which an attachment is sent in pieces.
	inlineLimit = 1 << 20
	// pieceSize is the size of these pieces.
	pieceSize = 256 << 10
)

// Content is the content of an attachment that is read when the prompt is sent.
type Content struct {
	// Index is that of the attachment in the prompt.
	Index int
	// Once says that the content can be read once only.
	Once bool

	open    func() (io.ReadCloser, error)
	isLarge func() bool
}

// File is the content of a file.
func File(path string) Content {
	return Content{
		open: func() (io.ReadCloser, error) { return os.Open(path) },
		isLarge: func() bool {
			info, err := os.Stat(path)
			return err == nil && info.Size() > inlineLimit
		},
	}
}

// Bytes is a content in memory.
func Bytes(data []byte) Content {
	return Content{
		open:    func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		isLarge: func() bool { return len(data) > inlineLimit },
	}
}

// Reader is what r reads until io.EOF.
func Reader(r io.Reader) Content {
	used := false
	return Content{
		open: func() (io.ReadCloser, error) {
			if used {
				return nil, errors.New("the reader has been read")
			}
			used = true
			return io.NopCloser(r), nil
		},
		isLarge: func() bool { return true },
		Once:    true,
	}
}

// Inline reads contents into the prompt: all of them, or all but the large ones, which it returns.
func Inline(prompt *bridgev1.Prompt, contents []Content, all bool) (large []Content, err error) {
	for _, c := range contents {
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
		blob := prompt.Attachments[c.Index].GetBlob()
		prompt.Attachments[c.Index] = &cliv1.Attachment{Variant: &cliv1.Attachment_Blob{Blob: &cliv1.AttachmentBlob{
			MimeType: blob.GetMimeType(), DisplayName: blob.DisplayName, Data: data,
		}}}
	}
	return large, nil
}

// Send sends a content in pieces.
func (c Content) Send(send func(*bridgev1.SendStreamRequest) error) error {
	r, err := c.open()
	if err != nil {
		return fmt.Errorf("copilot: attachment: %w", err)
	}
	defer func() { _ = r.Close() }() // it is only read
	for {
		piece := make([]byte, pieceSize)
		n, err := io.ReadFull(r, piece)
		if n > 0 {
			index := int32(c.Index) //nolint:gosec // a short list
			chunk := &bridgev1.AttachmentChunk{Attachment: index, Data: piece[:n]}
			if err := send(&bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Chunk{
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
