package distlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:generate go run ./generate

var (
	acquireScript = redis.NewScript(acquireText)
	releaseScript = redis.NewScript(releaseText)
	renewScript   = redis.NewScript(renewText)
)

var (
	// ErrTimedOut means that another owner held the lock until the wait was over.
	ErrTimedOut = errors.New("distlock: another owner holds the lock")
	// ErrLost means that the hold ended without a release. Its owner cannot enter again.
	ErrLost = errors.New("distlock: the lock is lost")
	// ErrHeldByOtherKind means that the key is no lock of the kind redisson.
	ErrHeldByOtherKind = errors.New("distlock: the key is no lock of this kind")
	// ErrBadRequest means that an option is out of its range. No server was asked.
	ErrBadRequest = errors.New("distlock: bad request")
)

// scriptError says what an error of a script means.
func scriptError(err error) error {
	switch {
	case err == nil || isUnanswered(err):
		return err
	case strings.HasPrefix(err.Error(), "LOST"):
		return fmt.Errorf("%w: %w", ErrLost, err)
	case strings.Contains(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrHeldByOtherKind, err)
	}
	return err
}

// isUnanswered tells whether the server may have acted: it did not answer with an error.
func isUnanswered(err error) bool {
	var answer redis.Error
	return err != nil && !errors.As(err, &answer)
}

// prefixed is a key beside the lock's, in the same slot of a cluster, as Redisson names it.
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}
