package audit

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/testleak"
)

func TestMain(m *testing.M) { testleak.Main(m) }
