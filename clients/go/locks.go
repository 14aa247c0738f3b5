// Package distlock has locks in Redis that exclude Redisson's RLock, and the kind redisson of the
// Rust library distlock.
package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"
)

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
	// TokenIssuer draws a fencing token: without it there is none.
	TokenIssuer TokenIssuer
}

// TokenIssuer draws fencing tokens from 1 on, which rise for ever, whatever happens to Redis.
type TokenIssuer interface {
	Next(ctx context.Context, name string) (uint64, error)
}

// Locks are the locks of one Redis server, or of the master that Sentinel names.
type Locks struct {
	// Attempts, Busy answers, and locks that came after a wait, since the start.
	Attempts, Busy, HandOffs atomic.Int64

	client          *redis.Client
	process         string
	guards, running atomic.Int64
	mutex           sync.Mutex
	places          map[string]*place
}

// place is what the process keeps of a name that is in use, or was 250 ms ago.
type place struct {
	name, channel string
	users         int
	// turn is taken by the goroutine that asks the server; wake has what it has not seen.
	turn *semaphore.Weighted
	wake chan struct{}
	// pubsub is the name's connection for messages, which go-redis makes again when it is lost.
	pubsub *redis.PubSub
	// It is confirmed once, and go-redis then subscribes again by itself.
	isSubscribed atomic.Bool
	// looks is how often to look at the lock before it is asked for.
	looks atomic.Int64
}

// New makes locks. The client is not of a cluster, whose messages are sharded.
func New(client *redis.Client) *Locks {
	return &Locks{client: client, process: uuid.NewString(), places: map[string]*place{}}
}

// Flush waits until no release and no abandoned attempt is under way: 60 s if Redis is away. Locks
// that are still held end with their leases.
func (l *Locks) Flush() {
	for l.running.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
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
	options.Lease = cmp.Or(options.Lease, 30*time.Second)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case len(name) < 1 || len(name) > 512:
		return nil, fmt.Errorf("%w: name: must have 1 to 512 bytes", ErrBadRequest)
	case options.Wait < 0 || options.Lease < 10*time.Millisecond,
		max(options.Lease, options.Wait) > 24*time.Hour:
		return nil, fmt.Errorf("%w: lease: 10 ms to 24 h; wait: 24 h at most", ErrBadRequest)
	case options.Owner != nil && options.Owner.name != name:
		return nil, fmt.Errorf("%w: owner: must be that of the same lock", ErrBadRequest)
	}
	guard, err := l.acquire(ctx, name, &options)
	if err != nil {
		return nil, err
	}
	go guard.watch(!options.NoRenewal)
	if err = guard.drawToken(ctx, options.TokenIssuer); err != nil {
		_ = guard.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	return guard, nil
}

// acquire waits for its turn in this process, and then for the holder.
func (l *Locks) acquire(ctx context.Context, name string, options *LockOptions) (*Guard, error) {
	if options.Owner != nil {
		// It does not wait: it holds the lock, or the script refuses it.
		guard := l.newGuard(name, options)
		_, err := guard.acquire(ctx, 0)
		return guard, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, options.Wait, ErrTimedOut)
	defer cancel()
	entered := l.enter(name)
	defer l.leave(entered)
	if !entered.turn.TryAcquire(1) && entered.turn.Acquire(waiting, 1) != nil {
		return nil, context.Cause(waiting)
	}
	defer entered.turn.Release(1)
	for hasWaited := false; ; hasWaited = true {
		// What came before this attempt is old.
		for len(entered.wake) > 0 {
			<-entered.wake
		}
		guard := l.newGuard(name, options)
		left, err := guard.acquire(ctx, entered.looks.Swap(0))
		switch {
		case err == nil && left == granted:
			if hasWaited {
				l.HandOffs.Add(1)
			}
			return guard, nil
		case isUnanswered(err) && hasWaited && waiting.Err() == nil:
			// A waiter outlives a short outage; a newcomer gets the error at once. It waits for its
			// subscription or for a second: each attempt leaves one that undoes it.
			left = -1
		case err != nil:
			return nil, err
		case waiting.Err() != nil:
			return nil, context.Cause(waiting)
		}
		entered.listen(l.client)
		pause := maxMessageWait
		if left >= 0 {
			pause = min(pause, time.Duration(left)*time.Millisecond+leaseEndMargin)
		}
		select {
		case <-entered.wake:
		case <-time.After(pause):
		case <-waiting.Done():
			return nil, context.Cause(waiting)
		}
	}
}

func (l *Locks) enter(name string) *place {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	entered := l.places[name]
	if entered == nil {
		entered = &place{name: name, turn: semaphore.NewWeighted(1), wake: make(chan struct{}, 1)}
		entered.channel = beside("lock__channel", name)
		l.places[name] = entered
	}
	entered.users++
	return entered
}

func (l *Locks) leave(left *place) {
	time.AfterFunc(250*time.Millisecond, func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		if left.users--; left.users == 0 {
			delete(l.places, left.name)
			if left.pubsub != nil {
				go left.pubsub.Close()
			}
		}
	})
}

// listen wakes the waiter at each message, and at each confirmation: one may be missed before.
func (p *place) listen(client *redis.Client) {
	if p.pubsub != nil {
		return
	}
	p.pubsub = client.Subscribe(context.Background())
	go func() {
		_ = p.pubsub.Subscribe(context.Background(), p.channel)
		for range p.pubsub.ChannelWithSubscriptions() {
			p.isSubscribed.Store(true)
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
	}()
}
