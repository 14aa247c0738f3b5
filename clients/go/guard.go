package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"
)

//go:generate go run ./generate

const (
	responseTimeout, maxMessageWait, leaseEndMargin = time.Second, time.Second, 2 * time.Millisecond

	// granted stands for the nil of the script, beside what PTTL says of a key. The server remembers
	// a re-entry or a release for latchMs, and an abandoned attempt for abandonMs.
	granted, absent, wakeOne, latchMs, abandonMs = -3, -2, "0", 10_000, 60_000
)

var (
	acquireScript = redis.NewScript(acquireText)
	releaseScript = redis.NewScript(releaseText)
	renewScript   = redis.NewScript(renewText)

	// ErrTimedOut means that another owner held the lock until the wait was over.
	ErrTimedOut = errors.New("distlock: another owner holds the lock")
	// ErrHeldByOtherKind means that the key is no lock of the kind redisson.
	ErrHeldByOtherKind = errors.New("distlock: the key is no lock of this kind")
	// ErrBadRequest means that an option is out of its range. No server was asked.
	ErrBadRequest = errors.New("distlock: bad request")
	// ErrLost means that the hold ended without a release. Its owner cannot enter again.
	ErrLost = errors.New("distlock: the lock is lost")
	// ErrExpired is the ErrLost of a lease that was not renewed in time, as far as is known here.
	ErrExpired = fmt.Errorf("%w: its lease has ended", ErrLost)
	// ErrTaken is the ErrLost of a lock that the server says is gone.
	ErrTaken = fmt.Errorf("%w: it was taken away", ErrLost)
	// ErrHeldByOther is of a release: another owner holds the lock, which is untouched.
	ErrHeldByOther = errors.New("distlock: another owner holds what is released")
	// ErrGone is of a release: no owner held the lock.
	ErrGone = errors.New("distlock: no owner holds what is released")

	errNotReleased = map[int64]error{-1: ErrGone, -2: ErrHeldByOther}
	errNoAnswer    = errors.New("distlock: Redis did not answer in time")
)

// Owner is the owner of a lock, for re-entry. All its holds have one fencing token.
type Owner struct {
	text, name string
	drawing    *semaphore.Weighted
	token      uint64
}

func (o *Owner) String() string { return o.text }

// Guard is a held lock.
type Guard struct {
	locks      *Locks
	owner      *Owner
	id         string
	lease      time.Duration
	reenters   bool
	token      uint64
	validUntil atomic.Pointer[time.Time]
	// loss ends with ErrExpired or ErrTaken, hold when the release begins.
	loss, hold context.Context
	lose       context.CancelCauseFunc
	release    func() error
}

func (l *Locks) newGuard(name string, options *LockOptions) *Guard {
	id := fmt.Sprintf("%s:%d", l.process, l.guards.Add(1))
	guard := &Guard{locks: l, owner: options.Owner, id: id, lease: options.Lease}
	if guard.reenters = options.Owner != nil; !guard.reenters {
		guard.owner = &Owner{text: id, name: name, drawing: semaphore.NewWeighted(1)}
	}
	guard.loss, guard.lose = context.WithCancelCause(context.Background())
	hold, end := context.WithCancel(context.Background())
	guard.hold, guard.release = hold, sync.OnceValue(func() error { end(); return guard.free() })
	return guard
}

// Owner is for re-entry: LockOptions.Owner.
func (g *Guard) Owner() *Owner { return g.owner }

// Token is the fencing token; 0 if none was asked for.
func (g *Guard) Token() uint64 { return g.token }

// ValidUntil is the end of the validity time, unless the lease is renewed.
func (g *Guard) ValidUntil() time.Time { return *g.validUntil.Load() }

// Err is nil, or says why the lock is lost, which is final. It reads the clock, so a process that
// was frozen knows at its first look. Check it before each step that must not happen twice. After
// a release in time it stays nil.
func (g *Guard) Err() error {
	if !time.Now().Before(g.ValidUntil()) && g.hold.Err() == nil {
		g.lose(ErrExpired)
	}
	return context.Cause(g.loss)
}

