module distlock

go 1.24

require (
	github.com/google/uuid v1.6.0
	github.com/redis/go-redis/v9 v9.17.3
	golang.org/x/sync v0.12.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
)
