package journal

// Watched reports whether the journal has a reader.
func (j *Journal) Watched() bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	return len(j.readers) > 0
}
