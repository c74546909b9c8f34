package config

import (
	"bytes"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// secretMembers are the members, at any depth, whose values are not kept: what the
// contract marks as secret, and what carries such things.
var secretMembers = map[string]bool{
	"gitHubToken": true, "apiKey": true, "apiKeyCommand": true, "bearerToken": true, "token": true,
	"accessToken": true, "executionToken": true, "sessionToken": true, "clientSecret": true,
	"hmac": true, "password": true, "headers": true, "requestHeaders": true, "env": true,
	"environment": true, "envVars": true, "grantedEnvironmentVariables": true, "secrets": true,
	"credentials": true, "authInfo": true, "authorizationUrl": true,
}

// WithoutSecrets returns a JSON value without its secrets, and adds their paths to missing. It returns a value
// without secrets unchanged.
func WithoutSecrets(value json.RawMessage, at string, missing *[]string) json.RawMessage {
	trimmed := bytes.TrimLeft(value, " \t\r\n")
	if len(trimmed) == 0 {
		return value
	}
	switch trimmed[0] {
	case '{':
		o, err := jsonobj.Parse(value)
		if err != nil {
			return json.RawMessage("null")
		}
		out := make(jsonobj.Object, 0, len(o))
		for _, m := range o {
			path := at + m.Key
			if !secretMembers[m.Key] || empty(m.Value) {
				out = append(out, jsonobj.Member{Key: m.Key, Value: WithoutSecrets(m.Value, path+".", missing)})
				continue
			}
			*missing = append(*missing, path)
		}
		return out.JSON()
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil {
			return json.RawMessage("null")
		}
		for i := range list {
			list[i] = WithoutSecrets(list[i], at, missing)
		}
		text, _ := json.Marshal(list) // values that were read
		return text
	}
	return value
}

// empty reports whether a value holds nothing that could be secret.
func empty(value json.RawMessage) bool {
	switch string(bytes.TrimSpace(value)) {
	case "null", "{}", "[]", `""`, "true", "false":
		return true
	}
	return false
}
