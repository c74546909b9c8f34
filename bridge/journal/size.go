package journal

// Stored returns how many bytes of the journal are kept: on disk, or in memory where it has
// no log.
func (j *Journal) Stored() int64 {
	if j.disk != nil {
		return j.disk.log.Size()
	}
	j.mu.RLock()
	defer j.mu.RUnlock()
	return int64(j.ephemeral) + int64(j.cached)
}
