package session

// keySeparator is in no session's id and no tenant's name.
const keySeparator = "."

// Key is what a session is known by where those of all tenants are: ids are a tenant's own,
// so that nobody learns from one that it is taken. Those of the host's owner are their keys.
func Key(tenant, id string) string {
	if tenant == "" {
		return id
	}
	return tenant + keySeparator + id
}

// Tenant returns whose the session is.
func (s *Session) Tenant() string { return s.tenant }

// Key returns what the session is known by where those of all tenants are.
func (s *Session) Key() string { return Key(s.tenant, s.id) }
