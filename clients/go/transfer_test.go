package copilot_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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

// An archive is read and sent in chunks. One that lacks bytes is an error.
func TestArchives(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789abcdef", 20<<10)
	sum := sha256.Sum256([]byte(text))
	f, c := newFake(t)
	f.export = func(
		r *bridgev1.ExportSessionRequest, s grpc.ServerStreamingServer[bridgev1.ExportSessionResponse],
	) error {
		header := &bridgev1.ExportSessionHeader{SizeBytes: int64(len(text)), Sha256: hex.EncodeToString(sum[:])}
		half := &bridgev1.ExportSessionResponse_Chunk{Chunk: []byte(text[:len(text)/2])}
		err := errors.Join(
			s.Send(&bridgev1.ExportSessionResponse{Piece: &bridgev1.ExportSessionResponse_Header{Header: header}}),
			s.Send(&bridgev1.ExportSessionResponse{Piece: half}))
		if r.GetSessionId() == "whole" {
			half = &bridgev1.ExportSessionResponse_Chunk{Chunk: []byte(text[len(text)/2:])}
			err = errors.Join(err, s.Send(&bridgev1.ExportSessionResponse{Piece: half}))
		}
		return err
	}
	var got bytes.Buffer
	if _, err := c.ExportSession(testContext(t), "whole", &got); err != nil || got.String() != text {
		t.Errorf("%d bytes: %v", got.Len(), err)
	}
	_, err := c.ExportSession(testContext(t), "cut", io.Discard)
	damage, ok := errors.AsType[*copilot.Error](err)
	if !ok || damage.Code != codes.DataLoss || !errors.Is(err, copilot.ErrArchiveDamaged) {
		t.Errorf("half an archive: %v", err)
	}

	path := filepath.Join(t.TempDir(), "archive")
	if _, err := c.Session("cut").ExportTo(testContext(t), path); !errors.Is(err, copilot.ErrArchiveDamaged) {
		t.Errorf("half an archive: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half an archive is left: %v", err)
	}
	if _, err := c.Session("whole").ExportTo(testContext(t), path); err != nil {
		t.Error(err)
	}
	if _, err := c.Session("whole").ExportTo(testContext(t), path); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an archive: %v", err)
	}
	if file, err := os.ReadFile(path); err != nil || string(file) != text {
		t.Errorf("%d bytes: %v", len(file), err)
	}

	var received string
	f.importing = func(
		s grpc.ClientStreamingServer[bridgev1.ImportSessionRequest, bridgev1.ImportSessionResponse],
	) error {
		first, err := s.Recv()
		for err == nil {
			var m *bridgev1.ImportSessionRequest
			if m, err = s.Recv(); err == nil {
				received += string(m.GetChunk())
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		return s.SendAndClose(&bridgev1.ImportSessionResponse{OriginSessionId: first.GetHeader().GetSessionId()})
	}
	as := &bridgev1.ImportSessionHeader{SessionId: "s2"}
	made, err := c.ImportSession(testContext(t), iotest.HalfReader(&got), as)
	if err != nil || made.GetOriginSessionId() != "s2" || received != text {
		t.Errorf("imported %v with %d bytes: %v", made, len(received), err)
	}
	boom := errors.New("boom")
	if _, err := c.ImportSession(testContext(t), iotest.ErrReader(boom), nil); !errors.Is(err, boom) {
		t.Errorf("a broken file: %v", err)
	}
}
