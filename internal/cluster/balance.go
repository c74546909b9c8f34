package cluster

// Surplus returns how many sessions a member should give to another one, and to which, so that the members come to
// have about as many sessions each; 0 if the difference is not worth a move. Members that drain get none.
func Surplus(members []Member, own string) (to Member, n int) {
	total, takers, mine := 0, 0, 0
	for _, m := range members {
		if m.Draining {
			continue
		}
		if m.ID == own {
			mine = m.Sessions
		}
		if takers == 0 || m.Sessions < to.Sessions {
			to = m
		}
		takers++
		total += m.Sessions
	}
	if takers < 2 || to.ID == own {
		return Member{}, 0
	}
	// A tenth more than the others is no surplus: sessions would move to and fro.
	mean := total / takers
	if mine <= mean+mean/10+1 {
		return Member{}, 0
	}
	return to, min(mine-mean, max(mean-to.Sessions, 1))
}
