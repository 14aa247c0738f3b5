package distlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const limit = 10 * time.Second

var address string

// TestMain starts a private Redis for all tests. Debian's redis-check-rdb is the same program under
// another name.
func TestMain(m *testing.M) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		program, err = exec.LookPath("redis-check-rdb")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "missing: redis-server; apt-get install redis-tools brings it")
		os.Exit(1)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	address = free.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	_ = free.Close()
	folder, err := os.MkdirTemp("", "distlock-go")
	if err != nil {
		panic(err)
	}
	server := exec.Cmd{
		Path: program,
		Args: []string{"redis-server", "--port", port, "--save", "", "--dir", folder},
	}
	if err := server.Start(); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = server.Process.Kill()
	_ = server.Wait()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// process is what another process is, as far as the server can see.
func process(t *testing.T) (*redis.Client, *Locks) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	eventually(t, "Redis answers", func() bool { return client.Ping(t.Context()).Err() == nil })
	locks := New(client)
	t.Cleanup(func() { locks.Flush(); _ = client.Close() })
	return client, locks
}

func freshName() string { return "lock:test:" + uuid.NewString() }

func take(t *testing.T, locks *Locks, name string, options LockOptions) *Guard {
	t.Helper()
	guard, err := locks.Lock(t.Context(), name, options)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// takeShort takes a lock without renewal. A process that stands still has lost it before it is
// handed out, and takes another.
func takeShort(t *testing.T, locks *Locks, name string, lease time.Duration) (guard *Guard) {
	t.Helper()
	eventually(t, "it is taken", func() bool {
		var err error
		guard, err = locks.Lock(t.Context(), name, LockOptions{Lease: lease, NoRenewal: true})
		if err != nil && !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	})
	return guard
}

func assertRelease(t *testing.T, guard *Guard, expected error) {
	t.Helper()
	if err := guard.Release(context.Background()); !errors.Is(err, expected) {
		t.Fatalf("released: %v; expected %v", err, expected)
	}
}

func assertBusy(t *testing.T, locks *Locks, name string) {
	t.Helper()
	if guard, err := locks.TryLock(t.Context(), name, LockOptions{}); guard != nil || err != nil {
		t.Fatalf("the lock must be held: %v, %v", guard, err)
	}
}

func waiters(t *testing.T, client *redis.Client, name string) int64 {
	t.Helper()
	channel := beside("lock__channel", name)
	counted, err := client.PubSubNumSub(context.Background(), channel).Result()
	if err != nil {
		t.Fatal(err)
	}
	return counted[channel]
}

func TestTheScriptsEqualTheOnesOfTheTree(t *testing.T) {
	texts := map[string]string{
		"redisson_acquire": acquireText, "redisson_release": releaseText,
		"redisson_abandon": abandonText, "renew": renewText,
	}
	for name, text := range texts {
		file, err := os.ReadFile(filepath.Join("..", "..", "lua", "lock", name+".lua"))
		if errors.Is(err, os.ErrNotExist) {
			t.Skip("the module is outside of its tree")
		}
		if err != nil || string(file) != text {
			t.Fatalf("%s differs: run go generate (%v)", name, err)
		}
	}
}

func TestASecondOwnerWaitsUntilTheFirstOneReleases(t *testing.T) {
	client, locks := process(t)
	_, others := process(t)
	// A process that stands still is late once, and one that polls is late each time.
	eventually(t, "the message wakes it", func() bool {
		name := freshName()
		first := take(t, locks, name, LockOptions{})
		assertBusy(t, others, name)
		taken := make(chan *Guard)
		go func() {
			guard, err := others.Lock(context.Background(), name, LockOptions{Wait: limit})
			if err != nil {
				t.Error(err)
			}
			taken <- guard
		}()
		eventually(t, "the waiter waits", func() bool { return waiters(t, client, name) == 1 })
		begun := time.Now()
		assertRelease(t, first, nil)
		second := <-taken
		took := time.Since(begun)
		assertBusy(t, locks, name)
		assertRelease(t, second, nil)
		assertRelease(t, second, nil)
		return took < 500*time.Millisecond
	})
}

func TestGoroutinesEnterOneAtATime(t *testing.T) {
	_, locks := process(t)
	name := freshName()
	var counted atomic.Int64
	var tasks sync.WaitGroup
	for range 8 {
		tasks.Add(1)
		go func() {
			defer tasks.Done()
			for range 25 {
				guard, err := locks.Lock(context.Background(), name, LockOptions{Wait: limit})
				if err != nil {
					t.Error(err)
					return
				}
				// An increment is lost if two are inside: the others run between its two halves.
				seen := counted.Load()
				time.Sleep(time.Millisecond)
				counted.Store(seen + 1)
				_ = guard.Release(context.Background())
			}
		}()
	}
	tasks.Wait()
	if counted.Load() != 200 {
		t.Fatalf("increments were lost: %d", counted.Load())
	}
}

func TestAWaitThatIsOverTimesOut(t *testing.T) {
	_, locks := process(t)
	_, others := process(t)
	name := freshName()
	held := take(t, locks, name, LockOptions{})
	for _, waiting := range []*Locks{locks, others} {
		begun := time.Now()
		_, err := waiting.Lock(t.Context(), name, LockOptions{Wait: 300 * time.Millisecond})
		if took := time.Since(begun); !errors.Is(err, ErrTimedOut) || took < 250*time.Millisecond {
			t.Fatalf("%v after %s", err, took)
		}
	}
	assertRelease(t, held, nil)
}

func TestTheOwnerEntersAgainAndItsLastReleaseFrees(t *testing.T) {
	client, locks := process(t)
	name := freshName()
	outer := take(t, locks, name, LockOptions{})
	inner := take(t, locks, name, LockOptions{Owner: outer.Owner()})
	if holds := client.HGet(t.Context(), name, outer.Owner().String()).Val(); holds != "2" {
		t.Fatalf("%s holds", holds)
	}
	assertRelease(t, outer, nil)
	assertBusy(t, locks, name)
	assertRelease(t, inner, nil)
	again := take(t, locks, name, LockOptions{})
	_, err := locks.Lock(t.Context(), name, LockOptions{Owner: outer.Owner()})
	if !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	assertRelease(t, again, nil)
}

func TestARenewedLeaseLastsAndOneWithoutRenewalEnds(t *testing.T) {
	_, locks := process(t)
	name := freshName()
	renewed := take(t, locks, name, LockOptions{Lease: 9 * time.Second})
	fixed := takeShort(t, locks, name+":fixed", 900*time.Millisecond)
	ctx, cancel := fixed.Context(t.Context())
	defer cancel()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), ErrLost) || !errors.Is(fixed.Err(), ErrExpired) {
		t.Fatal(context.Cause(ctx), fixed.Err())
	}
	next := take(t, locks, name+":fixed", LockOptions{Wait: limit})
	end := renewed.ValidUntil().Add(2 * time.Second)
	eventually(t, "it is renewed", func() bool { return renewed.ValidUntil().After(end) })
	if renewed.Err() != nil {
		t.Fatal("a renewed lock is lost")
	}
	assertBusy(t, locks, name)
	assertRelease(t, fixed, ErrHeldByOther)
	assertRelease(t, next, nil)
	assertRelease(t, renewed, nil)
}

