package leak

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/prometheus/procfs"
)

// stateZombie is the kernel's letter for a process that ended and was not waited for.
const stateZombie = "Z"

// children lists the processes whose parent is the given one. Orphans adopted by a child subreaper have that parent too,
// as intended.
func children(proc procfs.FS, parent int) ([]procfs.ProcStat, error) {
	all, err := proc.AllProcs()
	if err != nil {
		return nil, err
	}
	var found []procfs.ProcStat
	for _, p := range all {
		stat, err := p.Stat()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", p.PID, err)
		}
		if stat.PPID == parent {
			found = append(found, stat)
		}
	}
	slices.SortFunc(found, func(a, b procfs.ProcStat) int { return a.PID - b.PID })
	return found, nil
}
