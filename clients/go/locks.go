// Package distlock has locks in Redis that exclude Redisson's RLock, and the kind redisson of the
// Rust library distlock.
package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	maxMessageWait = time.Second
	leaseEndMargin = 2 * time.Millisecond
	maxLease       = 24 * time.Hour
	wakeOne        = "0"
	// How long the server remembers a re-entry or a release, and an abandoned attempt.
	latchMs, abandonMs = 10_000, 60_000
	// How long a process looks at a lock before it asks for it again, if others want it.
	giveWayFor = 250 * time.Millisecond
)

// TokenIssuer draws fencing tokens, which rise for ever, whatever happens to Redis.
type TokenIssuer interface {
	Next(ctx context.Context, name string) (uint64, error)
}

// Options are those of Locks.
type Options struct {
	// TokenIssuer is for LockOptions.Fenced.
	TokenIssuer TokenIssuer
	// ResponseTimeout is how long the server may take to answer: a second if it is 0.
	ResponseTimeout time.Duration
}

// LockOptions are those of one acquisition.
type LockOptions struct {
	// Wait is how long to wait for the holder.
	Wait time.Duration
	// Lease is how long the server keeps the lock of a holder that is silent: 30 s if it is 0.
	Lease time.Duration
	// NoRenewal ends the lock with its lease, which is otherwise renewed at every third of it.
	NoRenewal bool
	// Owner enters again: that of a guard of the same lock.
	Owner *Owner
	// Fenced asks for a fencing token.
	Fenced bool
}

// Stats count since the start.
type Stats struct{ Attempts, Busy, HandOffs uint64 }

// Locks are the locks of one Redis server, or of the master that Sentinel names.
type Locks struct {
	client                   redis.UniversalClient
	options                  Options
	process                  string
	owners                   atomic.Uint64
	attempts, busy, handOffs atomic.Uint64
	signals                  signals
	mutex                    sync.Mutex
	queues                   map[string]*queue
	giveWay                  map[string]yield
	running                  int
	idle                     *sync.Cond
}

// queue lets one goroutine per name ask the server.
type queue struct {
	turn  chan struct{}
	users int
}

// yield is how often to look at a lock that others were told of, and until when.
type yield struct {
	looks int64
	until time.Time
}

// New makes locks. A cluster is refused: its messages are sharded.
func New(client redis.UniversalClient, options Options) (*Locks, error) {
	if _, isCluster := client.(*redis.ClusterClient); isCluster {
		return nil, fmt.Errorf("%w: client: must not be of a cluster", ErrBadRequest)
	}
	if options.ResponseTimeout == 0 {
		options.ResponseTimeout = time.Second
	}
	locks := &Locks{
		client:  client,
		options: options,
		process: uuid.NewString(),
		signals: signals{
			client: client, channels: map[string]*channel{}, followed: map[string]*channel{},
		},
		queues:  map[string]*queue{},
		giveWay: map[string]yield{},
	}
	locks.idle = sync.NewCond(&locks.mutex)
	return locks, nil
}

// Stats counts attempts, busy answers, and locks that came after a wait.
func (l *Locks) Stats() Stats {
	return Stats{Attempts: l.attempts.Load(), Busy: l.busy.Load(), HandOffs: l.handOffs.Load()}
}

// Flush waits until no release and no abandoned attempt is under way.
func (l *Locks) Flush() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for l.running > 0 {
		l.idle.Wait()
	}
}

// Close ends the subscriptions. Locks that are still held end with their leases.
func (l *Locks) Close() error {
	l.Flush()
	return l.signals.close()
}

// TryLock takes the lock if it is free; else it returns nil.
func (l *Locks) TryLock(ctx context.Context, name string, options LockOptions) (*Guard, error) {
	options.Wait = 0
	guard, err := l.Lock(ctx, name, options)
	if errors.Is(err, ErrTimedOut) {
		return nil, nil
	}
	return guard, err
}

