package schemagen

// secretRows are members that hold credentials: they are marked debug_redact, so
// that nothing which honours the mark prints them. Flags, numbers and enums of that
// name are none.
var secretRows = []exception{
	{"*.gitHubToken", "GitHub credential"},
	{"*.apiKey", "credential of a model endpoint"},
	{"*.apiKeyCommand", "a command line can hold a credential"},
	{"*.bearerToken", "credential of a model endpoint"},
	{"*.token", "credential"},
	{"*.accessToken", "credential"},
	{"*.accessTokenToRenew", "credential"},
	{"*.executionToken", "the right to act for a workflow"},
	{"*.sessionToken", "credential of a model endpoint"},
	{"*.clientSecret", "credential of an OAuth client"},
	{"*.hmac", "credential of a service"},
	{"*.password", "credential of a proxy"},
	{"*.headers", "carries Authorization"},
	{"*.requestHeaders", "carries Authorization"},
	{"HeaderEntry.value", "carries Authorization"},
	{"*.env", "environment variables carry credentials"},
	{"*.environment", "environment variables carry credentials"},
	{"*.envVars", "environment variables carry credentials"},
	{"*.grantedEnvironmentVariables", "environment variables carry credentials"},
	{"*.secrets", "credentials of MCP servers"},
	{"SandboxConfig.credentials", "environment variables carry credentials"},
	{"session.gitHubAuth.setCredentials?.credentials", "GitHub credential"},
	{"*.authInfo", "can hold a token"},
	{"HostEventNotification.payload", "an auth_changed event carries the credentials"},
	{"*.authorizationUrl", "holds the state of a sign-in"},
}

// secret reports whether the member at path must be left out of debug output.
func (p *planner) secret(path string, f *Field) bool {
	switch f.Type {
	case "bool", "int64", "double":
		return false
	}
	if p.plan.Enums[f.Type] != nil {
		return false
	}
	return p.excepted("secret", secretRows, path)
}
