package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"distlock"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

const clockMonotonic = 1

// nowNs reads CLOCK_MONOTONIC, which is the same for all processes of a Linux machine.
func nowNs() int64 {
	var now syscall.Timespec
	_, _, _ = syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

// atNs says when that is on the common clock.
func atNs(instant time.Time) int64 {
	return nowNs() + int64(time.Until(instant))
}

// counter is a number in a file that nothing guards: 20 digits, written in one piece.
type counter struct{ file *os.File }

func openCounter(path string) (counter, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	return counter{file}, err
}

func (c counter) read() (uint64, error) {
	digits := make([]byte, 20)
	if length, _ := c.file.ReadAt(digits, 0); length == 0 {
		return 0, nil
	}
	return strconv.ParseUint(string(digits), 10, 64)
}

func (c counter) write(number uint64) error {
	_, err := c.file.WriteAt(fmt.Appendf(nil, "%020d", number), 0)
	return err
}

func addOne(path string) error {
	opened, err := openCounter(path)
	if err != nil {
		return err
	}
	defer func() { _ = opened.file.Close() }()
	seen, err := opened.read()
	if err != nil {
		return err
	}
	return opened.write(seen + 1)
}

// contend lets goroutines enter by turns, and count without any other guard.
func (c *contender) contend(contest *arguments) (any, error) {
	shared, err := openCounter(contest.Counter)
	if err != nil {
		return nil, err
	}
	records, failures := make([][]any, contest.Tasks), map[string]int{}
	var tasks sync.WaitGroup
	var mutex sync.Mutex
	for task := range contest.Tasks {
		tasks.Add(1)
		go func() {
			defer tasks.Done()
			for range contest.Rounds {
				if contest.UntilNs != nil && nowNs() >= *contest.UntilNs {
					return
				}
				record, err := c.enterSection(task, contest, shared)
				if err != nil {
					fmt.Fprintln(os.Stderr, "contender:", err)
					mutex.Lock()
					failures[codeOf(err)]++
					mutex.Unlock()
					continue
				}
				records[task] = append(records[task], record)
			}
		}()
	}
	tasks.Wait()
	all := []any{}
	for _, of := range records {
		all = append(all, of...)
	}
	return object{"contended": object{"records": all, "failures": failures}}, nil
}

func (c *contender) enterSection(task int, contest *arguments, shared counter) ([]any, error) {
	asked := nowNs()
	taken, err := c.lock(contest.Request)
	if err != nil {
		return nil, err
	}
	acquired := nowNs()
	own, isOwn := taken.(*distlock.Guard)
	seen, err := shared.read()
	if err != nil {
		return nil, err
	}
	if contest.HoldUs == 0 {
		runtime.Gosched()
	}
	time.Sleep(time.Duration(contest.HoldUs) * time.Microsecond)
	writes := contest.IgnoreLoss || !isOwn || own.Err() == nil
	if writes {
		if err := shared.write(seen + 1); err != nil {
			return nil, err
		}
	}
	valid, token := nowNs(), uint64(0)
	if isOwn {
		valid = min(valid, atNs(own.ValidUntil()))
		token = own.Token()
	}
	if err := taken.Release(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "contender: a release failed:", err)
	}
	return []any{task, asked, []int{0, 0}, acquired, valid, nowNs(), writes, token}, nil
}

// watch makes effects, each after a look at the lock, and notes the longest time without one.
func watch(own *distlock.Guard, what *arguments, begun chan<- struct{}) {
	seen := nowNs()
	slept, woke, since, effects := seen, seen, 0, 0
	note := func() int64 {
		last := seen
		if seen = nowNs(); seen-last > woke-slept {
			slept, woke, since = last, seen, 0
		}
		return seen
	}
	valid, effected := seen, seen
	for {
		begin := note()
		if own.Err() != nil {
			break
		}
		valid = begin
		if err := addOne(what.File); err != nil {
			fmt.Fprintln(os.Stderr, "contender: an effect failed:", err)
			break
		}
		effects, since, effected = effects+1, since+1, note()
		if effects == 1 {
			close(begun)
		}
		time.Sleep(time.Duration(what.PauseUs) * time.Microsecond)
	}
	if effects == 0 {
		close(begun)
	}
	say(nil, object{"watched": object{
		"handle": what.Handle, "effects": effects, "valid_ns": valid, "last_effect_ns": effected,
		"looked_ns": note(), "slept_ns": slept, "woke_ns": woke, "effects_since": since,
	}})
}

// libraryGuard is a lock of bsm/redislock, whose format is that of the kind lua-release.
type libraryGuard struct{ lock *redislock.Lock }

func (l libraryGuard) Release(ctx context.Context) error {
	err := l.lock.Release(ctx)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return distlock.ErrHeldByOther
	}
	return err
}

func redislockOn(client *redis.Client) func(request) (guard, error) {
	locker := redislock.New(client)
	return func(wanted request) (guard, error) {
		wait := time.Duration(wanted.WaitMs) * time.Millisecond
		ctx, cancel := context.WithTimeout(context.Background(), wait+time.Second)
		defer cancel()
		options := &redislock.Options{RetryStrategy: redislock.NoRetry()}
		if wait > 0 {
			options.RetryStrategy = redislock.LinearBackoff(2 * time.Millisecond)
		}
		lease := time.Duration(wanted.LeaseMs) * time.Millisecond
		lock, err := locker.Obtain(ctx, wanted.Name, lease, options)
		if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
			return nil, distlock.ErrTimedOut
		}
		return libraryGuard{lock}, err
	}
}
