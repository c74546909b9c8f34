package schemagen

// Names that a field or an rpc has instead of the one that its JSON member or method gives it, because that is a word
// of some language or of its generator: see internal/gen/protorules. The JSON names stay.

const (
	typeWord = "type is a keyword of Rust, and of TypeScript's declarations"
	enumWord = "enum is a keyword of Rust, C++, C#, Java and TypeScript"
	tonic    = "tonic's clients have a function connect of their own"
)

// memberNames give the fields of members another name.
var memberNames = []substitute{
	{"SessionEvent.type", "event_type", typeWord},
	{"CallbackSessionServiceLifecycleRequest.type", "lifecycle_type", typeWord},
	{"HostEventScope.type", "scope_type", typeWord},
	{"SessionServiceShutdownRequest.type", "shutdown_type", typeWord},
	{"SessionServiceLogRequest.type", "log_type", typeWord},
	{"*ProviderConfig.type", "provider_type", typeWord},
	{"SessionProviderServiceGetEndpointResponse.type", "provider_type", typeWord},
	{"McpServerConfig*.type", "server_type", typeWord},
	{"DiscoveredMcpServer.type", "server_type", typeWord},
	{"ModelCapabilities.type", "model_type", typeWord},
	{"AutoTierDescriptor.type", "tier_type", typeWord},
	{"BuiltinToolDescriptor.type", "tool_type", typeWord},
	{"AssistantMessageToolRequest.type", "tool_type", typeWord},
	{"ExternalToolTextResultForLlmBinaryResultsForLlm.type", "binary_type", typeWord},
	{"BinaryAsset*.type", "binary_type", typeWord},
	{"OmittedBinaryResult.type", "binary_type", typeWord},
	{"PersistedBinaryImage.type", "binary_type", typeWord},
	{"AuthIdentity*.type", "auth_type", typeWord},
	{"ConnectorDiscoveryAuthInfo.type", "auth_type", typeWord},
	{"GitHubOwnerOption.type", "owner_type", typeWord},
	{"InstructionSource.type", "source_type", typeWord},
	{"*AdditionalContentExclusionPolicyRuleSource.type", "source_type", typeWord},
	{"SessionFsReaddirWithTypesEntry.type", "entry_type", typeWord},
	{"SlashCommandTimelineEntry.type", "entry_type", typeWord},
	{"UIElicitationSchemaPropertyNumber.type", "number_type", typeWord},
	{"*Attachment*.ref", "git_ref", "ref is a keyword of Rust"},
	{"*InstalledPluginSource*.ref", "git_ref", "ref is a keyword of Rust"},
	{"UIElicitation*.const", "const_value", "const is a keyword of Rust, C++, Java and TypeScript"},
	{"UIElicitation*.default", "default_value", "default is a keyword of C++, C#, Java and TypeScript"},
	{"UIElicitation*.enum", "enum_values", enumWord},
	{"UsageMetricsCodeChanges.filesModifiedCount", "modified_file_count",
		"Java has an accessor getFilesModifiedCount for the list files_modified"},
}

// memberField returns the name of the field of a member, by the name of the message.
func (p *planner) memberField(message, member string) string {
	return p.substituted("member", memberNames, message+"."+member, fieldName(member))
}

// rpcNames give the rpcs of methods another name.
var rpcNames = []substitute{
	{"connect", "ConnectServer", tonic},
	{"sessions.connect", "ConnectSession", tonic},
	{"session.connectors.connect", "ConnectConnector", tonic},
}

// rpcOf returns the name of the rpc of a method, whose last word is last.
func (p *planner) rpcOf(method, last string) string {
	p.hits["read "+method] = true
	return p.substituted("rpc", rpcNames, method, pascal(last))
}
