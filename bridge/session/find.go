package session

import "github.com/copilot-grpc/copilot-grpc/bridge/journal"

// findBytes is how much is read at a time to find a message.
const findBytes = 1 << 20

// FindMessage looks for the first message with a text after a position.
func (s *Session) FindMessage(after journal.Position, text string) (messageID string, at journal.Position, ok bool) {
	r, err := s.journal.NewReader(after, false, func() {})
	if err != nil {
		return "", at, false
	}
	defer r.Close()
	for {
		records, gap := r.Next(nil, findBytes)
		if gap == nil && len(records) == 0 {
			return "", at, false
		}
		for _, rec := range records {
			if rec.Type == "user.message" && rec.Agent == "" && contentOf(rec) == text {
				var d struct{ MessageID string }
				dataOf(rec, &d)
				return d.MessageID, rec.Pos, true
			}
		}
	}
}
