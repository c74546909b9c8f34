package copilot

// IsLocal and ServiceConfig are for the tests.
var IsLocal = isLocal

const ServiceConfig = serviceConfig
