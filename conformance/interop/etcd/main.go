// A process with the mutex of etcd's own package concurrency, for the tests of interoperation.
//
//	etcdpeer ENDPOINT TTL
//
// It reads commands, a line each, and answers each with a line, in the order of their ends:
//
//	lock NAME             waits for the lock.
//	try NAME              does not wait.
//	unlock NAME           frees it.
//	count NAME FILE N     takes the lock N times, and adds one to the number in the file.
//
// The answer to the first two is the create revision of its key, or busy.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func main() {
	ttl, err := strconv.Atoi(os.Args[2])
	check(err)
	config := clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 5 * time.Second}
	client, err := clientv3.New(config)
	check(err)
	peer := peer{client: client, ttl: ttl, held: map[string]*held{}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(peer.answer(strings.Fields(lines.Text())))
	}
}

// A mutex has a session of its own: two mutexes of one session would share the key.
type held struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

type peer struct {
	client *clientv3.Client
	ttl    int
	held   map[string]*held
}

func (peer *peer) answer(words []string) string {
	switch {
	case len(words) == 2 && words[0] == "lock":
		return peer.lock(words[1], (*concurrency.Mutex).Lock)
	case len(words) == 2 && words[0] == "try":
		return peer.lock(words[1], (*concurrency.Mutex).TryLock)
	case len(words) == 2 && words[0] == "unlock":
		peer.unlock(words[1])
		return "unlocked"
	case len(words) == 4 && words[0] == "count":
		times, err := strconv.Atoi(words[3])
		check(err)
		for range times {
			peer.lock(words[1], (*concurrency.Mutex).Lock)
			increment(words[2])
			peer.unlock(words[1])
		}
		return "counted"
	}
	return "unknown"
}

func (peer *peer) lock(name string, lock func(*concurrency.Mutex, context.Context) error) string {
	session, err := concurrency.NewSession(peer.client, concurrency.WithTTL(peer.ttl))
	check(err)
	mutex := concurrency.NewMutex(session, name)
	err = lock(mutex, context.Background())
	if errors.Is(err, concurrency.ErrLocked) {
		check(session.Close())
		return "busy"
	}
	check(err)
	peer.held[name] = &held{session, mutex}
	key, err := peer.client.Get(context.Background(), mutex.Key())
	check(err)
	return strconv.FormatInt(key.Kvs[0].CreateRevision, 10)
}

func (peer *peer) unlock(name string) {
	held := peer.held[name]
	check(held.mutex.Unlock(context.Background()))
	check(held.session.Close())
	delete(peer.held, name)
}

// Reads and writes in two steps, so that two at the same time lose an increment.
func increment(file string) {
	text, err := os.ReadFile(file)
	check(err)
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	check(err)
	check(os.WriteFile(file, []byte(strconv.Itoa(number+1)), 0o600))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
