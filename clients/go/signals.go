package distlock

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const unsubscribeDelay = 250 * time.Millisecond

// channel is one with a waiter, or with one in the last 250 ms.
type channel struct {
	name  string
	wake  chan struct{}
	users int
	live  bool
}

// signals wakes waiters at each message, and at each confirmation: one may be missed before. One
// connection, which go-redis makes again, serves all channels.
type signals struct {
	client   redis.UniversalClient
	mutex    sync.Mutex
	channels map[string]*channel
	pubsub   *redis.PubSub
	// order is held while the server is told; followed is what it knows.
	order    sync.Mutex
	followed map[string]*channel
}

// enter gives nil for a channel that no waiter has, unless it is to be made.
func (s *signals) enter(name string, create bool) *channel {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	entered, known := s.channels[name]
	if !known && !create {
		return nil
	}
	if !known {
		entered = &channel{name: name, wake: make(chan struct{}, 1)}
		s.channels[name] = entered
		if s.pubsub == nil {
			s.pubsub = s.client.Subscribe(context.Background())
			go s.deliver(s.pubsub.ChannelWithSubscriptions())
		}
		go s.follow(name)
	} else if entered.live {
		entered.signal()
	}
	entered.users++
	return entered
}

// follow subscribes to a channel that is wanted, and unsubscribes from one that is not.
func (s *signals) follow(name string) {
	s.order.Lock()
	defer s.order.Unlock()
	s.mutex.Lock()
	wanted, pubsub := s.channels[name], s.pubsub
	s.mutex.Unlock()
	if pubsub == nil || s.followed[name] == wanted {
		return
	}
	// Without a connection go-redis remembers both until it has one. Waiters poll meanwhile.
	if s.followed[name] != nil {
		delete(s.followed, name)
		_ = pubsub.Unsubscribe(context.Background(), name)
	}
	if wanted != nil {
		s.followed[name] = wanted
		_ = pubsub.Subscribe(context.Background(), name)
	}
}

func (s *signals) leave(left *channel) {
	if left == nil {
		return
	}
	s.mutex.Lock()
	left.users--
	s.mutex.Unlock()
	time.AfterFunc(unsubscribeDelay, func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if left.users == 0 && s.channels[left.name] == left {
			delete(s.channels, left.name)
			go s.follow(left.name)
		}
	})
}

func (s *signals) isLive(name string) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	entered := s.channels[name]
	return entered != nil && entered.live
}

func (s *signals) deliver(messages <-chan any) {
	for message := range messages {
		switch message := message.(type) {
		case *redis.Subscription:
			s.wake(message.Channel, message.Kind == "subscribe")
		case *redis.Message:
			s.wake(message.Channel, true)
		}
	}
}

func (s *signals) wake(name string, live bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if entered := s.channels[name]; entered != nil && live {
		entered.live = true
		entered.signal()
	}
}

func (s *signals) close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.pubsub == nil {
		return nil
	}
	closing := s.pubsub
	s.pubsub, s.channels = nil, map[string]*channel{}
	return closing.Close()
}

// signal keeps one message for a waiter that has not asked yet.
func (c *channel) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// clear forgets a message that is older than the attempt that begins.
func (c *channel) clear() {
	if c == nil {
		return
	}
	select {
	case <-c.wake:
	default:
	}
}
