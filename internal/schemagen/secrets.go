package schemagen

// secretRow names members that hold credentials: no log prints them.
type secretRow struct {
	Member, Reason string
}

var secretRows = []secretRow{
	{"gitHubToken", "GitHub credential"},
	{"apiKey", "model endpoint credential"},
	{"bearerToken", "model endpoint credential"},
	{"token", "credential"},
	{"accessToken", "credential"},
	{"headers", "carries Authorization"},
	{"requestHeaders", "carries Authorization"},
	{"env", "environment variables carry credentials"},
}

// isSecret reports a field that debug output must leave out.
func isSecret(f *Field) bool {
	for _, row := range secretRows {
		if row.Member == f.JSON {
			return true
		}
	}
	return false
}
