package distlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestAContextWhoseCauseIsAnAnswerOfRedisHoldsNothing(t *testing.T) {
	client, locks := process(t)
	observer, _ := process(t)
	// A case that fails leaves the server to the next test as it found it.
	t.Cleanup(func() { observer.ClientUnpause(context.Background()) })
	for _, cause := range []error{redis.Nil, ErrLost} {
		name := freshName()
		// An errgroup ends its context with what another task of it failed with.
		ctx, cancel := context.WithCancelCause(context.Background())
		observer.Do(t.Context(), "CLIENT", "PAUSE", limit.Milliseconds(), "WRITE")
		failed := make(chan error)
		go func() {
			_, err := locks.Lock(ctx, name, LockOptions{})
			failed <- err
		}()
		eventually(t, "the server is asked", func() bool { return locks.Attempts.Load() > 0 })
		cancel(cause)
		if err := <-failed; !errors.Is(err, cause) {
			t.Fatal(err)
		}
		observer.ClientUnpause(t.Context())
		locks.Flush()
		if client.Exists(t.Context(), name).Val() != 0 {
			t.Fatalf("a hold is left after %v", cause)
		}
		locks.Attempts.Store(0)
	}
}

func TestNamesThatShareAChannelAreBothWoken(t *testing.T) {
	client, locks := process(t)
	_, others := process(t)
	// A process that stands still is late once, and one that polls is late each time.
	eventually(t, "both are woken by messages", func() bool {
		plain := freshName()
		var held []*Guard
		taken := make(chan *Guard, 2)
		for _, name := range []string{plain, "{" + plain + "}"} {
			held = append(held, take(t, locks, name, LockOptions{}))
			go func() {
				guard, _ := others.Lock(context.Background(), name, LockOptions{Wait: limit})
				taken <- guard
			}()
		}
		eventually(t, "both wait", func() bool { return waiters(t, client, plain) == 2 })
		begun := time.Now()
		for _, guard := range held {
			assertRelease(t, guard, nil)
			assertRelease(t, <-taken, nil)
		}
		return time.Since(begun) < 500*time.Millisecond
	})
}

func TestAGuardThatIsReleasedInTimeIsNotLostAfterTheEndOfItsLease(t *testing.T) {
	_, locks := process(t)
	eventually(t, "it is released in time", func() bool {
		guard := takeShort(t, locks, freshName(), 300*time.Millisecond)
		released := guard.Release(t.Context())
		isInTime := released == nil && time.Now().Before(guard.ValidUntil())
		time.Sleep(time.Until(guard.ValidUntil()))
		if err := guard.Err(); isInTime && err != nil {
			t.Fatal(err)
		}
		return isInTime
	})
}

func TestScriptsThatTheServerHasForgottenAreSentAgain(t *testing.T) {
	client, locks := process(t)
	guard := take(t, locks, freshName(), LockOptions{})
	client.ScriptFlush(t.Context())
	assertRelease(t, guard, nil)
	client.ScriptFlush(t.Context())
	assertRelease(t, take(t, locks, freshName(), LockOptions{}), nil)
}
