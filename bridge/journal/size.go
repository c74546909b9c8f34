package journal

// Stored returns the bytes of the journal's stored events: on disk, or in memory if it has no log.
func (j *Journal) Stored() int64 {
	if j.disk != nil {
		return j.disk.log.Size()
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	return int64(j.ephemeral) + int64(j.cached)
}
