package distlock

import (
	"context"
	"sync"
	"time"
)

// Release says how a release ended.
type Release int

const (
	// Released means that the hold was the caller's.
	Released Release = iota
	// HeldByOther means that another owner holds the lock. It is untouched.
	HeldByOther
	// Gone means that no owner held the lock.
	Gone
)

// Cause says why a lock is lost.
type Cause int

const (
	// Expired means that the lease was not renewed in time, as far as this process knows.
	Expired Cause = iota + 1
	// Taken means that the server says so.
	Taken
)

// Owner is the owner of a lock, for re-entry. All its holds have one fencing token.
type Owner struct {
	text, name string
	drawing    sync.Mutex
	token      *uint64
}

func (o *Owner) String() string { return o.text }

// Guard is a held lock.
type Guard struct {
	locks   *Locks
	owner   *Owner
	request string
	lease   time.Duration

	mutex      sync.Mutex
	validUntil time.Time
	cause      Cause
	lost       chan struct{}
	timer      *time.Timer
	stop       context.CancelFunc
	once       sync.Once
	release    Release
	err        error
}

// Owner is for re-entry: LockOptions.Owner.
func (g *Guard) Owner() *Owner { return g.owner }

// Token is the fencing token, if one was asked for.
func (g *Guard) Token() (token uint64, ok bool) {
	g.owner.drawing.Lock()
	defer g.owner.drawing.Unlock()
	if g.owner.token == nil {
		return 0, false
	}
	return *g.owner.token, true
}

// ValidUntil is the end of the validity time, unless the lease is renewed.
func (g *Guard) ValidUntil() time.Time {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.validUntil
}

// IsLost reads the clock, so a process that was frozen knows at its first look. Check it before
// each step that must not happen twice.
func (g *Guard) IsLost() bool { return g.Cause() != 0 }

// Cause says why the lock is lost; 0 if it is not.
func (g *Guard) Cause() Cause {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.look(0)
}

// look notes a loss. It is final. The mutex is held.
func (g *Guard) look(seen Cause) Cause {
	if g.cause != 0 {
		return g.cause
	}
	if !time.Now().Before(g.validUntil) {
		seen = Expired
	}
	if g.cause = seen; seen != 0 {
		close(g.lost)
	}
	return seen
}

// Lost is closed when the lock is lost, and never if it is released before.
func (g *Guard) Lost() <-chan struct{} { return g.lost }

// Context ends with the parent, and with the cause ErrLost when the lock is lost.
func (g *Guard) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-g.lost:
			cancel(ErrLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Release releases this hold, once; the last hold of the owner frees the lock. It runs to its end
// although the context ends before.
func (g *Guard) Release(ctx context.Context) (Release, error) {
	done := make(chan struct{})
	g.locks.inBackground(func() {
		defer close(done)
		g.once.Do(func() {
			g.stop()
			g.release, g.err = g.locks.release(g)
		})
	})
	select {
	case <-done:
		return g.release, g.err
	case <-ctx.Done():
		return Released, context.Cause(ctx)
	}
}

// extend counts from the sending of a granted request, with a margin for clocks.
func (g *Guard) extend(sent time.Time) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.cause == 0 {
		g.validUntil = sent.Add(g.lease - g.lease/100 - 2*time.Millisecond)
	}
}

// watch renews the lease at every third of it until the hold ends, and notices the end.
func (g *Guard) watch(renew bool) {
	var ctx context.Context
	ctx, g.stop = context.WithCancel(context.Background())
	g.mutex.Lock()
	timer := time.AfterFunc(time.Until(g.validUntil), func() {
		g.mutex.Lock()
		defer g.mutex.Unlock()
		if g.look(0) == 0 && ctx.Err() == nil {
			g.timer.Reset(time.Until(g.validUntil))
		}
	})
	g.timer = timer
	g.mutex.Unlock()
	context.AfterFunc(ctx, func() { timer.Stop() })
	if renew {
		go g.renew(ctx)
	}
}

func (g *Guard) renew(ctx context.Context) {
	for pause := g.lease / 3; ; {
		select {
		case <-time.After(pause):
		case <-g.lost:
			return
		case <-ctx.Done():
			return
		}
		sent := time.Now()
		answers, err := g.locks.renew(ctx, g)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			// Without an answer again after a thirtieth.
			pause = g.lease / 30
			continue
		case answers[0] == 1:
			g.extend(sent)
		default:
			g.mutex.Lock()
			g.look(Taken)
			g.mutex.Unlock()
		}
		pause = g.lease / 3
	}
}