// Lock takes the lock. It fails with ErrTimedOut, ErrLost, ErrHeldByOtherKind, ErrBadRequest, or
// the error of the connection. If the context ends, nothing is left: what the server grants later
// is released.
func (l *Locks) Lock(ctx context.Context, name string, options LockOptions) (*Guard, error) {
	if options.Lease == 0 {
		options.Lease = 30 * time.Second
	}
	if err := l.check(name, &options); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(options.Wait)
	if options.Owner == nil {
		leave, err := l.enterQueue(ctx, name, options.Wait)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	guard, err := l.enter(ctx, name, deadline, &options)
	if err != nil {
		return nil, err
	}
	guard.watch(!options.NoRenewal)
	if options.Fenced {
		err = l.drawToken(ctx, guard)
	}
	// A token counts only if it came within the validity time.
	if err == nil && guard.IsLost() {
		err = ErrLost
	}
	if err != nil {
		_, _ = guard.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	return guard, nil
}

func (l *Locks) check(name string, options *LockOptions) error {
	switch {
	case len(name) < 1 || len(name) > 512:
		return fmt.Errorf("%w: name: must have 1 to 512 bytes", ErrBadRequest)
	case options.Lease < 10*time.Millisecond || options.Lease > maxLease:
		return fmt.Errorf("%w: lease: must be 10 ms to 24 h", ErrBadRequest)
	case options.Wait < 0 || options.Wait > maxLease:
		return fmt.Errorf("%w: wait: must be 0 to 24 h", ErrBadRequest)
	case options.Owner != nil && options.Owner.name != name:
		return fmt.Errorf("%w: owner: must be that of a hold of the same lock", ErrBadRequest)
	case options.Fenced && l.options.TokenIssuer == nil:
		return fmt.Errorf("%w: fenced: needs a token issuer", ErrBadRequest)
	}
	return nil
}

// enterQueue waits for the turn among the goroutines of this process.
func (l *Locks) enterQueue(ctx context.Context, name string, wait time.Duration) (func(), error) {
	l.mutex.Lock()
	entered := l.queues[name]
	if entered == nil {
		entered = &queue{turn: make(chan struct{}, 1)}
		l.queues[name] = entered
	}
	entered.users++
	l.mutex.Unlock()
	leave := func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		if entered.users--; entered.users == 0 {
			delete(l.queues, name)
		}
	}
	select {
	case entered.turn <- struct{}{}:
	default:
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case entered.turn <- struct{}{}:
		case <-timer.C:
			leave()
			return nil, ErrTimedOut
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		}
	}
	return func() { <-entered.turn; leave() }, nil
}

func (l *Locks) enter(
	ctx context.Context, name string, deadline time.Time, options *LockOptions,
) (*Guard, error) {
	channelName := prefixed("redisson_lock__channel", name)
	var joined *channel
	defer func() { l.signals.leave(joined) }()
	if options.Owner == nil {
		joined = l.signals.enter(channelName, false)
	}
	for hasWaited := false; ; hasWaited = true {
		joined.clear()
		owner := options.Owner
		if owner == nil {
			owner = &Owner{text: fmt.Sprintf("%s:%d", l.process, l.owners.Add(1)), name: name}
		}
		guard := &Guard{
			locks: l, owner: owner, request: uuid.NewString(), lease: options.Lease,
			lost: make(chan struct{}),
		}
		left, err := l.attempt(ctx, guard, options.Owner != nil, deadline)
		remaining := time.Until(deadline)
		switch {
		case isUnanswered(err) && ctx.Err() == nil && hasWaited && options.Owner == nil && remaining > 0:
			// A waiter outlives a short outage; a newcomer gets the error at once.
			left = 100
		case err != nil:
			return nil, err
		case left == granted:
			if hasWaited {
				l.handOffs.Add(1)
			}
			return guard, nil
		}
		if remaining <= 0 {
			return nil, ErrTimedOut
		}
		if joined == nil {
			joined = l.signals.enter(channelName, true)
		}
		pause := maxMessageWait
		if left >= 0 {
			pause = min(pause, time.Duration(left)*time.Millisecond+leaseEndMargin)
		}
		timer := time.NewTimer(min(pause, remaining))
		select {
		case <-joined.wake:
		case <-timer.C:
			if pause >= remaining {
				return nil, ErrTimedOut
			}
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
		timer.Stop()
	}
}