// Lost is closed when the lock is lost, and never if it is released before.
func (g *Guard) Lost() <-chan struct{} { return g.loss.Done() }

// Context ends with the parent, and with a cause that is ErrLost when the lock is lost.
func (g *Guard) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(g.loss, func() { cancel(context.Cause(g.loss)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Release releases this hold, once; the last hold of the owner frees the lock. It runs to its end
// although the context ends before. It fails with ErrHeldByOther, ErrGone, or the error of the
// connection.
func (g *Guard) Release(ctx context.Context) error {
	g.locks.running.Add(1)
	err, ended := await(ctx, func() error { defer g.locks.running.Add(-1); return g.release() })
	return cmp.Or(ended, err)
}

// extend counts from the sending of a granted request, with a margin for clocks.
func (g *Guard) extend(sent time.Time) {
	until := sent.Add(g.lease - g.lease/100 - leaseEndMargin)
	g.validUntil.Store(&until)
}

// watch renews the lease at every third of it until the hold ends, and notices the end.
func (g *Guard) watch(renew bool) {
	for pause := g.lease / 3; g.Err() == nil; {
		select {
		case <-time.After(min(pause, time.Until(g.ValidUntil()))):
		case <-g.hold.Done():
			return
		}
		if renew && g.Err() == nil {
			pause = g.renew()
		}
	}
}

// renew says how long to wait until the next time. An answer counts within the validity time.
func (g *Guard) renew() time.Duration {
	ctx, cancel := context.WithDeadline(g.hold, g.ValidUntil())
	defer cancel()
	sent, lease := time.Now(), g.lease.Milliseconds()
	answer := g.locks.run(ctx, renewScript, []string{g.owner.name}, g.owner.text, lease)
	switch renewed, err := answer.Int64Slice(); {
	case err != nil:
		return g.lease / 30
	case renewed[0] == 0 && g.hold.Err() == nil:
		g.lose(ErrTaken)
	case g.Err() == nil:
		g.extend(sent)
	}
	return g.lease / 3
}

// acquire asks the server once. It returns the rest of the holder's lease in ms, or granted.
func (g *Guard) acquire(ctx context.Context, looks int64) (int64, error) {
	l, name := g.locks, g.owner.name
	for ; looks > 0; looks-- {
		look := func(ctx context.Context) *redis.Cmd { return l.client.Do(ctx, "PTTL", name) }
		if left, err := answered(ctx, look).Int64(); err != nil || left != absent {
			return left, err
		}
	}
	l.Attempts.Add(1)
	g.extend(time.Now())
	left, err := l.run(ctx, acquireScript, []string{name, g.key("lock_latch")},
		g.lease.Milliseconds(), g.owner.text, g.reenters, latchMs).Int64()
	switch {
	case ctx.Err() != nil || isUnanswered(err):
		l.inBackground(g.abandon)
		return 0, cmp.Or(context.Cause(ctx), err)
	case errors.Is(err, redis.Nil):
		return granted, nil
	case err == nil:
		l.Busy.Add(1)
	}
	return left, err
}

// free leaves the lock. The quickest process would have it again and again, so it looks before it
// asks.
func (g *Guard) free() error {
	left := g.locks.enter(g.owner.name)
	defer g.locks.leave(left)
	keys := []string{left.name, left.channel, g.key("unlock_latch")}
	answer, err := g.locks.run(context.Background(), releaseScript, keys,
		wakeOne, g.lease.Milliseconds(), g.owner.text, latchMs, "PUBLISH").Int64()
	others := answer - 1
	if left.isSubscribed.Load() {
		others--
	}
	left.looks.Store(min(others, 2))
	if err == nil {
		err = errNotReleased[answer]
	}
	return err
}

// abandon undoes an attempt without an answer, or keeps it from being carried out later. It tries
// for the time of the lease, and 60 s at most.
func (g *Guard) abandon() {
	keys := []string{g.owner.name, beside("lock__channel", g.owner.name), g.key("lock_latch")}
	// By its text: a server that hangs now could not ask for it later.
	undo := func(ctx context.Context) *redis.Cmd {
		return g.locks.client.Eval(
			ctx, abandonText, keys, wakeOne, g.owner.text, g.reenters, abandonMs, "PUBLISH")
	}
	end, pause := time.Now().Add(min(g.lease, abandonMs*time.Millisecond)), 50*time.Millisecond
	for isUnanswered(answered(context.Background(), undo).Err()) && time.Now().Before(end) {
		time.Sleep(pause)
		pause = min(2*pause, time.Second)
	}
}

// drawToken fails if the token did not come within the validity time, or before the context ended.
func (g *Guard) drawToken(ctx context.Context, issuer TokenIssuer) error {
	if issuer == nil {
		return g.Err()
	}
	err, ended := await(ctx, func() (err error) {
		if g.owner.drawing.Acquire(ctx, 1) != nil {
			return context.Cause(ctx)
		}
		defer g.owner.drawing.Release(1)
		if g.token = g.owner.token; g.token == 0 {
			g.token, err = issuer.Next(ctx, g.owner.name)
		}
		if err == nil {
			g.owner.token = g.token
		}
		return err
	})
	return cmp.Or(ended, err, g.Err())
}

// run calls a script. A lost answer costs one repetition, which is safe: it counts once.
func (l *Locks) run(
	ctx context.Context, script *redis.Script, keys []string, arguments ...any,
) *redis.Cmd {
	call := func(ctx context.Context) *redis.Cmd {
		return script.Run(ctx, l.client, keys, arguments...)
	}
	answer := answered(ctx, call)
	if isUnanswered(answer.Err()) && ctx.Err() == nil {
		answer = answered(ctx, call)
	}
	switch err := answer.Err(); {
	case redis.HasErrorPrefix(err, "LOST"):
		answer.SetErr(fmt.Errorf("%w: %w", ErrLost, err))
	case err != nil && strings.Contains(err.Error(), "WRONGTYPE"):
		answer.SetErr(fmt.Errorf("%w: %w", ErrHeldByOtherKind, err))
	}
	return answer
}

// answered bounds a call. go-redis may still carry it out later, which the scripts foresee.
func answered(ctx context.Context, call func(context.Context) *redis.Cmd) *redis.Cmd {
	ctx, cancel := context.WithTimeoutCause(ctx, responseTimeout, errNoAnswer)
	defer cancel()
	answer, ended := await(ctx, func() *redis.Cmd { return call(ctx) })
	if ended != nil {
		answer = redis.NewCmdResult(nil, ended)
	}
	return answer
}

// await returns what the work does, or why the context ended first. The work runs to its end.
func await[T any](ctx context.Context, work func() T) (done T, ended error) {
	results := make(chan T, 1)
	go func() { results <- work() }()
	select {
	case done = <-results:
	case <-ctx.Done():
		ended = context.Cause(ctx)
	}
	return done, ended
}

func (l *Locks) inBackground(work func()) {
	l.running.Add(1)
	go func() { work(); l.running.Add(-1) }()
}

// isUnanswered tells whether the server may have acted: it did not answer with an error.
func isUnanswered(err error) bool {
	var answer redis.Error
	return err != nil && !errors.As(err, &answer)
}

// key is one of this acquisition alone.
func (g *Guard) key(kind string) string { return beside(kind, g.owner.name) + ":" + g.id }

// beside is a key beside the lock's, in the same slot of a cluster, as Redisson names it.
func beside(kind, name string) string {
	if !strings.Contains(name, "{") {
		name = "{" + name + "}"
	}
	return "redisson_" + kind + ":" + name
}
