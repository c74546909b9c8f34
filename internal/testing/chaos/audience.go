package main

import "context"

// audience are the readers and the participants of a schedule. The schedule's goroutine owns it.
type audience struct {
	readers      []*reader
	participants []*participant
}

// follower is a track and what ends with it.
type follower struct {
	*track
	over <-chan struct{}
}

// followers returns the tracks of all.
func (a *audience) followers() (all []follower) {
	for _, r := range a.readers {
		all = append(all, follower{r.track, r.over})
	}
	for _, p := range a.participants {
		all = append(all, follower{p.track, p.over})
	}
	return all
}

// stop has every follower read to the end of its session, also readers that are stuck, and then ends it.
func (a *audience) stop(ctx context.Context, ends map[string]place) {
	for _, r := range a.readers {
		close(r.unstop)
	}
	for _, f := range a.followers() {
		end := ends[f.session]
		if !f.reached(ctx, end, f.over) && f.w.ctx.Err() == nil {
			f.mu.Lock()
			f.violated("has not come to %v within %v", end, catchUp)
			f.mu.Unlock()
		}
	}
	for _, r := range a.readers {
		r.end()
		<-r.over
	}
	for _, p := range a.participants {
		p.end()
		<-p.over
	}
}
