package segment

// starter is a file that can begin to write its data to disk without waiting for that.
type starter interface{ StartSync() }

// StartSync has the disk begin to write what a following Sync waits for. If it is called for several logs before the
// first Sync, the file system writes their data and its own records of them together. It reports no error; Sync does.
// It is safe for concurrent use.
func (l *Log) StartSync() {
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	l.mu.RLock()
	file, appends, synced := l.file, l.appends, l.synced
	l.mu.RUnlock()
	if file == nil || appends == synced {
		return
	}
	if s, ok := file.(starter); ok {
		s.StartSync()
		return
	}
	startSync(file)
}
