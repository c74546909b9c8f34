package answer

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// maxSize bounds an answer: by default a server accepts messages of 16 MiB, and a longer one would end the stream. The
// client sends an error instead.
const maxSize = 15 << 20

// Unsendable says why an answer cannot be sent; a message that gRPC cannot encode would end the
// stream. It is empty for an answer that can.
func Unsendable(answer *bridgev1.Answer) string {
	if size := proto.Size(answer); size > maxSize {
		return fmt.Sprintf("the answer has %d bytes, more than %d", size, maxSize)
	}
	if _, err := proto.Marshal(answer); err != nil {
		return "the answer cannot be encoded: " + err.Error()
	}
	return ""
}
