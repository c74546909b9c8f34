package copilot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ErrArchiveDamaged is in the chain of the [Error] that reports an export whose bytes are not those that the server
// announced. Its code is DataLoss.
var ErrArchiveDamaged = errors.New("the archive was cut off or changed on its way")

// importChunk is the size of a message of an import.
const importChunk = 256 << 10

// ExportSession writes the archive of a session to w. What was written counts only if ExportSession returns no error:
// it compares the size and the digest with the header. The session must be at rest; see SessionService.ExportSession.
func (c *Client) ExportSession(ctx context.Context, id string, w io.Writer) (*bridgev1.ExportSessionHeader, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if w fails
	stream, err := c.sessions.ExportSession(ctx, &bridgev1.ExportSessionRequest{SessionId: id})
	if err != nil {
		return nil, FromError(err)
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, FromError(err)
	}
	header, digest, size := first.GetHeader(), sha256.New(), int64(0)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, FromError(err)
		}
		size += int64(len(m.GetChunk()))
		_, _ = digest.Write(m.GetChunk()) // never fails
		if _, err := w.Write(m.GetChunk()); err != nil {
			return nil, err
		}
	}
	if size != header.GetSizeBytes() || hex.EncodeToString(digest.Sum(nil)) != header.GetSha256() {
		return nil, &Error{
			Code: codes.DataLoss, Message: fmt.Sprintf("session %q: %v", id, ErrArchiveDamaged), cause: ErrArchiveDamaged,
		}
	}
	return header, nil
}

// ExportTo writes the archive of the session to a new file, which only its owner can read. The file must not exist, and
// does not exist after an error. See [Client.ExportSession].
func (s *Session) ExportTo(ctx context.Context, path string) (*bridgev1.ExportSessionHeader, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	header, err := s.client.ExportSession(ctx, s.id, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return header, nil
}

// ImportSession makes a session of the archive in r. The session is disconnected: ResumeSession opens it, with the
// secrets, tools and handlers that archives do not have. A nil header takes everything from the archive.
func (c *Client) ImportSession(
	ctx context.Context, r io.Reader, header *ImportSessionHeader,
) (*bridgev1.ImportSessionResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream if r fails
	stream, err := c.sessions.ImportSession(ctx)
	if err != nil {
		return nil, FromError(err)
	}
	if header == nil {
		header = &bridgev1.ImportSessionHeader{}
	}
	m := &bridgev1.ImportSessionRequest{Piece: &bridgev1.ImportSessionRequest_Header{Header: header}}
	for {
		if stream.Send(m) != nil {
			return imported(stream) // which has the server's error
		}
		chunk := make([]byte, importChunk) // the message may be sent after Send has returned
		n, err := io.ReadFull(r, chunk)
		if n == 0 && errors.Is(err, io.EOF) {
			return imported(stream)
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		m = &bridgev1.ImportSessionRequest{Piece: &bridgev1.ImportSessionRequest_Chunk{Chunk: chunk[:n]}}
	}
}

// imported ends the stream of an import and returns the server's answer.
func imported(
	stream grpc.ClientStreamingClient[bridgev1.ImportSessionRequest, bridgev1.ImportSessionResponse],
) (*bridgev1.ImportSessionResponse, error) {
	out, err := stream.CloseAndRecv()
	return out, FromError(err)
}