func TestALockThatIsRemovedIsLost(t *testing.T) {
	client, locks := process(t)
	name := freshName()
	guard := take(t, locks, name, LockOptions{Lease: 9 * time.Second})
	client.Del(t.Context(), name)
	select {
	case <-guard.Lost():
	case <-time.After(limit):
		t.Fatal("the loss is not reported")
	}
	if !errors.Is(guard.Err(), ErrTaken) {
		t.Fatal(guard.Err())
	}
	assertRelease(t, guard, ErrGone)
}

func TestAWaiterWhoseContextEndsLeavesNeitherHoldNorSubscription(t *testing.T) {
	client, locks := process(t)
	_, others := process(t)
	name := freshName()
	held := take(t, locks, name, LockOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := others.Lock(ctx, name, LockOptions{Wait: limit})
		failed <- err
	}()
	eventually(t, "the waiter waits", func() bool { return waiters(t, client, name) == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	assertRelease(t, held, nil)
	others.Flush()
	if client.Exists(t.Context(), name).Val() != 0 {
		t.Fatal("a hold is left")
	}
	eventually(t, "no subscription is left", func() bool { return waiters(t, client, name) == 0 })
}

func TestAnAcquisitionWhoseContextEndsAtAnyTimeHoldsNothing(t *testing.T) {
	client, locks := process(t)
	ends, takes := 0, 0
	for after := time.Duration(0); takes < 20 && after < time.Second; after += 5 * time.Microsecond {
		name := freshName()
		ctx, cancel := context.WithTimeout(context.Background(), after)
		guard, err := locks.Lock(ctx, name, LockOptions{})
		cancel()
		switch {
		case err == nil:
			takes++
			assertRelease(t, guard, nil)
		case errors.Is(err, context.DeadlineExceeded):
			ends++
		default:
			t.Fatal(err)
		}
		locks.Flush()
		if client.Exists(context.Background(), name).Val() != 0 {
			t.Fatalf("a hold is left of a context that ended after %s", after)
		}
	}
	if ends == 0 || takes == 0 {
		t.Fatalf("%d contexts ended, %d locks were taken", ends, takes)
	}
}

func TestALostMessageCostsASecondAtMost(t *testing.T) {
	client, locks := process(t)
	_, others := process(t)
	// A process that stands still is late once; one that polls less often is late each time.
	least := limit
	for tries := 0; least > 2*time.Second && tries < 4; tries++ {
		name, before := freshName(), others.Busy.Load()
		take(t, locks, name, LockOptions{})
		taken := make(chan *Guard)
		go func() {
			guard, _ := others.Lock(context.Background(), name, LockOptions{Wait: limit})
			taken <- guard
		}()
		// Once more after the confirmation of the subscription.
		eventually(t, "it has asked twice", func() bool { return others.Busy.Load() >= before+2 })
		begun := time.Now()
		client.Del(t.Context(), name)
		assertRelease(t, <-taken, nil)
		least = min(least, time.Since(begun))
	}
	if least > 2*time.Second {
		t.Fatalf("it waited for %s at least", least)
	}
}

func TestAKeyThatIsNoLockIsRefusedAndStays(t *testing.T) {
	client, locks := process(t)
	name := freshName()
	client.Set(t.Context(), name, "3", 0)
	if _, err := locks.Lock(t.Context(), name, LockOptions{}); !errors.Is(err, ErrHeldByOtherKind) {
		t.Fatal(err)
	}
	if client.Get(t.Context(), name).Val() != "3" {
		t.Fatal("the key has changed")
	}
}

func TestBadRequestsAreRefusedBeforeTheServerIsAsked(t *testing.T) {
	_, locks := process(t)
	name := freshName()
	owner := take(t, locks, name, LockOptions{}).Owner()
	bad := []LockOptions{
		{Lease: time.Millisecond}, {Wait: -1}, {Wait: 25 * time.Hour}, {Owner: owner},
	}
	before := locks.Attempts.Load()
	for _, options := range bad {
		if _, err := locks.Lock(t.Context(), name+":other", options); !errors.Is(err, ErrBadRequest) {
			t.Fatalf("%+v: %v", options, err)
		}
	}
	if asked := locks.Attempts.Load() - before; asked != 0 {
		t.Fatalf("the server was asked %d times", asked)
	}
}
