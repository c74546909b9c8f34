package copilot

// IsLocal, CheckVersion and ServiceConfig are for the tests.
var (
	IsLocal      = isLocal
	CheckVersion = checkVersion
)

const ServiceConfig = serviceConfig
