package distlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// granted stands for the nil of the script, beside what PTTL says of a key.
	granted = -3
	absent  = -2
)

var errNoAnswer = errors.New("distlock: Redis did not answer in time")

// attempt asks the server once. It returns the rest of the holder's lease in ms, or granted.
func (l *Locks) attempt(
	ctx context.Context, guard *Guard, reenters bool, deadline time.Time,
) (int64, error) {
	if !reenters && time.Now().Before(deadline) {
		// The quickest process would have it again and again: it looks before it asks.
		for looks := l.takeLooks(guard.owner.name); looks > 0; looks-- {
			left, err := answered(l, func(ctx context.Context) (int64, error) {
				return l.client.Do(ctx, "PTTL", guard.owner.name).Int64()
			})
			if err != nil || left != absent {
				return left, err
			}
		}
	}
	l.attempts.Add(1)
	type answer struct {
		left int64
		err  error
	}
	answers, gone := make(chan answer), make(chan struct{})
	l.inBackground(func() {
		left, err := l.acquire(guard, reenters)
		isGone := false
		select {
		case answers <- answer{left, err}:
		case <-gone:
			isGone = true
		}
		switch {
		case isUnanswered(err):
			l.abandon(guard, reenters)
		case isGone && err == nil && left == granted:
			// It repeats what gets no answer, until the lease has ended.
			l.abandon(guard, reenters)
		}
	})
	select {
	case brought := <-answers:
		if brought.err == nil && brought.left != granted {
			l.busy.Add(1)
		}
		return brought.left, brought.err
	case <-ctx.Done():
		close(gone)
		return 0, context.Cause(ctx)
	}
}

func (l *Locks) acquire(guard *Guard, reenters bool) (int64, error) {
	keys := []string{guard.owner.name, acquireLatch(guard)}
	sent := time.Now()
	left, err := repeated(l, func(ctx context.Context) (int64, error) {
		arguments := []any{guard.lease.Milliseconds(), guard.owner.text, flag(reenters), latchMs}
		left, err := acquireScript.Run(ctx, l.client, keys, arguments...).Int64()
		if errors.Is(err, redis.Nil) {
			return granted, nil
		}
		return left, err
	})
	guard.extend(sent)
	return left, err
}

func (l *Locks) release(guard *Guard) (Release, error) {
	name := guard.owner.name
	channelName := prefixed("redisson_lock__channel", name)
	latch := prefixed("redisson_unlock_latch", name) + ":" + guard.request
	answer, err := repeated(l, func(ctx context.Context) (int64, error) {
		arguments := []any{wakeOne, guard.lease.Milliseconds(), guard.owner.text, latchMs, "PUBLISH"}
		keys := []string{name, channelName, latch}
		return releaseScript.Run(ctx, l.client, keys, arguments...).Int64()
	})
	if err != nil {
		return Released, err
	}
	others := answer - 1
	if l.signals.isLive(channelName) {
		others--
	}
	if others > 0 {
		l.leaveLooks(name, min(others, 2))
	}
	switch answer {
	case -1:
		return Gone, nil
	case -2:
		return HeldByOther, nil
	}
	return Released, nil
}

func (l *Locks) renew(ctx context.Context, guard *Guard) ([]int64, error) {
	keys := []string{guard.owner.name}
	return answered(l, func(context.Context) ([]int64, error) {
		lease := guard.lease.Milliseconds()
		return renewScript.Run(ctx, l.client, keys, guard.owner.text, lease).Int64Slice()
	})
}

// abandon undoes an attempt without an answer, or keeps it from being carried out later.
func (l *Locks) abandon(guard *Guard, reenters bool) {
	name := guard.owner.name
	keys := []string{name, prefixed("redisson_lock__channel", name), acquireLatch(guard)}
	arguments := []any{wakeOne, guard.owner.text, flag(reenters), abandonMs, "PUBLISH"}
	end := time.Now().Add(guard.lease)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := answered(l, func(ctx context.Context) (int64, error) {
			// By its text: a server that hangs now could not ask for it later.
			return l.client.Eval(ctx, abandonText, keys, arguments...).Int64()
		})
		if !isUnanswered(err) || time.Now().After(end) {
			return
		}
		time.Sleep(pause)
	}
}

func (l *Locks) drawToken(ctx context.Context, guard *Guard) error {
	guard.owner.drawing.Lock()
	defer guard.owner.drawing.Unlock()
	if guard.owner.token != nil {
		return nil
	}
	token, err := l.options.TokenIssuer.Next(ctx, guard.owner.name)
	if err == nil {
		guard.owner.token = &token
	}
	return err
}

func (l *Locks) takeLooks(name string) int64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	found := l.giveWay[name]
	delete(l.giveWay, name)
	if time.Now().After(found.until) {
		return 0
	}
	return found.looks
}

func (l *Locks) leaveLooks(name string, looks int64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.giveWay) > 1000 {
		clear(l.giveWay)
	}
	l.giveWay[name] = yield{looks: looks, until: time.Now().Add(giveWayFor)}
}

func (l *Locks) inBackground(work func()) {
	l.mutex.Lock()
	l.running++
	l.mutex.Unlock()
	go func() {
		work()
		l.mutex.Lock()
		defer l.mutex.Unlock()
		if l.running--; l.running == 0 {
			l.idle.Broadcast()
		}
	}()
}

// repeated calls a script. A lost answer costs one repetition, which is safe: it counts once.
func repeated[T any](l *Locks, call func(context.Context) (T, error)) (T, error) {
	answer, err := answered(l, call)
	if isUnanswered(err) {
		answer, err = answered(l, call)
	}
	return answer, scriptError(err)
}

// answered bounds a call. go-redis may still carry it out later, which the scripts foresee.
func answered[T any](l *Locks, call func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.options.ResponseTimeout)
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		value, err := call(ctx)
		answers <- answer{value, err}
	}()
	select {
	case brought := <-answers:
		return brought.value, brought.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

func acquireLatch(guard *Guard) string {
	return prefixed("redisson_lock_latch", guard.owner.name) + ":" + guard.request
}

func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}
