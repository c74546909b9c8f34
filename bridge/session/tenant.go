package session

// keySeparator is in no session's id and no tenant's name.
const keySeparator = "."

// Key returns the identifier of a session among the sessions of all tenants. Each tenant has its own ids, so that
// a conflict reveals nothing about other tenants. Without a tenant the key is the id.
func Key(tenant, id string) string {
	if tenant == "" {
		return id
	}
	return tenant + keySeparator + id
}

// Tenant returns the owner of the session; it is empty for the user who runs the server.
func (s *Session) Tenant() string { return s.tenant }

// Key returns the identifier of the session among the sessions of all tenants.
func (s *Session) Key() string { return Key(s.tenant, s.id) }
