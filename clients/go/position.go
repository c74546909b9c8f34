package copilot

import (
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/position"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ComparePositions orders two positions of a session: negative when a comes before b,
// 0 when they are the same. Nil comes before all others.
func ComparePositions(a, b *bridgev1.Position) int { return position.Compare(a, b) }

// FormatPosition returns a position as text, for storing it; "0/0" for nil.
func FormatPosition(pos *bridgev1.Position) string { return position.Format(pos) }

// ParsePosition is the inverse of [FormatPosition].
func ParsePosition(text string) (*bridgev1.Position, error) { return position.Parse(text) }
