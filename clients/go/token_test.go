package distlock

import (
	"context"
	"errors"
	"testing"
	"time"
)

type counter struct{ last uint64 }

func (c *counter) Next(context.Context, string) (uint64, error) {
	c.last++
	return c.last, nil
}

func TestAllHoldsOfAnOwnerHaveOneTokenAndEachOwnerAHigherOne(t *testing.T) {
	_, locks := process(t)
	name, issuer := freshName(), &counter{}
	outer := take(t, locks, name, LockOptions{TokenIssuer: issuer})
	inner := take(t, locks, name, LockOptions{TokenIssuer: issuer, Owner: outer.Owner()})
	for _, guard := range []*Guard{outer, inner} {
		if token := guard.Token(); token != 1 {
			t.Fatal(token)
		}
		assertRelease(t, guard, nil)
	}
	later := take(t, locks, name, LockOptions{TokenIssuer: issuer})
	if token := later.Token(); token != 2 {
		t.Fatal(token)
	}
	assertRelease(t, later, nil)
}

type issuerFunc func(ctx context.Context, name string) (uint64, error)

func (next issuerFunc) Next(ctx context.Context, name string) (uint64, error) {
	return next(ctx, name)
}

func TestATokenThatComesAfterTheLeaseIsNotHandedOut(t *testing.T) {
	_, others := process(t)
	var second *Guard
	_, locks := process(t)
	issuer := issuerFunc(func(ctx context.Context, name string) (token uint64, err error) {
		second, err = others.Lock(ctx, name, LockOptions{Wait: limit})
		return 1, err
	})
	name := freshName()
	late := LockOptions{Lease: 200 * time.Millisecond, NoRenewal: true, TokenIssuer: issuer}
	if _, err := locks.Lock(t.Context(), name, late); !errors.Is(err, ErrLost) {
		t.Fatal(err)
	}
	assertBusy(t, locks, name)
	assertRelease(t, second, nil)
}

func TestADrawThatFailsLeavesNothingAndTheNextHoldOfTheOwnerDraws(t *testing.T) {
	client, locks := process(t)
	name, errAway := freshName(), errors.New("the database is away")
	failing := issuerFunc(func(context.Context, string) (uint64, error) { return 0, errAway })
	fenced := LockOptions{TokenIssuer: failing}
	if _, err := locks.Lock(t.Context(), name, fenced); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	if client.Exists(t.Context(), name).Val() != 0 {
		t.Fatal("a hold is left")
	}
	outer := take(t, locks, name, LockOptions{})
	fenced.Owner = outer.Owner()
	if _, err := locks.Lock(t.Context(), name, fenced); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	inner := take(t, locks, name, LockOptions{Owner: outer.Owner(), TokenIssuer: &counter{}})
	if inner.Token() != 1 || outer.Token() != 0 {
		t.Fatal(inner.Token(), outer.Token())
	}
	assertRelease(t, inner, nil)
	assertRelease(t, outer, nil)
	if client.Exists(t.Context(), name).Val() != 0 {
		t.Fatal("a hold is left")
	}
}

func TestATokenThatComesWithinARenewedLeaseIsHandedOut(t *testing.T) {
	_, locks := process(t)
	lease := 1500 * time.Millisecond
	issuer := issuerFunc(func(context.Context, string) (uint64, error) {
		// Beyond the lease as it was granted.
		time.Sleep(lease + 200*time.Millisecond)
		return 1, nil
	})
	// A process that stands still loses the lock meanwhile.
	eventually(t, "it is handed out", func() bool {
		slow := LockOptions{Lease: lease, TokenIssuer: issuer}
		guard, err := locks.Lock(t.Context(), freshName(), slow)
		if errors.Is(err, ErrLost) {
			return false
		}
		if err != nil || guard.Token() != 1 {
			t.Fatal(guard, err)
		}
		assertRelease(t, guard, nil)
		return true
	})
}

func TestALockThatIsGrantedAfterItsLeaseIsLostAndReleased(t *testing.T) {
	client, locks := process(t)
	name := freshName()
	// If the process stands still, the pause may be over before the request.
	eventually(t, "it is lost", func() bool {
		client.ClientPause(t.Context(), 500*time.Millisecond)
		guard, err := locks.Lock(t.Context(), name, LockOptions{Lease: 100 * time.Millisecond})
		if err == nil {
			_ = guard.Release(t.Context())
		}
		return errors.Is(err, ErrLost)
	})
	if client.Exists(t.Context(), name).Val() != 0 {
		t.Fatal("a hold is left")
	}
}

func TestAContextThatEndsAsAnotherHoldDrawsTheTokenDoesNotWaitForIt(t *testing.T) {
	_, locks := process(t)
	name := freshName()
	outer := take(t, locks, name, LockOptions{})
	drawing, finish := make(chan struct{}), make(chan struct{})
	issuer := issuerFunc(func(context.Context, string) (uint64, error) {
		close(drawing)
		<-finish
		return 1, nil
	})
	fenced := LockOptions{Owner: outer.Owner(), TokenIssuer: issuer}
	drawn := make(chan *Guard)
	go func() {
		guard, _ := locks.Lock(context.Background(), name, fenced)
		drawn <- guard
	}()
	<-drawing
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := locks.Lock(ctx, name, fenced)
		failed <- err
	}()
	select {
	case err := <-failed:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(limit):
		t.Error("it waits for the other one")
	}
	close(finish)
	assertRelease(t, <-drawn, nil)
	assertRelease(t, outer, nil)
}

func TestAContextThatEndsDoesNotWaitForAnIssuerOfTokens(t *testing.T) {
	client, locks := process(t)
	name := freshName()
	ctx, cancel := context.WithCancel(t.Context())
	finish := make(chan struct{})
	defer close(finish)
	issuer := issuerFunc(func(context.Context, string) (uint64, error) {
		cancel()
		<-finish
		return 1, nil
	})
	failed := make(chan error, 1)
	go func() {
		_, err := locks.Lock(ctx, name, LockOptions{TokenIssuer: issuer})
		failed <- err
	}()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	case <-time.After(limit):
		t.Fatal("it waits for the issuer")
	}
	if client.Exists(t.Context(), name).Val() != 0 {
		t.Fatal("a hold is left")
	}
}
