// The program contender takes, keeps and loses locks on commands from stdin.
//
// It speaks the protocol of conformance/src/protocol.rs, knows a part of its commands and refuses
// the others. It ends when stdin does, without releasing anything.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"distlock"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// setup is the first line in.
type setup struct {
	Kind      string
	Addresses struct{ Redis string }
	Tokens    json.RawMessage `json:"token_source"`
}

// request asks for a lock.
type request struct {
	Name    string
	WaitMs  int64  `json:"wait_ms"`
	LeaseMs int64  `json:"lease_ms"`
	Renewed *bool  `json:"renewed"`
	MaxHold *int64 `json:"max_hold_ms"`
	Fenced  bool
	AsOwner *string `json:"as_owner"`
}

// arguments has the fields of all commands.
type arguments struct {
	request
	Request    request
	Handle     uint64
	File       string
	PauseUs    int64 `json:"pause_us"`
	Tasks      int
	Rounds     int
	UntilNs    *int64 `json:"until_ns"`
	HoldUs     int64  `json:"hold_us"`
	Counter    string
	IgnoreLoss bool `json:"ignore_loss"`
}

type object = map[string]any

var (
	errNoHandle    = errors.New("the contender does not hold that")
	errUnsupported = errors.New("this contender has no such command")
	output         sync.Mutex
)

var codes = []struct {
	err  error
	code string
}{
	{distlock.ErrTimedOut, "timed_out"},
	{distlock.ErrLost, "lost"},
	{distlock.ErrHeldByOtherKind, "held_by_other_kind"},
	{distlock.ErrBadRequest, "bad_request"},
	{errNoHandle, "no_such_handle"},
	{errUnsupported, "unsupported"},
}

func codeOf(err error) string {
	for _, known := range codes {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return "backend"
}

func failed(err error) object {
	return object{"failed": object{"code": codeOf(err), "message": err.Error()}}
}

func say(id any, response any) {
	line, err := json.Marshal(object{"id": id, "at_ns": nowNs(), "response": response})
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// contender is what a line is carried out on.
type contender struct {
	client *redis.Client
	lock   func(request) (guard, error)
	locks  *distlock.Locks
	mutex  sync.Mutex
	holds  map[uint64]*hold
	owners map[string]*distlock.Owner
	last   uint64
	// isFenced says that there is an issuer of tokens.
	isFenced bool
}

// guard is a lock of this library or of another one.
type guard interface {
	Release(context.Context) error
}

type hold struct {
	guard
	released chan struct{}
}

func (h *hold) own() (*distlock.Guard, error) {
	if own, isOwn := h.guard.(*distlock.Guard); isOwn {
		return own, nil
	}
	return nil, errUnsupported
}

func newContender(told setup) (*contender, error) {
	options, err := redis.ParseURL(told.Addresses.Redis)
	if err != nil {
		return nil, err
	}
	c := &contender{
		client: redis.NewClient(options),
		holds:  map[uint64]*hold{},
		owners: map[string]*distlock.Owner{},
	}
	c.isFenced = string(told.Tokens) != "null" && len(told.Tokens) > 0
	c.locks = distlock.New(c.client)
	c.lock = c.ownLock
	if told.Kind == "lua-release" {
		c.lock = redislockOn(c.client)
	}
	first, err := c.lock(request{Name: "lock:warm-up:" + uuid.NewString(), LeaseMs: 2000})
	if err != nil {
		return nil, err
	}
	return c, first.Release(context.Background())
}

// redisCounter draws tokens for tests. A counter in Redis is no token source: a failover may set it
// back.
type redisCounter struct{ client *redis.Client }

func (r redisCounter) Next(ctx context.Context, name string) (uint64, error) {
	return r.client.Incr(ctx, "tokens:"+name).Uint64()
}

func (c *contender) ownLock(wanted request) (guard, error) {
	options := distlock.LockOptions{
		Wait:      time.Duration(wanted.WaitMs) * time.Millisecond,
		Lease:     time.Duration(wanted.LeaseMs) * time.Millisecond,
		NoRenewal: wanted.Renewed != nil && !*wanted.Renewed,
	}
	if wanted.Fenced {
		if !c.isFenced {
			return nil, fmt.Errorf("%w: fenced: needs a token issuer", distlock.ErrBadRequest)
		}
		options.TokenIssuer = redisCounter{c.client}
	}
	if wanted.MaxHold != nil {
		return nil, errUnsupported
	}
	if wanted.AsOwner != nil {
		c.mutex.Lock()
		options.Owner = c.owners[*wanted.AsOwner]
		c.mutex.Unlock()
		if options.Owner == nil {
			return nil, errNoHandle
		}
	}
	taken, err := c.locks.Lock(context.Background(), wanted.Name, options)
	if err != nil {
		return nil, err
	}
	return taken, nil
}

func (c *contender) obey(id uint64, command json.RawMessage) {
	response, err := c.try(command)
	if err != nil {
		response = failed(err)
	}
	say(id, response)
}

func (c *contender) try(command json.RawMessage) (any, error) {
	var verb string
	var what arguments
	if json.Unmarshal(command, &verb) != nil {
		var named map[string]json.RawMessage
		if err := json.Unmarshal(command, &named); err != nil {
			return nil, err
		}
		for name, fields := range named {
			verb = name
			if err := json.Unmarshal(fields, &what); err != nil {
				return nil, err
			}
		}
	}
	switch verb {
	case "lock":
		return c.hold(what.request)
	case "contend":
		return c.contend(&what)
	case "inspect":
		left, err := c.client.Do(context.Background(), "PTTL", what.Name).Int64()
		return object{"inspected": object{"is_locked": left != -2, "left_ms": left}}, err
	case "count":
		counted := object{"attempts": c.locks.Attempts.Load(), "busy": c.locks.Busy.Load()}
		counted["hand_offs"] = c.locks.HandOffs.Load()
		return object{"counted": counted}, nil
	case "flush":
		c.locks.Flush()
		return "done", nil
	}
	held, err := c.find(what.Handle, verb == "release")
	if err != nil {
		return nil, err
	}
	if verb == "release" {
		close(held.released)
		outcome, err := "released", held.Release(context.Background())
		switch {
		case errors.Is(err, distlock.ErrHeldByOther):
			outcome, err = "held_by_other", nil
		case errors.Is(err, distlock.ErrGone):
			outcome, err = "gone", nil
		}
		return object{"released": outcome}, err
	}
	own, err := held.own()
	if err != nil {
		return nil, err
	}
	switch verb {
	case "is_lost":
		return object{"looked": object{"lost": own.Err() != nil}}, nil
	case "validity":
		until := atNs(own.ValidUntil())
		return object{"validity": object{"until_ns": until, "looked_ns": nowNs()}}, nil
	case "effect":
		isHeld := own.Err() == nil
		if isHeld {
			err = addOne(what.File)
		}
		return object{"effected": object{"done": isHeld}}, err
	case "watch":
		begun := make(chan struct{})
		go watch(own, &what, begun)
		<-begun
		return "done", nil
	}
	return nil, errUnsupported
}

func (c *contender) find(handle uint64, take bool) (*hold, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	held := c.holds[handle]
	if held == nil {
		return nil, errNoHandle
	}
	if take {
		delete(c.holds, handle)
	}
	return held, nil
}

func (c *contender) hold(wanted request) (any, error) {
	asked := nowNs()
	taken, err := c.lock(wanted)
	if err != nil {
		return nil, err
	}
	held := object{"asked_ns": asked, "acquired_ns": nowNs(), "token": nil, "owner": "library"}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.last++
	noted := &hold{guard: taken, released: make(chan struct{})}
	c.holds[c.last] = noted
	held["handle"], held["valid_until_ns"] = c.last, nil
	if own, err := noted.own(); err == nil {
		c.owners[own.Owner().String()] = own.Owner()
		held["owner"], held["valid_until_ns"] = own.Owner().String(), atNs(own.ValidUntil())
		if token := own.Token(); token != 0 {
			held["token"] = token
		}
		go reportLoss(c.last, own, noted.released)
	}
	return object{"held": held}, nil
}

func reportLoss(handle uint64, own *distlock.Guard, released <-chan struct{}) {
	select {
	case <-own.Lost():
		cause := "expired"
		if errors.Is(own.Err(), distlock.ErrTaken) {
			cause = "taken"
		}
		say(nil, object{"lost": object{
			"handle": handle, "cause": cause, "told_ns": nowNs(),
			"valid_until_ns": atNs(own.ValidUntil()),
		}})
	case <-released:
	}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return
	}
	var told setup
	err := json.Unmarshal(lines.Bytes(), &told)
	var made *contender
	if err == nil {
		made, err = newContender(told)
	}
	if err != nil {
		say(nil, failed(err))
		return
	}
	say(nil, "ready")
	for lines.Scan() {
		var line struct {
			ID      uint64
			Command json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			fmt.Fprintln(os.Stderr, "contender:", err)
			os.Exit(1)
		}
		go made.obey(line.ID, line.Command)
	}
	runtime.KeepAlive(made)
}
